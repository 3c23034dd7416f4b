//! Waiting for an address: chains of waiters that sleep on their own stacks, and a semaphore that uses these chains.
//!
//! | waiter | signaller |
//! |---|---|
//! | [`address_wait_until`]`(a, condition)` | makes the condition true; [`address_signal`]`(a)` |
//! | pushes itself on the chain of `a`, tests the condition again, waits at its gate | detaches the whole chain, wakes all its waiters |
//!
//! The address is hashed as a number: it is never dereferenced. Different addresses may share a chain. A waiter that is
//! woken by the signal of another address tests its condition and waits on. `pop_stack.rs` has the protocol, and the
//! argument that no wake-up is lost.
//!
//! The polite form of the signal first reads the chain, and leaves an empty chain alone. Then both sides need a fence
//! between their write and their read. Otherwise both sides may read the old value: the waiter a condition that is not
//! yet true, the signaller a chain without the waiter. The listing, as printed, has sequentially consistent accesses
//! there by default; acquire-release accesses lose wake-ups (`locks/tests/loom_waiting_array.rs`).
//!
//! A waiter of the semaphore waits for an address that stands for the semaphore and the ticket. So a wake of that
//! address wakes only the next waiter, except for collisions.
//!
//! Source: listing 3, *TWA-Semaphore with waiting chains*.

use std::marker::PhantomData;
use std::ops::Range;

use sudog_runtime::Instant;

use super::hash::{MAX_BUCKETS, MixedHash, TicketHash, fibonacci};
use super::near::{self, Far};
use super::pop_stack::{PopStack, Waited};
use super::table::table;
use super::ticket_queue::{TicketWait, Turn};
use super::ticket_sema::TicketSema;
use crate::waiting::policy::{SpinThenPark, WaitPolicy};

table!(CHAINS: [PopStack; MAX_BUCKETS]);

/// Waits until `condition` returns true. Tests `condition` at once, and after each [`address_signal`] of this address.
///
/// The thread that makes the condition true must signal the address afterwards; the waiter then sees all writes of that
/// thread before the signal. The address is only a number: any number may be used, and the memory there may be freed.
/// `condition` may be tested at any other time, too. `condition` may run any code, but while `condition` itself waits
/// for something, this call does not wait for the address.
///
/// The caller may be a thread or a goroutine. This call allocates nothing.
///
/// # Panics
///
/// Panics if `condition` panics; the chain stays consistent then.
///
/// # Examples
///
/// ```
/// use std::sync::atomic::{AtomicU32, Ordering};
/// use sudog::locks::waiting_array::{address_signal, address_wait_until};
///
/// static X: AtomicU32 = AtomicU32::new(0);
/// let address = (&raw const X).addr();
///
/// let waiter = std::thread::spawn(move || address_wait_until(address, || X.load(Ordering::Acquire) == 1));
/// X.store(1, Ordering::Release);
/// address_signal(address);
/// waiter.join().unwrap();
/// ```
pub fn address_wait_until(address: usize, condition: impl FnMut() -> bool) {
    wait::<SpinThenPark>(&CHAINS[fibonacci(address, MAX_BUCKETS)], condition, None);
}

/// Waits as [`address_wait_until`], with a deadline. Returns true if the condition became true; `condition` is tested a
/// last time at the deadline.
///
/// # Examples
///
/// ```
/// use std::time::{Duration, Instant};
/// use sudog::locks::waiting_array::address_wait_until_deadline;
///
/// let soon = Instant::now() + Duration::from_millis(1);
/// assert!(!address_wait_until_deadline(0x1234, || false, soon));
/// ```
pub fn address_wait_until_deadline(address: usize, condition: impl FnMut() -> bool, deadline: Instant) -> bool {
    wait::<SpinThenPark>(&CHAINS[fibonacci(address, MAX_BUCKETS)], condition, Some(deadline))
}

/// Makes all waiters of this address test their conditions again.
///
/// This call costs an exchange, and a wake-up for each waiter. A goroutine that has run for long yields in this call,
/// after the last wake-up.
pub fn address_signal(address: usize) {
    signal_and_go_on(address);
    sudog_runtime::safepoint();
}

/// Signals as [`address_signal`], but only reads the chain if there is no waiter. Use this function if a condition
/// often changes while there is no waiter.
pub fn address_signal_polite(address: usize) {
    CHAINS[fibonacci(address, MAX_BUCKETS)].flush_politely();
    sudog_runtime::safepoint();
}

/// Signals as [`address_signal`], for a caller that must not yield yet.
pub(super) fn signal_and_go_on(address: usize) {
    CHAINS[fibonacci(address, MAX_BUCKETS)].flush();
}

/// Waits once in the chain of an address, without spinning, unless the condition is true.
pub(super) fn wait_once(address: usize, condition: impl FnOnce() -> bool, deadline: Option<Instant>) -> Waited {
    CHAINS[fibonacci(address, MAX_BUCKETS)].wait::<Far<SpinThenPark>, false, true>(condition, deadline)
}

