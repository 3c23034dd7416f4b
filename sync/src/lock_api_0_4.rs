//! The interface of `lock_api` 0.4, for crates that have not moved to 0.5. Behind the feature `lock_api_0_4`.
//!
//! `lock_api` 0.4 keeps nothing of an acquisition for its release, so the locks are those whose guards are `()`: the Go
//! mutex, and the Go RWMutex.

use std::time::{Duration, Instant};

use ::lock_api_0_4::{self as api, GuardSend};

use crate::now;
use crate::{ApiLock, ApiRwLock, ConstRawLock, ConstRawRwLock};

/// Returns the deadline after `timeout`; `None` if the clock cannot express that deadline.
fn deadline(timeout: Duration) -> Option<Instant> {
    now().checked_add(timeout)
}

// SAFETY: an implementation of `RawLock` promises mutual exclusion, and a locked lock may be unlocked by another thread,
// as `GuardSend` asks.
unsafe impl<R: ConstRawLock<Guard = ()>> api::RawMutex for ApiLock<R> {
    #[allow(clippy::declare_interior_mutable_const)] // required by the trait
    const INIT: Self = Self::new(R::INIT);

    type GuardMarker = GuardSend;

    #[inline]
    fn lock(&self) {
        self.get().lock();
    }

    #[inline]
    fn try_lock(&self) -> bool {
        self.get().try_lock().is_some()
    }

    #[inline]
    unsafe fn unlock(&self) {
        // SAFETY: by the contract of this method, the current context holds this lock. The guard of the acquisition is `()`.
        unsafe { self.get().unlock(()) }
    }

    #[inline]
    fn is_locked(&self) -> bool {
        self.get().is_locked()
    }
}

// SAFETY: an implementation of `RawLock` promises mutual exclusion for its acquisitions with a deadline, too.
unsafe impl<R: ConstRawLock<Guard = ()>> api::RawMutexTimed for ApiLock<R> {
    type Duration = Duration;
    type Instant = Instant;

    #[inline]
    fn try_lock_for(&self, timeout: Duration) -> bool {
        match deadline(timeout) {
            Some(deadline) => self.get().try_lock_until(deadline).is_some(),
            None => {
                self.get().lock();
                true
            }
        }
    }

    #[inline]
    fn try_lock_until(&self, deadline: Instant) -> bool {
        self.get().try_lock_until(deadline).is_some()
    }
}

// SAFETY: an implementation of `RawRwLock` promises that a writer excludes all others, and that a reader excludes all
// writers; a locked lock may be unlocked by another thread, as `GuardSend` asks.
unsafe impl<R: ConstRawRwLock<SharedGuard = (), ExclusiveGuard = ()>> api::RawRwLock for ApiRwLock<R> {
    #[allow(clippy::declare_interior_mutable_const)] // required by the trait
    const INIT: Self = Self::new(R::INIT);

    type GuardMarker = GuardSend;

    #[inline]
    fn lock_shared(&self) {
        self.get().rlock();
    }

    #[inline]
    fn try_lock_shared(&self) -> bool {
        self.get().try_rlock().is_some()
    }

    #[inline]
    unsafe fn unlock_shared(&self) {
        // SAFETY: by the contract of this method, the current context reads under this lock. The guard is `()`.
        unsafe { self.get().runlock(()) }
    }

    #[inline]
    fn lock_exclusive(&self) {
        self.get().lock();
    }

    #[inline]
    fn try_lock_exclusive(&self) -> bool {
        self.get().try_lock().is_some()
    }

    #[inline]
    unsafe fn unlock_exclusive(&self) {
        // SAFETY: by the contract of this method, the current context writes under this lock. The guard is `()`.
        unsafe { self.get().unlock(()) }
    }

    #[inline]
    fn is_locked(&self) -> bool {
        self.get().is_locked()
    }

    #[inline]
    fn is_locked_exclusive(&self) -> bool {
        self.get().is_locked_exclusive()
    }
}

// SAFETY: an implementation of `RawRwLock` promises that a downgrade lets no other writer in between.
unsafe impl<R: ConstRawRwLock<SharedGuard = (), ExclusiveGuard = ()>> api::RawRwLockDowngrade for ApiRwLock<R> {
    #[inline]
    unsafe fn downgrade(&self) {
        // SAFETY: by the contract of this method, the current context writes under this lock. The guards are `()`.
        unsafe { self.get().downgrade(()) }
    }
}

// SAFETY: an implementation of `RawRwLock` promises for acquisitions with a deadline the exclusion that it promises for
// the others.
unsafe impl<R: ConstRawRwLock<SharedGuard = (), ExclusiveGuard = ()>> api::RawRwLockTimed for ApiRwLock<R> {
    type Duration = Duration;
    type Instant = Instant;

    #[inline]
    fn try_lock_shared_for(&self, timeout: Duration) -> bool {
        match deadline(timeout) {
            Some(deadline) => self.get().try_rlock_until(deadline).is_some(),
            None => {
                self.get().rlock();
                true
            }
        }
    }

    #[inline]
    fn try_lock_shared_until(&self, deadline: Instant) -> bool {
        self.get().try_rlock_until(deadline).is_some()
    }

    #[inline]
    fn try_lock_exclusive_for(&self, timeout: Duration) -> bool {
        match deadline(timeout) {
            Some(deadline) => self.get().try_lock_until(deadline).is_some(),
            None => {
                self.get().lock();
                true
            }
        }
    }

    #[inline]
    fn try_lock_exclusive_until(&self, deadline: Instant) -> bool {
        self.get().try_lock_until(deadline).is_some()
    }
}

#[cfg(all(test, not(any(sudog_loom, sudog_sim))))]
mod tests {
    use super::*;
    use crate::{GoMutex, GoRwMutex};

    const SOON: Duration = Duration::from_millis(1);

    #[test]
    fn a_mutex() {
        static COUNT: api::Mutex<ApiLock<GoMutex>, u32> = api::Mutex::new(0);
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| (0..1000).for_each(|_| *COUNT.lock() += 1));
            }
        });
        let count = COUNT.lock();
        assert_eq!(*count, 4000);
        assert!(COUNT.try_lock().is_none() && COUNT.try_lock_for(SOON).is_none());
        // A guard may be sent: the other thread unlocks.
        std::thread::scope(|s| s.spawn(|| drop(count)).join().unwrap());
        assert!(COUNT.try_lock_for(Duration::MAX).is_some());
    }

    #[test]
    fn a_rw_lock() {
        static WORDS: api::RwLock<ApiRwLock<GoRwMutex>, Vec<u32>> = api::RwLock::new(Vec::new());
        let mut writer = WORDS.write();
        writer.push(1);
        assert!(WORDS.try_read_for(SOON).is_none() && WORDS.try_write().is_none());
        let reader = api::RwLockWriteGuard::downgrade(writer);
        assert_eq!(*WORDS.read(), [1]);
        assert!(WORDS.try_write_for(SOON).is_none());
        drop(reader);
        assert!(WORDS.try_write_for(Duration::MAX).is_some());
    }
}
