//! The sliding window: admits every ticket that is less than `B` behind the first ticket that has not departed.
//!
//! | word | meaning |
//! |---|---|
//! | `next` | the next ticket; to arrive is to draw a ticket |
//! | `window` | *base*: the first ticket that has not departed. OVERFLOW: the list `overflow` is not empty. A bit for each of the 31 tickets from the base on: has the ticket departed? See `window.rs` |
//! | `overflow` | tickets that gave up when they were too far from the base for a bit |
//!
//! | step | by | action |
//! |---|---|---|
//! | arrive | any contender | `t = next++`; if `t < base + B`, is admitted; otherwise waits until that holds |
//! | depart | ticket `t`, no OVERFLOW | CAS on the window: sets bit `t - base`; if the lowest bits are set then, moves the base past them |
//! | depart | ticket `t`, OVERFLOW is set, or there is no bit for `t` | the same under a lock; also gives bits to those tickets of `overflow` that are near enough now |
//! | … then | the ticket that moved the base by `k` | wakes those of the `k` tickets behind the old window that have been drawn |
//! | give up | a waiter | departs |
//!
//! Tickets have 32 bits here and wrap: two tickets are compared by their difference, so fewer than 2^31 tickets may lie
//! between the base and `next`. While a ticket holds up the base, other contenders can arrive and give up any number of
//! times. Therefore, from 2^30 tickets on, arrivals with a deadline draw no more tickets, and poll.
//!
//! **Bound.** While a contender V has not departed, the base is not above the ticket `v` of V, so every admitted ticket
//! is below `v + B`: at most `B - 1` admitted tickets are later than V. Neither the order of departures nor the inner
//! lock matters. Each contender may be overtaken by `B - 1` others; in a platoon only the first contender may.
//!
//! **No waiter is left behind.** The ticket `base` is always admitted. A base that moves to `b` admits exactly the
//! tickets below `b + B`; the ticket that moved the base by `k` wakes the `k` tickets that were not admitted before. So
//! a late departure delays the tickets `B` behind it, and no others. A thread that has moved the base and is stopped
//! before it has woken those `k` tickets delays them too: no other thread will wake these tickets.
//!
//! **The bits.** An admitted ticket is less than `B` from the base, so that ticket has a bit; so a limit is 31 at most.
//! A ticket that gives up may be farther away, and is recorded in `overflow`. OVERFLOW is in the same word as the base:
//! so either a departing thread sees OVERFLOW and reads the list, or the thread that recorded the ticket sees the base
//! that the departing thread moved. While OVERFLOW is set the window is changed under the lock only, so for that time a
//! departure may have to wait for another departure.
//!
//! **The gate** loads the window, then `next`: if both give the same ticket, no contender is between arrival and
//! departure. The reason for this order, and its limits, are described at [`is_idle`](SlidingWindow::is_idle).
//!
//! Orderings: a departure is Release and an admission Acquire, although the inner lock orders the data under that lock.
//! To wake only drawn tickets, a departing thread reads `next` after it has changed the window; a waiter has drawn a
//! ticket, and reads the window once more before it sleeps: each thread writes, then reads the word that the other
//! thread writes. So the two accesses of the departing thread are sequentially consistent, and the fence of the chain
//! is between the two accesses of the waiter. On x86 the departing thread pays nothing for sequential consistency, as
//! its write is a locked instruction.
//!
//! The window must outlive the departure, which reads `next` at its end.
//!
//! Source: this project's own. `locks/docs/capacitor.md` lists the properties that were checked.

use std::fmt;
use std::num::NonZeroU64;

use crossbeam_utils::CachePadded;
use sudog_runtime::const_unless_model;
use sudog_runtime::shim::system;
use sudog_runtime::shim::{AtomicU64, Mutex, Ordering::Acquire, Ordering::Relaxed, Ordering::SeqCst, mark};
use sudog_runtime::{Instant, fatal};

