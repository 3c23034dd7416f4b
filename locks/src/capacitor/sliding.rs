//! The sliding window: who is less than `B` behind the first that has not departed is let through.
//!
//! | word | meaning |
//! |---|---|
//! | `next` | the next ticket; to arrive is to draw one |
//! | `window` | upper half, *base*: the first ticket that has not departed. Bit 31: LATE, `late` is not empty. Bits 0 to 30: bit `i` says that ticket `base + i` has departed; bit 0 is never set |
//! | `late` | tickets that were given up when they were too far from the base for a bit |
//!
//! | step | who | what |
//! |---|---|---|
//! | arrive | | `t = next++`; `t < base + B`: is let through; else waits until that is so |
//! | depart | ticket `t`, no LATE | CAS on the window: sets bit `t - base`; if the lowest bits are set then, moves the base past them |
//! | depart | LATE, or no bit for `t` | the same under a lock; and gives bits to those of `late` that have come near |
//! | … | who moved the base by `k` | wakes those of the `k` tickets behind the old window that have been drawn |
//! | give up | who waits | departs |
//!
//! Tickets have 32 bits here and go round: two are compared by their difference, so fewer than 2^31 may be about. While one
//! holds up the base, others can come and give up as often as they like: from 2^30 on those with a deadline draw no more
//! tickets, and poll.
//!
//! **Bound.** While V has not departed the base is not above its ticket `v`, so whoever is let through has a ticket below
//! `v + B`: at most `B - 1` of them are later than V. Where it departs does not matter, nor what lock is inside. Each
//! has all `B - 1`; in a platoon only the first has.
//!
//! **Nobody is left behind.** Who has ticket `base` is always let through. A base that moves to `b` lets exactly the
//! tickets below `b + B` through; who moved it by `k` wakes the `k` that were not before. So one that is late holds up
//! those who are `B` behind it, and no others. So does one that has moved the base, and is stopped before it has woken
//! those: nobody else will.
//!
//! **The bits.** Who has been let through is less than `B` from the base, so has a bit; so a limit is 31 at most. Who gives
//! up may be farther, and is noted in `late`. LATE is in the same word as the base: so either a departer sees LATE, and
//! looks there, or the one that is noted sees the base that the departer moved. While LATE is set the window is changed
//! under the lock only, so for as long a departure may have to wait for another's.
//!
//! **The gate** loads the window, then `next`: the same ticket, so nobody is between arrival and departure. Why in this
//! order and what it may miss: [`is_idle`](SlidingWindow::is_idle).
//!
//! Orderings: a departure is Release and being let through Acquire, though the inner lock orders what it protects. To
//! wake only those who have drawn a ticket, a departer looks at `next` after it has changed the window; who goes to sleep
//! has drawn a ticket, and looks at the window once more: each writes, then reads what the other writes. So the
//! departer's two accesses are sequentially consistent, and between the other two is the fence of the chain. On x86 the
//! departer pays nothing for it, as its write is a locked instruction.
//!
//! The lock must outlive the departure, as it looks at `next` at its end.
//!
//! Source: ours. `locks/docs/capacitor.md` has what was checked.

use std::fmt;
use std::num::NonZeroU64;

use crossbeam_utils::CachePadded;
use sudog_runtime::shim::{AtomicU64, Mutex, Ordering::Acquire, Ordering::Relaxed, Ordering::SeqCst, mark};
use sudog_runtime::{Instant, fatal};

#[cfg(not(sudog_loom))]
use super::DEFAULT_LIMIT;
#[cfg(not(sudog_loom))]
use super::arrival::ConstArriveDepart;
use super::arrival::{ArriveDepart, checked};
use super::late::Late;
use crate::waiting::gate::is_over;
use crate::waiting::policy::{SpinThenPark, WaitPolicy};
use crate::waiting_array::chain;
use sudog_sync::internal::poll_until;

/// How many bits are used. In a model two, so that somebody can be too far for one.
const SPAN: u32 = if cfg!(sudog_loom) { 2 } else { 31 };
const LATE: u64 = 1 << 31;
/// How many tickets there may be from the base on before those who may give up draw no more.
const CROWDED: u32 = 1 << 30;
/// And before whoever waits ends the process: far from the 2^31 that could not be compared any more. Those who may not give
/// up are as many as there are threads and goroutines.
const MOST: u32 = CROWDED + (1 << 29);
const BITS: u64 = (1 << SPAN) - 1;

