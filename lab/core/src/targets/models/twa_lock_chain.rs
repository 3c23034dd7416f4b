//! The TWA lock over waiting chains: the next waiter watches the lock, the others sleep in chains of a global table.
//!
//! | step | by | action |
//! |---|---|---|
//! | draw | contender | `ticket = next.fetch_add(1)`; has the lock if `serving` is its ticket |
//! | wait far | contender that is not the next | waits for the address of its ticket until it is the next |
//! | wait near | contender that is the next | waits for `serving`: spins, then yields |
//! | unlock | owner | `serving = ticket + 1`; then signals the address of the ticket that is now the next |
//!
//! `twa_lock.rs` is the lock over a waiting array. In place of its sequentially consistent accesses is the promise of
//! [`address_wait_until`]: a waiter whose condition became true before the signal does not sleep on.
//!
//! Source: a comment of listing 3 of D. Dice and A. Kogan, *Semaphores Augmented with a Waiting Array*.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crossbeam_utils::CachePadded;
use sudog_locks::waiting_array::{SpinThenYield, WaitPolicy, address_signal, address_wait_until};
use sudog_runtime::shim::AtomicU32;
use sudog_sync::RawLock;

/// The largest distance from its turn at which a contender watches the lock.
const NEAR: u32 = 1;

/// The TWA lock over waiting chains.
#[derive(Debug)]
pub struct TwaLockChain {
    next: CachePadded<AtomicU32>,
    serving: CachePadded<AtomicU32>,
}

impl TwaLockChain {
    /// Returns the address for which the holder of a ticket waits. Nothing is at that address.
    fn address(&self, ticket: u32) -> usize {
        std::ptr::from_ref(self).addr().wrapping_add((ticket as usize).wrapping_mul(128))
    }

    #[cold]
    fn wait(&self, ticket: u32) {
        let distance = || ticket.wrapping_sub(self.serving.load(Acquire));
        if distance() > NEAR {
            address_wait_until(self.address(ticket), || distance() <= NEAR);
        }
        let mut iter = 0;
        while distance() != 0 {
            SpinThenYield::pass_time(iter);
            iter = iter.wrapping_add(1);
        }
    }
}

// SAFETY:
// - A contender has the lock if `serving` is its ticket, and a single contender has drawn that ticket (in each turn of
//   2^32).
// - Release of the store and Acquire of the loads of `serving` order the actions of owners.
// - A forgotten guard leaves the lock locked.
unsafe impl RawLock for TwaLockChain {
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
        self.serving.store(next, Release);
        address_signal(self.address(next.wrapping_add(NEAR)));
    }

    fn is_locked(&self) -> bool {
        self.next.load(Relaxed) != self.serving.load(Relaxed)
    }
}
