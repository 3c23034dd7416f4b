//! What contenders go in and out of: any lock, any semaphore, and the floors that these are measured by. So there is
//! one driver for all.
//!
//! | entrance | lets in |
//! |---|---|
//! | [`Locked`] | one at a time |
//! | [`Permitted`] | as many as there are permits |
//! | [`TwoRmws`](crate::floors::TwoRmws) | everybody |
//! | [`Handover`](crate::floors::Handover) | one at a time, in turn |

use sudog_sync::{Order, RawLock, Semaphore, Wake};

/// What contenders go in and out of.
///
/// # Safety
///
/// If [`Entrance::lets_in_one`], nobody is let in while somebody is inside; and what that one did happens before what
/// the next one does.
pub unsafe trait Entrance: Sized + Send + Sync + 'static {
    /// What going in hands to going out.
    type Pass;

    /// Whether only one is inside at a time, if there are this many permits.
    fn lets_in_one(permits: u32) -> bool;

    /// For so many contenders, with so many permits. What has no permits lets in one at a time, however many are asked
    /// for, or everybody.
    fn new(contenders: usize, permits: u32) -> Self;

    /// Goes in, waiting if need be. `me` is the number of the contender.
    fn enter(&self, me: usize) -> Self::Pass;

    /// Goes out.
    ///
    /// # Safety
    ///
    /// `pass` came from an `enter` of this entrance by the same contender, on the same thread, which has not been left.
    unsafe fn leave(&self, me: usize, pass: Self::Pass);
}

/// A lock.
pub struct Locked<L>(L);

// SAFETY: a lock lets in one; the promises of `RawLock`.
unsafe impl<L: RawLock + 'static> Entrance for Locked<L> {
    type Pass = L::Guard;

    fn lets_in_one(_: u32) -> bool {
        true
    }

    fn new(_: usize, _: u32) -> Self {
        Self(L::new())
    }

    #[inline]
    fn enter(&self, _: usize) -> L::Guard {
        self.0.lock()
    }

    #[inline]
    unsafe fn leave(&self, _: usize, guard: L::Guard) {
        // SAFETY: by the contract.
        unsafe { self.0.unlock(guard) };
    }
}

/// A semaphore.
pub struct Permitted<S>(S);

// SAFETY: with one permit it lets in one: permits are conserved, and a release happens before what follows the acquire
// that takes its permit.
unsafe impl<S: Semaphore + 'static> Entrance for Permitted<S> {
    type Pass = ();

    fn lets_in_one(permits: u32) -> bool {
        permits == 1
    }

    fn new(_: usize, permits: u32) -> Self {
        Self(S::new(permits))
    }

    #[inline]
    fn enter(&self, _: usize) {
        self.0.acquire(Order::Fifo);
    }

    #[inline]
    unsafe fn leave(&self, _: usize, (): ()) {
        self.0.release(Wake::Normal);
    }
}
