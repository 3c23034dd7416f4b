//! The protocol in which all waiters poll the grant: the simplest protocol, and the baseline for the others.
//!
//! | taker | poster |
//! |---|---|
//! | `tx = next++` | `grant++` |
//! | until `grant > tx`: spins or yields | nothing |
//!
//! No other word is involved: the taker's load acquires the release of the grant, and a poster wakes no waiter. With
//! more waiters than processors, each post invalidates every waiter's copy of the grant, and the next waiter may not be
//! running. A waiter cannot sleep, because no poster would wake it.
//!
//! Source: listing 1, *Ticket-Semaphore*.

use std::marker::PhantomData;
use std::ops::Range;

use sudog_runtime::{Instant, spin};

use super::ticket_queue::{TicketWait, Turn};
use super::ticket_sema::TicketSema;
use crate::waiting::parker::is_over;
use crate::waiting::policy::{SpinThenYield, WaitPolicy};

/// The protocol of listing 1: all waiters poll the grant. See [`Ticket`].
///
/// A policy that would sleep yields instead. With `PROPORTIONAL`, a waiter first pauses once for each ticket ahead, as a
/// comment of the listing proposes.
#[derive(Debug)]
pub struct GrantWait<P = SpinThenYield, const PROPORTIONAL: bool = false>(PhantomData<P>);

/// The most pauses of a proportional delay, so that a waiter does not miss its deadline by far.
const MOST_PAUSES: u64 = 256;

/// The ticket semaphore, listing 1: a ticket lock with a count.
///
/// # Examples
///
/// ```
/// use sudog::locks::waiting_array::Ticket;
///
/// static SLOTS: Ticket = Ticket::new(2);
///
/// SLOTS.acquire_many(2).unwrap();
/// assert!(!SLOTS.try_acquire_many(1));
/// ```
pub type Ticket<P = SpinThenYield, const PROPORTIONAL: bool = false> = TicketSema<GrantWait<P, PROPORTIONAL>>;

// SAFETY: `wait` returns true only when the turn has come; `wait` polls, so no wake is needed.
unsafe impl<P: WaitPolicy, const PROPORTIONAL: bool> TicketWait for GrantWait<P, PROPORTIONAL> {
    const NEAR: u32 = 0;

    const LOOKS_AT_TICKETS: Option<u64> = None;

    fn wait(turn: &Turn<'_>, deadline: Option<Instant>) -> bool {
        let mut iter = 0;
        while let Some(ahead) = turn.distance() {
            if is_over(deadline, iter) {
                return false;
            }
            if PROPORTIONAL {
                spin::do_spin(ahead.min(MOST_PAUSES) as u32);
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
