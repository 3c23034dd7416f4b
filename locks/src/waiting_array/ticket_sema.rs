//! The semaphores of the family: a doorway, a line, and a protocol to wait by.
//!
//! | doorway | acquire, a permit there | release, nobody waits | it may be freed by the last taker |
//! |---|---|---|---|
//! | [`Tickets`] | one RMW on the tickets, a load of the grants | a compare-exchange on the grants, and what the protocol does | unless the protocol looks at the tickets |
//! | [`Split`] | one RMW on the count | one RMW on the count | always |

use std::fmt;

use sudog_runtime::Instant;

#[cfg(not(sudog_loom))]
use super::benaphore::Split;
use super::line::{Line, Outcome, TicketWait, number};
#[cfg(not(sudog_loom))]
use sudog_sync::{ConstPermits, ConstSemaphore};
use sudog_sync::{Order, Semaphore, Wake};

/// What comes before the line: who must join it, and what is owed to it.
///
/// Sealed: [`Tickets`] and [`Split`].
pub trait Doorway: sealed::Sealed {}

pub(super) mod sealed {
    use super::Line;
    use super::TicketWait;

    /// The steps of a doorway.
    pub trait Sealed: Send + Sync + Sized + 'static {
        /// Whether a post knows if anybody waits, and need not look.
        const KNOWS_WHO_WAITS: bool;

        #[cfg(not(sudog_loom))]
        #[allow(clippy::declare_interior_mutable_const)] // to be copied into place
        const INIT: Self;

        /// With this many permits; and how many of them are to be granted in the line.
        fn new(permits: u32) -> (Self, u32);

        /// Takes `n` permits (`None`), or the first of `n` tickets.
        fn enter<W: TicketWait>(&self, line: &Line<W, Self>, n: u32) -> Option<u64>
        where
            Self: super::Doorway;

        /// Takes `n` permits if they are there.
        fn try_enter<W: TicketWait>(&self, line: &Line<W, Self>, n: u32) -> bool
        where
            Self: super::Doorway;

        /// Gives `n` permits: how many go to the line.
        ///
        /// # Safety
        ///
        /// `this` is alive until the permits can be taken: until this returns 0, or else until they are granted.
        unsafe fn give(this: *const Self, n: u64) -> u64;

        /// Of `n` units that are to be given, those that the line is owed: how many. They are not to be given any more.
        ///
        /// # Safety
        ///
        /// `this` is alive.
        unsafe fn pay_debts(this: *const Self, n: u64) -> u64;

        /// Nobody gets past the doorway any more.
        fn close(&self);

        /// How many permits there are.
        fn available<W: TicketWait>(&self, line: &Line<W, Self>) -> u64
        where
            Self: super::Doorway;
    }
}

/// As in the listings: everybody draws a ticket.
#[derive(Debug)]
pub struct Tickets(());

impl Doorway for Tickets {}

impl sealed::Sealed for Tickets {
    const KNOWS_WHO_WAITS: bool = false;

    #[cfg(not(sudog_loom))]
    const INIT: Self = Self(());

    fn new(permits: u32) -> (Self, u32) {
        (Self(()), permits)
    }

    #[inline]
    fn enter<W: TicketWait>(&self, line: &Line<W, Self>, n: u32) -> Option<u64> {
        let first = line.draw(n);
        if line.are_granted(first, n) { None } else { Some(first) }
    }

    #[inline]
    fn try_enter<W: TicketWait>(&self, line: &Line<W, Self>, n: u32) -> bool {
        line.try_draw(n)
    }

    #[inline]
    unsafe fn give(_: *const Self, n: u64) -> u64 {
        n
    }

    #[inline]
    unsafe fn pay_debts(_: *const Self, n: u64) -> u64 {
        n
    }

    fn close(&self) {}

    fn available<W: TicketWait>(&self, line: &Line<W, Self>) -> u64 {
        line.surplus()
    }
}

