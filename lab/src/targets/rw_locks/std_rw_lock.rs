//! `std::sync::RwLock`.

use std::mem::{MaybeUninit, transmute};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use sudog_sync::RawRwLock;

use super::tried;

/// `std::sync::RwLock` as a [`RawRwLock`].
#[derive(Debug, Default)]
pub struct StdRwLock(RwLock<()>);

/// What a reader's acquisition of a [`StdRwLock`] hands to its release: `std`'s guard without its lifetime. Not `Send`,
/// as `std`'s is not.
///
/// Dropping it is forgetting the acquisition. It may outlive the lock then, so it makes no claim that the reference in
/// it is good, which is what `MaybeUninit` says.
#[derive(Debug)]
pub struct StdReadGuard(MaybeUninit<RwLockReadGuard<'static, ()>>);

/// The same for a writer.
#[derive(Debug)]
pub struct StdWriteGuard(MaybeUninit<RwLockWriteGuard<'static, ()>>);

impl StdReadGuard {
    #[inline]
    fn new(guard: RwLockReadGuard<'_, ()>) -> Self {
        // SAFETY: only the lifetime changes. Nothing uses the guard but `runlock`, whose caller vouches that it came from
        // the lock that is borrowed there.
        Self(MaybeUninit::new(unsafe { transmute::<RwLockReadGuard<'_, ()>, RwLockReadGuard<'static, ()>>(guard) }))
    }
}

impl StdWriteGuard {
    #[inline]
    fn new(guard: RwLockWriteGuard<'_, ()>) -> Self {
        // SAFETY: as for readers: `unlock` and `downgrade`.
        Self(MaybeUninit::new(unsafe { transmute::<RwLockWriteGuard<'_, ()>, RwLockWriteGuard<'static, ()>>(guard) }))
    }
}

// SAFETY: the lock of the standard library keeps these promises; a guard that is forgotten leaves it locked.
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
        // SAFETY: made by `StdReadGuard::new`, and consumed here; the lock that it refers to is this one, by the contract.
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
        // SAFETY: made by `StdWriteGuard::new`, and consumed here; the lock that it refers to is this one, by the contract.
        drop(unsafe { guard.0.assume_init() });
    }

    #[inline]
    unsafe fn downgrade(&self, guard: StdWriteGuard) -> StdReadGuard {
        // SAFETY: as above.
        StdReadGuard::new(RwLockWriteGuard::downgrade(unsafe { guard.0.assume_init() }))
    }

    /// Asks by trying: `std` has no other way. For that moment the lock may be held.
    fn is_locked(&self) -> bool {
        tried(self.0.try_write()).is_none()
    }

    /// The same.
    fn is_locked_exclusive(&self) -> bool {
        tried(self.0.try_read()).is_none()
    }
}