/// Waits for a ticket of the lock at this address, without spinning: until `condition` returns true (true), or until
/// the deadline (false).
pub(crate) fn wait_ticket(
    address: usize,
    ticket: u32,
    condition: impl FnMut() -> bool,
    deadline: Option<Instant>,
) -> bool {
    wait::<Far<SpinThenPark>>(ticket_chain(address, ticket), condition, deadline)
}

/// Makes the waiters for this ticket test their conditions again.
#[inline]
pub(crate) fn signal_ticket(address: usize, ticket: u32) {
    ticket_chain(address, ticket).flush();
}

#[inline]
fn ticket_chain(address: usize, ticket: u32) -> &'static PopStack {
    &CHAINS[<MixedHash>::bucket(address, u64::from(ticket)) % <MixedHash>::BUCKETS]
}

#[inline]
pub(super) fn wait<P: WaitPolicy>(
    chain: &PopStack,
    mut condition: impl FnMut() -> bool,
    deadline: Option<Instant>,
) -> bool {
    loop {
        if condition() {
            return true;
        }
        match chain.wait::<P, false, true>(&mut condition, deadline) {
            Waited::Satisfied => return true,
            Waited::Woken => {}
            Waited::TimedOut => return condition(),
        }
    }
}

/// The protocol of listing 3: waiters sleep in chains. See [`TwaChain`].
#[derive(Debug)]
pub struct ChainWait<
    P = SpinThenPark,
    const NEAR: u32 = 1,
    H = MixedHash,
    const SYSTOLIC: bool = false,
    const LOOKS: bool = true,
    const UNDOES: bool = true,
>(PhantomData<(P, H)>);

/// The semaphore with waiting chains, listing 3.
///
/// `NEAR` is the number of waiters at the front of the queue that poll the grant before they sleep; the listing has 0.
/// With `SYSTOLIC`, as in the listing, each woken waiter wakes the waiter below; otherwise the poster wakes all.
///
/// For study, two optional steps of the listing can be left out: without `LOOKS` a waiter pushes itself on its chain before
/// a look at its turn (`NEAR` is 0 then), and without `UNDOES` a waiter whose turn has come flushes the chain instead of
/// undoing its push.
///
/// A post is two RMWs or more, all but one in the waiting array, with or without waiters. The
/// [`Benaphore`](super::Benaphore) over the same chains needs one RMW without waiters.
///
/// # Examples
///
/// ```
/// use sudog::locks::waiting_array::TwaChain;
/// use sudog::sync::{GoMutex, MutexWith};
///
/// static M: MutexWith<GoMutex<TwaChain>, u32> = MutexWith::new(1);
/// assert_eq!(*M.lock(), 1);
/// ```
pub type TwaChain<
    P = SpinThenPark,
    const NEAR: u32 = 1,
    H = MixedHash,
    const SYSTOLIC: bool = false,
    const LOOKS: bool = true,
    const UNDOES: bool = true,
> = TicketSema<ChainWait<P, NEAR, H, SYSTOLIC, LOOKS, UNDOES>>;

// SAFETY: `wait` returns true only when the turn has come. A wake flushes the ticket's chain, and `pop_stack.rs` argues
// that a waiter which missed the turn before its push is in the chain by then. The semaphore's address is only hashed.
unsafe impl<P: WaitPolicy, const NEAR: u32, H: TicketHash, const SYSTOLIC: bool, const LOOKS: bool, const UNDOES: bool>
    TicketWait for ChainWait<P, NEAR, H, SYSTOLIC, LOOKS, UNDOES>
{
    const NEAR: u32 = NEAR;

    const LOOKS_AT_TICKETS: Option<u64> = None;

    fn wait(turn: &Turn<'_>, deadline: Option<Instant>) -> bool {
        const { assert!(LOOKS || NEAR == 0, "a waiter that does not look is never near") };
        let chain = &CHAINS[H::bucket(turn.sema(), turn.ticket()) % H::BUCKETS];
        // If the policy never sleeps, a waiter near its turn must leave the chain, to watch the grant.
        let leaves = || turn.distance().is_none_or(|ahead| !P::PARKS && ahead < u64::from(NEAR));
        let wait = |()| chain.wait::<Far<P>, SYSTOLIC, UNDOES>(leaves, deadline);
        if LOOKS {
            return near::wait::<P, NEAR, _>(turn, deadline, || (), wait);
        }
        loop {
            match wait(()) {
                Waited::Satisfied => return true,
                Waited::Woken => {}
                Waited::TimedOut => return turn.has_come(),
            }
        }
    }

    #[inline]
    fn wake(sema: usize, granted: Range<u64>) {
        near::wake::<P, NEAR, H>(sema, granted, |bucket| CHAINS[bucket].flush());
    }
}
