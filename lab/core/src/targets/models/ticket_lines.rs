//! The ticket lock with its two words on two cache lines: an arrival does not take the line away that the waiters watch.
//!
//! Source: a comment of listing 1 of D. Dice and A. Kogan, *Semaphores Augmented with a Waiting Array*. `ticket-spin` has
//! both words on the same line.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use sudog_runtime::shim::AtomicU64;
use sudog_runtime::spin;
use sudog_sync::RawLock;

/// The words between the two words of a lock whose lines are no pair. Processors may fetch pairs of 128 bytes.
const APART: usize = 15;

/// The ticket lock on two lines: `BETWEEN` words are between the two. With 7 the lines are a pair of 128 bytes.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct TicketLines<const BETWEEN: usize = APART> {
    next: AtomicU64,
    _between: [u64; BETWEEN],
    grant: AtomicU64,
}

// SAFETY:
// - A contender has the lock if `grant` is its ticket, and a ticket is drawn once. Only the owner changes `grant`.
// - Release of the store and Acquire of the load of `grant` order the actions of owners.
// - A forgotten guard leaves the lock locked.
unsafe impl<const BETWEEN: usize> RawLock for TicketLines<BETWEEN> {
    type Guard = ();

    const DEADLINES: bool = false;

    fn new() -> Self {
        Self { next: AtomicU64::new(0), _between: [0; BETWEEN], grant: AtomicU64::new(0) }
    }

    #[inline]
    fn lock(&self) {
        let ticket = self.next.fetch_add(1, Relaxed);
        while self.grant.load(Acquire) != ticket {
            spin::do_spin(1);
        }
    }

    #[inline]
    fn try_lock(&self) -> Option<()> {
        let grant = self.grant.load(Acquire);
        self.next.compare_exchange(grant, grant + 1, Relaxed, Relaxed).is_ok().then_some(())
    }

    #[inline]
    unsafe fn unlock(&self, (): ()) {
        self.grant.store(self.grant.load(Relaxed) + 1, Release);
    }

    fn is_locked(&self) -> bool {
        self.next.load(Relaxed) != self.grant.load(Relaxed)
    }
}
