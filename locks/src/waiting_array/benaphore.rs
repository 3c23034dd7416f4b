//! The split doorway: a count in front of the line. The default of the family.
//!
//! | step | who | what |
//! |---|---|---|
//! | take | taker | `c = count.fetch_sub(1)`; `c > 0`: done; else draws a ticket and waits |
//! | post | poster | `c = count.fetch_add(1)`; `c >= 0`: done; else grants the next ticket |
//!
//! `count` is what there is, less what is waited for. While it is below zero each post is owed to the line, and while
//! it is above zero nobody is owed anything, so no newcomer overtakes a waiter.
//!
//! * *Two RMWs, uncontended*, one for each side, on one line; the listings need two and a half and, without the look at
//!   the tickets, a walk through the waiting array.
//! * *It may be freed by the taker of the last permit.* A post's last step is its RMW on the count or on the grants; it
//!   does not look whether anybody waits, it *knows*. The listings' look at the tickets after the grant is the same
//!   defect as glibc's bug 12674.
//! * *No sequential consistency*: takers and posters meet in the RMWs of one word, first here, then in the line.
//! * The doorway has two steps, so of two takers that come at once the one with the lower count may have the later
//!   ticket.
//!
//! The two words may disagree while somebody is between its two steps. Whoever is counted below zero has a ticket or
//! will draw one; whoever counted it has granted one, or will. When all have arrived, `-count` is the number of tickets
//! that wait, those given up included. When the line passes those, each gives its unit back to the count as a post
//! would, and the line owes a grant for each unit that the count does not keep.
//!
//! Who wants `n` at once and finds fewer draws `n` tickets and gives what it found to the line: so only the first in
//! line ever holds a part of what it wants. Were each to keep what it found, two could wait for each other's.
//!
//! Source: the *benaphore* of Be's newsletter 1-26, generalised; listing 2's comments name it.

use sudog_runtime::fatal;
use sudog_runtime::shim::{AtomicU64, Ordering};

use super::chain::ChainWait;
use super::line::{Line, TicketWait};
use super::ticket_sema::{Doorway, TicketSema, sealed};
use crate::waiting::policy::SpinThenPark;

/// The split semaphore: two RMWs where nobody waits, the line of tickets where somebody does.
///
/// `W` is how those wait; by default in chains of listing 3.
///
/// # Examples
///
/// As the semaphore of a mutex:
///
/// ```
/// use sudog_locks::waiting_array::Benaphore;
/// use sudog_sync::{GoMutex, MutexWith};
///
/// static M: MutexWith<GoMutex<Benaphore>, u32> = MutexWith::new(1);
/// assert_eq!(*M.lock(), 1);
/// ```
pub type Benaphore<W = ChainWait<SpinThenPark>> = TicketSema<W, Split>;

/// A count in front of the line. See [`Benaphore`].
#[derive(Debug)]
pub struct Split {
    /// An `i64`: what is there, less what is waited for.
    count: AtomicU64,
}

/// Beyond it, up or down, it would be mistaken for closed.
const LIMIT: i64 = 1 << 61;
/// What closing takes from the count.
const CLOSED: u64 = 1 << 62;

impl Split {
    #[cfg(not(sudog_loom))]
    pub(super) const fn holding(permits: u32) -> Self {
        Self { count: AtomicU64::new(permits as u64) }
    }
}

/// In a model: nobody uses the count any more when it is freed.
#[cfg(sudog_loom)]
impl Drop for Split {
    fn drop(&mut self) {
        self.count.with_mut(|_| ());
    }
}

impl Doorway for Split {}

impl sealed::Sealed for Split {
    const KNOWS_WHO_WAITS: bool = true;

    #[cfg(not(sudog_loom))]
    const INIT: Self = Self::holding(0);

    fn new(permits: u32) -> (Self, u32) {
        (Self { count: AtomicU64::new(u64::from(permits)) }, 0)
    }

    #[inline]
    fn enter<W: TicketWait>(&self, line: &Line<W, Self>, n: u32) -> Option<u64> {
        // Acquire: of the post whose unit we take, and of those before it, as all changes are RMWs.
        let count = self.count.fetch_sub(u64::from(n), Ordering::Acquire) as i64;
        if count >= i64::from(n) {
            return None;
        }
        let first = line.draw(n);
        if count > 0 {
            // What we found is for the first in line.
            // SAFETY: alive, as it is borrowed.
            unsafe { Line::grant(line, self, count as u64) };
        }
        Some(first)
    }

    #[inline]
    fn try_enter<W: TicketWait>(&self, _: &Line<W, Self>, n: u32) -> bool {
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
        // Release: whoever takes the unit sees what we did.
        // SAFETY: alive, by the contract; not used after this if nobody waits.
        let count = unsafe { (*this).count.fetch_add(n, Ordering::Release) } as i64;
        if count >= 0 {
            if n > 1 && count > LIMIT {
                fatal("sema: more than 2^61 permits");
            }
            return 0;
        }
        if n > 1 && count < -LIMIT {
            // Closed, and to stay so, whatever is posted. It has not been opened by this, so it is alive.
            // SAFETY: alive, as nobody can take these permits.
            unsafe { (*this).count.fetch_sub(n, Ordering::Relaxed) };
        }
        n.min(count.unsigned_abs())
    }

    #[cold]
    unsafe fn pay_debts(this: *const Self, n: u64) -> u64 {
        // SAFETY: alive, by the contract.
        let count = unsafe { &(*this).count };
        // Relaxed: nobody can take anything by this.
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

    fn available<W: TicketWait>(&self, _: &Line<W, Self>) -> u64 {
        u64::try_from(self.count.load(Ordering::Acquire) as i64).unwrap_or(0)
    }
}
