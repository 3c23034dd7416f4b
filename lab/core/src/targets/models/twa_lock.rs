//! The ticket lock augmented with a waiting array: the next waiter watches the lock, the others watch a slot of an array
//! that all locks share.
//!
//! | step | by | action |
//! |---|---|---|
//! | draw | contender | `ticket = next.fetch_add(1)`; has the lock if `serving` is its ticket |
//! | wait far | contender that is not the next | reads the slot of its ticket, then `serving`; while the contender is still not the next, waits for the slot to change |
//! | wait near | contender that is the next | waits for `serving` |
//! | unlock | owner | `serving = ticket + 1`; then adds 1 to the slot of the ticket that is now the next |
//!
//! A contender reads its slot before it reads `serving`, an owner writes them in the other order, and both are sequentially
//! consistent: a contender that has missed the new `serving` sees the slot change.
//!
//! Source: D. Dice and A. Kogan, *TWA: ticket locks augmented with a waiting array*, Euro-Par 2019.

use crossbeam_utils::CachePadded;
use sudog_runtime::shim::AtomicU32;
use sudog_runtime::spin;
use sudog_sync::RawLock;

use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};

/// The number of slots of the array. The paper's array also has 4096, not padded.
const SLOTS: usize = 4096;

/// The largest distance from its turn at which a contender watches the lock.
const NEAR: u32 = 1;

static ARRAY: [AtomicU32; SLOTS] = [const { AtomicU32::new(0) }; SLOTS];

/// The ticket lock with a waiting array.
#[derive(Debug)]
pub struct TwaLock {
    next: CachePadded<AtomicU32>,
    serving: CachePadded<AtomicU32>,
}

impl TwaLock {
    /// Returns the slot of a ticket, by the paper's hash: slots of successive tickets are on different lines.
    fn slot(&self, ticket: u32) -> &'static AtomicU32 {
        let lock = std::ptr::from_ref(self).addr();
        &ARRAY[((ticket as usize).wrapping_mul(127) ^ (lock >> 6)) % SLOTS]
    }

    #[cold]
    fn wait(&self, ticket: u32) {
        let distance = || ticket.wrapping_sub(self.serving.load(SeqCst));
        while distance() > NEAR {
            let slot = self.slot(ticket);
            let seen = slot.load(SeqCst);
            if distance() <= NEAR {
                break;
            }
            while slot.load(Acquire) == seen {
                spin::do_spin(1);
            }
        }
        while self.serving.load(Acquire) != ticket {
            spin::do_spin(1);
        }
    }
}

// SAFETY:
// - A contender has the lock if `serving` is its ticket, and a single contender has drawn that ticket (in each turn of
//   2^32).
// - The store of `serving` and the Acquire loads of contenders order the actions of owners.
// - A forgotten guard leaves the lock locked.
unsafe impl RawLock for TwaLock {
    /// The ticket.
    type Guard = u32;

    const DEADLINES: bool = false;

    fn new() -> Self {
        Self { next: CachePadded::new(AtomicU32::new(0)), serving: CachePadded::new(AtomicU32::new(0)) }
    }

    #[inline]
    fn lock(&self) -> u32 {
        let ticket = self.next.fetch_add(1, Relaxed);
        if self.serving.load(Acquire) != ticket {
            self.wait(ticket);
        }
        ticket
    }

    #[inline]
    fn try_lock(&self) -> Option<u32> {
        let ticket = self.serving.load(Acquire);
        self.next.compare_exchange(ticket, ticket.wrapping_add(1), Relaxed, Relaxed).is_ok().then_some(ticket)
    }

    #[inline]
    unsafe fn unlock(&self, ticket: u32) {
        let next = ticket.wrapping_add(1);
        self.serving.store(next, SeqCst);
        self.slot(next.wrapping_add(NEAR)).fetch_add(1, SeqCst);
    }

    fn is_locked(&self) -> bool {
        self.next.load(Relaxed) != self.serving.load(Relaxed)
    }
}
