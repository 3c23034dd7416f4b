//! The semaphores of the family: a doorway, a queue, and a protocol by which takers wait.
//!
//! | doorway | acquire, a permit available | release, no waiter | may be freed by the last taker |
//! |---|---|---|---|
//! | [`Tickets`] | one RMW on the tickets, a load of the grants | a compare-exchange on the grants, and the protocol's steps | unless the protocol reads the tickets |
//! | [`CountedDoorway`] | one RMW on the count | one RMW on the count | always |

use std::fmt;

use sudog_runtime::Instant;
use sudog_runtime::shim::system;

#[cfg(not(sudog_loom))]
use super::benaphore::CountedDoorway;
use super::grant::number;
use super::ticket_queue::{Outcome, TicketQueue, TicketWait};
#[cfg(not(sudog_loom))]
use sudog_sync::{ConstPermits, ConstSemaphore};
use sudog_sync::{Order, Semaphore, Wake};

/// The step before the queue: decides whether a taker joins the queue, and how many permits of a post go to the queue.
///
/// This trait is sealed. The implementations are [`Tickets`] and [`CountedDoorway`].
pub trait Doorway: sealed::Sealed {}

pub(super) mod sealed {
    use super::TicketQueue;
    use super::TicketWait;

    /// The steps of a doorway.
    pub trait Sealed: Send + Sync + Sized + 'static {
        /// True if a post knows whether there are waiters, and need not check.
        const KNOWS_WHO_WAITS: bool;

        #[cfg(not(sudog_loom))]
        #[allow(clippy::declare_interior_mutable_const)] // copied into place
        const INIT: Self;

        /// Returns a doorway with this many permits, and the number of these permits that are to be granted in the
        /// queue.
        fn new(permits: u32) -> (Self, u32);

        /// Takes `n` permits, and returns `None`; or draws `n` tickets, and returns the first.
        fn enter<W: TicketWait>(&self, queue: &TicketQueue<W, Self>, n: u32) -> Option<u64>
        where
            Self: super::Doorway;

        /// Takes `n` permits if they are available.
        fn try_enter<W: TicketWait>(&self, queue: &TicketQueue<W, Self>, n: u32) -> bool
        where
            Self: super::Doorway;

        /// Gives `n` permits. Returns the number of permits that go to the queue.
        ///
        /// # Safety
        ///
        /// `this` is alive until the last of the `n` permits can be taken. If this call returns 0, that is until the
        /// call has added the permits to the doorway: a taker may free `this` before the call returns. Otherwise `this`
        /// is alive until the caller has granted the permits that go to the queue.
        unsafe fn give(this: *const Self, n: u64) -> u64;

        /// Pays the doorway's debt to the queue with at most `n` units, and returns the number of these units. The
        /// caller grants these units in the queue, and must not give them to the doorway.
        ///
        /// # Safety
        ///
        /// `this` is alive.
        unsafe fn pay_debts(this: *const Self, n: u64) -> u64;

        /// Closes the doorway: no taker gets past the doorway any more.
        fn close(&self);

        /// Returns the number of permits that are available.
        fn available<W: TicketWait>(&self, queue: &TicketQueue<W, Self>) -> u64
        where
            Self: super::Doorway;
    }
}

/// The doorway of the listings: every taker draws a ticket.
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
    fn enter<W: TicketWait>(&self, queue: &TicketQueue<W, Self>, n: u32) -> Option<u64> {
        let first = queue.draw(n);
        if queue.are_granted(first, n) { None } else { Some(first) }
    }

    #[inline]
    fn try_enter<W: TicketWait>(&self, queue: &TicketQueue<W, Self>, n: u32) -> bool {
        queue.try_draw(n)
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

    fn available<W: TicketWait>(&self, queue: &TicketQueue<W, Self>) -> u64 {
        queue.surplus()
    }
}

