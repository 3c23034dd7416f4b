//! The counted doorway: a count in front of the queue. The default of the family.
//!
//! | step | by | action |
//! |---|---|---|
//! | take | taker | `c = count.fetch_sub(1)`; `c > 0`: done; else draws a ticket and waits |
//! | post | poster | `c = count.fetch_add(1)`; `c >= 0`: done; else grants the next ticket |
//!
//! `count` is the available permits, less the requested ones. While it is below zero each post is owed to the queue,
//! and while it is above zero nothing is owed, so no newcomer overtakes a waiter.
//!
//! * *Two RMWs, uncontended*, one for each side, on one cache line; the listings need two and a half and, unless they
//!   read the tickets, a walk through the waiting array.
//! * *The taker of the last permit may free it.* A post's last step is its RMW on the count or on the grants; it does
//!   not check for waiters, it *knows*. The listings' reading of the tickets after the grant is the same defect as
//!   glibc's bug 12674.
//! * *No sequential consistency*: takers and posters synchronise by the RMWs of one word, first the count, then the
//!   queue's.
//! * The doorway has two steps, so of two takers that come at once the one with the lower count may have the later
//!   ticket.
//!
//! The two words may disagree while a thread is between its two steps. A taker counted below zero has a ticket or will
//! draw one; the poster that counted it has granted one, or will. When all have finished, `-count` is the number of
//! tickets that wait, those given up included. When the queue passes those, each gives its unit back to the count as a
//! post would, and the queue owes a grant for each unit that the count does not keep.
//!
//! A taker that wants `n` at once and finds fewer draws `n` tickets and gives what it found to the queue: so only the
//! first waiter ever holds a part of its request. If each kept its part, two could wait for each other's.
//!
//! Source: the *benaphore* of Be's newsletter 1-26, generalised; listing 2's comments mention it.

use sudog_runtime::fatal;
use sudog_runtime::shim::{AtomicU64, Ordering};

use super::chain::ChainWait;
use super::ticket_queue::{TicketQueue, TicketWait};
use super::ticket_sema::{Doorway, TicketSema, sealed};
use crate::waiting::policy::SpinThenPark;

/// The semaphore with a counted doorway: two RMWs without waiters; with waiters a queue of tickets.
///
/// `W` is how waiters wait; by default in chains of listing 3.
///
/// # Examples
///
/// As the semaphore of a mutex:
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
    /// An `i64`: available permits, less requested ones.
    count: AtomicU64,
}

/// Beyond it, up or down, the count would be mistaken for closed.
const LIMIT: i64 = 1 << 61;
/// What closing subtracts from the count.
const CLOSED: u64 = 1 << 62;

impl CountedDoorway {
    #[cfg(not(sudog_loom))]
    pub(super) const fn holding(permits: u32) -> Self {
        Self { count: AtomicU64::new(permits as u64) }
    }
}

/// In a model: no thread uses the count any more when it is freed.
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
        // Acquire: of the post whose unit is taken, and of those before it, as all changes are RMWs.
        let count = self.count.fetch_sub(u64::from(n), Ordering::Acquire) as i64;
        if count >= i64::from(n) {
            return None;
        }
        let first = queue.draw(n);
        if count > 0 {
            // The permits found are for the first waiter.
            // SAFETY: alive, as it is borrowed.
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
        // SAFETY: alive, by the contract; not used after this if there is no waiter.
        let count = unsafe { (*this).count.fetch_add(n, Ordering::Release) } as i64;
        if count >= 0 {
            if n > 1 && count > LIMIT {
                fatal("sema: more than 2^61 permits");
            }
            return 0;
        }
        if n > 1 && count < -LIMIT {
            // Closed, and must stay so, whatever is posted. This has not opened it, so it is alive.
            // SAFETY: alive, as no taker can take these permits.
            unsafe { (*this).count.fetch_sub(n, Ordering::Relaxed) };
        }
        n.min(count.unsigned_abs())
    }

    #[cold]
    unsafe fn pay_debts(this: *const Self, n: u64) -> u64 {
        // SAFETY: alive, by the contract.
        let count = unsafe { &(*this).count };
        // Relaxed: no permit can be taken by this.
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
