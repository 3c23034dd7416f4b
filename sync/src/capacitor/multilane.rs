//! Lanes: several semaphores, so that those who arrive do not all meet at one. For study.
//!
//! | | dealt | departures are counted | bypass at most |
//! |---|---|---|---|
//! | [`Multilane`] | in turn | by all lanes together: the `L * B`-th gives `B` credits to each | `L * B - 1` |
//! | [`SeparateLanes`] | in turn, by thread, or at random | by each lane for itself | see [`Dealing`] |
//!
//! The paper says of lanes that they "preserve the bounded bypass property". It depends on what is counted where. With a
//! count of its own, each lane is a platoon: while V is late, its lane is closed, but the others go on and on, with all
//! who are dealt to them. With one count, a platoon is the next `L * B` that are dealt, so each lane has `B` of them:
//! that they pass by different semaphores makes no difference to who is in it.
//!
//! Dealing in turn hands the `L * B` credits of a platoon to the `L * B` that come next, which must not be disturbed: one
//! that is dealt a lane takes a credit of it. So who may give up is dealt nothing before its credit is there, and polls.
//!
//! Source: the paper's remark on multilane semaphores; the shared count is ours.

use std::fmt;

use crossbeam_utils::CachePadded;
use sudog_runtime::Instant;

use sudog_runtime::shim::AtomicU64;
use sudog_runtime::shim::Ordering::Relaxed;

use super::admission::draw;
use super::arrival::{ArriveDepart, checked};
use super::platoon::Platoon;
use crate::raw::poll_until;
use crate::semaphore::Benaphore;
use crate::thread_index::thread_index;
use crate::waiting::without_switching;
use crate::{Order, Semaphore};

/// The lanes of what is made without a number of them.
pub const DEFAULT_LANES: u32 = 2;

/// A platoon of `L * B`, dealt in turn to `L` lanes.
///
/// A goroutine that waits here blocks its worker: it could not be unwound, as its credit would lie idle.
///
/// # Limits
///
/// `L * B` is at most 2^20.
///
/// # Examples
///
/// ```
/// use sudog_sync::capacitor::{ArriveDepart, Multilane};
/// use sudog_sync::semaphore::Benaphore;
///
/// let lanes: Multilane<Benaphore> = Multilane::with_lanes(2, 1);
/// let [a, b] = [lanes.arrive(), lanes.arrive()];
/// lanes.depart(a);
/// assert!(lanes.try_arrive().is_none());
/// lanes.depart(b);
/// assert!(lanes.try_arrive().is_some());
/// ```
pub struct Multilane<S = Benaphore> {
    lanes: Box<[CachePadded<S>]>,
    dealt: CachePadded<AtomicU64>,
    departed: CachePadded<AtomicU64>,
    limit: u32,
}

impl<S: Semaphore> Multilane<S> {
    const FIRST_COME_FIRST_SERVED: () =
        assert!(S::FIFO && S::HANDOFF, "a platoon's semaphore serves first come, first served, newcomers included");

    /// With so many lanes, and this bypass limit for each.
    ///
    /// # Panics
    ///
    /// If there are none, or too many for the limit.
    #[must_use]
    pub fn with_lanes(lanes: u32, limit: u32) -> Self {
        let () = Self::FIRST_COME_FIRST_SERVED;
        assert!(lanes >= 1, "there is a lane at least");
        checked(limit.saturating_mul(lanes), 1 << 20);
        Self {
            lanes: (0..lanes).map(|_| CachePadded::new(S::new(limit))).collect(),
            dealt: CachePadded::new(AtomicU64::new(0)),
            departed: CachePadded::new(AtomicU64::new(0)),
            limit,
        }
    }

    #[inline]
    fn lane(&self, number: u64) -> &S {
        &self.lanes[(number % self.lanes.len() as u64) as usize]
    }

    fn credits(&self) -> u64 {
        self.lanes.len() as u64 * u64::from(self.limit)
    }
}

impl<S: Semaphore> ArriveDepart for Multilane<S> {
    type Ticket = ();

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

