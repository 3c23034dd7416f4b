//! A queue that reports what it does: see [`event`].

use super::{BucketQueue, Order, Sudog, SudogPtr, WaitOutcome};
use crate::event::{self, Kind};

/// Another queue, whose comings and goings are recorded as events: who goes to sleep ([`Kind::Sleep`],
/// [`Kind::Requeue`]), who is woken ([`Kind::Wake`]) or given its permit ([`Kind::Handoff`]), and who gives up
/// ([`Kind::Leave`]).
///
/// They are recorded under the bucket's lock, so those of one bucket are in the order in which they happened.
///
/// # Examples
///
/// ```
/// use sudog_runtime::sema::SemTable;
/// use sudog_runtime::sema::queue::{Recorded, Treap};
///
/// static TABLE: SemTable<251, Recorded<Treap>> = SemTable::const_new();
/// # let _ = &TABLE;
/// ```
pub struct Recorded<Q>(Q);

/// What a waiter is known by, in the events of its wait.
fn waiter(sudog: &Sudog) -> usize {
    std::ptr::from_ref(sudog).addr()
}

// SAFETY: the other queue's.
unsafe impl<Q: BucketQueue> BucketQueue for Recorded<Q> {
    const EMPTY: Self = Self(Q::EMPTY);

    #[inline]
    fn prepare() {
        event::prepare(); // a ring is made by an allocation
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
    fn dequeue(&mut self, addr: usize, fate: WaitOutcome) -> Option<SudogPtr> {
        let s = self.0.dequeue(addr, fate)?;
        let kind = if fate == WaitOutcome::Granted { Kind::Handoff } else { Kind::Wake };
        event::record_if_prepared(kind, addr, waiter(&s));
        Some(s)
    }

    #[inline]
    unsafe fn unlink(&mut self, s: SudogPtr, fate: WaitOutcome) {
        event::record_if_prepared(Kind::Leave, s.addr, waiter(&s));
        // SAFETY: by the contract.
        unsafe { self.0.unlink(s, fate) };
    }

    fn len(&self, addr: usize) -> usize {
        self.0.len(addr)
    }
}
