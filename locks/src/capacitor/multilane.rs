//! Lanes: several queues, so that arrivals do not all contend for one. For study.
//!
//! | | assigned | departures are counted | bypass at most |
//! |---|---|---|---|
//! | [`Multilane`] | in turn | by all lanes together: the `L * B`-th gives `B` credits to each | `L * B - 1` |
//! | [`SeparateLanes`] | in turn, by thread, or at random | by each lane separately | see [`LaneChoice`] |
//!
//! The paper says of lanes that they "preserve the bounded bypass property". That depends on how departures are counted
//! and how lanes are assigned. With separate counts, each lane is a platoon: while V is late its lane is closed, but
//! the others go on, with all contenders that are assigned to them. With one count, a platoon is the next `L * B`
//! numbers, so each lane has `B` of them, and it does not matter that they wait in different queues.
//!
//! **The assigned number is the ticket**: `n` is for lane `n % L`, and is its ticket `n / L`. If only the lane were
//! assigned, and its ticket drawn in a second step, as any semaphore does, then threads that stop between the two steps
//! would put the lanes out of step, and the credits of one platoon would go to two: each two such threads admit one
//! contender more (`locks/docs/capacitor.md`).
//!
//! A credit belongs to an assigned number, so a contender with a number cannot give up. One with a deadline takes no
//! number before its turn has come, and polls.
//!
//! Orderings: as in `platoon.rs`; credits are Release, and an admitted contender acquires them. Sleepers are woken as
//! in the sliding window, but for all numbers, whether assigned or not: so no further check is needed.
//!
//! Source: the paper's remark on multilane semaphores; the shared count is this project's.

use std::fmt;

use crossbeam_utils::CachePadded;
use sudog_runtime::shim::AtomicU64;
use sudog_runtime::shim::Ordering::{Acquire, Relaxed, Release};
use sudog_runtime::{Instant, fatal};

use super::admission::draw;
use super::arrival::{ArriveDepart, checked};
use super::platoon::Platoon;
use crate::waiting::policy::{SpinThenPark, WaitPolicy};
use crate::waiting_array::Benaphore;
use crate::waiting_array::chain;
use sudog_sync::Semaphore;
use sudog_sync::internal::poll_until;
use sudog_sync::internal::thread_index;

/// The number of lanes if none is given.
pub const DEFAULT_LANES: u32 = 2;

/// A platoon of `L * B`, assigned in turn to `L` lanes.
///
/// # Limits
///
/// `L * B` is at most 2^20. It cannot be in a `static`, as its lanes are on the heap.
///
/// # Examples
///
/// ```
/// use sudog::locks::capacitor::{ArriveDepart, Multilane};
///
/// let lanes = Multilane::with_lanes(2, 1);
/// let [a, b] = [lanes.arrive(), lanes.arrive()];
/// lanes.depart(a);
/// assert!(lanes.try_arrive().is_none());
/// lanes.depart(b);
/// assert!(lanes.try_arrive().is_some());
/// ```
pub struct Multilane {
    /// For each lane, the number of its tickets that are admitted.
    lanes: Box<[CachePadded<AtomicU64>]>,
    dealt: CachePadded<AtomicU64>,
    departed: CachePadded<AtomicU64>,
    limit: u32,
}

impl Multilane {
    /// With `lanes` lanes, and this bypass limit for each.
    ///
    /// # Panics
    ///
    /// If `lanes` is 0, or too large for the limit.
    #[must_use]
    #[track_caller]
    pub fn with_lanes(lanes: u32, limit: u32) -> Self {
        assert!(lanes >= 1, "there must be at least one lane");
        checked(limit.saturating_mul(lanes), 1 << 20);
        Self {
            lanes: (0..lanes).map(|_| CachePadded::new(AtomicU64::new(u64::from(limit)))).collect(),
            dealt: CachePadded::new(AtomicU64::new(0)),
            departed: CachePadded::new(AtomicU64::new(0)),
            limit,
        }
    }

    /// How many numbers have been assigned. For tests and diagnostics.
    #[must_use]
    pub fn dealt(&self) -> u64 {
        self.dealt.load(Relaxed)
    }

    /// The lane of a number, and its ticket there.
    #[inline]
    fn lane(&self, number: u64) -> (&AtomicU64, u64) {
        let lanes = self.lanes.len() as u64;
        (&self.lanes[(number % lanes) as usize], number / lanes)
    }

    fn credits(&self) -> u64 {
        self.lanes.len() as u64 * u64::from(self.limit)
    }

    #[cold]
    fn wait(lane: &AtomicU64, ticket: u64) {
        let through = || lane.load(Acquire) > ticket;
        let mut iter = 0;
        while !through() {
            if !SpinThenPark::pass_time(iter) {
                chain::wait_ticket((&raw const *lane).addr(), ticket as u32, through, None);
                return;
            }
            iter += 1;
        }
    }

    /// The last departure of the platoon: admits the next one.
    #[cold]
    fn complete(&self) {
        self.departed.store(0, Relaxed);
        for lane in &self.lanes {
            let first = lane.fetch_add(u64::from(self.limit), Release);
            for ticket in first..first + u64::from(self.limit) {
                chain::signal_ticket((&raw const **lane).addr(), ticket as u32);
            }
        }
    }
}

impl ArriveDepart for Multilane {
    /// The assigned number, in the order of arrivals.
    type Ticket = u64;

    const DEADLINES: bool = false;
    const GATE: bool = false;

    fn with_limit(limit: u32) -> Self {
        Self::with_lanes(DEFAULT_LANES, limit)
    }

