//! The slow paths of `rlock` and `runlock`: a reader meets a writer. `state.rs` has the rest of the protocol.
//!
//! **How readers wait.** A reader that spins has the lock as soon as it sees the end of its phase: W is clear, or P has
//! flipped. Such a reader takes no permit. A reader that is about to sleep registers, in the count of `sleepers` of its
//! phase:
//!
//! | reader of phase P | writer, at the end of phase P |
//! |---|---|
//! | 1: `sleepers[P]` + 1 | 1: clears W, flips P |
//! | 2: loads the word: has the phase ended? | 2: loads `sleepers[P]`: not 0? |
//! | 3: if not, takes a permit of `admitted[P]`; begins anew | 3: if so, exchanges `sleepers[P]` for 0, and grants as many permits |
//! | 3: if so, `sleepers[P]` - 1; if `sleepers[P]` is 0 already, takes a permit | |
//!
//! All four accesses of steps 1 and 2 are sequentially consistent, so the reader sees the end of the phase, or the
//! writer sees the reader. For each parity of the phase, the number of registered readers equals `sleepers` plus the
//! number of permits that are granted or about to be. So each registered reader finds a count or a permit, though
//! perhaps one that was meant for another reader. A writer may be late for its step 2: the readers of its phase and
//! another writer after them have gone, and other readers sleep in a phase of the same parity. Those readers get the
//! permits. So a permit is a hint: a reader that has taken a permit looks at the word again.

use std::sync::atomic::Ordering::{self, Acquire, Relaxed, Release, SeqCst};

use sudog_runtime::fatal;
use sudog_runtime::sema::{WaitError, WaitLimit};
use sudog_runtime::shim::mark;

use super::go_rw_mutex::GoRwMutex;
use super::spinning::{READER_PAUSES, spin_while};
use super::state::{Phase, State};
use crate::raw::{Order, RawLock, Semaphore, Wake};

/// Ends the process if there were too many readers in `old`: the word before the caller counted itself as a reader.
pub(super) fn check_count(old: State) {
    if old.has_too_many_readers() {
        fatal("sync: more than 536870912 readers of an RWMutex");
    }
}

impl<W: RawLock, S: Semaphore> GoRwMutex<W, S> {
    #[cold]
    pub(super) fn rlock_slow(&self, old: State, limit: &WaitLimit<'_>) -> Result<(), WaitError> {
        check_count(old);
        self.wait_to_read(old, limit, "sync.RWMutex.RLock")
    }

    /// Waits until the caller may read. The caller is a reader or a successor, has found W set in `old`, and has
    /// counted itself.
    pub(super) fn wait_to_read(&self, old: State, limit: &WaitLimit<'_>, what: &'static str) -> Result<(), WaitError> {
        let phase = old.phase();
        loop {
            spin_while(READER_PAUSES, || self.must_wait(phase, Relaxed));
            if !self.must_wait(phase, Acquire) || !self.register(phase) {
                break;
            }
            let over = self
                .deadlock_owner
                .while_waiting(what, || self.admitted[phase.parity()].acquire_limited(Order::Fifo, limit));
            if over.is_err() {
                return if self.withdraw(phase) { over } else { Ok(()) };
            }
            if cfg!(sudog_loom) && self.must_wait(phase, Relaxed) {
                mark("a reader is woken by the writer of an earlier phase");
            }
        }
        self.enter();
        Ok(())
    }

    /// Does steps 1 and 2 of a reader that is about to sleep. Returns false if the phase has ended: the reader is not
    /// registered then.
    fn register(&self, phase: Phase) -> bool {
        self.sleepers[phase.parity()].fetch_add(1, SeqCst);
        // SeqCst contains Acquire.
        let must_wait = self.must_wait(phase, SeqCst);
        if !must_wait {
            mark("a reader that is about to sleep sees the end of its phase");
            self.unregister(phase);
        }
        must_wait
    }

    /// Does step 3 of a registered reader that does not sleep.
    #[cold]
    fn unregister(&self, phase: Phase) {
        let sleepers = &self.sleepers[phase.parity()];
        let mut old = sleepers.load(Relaxed);
        while old != 0 {
            // Relaxed: the step publishes nothing.
            match sleepers.compare_exchange_weak(old, old - 1, Relaxed, Relaxed) {
                Ok(_) => return,
                Err(now) => old = now,
            }
        }
        mark("a reader that does not sleep takes the permit of one that does");
        self.admitted[phase.parity()].acquire(Order::Fifo); // the permit is granted, or about to be
    }

    /// Withdraws a registered reader that gives up, and that has left the semaphore's queue. Returns false if the
    /// reader has been admitted: then the reader has the lock.
    #[cold]
    fn withdraw(&self, phase: Phase) -> bool {
        self.unregister(phase);
        let mut old = self.state.load(Acquire);
        // The head of `state.rs` argues that one bit of phase is enough.
        while old.must_wait(phase) {
            match self.state.compare_exchange_weak(old, old.withdraw(), Relaxed, Acquire) {
                Ok(_) => return true,
                Err(now) => old = now,
            }
        }
        self.enter();
        false
    }

    /// Returns whether `phase` has not ended. Only for a reader that has come in `phase`, and has not called
    /// [`enter`](Self::enter).
    #[inline]
    fn must_wait(&self, phase: Phase, ordering: Ordering) -> bool {
        self.state.load(ordering).must_wait(phase)
    }

    /// Notes that an admitted reader has seen the end of its phase.
    #[inline]
    fn enter(&self) {
        // Release: a thread that reads 0 comes after the reader's load that has seen the end of the phase.
        self.entering.fetch_sub(1, Release);
    }

    #[cold]
    pub(super) fn runlock_slow(&self, old: State) {
        // If a writer is announced, and the readers before that writer have all unlocked, then the readers that are left
        // wait for the writer. None of them has locked, so none may unlock.
        if !old.has_readers() || old.before() == 0 {
            fatal("sync: RUnlock of unlocked RWMutex");
        }
        if old.before() == 1 {
            self.drained.release(Wake::Normal);
        }
    }
}
