//! A counter and a semaphore: Go's mutex of 2008. Strictly first come, first served.
//!
//! | step | the count of contenders | then |
//! |---|---|---|
//! | `lock` | + 1 | it was 0: the caller has the lock. Else it waits for a permit, and has the lock with it |
//! | `unlock` | - 1 | it was above 1: the releaser releases a permit |
//! | a waiter gives up | - 1, if it is above 1 | else it is the only contender: takes the permit, and has the lock |
//!
//! A permit is for a waiter, and the lock comes with it: no other contender takes either. A waiter that gives up while
//! a permit is under way may leave it to the other waiters, as long as there are any.
//!
//! Orderings: the count is changed by RMWs, Release as the lock is freed and Acquire as it is taken; a permit orders
//! the rest.
//!
//! Source: Go's `sync/mutex.go` of commit bf3dd3f0ef (2008).

use std::fmt;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use sudog_runtime::sema::{WaitError, WaitLimit};
use sudog_runtime::{AtomicU32, Instant};

use crate::raw::{Order, RawLock, Semaphore, Wake};
use crate::semaphore::RuntimeSema;

/// A strictly fair mutex: it goes to the contender that has waited longest, never to a newcomer past a waiter.
///
/// First come, first served, as far as the semaphore is. The price is that of every strict queue: under contention each
/// unlock wakes a sleeper, and the mutex is idle until the sleeper runs.
///
/// # Limits
///
/// At most 2^32 - 1 contenders at a time.
///
/// # Examples
///
/// ```
/// use sudog::sync::MutexWith;
/// use sudog::sync::mutex::FifoMutex;
///
/// static QUEUE: MutexWith<FifoMutex, Vec<u32>> = MutexWith::new(Vec::new());
/// QUEUE.lock().push(1);
/// ```
pub struct FifoMutex<S = RuntimeSema> {
    contenders: AtomicU32,
    sema: S,
}

impl<S: Semaphore> FifoMutex<S> {
    /// Gives up: the waiter is no longer in the semaphore's queue, but still counted. False if it has the lock instead.
    ///
    /// If this is unwound, the caller must call it again.
    #[cold]
    fn uncount(&self) -> bool {
        let mut old = self.contenders.load(Relaxed);
        while old > 1 {
            match self.contenders.compare_exchange_weak(old, old - 1, Relaxed, Relaxed) {
                Ok(_) => return true,
                Err(now) => old = now,
            }
        }
        // The permit is there, or on its way.
        self.sema.acquire(Order::Fifo);
        false
    }

    #[cold]
    #[track_caller]
    fn lock_slow(&self, limit: &WaitLimit<'_>) -> Result<(), WaitError> {
        crate::relock::wait(|| self.wait_for_permit(limit))
    }

    fn wait_for_permit(&self, limit: &WaitLimit<'_>) -> Result<(), WaitError> {
        /// A goroutine that is unwound leaves its sleep by a panic.
        struct CancelOnUnwind<'a, S: Semaphore>(&'a FifoMutex<S>);
        impl<S: Semaphore> Drop for CancelOnUnwind<'_, S> {
            fn drop(&mut self) {
                if !self.0.uncount() {
                    // SAFETY: `uncount` has returned false: the waiter has the lock, and nothing else unlocks it.
                    unsafe { self.0.unlock(()) };
                }
            }
        }
        let unwound = CancelOnUnwind(self);
        let over = self.sema.acquire_limited(Order::Fifo, limit);
        let locked = over.is_ok() || !self.uncount();
        std::mem::forget(unwound);
        if locked { Ok(()) } else { over }
    }
}

// SAFETY:
// - exclusion: the contender that raises the count from 0 has the lock, or else the contender that takes a permit; an
//   unlock makes one of the two possible. A waiter that gives up leaves a permit to another waiter, or takes it.
// - happens-before: the orderings are above.
unsafe impl<S: Semaphore> RawLock for FifoMutex<S> {
    type Guard = ();

    const DEADLINES: bool = S::DEADLINES;

    fn new() -> Self {
        Self { contenders: AtomicU32::new(0), sema: S::new(0) }
    }

    #[inline]
    #[track_caller]
    fn lock(&self) {
        if self.contenders.fetch_add(1, Acquire) != 0 {
            let locked = self.lock_slow(&WaitLimit::default());
            debug_assert_eq!(locked, Ok(()));
        }
    }

    #[inline]
    fn try_lock(&self) -> Option<()> {
        self.contenders.compare_exchange(0, 1, Acquire, Relaxed).is_ok().then_some(())
    }

    #[inline]
    fn try_lock_until(&self, deadline: Instant) -> Option<()> {
        self.lock_limited(&WaitLimit::until(deadline)).ok()
    }

    #[inline]
    fn lock_limited(&self, limit: &WaitLimit<'_>) -> Result<(), WaitError> {
        if self.contenders.fetch_add(1, Acquire) == 0 { Ok(()) } else { self.lock_slow(limit) }
    }

    #[inline]
    unsafe fn unlock(&self, (): ()) {
        if self.contenders.fetch_sub(1, Release) != 1 {
            self.sema.release(Wake::Handoff);
        }
    }

    #[inline]
    fn is_locked(&self) -> bool {
        self.contenders.load(Relaxed) != 0
    }
}

#[cfg(not(sudog_loom))]
impl<S: crate::ConstSemaphore> crate::ConstRawLock for FifoMutex<S> {
    const INIT: Self = Self { contenders: AtomicU32::new(0), sema: S::INIT };
}

impl<S> fmt::Debug for FifoMutex<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FifoMutex").field("contenders", &self.contenders.load(Relaxed)).finish_non_exhaustive()
    }
}
