//! A mutex in the place of a readers-writer lock.

use std::time::Instant;

use sudog_sync::{RawLock, RawRwLock};

/// A lock whose readers exclude each other, too.
#[derive(Debug)]
pub struct Exclusive<L>(L);

// SAFETY: the lock lets in one owner at a time, which is more than `RawRwLock` asks for; `RawLock` makes the other
// promises.
unsafe impl<L: RawLock> RawRwLock for Exclusive<L> {
    type SharedGuard = L::Guard;
    type ExclusiveGuard = L::Guard;

    const DEADLINES: bool = L::DEADLINES;

    fn new() -> Self {
        Self(L::new())
    }

    #[inline]
    fn rlock(&self) -> L::Guard {
        self.0.lock()
    }

    #[inline]
    fn try_rlock(&self) -> Option<L::Guard> {
        self.0.try_lock()
    }

    #[inline]
    fn try_rlock_until(&self, deadline: Instant) -> Option<L::Guard> {
        self.0.try_lock_until(deadline)
    }

    #[inline]
    unsafe fn runlock(&self, guard: L::Guard) {
        // SAFETY: the contract of `RawRwLock::runlock` is that of `RawLock::unlock`, for the same guard.
        unsafe { self.0.unlock(guard) };
    }

    #[inline]
    fn lock(&self) -> L::Guard {
        self.0.lock()
    }

    #[inline]
    fn try_lock(&self) -> Option<L::Guard> {
        self.0.try_lock()
    }

    #[inline]
    fn try_lock_until(&self, deadline: Instant) -> Option<L::Guard> {
        self.0.try_lock_until(deadline)
    }

    #[inline]
    unsafe fn unlock(&self, guard: L::Guard) {
        // SAFETY: the contract of `RawRwLock::unlock` is that of `RawLock::unlock`, for the same guard.
        unsafe { self.0.unlock(guard) };
    }

    #[inline]
    unsafe fn downgrade(&self, guard: L::Guard) -> L::Guard {
        guard
    }

    fn is_locked(&self) -> bool {
        self.0.is_locked()
    }

    fn is_locked_exclusive(&self) -> bool {
        self.0.is_locked()
    }
}
