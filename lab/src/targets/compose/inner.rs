//! Inner locks by name: the small ones as they are, all others in a box.

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::time::Instant;

use sudog_locks::spin_lock::{Clh, Lifo, Mcs, Reciprocating, TicketLock, Tts};
use sudog_sync::RawLock;

use crate::targets::locks::{Job, LockName, with_lock};

/// The inner locks that are compiled for themselves, so that what is measured is mostly the lock.
pub const UNBOXED: &[LockName] =
    &[LockName::Reciprocating, LockName::Ticket, LockName::Lifo, LockName::Mcs, LockName::Clh, LockName::Tts];

/// Something to do with an inner lock, whichever it is.
pub trait InnerJob {
    /// What it comes to.
    type Out;

    /// Does it on one type of locks, of which `make` makes the right one.
    fn run<L: RawLock + 'static>(self, make: impl Fn() -> L + Copy + 'static) -> Self::Out;
}

/// Runs a job on the lock of a name: one of [`UNBOXED`] as it is, others as a [`DynLock`].
pub fn with_inner<J: InnerJob>(name: LockName, job: J) -> J::Out {
    match name {
        LockName::Reciprocating => job.run::<Reciprocating>(RawLock::new),
        LockName::Ticket => job.run::<TicketLock>(RawLock::new),
        LockName::Lifo => job.run::<Lifo>(RawLock::new),
        LockName::Mcs => job.run::<Mcs>(RawLock::new),
        LockName::Clh => job.run::<Clh>(RawLock::new),
        LockName::Tts => job.run::<Tts>(RawLock::new),
        _ => job.run(move || DynLock::of(name)),
    }
}

/// Any lock, in a box.
pub struct DynLock(Box<dyn AnyLock>);

/// What an acquisition of a [`DynLock`] hands to its release. It stays on its thread, as the guard of the lock may have
/// to.
#[derive(Debug)]
pub struct DynGuard(PhantomData<*const ()>);

const GUARD: DynGuard = DynGuard(PhantomData);

impl DynLock {
    /// The lock of this name.
    #[must_use]
    pub fn of(name: LockName) -> Self {
        struct Make;
        impl Job for Make {
            type Out = DynLock;
            fn run<L: RawLock + 'static>(self) -> DynLock {
                DynLock(Box::new(KeepsGuard { lock: L::new(), guard: UnsafeCell::new(MaybeUninit::uninit()) }))
            }
        }
        with_lock(name, Make)
    }
}

/// [`RawLock`] without types of its own: the guard stays inside.
trait AnyLock: Send + Sync {
    fn lock(&self);
    fn try_lock(&self) -> bool;
    fn try_lock_until(&self, deadline: Instant) -> bool;

    /// # Safety
    ///
    /// There is an acquisition that has not been released, and this is its thread.
    unsafe fn unlock(&self);

    fn is_locked(&self) -> bool;
}

/// A lock, and the guard of its owner. A guard that is forgotten is never dropped.
struct KeepsGuard<L: RawLock> {
    lock: L,
    guard: UnsafeCell<MaybeUninit<L::Guard>>,
}

// SAFETY: the guard is written and read by the owner of the lock; what that owner does happens before the next one has
// it. It is read on the thread that wrote it, by the contract of `unlock`, and never dropped by another.
unsafe impl<L: RawLock> Sync for KeepsGuard<L> {}
// SAFETY: as above; where the lock itself goes the guard lies unused.
unsafe impl<L: RawLock> Send for KeepsGuard<L> {}

impl<L: RawLock> KeepsGuard<L> {
    #[inline]
    fn keep(&self, guard: L::Guard) {
        // SAFETY: the guard says that we have the lock, so no other thread is here.
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
        // - the caller has the lock, so no other thread is here, and its guard was written;
        // - it is read once, as there is one release for an acquisition;
        // - the guard goes back to its lock, on its thread.
        unsafe {
            let guard = (*self.guard.get()).assume_init_read();
            self.lock.unlock(guard);
        }
    }

    fn is_locked(&self) -> bool {
        self.lock.is_locked()
    }
}

// SAFETY: the promises of the lock in the box, which every call goes to; a guard is made when it has been acquired.
unsafe impl RawLock for DynLock {
    type Guard = DynGuard;

    /// Some have them in line, and others poll.
    const DEADLINES: bool = false;

    /// The lock that is named first; [`DynLock::of`] makes any.
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
        // SAFETY: the same contract; the guard is not `Send`, so this is its thread.
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
    fn what_is_said_to_be_unboxed_is() {
        struct TypeName;
        impl InnerJob for TypeName {
            type Out = &'static str;
            fn run<L: RawLock + 'static>(self, _: impl Fn() -> L + Copy + 'static) -> &'static str {
                std::any::type_name::<L>()
            }
        }
        let boxed = std::any::type_name::<DynLock>();
        for &name in LockName::ALL {
            assert_eq!(with_inner(name, TypeName) != boxed, UNBOXED.contains(&name), "{}", name.name());
        }
    }

    #[test]
    fn a_lock_in_a_box_is_that_lock() {
        for &name in LockName::ALL {
            let lock = DynLock::of(name);
            for _ in 0..2 {
                assert!(!lock.is_locked());
                let guard = lock.try_lock().expect("nobody holds it");
                assert!(lock.is_locked() && lock.try_lock().is_none());
                // SAFETY: acquired above, on this thread.
                unsafe { lock.unlock(guard) };
                let guard = lock.lock();
                assert!(lock.try_lock_until(Instant::now()).is_none());
                // SAFETY: as above.
                unsafe { lock.unlock(guard) };
            }
            let _ = lock.lock(); // forgotten
            let moved = Box::new(lock);
            assert!(moved.is_locked() && moved.try_lock().is_none(), "{}", name.name());
        }
    }
}
