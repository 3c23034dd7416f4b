//! A ring of waiters for each address. A [`TwoLevelList`](super::TwoLevelList) or a [`Treap`](super::Treap) finds a
//! ring by its head.
//!
//! ```text
//!   head ⇄ second ⇄ ... ⇄ last ⇄ head         the head has a priority other than 0, and only the head is a node
//! ```
//!
//! `head.prev` is the last waiter, so both ends are reachable in one step, and any waiter is unlinked in O(1), except
//! the last waiter of an address, whose node is removed too.
//!
//! Go's ring is a singly linked list with a tail pointer, so only its head can be removed; deadlines need to remove any
//! waiter.

use super::{BucketQueue, Order, Sudog, SudogPtr, WaitOutcome};

/// An index of the rings, which finds the head of a ring by the address of its waiters.
///
/// # Safety
///
/// - `find` returns the head that was inserted for this address, or was substituted for that head, and has not been
///   removed since.
/// - A sudog's priority is different from 0 exactly while the sudog is such a head.
pub unsafe trait RingIndex: Send + 'static {
    /// An index without heads.
    const NONE: Self;

    /// The place at which a missing address would be inserted.
    type Place;

    /// Returns the head of an address's ring.
    fn find(&self, addr: usize) -> Result<SudogPtr, Self::Place>;

    /// Inserts a head at `place`. The head's priority is 0 before, and is not 0 afterwards.
    fn insert(&mut self, s: SudogPtr, place: Self::Place);

    /// Removes a head. The head's priority is 0 afterwards.
    fn remove(&mut self, s: SudogPtr);

    /// Replaces `old` by `new`, which has the same address. The priority of `old` is 0 afterwards.
    fn substitute(&mut self, old: SudogPtr, new: SudogPtr);
}

// SAFETY: the queue returns a waiter that it has found in a ring, and unlinks the waiter, so it does not return or
// access the waiter again.
unsafe impl<H: RingIndex> BucketQueue for H {
    const EMPTY: Self = H::NONE;

    #[inline]
    unsafe fn queue(&mut self, sudog: &Sudog, order: Order) {
        // SAFETY: `sudog` lives in place as long as it is linked, and its links are used through this queue only, by
        // the contract of `BucketQueue::queue`.
        let s = unsafe { sudog.as_queued() };
        debug_assert_ne!(s.outcome.get(), WaitOutcome::Queued);
        s.outcome.set(WaitOutcome::Queued);
        match self.find(s.addr) {
            Ok(head) => {
                join(s, head);
                // The last waiter of a ring is in front of the head, so it is the first if it becomes the head.
                if order == Order::Lifo {
                    self.substitute(head, s);
                }
            }
            Err(place) => {
                s.next.set(Some(s));
                s.prev.set(Some(s));
                self.insert(s, place);
            }
        }
    }

    #[inline]
    fn dequeue(&mut self, addr: usize, outcome: WaitOutcome) -> Option<SudogPtr> {
        let head = self.find(addr).ok()?;
        // SAFETY: `head` was found in this queue.
        unsafe { self.unlink(head, outcome) };
        Some(head)
    }

    #[inline]
    unsafe fn unlink(&mut self, s: SudogPtr, outcome: WaitOutcome) {
        debug_assert_eq!(s.outcome.get(), WaitOutcome::Queued);
        let (Some(prev), Some(next)) = (s.prev.get(), s.next.get()) else { unreachable!("queued in no ring") };
        if next == s {
            self.remove(s);
        } else {
            prev.next.set(Some(next));
            next.prev.set(Some(prev));
            if s.priority.get() != 0 {
                self.substitute(s, next);
            }
        }
        s.next.set(None);
        s.prev.set(None);
        s.outcome.set(outcome);
    }

    fn len(&self, addr: usize) -> usize {
        let Ok(head) = self.find(addr) else { return 0 };
        let mut n = 1;
        let mut s = head.next.get();
        while s != Some(head) {
            n += 1;
            s = s.and_then(|s| s.next.get());
        }
        n
    }
}

/// Puts `s` behind the last waiter, which is in front of the head.
fn join(s: SudogPtr, head: SudogPtr) {
    let last = head.prev.replace(Some(s));
    s.next.set(Some(head));
    s.prev.set(last);
    if let Some(last) = last {
        last.next.set(Some(s));
    }
}