/// A counting semaphore whose waiters hold tickets, and wait by the protocol `W`, behind the doorway `D`.
///
/// Its names: [`Ticket`](super::Ticket), [`Twa`](super::Twa), [`TwaChain`](super::TwaChain),
/// [`TwaChannel`](super::TwaChannel), [`TwaLocation`](super::TwaLocation), and [`Benaphore`](super::Benaphore), which
/// is the one to take if there is no reason for another.
///
/// First come, first served: permits go to waiters in the order of their tickets, and no newcomer overtakes them. Who
/// wants several waits for all of them at once; those behind it wait, too. So there is nothing that
/// [`Wake::Handoff`] could add, and [`Order::Lifo`] is [`Order::Fifo`].
///
/// Waiters may be threads or goroutines; a goroutine lets others of its worker run. A wait allocates nothing, but one
/// that is given up may.
///
/// # Limits
///
/// 2^60 permits, and as many that are asked for at a time, those of requests that were given up included until a post
/// has passed them. More of either end the process.
///
/// # Examples
///
/// ```
/// use std::time::{Duration, Instant};
/// use sudog_locks::waiting_array::Benaphore;
/// use sudog_locks::waiting_array::Refused;
///
/// static SLOTS: Benaphore = Benaphore::new(3);
///
/// SLOTS.acquire_many(2).unwrap();
/// let soon = Instant::now() + Duration::from_millis(2);
/// assert_eq!(SLOTS.acquire_many_until(2, soon), Err(Refused::TimedOut));
/// SLOTS.post(1);
/// assert_eq!(SLOTS.acquire_many_until(2, soon), Ok(()));
/// SLOTS.close();
/// assert!(SLOTS.acquire_many(1).is_err());
/// ```
pub struct TicketSema<W, D = Tickets> {
    doorway: D,
    line: Line<W, D>,
}

/// The semaphore has been closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Closed;

/// Why there are no permits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// The deadline passed first. No permit has been taken, and none is lost.
    TimedOut,
    /// The semaphore has been closed.
    Closed,
}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the semaphore is closed")
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TimedOut => "no permit before the deadline",
            Self::Closed => "the semaphore is closed",
        })
    }
}

impl std::error::Error for Closed {}
impl std::error::Error for Refused {}

#[cfg(not(sudog_loom))]
impl<W> TicketSema<W> {
    /// A semaphore with this many permits, whatever its parameters. [`TicketSema::new`] spares one to name the
    /// defaults.
    #[must_use]
    pub const fn with_permits(permits: u32) -> Self {
        Self { doorway: Tickets(()), line: Line::granting(permits) }
    }
}

#[cfg(not(sudog_loom))]
impl<W> TicketSema<W, Split> {
    /// A semaphore with this many permits, whatever its parameters. [`TicketSema::new`] spares one to name the
    /// defaults.
    #[must_use]
    pub const fn with_permits(permits: u32) -> Self {
        Self { doorway: Split::holding(permits), line: Line::granting(0) }
    }
}

/// `new` is for the defaults, so that they need not be written; `with_permits` for all.
#[cfg(not(sudog_loom))]
macro_rules! new_for_defaults {
    ($($Alias:ident = $W:ty, $D:ty;)+) => { $(
        impl TicketSema<$W, $D> {
            #[doc = concat!("A [`", stringify!($Alias), "`](super::", stringify!($Alias), ") with this many permits.")]
            #[must_use]
            pub const fn new(permits: u32) -> Self {
                Self::with_permits(permits)
            }
        }
    )+ };
}

#[cfg(not(sudog_loom))]
new_for_defaults! {
    Benaphore = super::ChainWait, Split;
    Ticket = super::GrantWait, Tickets;
    Twa = super::BucketWait, Tickets;
    TwaChain = super::ChainWait, Tickets;
    TwaChannel = super::ChannelWait, Tickets;
    TwaLocation = super::LocationWait, Tickets;
}

impl<W: TicketWait> TicketSema<W> {
    /// Takes a permit, waiting for it in line, and returns the ticket, modulo 2^32: tickets are numbered in the order in
    /// which their holders came.
    ///
    /// For those who count who overtakes whom.
    ///
    /// # Errors
    ///
    /// [`Closed`], if the semaphore is closed, before or meanwhile.
    ///
    /// # Examples
    ///
    /// ```
    /// use sudog_locks::waiting_array::Ticket;
    ///
    /// static SLOTS: Ticket = Ticket::new(2);
    ///
    /// assert_eq!(SLOTS.acquire_numbered(), Ok(0));
    /// assert_eq!(SLOTS.acquire_numbered(), Ok(1));
    /// ```
    pub fn acquire_numbered(&self) -> Result<u32, Closed> {
        let first = self.line.draw(1);
        let outcome = if self.line.are_granted(first, 1) {
            Outcome::Granted
        } else {
            self.line.wait(first, 1, None, &|n| self.give_back(n))
        };
        if outcome == Outcome::Granted { Ok(number(first)) } else { Err(Closed) }
    }
}

