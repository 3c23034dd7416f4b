//! Anderson's array lock: each contender draws a ticket and watches a slot of its own; the unlock writes the next slot.
//!
//! Where the original has a flag in each slot, this lock has the number of the ticket that may go. So more contenders
//! than there are slots exclude each other, too: the contenders of one slot wait for different numbers.
//!
//! Source: T. E. Anderson, *The performance of spin lock alternatives for shared-memory multiprocessors*, 1990.

use crossbeam_utils::CachePadded;
use sudog_runtime::shim::AtomicU32;
use sudog_runtime::spin;
use sudog_sync::RawLock;

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// The number of slots: a power of two, so that the ticket numbers may wrap round.
const SLOTS: usize = 128;

/// The array lock, 16 KiB.
#[derive(Debug)]
pub struct Anderson {
    next: CachePadded<AtomicU32>,
    /// The slots. Each stores the ticket that may go, of the tickets with this slot.
    slots: Box<[CachePadded<AtomicU32>]>,
}

impl Anderson {
    fn slot(&self, ticket: u32) -> &AtomicU32 {
        &self.slots[ticket as usize % SLOTS]
    }
}

// SAFETY:
// - A contender has the lock if its slot has its number. A number is drawn once (in each turn of 2^32), and the unlock
//   of the ticket before writes that number to the slot.
// - Release in that unlock and Acquire in the contender's load order the actions of owners.
// - A forgotten guard leaves the lock locked.
unsafe impl RawLock for Anderson {
    /// The ticket.
    type Guard = u32;

    const DEADLINES: bool = false;

    fn new() -> Self {
        // Ticket 0 may go. No other slot has a number of a ticket of that slot.
        let slots = (0..SLOTS).map(|_| CachePadded::new(AtomicU32::new(0))).collect();
        Self { next: CachePadded::new(AtomicU32::new(0)), slots }
    }

    #[inline]
    fn lock(&self) -> u32 {
        let ticket = self.next.fetch_add(1, Relaxed);
        while self.slot(ticket).load(Acquire) != ticket {
            spin::do_spin(1);
        }
        ticket
    }

    #[inline]
    fn try_lock(&self) -> Option<u32> {
        let ticket = self.next.load(Relaxed);
        let may_go = self.slot(ticket).load(Acquire) == ticket;
        (may_go && self.next.compare_exchange(ticket, ticket.wrapping_add(1), Relaxed, Relaxed).is_ok())
            .then_some(ticket)
    }

    #[inline]
    unsafe fn unlock(&self, ticket: u32) {
        let next = ticket.wrapping_add(1);
        self.slot(next).store(next, Release);
    }

    fn is_locked(&self) -> bool {
        let ticket = self.next.load(Relaxed);
        self.slot(ticket).load(Relaxed) != ticket
    }
}