/// A counting semaphore whose waiters hold tickets, and wait by the protocol `W`, behind the doorway `D`.
///
/// The aliases are [`Ticket`](super::Ticket), [`Twa`](super::Twa), [`TwaChain`](super::TwaChain),
/// [`TwaChannel`](super::TwaChannel), [`TwaLocation`](super::TwaLocation), and [`Benaphore`](super::Benaphore). Use
/// [`Benaphore`](super::Benaphore) unless there is a reason for another.
///
/// First come, first served: permits go to waiters in the order of their tickets, and no newcomer overtakes a waiter. A
/// waiter that wants several permits waits for all of these permits at once; the waiters behind it wait too. So
/// [`Wake::Handoff`] adds nothing, and [`Order::Lifo`] is [`Order::Fifo`].
///
/// Waiters may be threads or goroutines; a goroutine lets other goroutines of its worker run. A wait allocates nothing,
/// but giving up may allocate.
///
/// # Limits
///
/// At most 2^60 permits are available, and at most 2^60 permits are requested at a time. A request that was given up
/// counts until a post has passed its tickets. If one of these numbers is larger, the process may end.
///
/// # Examples
///
/// ```
/// use std::time::{Duration, Instant};
/// use sudog::locks::waiting_array::Benaphore;
/// use sudog::locks::waiting_array::Refused;
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
    queue: TicketQueue<W, D>,
}

/// The error that the semaphore has been closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Closed;

/// The reason why no permits were taken.
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
    /// Creates a semaphore with this many permits and any type parameters. With [`TicketSema::new`] the default
    /// parameters need not be named.
    #[must_use]
    pub const fn with_permits(permits: u32) -> Self {
        Self { doorway: Tickets(()), queue: TicketQueue::granting(permits) }
    }
}

#[cfg(not(sudog_loom))]
impl<W> TicketSema<W, CountedDoorway> {
    /// Creates a semaphore with this many permits and any type parameters. With [`TicketSema::new`] the default
    /// parameters need not be named.
    #[must_use]
    pub const fn with_permits(permits: u32) -> Self {
        Self { doorway: CountedDoorway::holding(permits), queue: TicketQueue::granting(0) }
    }
}

/// Defines `new` for the default type parameters, so that callers need not write them. `with_permits` is for all
/// parameters.
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
    Benaphore = super::ChainWait, CountedDoorway;
    Ticket = super::GrantWait, Tickets;
    Twa = super::BucketWait, Tickets;
    TwaChain = super::ChainWait, Tickets;
    TwaChannel = super::ChannelWait, Tickets;
    TwaLocation = super::LocationWait, Tickets;
}

impl<W: TicketWait> TicketSema<W> {
    /// Takes a permit, waiting for the permit in the queue, and returns the ticket, modulo 2^32: tickets are numbered
    /// in the order in which their holders came.
    ///
    /// This method is for callers that measure how often waiters are overtaken.
    ///
    /// # Errors
    ///
    /// Returns [`Closed`] if the semaphore is closed, before or during the call.
    ///
    /// # Examples
    ///
    /// ```
    /// use sudog::locks::waiting_array::Ticket;
    ///
    /// static SLOTS: Ticket = Ticket::new(2);
    ///
    /// assert_eq!(SLOTS.acquire_numbered(), Ok(0));
    /// assert_eq!(SLOTS.acquire_numbered(), Ok(1));
    /// ```
    pub fn acquire_numbered(&self) -> Result<u32, Closed> {
        let first = self.queue.draw(1);
        let outcome = if self.queue.are_granted(first, 1) {
            Outcome::Granted
        } else {
            self.queue.wait(first, 1, None, &|n| self.give_back(n))
        };
        if outcome == Outcome::Granted { Ok(number(first)) } else { Err(Closed) }
    }
}

impl<W: TicketWait, D: Doorway> TicketSema<W, D> {
    /// True if the semaphore must stay alive until a release has returned, even if takers have taken the permits of
    /// that release before. If false, the taker of the last permit may free the semaphore at once: see
    /// [`TicketSema::post_raw`].
    pub const OUTLIVES_GRANT: bool = TicketQueue::<W, D>::OUTLIVES;

