//! The interface of capacitors: arrivals that wait, and departures that admit others.

use std::fmt;

use sudog_runtime::Instant;

/// A capacitor without its lock: limits how many contenders are between arrival and departure, and admits them in
/// order.
///
/// It excludes no thread by itself and protects no data. A departure without an arrival is an error: it ends the
/// process if it is detected; otherwise it breaks the bound.
///
/// # Examples
///
/// In front of any contended operation, here a compare-exchange loop:
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

    /// True if arrivals with a deadline wait in the same queue as the others. If false, they poll.
    const DEADLINES: bool;

    /// True if it can tell that no contender is between arrival and departure.
    const GATE: bool;

    /// With this bypass limit, `B`.
    ///
    /// # Panics
    ///
    /// If it cannot have that limit. All capacitors can have 1 to 31.
    #[track_caller]
    fn with_limit(limit: u32) -> Self;

    /// The bypass limit, `B`.
    fn limit(&self) -> u32;

    /// How many later arrivals can be admitted before an earlier one has had the lock; `None` if the limit does not
    /// bound that.
    fn bound(&self) -> Option<u64>;

    /// Waits to be admitted.
    fn arrive(&self) -> Self::Ticket;

    /// Arrives if that is possible without waiting, and there is no waiter.
    fn try_arrive(&self) -> Option<Self::Ticket>;

    /// Waits to be admitted, until `deadline`. With a deadline in the past it is [`ArriveDepart::try_arrive`].
    fn arrive_until(&self, deadline: Instant) -> Option<Self::Ticket>;

    /// Ends an arrival, and admits the next contenders. Any thread may call it, once per arrival.
    ///
    /// A goroutine that has run for long yields here, after the others have been admitted.
    fn depart(&self, ticket: Self::Ticket);

    /// [`ArriveDepart::arrive`], announced, with a guard that departs when it is dropped, even by a panic.
    fn pass(&self) -> Arrival<'_, Self> {
        let mut arrival = Arrival::announced(self);
        arrival.ticket = Some(self.arrive());
        arrival
    }

    /// [`ArriveDepart::arrive_until`] in this form.
    fn pass_until(&self, deadline: Instant) -> Option<Arrival<'_, Self>> {
        let mut arrival = Arrival::announced(self);
        arrival.ticket = Some(self.arrive_until(deadline)?);
        Some(arrival)
    }

    /// For the gate: announces an arrival. Acquisitions that pass the gate may overtake an arrival without an
    /// announcement; there is no other difference.
    fn announce(&self) {}

    /// Ends an announcement. Once for each.
    fn retract(&self) {}

    /// [`ArriveDepart::depart`] of an announced arrival, and [`ArriveDepart::retract`].
    #[inline]
    fn depart_and_retract(&self, ticket: Self::Ticket) {
        self.depart(ticket);
        self.retract();
    }

    /// For the gate: true if, at some moment during this call, no contender was between announcement and its end. An
    /// announcement that happened before the call, and has not ended, is not missed.
    fn is_idle(&self) -> bool {
        false
    }
}

/// A capacitor that a `static` can hold, with [`DEFAULT_LIMIT`](super::DEFAULT_LIMIT).
pub trait ConstArriveDepart: ArriveDepart {
    /// A new one.
    #[allow(clippy::declare_interior_mutable_const)] // copied into place
    const DEFAULT: Self;
}

/// The guard of an announced arrival: departs when it is dropped, and ends the announcement.
#[must_use = "it departs when it is dropped"]
pub struct Arrival<'a, C: ArriveDepart> {
    capacitor: &'a C,
    announced: bool,
    /// `None` until it has arrived.
    ticket: Option<C::Ticket>,
}

impl<'a, C: ArriveDepart> Arrival<'a, C> {
    /// A guard for an arrival that is about to happen, announced.
    #[inline]
    pub(super) fn announced(capacitor: &'a C) -> Self {
        capacitor.announce();
        Self { capacitor, announced: true, ticket: None }
    }

    /// A guard for an arrival that is about to happen, where there is no gate.
    #[inline]
    pub(super) fn unannounced(capacitor: &'a C) -> Self {
        Self { capacitor, announced: false, ticket: None }
    }

    /// A guard for an arrival that has happened.
    #[inline]
    pub(super) fn of(capacitor: &'a C, announced: bool, ticket: C::Ticket) -> Self {
        Self { capacitor, announced, ticket: Some(ticket) }
    }

    #[inline]
    pub(super) fn set_ticket(&mut self, ticket: Option<C::Ticket>) {
        self.ticket = ticket;
    }

    /// The ticket; another thread may then drop an [`Arrival::of`] it.
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

/// The check of all capacitors.
#[track_caller]
pub(super) const fn checked(limit: u32, most: u32) -> u32 {
    assert!(limit >= 1 && limit <= most, "the bypass limit is at least 1, and not more than this capacitor can have");
    limit
}
