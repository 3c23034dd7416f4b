//! What a capacitor is: arrivals that wait, and departures that let others through.

use std::fmt;

use sudog_runtime::Instant;

/// A capacitor without its lock: restricts how many are between arrival and departure, and lets them in in their order.
///
/// It excludes nobody by itself and protects no data. A departure without an arrival is a mistake, which ends the process
/// where it is noticed; where not, it voids the bound.
///
/// # Examples
///
/// In front of anything that is contended, here of a compare-exchange loop:
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
/// use sudog_locks::capacitor::{ArriveDepart, SlidingWindow};
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
    /// What an arrival hands to its departure.
    type Ticket: Copy + Send + fmt::Debug;

    /// Whether an arrival with a deadline stands in the same line as the others. If not, it polls.
    const DEADLINES: bool;

    /// Whether it can tell that nobody is between arrival and departure.
    const GATE: bool;

    /// With this bypass limit, `B`.
    ///
    /// # Panics
    ///
    /// If it cannot have that limit. All can have 1 to 31.
    fn with_limit(limit: u32) -> Self;

    /// The bypass limit, `B`.
    fn limit(&self) -> u32;

    /// How many that come later can be let through to the lock before one that has arrived has had it; nothing, if that
    /// is not bounded by the limit.
    fn bound(&self) -> Option<u64>;

    /// Waits to be let through.
    ///
    /// Should a goroutine be unwound meanwhile, it has not arrived, or has departed; what it had announced it has still to
    /// retract.
    fn arrive(&self) -> Self::Ticket;

    /// Arrives if that is possible without waiting, and nobody waits.
    fn try_arrive(&self) -> Option<Self::Ticket>;

    /// Waits to be let through, until `deadline`. With a deadline in the past it is [`ArriveDepart::try_arrive`].
    fn arrive_until(&self, deadline: Instant) -> Option<Self::Ticket>;

    /// Ends an arrival: whoever may go on now goes on. Anybody may do it, once for each.
    ///
    /// A goroutine that has run for long gives way here, after the others have been let through. It may be unwound there:
    /// it has departed then.
    fn depart(&self, ticket: Self::Ticket);

    /// [`ArriveDepart::arrive`], announced, with a departure that cannot be forgotten in a panic.
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

    /// For the gate: that somebody is about to arrive. Whoever arrives without it may be overtaken by those who pass the
    /// gate; else it makes no difference.
    fn announce(&self) {}

    /// Ends an announcement. Once for each.
    fn retract(&self) {}

    /// [`ArriveDepart::depart`] of one that has announced itself, and [`ArriveDepart::retract`].
    #[inline]
    fn depart_and_retract(&self, ticket: Self::Ticket) {
        /// A goroutine may be unwound at the end of its departure.
        struct Retracts<'a, C: ArriveDepart>(&'a C);
        impl<C: ArriveDepart> Drop for Retracts<'_, C> {
            #[inline]
            fn drop(&mut self) {
                self.0.retract();
            }
        }
        let _retracts = Retracts(self);
        self.depart(ticket);
    }

    /// For the gate: whether, at some moment during this call, nobody was between announcement and its end. An
    /// announcement that happened before the call, and has not ended, is not missed.
    fn is_idle(&self) -> bool {
        false
    }
}

/// A capacitor that a `static` can hold, with [`DEFAULT_LIMIT`](super::DEFAULT_LIMIT).
pub trait ConstArriveDepart: ArriveDepart {
    /// As new.
    #[allow(clippy::declare_interior_mutable_const)] // to be copied into place
    const DEFAULT: Self;
}

/// One that has announced itself and arrived: departs when it is dropped, and its announcement ends.
#[must_use = "it departs when it is dropped"]
pub struct Arrival<'a, C: ArriveDepart> {
    capacitor: &'a C,
    announced: bool,
    /// Nothing, as long as it has not arrived.
    ticket: Option<C::Ticket>,
}

impl<'a, C: ArriveDepart> Arrival<'a, C> {
    /// One that is about to arrive, announced.
    #[inline]
    pub(super) fn announced(capacitor: &'a C) -> Self {
        capacitor.announce();
        Self { capacitor, announced: true, ticket: None }
    }

    /// One that is about to arrive, where there is no gate.
    #[inline]
    pub(super) fn unannounced(capacitor: &'a C) -> Self {
        Self { capacitor, announced: false, ticket: None }
    }

    /// One that has arrived.
    #[inline]
    pub(super) fn of(capacitor: &'a C, announced: bool, ticket: C::Ticket) -> Self {
        Self { capacitor, announced, ticket: Some(ticket) }
    }

    #[inline]
    pub(super) fn set_ticket(&mut self, ticket: Option<C::Ticket>) {
        self.ticket = ticket;
    }

    /// The ticket; for somebody else to drop an [`Arrival::of`] it.
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

/// What all check.
#[track_caller]
pub(super) const fn checked(limit: u32, most: u32) -> u32 {
    assert!(limit >= 1 && limit <= most, "the bypass limit is at least 1, and not more than this capacitor can have");
    limit
}
