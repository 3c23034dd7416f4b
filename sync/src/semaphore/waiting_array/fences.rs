//! The fences of the waiting protocols, by name, so that a model can leave one out and see what breaks.
//!
//! All of them stand in the middle of a store-buffering shape: each side writes, then reads what the other writes.
//!
//! | writes | fence | reads |
//! |---|---|---|
//! | waiter: pushes itself | [`after_push`] | its condition |
//! | polite signaller: the condition, before it is called | [`before_polite_look`] | whether anybody has pushed |
//! | taker: draws a ticket | [`after_ticket`] | the grant |
//! | poster that looks at the tickets: the grant, or a window | [`after_grant`] | the last ticket drawn |
//!
//! The first two are real: the condition is the user's, of whatever order; and the window of a capacitor, whose arrivals
//! draw and look as they like, relies on the first. In the last two all four accesses are sequentially consistent, but
//! for that window's arrivals, and only a model needs a fence: `docs/orderings.md`.

use sudog_runtime::shim;
use sudog_runtime::shim::Ordering;

/// Of the four accesses of a look at the tickets. In a model they leave it to the fences, or it could not do without
/// them.
pub(crate) const TOTAL_ORDER: Ordering = if cfg!(sudog_loom) { Ordering::AcqRel } else { Ordering::SeqCst };
/// The same for those that load.
pub(crate) const TOTAL_ORDER_LOAD: Ordering = if cfg!(sudog_loom) { Ordering::Acquire } else { Ordering::SeqCst };

#[inline(always)]
pub(crate) fn after_push() {
    if stands(Fence::AfterPush) {
        shim::full_fence();
    }
}

#[inline(always)]
pub(crate) fn before_polite_look() {
    if stands(Fence::BeforePoliteLook) {
        shim::full_fence();
    }
}

#[inline(always)]
pub(crate) fn after_ticket() {
    if stands(Fence::AfterTicket) {
        shim::dekker_fence();
    }
}

#[inline(always)]
pub(crate) fn after_grant() {
    if stands(Fence::AfterGrant) {
        shim::dekker_fence();
    }
}

/// The name of a fence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fence {
    /// Between a push and the look at the condition.
    AfterPush,
    /// Between the condition and the look for waiters.
    BeforePoliteLook,
    /// Between the drawing of a ticket and the look at the grant.
    AfterTicket,
    /// Between the grant and the look at the tickets.
    AfterGrant,
}

#[cfg(not(sudog_loom))]
#[inline(always)]
fn stands(_: Fence) -> bool {
    true
}

#[cfg(sudog_loom)]
use model::stands;
#[cfg(sudog_loom)]
pub use model::without;

#[cfg(sudog_loom)]
mod model {
    use super::Fence;
    use std::cell::Cell;

    // All threads of a model run on the thread of its test.
    thread_local!(static MISSING: Cell<Option<Fence>> = const { Cell::new(None) });

    /// From now on, on this test's models, this fence is missing.
    pub fn without(fence: Option<Fence>) {
        MISSING.set(fence);
    }

    pub(super) fn stands(fence: Fence) -> bool {
        MISSING.get() != Some(fence)
    }
}
