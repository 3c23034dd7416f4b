//! The word of a sliding window.
//!
//! ```text
//!   63                      32     31      30                    1   0
//!  ┌──────────────────────────┬──────────┬─────────────────────────────┐
//!  │ base                     │ OVERFLOW │ departed, by distance       │
//!  └──────────────────────────┴──────────┴─────────────────────────────┘
//! ```
//!
//! | part | means | changed by |
//! |---|---|---|
//! | base | the first ticket that has not departed | a departure, upwards only |
//! | OVERFLOW | the list of tickets that departed without a bit is not empty: the word changes under the lock of the list only | a departure under the lock |
//! | bit `i` of the rest | ticket `base + i` has departed; bit 0 is never set | the departure of the ticket sets the bit; a move of the base shifts all bits |
//!
//! Tickets wrap: two tickets are compared by their difference.

use sudog_runtime::const_unless_model;
use sudog_runtime::shim::{AtomicU64, Ordering};

/// The number of bits of the window for departed tickets. A model has two bits, so that a ticket can be too far from
/// the base for a bit.
pub(super) const SPAN: u32 = if cfg!(sudog_loom) { 2 } else { 31 };
const OVERFLOW: u64 = 1 << 31;
const BITS: u64 = (1 << SPAN) - 1;

/// The value of the word.
#[derive(Clone, Copy)]
pub(super) struct Window(u64);

/// Predicates.
impl Window {
    /// Returns the first ticket that has not departed.
    #[inline]
    pub(super) const fn base(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Returns the distance of a ticket from the base.
    #[inline]
    pub(super) const fn distance(self, ticket: u32) -> u32 {
        ticket.wrapping_sub(self.base())
    }

    #[inline]
    pub(super) const fn has_overflow(self) -> bool {
        self.0 & OVERFLOW != 0
    }

    /// Returns whether the bit of this ticket is set. Returns false if the ticket is too far from the base for a bit.
    #[inline]
    pub(super) const fn has_departed(self, ticket: u32) -> bool {
        let at = self.distance(ticket);
        at < SPAN && self.0 & 1 << at != 0
    }

    /// Returns whether the ticket can depart by a compare-exchange without the lock.
    #[inline]
    pub(super) const fn departs_by_bit(self, ticket: u32) -> bool {
        let at = self.distance(ticket);
        !self.has_overflow() && at < SPAN && self.0 & 1 << at == 0
    }

    /// Returns the number of tickets that must be admitted before this ticket, under this bypass limit. Returns `None`
    /// if this ticket is admitted.
    #[inline]
    pub(super) const fn ahead_of(self, ticket: u32, limit: u32) -> Option<u32> {
        let ahead = ticket.wrapping_sub(self.base().wrapping_add(limit));
        if ahead as i32 >= 0 { Some(ahead) } else { None }
    }
}

/// Transitions: from the state that they are called on, to the state that they return, and the distance by which the
/// base has moved.
impl Window {
    /// The `n` tickets from `ticket` on depart, which have bits. OVERFLOW is clear.
    #[inline]
    pub(super) fn depart(self, ticket: u32, n: u32) -> (Self, u32) {
        let at = self.distance(ticket);
        debug_assert!(!self.has_overflow() && at + n <= SPAN);
        let bits = ((1 << n) - 1) << at;
        debug_assert!(self.0 & bits == 0, "a ticket departs once");
        Self::moved(self.base(), self.0 & BITS | bits)
    }

    /// The `n` tickets from the base on depart. If they are more than have bits, none of the others has a bit that is
    /// set.
    pub(super) fn depart_at_base(self, n: u32) -> (Self, u32) {
        let (new, further) = Self::moved(self.base().wrapping_add(n), (self.0 & BITS).checked_shr(n).unwrap_or(0));
        (new, n + further)
    }

    /// Moves the window with this base and these bits past the departed tickets at the base. `bits` may have more bits
    /// than fit into a window.
    #[inline]
    fn moved(base: u32, bits: u64) -> (Self, u32) {
        let by = bits.trailing_ones();
        (Self(u64::from(base.wrapping_add(by)) << 32 | bits.checked_shr(by).unwrap_or(0)), by)
    }

    /// Sets OVERFLOW, or clears it.
    pub(super) const fn with_overflow(self, is_set: bool) -> Self {
        Self(self.0 & !OVERFLOW | if is_set { OVERFLOW } else { 0 })
    }
}

/// The word. The caller of a method gives the ordering.
pub(super) struct AtomicWindow(AtomicU64);

impl AtomicWindow {
    const_unless_model! {
        pub(super) const fn beginning(at: u32) -> Self {
            Self(AtomicU64::new((at as u64) << 32))
        }
    }

    #[inline(always)]
    #[track_caller]
    pub(super) fn load(&self, order: Ordering) -> Window {
        Window(self.0.load(order))
    }

    #[inline(always)]
    #[track_caller]
    pub(super) fn compare_exchange(
        &self,
        old: Window,
        new: Window,
        ok: Ordering,
        err: Ordering,
    ) -> Result<Window, Window> {
        self.0.compare_exchange(old.0, new.0, ok, err).map(Window).map_err(Window)
    }

    #[inline(always)]
    #[track_caller]
    pub(super) fn compare_exchange_weak(
        &self,
        old: Window,
        new: Window,
        ok: Ordering,
        err: Ordering,
    ) -> Result<Window, Window> {
        self.0.compare_exchange_weak(old.0, new.0, ok, err).map(Window).map_err(Window)
    }
}
