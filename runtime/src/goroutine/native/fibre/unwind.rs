//! The end of a worker: what is left of its goroutines is unwound, and their stacks are freed.
//!
//! A goroutine that waits may have lent its stack frames to others: its sudog to a queue, its variables to scoped
//! threads. So no stack is ever freed with frames on it. The goroutine is resumed once more, and whatever it waits in
//! panics with [`Goexit`](crate::goroutine::Goexit); destructors unlink what was linked, pass on what had just been
//! given, and the stack is free. Destructors may wait, for a mutex that another goroutine of this worker has, and so do
//! not keep the others from being unwound. All of them look as if they panicked meanwhile (`thread::panicking`), as
//! they do.
//!
//! A goroutine that waits where a panic would end the process
//! ([`unwinding`](crate::goroutine::native::fibre::landing_pads)), or where it must have what it waits for
//! ([`MustReturn`](crate::goroutine::MustReturn)), is not unwound. It waits on, and so may get what another gives up as
//! it is unwound; then it runs, and is unwound where it waits next. Of the first kind, one that still waits a second
//! after the last other goroutine has ended is left: its stack stays as it is for ever, and so does the worker, which
//! is not used again. Where panics abort, all that have begun are left. But none is left while others may use what its
//! frames have lent: see [`loans`](crate::goroutine::native::fibre::loans).

use std::time::Duration;

use crate::ParkResult;
use crate::goroutine::native::fibre::{Fibre, State, Unwinding};
use crate::goroutine::native::fibre::{current, job};
use crate::goroutine::native::sched::worker::{Chosen, Worker};
use crate::goroutine::protocol::runq::Work;
use crate::shim::system;

/// How often a worker looks whether the goroutines that it unwinds can go on.
const LOOK: Duration = Duration::from_micros(100);
/// The same, when it has looked for long.
const LOOK_SELDOM: Duration = Duration::from_millis(10);
/// For how long a worker waits for goroutines that it cannot unwind, after the last other one has ended.
const PATIENCE: Duration = Duration::from_secs(1);

impl Worker {
    /// Unwinds all goroutines of this worker, drops what has not begun, frees the stacks, and gives up the worker's
    /// share of the scheduler's work. False if goroutines are left.
    ///
    /// By the owner, after its loop: the scheduler is over.
    pub(crate) fn reclaim(&'static self) -> bool {
        self.unpick();
        let mut waiting = Vec::new();
        let mut clean = true;
        for fibre in self.fibres().filter(|fibre| fibre.state.get() != State::Spare).collect::<Vec<_>>() {
            let ended = match fibre.work.take() {
                Some(work) => self.discard(fibre, work), // placed here, but never begun
                None if cfg!(panic = "abort") && fibre.may_be_left() => {
                    fibre.leave();
                    clean = false;
                    continue;
                }
                None => self.kill(fibre),
            };
            if !ended {
                waiting.push(fibre);
            }
        }
        let leave = |fibre: &Fibre, drops_too| {
            let cannot_be_unwound = match fibre.dying.get() {
                Unwinding::Doomed => true,
                Unwinding::Drops => drops_too,
                Unwinding::No | Unwinding::Unwound => false,
            };
            let may = cannot_be_unwound && fibre.may_be_left();
            if may {
                fibre.leave();
            }
            may
        };
        let mut progress = system::now();
        let mut look = LOOK;
        loop {
            // What destructors wait for is done by other destructors, here or elsewhere, or by foreign threads: a mutex
            // that one of them wants, another has; and a joiner of a goroutine that has not begun waits until that is
            // dropped. New work may come of it.
            let mut idle = true;
            let mut drop_in_goroutine = |fibre, ended: bool| {
                idle = false;
                if !ended {
                    waiting.push(fibre);
                }
            };
            while let Some(work) = self.unwanted() {
                let fibre = self.fibre_for(None);
                drop_in_goroutine(fibre, self.discard(fibre, work));
            }
            for (_, task) in self.sched().take_tasks() {
                let fibre = self.fibre_for(None);
                drop_in_goroutine(fibre, self.drop_on(fibre, move || drop(task)));
            }
            if waiting.is_empty() {
                if !idle {
                    continue; // destructors have been, and may have made work
                }
                if self.placed.close() && self.sched().leave_work(self.sleeper.epoch.get()) {
                    break;
                }
                continue;
            }
            let before = waiting.len();
            if cfg!(panic = "abort") {
                waiting.retain(|fibre| !leave(fibre, false));
                clean &= waiting.len() == before;
            }
            self.fire_timers();
            waiting.retain(|fibre| {
                self.empty_inbox();
                let ready = fibre.state.get() == State::Queued;
                idle &= !ready;
                !(ready && self.resume_dying(fibre))
            });
            let now = system::now();
            if !idle || waiting.len() < before {
                look = LOOK;
            }
            if waiting.len() < before {
                progress = now;
            } else if now.saturating_duration_since(progress) > PATIENCE {
                // Left where they are, they are like threads that nothing wakes. Where panics abort, a destructor may wait
                // for one that was left. One that has lent something is looked at again soon: between two calls it has not.
                waiting.retain(|fibre| !leave(fibre, cfg!(panic = "abort")));
                if waiting.len() < before {
                    clean = false;
                    progress = now;
                }
            }
            if idle && !waiting.is_empty() {
                system::thread::sleep(look);
                look = (look * 2).min(LOOK_SELDOM);
            }
        }
        // The dead may have been readied before they died; they wait no more.
        self.empty_inbox();
        for fibre in self.fibres().filter(|fibre| fibre.state.get() == State::Spare).collect::<Vec<_>>() {
            self.forget(fibre);
        }
        self.forget_spares();
        clean
    }