#[cfg(not(sudog_loom))]
use super::DEFAULT_LIMIT;
#[cfg(not(sudog_loom))]
use super::arrival::ConstArriveDepart;
use super::arrival::{ArriveDepart, checked};
use super::overflow::Overflow;
use super::window::{AtomicWindow, SPAN, Window};
use crate::waiting::parker::is_over;
use crate::waiting::policy::{SpinThenPark, WaitPolicy};
use crate::waiting_array::chain;
use sudog_sync::internal::poll_until;

/// The limit of the number of tickets from the base to `next`. Above this limit, arrivals with a deadline poll, and
/// draw no ticket.
const CROWDED: u32 = 1 << 30;
/// The number of tickets from the base to `next` above which a waiter ends the process. This number is far from 2^31,
/// at which tickets could not be compared any more. Arrivals without a deadline are at most as many as there are
/// threads and goroutines.
const MOST: u32 = CROWDED + (1 << 29);

/// A capacitor that never drains: the window moves when its first ticket departs, whereas a platoon waits for its last
/// departure.
///
/// The policy `P` determines the way in which contenders wait until they are admitted.
///
/// # Limits
///
/// The bypass limit is at most 31.
///
/// The number of arrivals since the first arrival that has not departed is limited, too. Arrivals that gave up are
/// counted. Above 2^30, an arrival with a deadline polls. Above 2^30 + 2^29, a waiter ends the process; but the last
/// 2^29 arrivals would have to be threads and goroutines that wait.
///
/// A waiter allocates if it gives up while 31 or more tickets are before its ticket. Each departure may allocate until
/// the base has passed that ticket. So a sliding window cannot guard a global allocator whose waiters have deadlines.
///
/// # Examples
///
/// ```
/// use sudog::locks::capacitor::{ArriveDepart, SlidingWindow};
///
/// let window = SlidingWindow::new(2);
/// let [first, second] = [window.arrive(), window.arrive()];
/// window.depart(second);
/// assert!(window.try_arrive().is_none(), "the first has not departed, and two have arrived since");
/// window.depart(first);
/// assert!(window.try_arrive().is_some());
/// ```
pub struct SlidingWindow<P = SpinThenPark> {
    next: CachePadded<AtomicU64>,
    window: CachePadded<AtomicWindow>,
    overflow: Mutex<Overflow>,
    limit: u32,
    policy: std::marker::PhantomData<fn() -> P>,
}

/// A ticket of a [`SlidingWindow`].
///
/// The value is never 0, so that an `Option` of a ticket is one word, with 0 for `None`: writing half a word and then
/// reading the whole word costs as much as a lock.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct WindowTicket(NonZeroU64);

impl WindowTicket {
    #[inline]
    fn new(number: u32) -> Self {
        Self(NonZeroU64::MIN | u64::from(number) << 32)
    }

    /// Returns the number of the ticket: tickets are numbered in the order in which they are drawn, modulo 2^32.
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

impl SlidingWindow {
    /// Creates a window with this bypass limit and the default policy. [`ArriveDepart::with_limit`] allows any policy.
    ///
    /// # Panics
    ///
    /// Panics if the limit is not from 1 to 31.
    #[cfg(not(sudog_loom))]
    #[must_use]
    #[track_caller]
    pub const fn new(limit: u32) -> Self {
        Self::beginning(0, limit)
    }
}

impl<P> SlidingWindow<P> {
    /// Creates a window in a `static`, where [`ArriveDepart::with_limit`] cannot be called. With [`SlidingWindow::new`]
    /// the policy need not be named.
    ///
    /// # Panics
    ///
    /// Panics if the limit is not from 1 to 31.
    #[cfg(not(sudog_loom))]
    #[must_use]
    #[track_caller]
    pub const fn const_with_limit(limit: u32) -> Self {
        Self::beginning(0, limit)
    }

    const_unless_model! {
        #[track_caller]
        const fn beginning(at: u32, limit: u32) -> Self {
            Self {
                next: CachePadded::new(AtomicU64::new(at as u64)),
                window: CachePadded::new(AtomicWindow::beginning(at)),
                overflow: Mutex::new(Overflow::NONE),
                limit: checked(limit, SPAN),
                policy: std::marker::PhantomData,
            }
        }
    }

