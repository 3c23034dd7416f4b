//! The queue of a bucket: the bucket's waiters by address, under the bucket's lock.
//!
//! Go has had three kinds of queue, one after another; this module has all of them. With n waiters in the bucket at m
//! addresses, waking the first waiter of an address takes
//!
//! | queue | in Go | steps | weakness |
//! |---|---|---|---|
//! | [`OneLevelList`] | until 1.8 | O(n) | many waiters for one lock: an unlock of another lock in the bucket walks past all of them (issue 17953) |
//! | [`TwoLevelList`] | in no release: CL 36792 | O(m) | many locks in one bucket |
//! | [`Treap`] | since 1.9 (CL 37103) | O(log m), expected | none, at 251 buckets |
//!
//! The default is [`Treap`], in which an address gets the same position each time it is inserted. [`RotatingTreap`],
//! for comparison, is Go's treap to the letter. The queue is a type parameter of [`SemTable`](super::SemTable). A
//! waiter that times out or is cancelled leaves in O(1) in all three kinds; but in O(log m) if its node in the treap
//! must be removed, too.
//!
//! `docs/journal/queues-of-a-bucket.md` has the cost of each queue on a real machine, as measured by the laboratory's
//! `semtable --queue` and `collide`.
//!
//! # Examples
//!
//! A table with another queue:
//!
//! ```
//! use std::sync::atomic::AtomicU32;
//! use sudog::low_level::sema::{Order, Wake};
//! use sudog::study::SemTable;
//! use sudog::study::queue::TwoLevelList;
//!
//! static TABLE: SemTable<251, TwoLevelList> = SemTable::const_new();
//! let permits = AtomicU32::new(0);
//! TABLE.release(&permits, Wake::Normal);
//! TABLE.acquire(&permits, Order::Fifo);
//! ```

mod one_level;
mod recorded;
mod rings;
mod rotating;
mod treap;
mod two_level;

pub use one_level::OneLevelList;
pub use recorded::Recorded;
pub use rotating::RotatingTreap;
pub use treap::Treap;
pub use two_level::TwoLevelList;

use super::sudog::Link;
use super::{Order, Sudog, SudogPtr, WaitOutcome};

/// A queue for the waiters of a bucket. The trait is sealed, because a queue is trusted with pointers to the stacks of
/// waiters.
///
/// # Safety
///
/// - Each waiter that the queue returns was given to the queue, and has not been returned since.
/// - After returning a waiter the queue does not access it.
pub unsafe trait BucketQueue: Send + 'static {
    /// A queue without waiters.
    const EMPTY: Self;

    /// Does work that must not be done under the bucket's lock. Called before the lock is taken.
    #[doc(hidden)]
    #[inline(always)]
    fn prepare() {}

    /// Adds a waiter to the queue of its address.
    ///
    /// # Safety
    ///
    /// - `sudog` is in no queue, and stays in place, alive, until it has been unlinked from this queue.
    /// - Until then the links of `sudog` are read and written only through this queue.
    #[doc(hidden)]
    unsafe fn queue(&mut self, sudog: &Sudog, order: Order);

    /// Unlinks the first waiter of an address, if there is one, and sets its outcome.
    #[doc(hidden)]
    fn dequeue(&mut self, addr: usize, outcome: WaitOutcome) -> Option<SudogPtr>;

    /// Unlinks a waiter at any position, and sets its outcome.
    ///
    /// # Safety
    ///
    /// `s` is queued in this queue.
    #[doc(hidden)]
    unsafe fn unlink(&mut self, s: SudogPtr, outcome: WaitOutcome);

    /// Returns the number of waiters of an address.
    #[doc(hidden)]
    fn len(&self, addr: usize) -> usize;
}

#[cfg(all(test, not(sudog_loom)))]
mod tests;
