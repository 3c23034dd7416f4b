//! Inner locks by name, in a box.

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::time::Instant;

use sudog_sync::RawLock;

use crate::targets::locks::{Job, LockName, with_lock};

/// A lock of any type, in a box.
pub struct DynLock(Box<dyn AnyLock>);

/// The guard of a [`DynLock`]. The guard stays on its thread, as the guard of the lock in the box may have to.
#[derive(Debug)]
pub struct DynGuard(PhantomData<*const ()>);

const GUARD: DynGuard = DynGuard(PhantomData);

impl DynLock {
    /// Returns a lock of this type.
    pub fn boxed<L: RawLock + 'static>() -> Self {
        Self(Box::new(KeepsGuard { lock: L::new(), guard: UnsafeCell::new(MaybeUninit::uninit()) }))
    }

    pub fn of(name: LockName) -> Self {
        struct Make;
        impl Job for Make {
            type Out = DynLock;
            fn run<L: RawLock + 'static>(self) -> DynLock {
                DynLock::boxed::<L>()
            }
        }
        with_lock(name, Make)
    }
}

/// A [`RawLock`] without a type of guards: the guard stays inside.
trait AnyLock: Send + Sync {
    fn lock(&self);
    fn try_lock(&self) -> bool;
    fn try_lock_until(&self, deadline: Instant) -> bool;

    /// # Safety
    ///
    /// The calling thread has acquired this lock, and has not released it since.
    unsafe fn unlock(&self);

    fn is_locked(&self) -> bool;
}

/// A lock, and the guard of its owner. A forgotten guard is never dropped.
struct KeepsGuard<L: RawLock> {
    lock: L,
    guard: UnsafeCell<MaybeUninit<L::Guard>>,
}

// SAFETY: only the owner of the lock writes and reads `guard`, and the actions of an owner happen before those of the
// next owner. `guard` is read on the thread that wrote it, by the contract of `AnyLock::unlock`, and no other thread
// drops it.
unsafe impl<L: RawLock> Sync for KeepsGuard<L> {}
// SAFETY: `guard` is used only as `Sync` above allows: it is read on the thread that wrote it. While the lock moves to
// another thread, `guard` is not used.
unsafe impl<L: RawLock> Send for KeepsGuard<L> {}

impl<L: RawLock> KeepsGuard<L> {
    #[inline]
    fn keep(&self, guard: L::Guard) {
        // SAFETY: the caller holds `guard`, so it owns the lock, and no other thread accesses `self.guard`.
        unsafe { (*self.guard.get()).write(guard) };
    }
}

impl<L: RawLock> AnyLock for KeepsGuard<L> {
    fn lock(&self) {
        self.keep(self.lock.lock());
    }

    fn try_lock(&self) -> bool {
        self.lock.try_lock().map(|guard| self.keep(guard)).is_some()
    }

    fn try_lock_until(&self, deadline: Instant) -> bool {
        self.lock.try_lock_until(deadline).map(|guard| self.keep(guard)).is_some()
    }

    unsafe fn unlock(&self) {
        // SAFETY:
        // - The caller owns the lock, by the contract of `AnyLock::unlock`, so no other thread accesses `self.guard`,
        //   and the guard was written.
        // - The guard is read once, as there is one release for an acquisition.
        // - The guard goes back to its lock, on its thread.
        unsafe {
            let guard = (*self.guard.get()).assume_init_read();
            self.lock.unlock(guard);
        }
    }

    fn is_locked(&self) -> bool {
        self.lock.is_locked()
    }
}

// SAFETY: every call goes to the lock in the box, which keeps the promises of `RawLock`; a `DynGuard` is made when that
// lock has been acquired.
unsafe impl RawLock for DynLock {
    type Guard = DynGuard;

    /// False, as only some of the locks have deadlines in the queue; others poll.
    const DEADLINES: bool = false;

    /// Returns the first lock of the registry; [`DynLock::of`] returns any lock.
    fn new() -> Self {
        Self::of(LockName::ALL[0])
    }

    #[inline]
    fn lock(&self) -> DynGuard {
        self.0.lock();
        GUARD
    }

    #[inline]
    fn try_lock(&self) -> Option<DynGuard> {
        self.0.try_lock().then_some(GUARD)
    }

    fn try_lock_until(&self, deadline: Instant) -> Option<DynGuard> {
        self.0.try_lock_until(deadline).then_some(GUARD)
    }

    #[inline]
    unsafe fn unlock(&self, _: DynGuard) {
        // SAFETY: the lock in the box is acquired, by the contract of `RawLock::unlock`; `DynGuard` is not `Send`, so
        // this is the thread of the acquisition.
        unsafe { self.0.unlock() };
    }

    #[inline]
    fn is_locked(&self) -> bool {
        self.0.is_locked()
    }
}

impl fmt::Debug for DynLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DynLock").field("locked", &self.is_locked()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_in_a_box_is_that_lock() {
        for &name in LockName::ALL {
            let lock = DynLock::of(name);
            for _ in 0..2 {
                assert!(!lock.is_locked());
                let guard = lock.try_lock().expect("nobody holds it");
                assert!(lock.is_locked() && lock.try_lock().is_none());
                // SAFETY: `guard` came from `try_lock` of this lock above, on this thread.
                unsafe { lock.unlock(guard) };
                let guard = lock.lock();
                assert!(lock.try_lock_until(Instant::now()).is_none());
                // SAFETY: `guard` came from `lock` of this lock above, on this thread.
                unsafe { lock.unlock(guard) };
            }
            let _ = lock.lock(); // forgotten
            let moved = Box::new(lock);
            assert!(moved.is_locked() && moved.try_lock().is_none(), "{}", name.name());
        }
    }
}
