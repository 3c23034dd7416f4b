//! A gate: one waits before it, another opens it, once.
//!
//! | state | by | |
//! |---|---|---|
//! | SHUT | its owner, at first | the owner is awake, and looks |
//! | PARKED | its owner: SHUT → PARKED | the owner sleeps, as the G that the gate names |
//! | OPEN | the opener: swap; a store, if the owner never sleeps | whoever finds PARKED readies the G; otherwise it does not touch the gate again |
//!
//! An owner that gives up goes back, PARKED → SHUT. If the gate is open by then, `ready` is on its way, and is waited
//! for.

use std::ptr;

use sudog_runtime::shim::{AtomicU32, Cell, Ordering};
use sudog_runtime::{G, Instant, ParkResult};

use super::policy::WaitPolicy;

const SHUT: u32 = 0;
const PARKED: u32 = 1;
const OPEN: u32 = 2;

pub(crate) struct Gate {
    state: AtomicU32,
    /// Written by the owner before PARKED, read by the opener after it.
    sleeper: Cell<*const G>,
}

impl Gate {
    sudog_runtime::const_unless_model! {
        pub(crate) const fn new() -> Self {
            Self { state: AtomicU32::new(SHUT), sleeper: Cell::new(ptr::null()) }
        }
    }

    /// Whether it has been opened. What the opener did before, the caller sees.
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
    /// The gate is alive, and nobody else opens it.
    pub(crate) unsafe fn open(gate: *const Self) {
        // Release: the owner sees what we did. Acquire: we see its `sleeper`.
        // SAFETY: alive, by the contract; not used after this swap unless its owner sleeps until it is readied.
        let before = unsafe { (*gate).state.swap(OPEN, Ordering::AcqRel) };
        debug_assert_ne!(before, OPEN, "a gate is opened once");
        if before == PARKED {
            // SAFETY: the owner is in `park` and will not leave it before this one `ready`.
            unsafe { G::ready((*gate).sleeper.get()) };
        }
    }

    /// [`Gate::open`], for an owner that waits as `P` says: one that never sleeps needs no more than a store.
    ///
    /// # Safety
    ///
    /// As for [`Gate::open`].
    #[inline]
    pub(crate) unsafe fn open_for<P: WaitPolicy>(gate: *const Self) {
        if P::PARKS {
            // SAFETY: the same contract.
            unsafe { Self::open(gate) }
        } else {
            // SAFETY: alive, by the contract; not used after this store.
            unsafe { (*gate).state.store(OPEN, Ordering::Release) }
        }
    }

    /// Waits until it is open (true) or until the deadline (false). By its owner.
    ///
    /// A goroutine that is given up leaves this by a panic; nobody has a reference to its G then.
    pub(crate) fn wait<P: WaitPolicy>(&self, deadline: Option<Instant>) -> bool {
        let mut iter = 0;
        while !self.is_open() {
            // One that never sleeps is not readied either, so a policy that says both is not taken at its second word.
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
        // Release: whoever finds PARKED sees the sleeper. Acquire: open already.
        if self.state.compare_exchange(SHUT, PARKED, Ordering::Release, Ordering::Acquire).is_err() {
            return true;
        }
        let sleeping = Sleeping { gate: self, g: &g };
        let mut open = g.park(deadline, || ()) == ParkResult::Unparked;
        if !open && !self.withdraw() {
            g.park(None, || ()); // it is being opened
            open = true;
        }
        std::mem::forget(sleeping);
        open
    }

    /// PARKED → SHUT, unless it is open.
    fn withdraw(&self) -> bool {
        self.state.compare_exchange(PARKED, SHUT, Ordering::Relaxed, Ordering::Acquire).is_ok()
    }
}

/// Whether a wait that never sleeps has come to its deadline. The clock is read at times only: that takes as long as
/// some pauses.
#[inline]
pub(crate) fn is_over(deadline: Option<Instant>, iter: u32) -> bool {
    iter % 8 == 7 && deadline.is_some_and(|deadline| Instant::now() >= deadline)
}

/// A goroutine that sleeps before a gate. Dropped when it is unwound there.
struct Sleeping<'a> {
    gate: &'a Gate,
    g: &'a G,
}

impl Drop for Sleeping<'_> {
    #[cold]
    fn drop(&mut self) {
        if !self.gate.withdraw() {
            self.g.await_ready();
        }
    }
}
