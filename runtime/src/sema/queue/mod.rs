//! The queue of a bucket: who waits, by address, under the bucket's lock.
//!
//! Go has had three, one after another, and here are all of them. With n waiters in the bucket at m addresses, to wake
//! the first waiter of an address takes
//!
//! | queue | in Go | steps | its weakness |
//! |---|---|---|---|
//! | [`OneLevelList`] | until 1.8 | O(n) | many wait for one lock: whoever unlocks another one of the bucket walks past all of them (issue 17953) |
//! | [`TwoLevelList`] | in no release: CL 36792 | O(m) | many locks in one bucket |
//! | [`Treap`] | since 1.9 (CL 37103) | O(log m), expected | none, at 251 buckets |
//!
//! The default is the treap. Which one a [`SemTable`](super::SemTable) has is a type parameter of it. Whoever leaves by a
//! deadline or a cancel does so in O(1) in all three, and in O(log m) where the treap loses a node.
//!
//! `docs/mutex.md` has what they take on a real machine: the laboratory's `semtable --queue` and `collide`.
//!
//! # Examples
//!
//! A table with another queue:
//!
//! ```
//! use std::sync::atomic::AtomicU32;
//! use sudog_runtime::sema::queue::TwoLevelList;
//! use sudog_runtime::sema::{Order, SemTable, Wake};
//!
//! static TABLE: SemTable<251, TwoLevelList> = SemTable::const_new();
//! let permits = AtomicU32::new(0);
//! TABLE.release(&permits, Wake::Normal);
//! TABLE.acquire(&permits, Order::Fifo);
//! ```

mod one_level;
mod recorded;
mod rings;
mod treap;
mod two_level;

pub use one_level::OneLevelList;
pub use recorded::Recorded;
pub use treap::Treap;
pub use two_level::TwoLevelList;

use super::sudog::Link;
use super::{Order, Sudog, SudogPtr, WaitOutcome};

/// What a bucket can keep its waiters in. Sealed: a queue is trusted with addresses of waiters' stacks.
///
/// # Safety
///
/// - A waiter that it returns is one that it was given, and has not returned since.
/// - After that it does not touch it.
pub unsafe trait BucketQueue: Send + 'static {
    /// Nobody waits.
    const EMPTY: Self;

    /// What must not be done under the bucket's lock; called before it is taken.
    #[doc(hidden)]
    #[inline(always)]
    fn prepare() {}

    /// Puts a waiter into the line of its address.
    ///
    /// # Safety
    ///
    /// - `sudog` is in no queue, and stays where it is, alive, until it has been unlinked from this one.
    /// - Until then nobody reads or writes its links, but through this queue.
    #[doc(hidden)]
    unsafe fn queue(&mut self, sudog: &Sudog, order: Order);

    /// Takes the first waiter of an address out of its line, if there is one, and gives it its fate.
    #[doc(hidden)]
    fn dequeue(&mut self, addr: usize, fate: WaitOutcome) -> Option<SudogPtr>;

    /// Takes a waiter out, wherever it stands, and gives it its fate.
    ///
    /// # Safety
    ///
    /// It is queued here.
    #[doc(hidden)]
    unsafe fn unlink(&mut self, s: SudogPtr, fate: WaitOutcome);

    /// How many wait for an address.
    #[doc(hidden)]
    fn len(&self, addr: usize) -> usize;
}

#[cfg(all(test, not(sudog_loom)))]
mod tests;
