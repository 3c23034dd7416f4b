//! A parker for one wait: the owner waits, and another thread opens the parker, once.
//!
//! | state | set by | meaning |
//! |---|---|---|
//! | SHUT | the owner, at first | the owner is awake, and reads the state |
//! | PARKED | the owner: SHUT → PARKED | the owner sleeps, as the G that `sleeper` points to |
//! | OPEN | the opener: swap; a store, if the owner never sleeps | an opener that finds PARKED readies the G; otherwise the opener does not touch the parker again |
//!
//! An owner that gives up changes the state back, PARKED → SHUT. If the state is OPEN by then, an opener is about to
//! ready the owner, and the owner waits for that `ready`.

use std::ptr;

use sudog_runtime::shim::system;
use sudog_runtime::shim::{AtomicU32, Cell, Ordering};
use sudog_runtime::{G, Instant, ParkResult};

use super::policy::WaitPolicy;

const SHUT: u32 = 0;
const PARKED: u32 = 1;
const OPEN: u32 = 2;

pub(crate) struct OneShotParker {
    state: AtomicU32,
    /// The G of the owner. Written by the owner before PARKED, read by the opener after PARKED.
    sleeper: Cell<*const G>,
}

impl OneShotParker {
    sudog_runtime::const_unless_model! {
        pub(crate) const fn new() -> Self {
            Self { state: AtomicU32::new(SHUT), sleeper: Cell::new(ptr::null()) }
        }
    }

    /// Returns true if the parker has been opened. The caller then sees the earlier writes of the opener.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.state.load(Ordering::Acquire) == OPEN
    }

    /// Shuts the parker, so that the owner can use the parker again.
    pub(crate) fn shut(&self) {
        self.state.store(SHUT, Ordering::Relaxed);
    }

    /// Opens the parker. As soon as the parker is open, the owner may free it, even before this call returns.
    ///
    /// # Safety
    ///
    /// The parker is alive, and no other thread opens the parker.
    pub(crate) unsafe fn open(parker: *const Self) {
        // Release: the owner sees the opener's writes. Acquire: the opener sees `sleeper`.
        // SAFETY: by the contract of `open`, `parker` is alive; after this swap this thread uses the parker only if the
        // owner sleeps until this thread readies it.
        let before = unsafe { (*parker).state.swap(OPEN, Ordering::AcqRel) };
        debug_assert_ne!(before, OPEN, "opened once");
        if before == PARKED {
            // SAFETY: the owner was PARKED, so its G is alive and stays in `park` until this only `ready`.
            unsafe { G::ready((*parker).sleeper.get()) };
        }
    }

    /// Opens the parker of an owner that waits by the policy `P`. If such an owner never sleeps, a store is enough.
    ///
    /// # Safety
    ///
    /// The contract of [`OneShotParker::open`].
    #[inline]
    pub(crate) unsafe fn open_for<P: WaitPolicy>(parker: *const Self) {
        if P::PARKS {
            // SAFETY: the contract of `open` is that of `open_for`.
            unsafe { Self::open(parker) }
        } else {
            // SAFETY: by the contract of `open_for`, `parker` is alive; the parker is not used after this store.
            unsafe { (*parker).state.store(OPEN, Ordering::Release) }
        }
    }

    /// Waits until the parker is open (true) or until the deadline (false). Called by the owner only.
    pub(crate) fn wait<P: WaitPolicy>(&self, deadline: Option<Instant>) -> bool {
        let mut iter = 0;
        while !self.is_open() {
            // With `PARKS` false the waiter is never readied, so the waiter must not sleep even if `pass_time`
            // returns false.
            if !P::pass_time(iter) && P::PARKS {
                return self.park(deadline);
            }
            if !P::PARKS && is_over(deadline, iter) {
                return false;
            }
            iter = iter.wrapping_add(1);
        }
        true
    }

    fn park(&self, deadline: Option<Instant>) -> bool {
        let g = G::current();
        self.sleeper.set(&raw const g);
        // Release: an opener that finds PARKED sees `sleeper`. Acquire: if the parker is open already, the owner sees
        // the opener's writes.
        if self.state.compare_exchange(SHUT, PARKED, Ordering::Release, Ordering::Acquire).is_err() {
            return true;
        }
        g.park_queued(deadline, || (), || self.withdraw()) == ParkResult::Unparked
    }

    /// Changes the state PARKED → SHUT, unless the parker is open. Returns true if the state was changed.
    fn withdraw(&self) -> bool {
        self.state.compare_exchange(PARKED, SHUT, Ordering::Relaxed, Ordering::Acquire).is_ok()
    }
}

/// Returns true if a wait that never sleeps has reached its deadline. The clock is read only in some iterations:
/// reading the clock takes as long as several pauses.
#[inline]
pub(crate) fn is_over(deadline: Option<Instant>, iter: u32) -> bool {
    iter % 8 == 7 && deadline.is_some_and(|deadline| system::now() >= deadline)
}
