//! Every [`RawRwLock`](crate::RawRwLock) through `lock_api` 0.5.

use std::time::{Duration, Instant};

use ::lock_api;

use crate::now;
use crate::{ConstRawRwLock, GoRwMutex};

/// The Go readers-writer mutex around a value.
///
/// It is `lock_api`'s [`RwLock`](lock_api::RwLock) over the [`GoRwMutex`]: `read`, `write`, `try_read_for`,
/// `try_write_until`, [`RwLockWriteGuard::downgrade`](lock_api::RwLockWriteGuard::downgrade), mapped guards, and the
/// rest. It is not poisoned. A guard may be sent to, and dropped on, another thread. A reader must not read-lock again
/// before it has unlocked: see [`GoRwMutex`].
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

/// What [`RwMutex::read`](lock_api::RwLock::read) returns: shared access to the value until it is dropped.
pub type RwMutexReadGuard<'a, T> = lock_api::RwLockReadGuard<'a, ApiRwLock<GoRwMutex>, T>;

/// What [`RwMutex::write`](lock_api::RwLock::write) returns: access to the value until it is dropped.
pub type RwMutexWriteGuard<'a, T> = lock_api::RwLockWriteGuard<'a, ApiRwLock<GoRwMutex>, T>;

/// A readers-writer mutex over any lock. [`RwMutex`] is this over [`GoRwMutex`].
///
/// # Examples
///
/// ```
/// use sudog::sync::RwMutexWith;
/// use sudog::sync::rw_mutex::PhaseFairRwMutex;
///
/// static LIMITS: RwMutexWith<PhaseFairRwMutex, [u32; 2]> = RwMutexWith::new([1, 10]);
/// LIMITS.write()[1] = 20;
/// assert_eq!(LIMITS.read()[1], 20);
/// ```
pub type RwMutexWith<R, T> = lock_api::RwLock<ApiRwLock<R>, T>;

/// A [`RawRwLock`](crate::RawRwLock) seen through `lock_api`.
#[derive(Debug)]
#[repr(transparent)]
pub struct ApiRwLock<R>(R);

impl<R> ApiRwLock<R> {
    /// Wraps a lock; for [`lock_api::RwLock::from_raw`], when the lock is not the default one.
    pub const fn new(lock: R) -> Self {
        Self(lock)
    }

    /// The lock within.
    pub const fn get(&self) -> &R {
        &self.0
    }
}

// SAFETY: `RawRwLock` makes the same promises: a writer excludes all others, a reader all writers; and a locked lock
// may be moved and dropped once its guards are forgotten.
unsafe impl<R: ConstRawRwLock> lock_api::RawRwLock for ApiRwLock<R> {
    #[allow(clippy::declare_interior_mutable_const)] // required by the trait
    const INIT: Self = Self(R::INIT);

    type SharedGuard = R::SharedGuard;
    type ExclusiveGuard = R::ExclusiveGuard;

    #[inline]
    fn lock_shared(&self) -> R::SharedGuard {
        self.0.rlock()
    }

    #[inline]
    fn try_lock_shared(&self) -> Option<R::SharedGuard> {
        self.0.try_rlock()
    }

    #[inline]
    unsafe fn unlock_shared(&self, guard: R::SharedGuard) {
        // SAFETY: the same contract.
        unsafe { self.0.runlock(guard) }
    }

    #[inline]
    fn lock_exclusive(&self) -> R::ExclusiveGuard {
        self.0.lock()
    }

    #[inline]
    fn try_lock_exclusive(&self) -> Option<R::ExclusiveGuard> {
        self.0.try_lock()
    }

    #[inline]
    unsafe fn unlock_exclusive(&self, guard: R::ExclusiveGuard) {
        // SAFETY: the same contract.
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

// SAFETY: as above; a downgrade lets no writer in between.
unsafe impl<R: ConstRawRwLock> lock_api::RawRwLockDowngrade for ApiRwLock<R> {
    #[inline]
    unsafe fn downgrade(&self, guard: R::ExclusiveGuard) -> R::SharedGuard {
        // SAFETY: the same contract.
        unsafe { self.0.downgrade(guard) }
    }
}

// SAFETY: as above; the timed forms are acquisitions like the others.
unsafe impl<R: ConstRawRwLock> lock_api::RawRwLockTimed for ApiRwLock<R> {
    type Duration = Duration;
    type Instant = Instant;

    #[inline]
    fn try_lock_shared_for(&self, timeout: Duration) -> Option<R::SharedGuard> {
        match now().checked_add(timeout) {
            Some(deadline) => self.0.try_rlock_until(deadline),
            None => Some(self.0.rlock()), // past the end of time
        }
    }

    #[inline]
    fn try_lock_shared_until(&self, deadline: Instant) -> Option<R::SharedGuard> {
        self.0.try_rlock_until(deadline)
    }

    #[inline]
    fn try_lock_exclusive_for(&self, timeout: Duration) -> Option<R::ExclusiveGuard> {
        match now().checked_add(timeout) {
            Some(deadline) => self.0.try_lock_until(deadline),
            None => Some(self.0.lock()), // past the end of time
        }
    }

    #[inline]
    fn try_lock_exclusive_until(&self, deadline: Instant) -> Option<R::ExclusiveGuard> {
        self.0.try_lock_until(deadline)
    }
}