    fn limit(&self) -> u32 {
        self.limit
    }

    fn bound(&self) -> Option<u64> {
        Some(self.credits() - 1)
    }

    fn arrive(&self) -> u64 {
        let number = self.dealt.fetch_add(1, Relaxed);
        let (lane, ticket) = self.lane(number);
        if lane.load(Acquire) <= ticket {
            Self::wait(lane, ticket);
        }
        number
    }

    fn try_arrive(&self) -> Option<u64> {
        let mut dealt = self.dealt.load(Relaxed);
        loop {
            let (lane, ticket) = self.lane(dealt);
            (lane.load(Acquire) > ticket).then_some(())?;
            match self.dealt.compare_exchange_weak(dealt, dealt + 1, Relaxed, Relaxed) {
                Ok(_) => return Some(dealt),
                Err(now) => dealt = now,
            }
        }
    }

    fn arrive_until(&self, deadline: Instant) -> Option<u64> {
        poll_until(deadline, || self.try_arrive())
    }

    fn depart(&self, _: u64) {
        // Relaxed: as in platoon.rs, the last departure's credits release the reset, and the next platoon's departures
        // acquire it.
        let departed = self.departed.fetch_add(1, Relaxed) + 1;
        if departed >= self.credits() {
            if departed > self.credits() {
                fatal("sync: departure without an arrival");
            }
            self.complete();
        }
        sudog_runtime::safepoint();
    }
}

/// How lanes are assigned. The bound of [`SeparateLanes`] depends on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LaneChoice {
    /// One after the other. The bypass depends on the number of threads, T: threads that are assigned to the lane of a
    /// late one wait behind it, and soon all are there; in models it was `L * B - 1 + (L - 1) * (T - 2)` and `T - 1`
    /// more. But a caller that only tries gets another lane the next time, so with `try_lock` it is not bounded.
    InTurn,
    /// Always the same for each thread. Not bounded: the threads of another lane pass again and again.
    ByThread,
    /// Any: the paper's "at random". Not bounded.
    AtRandom,
}

/// Lanes that are separate platoons.
///
/// # Examples
///
/// A late departure in one lane does not hold up the other:
///
/// ```
/// use sudog::locks::capacitor::{ArriveDepart, LaneChoice, SeparateLanes};
/// use sudog::locks::waiting_array::Benaphore;
///
/// let lanes: SeparateLanes<Benaphore> = SeparateLanes::with_lanes(2, 1, LaneChoice::InTurn);
/// let _late = lanes.arrive();
/// let other = lanes.arrive();
/// lanes.depart(other);
/// assert!(lanes.try_arrive().is_none(), "assigned to the lane of the late departure");
/// assert!(lanes.try_arrive().is_some(), "assigned to the other lane");
/// ```
pub struct SeparateLanes<S = Benaphore> {
    lanes: Box<[Platoon<S>]>,
    lane_choice: LaneChoice,
    dealt: CachePadded<AtomicU64>,
}

impl<S: Semaphore> SeparateLanes<S> {
    /// With `lanes` lanes, and this bypass limit for each.
    ///
    /// # Panics
    ///
    /// If `lanes` is 0, or a platoon cannot have this limit.
    #[must_use]
    #[track_caller]
    pub fn with_lanes(lanes: u32, limit: u32, lane_choice: LaneChoice) -> Self {
        assert!(lanes >= 1, "there must be at least one lane");
        // Outside of the closure, to which `#[track_caller]` does not reach.
        let first = Platoon::with_limit(limit);
        let lanes = std::iter::once(first).chain((1..lanes).map(|_| Platoon::with_limit(limit))).collect();
        Self { lanes, lane_choice, dealt: CachePadded::new(AtomicU64::new(0)) }
    }

    fn choose_lane(&self) -> u32 {
        let number = match self.lane_choice {
            LaneChoice::InTurn => self.dealt.fetch_add(1, Relaxed),
            LaneChoice::ByThread => thread_index() as u64,
            LaneChoice::AtRandom => u64::from(draw()),
        };
        (number % self.lanes.len() as u64) as u32
    }
}

impl<S: Semaphore> ArriveDepart for SeparateLanes<S> {
    /// The number of the lane.
    type Ticket = u32;

    const DEADLINES: bool = S::DEADLINES;
    const GATE: bool = false;

    fn with_limit(limit: u32) -> Self {
        Self::with_lanes(DEFAULT_LANES, limit, LaneChoice::AtRandom)
    }

    fn limit(&self) -> u32 {
        self.lanes[0].limit()
    }

    fn bound(&self) -> Option<u64> {
        if self.lanes.len() == 1 { self.lanes[0].bound() } else { None }
    }

    fn arrive(&self) -> u32 {
        let lane = self.choose_lane();
        self.lanes[lane as usize].arrive();
        lane
    }

    fn try_arrive(&self) -> Option<u32> {
        let lane = self.choose_lane();
        self.lanes[lane as usize].try_arrive().map(|()| lane)
    }

    fn arrive_until(&self, deadline: Instant) -> Option<u32> {
        let lane = self.choose_lane();
        self.lanes[lane as usize].arrive_until(deadline).map(|()| lane)
    }

    fn depart(&self, lane: u32) {
        self.lanes[lane as usize].depart(());
    }
}

impl fmt::Debug for Multilane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Multilane")
            .field("lanes", &self.lanes.len())
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

impl<S> fmt::Debug for SeparateLanes<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SeparateLanes")
            .field("lanes", &self.lanes.len())
            .field("lane_choice", &self.lane_choice)
            .finish_non_exhaustive()
    }
}
