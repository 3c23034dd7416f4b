//! Near and far waiters: a waiter near its turn watches the grant; a waiter far from its turn waits by the protocol.
//!
//! | | near: fewer than `NEAR` tickets are ahead | far |
//! |---|---|---|
//! | policy that sleeps | polls the grant for a while, then sleeps as if far | sleeps |
//! | policy that does not sleep | polls the grant until its turn comes | watches its bucket, or its gate |
//! | the grant `g` wakes | the ticket `g`, if the policy sleeps | the ticket `g + NEAR`, which is near now |
//!
//! So the next waiters are awake and polling when their turn comes, and a handoff costs them a cache miss, not a
//! wake-up. If a thread has been woken ahead of its turn, and there are more waiters than processors, the thread yields
//! once before it polls: see `give_way`.
//!
//! The paper has near waiters for listing 2, with the limit `LongTermThreshold`; there near waiters are never woken, so
//! they cannot sleep. If the poster of `g` in listing 2 is preempted between the grant and the wake-up, the waiter at
//! `g + NEAR` sleeps on through its turn, even though other posts follow; here the wake-up of `g + NEAR` by the poster
//! of `g + NEAR` ends that sleep.

use std::ops::Range;

use sudog_runtime::shim::num_cpus;
use sudog_runtime::{G, Instant};

use super::grant::TICKETS;
use super::hash::TicketHash;
use super::pop_stack::Waited;
use super::ticket_queue::Turn;
use crate::waiting::parker::is_over;
use crate::waiting::policy::WaitPolicy;

/// Waits for a turn: near the turn by watching the grant, otherwise by `wait`. `wait` gets the value that `look` had
/// returned *before* the grant was read, so `wait` can tell whether there has been a wake-up since.
#[inline]
pub(super) fn wait<P: WaitPolicy, const NEAR: u32, S>(
    turn: &Turn<'_>,
    deadline: Option<Instant>,
    look: impl Fn() -> S,
    mut wait: impl FnMut(S) -> Waited,
) -> bool {
    loop {
        let seen = look();
        match watch::<P, NEAR>(turn, deadline) {
            Look::Come => return true,
            Look::TimedOut => return turn.has_come(),
            Look::Far => {}
        }
        if wait(seen) == Waited::TimedOut {
            return turn.has_come();
        }
        if P::PARKS {
            give_way(turn);
        }
    }
}

/// Lets a thread yield before it polls, if there are more waiters than processors, unless its turn has come.
///
/// The waiter has been woken, perhaps ahead of its turn, by the post that made the waiter near. With more waiters than
/// processors the previous waiter may have been woken for the same processor, and polling would keep that waiter from
/// its turn. On one processor no waiter polls. A goroutine does not yield: other goroutines of its worker may run for
/// long.
///
/// A waiter whose wait returned without a sleep yields as well: either the waiter has just enlisted at a location, or
/// its bucket has changed. After the yield the waiter reads the grant again, so it misses no wake-up.
#[cold]
fn give_way(turn: &Turn<'_>) {
    let processors = u64::from(num_cpus());
    let polls = processors > 1 && !turn.has_come();
    if polls && turn.queue_len() > processors && !G::is_goroutine() {
        G::yield_now();
    }
}

/// The result of reading the grant.
enum Look {
    /// The turn has come.
    Come,
    /// The waiter is far from its turn, or has polled for so long that it should sleep.
    Far,
    /// The waiter was near, and the deadline passed.
    TimedOut,
}

/// Watches the grant while the waiter is near.
#[inline]
fn watch<P: WaitPolicy, const NEAR: u32>(turn: &Turn<'_>, deadline: Option<Instant>) -> Look {
    let mut iter = 0;
    loop {
        match turn.distance() {
            None => return Look::Come,
            Some(ahead) if ahead < u64::from(NEAR) && P::pass_time(iter) => {}
            Some(_) => return Look::Far,
        }
        if is_over(deadline, iter) {
            return Look::TimedOut;
        }
        iter = iter.wrapping_add(1);
    }
}

/// Returns the largest distance from its turn at which a waiter needs no wake-up: see
/// [`TicketWait::LOOKS_AT_TICKETS`](super::TicketWait::LOOKS_AT_TICKETS).
pub(super) const fn needs_no_wake<P: WaitPolicy, const NEAR: u32>() -> u64 {
    if P::PARKS { 0 } else { NEAR as u64 }
}

/// Wakes the buckets of the tickets that must be woken after the grants of these tickets: see the table at the head of
/// this file.
#[inline]
pub(super) fn wake<P: WaitPolicy, const NEAR: u32, H: TicketHash>(
    sema: usize,
    granted: Range<u64>,
    wake: impl Fn(usize),
) {
    let near = u64::from(NEAR);
    let now_near = granted.start + near..granted.end + near;
    if !P::PARKS || near == 0 {
        buckets::<H>(sema, now_near, &wake);
    } else if now_near.start <= granted.end {
        buckets::<H>(sema, granted.start..now_near.end, &wake);
    } else {
        buckets::<H>(sema, granted, &wake);
        buckets::<H>(sema, now_near, &wake);
    }
}

/// Wakes the buckets of these tickets; if there are more tickets than buckets, each bucket once.
#[inline]
fn buckets<H: TicketHash>(sema: usize, tickets: Range<u64>, wake: impl Fn(usize)) {
    if tickets.end - tickets.start > H::BUCKETS as u64 {
        (0..H::BUCKETS).for_each(wake);
    } else {
        tickets.for_each(|ticket| wake(H::bucket(sema, ticket % TICKETS) % H::BUCKETS));
    }
}

/// The policy of far waiters: far waiters that may sleep do so at once, and leave the processor to the near waiters.
pub(super) struct Far<P>(std::marker::PhantomData<P>);

impl<P: WaitPolicy> WaitPolicy for Far<P> {
    const PARKS: bool = P::PARKS;

    #[inline]
    fn pass_time(iter: u32) -> bool {
        !P::PARKS && P::pass_time(iter)
    }
}