/// A capacitor without drain: the window moves on with the first that departs, and not with the last of a platoon.
///
/// `P` is how those wait who are not yet let through.
///
/// # Limits
///
/// A bypass limit of 31. 2^30 that have arrived since the first that has not departed, those who gave up included: beyond
/// that whoever has a deadline polls; half as many more, which would have to be threads and goroutines, end the process. One
/// that gives up while 31 or more are before it allocates, and so may any departure until it has passed: it cannot be in
/// front of a global allocator's lock, if that is waited for with deadlines.
///
/// # Examples
///
/// ```
/// use sudog_locks::capacitor::{ArriveDepart, SlidingWindow};
///
/// let window = SlidingWindow::new(2);
/// let [first, second] = [window.arrive(), window.arrive()];
/// window.depart(second);
/// assert!(window.try_arrive().is_none(), "the first is still there, and two have come since");
/// window.depart(first);
/// assert!(window.try_arrive().is_some());
/// ```
pub struct SlidingWindow<P = SpinThenPark> {
    next: CachePadded<AtomicU64>,
    window: CachePadded<AtomicU64>,
    late: Mutex<Late>,
    limit: u32,
    policy: std::marker::PhantomData<fn() -> P>,
}

/// A ticket of a [`SlidingWindow`].
///
/// Never 0, so that no ticket is, and both are one word: half a word that is written and then read as a whole one costs as
/// much as a lock.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct WindowTicket(NonZeroU64);

impl WindowTicket {
    #[inline]
    fn new(number: u32) -> Self {
        Self(NonZeroU64::MIN | u64::from(number) << 32)
    }

    /// Tickets are numbered in the order in which they are drawn, modulo 2^32.
    #[inline]
    #[must_use]
    pub fn number(self) -> u32 {
        (self.0.get() >> 32) as u32
    }
}

impl fmt::Debug for WindowTicket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WindowTicket").field(&self.number()).finish()
    }
}

/// The base of a window.
#[inline]
fn base(window: u64) -> u32 {
    (window >> 32) as u32
}

/// A window with these bits, which may be more than there is room for, moved on as far as they let it. And by how much.
#[inline]
fn moved(base: u32, bits: u64) -> (u64, u32) {
    let by = bits.trailing_ones();
    (u64::from(base.wrapping_add(by)) << 32 | bits.checked_shr(by).unwrap_or(0), by)
}

/// The window without `n` tickets from this one on, and by how much it has moved. The tickets have bits.
#[inline]
fn without(window: u64, ticket: u32, n: u32) -> (u64, u32) {
    let at = ticket.wrapping_sub(base(window));
    debug_assert!(window & LATE == 0 && at + n <= SPAN);
    let bits = ((1 << n) - 1) << at;
    debug_assert!(window & bits == 0, "a ticket departs once");
    moved(base(window), window & BITS | bits)
}

impl SlidingWindow {
    /// With this bypass limit, and the default policy. [`ArriveDepart::with_limit`] is for any.
    ///
    /// # Panics
    ///
    /// If the limit is not from 1 to 31.
    #[cfg(not(sudog_loom))]
    #[must_use]
    #[track_caller]
    pub const fn new(limit: u32) -> Self {
        Self::beginning(0, limit)
    }
}

impl<P> SlidingWindow<P> {
    /// [`ArriveDepart::with_limit`], for a `static`; [`SlidingWindow::new`] spares one to name the policy.
    ///
    /// # Panics
    ///
    /// If the limit is not from 1 to 31.
    #[cfg(not(sudog_loom))]
    #[must_use]
    #[track_caller]
    pub const fn const_with_limit(limit: u32) -> Self {
        Self::beginning(0, limit)
    }

    #[cfg(not(sudog_loom))]
    #[track_caller]
    const fn beginning(at: u32, limit: u32) -> Self {
        Self {
            next: CachePadded::new(AtomicU64::new(at as u64)),
            window: CachePadded::new(AtomicU64::new((at as u64) << 32)),
            late: Mutex::new(Late::NONE),
            limit: checked(limit, SPAN),
            policy: std::marker::PhantomData,
        }
    }

    #[cfg(sudog_loom)]
    fn beginning(at: u32, limit: u32) -> Self {
        Self {
            next: CachePadded::new(AtomicU64::new(u64::from(at))),
            window: CachePadded::new(AtomicU64::new(u64::from(at) << 32)),
            late: Mutex::new(Late::NONE),
            limit: checked(limit, SPAN),
            policy: std::marker::PhantomData,
        }
    }

    /// As if so many tickets had been drawn, and departed, before. For the tests of what goes round.
    #[doc(hidden)]
    #[must_use]
    pub fn with_limit_at(limit: u32, at: u32) -> Self {
        Self::beginning(at, limit)
    }

