//! What contenders go in and out of: any lock, readers-writer lock or semaphore, and the floors that these are measured
//! by. So there is one driver for all.
//!
//! | entrance | lets in |
//! |---|---|
//! | [`Locked`] | one at a time |
//! | [`ReadWrite`] | one that writes, or any number that read |
//! | [`Permitted`] | as many as there are permits |
//! | [`TwoRmws`](crate::targets::floors::TwoRmws) | everybody |
//! | [`Handover`](crate::targets::floors::Handover) | one at a time, in turn |

use sudog_sync::{Order, RawLock, RawRwLock, Semaphore, Wake};

/// What a contender wants to do inside. For those who cannot tell, everybody writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Errand {
    /// Beside others who read.
    Read,
    /// Alone.
    Write,
}

/// Something for each errand.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ByErrand<T> {
    /// For who reads.
    pub read: T,
    /// For who writes.
    pub write: T,
}

impl<T> ByErrand<T> {
    /// That of one errand.
    #[inline]
    pub fn of(&mut self, errand: Errand) -> &mut T {
        match errand {
            Errand::Read => &mut self.read,
            Errand::Write => &mut self.write,
        }
    }
}

/// Who may be inside together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Admits {
    /// One, whatever the errand.
    One,
    /// One that writes, or any number that read.
    Readers,
    /// Several, whatever their errands.
    Several,
}

/// What contenders go in and out of.
///
/// # Safety
///
/// If it says [`Admits::One`], nobody is let in while somebody is inside; and what that one did happens before what
/// the next one does.
pub unsafe trait Entrance: Sized + Send + Sync + 'static {
    /// What going in hands to going out.
    type Pass;

    /// What it is made from, besides numbers.
    type Setup: ?Sized;

    /// Whether one who is no contender may go in too, with the number that follows theirs: not where a turn goes round.
    const TAKES_OTHERS: bool = true;

    /// Who may be inside together, if there are this many permits.
    fn admits(permits: u32) -> Admits;

    /// For so many contenders, with so many permits. What has no permits lets in one at a time, however many are asked
    /// for, or everybody.
    fn new(setup: &Self::Setup, contenders: usize, permits: u32) -> Self;

    /// Goes in, waiting if need be. `me` is the number of the contender.
    fn enter(&self, me: usize, errand: Errand) -> Self::Pass;

    /// Goes out.
    ///
    /// # Safety
    ///
    /// `pass` came from an `enter` of this entrance by the same contender, on the same thread, which has not been left.
    unsafe fn leave(&self, me: usize, pass: Self::Pass);
}

/// Something to do with an entrance, whichever it is.
pub trait EntranceJob {
    /// What it comes to.
    type Out;

    /// Does it on one kind of entrance, which is made from `setup`.
    fn run<E: Entrance>(self, setup: &E::Setup) -> Self::Out;
}

/// A lock.
pub struct Locked<L>(L);

// SAFETY: a lock lets in one; the promises of `RawLock`.
unsafe impl<L: RawLock + 'static> Entrance for Locked<L> {
    type Pass = L::Guard;

    /// What makes the lock.
    type Setup = dyn Fn() -> L;

    fn admits(_: u32) -> Admits {
        Admits::One
    }

    fn new(make: &(dyn Fn() -> L + 'static), _: usize, _: u32) -> Self {
        Self(make())
    }

    #[inline]
    fn enter(&self, _: usize, _: Errand) -> L::Guard {
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
pub enum RwPass<R, W> {
    /// A reader's guard.
    Read(R),
    /// A writer's guard.
    Write(W),
}

// SAFETY: it does not say that it lets in one.
unsafe impl<L: RawRwLock + 'static> Entrance for ReadWrite<L> {
    type Pass = RwPass<L::SharedGuard, L::ExclusiveGuard>;
    type Setup = ();

    fn admits(_: u32) -> Admits {
        Admits::Readers
    }

    fn new((): &(), _: usize, _: u32) -> Self {
        Self(L::new())
    }

    #[inline]
    fn enter(&self, _: usize, errand: Errand) -> Self::Pass {
        match errand {
            Errand::Read => RwPass::Read(self.0.rlock()),
            Errand::Write => RwPass::Write(self.0.lock()),
        }
    }

    #[inline]
    unsafe fn leave(&self, _: usize, pass: Self::Pass) {
        // SAFETY: by the contract.
        unsafe {
            match pass {
                RwPass::Read(guard) => self.0.runlock(guard),
                RwPass::Write(guard) => self.0.unlock(guard),
            }
        }
    }
}

/// A semaphore.
pub struct Permitted<S>(S);

// SAFETY: with one permit it lets in one: permits are conserved, and a release happens before what follows the acquire
// that takes its permit.
unsafe impl<S: Semaphore + 'static> Entrance for Permitted<S> {
    type Pass = ();
    type Setup = ();

    fn admits(permits: u32) -> Admits {
        if permits == 1 { Admits::One } else { Admits::Several }
    }

    fn new((): &(), _: usize, permits: u32) -> Self {
        Self(S::new(permits))
    }

    #[inline]
    fn enter(&self, _: usize, _: Errand) {
        self.0.acquire(Order::Fifo);
    }

    #[inline]
    unsafe fn leave(&self, _: usize, (): ()) {
        self.0.release(Wake::Normal);
    }
}
