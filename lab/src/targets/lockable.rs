//! What contenders go in and out of: any lock, readers-writer lock or semaphore, and the floors that these are measured
//! by. So there is one driver for all.
//!
//! | target | lets in |
//! |---|---|
//! | [`Locked`] | one at a time |
//! | [`ReadWrite`] | one that writes, or any number that read |
//! | [`Permitted`] | as many as there are permits |
//! | [`TwoRmws`](crate::targets::floors::TwoRmws) | all contenders |
//! | [`Handover`](crate::targets::floors::Handover) | one at a time, in turn |

use sudog_sync::{Order, RawLock, RawRwLock, Semaphore, Wake};

/// What a contender wants to do inside. For targets that cannot tell readers from writers, all write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Beside other readers.
    Read,
    /// Alone.
    Write,
}

/// Something for each access.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PerAccess<T> {
    /// For readers.
    pub read: T,
    /// For writers.
    pub write: T,
}

impl<T> PerAccess<T> {
    /// That of one access.
    #[inline]
    pub fn of(&mut self, access: Access) -> &mut T {
        match access {
            Access::Read => &mut self.read,
            Access::Write => &mut self.write,
        }
    }
}

/// Which contenders may be inside together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Admits {
    /// One, whatever the access.
    One,
    /// One that writes, or any number that read.
    Readers,
    /// Several, whatever their accesses.
    Several,
}

/// What contenders go in and out of.
///
/// # Safety
///
/// If it says [`Admits::One`], no contender is let in while another is inside; and what that one did happens before what
/// the next one does.
pub unsafe trait Lockable: Sized + Send + Sync + 'static {
    /// What going in hands to going out.
    type Guard;

    /// What it is made from, besides numbers.
    type Setup: ?Sized;

    /// Whether a thread that is not a contender may enter too, with the number that follows theirs: not where a turn goes round.
    const TAKES_OTHERS: bool = true;

    /// Which contenders may be inside together, if there are this many permits.
    fn admits(permits: u32) -> Admits;

    /// For so many contenders, with so many permits. What has no permits lets in one at a time, however many are asked
    /// for, or all.
    fn new(setup: &Self::Setup, contenders: usize, permits: u32) -> Self;

    /// Goes in, waiting if need be. `me` is the number of the contender.
    fn enter(&self, me: usize, access: Access) -> Self::Guard;

    /// Goes out.
    ///
    /// # Safety
    ///
    /// `guard` came from an `enter` of this target by the same contender, on the same thread, which has not been left.
    unsafe fn leave(&self, me: usize, guard: Self::Guard);
}

/// Something to do with a target, whichever it is.
pub trait LockableJob {
    /// What it comes to.
    type Out;

    /// Does it on one kind of target, which is made from `setup`.
    fn run<E: Lockable>(self, setup: &E::Setup) -> Self::Out;
}

/// A lock.
pub struct Locked<L>(L);

// SAFETY: a lock lets in one; the promises of `RawLock`.
unsafe impl<L: RawLock + 'static> Lockable for Locked<L> {
    type Guard = L::Guard;

    /// What makes the lock.
    type Setup = dyn Fn() -> L;

    fn admits(_: u32) -> Admits {
        Admits::One
    }

    fn new(make: &(dyn Fn() -> L + 'static), _: usize, _: u32) -> Self {
        Self(make())
    }

    #[inline]
    fn enter(&self, _: usize, _: Access) -> L::Guard {
        self.0.lock()
    }

    #[inline]
    unsafe fn leave(&self, _: usize, guard: L::Guard) {
        // SAFETY: by the contract.
        unsafe { self.0.unlock(guard) };
    }
}

/// A readers-writer lock.
pub struct ReadWrite<L>(L);

/// What a contender has of a readers-writer lock while it is inside.
#[derive(Debug)]
pub enum RwGuard<R, W> {
    /// A reader's guard.
    Read(R),
    /// A writer's guard.
    Write(W),
}

// SAFETY: it does not say that it lets in one.
unsafe impl<L: RawRwLock + 'static> Lockable for ReadWrite<L> {
    type Guard = RwGuard<L::SharedGuard, L::ExclusiveGuard>;
    type Setup = ();

    fn admits(_: u32) -> Admits {
        Admits::Readers
    }

    fn new((): &(), _: usize, _: u32) -> Self {
        Self(L::new())
    }

    #[inline]
    fn enter(&self, _: usize, access: Access) -> Self::Guard {
        match access {
            Access::Read => RwGuard::Read(self.0.rlock()),
            Access::Write => RwGuard::Write(self.0.lock()),
        }
    }

    #[inline]
    unsafe fn leave(&self, _: usize, guard: Self::Guard) {
        // SAFETY: by the contract.
        unsafe {
            match guard {
                RwGuard::Read(guard) => self.0.runlock(guard),
                RwGuard::Write(guard) => self.0.unlock(guard),
            }
        }
    }
}

/// A semaphore.
pub struct Permitted<S>(S);

// SAFETY: with one permit it lets in one: permits are conserved, and a release happens before what follows the acquire
// that takes its permit.
unsafe impl<S: Semaphore + 'static> Lockable for Permitted<S> {
    type Guard = ();
    type Setup = ();

    fn admits(permits: u32) -> Admits {
        if permits == 1 { Admits::One } else { Admits::Several }
    }

    fn new((): &(), _: usize, permits: u32) -> Self {
        Self(S::new(permits))
    }

    #[inline]
    fn enter(&self, _: usize, _: Access) {
        self.0.acquire(Order::Fifo);
    }

    #[inline]
    unsafe fn leave(&self, _: usize, (): ()) {
        self.0.release(Wake::Normal);
    }
}
