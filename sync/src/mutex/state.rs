//! The mutex's state word, and with it the whole protocol.
//!
//! ```text
//!   31                          3      2         1       0
//!  ┌─────────────────────────────┬──────────┬───────┬────────┐
//!  │ waiters                     │ STARVING │ WOKEN │ LOCKED │
//!  └─────────────────────────────┴──────────┴───────┴────────┘
//! ```
//!
//! The *designated waker* is the contender that holds WOKEN. Under [`SpinStrategy::Successor`], on threads, the
//! designated waker is the *successor*, which watches the mutex, and claims the mutex by STARVING.
//!
//! | flag | set means | set by | cleared by |
//! |---|---|---|---|
//! | LOCKED | the mutex has an owner | the contender that locks it | the owner's unlock |
//! | WOKEN | a designated waker is awake and will retry: unlocks wake no waiter | an unlock, for the waiter that is woken; a contender, for itself; a successor that claimed the mutex leaves WOKEN set, for the next waiter | the designated waker, as it locks, sleeps or gives up |
//! | STARVING | newcomers may not lock: the mutex is promised | the designated waker, when it has waited too long; a contender whose threshold is 0, if there is no designated waker | the contender that is given the promised mutex; a designated waker that gives up; the last waiter that leaves |
//! | waiters | the number of contenders that sleep, or are about to | a contender, before it sleeps | normal mode: the unlock that wakes a waiter; starvation mode: the woken waiter itself, or a successor, for the next waiter; in both: a waiter that gives up |
//!
//! | an unlock leaves | the mutex goes |
//! |---|---|
//! | waiters, neither WOKEN nor STARVING | to any contender: the unlock wakes a waiter, with WOKEN set for that waiter, and the waiter competes |
//! | WOKEN, not STARVING | to any contender: the designated waker is awake |
//! | STARVING, not WOKEN | to the first waiter: the semaphore hands the mutex over (LOCKED stays clear; STARVING alone keeps others out) |
//! | STARVING and WOKEN | to the successor, which is awake and watches |
//!
//! Invariants:
//!
//! * At most one contender holds WOKEN.
//! * Only the designated waker sets STARVING, or, if there is none, a contender that starves from the start.
//! * STARVING implies a waiter, or WOKEN.
//! * In normal mode, the sleeping contenders are as many as `waiters` plus the permits released. In starvation mode
//!   they are as many as `waiters`, and a permit is released if and only if LOCKED and WOKEN are clear.
//!
//! Threads, goroutines and async tasks contend for the same mutex in different ways: threads by [`Policy::STRATEGY`],
//! goroutines by [`Policy::GOROUTINE_STRATEGY`], which spins or does nothing, and tasks do nothing while they are
//! awake. The tables need not tell them apart, because:
//!
//! * A contender takes WOKEN by a step from a state without WOKEN; or an unlock, or a successor, gives WOKEN to the
//!   waiter that is woken. So there is a single designated waker, of whatever kind.
//! * A spinning contender and a successor use STARVING differently. A spinning contender sets STARVING in the step in
//!   which it goes to sleep, and WOKEN is clear after that step: the mutex goes to the first waiter. A successor sets
//!   STARVING while awake, and keeps WOKEN: the mutex is the successor's to take. So STARVING with WOKEN always means
//!   an awake successor, and STARVING without WOKEN the first waiter, of whatever kind.
//! * While STARVING is set no contender takes WOKEN: contenders take WOKEN from states without STARVING only. So the
//!   waiter that is handed the mutex finds WOKEN clear. That waiter ends the mode by the rule of its kind. A spinning
//!   contender ends the mode unless it has waited too long, or in any case if a worker sleeps and the policy says so. A
//!   thread whose strategy is the successor's always ends the mode.
//! * The waiter that a successor wakes may be of any kind: that waiter finds normal mode, and holds WOKEN.
//!
//! Source: Go's `internal/sync/mutex.go`, in the development tree of 1.28; `SpinStrategy::Successor`, deadlines and the
//! closed steal window are ours. The designated waker is abseil's. `docs/orderings.md` argues the orderings: in short,
//! a single word decides everything, so coherence orders all steps; `Acquire` on the step that takes the mutex and
//! `Release` on the step that frees the mutex order the data.

