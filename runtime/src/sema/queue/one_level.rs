//! A list of all waiters of a bucket, whatever their address: Go's queue until 1.8.
//!
//! ```text
//!   head ─▶ A ⇄ A ⇄ B ⇄ A ⇄ C ◀─ tail        the first B is found by walking past two As
//! ```
//!
//! Source: `semaRoot` of Go's `runtime/sema.go` before CL 36792.

use super::{BucketQueue, Link, Order, Sudog, SudogPtr, WaitOutcome};

/// A list of waiters in the order in which they came.
pub struct OneLevelList {
    pub(super) head: Link,
    pub(super) tail: Link,
}

// SAFETY: only the holder of the list accesses the sudogs that the list links (the contract of `queue`), on whatever
// thread; and a sudog's fields may be used from any thread.
unsafe impl Send for OneLevelList {}

// SAFETY: the queue returns a waiter that it has found in the list, and unlinks the waiter, so it does not return or
// access the waiter again.
unsafe impl BucketQueue for OneLevelList {
    const EMPTY: Self = Self { head: None, tail: None };

    unsafe fn queue(&mut self, sudog: &Sudog, order: Order) {
        // SAFETY: `sudog` lives in place as long as it is linked, and its links are used through this list only, by the
        // contract of `BucketQueue::queue`.
        let s = unsafe { sudog.as_queued() };
        debug_assert_ne!(s.outcome.get(), WaitOutcome::Queued);
        s.outcome.set(WaitOutcome::Queued);
        // The front of the whole list is also the front of this address's waiters.
        let (prev, next) = match order {
            Order::Fifo => (self.tail, None),
            Order::Lifo => (None, self.head),
        };
        self.join(prev, next, s);
    }

    fn dequeue(&mut self, addr: usize, outcome: WaitOutcome) -> Option<SudogPtr> {
        let mut at = self.head;
        while let Some(s) = at {
            if s.addr == addr {
                // SAFETY: `s` was found in this list.
                unsafe { self.unlink(s, outcome) };
                return Some(s);
            }
            at = s.next.get();
        }
        None
    }

    unsafe fn unlink(&mut self, s: SudogPtr, outcome: WaitOutcome) {
        debug_assert_eq!(s.outcome.get(), WaitOutcome::Queued);
        let (prev, next) = (s.prev.replace(None), s.next.replace(None));
        self.set_next(prev, next);
        self.set_prev(next, prev);
        s.outcome.set(outcome);
    }

    fn len(&self, addr: usize) -> usize {
        let mut n = 0;
        let mut at = self.head;
        while let Some(s) = at {
            n += usize::from(s.addr == addr);
            at = s.next.get();
        }
        n
    }
}

impl OneLevelList {
    fn join(&mut self, prev: Link, next: Link, s: SudogPtr) {
        s.prev.set(prev);
        s.next.set(next);
        self.set_next(prev, Some(s));
        self.set_prev(next, Some(s));
    }

    /// Sets the successor of the waiter `of`. If `of` is `None`, sets the first waiter.
    fn set_next(&mut self, of: Link, to: Link) {
        match of {
            None => self.head = to,
            Some(s) => s.next.set(to),
        }
    }

    fn set_prev(&mut self, of: Link, to: Link) {
        match of {
            None => self.tail = to,
            Some(s) => s.prev.set(to),
        }
    }
}