    /// Creates a window in the state after `at` tickets have been drawn and have departed. For tests of the wrapping.
    #[doc(hidden)]
    #[must_use]
    pub fn with_limit_at(limit: u32, at: u32) -> Self {
        Self::beginning(at, limit)
    }

    /// Returns the number of contenders that have arrived and not departed at this moment, including waiters. The
    /// contenders that gave up are counted as long as an earlier contender has not departed. For tests and diagnostics.
    #[must_use]
    pub fn present(&self) -> u32 {
        let window = self.window.load(Acquire);
        window.distance(self.next.load(Relaxed) as u32)
    }

    /// Returns the number of tickets that have been drawn. For tests and diagnostics.
    #[must_use]
    pub fn drawn(&self) -> u64 {
        self.next.load(Relaxed)
    }

    /// Draws a ticket. Relaxed: a waiter executes a fence after the draw, and the gate acquires the draw through the
    /// departures.
    #[inline]
    fn draw(&self) -> u32 {
        self.next.fetch_add(1, Relaxed) as u32
    }

    /// Returns the number of tickets that must be admitted before this ticket; `None` if this ticket is admitted.
    #[inline]
    fn ahead(&self, window: Window, ticket: u32) -> Option<u32> {
        window.ahead_of(ticket, self.limit)
    }

    /// Wakes the tickets that become admitted when a window at `base` moves by `by`. Skips the tickets in `passed`,
    /// which are known to have departed: `passed` has the first ticket and the length of each range, in ascending
    /// order.
    #[inline]
    fn wake(&self, base: u32, by: u32, passed: &[(u32, u32)]) {
        let first = base.wrapping_add(self.limit);
        let drawn = (self.next.load(SeqCst) as u32).wrapping_sub(first) as i32;
        let end = drawn.clamp(0, by as i32) as u32;
        let mut at = 0;
        while at < end {
            let ticket = first.wrapping_add(at);
            at += match passed.iter().find(|&&(left, n)| ticket.wrapping_sub(left) < n) {
                Some(&(left, n)) => n - ticket.wrapping_sub(left),
                None => {
                    chain::signal_ticket(self.address(), ticket);
                    1
                }
            };
        }
    }

    /// Returns the number by which waiters are found in the chains: the address of this window.
    #[inline]
    fn address(&self) -> usize {
        (&raw const *self).addr()
    }

    /// Departs, or gives up, with this ticket.
    #[inline]
    fn leave(&self, ticket: u32) {
        let mut old = self.window.load(Relaxed);
        loop {
            if !old.departs_by_bit(ticket) {
                return self.leave_under_lock(ticket);
            }
            let (new, by) = old.depart(ticket, 1);
            match self.window.compare_exchange_weak(old, new, SeqCst, Relaxed) {
                Ok(_) if by == 0 => return,
                Ok(_) => return self.wake(old.base(), by, &[]),
                Err(now) => old = now,
            }
        }
    }