use std::sync::atomic::Ordering;

use sudog_runtime::AtomicU32;
use sudog_runtime::const_unless_model;

#[cfg(doc)]
use super::policy::{Policy, SpinStrategy};

const LOCKED: u32 = 1;
const WOKEN: u32 = 2;
const STARVING: u32 = 4;
const WAITER: u32 = 8;

/// The value of the state word.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct State(pub(super) u32);

/// Predicates.
impl State {
    /// No owner, no waiter, no flag.
    pub(super) const UNLOCKED: Self = Self(0);

    pub(super) const MAX_WAITERS: u32 = u32::MAX / WAITER;

    #[inline]
    pub(super) const fn is_locked(self) -> bool {
        self.0 & LOCKED != 0
    }

    #[inline]
    pub(super) const fn is_woken(self) -> bool {
        self.0 & WOKEN != 0
    }

    #[inline]
    pub(super) const fn is_starving(self) -> bool {
        self.0 & STARVING != 0
    }

    #[inline]
    pub(super) const fn waiters(self) -> u32 {
        self.0 / WAITER
    }

    #[inline]
    pub(super) const fn has_waiters(self) -> bool {
        self.waiters() != 0
    }

    /// True if so many contenders sleep that a delay of a handoff delays the whole queue by milliseconds.
    #[inline]
    pub(super) const fn is_crowded(self) -> bool {
        const MANY: u32 = 32;
        self.waiters() >= MANY
    }

    /// True if the count has no room for another waiter.
    #[inline]
    pub(super) const fn is_full(self) -> bool {
        self.waiters() == Self::MAX_WAITERS
    }

    /// True if the mutex is free and not promised: a newcomer may lock.
    #[inline]
    pub(super) const fn is_lockable(self) -> bool {
        self.0 & (LOCKED | STARVING) == 0
    }

    /// True if [`State::is_lockable`] returns true; or if the mutex is free and promised, and the contender is the
    /// designated waker: with both flags set, the mutex is promised to the designated waker.
    #[inline]
    pub(super) const fn is_lockable_by(self, designated: bool) -> bool {
        self.0 & LOCKED == 0 && (self.0 & STARVING == 0 || designated)
    }

    /// True if the mutex is locked, and the next unlock leaves the mutex to any contender: spinning is worth the time.
    #[inline]
    pub(super) const fn is_locked_in_normal_mode(self) -> bool {
        self.0 & (LOCKED | STARVING) == LOCKED
    }

    /// True if the mutex is locked in normal mode, and neither a waiter nor a designated waker is there: a newcomer may
    /// become the successor.
    #[inline]
    pub(super) const fn wants_successor(self) -> bool {
        self.0 & (LOCKED | WOKEN | STARVING) == LOCKED && !self.has_waiters()
    }

    /// True if the mutex is free in normal mode, and the designated waker is awake: an unlock has nothing to do.
    #[inline]
    pub(super) const fn is_left_to_designated(self) -> bool {
        self.0 & (LOCKED | WOKEN | STARVING) == WOKEN
    }

    /// True if the mutex is free in normal mode, and all contenders sleep: an unlock must wake a waiter.
    #[inline]
    pub(super) const fn must_wake_waiter(self) -> bool {
        self.has_waiters() && self.0 & (LOCKED | WOKEN | STARVING) == 0
    }

    /// True if a permit for a sleeping contender has been released, or is about to be; provided that only that
    /// contender sleeps.
    ///
    /// Each sleeping contender is registered, or a permit for that contender is under way.
    #[inline]
    pub(super) const fn owes_permit_to_last_sleeper(self) -> bool {
        if self.is_starving() { self.waiters() == 1 && self.0 & (LOCKED | WOKEN) == 0 } else { self.waiters() == 0 }
    }

    /// True in starvation mode between the unlock and the step by which the first waiter accepts the mutex: the
    /// waiter's permit is released.
    #[inline]
    pub(super) const fn is_handed_over(self) -> bool {
        self.0 & (LOCKED | WOKEN | STARVING) == STARVING && self.has_waiters()
    }
}

