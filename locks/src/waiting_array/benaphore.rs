//! The counted doorway: a count in front of the queue. [`Benaphore`], the semaphore to use, has this doorway.
//!
//! | step | by | action |
//! |---|---|---|
//! | take | taker | `c = count.fetch_sub(1)`; if `c > 0`: done; else draws a ticket and waits |
//! | post | poster | `c = count.fetch_add(1)`; if `c >= 0`: done; else grants the next ticket |
//!
//! | `count`, as a signed number | means |
//! |---|---|
//! | above 0 | permits that a taker may take; the doorway owes nothing, so no newcomer overtakes a waiter |
//! | 0 | no permit, and no thread waits |
//! | below 0, from -2^61 on | the doorway owes as many grants to the queue: that many permits are requested, and each post goes to the queue |
//! | below -2^61 | closed: closing subtracts 2^62, and no number of posts leads back to the other values |
//!
//! So `count` is the number of available permits minus the number of requested permits.
//!
//! * *Two RMWs, uncontended*: one to take, one to post, on the same cache line. The listings need two and a half and,
//!   unless they read the tickets, a walk through the waiting array.
//! * *The taker of the last permit may free the semaphore.* The last step of a post is its RMW on the count or on the
//!   grants; the post need not check for waiters, as the count *tells* whether there are any. The listings' reading of
//!   the tickets after the grant is the same defect as glibc's bug 12674.
//! * *No sequential consistency*: takers and posters synchronise by the RMWs of one word, first the word of the count,
//!   then the word of the queue.
//! * The doorway has two steps. So if two takers come at once, the taker that changed the count first may have the
//!   later ticket.
//!
//! The two words may disagree while a thread is between its two steps. A taker that has brought the count below zero
//! has a ticket or will draw a ticket; the poster whose post is for that taker has granted a ticket, or will. When all
//! have finished, `-count` is the number of tickets that wait, including tickets that were given up. When the queue
//! passes a given-up ticket, that ticket's unit goes back to the count, as if by a post. If the count does not keep the
//! unit, the queue owes a grant for the unit.
//!
//! A taker that wants `n` permits at once and finds fewer draws `n` tickets and gives the permits that it found to the
//! queue: so only the first waiter ever holds a part of its request. If each taker kept its part, two takers could wait
//! for each other's part.
//!
//! Source: the *benaphore* of Be's newsletter 1-26, generalised; a comment in listing 2 mentions it.

use std::fmt;

use sudog_runtime::shim::{AtomicU64, Ordering};
use sudog_runtime::{const_unless_model, fatal};

use super::chain::ChainWait;
use super::ticket_queue::{TicketQueue, TicketWait};
use super::ticket_sema::{Doorway, TicketSema, sealed};
use crate::waiting::policy::SpinThenPark;

/// The semaphore with a counted doorway: two RMWs without waiters; with waiters a queue of tickets.
///
/// `W` is the protocol by which waiters wait. By default they wait in the chains of listing 3.
///
/// # Examples
///
/// A benaphore as the semaphore of a mutex:
///
/// ```
/// use sudog::locks::waiting_array::Benaphore;
/// use sudog::sync::{GoMutex, MutexWith};
///
/// static M: MutexWith<GoMutex<Benaphore>, u32> = MutexWith::new(1);
/// assert_eq!(*M.lock(), 1);
/// ```
pub type Benaphore<W = ChainWait<SpinThenPark>> = TicketSema<W, CountedDoorway>;

/// A count in front of the queue. See [`Benaphore`].
#[derive(Debug)]
pub struct CountedDoorway {
    /// The number of available permits minus the number of requested permits. Changed by RMWs of any thread.
    count: AtomicCount,
}

/// The largest absolute value of the count. A count beyond this limit could be mistaken for the count of a closed
/// doorway.
const LIMIT: i64 = 1 << 61;
/// The number that closing subtracts from the count.
const CLOSED: u64 = 1 << 62;

/// The value of the count.
#[derive(Clone, Copy)]
struct Count(u64);

/// Predicates.
impl Count {
    #[inline]
    const fn balance(self) -> i64 {
        self.0 as i64
    }

    /// Returns whether `n` permits can be taken.
    #[inline]
    const fn has(self, n: u32) -> bool {
        self.balance() >= n as i64
    }

    /// Returns the number of permits that can be taken.
    #[inline]
    const fn available(self) -> u64 {
        if self.balance() > 0 { self.0 } else { 0 }
    }

    /// Returns the number of grants that the doorway owes to the queue.
    #[inline]
    const fn owed(self) -> u64 {
        if self.balance() < 0 { self.balance().unsigned_abs() } else { 0 }
    }

    #[inline]
    const fn is_closed(self) -> bool {
        self.balance() < -LIMIT
    }

    /// Returns whether there are so many permits that more of them could be mistaken for a closed doorway.
    #[inline]
    const fn is_too_large(self) -> bool {
        self.balance() > LIMIT
    }
}

/// Transitions: from the state that they are called on, to the state that they return.
impl Count {
    /// A taker takes `n` permits, which are there.
    #[inline]
    const fn take(self, n: u32) -> Self {
        Self(self.0 - n as u64)
    }

