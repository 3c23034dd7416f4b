//! A parker for one wait: its owner waits, another thread opens it, once.
//!
//! | state | set by | meaning |
//! |---|---|---|
//! | SHUT | its owner, at first | the owner is awake, and reads the state |
//! | PARKED | its owner: SHUT → PARKED | the owner sleeps, as the G that `sleeper` points to |
//! | OPEN | the opener: swap; a store, if the owner never sleeps | an opener that finds PARKED readies the G; otherwise it does not touch the parker again |
//!
//! An owner that gives up goes back, PARKED → SHUT. If the state is OPEN by then, `ready` is under way, and the owner
//! waits for it.

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
    /// Written by the owner before PARKED, read by the opener after it.
    sleeper: Cell<*const G>,
}

impl OneShotParker {
    sudog_runtime::const_unless_model! {
        pub(crate) const fn new() -> Self {
            Self { state: AtomicU32::new(SHUT), sleeper: Cell::new(ptr::null()) }
        }
    }

    /// True if it has been opened. The caller sees what the opener wrote before.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.state.load(Ordering::Acquire) == OPEN
    }

    /// For the owner, to use it again.
    pub(crate) fn shut(&self) {
        self.state.store(SHUT, Ordering::Relaxed);
    }

    /// Opens it. Its owner may free it before this returns.
    ///
    /// # Safety
    ///
    /// The parker is alive, and no other thread opens it.
    pub(crate) unsafe fn open(parker: *const Self) {
        // Release: the owner sees the opener's writes. Acquire: the opener sees `sleeper`.
        // SAFETY: alive, by the contract; not used after this swap unless its owner sleeps until it is readied.
        let before = unsafe { (*parker).state.swap(OPEN, Ordering::AcqRel) };
        debug_assert_ne!(before, OPEN, "opened once");
        if before == PARKED {
            // SAFETY: the owner is in `park` and will not leave it before this one `ready`.
            unsafe { G::ready((*parker).sleeper.get()) };
        }
    }

    /// [`OneShotParker::open`], for an owner that waits as `P` says: for one that never sleeps a store is enough.
    ///
    /// # Safety
    ///
    /// As for [`OneShotParker::open`].
    #[inline]
    pub(crate) unsafe fn open_for<P: WaitPolicy>(parker: *const Self) {
        if P::PARKS {
            // SAFETY: the same contract.
            unsafe { Self::open(parker) }
        } else {
            // SAFETY: alive, by the contract; not used after this store.
            unsafe { (*parker).state.store(OPEN, Ordering::Release) }
        }
    }

    /// Waits until it is open (true) or until the deadline (false). For its owner.
    pub(crate) fn wait<P: WaitPolicy>(&self, deadline: Option<Instant>) -> bool {
        let mut iter = 0;
        while !self.is_open() {
            // With `PARKS` false the waiter is never readied, so it must not sleep even if `pass_time` returns false.
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
        // Release: an opener that finds PARKED sees the sleeper. Acquire: open already.
        if self.state.compare_exchange(SHUT, PARKED, Ordering::Release, Ordering::Acquire).is_err() {
            return true;
        }
        g.park_queued(deadline, || (), || self.withdraw()) == ParkResult::Unparked
    }

    /// PARKED → SHUT, unless it is open.
    fn withdraw(&self) -> bool {
        self.state.compare_exchange(PARKED, SHUT, Ordering::Relaxed, Ordering::Acquire).is_ok()
    }
}

/// True if a wait that never sleeps has reached its deadline. The clock is read only sometimes: that takes as long as
/// several pauses.
#[inline]
pub(crate) fn is_over(deadline: Option<Instant>, iter: u32) -> bool {
    iter % 8 == 7 && deadline.is_some_and(|deadline| system::now() >= deadline)
}
