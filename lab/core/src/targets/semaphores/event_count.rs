//! An event count and a sequencer over waiting chains, and a semaphore that is made of both.
//!
//! | type | call | action |
//! |---|---|---|
//! | [`EventCount`] | `advance` | adds 1; signals the waiter for the new value |
//! | | `wait_for(v)` | waits until the count is at least `v` |
//! | [`Sequencer`] | `ticket` | returns 0, 1, 2, .. |
//! | [`EventCountSema`] | `acquire` | waits until there have been more releases than its ticket |
//! | | `release` | advances the count of releases |
//!
//! A waiter for `v` sleeps in the chain of an address that stands for the count and `v`. So an advance wakes that waiter
//! alone, except for collisions.
//!
//! Source: D. P. Reed and R. K. Kanodia, *Synchronization with eventcounts and sequencers*, 1979; that chains serve both,
//! D. Dice and A. Kogan, *Semaphores Augmented with a Waiting Array*.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use sudog_locks::waiting_array::{address_signal, address_signal_polite, address_wait_until};
use sudog_runtime::shim::AtomicU64;
use sudog_sync::{Order, Semaphore, Wake};

/// A count of events, which only grows. With `POLITE`, an advance only reads a chain in which there is no waiter. With
/// `ONE_KEY`, all waiters of the count wait for the same address, for comparison.
#[derive(Debug)]
pub struct EventCount<const POLITE: bool, const ONE_KEY: bool>(AtomicU64);

impl<const POLITE: bool, const ONE_KEY: bool> EventCount<POLITE, ONE_KEY> {
    /// Returns the number of events so far.
    pub fn read(&self) -> u64 {
        self.0.load(Acquire)
    }

    /// Adds an event. All that the caller has done before happens before the return of a `wait_for` that counts the event.
    pub fn advance(&self) {
        let address = std::ptr::from_ref(self).addr();
        // Release: a reader of a later value synchronises as well, since each change is an RMW. After this step the count may
        // be freed: the signal uses the address as a number.
        let now = self.0.fetch_add(1, Release) + 1;
        match POLITE {
            true => address_signal_polite(Self::key(address, now)),
            false => address_signal(Self::key(address, now)),
        }
    }

    /// Waits until there have been `events` events.
    pub fn wait_for(&self, events: u64) {
        if self.read() < events {
            let address = std::ptr::from_ref(self).addr();
            address_wait_until(Self::key(address, events), || self.read() >= events);
        }
    }

    /// Returns the number that stands for the count at this address and a value of the count.
    fn key(address: usize, events: u64) -> usize {
        let events = if ONE_KEY { 0 } else { events };
        address.wrapping_add((events as usize).wrapping_mul(128))
    }
}

/// Hands out numbers in order.
#[derive(Debug)]
pub struct Sequencer(AtomicU64);

impl Sequencer {
    /// Returns the next number.
    pub fn ticket(&self) -> u64 {
        self.0.fetch_add(1, Relaxed)
    }
}

/// A semaphore: first come, first served.
#[derive(Debug)]
pub struct EventCountSema<const POLITE: bool = false, const ONE_KEY: bool = false> {
    releases: EventCount<POLITE, ONE_KEY>,
    acquirers: Sequencer,
}

impl<const POLITE: bool, const ONE_KEY: bool> EventCountSema<POLITE, ONE_KEY> {
    /// Returns the number of tickets that have been drawn and not released.
    pub fn wanted(&self) -> u64 {
        let drawn = self.acquirers.0.load(Acquire);
        drawn.saturating_sub(self.releases.read())
    }
}

// SAFETY:
// - An acquirer with the ticket `t` has a permit once there have been more than `t` releases, the initial permits included. A
//   ticket is drawn once, so at most as many acquirers have permits as there were permits.
// - `wait_for` returns once there are enough releases, so no permit is idle while its acquirer waits.
// - `advance` happens before the `wait_for` that counts it.
unsafe impl<const POLITE: bool, const ONE_KEY: bool> Semaphore for EventCountSema<POLITE, ONE_KEY> {
    const LIFO: bool = false;
    const FIFO: bool = true;
    const HANDOFF: bool = true;
    const DEADLINES: bool = false;

    fn new(permits: u32) -> Self {
        Self { releases: EventCount(AtomicU64::new(permits.into())), acquirers: Sequencer(AtomicU64::new(0)) }
    }

    #[inline]
    fn acquire(&self, _order: Order) {
        let ticket = self.acquirers.ticket();
        self.releases.wait_for(ticket + 1);
    }

    #[inline]
    fn try_acquire(&self) -> bool {
        // Load the tickets first. In the other order a try could fail although a permit was available all the time.
        let mut ticket = self.acquirers.0.load(Acquire);
        while self.releases.read() > ticket {
            match self.acquirers.0.compare_exchange_weak(ticket, ticket + 1, Relaxed, Acquire) {
                Ok(_) => return true,
                Err(now) => ticket = now,
            }
        }
        false
    }

    #[inline]
    fn release(&self, _wake: Wake) {
        self.releases.advance();
    }
}
