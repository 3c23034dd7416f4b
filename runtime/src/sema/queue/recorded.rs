//! A queue that records its waiters' steps: see [`event`].

use super::{BucketQueue, Order, Sudog, SudogPtr, WaitOutcome};
use crate::event::{self, Kind};

/// A queue of type `Q` that records its waiters' steps as events: going to sleep ([`Kind::Sleep`], [`Kind::Requeue`]),
/// being woken ([`Kind::Wake`]) or given a permit ([`Kind::Handoff`]), and giving up ([`Kind::Leave`]).
///
/// The events are recorded under the bucket's lock, so the events of a bucket are in the order in which they happened.
///
/// # Examples
///
/// ```
/// use sudog::study::SemTable;
/// use sudog::study::queue::{Recorded, Treap};
///
/// static TABLE: SemTable<251, Recorded<Treap>> = SemTable::const_new();
/// # let _ = &TABLE;
/// ```
pub struct Recorded<Q>(Q);

/// Returns the id of a waiter in the events of its wait.
fn waiter(sudog: &Sudog) -> usize {
    std::ptr::from_ref(sudog).addr()
}

// SAFETY: each waiter is given to the inner queue and returned by it, and the inner queue keeps the contract of
// `BucketQueue`.
unsafe impl<Q: BucketQueue> BucketQueue for Recorded<Q> {
    const EMPTY: Self = Self(Q::EMPTY);

    #[inline]
    fn prepare() {
        // Make the ring before the lock is taken, as making a ring allocates.
        event::prepare();
        Q::prepare();
    }

    #[inline]
    unsafe fn queue(&mut self, sudog: &Sudog, order: Order) {
        let kind = match order {
            Order::Fifo => Kind::Sleep,
            Order::Lifo => Kind::Requeue,
        };
        event::record_if_prepared(kind, sudog.addr, waiter(sudog));
        // SAFETY: the caller keeps the contract of `BucketQueue::queue` for `sudog`.
        unsafe { self.0.queue(sudog, order) };
    }

    #[inline]
    fn dequeue(&mut self, addr: usize, outcome: WaitOutcome) -> Option<SudogPtr> {
        let s = self.0.dequeue(addr, outcome)?;
        let kind = if outcome == WaitOutcome::Granted { Kind::Handoff } else { Kind::Wake };
        event::record_if_prepared(kind, addr, waiter(&s));
        Some(s)
    }

    #[inline]
    unsafe fn unlink(&mut self, s: SudogPtr, outcome: WaitOutcome) {
        event::record_if_prepared(Kind::Leave, s.addr, waiter(&s));
        // SAFETY: `s` is queued in the inner queue, by the contract of `BucketQueue::unlink`.
        unsafe { self.0.unlink(s, outcome) };
    }

    fn len(&self, addr: usize) -> usize {
        self.0.len(addr)
    }
}
