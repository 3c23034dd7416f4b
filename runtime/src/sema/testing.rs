//! The queue of a bucket without any waiting, for benchmarks and tests.
//!
//! Go's `BenchmarkSemTable` reaches such a queue through `runtime/export_test.go`.

use super::queue::{BucketQueue, Treap};
use super::{Order, Sudog, WaitOutcome};
use crate::G;
use crate::profile::QueuedWait;

/// The queue of a bucket, and the sudogs to put into that queue. No thread ever waits here.
///
/// # Examples
///
/// ```
/// use sudog::low_level::sema::Order;
/// use sudog_runtime::sema::testing::DetachedQueue;
///
/// let mut queue = DetachedQueue::new([0x1000, 0x2000, 0x1000]);
/// queue.queue_all(Order::Fifo);
/// assert_eq!(queue.dequeue(0x1000), Some(0)); // the first of the three
/// assert_eq!(queue.dequeue(0x1000), Some(2));
/// assert_eq!(queue.dequeue(0x1000), None);
/// ```
pub struct DetachedQueue<Q = Treap> {
    queue: Q,
    sudogs: Vec<Sudog>,
}

impl DetachedQueue {
    /// Creates a treap, and a waiter for each of the addresses, none of them queued.
    pub fn new(addrs: impl IntoIterator<Item = usize>) -> Self {
        Self::of(addrs)
    }
}

impl<Q: BucketQueue> DetachedQueue<Q> {
    /// Creates a queue of any type, and a waiter for each of the addresses, none of them queued.
    ///
    /// # Examples
    ///
    /// ```
    /// use sudog::low_level::sema::Order;
    /// use sudog::study::queue::OneLevelList;
    /// use sudog_runtime::sema::testing::DetachedQueue;
    ///
    /// let mut queue = DetachedQueue::<OneLevelList>::of([0x1000, 0x2000]);
    /// queue.queue_all(Order::Lifo);
    /// assert_eq!(queue.dequeue(0x2000), Some(1));
    /// ```
    pub fn of(addrs: impl IntoIterator<Item = usize>) -> Self {
        Self {
            queue: Q::EMPTY,
            sudogs: addrs.into_iter().map(|addr| Sudog::new(G::task(), addr, QueuedWait::for_other())).collect(),
        }
    }

    /// Queues every waiter that is not queued, in the order of the addresses given to [`DetachedQueue::new`].
    pub fn queue_all(&mut self, order: Order) {
        (0..self.sudogs.len()).for_each(|waiter| self.queue_one(waiter, order));
    }

    /// Queues a waiter, unless that waiter is queued already.
    ///
    /// # Panics
    ///
    /// Panics if `waiter` is out of range.
    ///
    /// # Examples
    ///
    /// ```
    /// use sudog::low_level::sema::Order;
    /// use sudog_runtime::sema::testing::DetachedQueue;
    ///
    /// let mut queue = DetachedQueue::new([0x1000, 0x2000, 0x1000]);
    /// queue.queue_one(2, Order::Fifo);
    /// assert_eq!(queue.dequeue(0x1000), Some(2));
    /// ```
    pub fn queue_one(&mut self, waiter: usize, order: Order) {
        let sudog = &self.sudogs[waiter];
        if sudog.outcome.get() != WaitOutcome::Queued {
            // SAFETY: `sudog` is not queued; the vector never grows, so `sudog` does not move; `sudog` is dropped together
            // with the queue, whose drop does not access its sudogs; and `&mut self` excludes all other callers.
            unsafe { self.queue.queue(sudog, order) };
        }
    }

    /// Unlinks the first waiter of an address, and returns its index.
    pub fn dequeue(&mut self, addr: usize) -> Option<usize> {
        let s = self.queue.dequeue(addr, WaitOutcome::Idle)?;
        let offset = std::ptr::from_ref::<Sudog>(&s).addr() - self.sudogs.as_ptr().addr();
        Some(offset / size_of::<Sudog>())
    }
}

impl<Q> std::fmt::Debug for DetachedQueue<Q> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DetachedQueue").field("sudogs", &self.sudogs.len()).finish_non_exhaustive()
    }
}
