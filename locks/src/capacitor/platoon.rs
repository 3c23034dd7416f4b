//! The platoon: `B` contenders are admitted, and the next `B` when all of these have departed. This is the paper's
//! capacitor.
//!
//! | word | meaning |
//! |---|---|
//! | `sema` | credits, `B` at first: an arrival takes a credit |
//! | `departed` | lower half: the number of departures from the current platoon; upper half: the number of ended announcements |
//! | `announced` | the number of announcements so far |
//!
//! | step | by | action |
//! |---|---|---|
//! | arrive | any contender | takes a credit, waiting in the queue |
//! | depart | an admitted contender | `departed += (0, 1)`, or `(1, 1)` if announced; the `B`-th of the platoon: `departed -= (0, B)`, then gives `B` credits |
//! | retract | an announced contender | `departed += (1, 0)` |
//! | gate | the owner of the inner lock | loads `departed`, then `announced`: if the two counts are equal, every announcement has ended |
//!
//! Bound: while a contender V has not departed, its platoon is not complete, so only the holders of the other `B - 1`
//! credits of that platoon can overtake V. This needs a semaphore that is first come, first served, also towards
//! newcomers. With a semaphore whose newcomers take credits before waiters, V could wait for ever at the semaphore.
//!
//! **One word for both counts.** The listings reset the count of departures by a store, which is correct because no
//! other departure can happen at that time. Here the reset is an RMW, as the upper half continues to count; so a
//! departure is one RMW with a gate or without.
//!
//! Orderings: the `B`-th departure subtracts `B` before it releases the credits, and the next departure has acquired
//! one of those credits: so the lower half never counts two platoons. For the gate, a departure is Release, and comes
//! after the announcement of its contender. So a thread that has acquired `departed` sees every announcement whose end
//! is counted in that value. The thread also sees the announcement of a contender V that was announced before and has
//! not departed, so the two counts differ.
//!
//! A late departure leaves the lock idle: once the credits of the platoon are used up, all contenders wait for the last
//! departure. [`SlidingWindow`](super::SlidingWindow) avoids that.
//!
//! Source: listing 1 (over `Ticket`) and listing 2 (over `Twa`).

use std::fmt;

use crossbeam_utils::CachePadded;
use sudog_runtime::shim::Ordering::{self, Acquire, Relaxed, Release};
use sudog_runtime::shim::{AtomicU32, AtomicU64, mark};
use sudog_runtime::{Instant, const_unless_model, fatal};

#[cfg(not(sudog_loom))]
use super::DEFAULT_LIMIT;
#[cfg(not(sudog_loom))]
use super::arrival::ConstArriveDepart;
use super::arrival::{ArriveDepart, checked};
use crate::waiting_array::Benaphore;
#[cfg(not(sudog_loom))]
use sudog_sync::ConstPermits;
use sudog_sync::{Order, Semaphore};

/// The largest bypass limit.
const MOST: u32 = 1 << 20;

const DEPARTURE: u64 = 1;
const ENDED: u64 = 1 << 32;

/// The value of `departed`.
#[derive(Clone, Copy)]
struct State(u64);

impl State {
    /// Returns the number of departures from the current platoon.
    #[inline]
    const fn of_platoon(self) -> u32 {
        self.0 as u32
    }

    /// Returns the number of announcements that have ended, modulo 2^32.
    #[inline]
    const fn ended(self) -> u32 {
        (self.0 / ENDED) as u32
    }
}

/// The word `departed`. The caller of a method gives the ordering. The methods that return a state return the state
/// before.
struct AtomicState(AtomicU64);

impl AtomicState {
    const_unless_model! {
        const fn new() -> Self {
            Self(AtomicU64::new(0))
        }
    }

    #[inline(always)]
    #[track_caller]
    fn load(&self, order: Ordering) -> State {
        State(self.0.load(order))
    }

    /// An admitted contender departs.
    #[inline(always)]
    #[track_caller]
    fn depart(&self, order: Ordering) -> State {
        State(self.0.fetch_add(DEPARTURE, order))
    }

    /// An admitted contender departs, and ends its announcement.
    #[inline(always)]
    #[track_caller]
    fn depart_and_retract(&self, order: Ordering) -> State {
        State(self.0.fetch_add(DEPARTURE + ENDED, order))
    }

    /// An announced contender ends its announcement.
    #[inline(always)]
    #[track_caller]
    fn retract(&self, order: Ordering) {
        self.0.fetch_add(ENDED, order);
    }

    /// The last departure of a platoon ends the platoon, which had `limit` contenders.
    #[track_caller]
    fn end_platoon(&self, limit: u32, order: Ordering) {
        self.0.fetch_sub(u64::from(limit) * DEPARTURE, order);
    }
}

/// The capacitor of the paper, over any semaphore that is first come, first served.
///
/// # Limits
///
/// The bypass limit is at most 2^20. At most 2^31 contenders may have arrived and not departed. If the semaphore blocks
/// the threads that wait, then while a goroutine waits to be admitted, no other goroutine of its worker may wait for
/// the inner lock, or yield while it owns the inner lock: none of these goroutines would run again.
///
/// # Examples
///
/// ```
/// use sudog::locks::capacitor::{ArriveDepart, Platoon};
/// use sudog::locks::waiting_array::Twa;
///
/// let platoon: Platoon<Twa> = Platoon::with_limit(2);
/// let first = platoon.arrive();
/// let second = platoon.arrive();
/// platoon.depart(first);
/// assert!(platoon.try_arrive().is_none(), "the second is still out");
/// platoon.depart(second);
/// assert!(platoon.try_arrive().is_some());
/// ```
pub struct Platoon<S = Benaphore> {
    sema: CachePadded<S>,
    tally: CachePadded<Tally>,
}

