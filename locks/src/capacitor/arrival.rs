//! The interface of capacitors: arrivals that wait, and departures that admit others.

use std::fmt;

use sudog_runtime::Instant;

/// A capacitor without its lock: limits the number of contenders that are between arrival and departure, and admits
/// contenders in order.
///
/// A capacitor excludes no thread by itself and protects no data. A departure without an arrival is an error. If the
/// capacitor detects the error, the process ends; otherwise the bound does not hold any more.
///
/// # Examples
///
/// A capacitor in front of another contended operation, here a compare-exchange loop:
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
/// use sudog::locks::capacitor::{ArriveDepart, SlidingWindow};
///
/// static LARGEST: AtomicU64 = AtomicU64::new(0);
///
/// let window = SlidingWindow::new(2);
/// std::thread::scope(|s| {
///     for n in 0..4 {
///         let window = &window;
///         s.spawn(move || {
///             let _arrival = window.pass(); // departs when it is dropped
///             LARGEST.fetch_max(n, Relaxed);
///         });
///     }
/// });
/// assert_eq!(LARGEST.load(Relaxed), 3);
/// ```
pub trait ArriveDepart: Send + Sync + Sized {
    /// The value that an arrival passes to its departure.
    type Ticket: Copy + Send + fmt::Debug;

    /// True if arrivals with a deadline wait in the same queue as other arrivals. If false, arrivals with a deadline
    /// poll.
    const DEADLINES: bool;

    /// True if [`ArriveDepart::is_idle`] can tell that no contender is between arrival and departure.
    const GATE: bool;

    /// Creates a capacitor with the bypass limit `B` = `limit`.
    ///
    /// # Panics
    ///
    /// Panics if this capacitor cannot have that limit. All capacitors can have 1 to 31.
    #[track_caller]
    fn with_limit(limit: u32) -> Self;

    /// Returns the bypass limit, `B`.
    fn limit(&self) -> u32;

    /// Returns the largest number of later arrivals that can be admitted before an earlier arrival has had the lock;
    /// `None` if the limit does not bound that number.
    fn bound(&self) -> Option<u64>;

    /// Waits to be admitted.
    fn arrive(&self) -> Self::Ticket;

    /// Arrives if the contender can be admitted without waiting, and there is no waiter.
    fn try_arrive(&self) -> Option<Self::Ticket>;

    /// Waits to be admitted, until `deadline`. A deadline in the past makes this call the same as
    /// [`ArriveDepart::try_arrive`].
    fn arrive_until(&self, deadline: Instant) -> Option<Self::Ticket>;

    /// Ends an arrival, and admits the next contenders. Any thread may call `depart`, exactly once per arrival.
    ///
    /// A goroutine that has run for long yields in this call, after the next contenders have been admitted.
    fn depart(&self, ticket: Self::Ticket);

    /// Announces an arrival, calls [`ArriveDepart::arrive`], and returns a guard that departs when it is dropped, even
    /// by a panic.
    fn pass(&self) -> Arrival<'_, Self> {
        let mut arrival = Arrival::announced(self);
        arrival.ticket = Some(self.arrive());
        arrival
    }

    /// Announces an arrival, calls [`ArriveDepart::arrive_until`], and returns a guard as [`ArriveDepart::pass`] does.
    fn pass_until(&self, deadline: Instant) -> Option<Arrival<'_, Self>> {
        let mut arrival = Arrival::announced(self);
        arrival.ticket = Some(self.arrive_until(deadline)?);
        Some(arrival)
    }

    /// Announces an arrival to the gate, by which [`Gated`](super::Gated) lets uncontended acquisitions pass the
    /// capacitor. If an arrival is not announced, acquisitions that pass the gate may overtake that arrival. The
    /// announcement has no other effect.
    fn announce(&self) {}

    /// Ends an announcement. Called once for each announcement.
    fn retract(&self) {}

    /// Calls [`ArriveDepart::depart`] for an announced arrival, then [`ArriveDepart::retract`].
    #[inline]
    fn depart_and_retract(&self, ticket: Self::Ticket) {
        self.depart(ticket);
        self.retract();
    }

    /// Returns true if, at some moment during this call, no contender was between its announcement and the end of that
    /// announcement. The gate relies on this answer. An announcement that happened before the call, and has not ended,
    /// is not missed.
    fn is_idle(&self) -> bool {
        false
    }
}

/// A capacitor that a `static` can hold, with [`DEFAULT_LIMIT`](super::DEFAULT_LIMIT).
pub trait ConstArriveDepart: ArriveDepart {
    /// A new capacitor, with no arrivals.
    #[allow(clippy::declare_interior_mutable_const)] // copied into place
    const DEFAULT: Self;
}

/// The guard of an announced arrival: departs when it is dropped, and ends the announcement.
#[must_use = "it departs when it is dropped"]
pub struct Arrival<'a, C: ArriveDepart> {
    capacitor: &'a C,
    announced: bool,
    /// The ticket of the arrival; `None` until the contender has arrived. Changed by the guard's owner only.
    ticket: Option<C::Ticket>,
}

impl<'a, C: ArriveDepart> Arrival<'a, C> {
    /// Announces an arrival that is about to happen, and returns its guard.
    #[inline]
    pub(super) fn announced(capacitor: &'a C) -> Self {
        capacitor.announce();
        Self { capacitor, announced: true, ticket: None }
    }

    /// Returns the guard of an arrival that is about to happen, without an announcement. Used with admissions that
    /// never take the gate.
    #[inline]
    pub(super) fn unannounced(capacitor: &'a C) -> Self {
        Self { capacitor, announced: false, ticket: None }
    }

    /// Returns the guard of an arrival that has happened.
    #[inline]
    pub(super) fn of(capacitor: &'a C, announced: bool, ticket: C::Ticket) -> Self {
        Self { capacitor, announced, ticket: Some(ticket) }
    }

    #[inline]
    pub(super) fn set_ticket(&mut self, ticket: Option<C::Ticket>) {
        self.ticket = ticket;
    }

    /// Returns the ticket without departing. Another thread may depart later: by the drop of an [`Arrival::of`] this
    /// ticket.
    #[inline]
    pub(super) fn forget(self) -> Option<C::Ticket> {
        let ticket = self.ticket;
        std::mem::forget(self);
        ticket
    }
}

impl<C: ArriveDepart> Drop for Arrival<'_, C> {
    #[inline]
    fn drop(&mut self) {
        match (self.ticket, self.announced) {
            (Some(ticket), true) => self.capacitor.depart_and_retract(ticket),
            (Some(ticket), false) => self.capacitor.depart(ticket),
            (None, true) => self.capacitor.retract(),
            (None, false) => {}
        }
    }
}

impl<C: ArriveDepart> fmt::Debug for Arrival<'_, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arrival").field("ticket", &self.ticket).finish_non_exhaustive()
    }
}

/// Checks a bypass limit, and returns the limit. Used by all capacitors.
#[track_caller]
pub(super) const fn checked(limit: u32, most: u32) -> u32 {
    assert!(limit >= 1 && limit <= most, "the bypass limit is at least 1, and not more than this capacitor can have");
    limit
}
