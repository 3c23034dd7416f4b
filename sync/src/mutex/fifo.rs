//! A counter and a semaphore: Go's mutex of 2008. Strictly first come, first served.
//!
//! | step | the count of contenders | then |
//! |---|---|---|
//! | `lock` | + 1 | it was 0: has the lock. Else waits for a permit, and has the lock with it |
//! | `unlock` | - 1 | it was above 1: releases a permit |
//! | one that waits, and gives up | - 1, if it is above 1 | else nobody is left to have the lock but itself: takes the permit |
//!
//! A permit is for whoever waits, and if there is one, so is the lock: nobody else takes either. One that gives up while
//! a permit is under way may leave it to the others, as long as there are any.
//!
//! Orderings: the count is changed by RMWs, Release as the lock is freed and Acquire as it is taken; a permit orders
//! the rest.
//!
//! Source: Go's `sync/mutex.go` of commit bf3dd3f0ef (2008).

use std::fmt;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use sudog_runtime::{AtomicU32, Instant};

use crate::raw::{Order, RawLock, Semaphore, Wake};
use crate::semaphore::RuntimeSema;

/// A lock that goes from hand to hand: to whoever has waited longest, and never to a newcomer while somebody waits.
///
/// The price is that of every strict queue: once somebody waits, each unlock wakes a sleeper, and the lock is idle until
/// it runs. First come, first served as far as the semaphore is.
///
/// # Limits
///
/// 2^32 - 1 contenders.
///
/// # Examples
///
/// ```
/// use sudog_sync::MutexOver;
/// use sudog_sync::mutex::FifoMutex;
///
/// static QUEUE: MutexOver<FifoMutex, Vec<u32>> = MutexOver::new(Vec::new());
/// QUEUE.lock().push(1);
/// ```
pub struct FifoMutex<S = RuntimeSema> {
    contenders: AtomicU32,
    sema: S,
}

impl<S: Semaphore> FifoMutex<S> {
    /// One that stands in no line any more gives up. False if the lock is its own.
    ///
    /// Should this be unwound, it is to be called again.
    #[cold]
    fn leave(&self) -> bool {
        let mut old = self.contenders.load(Relaxed);
        while old > 1 {
            match self.contenders.compare_exchange_weak(old, old - 1, Relaxed, Relaxed) {
                Ok(_) => return true,
                Err(now) => old = now,
            }
        }
        self.sema.acquire(Order::Fifo); // there, or on its way
        false
    }

    #[cold]
    #[track_caller]
    fn lock_slow(&self, deadline: Option<Instant>) -> bool {
        crate::relock::wait(|| self.wait_in_turn(deadline))
    }

    fn wait_in_turn(&self, deadline: Option<Instant>) -> bool {
        /// A goroutine that is unwound leaves its sleep by a panic.
        struct Unwound<'a, S: Semaphore>(&'a FifoMutex<S>);
        impl<S: Semaphore> Drop for Unwound<'_, S> {
            fn drop(&mut self) {
                if !self.0.leave() {
                    // SAFETY: the lock is ours.
                    unsafe { self.0.unlock(()) };
                }
            }
        }
        let unwound = Unwound(self);
        let got = match deadline {
            None => {
                self.sema.acquire(Order::Fifo);
                true
            }
            Some(deadline) => self.sema.acquire_until(Order::Fifo, deadline),
        };
        let locked = got || !self.leave();
        std::mem::forget(unwound);
        locked
    }
}

// SAFETY: the one that makes the count 1 has the lock, or else the one that takes a permit; an unlock makes one of the
// two possible. A permit that is given up is left to another contender, or is taken. The orderings are above.
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
            self.lock_slow(None);
        }
    }

    #[inline]
    fn try_lock(&self) -> Option<()> {
        self.contenders.compare_exchange(0, 1, Acquire, Relaxed).is_ok().then_some(())
    }

    #[inline]
    fn try_lock_until(&self, deadline: Instant) -> Option<()> {
        (self.contenders.fetch_add(1, Acquire) == 0 || self.lock_slow(Some(deadline))).then_some(())
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
    const UNLOCKED: Self = Self { contenders: AtomicU32::new(0), sema: S::EMPTY };
}

impl<S> fmt::Debug for FifoMutex<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FifoMutex").field("contenders", &self.contenders.load(Relaxed)).finish_non_exhaustive()
    }
}