impl<W: TicketWait, D: Doorway> TicketSema<W, D> {
    /// Whether the semaphore must stay alive until a release of it has returned, though its permits may have been
    /// taken before. If not, the taker of the last permit may free it at once: see [`TicketSema::post_raw`].
    pub const OUTLIVES_GRANT: bool = Line::<W, D>::LOOKS.is_some();

    /// Takes `n` permits, waiting for them in line.
    ///
    /// # Errors
    ///
    /// [`Closed`], if the semaphore is closed, before or meanwhile.
    #[inline]
    pub fn acquire_many(&self, n: u32) -> Result<(), Closed> {
        match self.enter(n, None) {
            Outcome::Granted => Ok(()),
            Outcome::Closed => Err(Closed),
            Outcome::TimedOut => unreachable!("there is no deadline"),
        }
    }

    /// Takes `n` permits, waiting for them in line until `deadline`. With a deadline in the past it is
    /// [`TicketSema::try_acquire_many`].
    ///
    /// Whoever gives up leaves a note for the posts to come, which costs one that finds it a lock; notes of adjacent
    /// tickets are one. If some of its permits had come, they go to those behind it.
    ///
    /// # Errors
    ///
    /// [`Refused`] says what came first.
    #[inline]
    pub fn acquire_many_until(&self, n: u32, deadline: Instant) -> Result<(), Refused> {
        if self.try_acquire_many(n) {
            return Ok(());
        }
        match self.enter_late(n, deadline) {
            Outcome::Granted => Ok(()),
            Outcome::Closed => Err(Refused::Closed),
            Outcome::TimedOut => Err(Refused::TimedOut),
        }
    }

    /// Takes `n` permits if they are there, and nobody waits for them.
    #[inline]
    #[must_use]
    pub fn try_acquire_many(&self, n: u32) -> bool {
        if n == 0 {
            return !self.is_closed();
        }
        self.doorway.try_enter(&self.line, n)
    }

    /// Gives `n` permits, and wakes those whose turn has come.
    ///
    /// A goroutine that has run for long gives way here, after the permits have been given.
    #[inline]
    pub fn post(&self, n: u32) {
        // SAFETY: alive for as long as it is borrowed.
        unsafe { Self::post_raw(self, n) };
    }

    /// [`TicketSema::post`] for a semaphore that the taker of the last permit frees at once, without waiting for this
    /// call to return.
    ///
    /// # Safety
    ///
    /// - `this` points to a semaphore that is alive until the last of its permits, these included, can be taken.
    /// - If [`TicketSema::OUTLIVES_GRANT`], it is alive until this returns.
    ///
    /// # Examples
    ///
    /// ```
    /// use sudog_locks::waiting_array::Benaphore;
    ///
    /// let done = Box::into_raw(Box::new(Benaphore::new(0)));
    /// let shared = done.addr();
    /// std::thread::scope(|s| {
    ///     s.spawn(move || {
    ///         let done = std::ptr::with_exposed_provenance::<Benaphore>(shared);
    ///         // SAFETY: it is freed by whoever has taken the one permit that there is, and not before.
    ///         unsafe { Benaphore::post_raw(done, 1) };
    ///     });
    ///     # done.expose_provenance();
    ///     // SAFETY: alive until we free it.
    ///     unsafe { &*done }.acquire_many(1).unwrap();
    ///     // SAFETY: the one permit has been taken, so the post does not use it any more.
    ///     drop(unsafe { Box::from_raw(done) });
    /// });
    /// ```
    #[inline]
    pub unsafe fn post_raw(this: *const Self, n: u32) {
        if n > 0 {
            // SAFETY: by the contract.
            unsafe { Self::give(this, u64::from(n)) };
        }
        // The semaphore may be gone.
        sudog_runtime::safepoint();
    }

    /// Ends it: all who wait, and all who come, are refused; what is posted is lost. A wait whose permits came at the
    /// same time may be refused, too.
    ///
    /// A goroutine that has run for long gives way here, after the last waiter has been woken.
    pub fn close(&self) {
        self.doorway.close();
        self.line.close();
        sudog_runtime::safepoint();
    }

