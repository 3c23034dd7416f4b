//! The ticket lock augmented with a waiting array: the next waiter watches the lock, the others wait for their tickets in an
//! array that all locks share.
//!
//! | step | by | action |
//! |---|---|---|
//! | draw | contender | `ticket = next.fetch_add(1)`; has the lock if `serving` is its ticket |
//! | wait far | contender that is not the next | waits by `F` until it is the next |
//! | wait near | contender that is the next | waits for `serving` |
//! | unlock | owner | `serving = ticket + 1`; then wakes by `F` the holder of the ticket that is now the next |
//!
//! | `F` | a far contender | wake |
//! |---|---|---|
//! | [`Slots`] | reads the slot of its ticket, then `serving`; while it is not the next, waits for the slot to change | adds 1 to the slot |
//! | [`Chains`] | sleeps in the waiting chain of an address that stands for its ticket | signals that address |
//!
//! No change of a slot is missed, with Release for the addition and Acquire for the load of a slot: a contender that reads
//! the slot's new value sees the new `serving`, and after an older value the slot is still to change. For the chains that is the
//! promise of [`address_wait_until`].
//!
//! Source: D. Dice and A. Kogan, *TWA: ticket locks augmented with a waiting array*, Euro-Par 2019; the chains: a comment of
//! listing 3 of their *Semaphores Augmented with a Waiting Array*.

use std::fmt::Debug;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crossbeam_utils::CachePadded;
use sudog_locks::waiting_array::{Spin, SpinThenYield, WaitPolicy, address_signal, address_wait_until};
use sudog_runtime::shim::AtomicU32;
use sudog_sync::RawLock;

/// The number of slots of the array. The paper's array also has 4096, not padded.
const SLOTS: usize = if cfg!(sudog_loom) { 1 } else { 4096 };

/// The largest distance from its turn at which a contender watches the lock. In a model no contender does, so that two threads
/// are enough for a far contender.
const NEAR: u32 = if cfg!(sudog_loom) { 0 } else { 1 };

#[cfg(not(sudog_loom))]
static ARRAY: [AtomicU32; SLOTS] = [const { AtomicU32::new(0) }; SLOTS];

#[cfg(sudog_loom)]
loom::lazy_static! {
    static ref ARRAY: [AtomicU32; SLOTS] = [AtomicU32::new(0)];
}

/// The way in which contenders wait that are far from their turn.
pub trait FarWait: Debug + Send + Sync + 'static {
    /// The policy of the next contender, which watches the lock.
    type Near: WaitPolicy;

    /// Waits until `is_near` returns true for the holder of this ticket of the lock at this address.
    fn wait(lock: usize, ticket: u32, is_near: impl Fn() -> bool);

    /// Makes the holder of this ticket test `is_near` again.
    fn wake(lock: usize, ticket: u32);
}

/// The paper's array of slots.
#[derive(Debug)]
pub struct Slots;

/// Waiting chains.
#[derive(Debug)]
pub struct Chains;

/// Returns the slot of a ticket, by the paper's hash: slots of successive tickets are on different lines.
#[cfg_attr(sudog_loom, expect(clippy::modulo_one, reason = "a model has a single slot"))]
fn slot(lock: usize, ticket: u32) -> &'static AtomicU32 {
    &ARRAY[((ticket as usize).wrapping_mul(127) ^ (lock >> 6)) % SLOTS]
}

impl FarWait for Slots {
    type Near = Spin;

    fn wait(lock: usize, ticket: u32, is_near: impl Fn() -> bool) {
        let slot = slot(lock, ticket);
        loop {
            let seen = slot.load(Acquire);
            if is_near() {
                return;
            }
            let mut iter = 0;
            while slot.load(Relaxed) == seen {
                Spin::pass_time(iter);
                iter = iter.wrapping_add(1);
            }
        }
    }

    #[inline]
    fn wake(lock: usize, ticket: u32) {
        slot(lock, ticket).fetch_add(1, Release);
    }
}

/// Returns the address that stands for a ticket. Nothing is at that address.
fn address(lock: usize, ticket: u32) -> usize {
    lock.wrapping_add((ticket as usize).wrapping_mul(128))
}

impl FarWait for Chains {
    type Near = SpinThenYield;

    fn wait(lock: usize, ticket: u32, is_near: impl Fn() -> bool) {
        address_wait_until(address(lock, ticket), is_near);
    }

    #[inline]
    fn wake(lock: usize, ticket: u32) {
        address_signal(address(lock, ticket));
    }
}

/// The ticket lock with a waiting array.
#[derive(Debug)]
pub struct TwaLock<F = Slots> {
    next: CachePadded<AtomicU32>,
    serving: CachePadded<AtomicU32>,
    far: std::marker::PhantomData<F>,
}

impl<F: FarWait> TwaLock<F> {
    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    #[cold]
    #[cfg_attr(sudog_loom, expect(clippy::absurd_extreme_comparisons, reason = "no waiter is near in a model"))]
    fn wait(&self, ticket: u32) {
        let distance = || ticket.wrapping_sub(self.serving.load(Acquire));
        if distance() > NEAR {
            F::wait(self.address(), ticket, || distance() <= NEAR);
        }
        let mut iter = 0;
        while distance() != 0 {
            F::Near::pass_time(iter);
            iter = iter.wrapping_add(1);
        }
    }
}

// SAFETY:
// - A contender has the lock if `serving` is its ticket, and a single contender has drawn that ticket (in each turn of
//   2^32).
// - Release of the store and Acquire of the loads of `serving` order the actions of owners.
// - A forgotten guard leaves the lock locked.
unsafe impl<F: FarWait> RawLock for TwaLock<F> {
    /// The ticket.
    type Guard = u32;

    const DEADLINES: bool = false;

    fn new() -> Self {
        let word = || CachePadded::new(AtomicU32::new(0));
        Self { next: word(), serving: word(), far: std::marker::PhantomData }
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
        F::wake(self.address(), next.wrapping_add(NEAR));
    }

    fn is_locked(&self) -> bool {
        self.next.load(Relaxed) != self.serving.load(Relaxed)
    }
}
