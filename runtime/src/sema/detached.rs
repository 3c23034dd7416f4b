//! The table's queue without the waiting: what a benchmark or a test of the queue itself needs.
//!
//! Go's `BenchmarkSemTable` does the same through `runtime/export_test.go`.

use super::{Fate, Order, Sudog, Treap};
use crate::G;

/// The queue of one bucket, and the sudogs to put in it. No thread ever waits here.
///
/// # Examples
///
/// ```
/// use sudog_runtime::sema::{Order, detached::DetachedQueue};
///
/// let mut queue = DetachedQueue::new([0x1000, 0x2000, 0x1000]);
/// queue.queue_all(Order::Fifo);
/// assert_eq!(queue.dequeue(0x1000), Some(0)); // the first of the three
/// assert_eq!(queue.dequeue(0x1000), Some(2));
/// assert_eq!(queue.dequeue(0x1000), None);
/// ```
pub struct DetachedQueue {
    treap: Treap,
    sudogs: Vec<Sudog>,
}

impl DetachedQueue {
    /// A waiter for each of the addresses, none of them queued.
    pub fn new(addrs: impl IntoIterator<Item = usize>) -> Self {
        Self { treap: Treap::new(), sudogs: addrs.into_iter().map(|addr| Sudog::new(G::task(), addr)).collect() }
    }

    /// Queues every waiter that is not queued, in the order in which [`DetachedQueue::new`] was given them.
    pub fn queue_all(&mut self, order: Order) {
        for sudog in &self.sudogs {
            if sudog.fate.get() != Fate::Queued {
                // SAFETY: not queued; in a vector that never grows, so it does not move; it is dropped together with
                // the treap, which does not touch its sudogs when it is dropped; and `&mut self` keeps everybody else
                // away.
                unsafe { self.treap.queue(sudog, order) };
            }
        }
    }

    /// Takes out the first waiter of an address, and says which it is.
    pub fn dequeue(&mut self, addr: usize) -> Option<usize> {
        let s = self.treap.dequeue(addr, Fate::Idle)?;
        let offset = std::ptr::from_ref::<Sudog>(&s).addr() - self.sudogs.as_ptr().addr();
        Some(offset / size_of::<Sudog>())
    }
}

impl std::fmt::Debug for DetachedQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DetachedQueue").field("sudogs", &self.sudogs.len()).finish_non_exhaustive()
    }
}
