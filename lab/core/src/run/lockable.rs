//! Lockable: the trait of each target of the driver: a lock, a readers-writer lock, a semaphore, or a floor that the
//! semaphores are compared with. So one driver suffices for all of these.
//!
//! | target | lets in |
//! |---|---|
//! | [`Locked`] | one at a time |
//! | [`ReadWrite`] | one that writes, or any number that read |
//! | [`Permitted`] | one at a time: there is one permit |
//! | [`TwoRmws`](super::floors::TwoRmws) | all contenders |
//! | [`Handover`](super::floors::Handover) | one at a time, in turn |

use sudog_sync::{Order, RawLock, RawRwLock, Semaphore, Wake};

use super::driver::{CriticalSection, Exclusive, ReadersWriter};

/// A contender's purpose inside a target. If a target does not tell readers from writers, all contenders write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Reads, possibly beside other readers.
    Read,
    /// Writes, alone.
    Write,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PerAccess<T> {
    pub read: T,
    pub write: T,
}

impl<T> PerAccess<T> {
    #[inline]
    pub fn of(&mut self, access: Access) -> &mut T {
        match access {
            Access::Read => &mut self.read,
            Access::Write => &mut self.write,
        }
    }
}

/// A target of a measurement, which contenders enter and leave.
///
/// # Safety
///
/// The target lets in at most as many contenders at a time as [`Lockable::Section`] is for. If that is one contender, what
/// a contender did inside happens before what the next contender does there.
pub unsafe trait Lockable: Sized + Send + Sync + 'static {
    /// The value that an `enter` hands to its `leave`.
    type Guard;

    /// The critical section that suits the contenders that may be inside together. The loop is compiled for this section
    /// only.
    type Section: CriticalSection;

    /// True if a thread that is not a contender may enter, too: with the number that follows the contenders' numbers.
    /// False if the target passes a turn among the contenders' numbers, so that another thread never has the turn.
    const TAKES_OTHERS: bool = true;

    /// Goes in, waiting if necessary. `me` is the number of the contender.
    fn enter(&self, me: usize, access: Access) -> Self::Guard;

    /// Goes out.
    ///
    /// # Safety
    ///
    /// `guard` came from an `enter` of this target by the same contender, on the same thread, and no `leave` has taken
    /// the guard yet.
    unsafe fn leave(&self, me: usize, guard: Self::Guard);
}

/// A lock.
pub struct Locked<L>(pub L);

// SAFETY: a lock lets in one owner at a time, and what an owner did happens before what the next owner does: `RawLock`
// promises both.
unsafe impl<L: RawLock + 'static> Lockable for Locked<L> {
    type Guard = L::Guard;
    type Section = Exclusive;

    #[inline]
    fn enter(&self, _: usize, _: Access) -> L::Guard {
        self.0.lock()
    }

    #[inline]
    unsafe fn leave(&self, _: usize, guard: L::Guard) {
        // SAFETY: `guard` came from a `lock` of this lock on this thread, and has not been used, by the contract of
        // `leave`.
        unsafe { self.0.unlock(guard) };
    }
}

/// A readers-writer lock.
pub struct ReadWrite<L>(pub L);

/// The guard of a contender that is inside a readers-writer lock.
#[derive(Debug)]
pub enum RwGuard<R, W> {
    /// A reader's guard.
    Read(R),
    /// A writer's guard.
    Write(W),
}

// SAFETY: a readers-writer lock lets in one writer, or readers, as the section is for: `RawRwLock` promises this.
unsafe impl<L: RawRwLock + 'static> Lockable for ReadWrite<L> {
    type Guard = RwGuard<L::SharedGuard, L::ExclusiveGuard>;
    type Section = ReadersWriter;

    #[inline(always)] // otherwise `enter` of the sharded lock, the longest, is a call
    fn enter(&self, _: usize, access: Access) -> Self::Guard {
        match access {
            Access::Read => RwGuard::Read(self.0.rlock()),
            Access::Write => RwGuard::Write(self.0.lock()),
        }
    }

    #[inline]
    unsafe fn leave(&self, _: usize, guard: Self::Guard) {
        // SAFETY: `guard` came from an acquisition of this lock on this thread, and has not been used, by the contract
        // of `leave`.
        unsafe {
            match guard {
                RwGuard::Read(guard) => self.0.runlock(guard),
                RwGuard::Write(guard) => self.0.unlock(guard),
            }
        }
    }
}

/// A semaphore of one permit.
pub struct Permitted<S>(S);

impl<S: Semaphore> Default for Permitted<S> {
    fn default() -> Self {
        Self(S::new(1))
    }
}

// SAFETY: `default` gives the semaphore one permit, so the semaphore lets in one contender at a time, as permits are
// conserved. All that precedes the release of a permit happens before all that follows the acquire of that permit.
unsafe impl<S: Semaphore + 'static> Lockable for Permitted<S> {
    type Guard = ();
    type Section = Exclusive;

    #[inline]
    fn enter(&self, _: usize, _: Access) {
        self.0.acquire(Order::Fifo);
    }

    #[inline]
    unsafe fn leave(&self, _: usize, (): ()) {
        self.0.release(Wake::Normal);
    }
}
