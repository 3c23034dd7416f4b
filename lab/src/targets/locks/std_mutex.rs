//! `std::sync::Mutex`.

use std::mem::{MaybeUninit, transmute};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use sudog_sync::{ConstRawLock, RawLock};

/// `std::sync::Mutex` as a [`RawLock`].
#[derive(Debug, Default)]
pub struct StdMutex(Mutex<()>);

/// What an acquisition of a [`StdMutex`] hands to its release: `std`'s guard without its lifetime. Not `Send`, as
/// `std`'s is not.
///
/// Dropping it is forgetting the acquisition. It may outlive the lock then, so it makes no claim that the reference in
/// it is good, which is what `MaybeUninit` says.
#[derive(Debug)]
pub struct StdGuard(MaybeUninit<MutexGuard<'static, ()>>);

impl StdGuard {
    fn new(guard: MutexGuard<'_, ()>) -> Self {
        // SAFETY: only the lifetime changes. Nothing uses the guard but `unlock`, whose caller vouches that it came
        // from the lock that is borrowed there.
        Self(MaybeUninit::new(unsafe { transmute::<MutexGuard<'_, ()>, MutexGuard<'static, ()>>(guard) }))
    }
}

// SAFETY: the mutex of the standard library keeps these promises; a guard that is forgotten leaves it locked.
unsafe impl RawLock for StdMutex {
    type Guard = StdGuard;

    const DEADLINES: bool = false;

    fn new() -> Self {
        Self::INIT
    }

    #[inline]
    fn lock(&self) -> StdGuard {
        StdGuard::new(self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    #[inline]
    fn try_lock(&self) -> Option<StdGuard> {
        match self.0.try_lock() {
            Ok(guard) => Some(StdGuard::new(guard)),
            Err(TryLockError::Poisoned(poisoned)) => Some(StdGuard::new(poisoned.into_inner())),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    #[inline]
    unsafe fn unlock(&self, guard: StdGuard) {
        // SAFETY: made by `StdGuard::new`, and consumed here; the mutex that it refers to is this one, by the contract.
        drop(unsafe { guard.0.assume_init() });
    }

    /// Asks by trying: `std` has no other way. For that moment the lock may be held.
    fn is_locked(&self) -> bool {
        matches!(self.0.try_lock(), Err(TryLockError::WouldBlock))
    }
}

impl ConstRawLock for StdMutex {
    const INIT: Self = Self(Mutex::new(()));
}