    /// Whether it has been closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.line.is_closed()
    }

    /// How many permits there are at this moment. For tests and the curious.
    #[must_use]
    pub fn available(&self) -> u64 {
        self.doorway.available(&self.line)
    }

    /// How many permits those who wait have asked for at this moment, less what has been granted. For tests and the
    /// curious.
    #[must_use]
    pub fn wanted(&self) -> u64 {
        self.line.waiting()
    }

    #[inline]
    fn enter(&self, n: u32, deadline: Option<Instant>) -> Outcome {
        if n == 0 {
            return if self.is_closed() { Outcome::Closed } else { Outcome::Granted };
        }
        if n > 1 && self.is_closed() {
            return Outcome::Closed; // without tickets, of which it would take many in vain
        }
        match self.doorway.enter(&self.line, n) {
            None => Outcome::Granted,
            Some(first) => self.line.wait(first, n, deadline, &|n| self.give_back(n)),
        }
    }

    #[cold]
    fn enter_late(&self, n: u32, deadline: Instant) -> Outcome {
        if self.is_closed() {
            Outcome::Closed
        } else if Instant::now() >= deadline {
            Outcome::TimedOut
        } else {
            self.enter(n, Some(deadline))
        }
    }

    /// What one who gives up had been granted. No safepoint: it may be unwound already, or is about to return an error.
    fn give_back(&self, n: u64) {
        // SAFETY: alive, as it is borrowed.
        unsafe { Self::give(self, n) };
    }

    /// # Safety
    ///
    /// As for [`TicketSema::post_raw`].
    #[inline]
    unsafe fn give(this: *const Self, n: u64) {
        // SAFETY: alive, by the contract, until the permits can be taken: after `give` if it returns 0, after `grant`
        // if not. No reference to the whole is made.
        unsafe {
            let (doorway, line) = (&raw const (*this).doorway, &raw const (*this).line);
            let grants = D::give(doorway, n);
            if grants > 0 {
                Line::grant(line, doorway, grants);
            }
        }
    }
}

/// No user's code runs inside of it.
impl<W, D> std::panic::RefUnwindSafe for TicketSema<W, D> {}

// SAFETY: a permit is a unit of the count or a granted ticket; both are taken once; what is given up is passed on
// (line.rs); a grant is released and acquired by the word of the grants, or by the count.
unsafe impl<W: TicketWait, D: Doorway> Semaphore for TicketSema<W, D> {
    const LIFO: bool = false;
    const FIFO: bool = true;
    const HANDOFF: bool = true;
    const DEADLINES: bool = true;

    fn new(permits: u32) -> Self {
        let (doorway, granted) = D::new(permits);
        Self { doorway, line: Line::granting(granted) }
    }

    /// # Panics
    ///
    /// If it is closed: [`TicketSema::acquire_many`] returns an error instead.
    #[inline]
    fn acquire(&self, _order: Order) {
        self.acquire_many(1).expect("acquire of an open semaphore");
    }

    #[inline]
    fn try_acquire(&self) -> bool {
        self.try_acquire_many(1)
    }

    #[inline]
    fn acquire_until(&self, _order: Order, deadline: Instant) -> bool {
        self.acquire_many_until(1, deadline).is_ok()
    }

    #[inline]
    fn release(&self, _wake: Wake) {
        self.post(1);
    }

    #[inline]
    fn release_many(&self, n: u32) {
        self.post(n);
    }

    #[inline]
    fn grant_many(&self, n: u32) {
        self.post(n);
    }
}

#[cfg(not(sudog_loom))]
impl<W: TicketWait, D: Doorway> ConstSemaphore for TicketSema<W, D> {
    const INIT: Self = Self { doorway: D::INIT, line: Line::granting(0) };
}

#[cfg(not(sudog_loom))]
impl<W: TicketWait, const N: u32> ConstPermits<N> for TicketSema<W> {
    const WITH_PERMITS: Self = Self::with_permits(N);
}

#[cfg(not(sudog_loom))]
impl<W: TicketWait, const N: u32> ConstPermits<N> for TicketSema<W, Split> {
    const WITH_PERMITS: Self = Self::with_permits(N);
}

#[cfg(not(sudog_loom))]
impl<W: TicketWait, D: Doorway> Default for TicketSema<W, D> {
    /// Without permits.
    fn default() -> Self {
        Self::INIT
    }
}

impl<W: TicketWait, D: Doorway> fmt::Debug for TicketSema<W, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TicketSema")
            .field("available", &self.available())
            .field("wanted", &self.wanted())
            .field("closed", &self.is_closed())
            .finish()
    }
}

#[cfg(all(test, not(sudog_loom)))]
#[path = "ticket_sema_tests.rs"]
mod tests;
