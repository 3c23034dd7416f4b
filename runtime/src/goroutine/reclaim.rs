//! The end of a worker: what is left of its goroutines is unwound, and their stacks are freed.
//!
//! A goroutine that waits has borrowed stack frames out to others: its sudog to a queue, its variables to scoped threads.
//! So no stack is ever freed with frames on it. The goroutine is resumed once more, and whatever it waits in panics with
//! [`Goexit`](super::Goexit); destructors unlink what was linked, pass on what had just been given, and the stack is free.
//! Where panics abort it cannot be done: then stacks, and the worker, are left as they are for ever.

use super::fibre::{Fibre, State};
use super::worker::{Chosen, Worker};
use super::{context, job};
use crate::Unparked;

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
        for fibre in self.fibres().collect::<Vec<_>>() {
            if fibre.state.get() != State::Spare {
                self.kill(fibre);
            }
        }
        // The dead may have been readied before they died; nobody waits any more.
        self.take_inbox();
        self.empty_queues();
        self.give_up_work();
        for fibre in self.fibres().collect::<Vec<_>>() {
            self.forget(fibre);
        }
        self.forget_spares();
        true
    }

    fn kill(&'static self, fibre: &'static Fibre) {
        self.take_inbox();
        self.empty_queues();
        self.disarm(fibre);
        if let Some(work) = fibre.work.take() {
            // Placed here, but never begun.
            fibre.state.set(State::Spare);
            self.count_end();
            // SAFETY: packed, and in no queue.
            unsafe { job::discard_work(work) };
            return;
        }
        // It has been readied and does not know it yet: whoever unwinds will ask.
        if fibre.state.get() == State::Queued && fibre.unparked.get() == Unparked::Ready {
            fibre.token.set(true);
        }
        fibre.dying.set(true);
        fibre.state.set(State::Running);
        context::resume(fibre); // not `Worker::resume`, which may free it
        debug_assert_eq!(fibre.state.get(), State::Spare, "a dying goroutine never suspends");
        fibre.dying.set(false);
        fibre.token.set(false);
    }

    /// Puts back what the loop had chosen.
    fn unpick(&'static self) {
        match self.own.chosen.take() {
            None => {}
            Some(Chosen::Fibre(fibre)) => fibre.state.set(State::Queued),
            Some(Chosen::Work(work)) => self.set().push_global([work]),
        }
    }

    fn empty_queues(&self) {
        self.own.next.set(None);
        while self.own.run_queue.pop().is_some() {}
    }

    /// What has not begun is for nobody. What its destructors start is, too; so they are dropped here, by a worker of the set.
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
