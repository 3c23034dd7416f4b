//! The end of a phase: a writer unlocks, or gives up, and admits the readers that wait. `state.rs` has the protocol, and
//! `read.rs` the steps of a writer beside those of a reader.

use std::sync::atomic::Ordering::{Relaxed, Release, SeqCst};

use sudog_runtime::fatal;
use sudog_runtime::shim::mark;

use super::go_rw_mutex::GoRwMutex;
use super::state::{Phase, State, Then};
use crate::raw::{RawLock, Semaphore};

impl<W: RawLock, S: Semaphore> GoRwMutex<W, S> {
    /// Admits the readers that came in a phase that has ended. `old` is the word before the end.
    #[inline]
    pub(super) fn admit(&self, old: State) {
        let n = old.after() as u32;
        if n > 0 {
            self.admit_some(old.phase(), n);
        }
    }

    #[inline]
    fn admit_some(&self, phase: Phase, n: u32) {
        // Relaxed: a thread that reads `entering` owns `writers`, and so comes after this step. Some of the readers may
        // have subtracted themselves already; then `entering` is below 0 for a moment.
        self.entering.fetch_add(n, Relaxed);
        self.wake_sleepers(phase);
    }

    /// Does step 2 of a writer at the end of a phase. Step 1 was SeqCst.
    #[inline]
    fn wake_sleepers(&self, phase: Phase) {
        if self.sleepers[phase.parity()].load(SeqCst) != 0 {
            self.grant_to_sleepers(phase);
        }
    }

    #[cold]
    fn grant_to_sleepers(&self, phase: Phase) {
        // Relaxed: the readers see the end of the phase in the word, and a permit orders all that came before the
        // grant.
        self.admitted[phase.parity()].grant_many(self.sleepers[phase.parity()].swap(0, Relaxed));
    }

    /// Ends a write. `then` says what the caller does next.
    ///
    /// # Safety
    ///
    /// The same conditions as for [`RawLock::unlock`] of `writers`; and the caller has the lock for writing.
    #[inline]
    pub(super) unsafe fn end_write(&self, guard: W::Guard, then: Then) {
        match then {
            Then::Leave => self.deadlock_owner.clear(),
            Then::Read => self.deadlock_owner.becomes_reader(),
        }
        if Self::has_sole_owners() {
            // S does not change before the owner unlocks.
            let old = self.state.load(Relaxed);
            if old.has_sole_owner() {
                self.end_sole(old, then);
                return sudog_runtime::safepoint();
            }
        }
        self.end_phase(then);
        // SAFETY: by the contract of `end_write`, `guard` is that of the caller's acquisition of `writers`.
        unsafe { self.writers.unlock(guard) };
        sudog_runtime::safepoint();
    }

    /// Ends a sole owner's write.
    #[inline]
    fn end_sole(&self, old: State, then: Then) {
        let waits = old.has_readers();
        // Release is enough without readers: a reader leaves `sleepers` before it leaves the word, so no reader is
        // registered.
        if waits || self.state.compare_exchange(old, old.end_sole(then), Release, Relaxed).is_err() {
            self.end_sole_and_admit(then);
        }
    }

    /// Ends a sole owner's write if readers wait, or have waited a moment ago.
    #[cold]
    fn end_sole_and_admit(&self, then: Then) {
        let mut old = self.state.load(Relaxed);
        let mut counted = 0;
        loop {
            if !(old.has_writer() && old.has_sole_owner()) {
                fatal("sync: Unlock of unlocked RWMutex");
            }
            let n = old.readers() as u32;
            // Add the waiting readers to `entering` before the step that ends the write: a successor that begins to
            // read after that step must find these readers in `entering`. No thread reads `entering` before that step:
            // a writer that is there has either counted itself as a reader, and waits, or has not done so yet.
            self.entering.fetch_add(n.wrapping_sub(counted), Relaxed);
            counted = n;
            match self.state.compare_exchange_weak(old, old.end_sole(then), SeqCst, Relaxed) {
                Ok(_) => break,
                Err(now) => old = now,
            }
        }
        if counted > 1 {
            mark("a sole owner admits more than one");
        }
        if counted > 0 {
            self.wake_sleepers(old.phase());
        }
    }

    #[inline]
    fn end_phase(&self, then: Then) {
        let old = self.state.end_write(then, SeqCst);
        if !old.has_writer() || old.before() != 0 {
            fatal("sync: Unlock of unlocked RWMutex");
        }
        self.admit(old);
    }
}
