//! The counted doorway: a count in front of the queue. [`Benaphore`], the semaphore to use, has this doorway.
//!
//! | step | by | action |
//! |---|---|---|
//! | take | taker | `c = count.fetch_sub(1)`; if `c > 0`: done; else draws a ticket and waits |
//! | post | poster | `c = count.fetch_add(1)`; if `c >= 0`: done; else grants the next ticket |
//!
//! `count` is the number of available permits minus the number of requested permits. While `count` is below zero, the
//! doorway owes each post to the queue. While `count` is above zero, the doorway owes nothing, so no newcomer overtakes
//! a waiter.
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

use sudog_runtime::fatal;
use sudog_runtime::shim::{AtomicU64, Ordering};

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
    /// The number of available permits minus the number of requested permits, as an `i64`. Changed by RMWs of any
    /// thread.
    count: AtomicU64,
}

/// The largest absolute value of the count. A count beyond this limit could be mistaken for the count of a closed
/// doorway.
const LIMIT: i64 = 1 << 61;
/// The number that closing subtracts from the count.
const CLOSED: u64 = 1 << 62;

impl CountedDoorway {
    #[cfg(not(sudog_loom))]
    pub(super) const fn holding(permits: u32) -> Self {
        Self { count: AtomicU64::new(permits as u64) }
    }
}

/// Checks, in a model, that no thread uses the count any more when the doorway is freed.
#[cfg(sudog_loom)]
impl Drop for CountedDoorway {
    fn drop(&mut self) {
        self.count.with_mut(|_| ());
    }
}

impl Doorway for CountedDoorway {}

impl sealed::Sealed for CountedDoorway {
    const KNOWS_WHO_WAITS: bool = true;

    #[cfg(not(sudog_loom))]
    const INIT: Self = Self::holding(0);

    fn new(permits: u32) -> (Self, u32) {
        (Self { count: AtomicU64::new(u64::from(permits)) }, 0)
    }

    #[inline]
    fn enter<W: TicketWait>(&self, queue: &TicketQueue<W, Self>, n: u32) -> Option<u64> {
        // Acquire: this taker sees the writes of the poster whose unit it takes, and of all earlier posters, as all
        // changes of the count are RMWs.
        let count = self.count.fetch_sub(u64::from(n), Ordering::Acquire) as i64;
        if count >= i64::from(n) {
            return None;
        }
        let first = queue.draw(n);
        if count > 0 {
            // Give the permits that were found to the queue, for its first waiter.
            // SAFETY: `queue` and `self` are alive, as they are borrowed.
            unsafe { TicketQueue::grant(queue, self, count as u64) };
        }
        Some(first)
    }

    #[inline]
    fn try_enter<W: TicketWait>(&self, _: &TicketQueue<W, Self>, n: u32) -> bool {
        let mut count = self.count.load(Ordering::Relaxed);
        while count as i64 >= i64::from(n) {
            match self.count.compare_exchange_weak(count, count - u64::from(n), Ordering::Acquire, Ordering::Relaxed) {
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
        let count = unsafe { (*this).count.fetch_add(n, Ordering::Release) } as i64;
        if count >= 0 {
            if n > 1 && count > LIMIT {
                fatal("sema: more than 2^61 permits");
            }
            return 0;
        }
        if n > 1 && count < -LIMIT {
            // The semaphore is closed, and must stay closed, however many permits are posted. This post has not opened
            // the semaphore.
            // SAFETY: `this` is alive, as no taker can take these permits.
            unsafe { (*this).count.fetch_sub(n, Ordering::Relaxed) };
        }
        n.min(count.unsigned_abs())
    }

    #[cold]
    unsafe fn pay_debts(this: *const Self, n: u64) -> u64 {
        // SAFETY: by the contract of `pay_debts`, `this` is alive.
        let count = unsafe { &(*this).count };
        // Relaxed: no permit can be taken by this change of the count.
        let mut old = count.load(Ordering::Relaxed);
        loop {
            let owed = n.min((old as i64).min(0).unsigned_abs());
            if owed == 0 {
                return 0;
            }
            match count.compare_exchange_weak(old, old.wrapping_add(owed), Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return owed,
                Err(now) => old = now,
            }
        }
    }

    fn close(&self) {
        let mut count = self.count.load(Ordering::Relaxed);
        while count as i64 > -LIMIT {
            match self.count.compare_exchange_weak(
                count,
                count.wrapping_sub(CLOSED),
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(now) => count = now,
            }
        }
    }

    fn available<W: TicketWait>(&self, _: &TicketQueue<W, Self>) -> u64 {
        u64::try_from(self.count.load(Ordering::Acquire) as i64).unwrap_or(0)
    }
}
