//! Lanes: several queues, so that arrivals do not all contend for the same queue. For study.
//!
//! | capacitor | assignment of lanes | count of departures | bypass at most |
//! |---|---|---|---|
//! | [`Multilane`] | in turn | one count for all lanes: the `L * B`-th departure gives `B` credits to each lane | `L * B - 1` |
//! | [`SeparateLanes`] | in turn, by thread, or at random | one count per lane | see [`LaneChoice`] |
//!
//! The paper says of lanes that they "preserve the bounded bypass property". That depends on the count of departures
//! and on the assignment of lanes. With separate counts, each lane is a platoon: while a contender V is late to depart,
//! V's lane is closed, but the other lanes go on, with all contenders that are assigned to those lanes. With one count,
//! arrivals are numbered, and a platoon is the next `L * B` numbers. So each lane has `B` of these numbers, and the
//! contenders of a platoon may wait in different queues.
//!
//! **The assigned number is the ticket**: number `n` is for lane `n % L`, and stands for ticket `n / L` of that lane.
//! Suppose that only the lane were assigned, and the ticket drawn in a second step, as any semaphore does. Then threads
//! that stop between the two steps would put the lanes out of step, and the credits of one platoon would go to two
//! platoons: each two such threads admit one contender more (`locks/docs/capacitor.md`).
//!
//! A credit belongs to an assigned number, so a contender with a number cannot give up. A contender with a deadline
//! takes no number before its turn has come, and polls.
//!
//! Orderings: as in `platoon.rs`; the additions of credits are Release, and an admitted contender acquires them.
//! Sleepers are woken as in the sliding window, but a wake-up is sent for every admitted number, whether assigned or
//! not. So the departing thread need not check which numbers have been assigned.
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

/// The default number of lanes.
pub const DEFAULT_LANES: u32 = 2;

/// A platoon of `L * B` contenders, assigned in turn to `L` lanes.
///
/// # Limits
///
/// `L * B` is at most 2^20. A `Multilane` cannot be in a `static`, as its lanes are on the heap.
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
    /// The number of admitted tickets of each lane. Increased only by the last departure of a platoon.
    lanes: Box<[CachePadded<AtomicU64>]>,
    dealt: CachePadded<AtomicU64>,
    departed: CachePadded<AtomicU64>,
    limit: u32,
}

impl Multilane {
    /// Creates a capacitor with `lanes` lanes and the bypass limit `limit` for each lane.
    ///
    /// # Panics
    ///
    /// Panics if `lanes` is 0, or too large for the limit.
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

    /// Returns the count of the numbers that have been assigned. For tests and diagnostics.
    #[must_use]
    pub fn dealt(&self) -> u64 {
        self.dealt.load(Relaxed)
    }

    /// Returns the lane of a number, and the ticket of that lane for which the number stands.
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

    /// Admits the next platoon. Called by the last departure of the current platoon.
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
        // Relaxed: as in `platoon.rs`, the addition of credits by the last departure releases the reset, and the
        // departures of the next platoon acquire those credits.
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

/// The assignment of lanes to arrivals. The bound of [`SeparateLanes`] depends on this choice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LaneChoice {
    /// Each arrival gets the next lane. The bypass depends on the number of threads, T. The threads that are assigned
    /// to the lane of a late contender wait behind that contender, and soon all threads wait there. In models the
    /// bypass was `L * B - 1 + (L - 1) * (T - 2) + T - 1`. But a caller that only tries gets another lane the next time,
    /// so with `try_lock` the bypass is not bounded.
    InTurn,
    /// Each thread always gets the same lane. The bypass is not bounded: the threads of another lane pass again and
    /// again.
    ByThread,
    /// Each arrival gets a random lane: the paper's "at random". The bypass is not bounded.
    AtRandom,
}

/// A capacitor with lanes that are separate platoons.
///
/// # Examples
///
/// A late departure in one lane does not hold up the other lane:
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
    /// Creates a capacitor with `lanes` lanes and the bypass limit `limit` for each lane.
    ///
    /// # Panics
    ///
    /// Panics if `lanes` is 0, or a platoon cannot have this limit.
    #[must_use]
    #[track_caller]
    pub fn with_lanes(lanes: u32, limit: u32, lane_choice: LaneChoice) -> Self {
        assert!(lanes >= 1, "there must be at least one lane");
        // Create the first lane outside of the closure, to which `#[track_caller]` does not reach.
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