/// Transitions: from the state that they are called on, to the state that they return.
impl State {
    /// A contender that is not the designated waker locks the free mutex.
    #[inline]
    pub(super) const fn lock(self) -> Self {
        Self(self.0 | LOCKED)
    }

    /// The designated waker locks the free mutex, and gives back WOKEN, and STARVING, if it has claimed the mutex.
    #[inline]
    pub(super) const fn lock_as_designated(self) -> Self {
        Self((self.0 | LOCKED) & !(WOKEN | STARVING))
    }

    /// A successor locks the mutex that it has claimed, and makes a waiter the designated waker: WOKEN stays set.
    #[inline]
    pub(super) const fn lock_and_designate_waiter(self) -> Self {
        Self(((self.0 | LOCKED) & !STARVING) - WAITER)
    }

    /// The first waiter locks the mutex that has been handed to it.
    #[inline]
    pub(super) const fn accept_handoff(self, ends_starvation: bool) -> Self {
        Self((self.0 - WAITER + LOCKED) & !if ends_starvation { STARVING } else { 0 })
    }

    /// An awake contender becomes the designated waker.
    #[inline]
    pub(super) const fn designate_self(self) -> Self {
        Self(self.0 | WOKEN)
    }

    /// An unlock makes a waiter the designated waker.
    #[inline]
    pub(super) const fn designate_waiter(self) -> Self {
        Self((self.0 - WAITER) | WOKEN)
    }

    /// An awake contender gives up. The designated waker gives back WOKEN and its claim, so the owner's unlock wakes
    /// the next waiter.
    #[inline]
    pub(super) const fn give_up(self, designated: bool) -> Self {
        Self(self.0 & !if designated { WOKEN | STARVING } else { 0 })
    }

    /// Registers a contender that is about to sleep. The contender gives back WOKEN if it is the designated waker, and
    /// turns on STARVING if `starve`.
    #[inline]
    pub(super) const fn register(self, designated: bool, starve: bool) -> Self {
        let starving = if starve { STARVING } else { 0 };
        Self(((self.0 + WAITER) | starving) & !if designated { WOKEN } else { 0 })
    }

    /// A waiter gives up. The last waiter ends starvation mode, unless a successor has claimed the mutex.
    #[inline]
    pub(super) const fn unregister(self) -> Self {
        let left = self.0 - WAITER;
        let is_last = left / WAITER == 0 && left & WOKEN == 0;
        Self(left & !if is_last { STARVING } else { 0 })
    }
}

/// The state word. The caller of a method gives the ordering.
pub(super) struct AtomicState(pub(super) AtomicU32);

impl AtomicState {
    const_unless_model! {
        pub(super) const fn new() -> Self {
            Self(AtomicU32::new(State::UNLOCKED.0))
        }
    }

    #[inline(always)]
    pub(super) fn load(&self, order: Ordering) -> State {
        State(self.0.load(order))
    }

    #[inline(always)]
    pub(super) fn compare_exchange(&self, old: State, new: State, ok: Ordering, err: Ordering) -> Result<State, State> {
        self.0.compare_exchange(old.0, new.0, ok, err).map(State).map_err(State)
    }

    #[inline(always)]
    pub(super) fn compare_exchange_weak(
        &self,
        old: State,
        new: State,
        ok: Ordering,
        err: Ordering,
    ) -> Result<State, State> {
        self.0.compare_exchange_weak(old.0, new.0, ok, err).map(State).map_err(State)
    }

    /// Claims the mutex for a successor that has watched for too long, and is awake. Returns the state after the claim.
    ///
    /// The mutex may be claimed whether locked or not, and while the successor holds WOKEN no other contender sets
    /// STARVING. So a single step suffices. A compare-exchange would fail for as long as owners lock and unlock between
    /// the successor's look and the exchange, which may be for milliseconds.
    #[inline]
    pub(super) fn claim(&self, order: Ordering) -> State {
        State(self.0.fetch_or(STARVING, order) | STARVING)
    }

    /// Clears LOCKED, and returns the state after that. If the mutex is unlocked, the subtraction borrows, and leaves
    /// LOCKED set.
    #[inline(always)]
    pub(super) fn unlock(&self, order: Ordering) -> State {
        State(self.0.fetch_sub(LOCKED, order).wrapping_sub(LOCKED))
    }
}
