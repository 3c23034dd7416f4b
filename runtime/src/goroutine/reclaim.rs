//! The end of a worker: what is left of its goroutines is unwound, and their stacks are freed.
//!
//! A goroutine that waits may have lent its stack frames to others: its sudog to a queue, its variables to scoped
//! threads. So no stack is ever freed with frames on it. The goroutine is resumed once more, and whatever it waits in
//! panics with [`Goexit`](super::Goexit); destructors unlink what was linked, pass on what had just been given, and the
//! stack is free. Destructors may wait, for a mutex that another goroutine of this worker has, and so do not keep the
//! others from being unwound. All of them look as if they panicked meanwhile (`thread::panicking`), as they do. Where
//! panics abort it cannot be done: then stacks, and the worker, are left as they are for ever.

use std::time::Duration;

use super::fibre::{Fibre, State};
use super::worker::{Chosen, Worker};
use super::{context, job};
use crate::Unparked;

/// How often a worker looks whether somebody has done what its last goroutines wait for.
const LOOK: Duration = Duration::from_micros(100);

impl Worker {
    /// Unwinds all goroutines of this worker, and frees their stacks. False if that cannot be done.
    ///
    /// By the owner, after its loop: the set is over.
    pub(super) fn reclaim(&'static self) -> bool {
        self.unpick();
        if cfg!(panic = "abort") {
            return self.fibres().next().is_none();
        }
        // A destructor may do nearly anything, but start no goroutine here: so the fibres do not become more.
        let fibres = self.fibres().collect::<Vec<_>>();
        self.empty_inbox();
        let begun = |fibre: &&'static Fibre| {
            let work = fibre.work.take();
            fibre.work.set(work);
            work.is_none()
        };
        let living = fibres.iter().copied().filter(|fibre| fibre.state.get() != State::Spare);
        let (waiting, mut unbegun) = living.partition::<Vec<_>, _>(begun);
        for fibre in waiting {
            self.kill(fibre);
        }
        self.await_destructors(&fibres, &mut unbegun);
        // The dead may have been readied before they died; nobody waits any more.
        self.empty_inbox();
        self.give_up_work();
        for fibre in fibres {
            self.forget(fibre);
        }
        self.forget_spares();
        true
    }

    /// A goroutine that has begun is resumed once more, and unwinds. It may come back before it has ended: its
    /// destructors may wait.
    fn kill(&'static self, fibre: &'static Fibre) {
        self.empty_inbox();
        self.disarm(fibre);
        // It has been readied and does not know it yet: whoever unwinds will ask.
        if fibre.state.get() == State::Queued && fibre.unparked.get() == Unparked::Ready {
            fibre.token.set(true);
        }
        fibre.dying.set(true);
        self.resume_dying(fibre);
    }

    fn resume_dying(&self, fibre: &'static Fibre) {
        fibre.state.set(State::Running);
        context::resume(fibre); // not `Worker::resume`, which may free it
        if fibre.state.get() == State::Spare {
            fibre.dying.set(false);
            fibre.token.set(false);
        }
    }

    /// What destructors wait for is done by the destructors of other goroutines, here or elsewhere, or by foreign
    /// threads: a mutex that one of them wants, another has.
    fn await_destructors(&'static self, fibres: &[&'static Fibre], unbegun: &mut Vec<&'static Fibre>) {
        loop {
            self.fire_timers();
            self.empty_inbox();
            let mut dying = fibres.iter().filter(|fibre| fibre.dying.get()).peekable();
            let idle = dying.peek().is_none();
            let mut waits = true;
            for fibre in dying.filter(|fibre| fibre.state.get() == State::Queued) {
                self.resume_dying(fibre);
                waits = false;
            }
            // Last, since their destructors run on this thread's own stack, and would keep it if they waited.
            match unbegun.pop() {
                Some(fibre) if waits => self.discard(fibre),
                Some(fibre) => unbegun.push(fibre),
                None if idle => return,
                None if waits => std::thread::sleep(LOOK),
                None => {}
            }
        }
    }

    /// Placed here, but never begun.
    fn discard(&'static self, fibre: &'static Fibre) {
        fibre.state.set(State::Spare);
        self.count_end();
        if let Some(work) = fibre.work.take() {
            // SAFETY: packed, and in no queue.
            unsafe { job::discard_work(work) };
        }
    }

    /// Puts back what the loop had chosen.
    fn unpick(&'static self) {
        match self.own.chosen.take() {
            None => {}
            Some(Chosen::Fibre(fibre)) => fibre.state.set(State::Queued),
            Some(Chosen::Work(work)) => self.set().push_global([work]),
        }
    }

    /// Whoever is in the inbox learns of it; but nobody of this worker is chosen by its queues any more.
    fn empty_inbox(&'static self) {
        self.take_inbox();
        self.own.next.set(None);
        while self.own.run_queue.pop().is_some() {}
    }

    /// What has not begun is for nobody. What its destructors start is, too; so they are dropped here, by a worker of
    /// the set.
    fn give_up_work(&'static self) {
        loop {
            for link in self.placed.take_all() {
                self.set().push_global([job::work_of_link(link)]);
            }
            self.empty_ring();
            if !self.set().has_global_work() {
                return;
            }
            self.set().discard_work();
        }
    }
}
