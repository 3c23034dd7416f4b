//! Locks that are locked and unlocked by hand.

use crate::rw_mutex::GoRwMutex;
use crate::{GoMutex, Semaphore, mutex};

/// Go's `sync.Locker`: a lock without guards.
///
/// The trait serves [`Cond::wait_locker`](crate::Cond::wait_locker), and code that is ported from Go unchanged.
/// `unsafe` code may not rely on a `Locker`, but may rely on a [`RawLock`](crate::RawLock).
///
/// # Examples
///
/// ```
/// use sudog::sync::{GoMutex, Locker};
///
/// fn with(locker: &impl Locker, f: impl FnOnce()) {
///     locker.lock();
///     f();
///     locker.unlock();
/// }
/// with(&GoMutex::new(), || ());
/// ```
pub trait Locker {
    /// Locks, waiting until the lock is free.
    fn lock(&self);

    /// Unlocks.
    fn unlock(&self);
}

impl<S: Semaphore, P: mutex::policy::Policy> Locker for GoMutex<S, P> {
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    fn lock(&self) {
        Self::lock(self);
    }

    #[inline]
    fn unlock(&self) {
        Self::unlock(self);
    }
}

/// Locks and unlocks for writing.
impl<W: mutex::UnguardedLock, S: Semaphore> Locker for GoRwMutex<W, S> {
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    fn lock(&self) {
        Self::lock(self);
    }

    #[inline]
    fn unlock(&self) {
        Self::unlock(self);
    }
}

impl<L: Locker + ?Sized> Locker for &L {
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    fn lock(&self) {
        (**self).lock();
    }

    #[inline]
    fn unlock(&self) {
        (**self).unlock();
    }
}
