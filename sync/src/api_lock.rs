//! Every [`RawLock`](crate::RawLock) through `lock_api` 0.5: guards, mapped guards, arc guards, timed locking,
//! `static`s.

use std::time::{Duration, Instant};

pub use ::lock_api;

use crate::now;
use crate::{ConstRawLock, GoMutex};

/// The Go mutex around a value.
///
/// It is `lock_api`'s [`Mutex`](lock_api::Mutex) over the [`GoMutex`]: `lock`, `try_lock`, `try_lock_for`,
/// `try_lock_until`, `lock_arc`, mapped guards, and the rest. It is not poisoned when a holder panics; as in Go, a
/// lock is freed by its unlock and by nothing else, and the guard unlocks as it unwinds. A guard may be sent to, and
/// dropped on, another thread.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use sudog::sync::Mutex;
///
/// let m = Mutex::new(5);
/// let guard = m.lock();
/// assert!(m.try_lock().is_none());
/// assert!(m.try_lock_for(Duration::from_millis(1)).is_none());
/// drop(guard);
/// *m.lock() += 1;
/// assert_eq!(m.into_inner(), 6);
/// ```
pub type Mutex<T> = MutexWith<GoMutex, T>;

/// What [`Mutex::lock`](lock_api::Mutex::lock) returns: access to the value until it is dropped.
pub type MutexGuard<'a, T> = lock_api::MutexGuard<'a, ApiLock<GoMutex>, T>;

/// A mutex over any lock. [`Mutex`] is this over [`GoMutex`], so both are one type to the compiler.
///
/// # Examples
///
/// ```
/// use sudog::sync::mutex::policy;
/// use sudog::sync::semaphore::RuntimeSema;
/// use sudog::sync::{GoMutex, MutexWith};
///
/// static WORDS: MutexWith<GoMutex<RuntimeSema, policy::Go>, Vec<&str>> = MutexWith::new(Vec::new());
/// WORDS.lock().push("go");
/// ```
pub type MutexWith<R, T> = lock_api::Mutex<ApiLock<R>, T>;

/// A [`RawLock`](crate::RawLock) seen through `lock_api`.
#[derive(Debug)]
#[repr(transparent)]
pub struct ApiLock<R>(R);

impl<R> ApiLock<R> {
    /// Wraps a lock; for [`lock_api::Mutex::from_raw`], when the lock is not the default one.
    pub const fn new(lock: R) -> Self {
        Self(lock)
    }

    /// The lock within.
    pub const fn get(&self) -> &R {
        &self.0
    }
}

// SAFETY: `RawLock` makes the same promises: mutual exclusion, and that a locked lock may be moved and dropped once
// its guard is forgotten.
unsafe impl<R: ConstRawLock> lock_api::RawMutex for ApiLock<R> {
    #[allow(clippy::declare_interior_mutable_const)] // required by the trait
    const INIT: Self = Self(R::INIT);

    type Guard = R::Guard;

    #[inline]
    fn lock(&self) -> R::Guard {
        self.0.lock()
    }

    #[inline]
    fn try_lock(&self) -> Option<R::Guard> {
        self.0.try_lock()
    }

    #[inline]
    unsafe fn unlock(&self, guard: R::Guard) {
        // SAFETY: the same contract.
        unsafe { self.0.unlock(guard) }
    }

    #[inline]
    fn is_locked(&self) -> bool {
        self.0.is_locked()
    }
}

// SAFETY: as above; the timed forms are acquisitions like the others.
unsafe impl<R: ConstRawLock> lock_api::RawMutexTimed for ApiLock<R> {
    type Duration = Duration;
    type Instant = Instant;

    #[inline]
    fn try_lock_for(&self, timeout: Duration) -> Option<R::Guard> {
        match now().checked_add(timeout) {
            Some(deadline) => self.0.try_lock_until(deadline),
            None => Some(self.0.lock()), // past the end of time
        }
    }

    #[inline]
    fn try_lock_until(&self, deadline: Instant) -> Option<R::Guard> {
        self.0.try_lock_until(deadline)
    }
}