    fn arrive(&self) {
        let lane = self.lane(self.dealt.fetch_add(1, Relaxed));
        if !lane.try_acquire() {
            without_switching(|| lane.acquire(Order::Fifo));
        }
    }

    fn try_arrive(&self) -> Option<()> {
        let mut dealt = self.dealt.load(Relaxed);
        loop {
            let lane = self.lane(dealt);
            lane.try_acquire().then_some(())?;
            match self.dealt.compare_exchange(dealt, dealt + 1, Relaxed, Relaxed) {
                Ok(_) => return Some(()),
                Err(now) => {
                    lane.grant_many(1);
                    dealt = now;
                }
            }
        }
    }

    fn arrive_until(&self, deadline: Instant) -> Option<()> {
        poll_until(deadline, || self.try_arrive())
    }

    fn depart(&self, (): ()) {
        // Relaxed: as in platoon.rs, the last one's grant releases the reset, and those of the next platoon acquire it.
        if self.departed.fetch_add(1, Relaxed) + 1 == self.credits() {
            self.departed.store(0, Relaxed);
            for lane in &self.lanes {
                lane.grant_many(self.limit);
            }
        }
    }
}

/// How lanes are dealt. What a lane that is a platoon for itself bounds depends on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dealing {
    /// One after the other.
    InTurn,
    /// To each thread always the same.
    ByThread,
    /// Any: the paper's "at random".
    AtRandom,
}

/// Lanes that are platoons, each for itself.
///
/// # Examples
///
/// One that is late in its lane does not hold up the other:
///
/// ```
/// use sudog_sync::capacitor::{ArriveDepart, Dealing, SeparateLanes};
/// use sudog_sync::semaphore::Benaphore;
///
/// let lanes: SeparateLanes<Benaphore> = SeparateLanes::with_lanes(2, 1, Dealing::InTurn);
/// let _late = lanes.arrive();
/// let other = lanes.arrive();
/// lanes.depart(other);
/// assert!(lanes.try_arrive().is_none(), "dealt to the lane of the one that is late");
/// assert!(lanes.try_arrive().is_some(), "dealt to the other");
/// ```
pub struct SeparateLanes<S = Benaphore> {
    lanes: Box<[Platoon<S>]>,
    dealing: Dealing,
    dealt: CachePadded<AtomicU64>,
}

impl<S: Semaphore> SeparateLanes<S> {
    /// With so many lanes, and this bypass limit for each.
    ///
    /// # Panics
    ///
    /// If there are none, or the limit is one that a platoon cannot have.
    #[must_use]
    pub fn with_lanes(lanes: u32, limit: u32, dealing: Dealing) -> Self {
        assert!(lanes >= 1, "there is a lane at least");
        let lanes = (0..lanes).map(|_| Platoon::with_limit(limit)).collect();
        Self { lanes, dealing, dealt: CachePadded::new(AtomicU64::new(0)) }
    }

    fn deal(&self) -> u32 {
        let number = match self.dealing {
            Dealing::InTurn => self.dealt.fetch_add(1, Relaxed),
            Dealing::ByThread => thread_index() as u64,
            Dealing::AtRandom => u64::from(draw()),
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
        Self::with_lanes(DEFAULT_LANES, limit, Dealing::AtRandom)
    }

    fn limit(&self) -> u32 {
        self.lanes[0].limit()
    }

    fn bound(&self) -> Option<u64> {
        if self.lanes.len() == 1 { self.lanes[0].bound() } else { None }
    }

    fn arrive(&self) -> u32 {
        let lane = self.deal();
        self.lanes[lane as usize].arrive();
        lane
    }

    fn try_arrive(&self) -> Option<u32> {
        let lane = self.deal();
        self.lanes[lane as usize].try_arrive().map(|()| lane)
    }

    fn arrive_until(&self, deadline: Instant) -> Option<u32> {
        let lane = self.deal();
        self.lanes[lane as usize].arrive_until(deadline).map(|()| lane)
    }

    fn depart(&self, lane: u32) {
        self.lanes[lane as usize].depart(());
    }
}

impl<S> fmt::Debug for Multilane<S> {
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
            .field("dealing", &self.dealing)
            .finish_non_exhaustive()
    }
}