    /// How many have arrived and not departed at this moment, those who wait included; and those who gave up, as long as
    /// somebody before them has not departed. For tests and the curious.
    #[must_use]
    pub fn present(&self) -> u32 {
        let window = self.window.load(Acquire);
        (self.next.load(Relaxed) as u32).wrapping_sub(base(window))
    }

    /// How many tickets have been drawn. For tests and the curious.
    #[must_use]
    pub fn drawn(&self) -> u64 {
        self.next.load(Relaxed)
    }

    /// Relaxed: who sleeps has a fence after it, and the gate acquires it by the departures.
    #[inline]
    fn draw(&self) -> u32 {
        self.next.fetch_add(1, Relaxed) as u32
    }

    /// How many are before this ticket can be let through; nothing, if it is.
    #[inline]
    fn ahead(&self, window: u64, ticket: u32) -> Option<u32> {
        let ahead = ticket.wrapping_sub(base(window).wrapping_add(self.limit));
        (ahead as i32 >= 0).then_some(ahead)
    }

    /// Wakes those that a window that was at `base` lets through when it has moved by `by`. Not those of whom it is known
    /// that they have left: of each range the first, and how many; in their order.
    #[inline]
    fn wake(&self, base: u32, by: u32, passed: &[(u32, u32)]) {
        let first = base.wrapping_add(self.limit);
        let drawn = (self.next.load(SeqCst) as u32).wrapping_sub(first) as i32;
        let end = drawn.clamp(0, by as i32) as u32;
        let mut at = 0;
        while at < end {
            let ticket = first.wrapping_add(at);
            at += match passed.iter().find(|&&(gone, n)| ticket.wrapping_sub(gone) < n) {
                Some(&(gone, n)) => n - ticket.wrapping_sub(gone),
                None => {
                    chain::signal_ticket(self.address(), ticket);
                    1
                }
            };
        }
    }

    /// What those who wait are found by.
    #[inline]
    fn address(&self) -> usize {
        (&raw const *self).addr()
    }

    /// Departs, or gives up.
    #[inline]
    fn leave(&self, ticket: u32) {
        let mut old = self.window.load(Relaxed);
        loop {
            let at = ticket.wrapping_sub(base(old));
            if old & LATE != 0 || at >= SPAN || old & 1 << at != 0 {
                return self.leave_late(ticket);
            }
            let (new, by) = without(old, ticket, 1);
            match self.window.compare_exchange_weak(old, new, SeqCst, Relaxed) {
                Ok(_) if by == 0 => return,
                Ok(_) => return self.wake(base(old), by, &[]),
                Err(now) => old = now,
            }
        }
    }

    /// Under the lock: for one that has no bit, or if there are others that had none.
    #[cold]
    fn leave_late(&self, ticket: u32) {
        mark("a ticket departs late");
        let mut late = self.late.lock();
        let mut passed = Vec::new();
        let (old, by) = loop {
            let old = self.window.load(Relaxed);
            let next = self.next.load(Relaxed);
            let (at, of) = (ticket.wrapping_sub(base(old)), (next as u32).wrapping_sub(base(old)));
            if at >= of || (at < SPAN && old & 1 << at != 0) {
                fatal("sync: departure without an arrival");
            }
            let (mut new, mut by) = (old & !LATE, 0);
            if at < SPAN {
                (new, by) = without(new, ticket, 1);
            } else {
                // The ticket in full: it has been drawn, and not long ago.
                if !late.insert(next - u64::from((next as u32).wrapping_sub(ticket))) {
                    fatal("sync: departure without an arrival");
                }
            }
            // In their order, so that each finds the base where those before it have left it.
            while let Some(first) = late.first().map(|first| first as u32) {
                let step = match first.wrapping_sub(base(new)) {
                    0 => {
                        // They may be many: no bit is set among them.
                        let n = late.take_first(u32::MAX);
                        passed.push((first, n));
                        let bits = (new & BITS).checked_shr(n).unwrap_or(0);
                        let (further, step) = moved(base(new).wrapping_add(n), bits);
                        new = further;
                        n + step
                    }
                    at if at < SPAN => {
                        let (further, step) = without(new, first, late.take_first(SPAN - at));
                        new = further;
                        step
                    }
                    _ => break,
                };
                by += step;
            }
            if !late.is_empty() {
                new |= LATE;
            }
            match self.window.compare_exchange(old, new, SeqCst, Relaxed) {
                Ok(_) => break (old, by),
                // Only if LATE was not set: then nobody else is late.
                Err(_) => {
                    mark("another departs beside one that is late");
                    debug_assert!(old & LATE == 0, "with LATE set the window is changed under the lock only");
                    late.clear();
                }
            }
        };
        drop(late);
        self.wake(base(old), by, &passed);
    }
}