    /// A goroutine that has begun is resumed once more, and unwinds. False if it waits in a destructor, or where it
    /// cannot be unwound.
    fn kill(&'static self, fibre: &'static Fibre) -> bool {
        self.empty_inbox();
        self.disarm(fibre);
        // It has been readied and does not know it yet: the unwinding will ask.
        if fibre.state.get() == State::Queued && fibre.unparked.get() == ParkResult::Unparked {
            fibre.token.set(true);
        }
        fibre.dying.set(Unwinding::Doomed);
        self.resume_dying(fibre)
    }

    /// Drops work that has not begun, in a goroutine: its destructors may wait. False if one does.
    fn discard(&'static self, fibre: &'static Fibre, work: Work) -> bool {
        self.empty_inbox();
        if !job::is_job(work) {
            self.count_made(); // the goroutine that drops it counts its own end, and the task its own
        }
        // SAFETY: packed, and in no queue.
        self.run_on(fibre, move || unsafe { job::discard_work(work) })
    }

    /// Drops something else, in a goroutine. False if a destructor waits.
    fn drop_on(&'static self, fibre: &'static Fibre, drops: impl FnOnce() + 'static) -> bool {
        self.count_made(); // the goroutine that drops it counts its own end
        self.run_on(fibre, drops)
    }

    fn run_on(&'static self, fibre: &'static Fibre, drops: impl FnOnce() + 'static) -> bool {
        // SAFETY: run on this thread, below, and it borrows nothing.
        fibre.work.set(Some(unsafe { job::pack_unchecked(drops, None, Some(self)) }));
        fibre.dying.set(Unwinding::Drops);
        self.resume_dying(fibre)
    }

    /// Runs a dying goroutine until it waits, or has ended: then true. The run queue is empty: its links are those of
    /// the list of spare fibres, into which this one may go.
    fn resume_dying(&self, fibre: &'static Fibre) -> bool {
        fibre.state.set(State::Running);
        current::resume(fibre); // not `Worker::resume`, which may free it
        let ended = fibre.state.get() == State::Spare;
        if ended {
            fibre.dying.set(Unwinding::No);
            fibre.token.set(false);
        }
        ended
    }

    /// Work of this scheduler that has not begun, and that no worker will run.
    fn unwanted(&'static self) -> Option<Work> {
        // SAFETY: this is the owner.
        if let Some(work) = unsafe { self.ring.pop() } {
            return Some(work);
        }
        if let Some(work) = self.placed.take() {
            return Some(work);
        }
        if self.sched().has_global_work() { self.sched().pop_global(1).next() } else { None }
    }

    /// Puts back what the loop had chosen.
    fn unpick(&'static self) {
        match self.own.chosen.take() {
            None => {}
            Some(Chosen::Fibre(fibre)) => fibre.state.set(State::Queued),
            Some(Chosen::Work(work)) => self.sched().push_global([work]),
        }
    }

    /// Fibres in the inbox learn of it; but the queues of this worker choose none any more.
    fn empty_inbox(&'static self) {
        if !self.inbox.is_empty() {
            self.take_inbox();
        }
        self.own.next.set(None);
        self.own.yielder.set(None);
        while self.own.run_queue.pop().is_some() {}
    }
}