    /// Departs under the lock: for a ticket that has no bit, or while other tickets without bits are recorded.
    #[cold]
    fn leave_under_lock(&self, ticket: u32) {
        mark("a ticket departs without a bit");
        let mut overflow = self.overflow.lock();
        let mut passed = Vec::new();
        let (old, by) = loop {
            let old = self.window.load(Relaxed);
            let next = self.next.load(Relaxed);
            let at = old.distance(ticket);
            if at >= old.distance(next as u32) || old.has_departed(ticket) {
                fatal("sync: departure without an arrival");
            }
            let (mut new, mut by) = (old.with_overflow(false), 0);
            if at < SPAN {
                (new, by) = new.depart(ticket, 1);
            } else {
                // Compute the full ticket number: `ticket` has been drawn recently, so it is less than 2^32 behind
                // `next`.
                if !overflow.insert(next - u64::from((next as u32).wrapping_sub(ticket))) {
                    fatal("sync: departure without an arrival");
                }
            }
            // Remove the recorded tickets in ascending order: an earlier ticket may move the base so far that a later
            // ticket gets a bit.
            while let Some(first) = overflow.first().map(|first| first as u32) {
                let (further, step) = match new.distance(first) {
                    0 => {
                        // Take the whole range, however long: its tickets are recorded in `overflow`, so their bits are
                        // not set.
                        let n = overflow.take_first(u32::MAX);
                        passed.push((first, n));
                        new.depart_at_base(n)
                    }
                    at if at < SPAN => new.depart(first, overflow.take_first(SPAN - at)),
                    _ => break,
                };
                new = further;
                by += step;
            }
            new = new.with_overflow(!overflow.is_empty());
            match self.window.compare_exchange(old, new, SeqCst, Relaxed) {
                Ok(_) => break (old, by),
                // The exchange can fail only if OVERFLOW was not set in `old`. So the list was empty before this call,
                // and can be cleared.
                Err(_) => {
                    mark("another ticket departs while one is recorded");
                    debug_assert!(!old.has_overflow(), "with OVERFLOW set the window is changed under the lock only");
                    overflow.clear();
                }
            }
        };
        drop(overflow);
        self.wake(old.base(), by, &passed);
    }
}

impl<P: WaitPolicy> SlidingWindow<P> {
    /// Waits until the ticket is admitted (true), or until the deadline (false).
    #[cold]
    fn wait(&self, ticket: u32, deadline: Option<Instant>) -> bool {
        if self.present() > MOST {
            fatal("sync: too many tickets of a window since the first that has not departed");
        }
        let through = || self.ahead(self.window.load(Acquire), ticket).is_none();
        let mut iter = 0;
        // The next ticket to be admitted spins for a while, and so does every waiter that never sleeps.
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
            let guard = LeaveOnDrop { window: self, ticket };
            self.wait(ticket, None);
            std::mem::forget(guard);
        }
        WindowTicket::new(ticket)
    }

    #[inline]
    fn try_arrive(&self) -> Option<WindowTicket> {
        // Load the ticket first: the exchange then proves that no ticket has been drawn since, so no contender waits
        // before this contender.
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
        if system::now() >= deadline {
            return None;
        }
        if self.present() > CROWDED {
            return poll_until(deadline, || self.try_arrive());
        }
        let ticket = self.draw();
        if self.ahead(self.window.load(Acquire), ticket).is_none() {
            return Some(WindowTicket::new(ticket));
        }
        let guard = LeaveOnDrop { window: self, ticket };
        let through = self.wait(ticket, Some(deadline));
        if through {
            std::mem::forget(guard);
        }
        through.then(|| WindowTicket::new(ticket))
    }

    #[inline]
    fn depart(&self, ticket: WindowTicket) {
        self.leave(ticket.number());
        sudog_runtime::safepoint();
    }

    /// Loads the window first, then `next`. If both give the same ticket, then they did so at the moment of the second
    /// load, as the base never moves back and is never above the tickets. In the other order one contender could
    /// depart, and another contender arrive, between the two loads.
    ///
    /// The second load is Relaxed: it is not moved before the first load, which is Acquire. A ticket that was drawn
    /// before the call is not missed. We assume that fewer than 2^32 tickets are drawn between the two loads.
    #[inline]
    fn is_idle(&self) -> bool {
        let window = self.window.load(Acquire);
        self.next.load(Relaxed) as u32 == window.base()
    }
}

#[cfg(not(sudog_loom))]
impl<P: WaitPolicy> ConstArriveDepart for SlidingWindow<P> {
    const DEFAULT: Self = Self::beginning(0, DEFAULT_LIMIT);
}

/// The guard of a waiter, which is dropped when the waiter gives up: at a deadline, or because the user's policy
/// panics.
struct LeaveOnDrop<'a, P: WaitPolicy> {
    window: &'a SlidingWindow<P>,
    ticket: u32,
}

impl<P: WaitPolicy> Drop for LeaveOnDrop<'_, P> {
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
