//! The state word of a wait group, and with it the protocol of the word, of the field `first`, which names the first
//! waiter, and of the semaphore's permits, for the other waiters.
//!
//! ```text
//!   63                              32   31    30                      0
//!  ┌──────────────────────────────────┬───────┬─────────────────────────┐
//!  │ counter (signed): tasks to do    │ FIRST │ waiters in the line     │
//!  └──────────────────────────────────┴───────┴─────────────────────────┘
//! ```
//!
//! | step | actor | transition | then |
//! |---|---|---|---|
//! | `counter += delta` | `add` | `add` | nothing, if there are no waiters or tasks are left |
//! | the word becomes 0. If `FIRST` was set, `first` becomes null, and the waiter that `first` named is readied. Then each other waiter is granted a permit, which no newcomer can take | the `add` that has made the counter 0, with waiters | to `OVER` | all waiters return |
//! | `first` changes from null to the waiter's G; then `FIRST` is set | a `wait` without limit that finds tasks | `add_first` | the waiter sleeps |
//! | `waiters += 1`, then the waiter takes a permit | a `wait` that finds tasks, and that finds `first` taken, has a limit, or is an async task's | `add_waiter` | |
//! | `waiters -= 1`; or the waiter takes its permit, if the word is 0 | a `wait` that is out of time or cancelled, or a future that is dropped | `remove_waiter` | |
//!
//! Most groups have a single waiter, without a deadline. `first` saves that waiter the semaphore's table.
//!
//! * Only the waiter that `first` names sets the flag `FIRST`, after the waiter has stored its G in `first`. From then
//!   on, only one step sets `first` to null: that of the `add` that makes the word 0, and has read `FIRST` in the word.
//!   So an `add` that has read `FIRST` finds the G.
//! * The G stays alive for as long as `first` names the G: the waiter has no limit, and leaves only when the `add` has
//!   readied the waiter.
//!
//! While the counter is 0 and waiters are left, only the `add` that has made the counter 0 may change the word: any
//! other change is a misuse of the group, which the next step detects.
//!
//! The group may be freed as soon as all waiters have seen that no task is left. So an `add` that makes the counter 0
//! does not touch the group again if there are no waiters. With waiters, the `add` does not touch the group once the
//! last of the waiters has been given its permit.
//!
//! Orderings: an `add` is a Release, and all changes of the word are RMWs. So a thread that reads with Acquire that the
//! counter is 0 comes after everything that was done before the `add`s. Such a thread is a waiter, or runs the `add`
//! that wakes the waiters. The semaphore passes that order on to its waiters, and `ready` passes the order on to the
//! first waiter. `FIRST` is set with Release and read with Acquire, so the `add` reads the G that `first` names.
//! `first` becomes null with Release, and a new waiter stores its G with Acquire, so that store comes after the `add`.
//!
//! Source: Go's `sync/waitgroup.go`, in the development tree of 1.28.

use std::sync::atomic::Ordering;

use sudog_runtime::AtomicU64;
use sudog_runtime::const_unless_model;

/// The amount by which a waiter in the line increases the word.
const WAITER: u64 = 1;
/// If set, `first` names a waiter, and the `add` that makes the counter 0 must ready that waiter.
const FIRST: u64 = 1 << 31;
/// The position of the counter.
const COUNTER: u32 = 32;

/// The value of the state word.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct State(u64);

/// Predicates.
impl State {
    /// No tasks, no waiters.
    pub(super) const OVER: Self = Self(0);

    /// Returns the number of tasks to do. Negative only after a misuse.
    #[inline]
    pub(super) const fn counter(self) -> i32 {
        (self.0 >> COUNTER) as i32
    }

    /// True if the counter is not 0.
    #[inline]
    pub(super) const fn has_tasks(self) -> bool {
        self.counter() != 0
    }

    /// True if a waiter is in the line, or `first` names a waiter.
    #[inline]
    pub(super) const fn has_waiters(self) -> bool {
        self.0 as u32 != 0
    }

    #[inline]
    pub(super) const fn has_first(self) -> bool {
        self.0 & FIRST != 0
    }

