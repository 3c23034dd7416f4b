//! StdRwLock: an adapter for `std::sync::RwLock`.

use std::mem::{MaybeUninit, transmute};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use sudog_sync::RawRwLock;

use super::tried;

/// `std::sync::RwLock` as a [`RawRwLock`].
#[derive(Debug, Default)]
pub struct StdRwLock(RwLock<()>);

/// The guard of a reader of a [`StdRwLock`]: `std`'s guard without its lifetime. Not `Send`, as `std`'s guard is not.
///
/// Dropping this guard forgets the acquisition. The guard may then outlive the lock, so the type must not claim that
/// the reference inside is valid: `MaybeUninit` makes no such claim.
#[derive(Debug)]
pub struct StdReadGuard(MaybeUninit<RwLockReadGuard<'static, ()>>);

/// The guard of a writer of a [`StdRwLock`]: `std`'s guard without its lifetime.
#[derive(Debug)]
pub struct StdWriteGuard(MaybeUninit<RwLockWriteGuard<'static, ()>>);

impl StdReadGuard {
    #[inline]
    fn new(guard: RwLockReadGuard<'_, ()>) -> Self {
        // SAFETY: only the lifetime changes. Only `runlock` uses the guard, and by the contract of `runlock` the guard
        // came from the lock that is borrowed there.
        Self(MaybeUninit::new(unsafe { transmute::<RwLockReadGuard<'_, ()>, RwLockReadGuard<'static, ()>>(guard) }))
    }
}

impl StdWriteGuard {
    #[inline]
    fn new(guard: RwLockWriteGuard<'_, ()>) -> Self {
        // SAFETY: only the lifetime changes. Only `unlock` and `downgrade` use the guard, and by their contracts the
        // guard came from the lock that is borrowed there.
        Self(MaybeUninit::new(unsafe { transmute::<RwLockWriteGuard<'_, ()>, RwLockWriteGuard<'static, ()>>(guard) }))
    }
}

// SAFETY: the lock of the standard library keeps the promises of `RawRwLock`; a forgotten guard leaves the lock locked.
unsafe impl RawRwLock for StdRwLock {
    type SharedGuard = StdReadGuard;
    type ExclusiveGuard = StdWriteGuard;

    const DEADLINES: bool = false;

    fn new() -> Self {
        Self::default()
    }

    #[inline]
    fn rlock(&self) -> StdReadGuard {
        StdReadGuard::new(self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    #[inline]
    fn try_rlock(&self) -> Option<StdReadGuard> {
        tried(self.0.try_read()).map(StdReadGuard::new)
    }

    #[inline]
    unsafe fn runlock(&self, guard: StdReadGuard) {
        // SAFETY: the guard was initialised by `StdReadGuard::new`, and is consumed here; by the contract of `runlock`
        // it refers to this lock.
        drop(unsafe { guard.0.assume_init() });
    }

    #[inline]
    fn lock(&self) -> StdWriteGuard {
        StdWriteGuard::new(self.0.write().unwrap_or_else(PoisonError::into_inner))
    }

    #[inline]
    fn try_lock(&self) -> Option<StdWriteGuard> {
        tried(self.0.try_write()).map(StdWriteGuard::new)
    }

    #[inline]
    unsafe fn unlock(&self, guard: StdWriteGuard) {
        // SAFETY: the guard was initialised by `StdWriteGuard::new`, and is consumed here; by the contract of `unlock`
        // it refers to this lock.
        drop(unsafe { guard.0.assume_init() });
    }

    #[inline]
    unsafe fn downgrade(&self, guard: StdWriteGuard) -> StdReadGuard {
        // SAFETY: the guard was initialised by `StdWriteGuard::new`, and is consumed here; by the contract of
        // `downgrade` it refers to this lock.
        StdReadGuard::new(RwLockWriteGuard::downgrade(unsafe { guard.0.assume_init() }))
    }

    /// Tries to lock, as `std` has no other way to ask. The lock may be held for the moment of the call.
    fn is_locked(&self) -> bool {
        tried(self.0.try_write()).is_none()
    }

    /// Tries to lock for reading. The lock may be held for the moment of the call.
    fn is_locked_exclusive(&self) -> bool {
        tried(self.0.try_read()).is_none()
    }
}