    /// Takes `n` permits, waiting for the permits in the queue.
    ///
    /// # Errors
    ///
    /// Returns [`Closed`] if the semaphore is closed, before or during the call.
    #[inline]
    pub fn acquire_many(&self, n: u32) -> Result<(), Closed> {
        match self.enter(n, None) {
            Outcome::Granted => Ok(()),
            Outcome::Closed => Err(Closed),
            Outcome::TimedOut => unreachable!("there is no deadline"),
        }
    }

    /// Takes `n` permits, waiting for the permits in the queue until `deadline`. A deadline in the past makes this call
    /// the same as [`TicketSema::try_acquire_many`].
    ///
    /// A waiter that gives up leaves a record for later posts; a post that finds such a record must take a lock.
    /// Records of adjacent tickets are merged. If some permits of the waiter had come, these permits go to the waiters
    /// behind it.
    ///
    /// # Errors
    ///
    /// Returns [`Refused::Closed`] or [`Refused::TimedOut`], depending on which of the two came first.
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

    /// Takes `n` permits if they are available, and there is no waiter.
    #[inline]
    #[must_use]
    pub fn try_acquire_many(&self, n: u32) -> bool {
        if n == 0 {
            return !self.is_closed();
        }
        self.doorway.try_enter(&self.queue, n)
    }

    /// Gives `n` permits, and wakes the waiters whose turn has come.
    ///
    /// A goroutine that has run for long yields in this call, after the permits have been given.
    #[inline]
    pub fn post(&self, n: u32) {
        // SAFETY: `self` is alive for as long as it is borrowed.
        unsafe { Self::post_raw(self, n) };
    }

    /// Posts as [`TicketSema::post`] does, but allows the taker of the last permit to free the semaphore at once,
    /// without waiting for this call to return.
    ///
    /// # Safety
    ///
    /// - `this` points to a semaphore that is alive until the last of its permits, these included, can be taken.
    /// - If [`TicketSema::OUTLIVES_GRANT`] is true, the semaphore is alive until this call returns.
    ///
    /// # Examples
    ///
    /// ```
    /// use sudog::locks::waiting_array::Benaphore;
    ///
    /// let done = Box::into_raw(Box::new(Benaphore::new(0)));
    /// let shared = done.addr();
    /// std::thread::scope(|s| {
    ///     s.spawn(move || {
    ///         let done = std::ptr::with_exposed_provenance::<Benaphore>(shared);
    ///         // SAFETY: it is freed by the taker of the only permit, and not before.
    ///         unsafe { Benaphore::post_raw(done, 1) };
    ///     });
    ///     # done.expose_provenance();
    ///     // SAFETY: alive until it is freed below.
    ///     unsafe { &*done }.acquire_many(1).unwrap();
    ///     // SAFETY: the one permit has been taken, so the post does not use it any more.
    ///     drop(unsafe { Box::from_raw(done) });
    /// });
    /// ```
    #[inline]
    pub unsafe fn post_raw(this: *const Self, n: u32) {
        if n > 0 {
            // SAFETY: the contract of `give` is that of `post_raw`.
            unsafe { Self::give(this, u64::from(n)) };
        }
        // The semaphore may be freed already.
        sudog_runtime::safepoint();
    }

    /// Closes the semaphore: all waiters, and all later arrivals, are refused; posted permits are lost. A wait whose
    /// permits came at the same time may be refused too.
    ///
    /// A goroutine that has run for long yields in this call, after the last waiter has been woken.
    pub fn close(&self) {
        self.doorway.close();
        self.queue.close();
        sudog_runtime::safepoint();
    }