    /// Returns the number of waiters in the line: without the waiter that `first` names.
    #[inline]
    pub(super) const fn in_line(self) -> u32 {
        (self.0 & (FIRST - 1)) as u32
    }

    /// True if the count has no room for another waiter.
    #[inline]
    pub(super) const fn is_full(self) -> bool {
        self.in_line() as u64 == FIRST - 1
    }
}

/// Transitions: from the state that they are called on, to the state that they return.
impl State {
    /// A waiter that has stored its G in `first` sets `FIRST`.
    #[inline]
    pub(super) const fn add_first(self) -> Self {
        Self(self.0 + FIRST)
    }

    /// Counts a waiter, which is about to wait in the line.
    #[inline]
    pub(super) const fn add_waiter(self) -> Self {
        Self(self.0 + WAITER)
    }

    /// Counts off a waiter in the line that gives up.
    #[inline]
    pub(super) const fn remove_waiter(self) -> Self {
        Self(self.0 - WAITER)
    }
}

/// The state word. The caller of a method gives the ordering, and is the place that the models name.
pub(super) struct AtomicState(AtomicU64);

impl AtomicState {
    const_unless_model! {
        pub(super) const fn new() -> Self {
            Self(AtomicU64::new(State::OVER.0))
        }
    }

    #[inline(always)]
    #[track_caller]
    pub(super) fn load(&self, order: Ordering) -> State {
        State(self.0.load(order))
    }

    #[inline(always)]
    #[track_caller]
    pub(super) fn compare_exchange(&self, old: State, new: State, ok: Ordering, err: Ordering) -> Result<State, State> {
        self.0.compare_exchange(old.0, new.0, ok, err).map(State).map_err(State)
    }

    #[inline(always)]
    #[track_caller]
    pub(super) fn compare_exchange_weak(
        &self,
        old: State,
        new: State,
        ok: Ordering,
        err: Ordering,
    ) -> Result<State, State> {
        self.0.compare_exchange_weak(old.0, new.0, ok, err).map(State).map_err(State)
    }

    /// Adds `delta` tasks, which may be negative, and returns the state after that.
    #[inline(always)]
    #[track_caller]
    pub(super) fn add(&self, delta: i32, order: Ordering) -> State {
        let change = u64::from(delta as u32) << COUNTER;
        State(self.0.fetch_add(change, order).wrapping_add(change))
    }
}

#[cfg(all(test, not(sudog_loom)))]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;

    /// The counter, the flag of the first waiter, and the waiters in the line.
    fn fields(state: State) -> (i32, bool, u32) {
        assert_eq!(state.has_tasks(), state.counter() != 0);
        assert_eq!(state.has_waiters(), state.has_first() || state.in_line() != 0);
        (state.counter(), state.has_first(), state.in_line())
    }

    fn add(state: State, delta: i32) -> State {
        let word = AtomicState(AtomicU64::new(state.0));
        let after = word.add(delta, Relaxed);
        assert!(word.load(Relaxed) == after, "a step returns the state after");
        after
    }

    #[test]
    fn each_transition_changes_its_own_field() {
        assert_eq!(fields(State::OVER), (0, false, 0));
        for counter in [0, 1, -1, i32::MAX, i32::MIN] {
            let group = add(State::OVER, counter);
            assert_eq!(fields(group), (counter, false, 0));
            assert_eq!(fields(group.add_first()), (counter, true, 0));
            for state in [group, group.add_first()] {
                let first = state.has_first();
                let waited_for = state.add_waiter().add_waiter();
                assert_eq!(fields(waited_for), (counter, first, 2));
                assert_eq!(fields(waited_for.remove_waiter()), (counter, first, 1));
                for delta in [1, -1] {
                    assert_eq!(fields(add(waited_for, delta)), (counter.wrapping_add(delta), first, 2));
                }
                assert_eq!(fields(add(waited_for, counter.wrapping_neg())), (0, first, 2));
            }
        }
    }

    #[test]
    fn the_line_has_a_limit() {
        let most = State(FIRST - 2);
        assert!(!most.is_full() && !most.has_first());
        for full in [most.add_waiter(), most.add_waiter().add_first()] {
            assert!(full.is_full());
            assert_eq!((full.in_line(), full.counter()), (i32::MAX as u32, 0));
        }
    }
}
