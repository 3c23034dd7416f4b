//! The interface of `lock_api` 0.5 for every [`RawLock`](crate::RawLock): guards, mapped guards, arc guards, timed
//! locking, `static`s.

use std::time::{Duration, Instant};

pub use ::lock_api;

use crate::now;
use crate::{ConstRawLock, GoMutex};

/// The Go mutex around a value.
///
/// The type is `lock_api`'s [`Mutex`](lock_api::Mutex) over the [`GoMutex`]: `lock`, `try_lock`, `try_lock_for`,
/// `try_lock_until`, `lock_arc`, mapped guards, and the rest. The mutex is not poisoned when its owner panics. As in
/// Go, only an unlock frees the mutex; the guard unlocks as the panic unwinds. A guard may be sent to another thread
/// and dropped there.
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

/// The guard that [`Mutex::lock`](lock_api::Mutex::lock) returns: access to the value until the guard is dropped.
pub type MutexGuard<'a, T> = lock_api::MutexGuard<'a, ApiLock<GoMutex>, T>;

/// A mutex that is built on a lock of the type `R`. [`Mutex`] is `MutexWith` over [`GoMutex`], so the compiler sees
/// both names as the same type.
///
/// # Examples
///
/// ```
/// use sudog::low_level::RuntimeSema;
/// use sudog::low_level::policy;
/// use sudog::sync::{GoMutex, MutexWith};
///
/// static WORDS: MutexWith<GoMutex<RuntimeSema, policy::Go>, Vec<&str>> = MutexWith::new(Vec::new());
/// WORDS.lock().push("go");
/// ```
pub type MutexWith<R, T> = lock_api::Mutex<ApiLock<R>, T>;

/// An adapter that gives a [`RawLock`](crate::RawLock) the interface of `lock_api` 0.5, and, with the feature
/// `lock_api_0_4`, that of `lock_api` 0.4: `lock_api::Mutex<ApiLock<GoMutex>, T>` of either version.
#[derive(Debug)]
#[repr(transparent)]
pub struct ApiLock<R>(R);

impl<R> ApiLock<R> {
    /// Wraps a lock, for [`lock_api::Mutex::from_raw`] when the lock is not the default lock.
    pub const fn new(lock: R) -> Self {
        Self(lock)
    }

    /// Returns the wrapped lock.
    pub const fn get(&self) -> &R {
        &self.0
    }
}

// SAFETY: an implementation of `RawLock` promises what `RawMutex` asks for: mutual exclusion, and that a locked lock
// may be moved and dropped once its guard is forgotten.
unsafe impl<R: ConstRawLock> lock_api::RawMutex for ApiLock<R> {
    #[allow(clippy::declare_interior_mutable_const)] // required by the trait
    const INIT: Self = Self(R::INIT);

    type Guard = R::Guard;

    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    fn lock(&self) -> R::Guard {
        self.0.lock()
    }

    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    fn try_lock(&self) -> Option<R::Guard> {
        self.0.try_lock()
    }

    #[inline]
    unsafe fn unlock(&self, guard: R::Guard) {
        // SAFETY: by the contract of `RawMutex::unlock`, the current context holds this lock, and `guard` came from
        // that acquisition. `RawLock::unlock` asks for the same.
        unsafe { self.0.unlock(guard) }
    }

    #[inline]
    fn is_locked(&self) -> bool {
        self.0.is_locked()
    }
}

// SAFETY: an implementation of `RawLock` promises mutual exclusion for its acquisitions with a deadline, too.
unsafe impl<R: ConstRawLock> lock_api::RawMutexTimed for ApiLock<R> {
    type Duration = Duration;
    type Instant = Instant;

    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    fn try_lock_for(&self, timeout: Duration) -> Option<R::Guard> {
        match now().checked_add(timeout) {
            Some(deadline) => self.0.try_lock_until(deadline),
            None => Some(self.0.lock()), // the clock cannot express the deadline: wait without end
        }
    }

    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    fn try_lock_until(&self, deadline: Instant) -> Option<R::Guard> {
        self.0.try_lock_until(deadline)
    }
}
