//! A queue that records what it does: see [`event`].

use super::{BucketQueue, Order, Sudog, SudogPtr, WaitOutcome};
use crate::event::{self, Kind};

/// Another queue that records its waiters' steps as events: going to sleep ([`Kind::Sleep`], [`Kind::Requeue`]), being
/// woken ([`Kind::Wake`]) or given a permit ([`Kind::Handoff`]), and giving up ([`Kind::Leave`]).
///
/// They are recorded under the bucket's lock, so those of one bucket are in the order in which they happened.
///
/// # Examples
///
/// ```
/// use sudog::runtime::sema::SemTable;
/// use sudog::runtime::sema::queue::{Recorded, Treap};
///
/// static TABLE: SemTable<251, Recorded<Treap>> = SemTable::const_new();
/// # let _ = &TABLE;
/// ```
pub struct Recorded<Q>(Q);

/// The id of a waiter in the events of its wait.
fn waiter(sudog: &Sudog) -> usize {
    std::ptr::from_ref(sudog).addr()
}

// SAFETY: as for the inner queue.
unsafe impl<Q: BucketQueue> BucketQueue for Recorded<Q> {
    const EMPTY: Self = Self(Q::EMPTY);

    #[inline]
    fn prepare() {
        event::prepare(); // making a ring allocates
        Q::prepare();
    }

    #[inline]
    unsafe fn queue(&mut self, sudog: &Sudog, order: Order) {
        let kind = match order {
            Order::Fifo => Kind::Sleep,
            Order::Lifo => Kind::Requeue,
        };
        event::record_if_prepared(kind, sudog.addr, waiter(sudog));
        // SAFETY: by the contract.
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
        // SAFETY: by the contract.
        unsafe { self.0.unlink(s, outcome) };
    }

    fn len(&self, addr: usize) -> usize {
        self.0.len(addr)
    }
}