    /// Returns true if the semaphore has been closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.queue.is_closed()
    }

    /// Returns the number of permits that are available at this moment. For tests and diagnostics.
    #[must_use]
    pub fn available(&self) -> u64 {
        self.doorway.available(&self.queue)
    }

    /// Returns the number of permits that waiters have requested at this moment, less those granted. For tests and
    /// diagnostics.
    #[must_use]
    pub fn wanted(&self) -> u64 {
        self.queue.waiting()
    }

    #[inline]
    fn enter(&self, n: u32, deadline: Option<Instant>) -> Outcome {
        if n == 0 {
            return if self.is_closed() { Outcome::Closed } else { Outcome::Granted };
        }
        if n > 1 && self.is_closed() {
            return Outcome::Closed; // a closed semaphore must not draw many tickets in vain
        }
        match self.doorway.enter(&self.queue, n) {
            None => Outcome::Granted,
            Some(first) => self.queue.wait(first, n, deadline, &|n| self.give_back(n)),
        }
    }

    #[cold]
    fn enter_late(&self, n: u32, deadline: Instant) -> Outcome {
        if self.is_closed() {
            Outcome::Closed
        } else if system::now() >= deadline {
            Outcome::TimedOut
        } else {
            self.enter(n, Some(deadline))
        }
    }

    /// Returns the permits that had been granted to a waiter that gives up. There is no safepoint: the waiter may be
    /// unwinding, or is about to return an error.
    fn give_back(&self, n: u64) {
        // SAFETY: `self` is alive, as it is borrowed.
        unsafe { Self::give(self, n) };
    }

    /// Gives `n` permits, and wakes the holders of the tickets that are granted.
    ///
    /// # Safety
    ///
    /// The contract of [`TicketSema::post_raw`].
    #[inline]
    unsafe fn give(this: *const Self, n: u64) {
        // SAFETY: by the contract of `give`, `this` is alive until the permits can be taken: after `D::give` if
        // `D::give` returns 0, otherwise after `grant`. No reference to the whole semaphore is made.
        unsafe {
            let (doorway, queue) = (&raw const (*this).doorway, &raw const (*this).queue);
            let grants = D::give(doorway, n);
            if grants > 0 {
                TicketQueue::grant(queue, doorway, grants);
            }
        }
    }
}

// A wait policy may be a user's. Its panic leaves the semaphore whole: the waiter gives up its tickets
// (`LeaveOnPanic`).
impl<W, D> std::panic::RefUnwindSafe for TicketSema<W, D> {}

// SAFETY: a permit is a unit of the count or a granted ticket; each of these is taken once. A ticket that is given up
// is passed on (`ticket_queue.rs`). A grant is released and acquired by the word of the grants, or by the count.
unsafe impl<W: TicketWait, D: Doorway> Semaphore for TicketSema<W, D> {
    const LIFO: bool = false;
    const FIFO: bool = true;
    const HANDOFF: bool = true;
    const DEADLINES: bool = true;

    fn new(permits: u32) -> Self {
        let (doorway, granted) = D::new(permits);
        Self { doorway, queue: TicketQueue::granting(granted) }
    }

    /// Takes a permit, waiting in the order of tickets.
    ///
    /// # Panics
    ///
    /// Panics if the semaphore is closed: [`TicketSema::acquire_many`] returns an error instead.
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
    const INIT: Self = Self { doorway: D::INIT, queue: TicketQueue::granting(0) };
}

#[cfg(not(sudog_loom))]
impl<W: TicketWait, const N: u32> ConstPermits<N> for TicketSema<W> {
    const WITH_PERMITS: Self = Self::with_permits(N);
}

#[cfg(not(sudog_loom))]
impl<W: TicketWait, const N: u32> ConstPermits<N> for TicketSema<W, CountedDoorway> {
    const WITH_PERMITS: Self = Self::with_permits(N);
}

#[cfg(not(sudog_loom))]
impl<W: TicketWait, D: Doorway> Default for TicketSema<W, D> {
    /// Returns a semaphore without permits.
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