    /// The queue pays `n` of the grants that the doorway owes.
    const fn pay(self, n: u64) -> Self {
        Self(self.0.wrapping_add(n))
    }

    /// The semaphore is closed.
    const fn close(self) -> Self {
        Self(self.0.wrapping_sub(CLOSED))
    }
}

/// The word of the count. The caller of a method gives the ordering.
struct AtomicCount(AtomicU64);

impl fmt::Debug for AtomicCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl AtomicCount {
    const_unless_model! {
        const fn new(permits: u32) -> Self {
            Self(AtomicU64::new(permits as u64))
        }
    }

    #[inline(always)]
    #[track_caller]
    fn load(&self, order: Ordering) -> Count {
        Count(self.0.load(order))
    }

    #[inline(always)]
    #[track_caller]
    fn compare_exchange_weak(&self, old: Count, new: Count, ok: Ordering, err: Ordering) -> Result<Count, Count> {
        self.0.compare_exchange_weak(old.0, new.0, ok, err).map(Count).map_err(Count)
    }

    /// A taker takes or requests `n` permits. Returns the state before.
    #[inline(always)]
    #[track_caller]
    fn request(&self, n: u32, order: Ordering) -> Count {
        Count(self.0.fetch_sub(u64::from(n), order))
    }

    /// A poster adds `n` permits. Returns the state before.
    #[inline(always)]
    #[track_caller]
    fn post(&self, n: u64, order: Ordering) -> Count {
        Count(self.0.fetch_add(n, order))
    }

    /// A poster takes back `n` permits that it has added to a closed doorway.
    #[inline(always)]
    #[track_caller]
    fn take_back(&self, n: u64, order: Ordering) {
        self.0.fetch_sub(n, order);
    }
}

impl CountedDoorway {
    #[cfg(not(sudog_loom))]
    pub(super) const fn holding(permits: u32) -> Self {
        Self { count: AtomicCount::new(permits) }
    }
}

/// Checks, in a model, that no thread uses the count any more when the doorway is freed.
#[cfg(sudog_loom)]
impl Drop for CountedDoorway {
    fn drop(&mut self) {
        self.count.0.with_mut(|_| ());
    }
}

impl Doorway for CountedDoorway {}

impl sealed::Sealed for CountedDoorway {
    const KNOWS_WHO_WAITS: bool = true;

    #[cfg(not(sudog_loom))]
    const INIT: Self = Self::holding(0);

    fn new(permits: u32) -> (Self, u32) {
        (Self { count: AtomicCount::new(permits) }, 0)
    }

    #[inline]
    fn enter<W: TicketWait>(&self, queue: &TicketQueue<W, Self>, n: u32) -> Option<u64> {
        // Acquire: this taker sees the writes of the poster whose unit it takes, and of all earlier posters, as all
        // changes of the count are RMWs.
        let count = self.count.request(n, Ordering::Acquire);
        if count.has(n) {
            return None;
        }
        let first = queue.draw(n);
        let found = count.available();
        if found > 0 {
            // Give the permits that were found to the queue, for its first waiter.
            // SAFETY: `queue` and `self` are alive, as they are borrowed.
            unsafe { TicketQueue::grant(queue, self, found) };
        }
        Some(first)
    }

    #[inline]
    fn try_enter<W: TicketWait>(&self, _: &TicketQueue<W, Self>, n: u32) -> bool {
        let mut count = self.count.load(Ordering::Relaxed);
        while count.has(n) {
            match self.count.compare_exchange_weak(count, count.take(n), Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => count = now,
            }
        }
        false
    }

    #[inline]
    unsafe fn give(this: *const Self, n: u64) -> u64 {
        // Release: the taker of the unit sees the poster's writes.
        // SAFETY: by the contract of `give`, `this` is alive; `this` is not used after this step if there is no waiter.
        let count = unsafe { (*this).count.post(n, Ordering::Release) };
        let owed = count.owed();
        if owed == 0 {
            if n > 1 && count.is_too_large() {
                fatal("sema: more than 2^61 permits");
            }
            return 0;
        }
        if n > 1 && count.is_closed() {
            // The semaphore is closed, and must stay closed, however many permits are posted. This post has not opened
            // the semaphore.
            // SAFETY: `this` is alive, as no taker can take these permits.
            unsafe { (*this).count.take_back(n, Ordering::Relaxed) };
        }
        n.min(owed)
    }

    #[cold]
    unsafe fn pay_debts(this: *const Self, n: u64) -> u64 {
        // SAFETY: by the contract of `pay_debts`, `this` is alive.
        let count = unsafe { &(*this).count };
        // Relaxed: no permit can be taken by this change of the count.
        let mut old = count.load(Ordering::Relaxed);
        loop {
            let owed = n.min(old.owed());
            if owed == 0 {
                return 0;
            }
            match count.compare_exchange_weak(old, old.pay(owed), Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return owed,
                Err(now) => old = now,
            }
        }
    }

    fn close(&self) {
        let mut count = self.count.load(Ordering::Relaxed);
        while !count.is_closed() {
            match self.count.compare_exchange_weak(count, count.close(), Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => count = now,
            }
        }
    }

    fn available<W: TicketWait>(&self, _: &TicketQueue<W, Self>) -> u64 {
        self.count.load(Ordering::Acquire).available()
    }
}
