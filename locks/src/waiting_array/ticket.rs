//! Everybody spins on the grant: the simplest protocol, and the one to compare the others with.
//!
//! | taker | poster |
//! |---|---|
//! | `tx = next++` | `grant++` |
//! | until `grant > tx`: passes time | |
//!
//! No other word is involved: the release of the grant is what the taker's load acquires, and a poster wakes nobody.
//! With more waiters than processors each post invalidates everybody's copy of the grant, and the one that is next may
//! not be running. There is nothing here to sleep on.
//!
//! Source: listing 1, *Ticket-Semaphore*.

use std::marker::PhantomData;
use std::ops::Range;

use sudog_runtime::Instant;

use super::line::{TicketWait, Turn};
use super::ticket_sema::TicketSema;
use crate::waiting::gate::is_over;
use crate::waiting::policy::{SpinThenYield, WaitPolicy};

/// Listing 1: all waiters look at the grant. See [`Ticket`].
///
/// A policy that would sleep yields instead.
#[derive(Debug)]
pub struct GrantWait<P = SpinThenYield>(PhantomData<P>);

/// The ticket semaphore, listing 1: a ticket lock with a count.
///
/// # Examples
///
/// ```
/// use sudog_locks::waiting_array::Ticket;
///
/// static SLOTS: Ticket = Ticket::new(2);
///
/// SLOTS.acquire_many(2).unwrap();
/// assert!(!SLOTS.try_acquire_many(1));
/// ```
pub type Ticket<P = SpinThenYield> = TicketSema<GrantWait<P>>;

// SAFETY: the turn has come when it says so; it looks again and again, so it needs no wake.
unsafe impl<P: WaitPolicy> TicketWait for GrantWait<P> {
    const NEAR: u32 = 0;

    const LOOKS_AT_TICKETS: Option<u64> = None;

    fn wait(turn: &Turn<'_>, deadline: Option<Instant>) -> bool {
        let mut iter = 0;
        while !turn.has_come() {
            if is_over(deadline, iter) {
                return false;
            }
            if !P::pass_time(iter) {
                SpinThenYield::pass_time(iter);
            }
            iter = iter.wrapping_add(1);
        }
        true
    }

    #[inline]
    fn wake(_: usize, _: Range<u64>) {}
}
