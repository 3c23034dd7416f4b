//! Near one's turn one watches the grant; far from it, whatever the protocol has.
//!
//! | | near: fewer than `NEAR` tickets are ahead | far |
//! |---|---|---|
//! | policy that sleeps | looks at the grant for a while, then sleeps as if far | sleeps |
//! | policy that does not | looks at the grant until it is its turn | watches its bucket, or its gate |
//! | who is woken by grant `g` | policies that sleep: `g` | `g + NEAR`, which is near now |
//!
//! So the next ones are awake and looking when their turn comes, and a handover costs them a cache miss, not a wake-up.
//!
//! The paper has this for listing 2, as its `LongTermThreshold`; there nobody wakes those who are near, so they can not
//! sleep. If its poster of `g` is preempted between the grant and the wake-up, the one at `g + NEAR` sleeps on through
//! its turn, though other posters come by; here their wake-up of `g` finds it.

use std::ops::Range;

use sudog_runtime::Instant;

use super::hash::TicketHash;
use super::line::{TICKETS, Turn};
use super::pop_stack::Waited;
use crate::waiting::gate::is_over;
use crate::waiting::policy::WaitPolicy;

/// Waits for a turn: near it on the grant; else by `wait`, with what `look` had returned *before* the grant was looked at,
/// so that `wait` can tell whether anybody has been woken since.
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
    }
}

/// What a look at the grant has shown.
enum Look {
    /// The turn has come.
    Come,
    /// The waiter is far, or has watched long enough to sleep.
    Far,
    /// It was near, and the deadline passed.
    TimedOut,
}

/// Watches the grant while it is near.
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

/// How far from its turn a waiter must be to miss nothing if a post wakes nobody: see
/// [`TicketWait::LOOKS_AT_TICKETS`](super::TicketWait::LOOKS_AT_TICKETS).
pub(super) const fn needs_no_wake<P: WaitPolicy, const NEAR: u32>() -> u64 {
    if P::PARKS { 0 } else { NEAR as u64 }
}

/// Wakes the buckets of those whom these grants concern.
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

/// Each bucket once if there are very many tickets.
#[inline]
fn buckets<H: TicketHash>(sema: usize, tickets: Range<u64>, wake: impl Fn(usize)) {
    if tickets.end - tickets.start > H::BUCKETS as u64 {
        (0..H::BUCKETS).for_each(wake);
    } else {
        tickets.for_each(|ticket| wake(H::bucket(sema, ticket % TICKETS) % H::BUCKETS));
    }
}

/// The policy of those who are far: if they may sleep they do so at once, and leave the processor to those who are
/// near.
pub(super) struct Far<P>(std::marker::PhantomData<P>);

impl<P: WaitPolicy> WaitPolicy for Far<P> {
    const PARKS: bool = P::PARKS;

    #[inline]
    fn pass_time(iter: u32) -> bool {
        !P::PARKS && P::pass_time(iter)
    }
}
