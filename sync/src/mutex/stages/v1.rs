//! Version 1: a semaphore with a single permit.
//!
//! | step | the semaphore |
//! |---|---|
//! | `lock` | takes the only permit, or waits for that permit |
//! | `unlock` | gives the permit back, and wakes the first waiter |
//!
//! Orderings: the semaphore orders the owners. Everything that happens before a release also happens before everything
//! that follows the acquire that takes the permit.
//!
//! Source: Version #1. Go never had this version: Go's first mutex, of 2008, has a counter in front of the semaphore,
//! and is [`FifoMutex`](crate::mutex::FifoMutex).

use std::fmt;
use std::sync::atomic::Ordering::Relaxed;

use sudog_runtime::{AtomicU32, Instant};

use crate::raw::{Order, RawLock, Semaphore, Wake};
use crate::semaphore::RuntimeSema;

/// A mutex that is a semaphore with a single permit.
///
/// Every `lock` and every `unlock` is a call of the semaphore, whether others want the mutex or not.
///
/// # Examples
///
/// ```
/// use sudog::low_level::RawLock;
/// use sudog::study::stages::V1;
///
/// let mu: V1 = V1::new();
/// mu.lock();
/// assert!(mu.try_lock().is_none());
/// // SAFETY: locked above.
/// unsafe { mu.unlock(()) };
/// ```
pub struct V1<S = RuntimeSema> {
    sema: S,
    /// The value 1 while the permit is taken, else 0. Read by `is_locked` only, as a semaphore cannot be asked for the
    /// number of its permits. Written by the contender that has taken the permit.
    held: AtomicU32,
}

impl<S: Semaphore> V1<S> {
    #[inline]
    fn taken(&self) {
        self.held.store(1, Relaxed);
    }
}

// SAFETY: the contender that takes the only permit has the lock. The semaphore orders the owners.
unsafe impl<S: Semaphore> RawLock for V1<S> {
    type Guard = ();

    const DEADLINES: bool = S::DEADLINES;

    fn new() -> Self {
        Self { sema: S::new(1), held: AtomicU32::new(0) }
    }

    #[inline]
    fn lock(&self) {
        self.sema.acquire(Order::Fifo);
        self.taken();
    }

    #[inline]
    fn try_lock(&self) -> Option<()> {
        self.sema.try_acquire().then(|| self.taken())
    }

    #[inline]
    fn try_lock_until(&self, deadline: Instant) -> Option<()> {
        self.sema.acquire_until(Order::Fifo, deadline).then(|| self.taken())
    }

    #[inline]
    unsafe fn unlock(&self, (): ()) {
        self.held.store(0, Relaxed);
        self.sema.release(Wake::Normal);
    }

    #[inline]
    fn is_locked(&self) -> bool {
        self.held.load(Relaxed) != 0
    }
}

impl<S> fmt::Debug for V1<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("V1").field("locked", &(self.held.load(Relaxed) != 0)).finish_non_exhaustive()
    }
}
