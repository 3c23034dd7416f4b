//! The word of the grants of a ticket queue, and the positions of tickets.
//!
//! ```text
//!   63                                         2        1       0
//!  ┌────────────────────────────────────────────┬────────┬──────┐
//!  │ number of the next ticket to be granted     │ CLOSED │ GAPS │
//!  └────────────────────────────────────────────┴────────┴──────┘
//! ```
//!
//! A position is four times a ticket's number: so the word without its flags is the position before which all tickets
//! have been granted. Positions wrap: two positions are compared by their difference.
//!
//! | part | means | changed by |
//! |---|---|---|
//! | number | all earlier tickets have been granted, or were given up | a grant, upwards only |
//! | CLOSED | no waiter waits any more, and no ticket is granted any more | the closing sets CLOSED, under the lock of the gaps; nothing clears it |
//! | GAPS | the record of given-up tickets is not empty: grants happen under the lock of the gaps | a waiter that gives up sets GAPS, under the lock; the grant that skips the last gap clears GAPS in the same step; the waiter clears GAPS if it leaves no gap |

use sudog_runtime::const_unless_model;
use sudog_runtime::shim::{AtomicU64, Ordering};

const GAPS: u64 = 1;
const CLOSED: u64 = 2;
/// The distance of the positions of two tickets in succession.
pub(super) const ONE: u64 = 4;
/// The number of different tickets.
pub(super) const TICKETS: u64 = u64::MAX / ONE + 1;
/// The largest distance of two positions. Leaves a large margin for operations that are under way.
const LIMIT: u64 = ONE << 60;

/// Returns the number of the ticket at a position, modulo 2^32.
#[inline]
pub(super) fn number(position: u64) -> u32 {
    (position / ONE) as u32
}

/// Returns the position after `n` tickets.
#[inline]
pub(super) fn end(first: u64, n: u32) -> u64 {
    first.wrapping_add(u64::from(n) * ONE)
}

/// Returns the length from one position to another; 0 if `to` is not behind `from`.
#[inline]
fn stretch(from: u64, to: u64) -> u64 {
    (to.wrapping_sub(from) as i64).max(0) as u64
}

/// The value of the word of the grants.
#[derive(Clone, Copy)]
pub(super) struct Grant(u64);

/// Predicates.
impl Grant {
    /// Returns the position before which all tickets have been granted.
    #[inline]
    pub(super) const fn position(self) -> u64 {
        self.0 & !(GAPS | CLOSED)
    }

    #[inline]
    pub(super) const fn is_closed(self) -> bool {
        self.0 & CLOSED != 0
    }

    /// Returns whether a grant needs the lock of the gaps: to skip gaps, or to find that no waiter waits any more.
    #[inline]
    pub(super) const fn needs_lock(self) -> bool {
        self.0 & (CLOSED | GAPS) != 0
    }

    /// Returns whether the queue is open and all tickets before `end` have been granted. The flags do not matter in the
    /// comparison: together they are less than the size of a ticket.
    #[inline]
    pub(super) const fn covers(self, end: u64) -> bool {
        self.0.wrapping_sub(end) as i64 >= 0 && !self.is_closed()
    }

    /// Returns the number of tickets before this position that have not been granted. Returns `None` if the turn of the
    /// ticket at this position has come: the ticket has been granted, or the queue is closed.
    #[inline]
    pub(super) const fn ahead_of(self, position: u64) -> Option<u64> {
        let ahead = position.wrapping_sub(self.position()) as i64;
        if ahead < 0 || self.is_closed() { None } else { Some(ahead as u64 / ONE) }
    }

    /// Returns the part of `n` tickets from `first` on that has been granted, as a distance of positions.
    pub(super) fn part_of(self, first: u64, n: u32) -> u64 {
        (self.position().wrapping_sub(first) as i64).clamp(0, (u64::from(n) * ONE) as i64) as u64
    }

    /// Returns the distance from the grants to `next`: the tickets that have been drawn and not granted.
    #[inline]
    pub(super) fn owed(self, next: u64) -> u64 {
        stretch(self.position(), next)
    }

    /// Returns the number of tickets that have been granted and not drawn. `next` is the next ticket to be drawn.
    pub(super) fn surplus(self, next: u64) -> u64 {
        if self.is_closed() { 0 } else { stretch(next, self.position()) / ONE }
    }

    /// Returns whether so many tickets have been granted and not drawn that another grant could overflow.
    #[inline]
    pub(super) const fn is_too_far_ahead(self, next: u64) -> bool {
        self.0.wrapping_sub(next) as i64 > LIMIT as i64
    }

    /// Returns whether so many tickets before `end` have not been granted that another draw could overflow.
    pub(super) const fn is_too_far_behind(self, end: u64) -> bool {
        end.wrapping_sub(self.position()) as i64 > LIMIT as i64
    }
}

/// Transitions: from the state that they are called on, to the state that they return.
impl Grant {
    /// A poster grants `n` tickets without the lock. No flag is set.
    #[inline]
    pub(super) const fn grant(self, n: u64) -> Self {
        Self(self.0.wrapping_add(n * ONE))
    }

    /// A poster that has the lock grants or skips `n` tickets. `gaps`: a gap is left. The queue is open.
    pub(super) fn grant_under_lock(self, n: u64, gaps: bool) -> Self {
        debug_assert!(!self.is_closed());
        Self(self.position().wrapping_add(n * ONE) | if gaps { GAPS } else { 0 })
    }
}

/// The word of the grants. The caller of a method gives the ordering.
pub(super) struct AtomicGrant(pub(super) AtomicU64);

impl AtomicGrant {
    const_unless_model! {
        pub(super) const fn granting(tickets: u32) -> Self {
            Self(AtomicU64::new(tickets as u64 * ONE))
        }
    }

    #[inline(always)]
    #[track_caller]
    pub(super) fn load(&self, order: Ordering) -> Grant {
        Grant(self.0.load(order))
    }

    #[inline(always)]
    #[track_caller]
    pub(super) fn compare_exchange(&self, old: Grant, new: Grant, ok: Ordering, err: Ordering) -> Result<Grant, Grant> {
        self.0.compare_exchange(old.0, new.0, ok, err).map(Grant).map_err(Grant)
    }

    #[inline(always)]
    #[track_caller]
    pub(super) fn compare_exchange_weak(
        &self,
        old: Grant,
        new: Grant,
        ok: Ordering,
        err: Ordering,
    ) -> Result<Grant, Grant> {
        self.0.compare_exchange_weak(old.0, new.0, ok, err).map(Grant).map_err(Grant)
    }

    /// A waiter that gives up sets GAPS. Returns the state before.
    #[track_caller]
    pub(super) fn set_gaps(&self, order: Ordering) -> Grant {
        Grant(self.0.fetch_or(GAPS, order))
    }

    /// A waiter that has left no gap clears GAPS: there are no other gaps.
    #[track_caller]
    pub(super) fn clear_gaps(&self, order: Ordering) {
        self.0.fetch_and(!GAPS, order);
    }

    /// Closes the queue.
    #[track_caller]
    pub(super) fn close(&self, order: Ordering) {
        self.0.fetch_or(CLOSED, order);
    }
}
