//! The successor of a sole owner: the owner of `writers`, which waits for the sole owner as a reader does. `state.rs`
//! has the protocol.

use std::sync::atomic::Ordering::Acquire;

use sudog_runtime::sema::{Cancel, WaitError, WaitLimit};
use sudog_runtime::shim::mark;
use sudog_runtime::{G, fatal};

use super::go_rw_mutex::GoRwMutex;
use super::read::check_count;
use super::spinning::{WRITER_PAUSES, spin_while};
use crate::now;
use crate::raw::{RawLock, Semaphore};

impl<W: RawLock, S: Semaphore> GoRwMutex<W, S> {
    /// Waits without a limit for a sole owner, which is mostly about to unlock. The caller owns `writers`.
    #[cold]
    pub(super) fn succeed_for_good(&self, guard: W::Guard) -> W::Guard {
        let mut announced = None;
        spin_while(WRITER_PAUSES, || {
            announced = self.announce(false);
            announced.is_none()
        });
        match announced {
            Some(true) => guard,
            Some(false) => self.drain_for_good(guard),
            None => {
                let turn = self.succeed(guard, &WaitLimit::default());
                turn.unwrap_or_else(|_| unreachable!("without a limit it waits"))
            }
        }
    }

    /// Counts the owner of `writers` as a reader, so that no sole owner overtakes the owner of `writers` from then on.
    /// Announces the owner of `writers` once that owner may read.
    ///
    /// A writer with a limit, which may have to retract, announces itself only once all readers that the previous
    /// writer has admitted have seen their admission. No further reader is admitted meanwhile, as the writer itself is
    /// counted as a reader. So the writer can give up here without a trace, and need not wait for these readers when it
    /// retracts. Such a wait could last long: the readers may be goroutines of the writer's own worker, and the writer
    /// may be unable to switch to them.
    #[cold]
    pub(super) fn succeed(&self, guard: W::Guard, limit: &WaitLimit<'_>) -> Result<W::Guard, WaitError> {
        match self.read_and_announce(limit) {
            Ok(true) => Ok(guard),
            Ok(false) => self.drain(guard, limit),
            Err(why) => {
                // SAFETY: `guard` is that of the caller's acquisition of `writers`.
                unsafe { self.writers.unlock(guard) };
                Err(why)
            }
        }
    }

    /// Announces the owner of `writers` once that owner may read. Returns true if there is no other reader: in that
    /// case the owner has the lock.
    fn read_and_announce(&self, limit: &WaitLimit<'_>) -> Result<bool, WaitError> {
        let old = self.state.read(Acquire);
        check_count(old);
        if old.has_writer() {
            mark("a writer succeeds a sole owner");
            self.wait_to_read(old, limit, "sync.RWMutex.Lock").inspect_err(|_| mark("a successor gives up"))?;
        }
        if limit.cancel.is_some() || limit.deadline.is_some() {
            self.await_entering(limit).inspect_err(|_| self.leave())?;
        }
        // No writer is there: a sole owner needs a word without readers, any other writer needs `writers`.
        let Some(alone) = self.announce(true) else { fatal("sync: RUnlock of unlocked RWMutex") };
        mark(if alone { "a successor has the lock as it announces itself" } else { "a successor reads beside others" });
        Ok(alone)
    }

    fn await_entering(&self, limit: &WaitLimit<'_>) -> Result<(), WaitError> {
        while self.entering.load(Acquire) != 0 {
            if limit.cancel.is_some_and(Cancel::is_cancelled) {
                return Err(WaitError::Cancelled);
            }
            if limit.deadline.is_some_and(|deadline| now() >= deadline) {
                return Err(WaitError::TimedOut);
            }
            G::yield_now();
        }
        Ok(())
    }
}