impl<P: WaitPolicy> SlidingWindow<P> {
    /// Waits until the ticket is let through (true), or until the deadline (false).
    #[cold]
    fn wait(&self, ticket: u32, deadline: Option<Instant>) -> bool {
        if self.present() > MOST {
            fatal("sync: too many tickets of a window since the first that has not departed");
        }
        let through = || self.ahead(self.window.load(Acquire), ticket).is_none();
        let mut iter = 0;
        // The next one looks for a while, and so does everybody who never sleeps.
        while self.ahead(self.window.load(Acquire), ticket).is_some_and(|ahead| ahead == 0 || !P::PARKS) {
            if !P::pass_time(iter) {
                break;
            }
            if is_over(deadline, iter) {
                return through();
            }
            iter = iter.wrapping_add(1);
        }
        chain::wait_ticket(self.address(), ticket, through, deadline)
    }
}

impl<P: WaitPolicy> ArriveDepart for SlidingWindow<P> {
    type Ticket = WindowTicket;

    const DEADLINES: bool = true;
    const GATE: bool = true;

    fn with_limit(limit: u32) -> Self {
        Self::beginning(0, limit)
    }

    fn limit(&self) -> u32 {
        self.limit
    }

    fn bound(&self) -> Option<u64> {
        Some(u64::from(self.limit) - 1)
    }

    #[inline]
    fn arrive(&self) -> WindowTicket {
        let ticket = self.draw();
        if self.ahead(self.window.load(Acquire), ticket).is_some() {
            let given_up = Abandons { window: self, ticket };
            self.wait(ticket, None);
            std::mem::forget(given_up);
        }
        WindowTicket::new(ticket)
    }

    #[inline]
    fn try_arrive(&self) -> Option<WindowTicket> {
        // The ticket first: the exchange then proves that nobody has drawn one since, so none waits before us.
        let mut next = self.next.load(Acquire);
        loop {
            self.ahead(self.window.load(Acquire), next as u32).is_none().then_some(())?;
            match self.next.compare_exchange_weak(next, next + 1, Relaxed, Acquire) {
                Ok(_) => return Some(WindowTicket::new(next as u32)),
                Err(now) => next = now,
            }
        }
    }

    fn arrive_until(&self, deadline: Instant) -> Option<WindowTicket> {
        if let Some(ticket) = self.try_arrive() {
            return Some(ticket);
        }
        if Instant::now() >= deadline {
            return None;
        }
        if self.present() > CROWDED {
            return poll_until(deadline, || self.try_arrive());
        }
        let ticket = self.draw();
        if self.ahead(self.window.load(Acquire), ticket).is_none() {
            return Some(WindowTicket::new(ticket));
        }
        let given_up = Abandons { window: self, ticket };
        let through = self.wait(ticket, Some(deadline));
        if through {
            std::mem::forget(given_up);
        }
        through.then(|| WindowTicket::new(ticket))
    }

    #[inline]
    fn depart(&self, ticket: WindowTicket) {
        self.leave(ticket.number());
        sudog_runtime::safepoint();
    }

    /// The window first, then the tickets. If they are the same, then so they were at the second load, as the base
    /// does not go back and is not above the tickets. The other way round one could depart, and another arrive, between the two.
    ///
    /// Relaxed for the second: it is not before the first, which is Acquire; a ticket whose drawing happened before the
    /// call it does not miss. That 2^32 tickets be drawn between the two loads is not expected.
    #[inline]
    fn is_idle(&self) -> bool {
        let window = self.window.load(Acquire);
        self.next.load(Relaxed) as u32 == base(window)
    }
}

#[cfg(not(sudog_loom))]
impl<P: WaitPolicy> ConstArriveDepart for SlidingWindow<P> {
    const DEFAULT: Self = Self::beginning(0, DEFAULT_LIMIT);
}

/// One that waits. Dropped when it gives up: a deadline, or a goroutine that is unwound.
struct Abandons<'a, P: WaitPolicy> {
    window: &'a SlidingWindow<P>,
    ticket: u32,
}

impl<P: WaitPolicy> Drop for Abandons<'_, P> {
    #[cold]
    fn drop(&mut self) {
        self.window.leave(self.ticket);
    }
}

impl<P> fmt::Debug for SlidingWindow<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlidingWindow").field("limit", &self.limit).field("present", &self.present()).finish()
    }
}

#[cfg(all(test, not(sudog_loom)))]
#[path = "sliding_tests.rs"]
mod tests;
