//! The interface of `lock_api` 0.5 for every [`RawRwLock`](crate::RawRwLock).

use std::time::{Duration, Instant};

use ::lock_api;

use crate::now;
use crate::{ConstRawRwLock, GoRwMutex};

/// The Go readers-writer mutex around a value.
///
/// The type is `lock_api`'s [`RwLock`](lock_api::RwLock) over the [`GoRwMutex`]: `read`, `write`, `try_read_for`,
/// `try_write_until`, [`RwLockWriteGuard::downgrade`](lock_api::RwLockWriteGuard::downgrade), mapped guards, and the
/// rest. The mutex is not poisoned when an owner panics. A guard may be sent to another thread and dropped there. A
/// reader must not read-lock again before it has unlocked: see [`GoRwMutex`].
///
/// # Examples
///
/// ```
/// use sudog::sync::RwMutex;
///
/// static WORDS: RwMutex<Vec<&str>> = RwMutex::new(Vec::new());
///
/// WORDS.write().push("go");
/// let (one, two) = (WORDS.read(), WORDS.read());
/// assert_eq!(one.len() + two.len(), 2);
/// assert!(WORDS.try_write().is_none());
/// ```
pub type RwMutex<T> = RwMutexWith<GoRwMutex, T>;

/// The guard that [`RwMutex::read`](lock_api::RwLock::read) returns: shared access to the value until the guard is
/// dropped.
pub type RwMutexReadGuard<'a, T> = lock_api::RwLockReadGuard<'a, ApiRwLock<GoRwMutex>, T>;

/// The guard that [`RwMutex::write`](lock_api::RwLock::write) returns: access to the value until the guard is dropped.
pub type RwMutexWriteGuard<'a, T> = lock_api::RwLockWriteGuard<'a, ApiRwLock<GoRwMutex>, T>;

/// A readers-writer mutex over any lock. [`RwMutex`] is `RwMutexWith` over [`GoRwMutex`].
///
/// # Examples
///
/// ```
/// use sudog::sync::PhaseFairRwMutex;
/// use sudog::sync::RwMutexWith;
///
/// static LIMITS: RwMutexWith<PhaseFairRwMutex, [u32; 2]> = RwMutexWith::new([1, 10]);
/// LIMITS.write()[1] = 20;
/// assert_eq!(LIMITS.read()[1], 20);
/// ```
pub type RwMutexWith<R, T> = lock_api::RwLock<ApiRwLock<R>, T>;

/// An adapter that gives a [`RawRwLock`](crate::RawRwLock) the interface of `lock_api`.
#[derive(Debug)]
#[repr(transparent)]
pub struct ApiRwLock<R>(R);

impl<R> ApiRwLock<R> {
    /// Wraps a lock, for [`lock_api::RwLock::from_raw`] when the lock is not the default lock.
    pub const fn new(lock: R) -> Self {
        Self(lock)
    }

    /// Returns the wrapped lock.
    pub const fn get(&self) -> &R {
        &self.0
    }
}

// SAFETY: an implementation of `RawRwLock` promises what `lock_api::RawRwLock` asks for: a writer excludes all others,
// a reader excludes all writers, and a locked lock may be moved and dropped once its guards are forgotten.
unsafe impl<R: ConstRawRwLock> lock_api::RawRwLock for ApiRwLock<R> {
    #[allow(clippy::declare_interior_mutable_const)] // required by the trait
    const INIT: Self = Self(R::INIT);

    type SharedGuard = R::SharedGuard;
    type ExclusiveGuard = R::ExclusiveGuard;

    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    fn lock_shared(&self) -> R::SharedGuard {
        self.0.rlock()
    }

    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    fn try_lock_shared(&self) -> Option<R::SharedGuard> {
        self.0.try_rlock()
    }

    #[inline]
    unsafe fn unlock_shared(&self, guard: R::SharedGuard) {
        // SAFETY: by the contract of this method, the current context holds this lock, and `guard` came from that
        // acquisition. The method of `R` asks for the same.
        unsafe { self.0.runlock(guard) }
    }

    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    fn lock_exclusive(&self) -> R::ExclusiveGuard {
        self.0.lock()
    }

    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    fn try_lock_exclusive(&self) -> Option<R::ExclusiveGuard> {
        self.0.try_lock()
    }

    #[inline]
    unsafe fn unlock_exclusive(&self, guard: R::ExclusiveGuard) {
        // SAFETY: by the contract of this method, the current context holds this lock, and `guard` came from that
        // acquisition. The method of `R` asks for the same.
        unsafe { self.0.unlock(guard) }
    }

    #[inline]
    fn is_locked(&self) -> bool {
        self.0.is_locked()
    }

    #[inline]
    fn is_locked_exclusive(&self) -> bool {
        self.0.is_locked_exclusive()
    }
}

// SAFETY: an implementation of `RawRwLock` promises that a downgrade lets no other writer in between.
unsafe impl<R: ConstRawRwLock> lock_api::RawRwLockDowngrade for ApiRwLock<R> {
    #[inline]
    unsafe fn downgrade(&self, guard: R::ExclusiveGuard) -> R::SharedGuard {
        // SAFETY: by the contract of this method, the current context holds this lock, and `guard` came from that
        // acquisition. The method of `R` asks for the same.
        unsafe { self.0.downgrade(guard) }
    }
}

// SAFETY: an implementation of `RawRwLock` promises for acquisitions with a deadline the exclusion that it promises for
// the others.
unsafe impl<R: ConstRawRwLock> lock_api::RawRwLockTimed for ApiRwLock<R> {
    type Duration = Duration;
    type Instant = Instant;

    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    fn try_lock_shared_for(&self, timeout: Duration) -> Option<R::SharedGuard> {
        match now().checked_add(timeout) {
            Some(deadline) => self.0.try_rlock_until(deadline),
            None => Some(self.0.rlock()), // the clock cannot express the deadline: wait without end
        }
    }

    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    fn try_lock_shared_until(&self, deadline: Instant) -> Option<R::SharedGuard> {
        self.0.try_rlock_until(deadline)
    }

    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    fn try_lock_exclusive_for(&self, timeout: Duration) -> Option<R::ExclusiveGuard> {
        match now().checked_add(timeout) {
            Some(deadline) => self.0.try_lock_until(deadline),
            None => Some(self.0.lock()), // the clock cannot express the deadline: wait without end
        }
    }

    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    fn try_lock_exclusive_until(&self, deadline: Instant) -> Option<R::ExclusiveGuard> {
        self.0.try_lock_until(deadline)
    }
}
