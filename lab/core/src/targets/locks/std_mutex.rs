//! StdMutex: an adapter for `std::sync::Mutex`.

use std::mem::{MaybeUninit, transmute};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use sudog_sync::{ConstRawLock, RawLock};

/// `std::sync::Mutex` as a [`RawLock`].
#[derive(Debug, Default)]
pub struct StdMutex(Mutex<()>);

/// The guard of a [`StdMutex`]: `std`'s guard without its lifetime. Not `Send`, as `std`'s guard is not.
///
/// Dropping this guard forgets the acquisition. The guard may then outlive the lock, so the type must not claim that
/// the reference inside is valid: `MaybeUninit` makes no such claim.
#[derive(Debug)]
pub struct StdGuard(MaybeUninit<MutexGuard<'static, ()>>);

impl StdGuard {
    fn new(guard: MutexGuard<'_, ()>) -> Self {
        // SAFETY: only the lifetime changes. Only `unlock` uses the guard, and by the contract of `unlock` the guard
        // came from the lock that is borrowed there.
        Self(MaybeUninit::new(unsafe { transmute::<MutexGuard<'_, ()>, MutexGuard<'static, ()>>(guard) }))
    }
}

// SAFETY: the mutex of the standard library keeps the promises of `RawLock`; a forgotten guard leaves the mutex locked.
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
        // SAFETY: the guard was initialised by `StdGuard::new`, and is consumed here; by the contract of `unlock` it
        // refers to this mutex.
        drop(unsafe { guard.0.assume_init() });
    }

    /// Tries to lock, as `std` has no other way to ask. The lock may be held for the moment of the call.
    fn is_locked(&self) -> bool {
        matches!(self.0.try_lock(), Err(TryLockError::WouldBlock))
    }
}

impl ConstRawLock for StdMutex {
    const INIT: Self = Self(Mutex::new(()));
}