/// The counts that departures and announcements write.
struct Tally {
    departed: AtomicState,
    announced: AtomicU32,
    limit: u32,
}

impl<S: Semaphore> Platoon<S> {
    const FIRST_COME_FIRST_SERVED: () =
        assert!(S::FIFO && S::HANDOFF, "a platoon's semaphore serves first come, first served, newcomers included");

    /// Creates a capacitor in a `static`, where [`ArriveDepart::with_limit`] cannot be called. The limit `N` is a const
    /// parameter, because the semaphore comes from a constant of the trait `ConstPermits<N>`, and such a constant
    /// cannot depend on a value.
    ///
    /// ```
    /// use sudog::locks::capacitor::{ArriveDepart, Platoon};
    /// use sudog::locks::waiting_array::Benaphore;
    ///
    /// static DOOR: Platoon<Benaphore> = Platoon::const_with_limit::<8>();
    /// assert_eq!(DOOR.bound(), Some(7));
    /// ```
    #[cfg(not(sudog_loom))]
    #[must_use]
    pub const fn const_with_limit<const N: u32>() -> Self
    where
        S: ConstPermits<N>,
    {
        let () = Self::FIRST_COME_FIRST_SERVED;
        let limit = checked(N, MOST);
        let tally = Tally { departed: AtomicState::new(), announced: AtomicU32::new(0), limit };
        Self { sema: CachePadded::new(S::WITH_PERMITS), tally: CachePadded::new(tally) }
    }

    /// Returns the semaphore, for inspection. Permits that are taken from the semaphore or given to it directly break
    /// the bound; and if the semaphore is closed, arrivals panic.
    pub fn semaphore(&self) -> &S {
        let () = Self::FIRST_COME_FIRST_SERVED;
        &self.sema
    }

    /// Counts a departure, whose step found `before`.
    #[inline]
    fn count_off(&self, before: State) {
        let before = before.of_platoon();
        if before + 1 >= self.tally.limit {
            self.complete(before);
        }
        sudog_runtime::safepoint();
    }

    /// Admits the next platoon. Called by the last departure of the current platoon.
    #[cold]
    fn complete(&self, before: u32) {
        let limit = self.tally.limit;
        if before >= limit {
            fatal("sync: departure without an arrival");
        }
        mark("a platoon is complete");
        // Relaxed: the grant below releases this subtraction.
        self.tally.departed.end_platoon(limit, Relaxed);
        self.sema.grant_many(limit);
    }
}

impl<S: Semaphore> ArriveDepart for Platoon<S> {
    type Ticket = ();

    const DEADLINES: bool = S::DEADLINES;
    const GATE: bool = true;

    fn with_limit(limit: u32) -> Self {
        let () = Self::FIRST_COME_FIRST_SERVED;
        let limit = checked(limit, MOST);
        let tally = Tally { departed: AtomicState::new(), announced: AtomicU32::new(0), limit };
        Self { sema: CachePadded::new(S::new(limit)), tally: CachePadded::new(tally) }
    }

    fn limit(&self) -> u32 {
        self.tally.limit
    }

    fn bound(&self) -> Option<u64> {
        Some(u64::from(self.tally.limit) - 1)
    }

    #[inline]
    fn arrive(&self) {
        self.sema.acquire(Order::Fifo);
    }

    #[inline]
    fn try_arrive(&self) -> Option<()> {
        self.sema.try_acquire().then_some(())
    }

    #[inline]
    fn arrive_until(&self, deadline: Instant) -> Option<()> {
        self.sema.acquire_until(Order::Fifo, deadline).then_some(())
    }

    #[inline]
    fn depart(&self, (): ()) {
        // Release: for the gate. The lower half does not overflow: there are no more departures than credits.
        self.count_off(self.tally.departed.depart(Release));
    }

    #[inline]
    fn depart_and_retract(&self, (): ()) {
        self.count_off(self.tally.departed.depart_and_retract(Release));
    }

    #[inline]
    fn announce(&self) {
        // Relaxed: the announcement comes before its own end, which the gate acquires.
        self.tally.announced.fetch_add(1, Relaxed);
    }

    #[inline]
    fn retract(&self) {
        self.tally.departed.retract(Release);
    }

    #[inline]
    fn is_idle(&self) -> bool {
        // Load `departed` first: in the other order a contender could be announced, and another contender depart,
        // between the two loads. We assume that fewer than 2^32 contenders are announced between the two loads.
        let ended = self.tally.departed.load(Acquire).ended();
        self.tally.announced.load(Relaxed) == ended
    }
}

#[cfg(not(sudog_loom))]
impl<S: ConstPermits<DEFAULT_LIMIT>> ConstArriveDepart for Platoon<S> {
    const DEFAULT: Self = Self::const_with_limit::<DEFAULT_LIMIT>();
}

impl<S: fmt::Debug> fmt::Debug for Platoon<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Platoon")
            .field("limit", &self.tally.limit)
            .field("departed_of_platoon", &self.tally.departed.load(Relaxed).of_platoon())
            .field("semaphore", &*self.sema)
            .finish()
    }
}
