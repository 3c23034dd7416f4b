//! The state word of a weighted semaphore, and with it the protocol of the word and of the line of waiters.
//!
//! ```text
//!   63        62                                     0
//!  ┌─────────┬────────────────────────────────────────┐
//!  │ WAITERS │ held: tokens that have been acquired   │      the line, under a lock:
//!  └─────────┴────────────────────────────────────────┘        Waiter ⇄ Waiter ⇄ ... ⇄ Waiter    each on its waiter's stack,
//!                                                               first                   last      with a counter to wait on
//! ```
//!
//! | step | actor | condition | transition | the word | then |
//! |---|---|---|---|---|---|
//! | take | an acquire | no `WAITERS`; its tokens are free | `take` | `held +=` its tokens | |
//! | give back | a release | no `WAITERS` | `give_back` | `held -=` its tokens | |
//! | join | an acquire that must wait, for at most `size` tokens, under the lock | | `add_waiters` | `WAITERS` | a `Waiter` at the end; waits for a permit on its own counter |
//! | grant | a release, under the lock | `WAITERS` | to `after_grant` | `held -=` its tokens; while the first in line fits: `held +=` the first's tokens; no `WAITERS` if no waiter is left | unlinks these waiters, sets `granted`; unlocks; gives a permit to each |
//! | leave | a waiter whose limit has come, under the lock | the waiter is not `granted` | to `after_grant` | as for a grant | unlinks itself. If the waiter was `granted`: takes its permit, which is there or on its way |
//!
//! * While the lock is free, `WAITERS` is set if and only if the line is not empty. The flag is set by a
//!   compare-exchange, because any take or release may come in between. While the flag is set, only the holder of the
//!   lock writes the word, by plain stores.
//! * While `WAITERS` is set, the tokens of the first waiter are not free. So only an acquire that finds no waiters
//!   takes tokens, and a waiter that leaves from behind the first changes nothing for the other waiters.
//! * A `Waiter` is freed when the waiter has taken its permit, or has left. So the thread that gives the permit does
//!   not access the `Waiter` afterwards, and a waiter that has been `granted` must not return before taking that
//!   permit.
//!
//! Orderings. Everything before a release happens before everything after an acquire that gets its tokens: a release
//! writes the word with Release, a take reads the word with Acquire, and the compare-exchanges in between belong to the
//! same release sequence. Plain stores break that sequence. So a holder of the lock that stores must come after
//! everything in the sequence. It does: `WAITERS` was set before, by a holder of the lock, with Acquire. A grant passes
//! this order on by its permit.
//!
//! An acquire that takes the tokens of a release must see a cancel that came before that release (Go's issue 63615).
//! So an acquire that has its tokens looks for a cancel once more, and gives the tokens back if there is a cancel.
//!
//! Source: `golang.org/x/sync/semaphore` of 2026-02, which has a mutex around each step.

use std::sync::atomic::Ordering;

use sudog_runtime::AtomicU64;
use sudog_runtime::const_unless_model;

/// The flag that says that the line is not empty. The flag is larger than any number of tokens.
const WAITERS: u64 = 1 << 63;

/// The value of the state word.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct State(u64);

/// Predicates.
impl State {
    /// No token is held, and the line is empty.
    pub(super) const UNUSED: Self = Self(0);

    /// Returns the state after a grant: `held` tokens are held, and `has_waiters` says whether the line has waiters
    /// left.
    #[inline]
    pub(super) const fn after_grant(held: u64, has_waiters: bool) -> Self {
        Self(held | if has_waiters { WAITERS } else { 0 })
    }

    #[inline]
    pub(super) const fn has_waiters(self) -> bool {
        self.0 & WAITERS != 0
    }

    /// Returns the number of tokens that have been acquired.
    #[inline]
    pub(super) const fn held(self) -> u64 {
        self.0 & !WAITERS
    }

    /// Returns whether a newcomer may take `tokens` tokens of `size`: the tokens are free, and there are no waiters.
    #[inline]
    pub(super) fn has_room(self, tokens: u64, size: u64) -> bool {
        // A word with `WAITERS` is larger than any size, so the subtraction fails.
        size.checked_sub(self.0).is_some_and(|free| tokens <= free)
    }
}

/// Transitions: from the state that they are called on, to the state that they return.
impl State {
    /// A newcomer takes tokens, for which there is room.
    #[inline]
    pub(super) const fn take(self, tokens: u64) -> Self {
        Self(self.0 + tokens)
    }

    /// A release gives tokens back, while there are no waiters. Returns `None` if fewer tokens are held.
    #[inline]
    pub(super) fn give_back(self, tokens: u64) -> Option<Self> {
        self.0.checked_sub(tokens).map(Self)
    }

    /// An acquirer, which holds the lock, is about to join the empty line.
    #[inline]
    pub(super) const fn add_waiters(self) -> Self {
        Self(self.0 | WAITERS)
    }
}

/// The state word. The caller of a method gives the ordering, and is the place that the models name.
pub(super) struct AtomicState(AtomicU64);

impl AtomicState {
    const_unless_model! {
        pub(super) const fn new() -> Self {
            Self(AtomicU64::new(State::UNUSED.0))
        }
    }

    #[inline(always)]
    #[track_caller]
    pub(super) fn load(&self, order: Ordering) -> State {
        State(self.0.load(order))
    }

    #[inline(always)]
    #[track_caller]
    pub(super) fn store(&self, state: State, order: Ordering) {
        self.0.store(state.0, order);
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
}

#[cfg(all(test, not(sudog_loom)))]
mod tests {
    use super::*;

    const MAX_SIZE: u64 = super::super::Weighted::MAX_SIZE;

    fn fields(state: State) -> (u64, bool) {
        (state.held(), state.has_waiters())
    }

    #[test]
    fn tokens_are_taken_and_given_back() {
        for size in [0, 1, 5, MAX_SIZE] {
            let full = State::UNUSED.take(size);
            assert_eq!(fields(full), (size, false));
            assert!(State::UNUSED.has_room(size, size) && !State::UNUSED.has_room(size + 1, size));
            assert!(full.has_room(0, size) && !full.has_room(1, size));
            assert!(full.give_back(size) == Some(State::UNUSED));
            assert!(full.give_back(size + 1).is_none());
        }
        let state = State::UNUSED.take(3).give_back(1).unwrap();
        assert_eq!(fields(state), (2, false));
        assert!(state.has_room(3, 5) && !state.has_room(4, 5));
    }

    #[test]
    fn newcomers_have_no_room_while_there_are_waiters() {
        for size in [0, 1, MAX_SIZE] {
            for held in [0, size] {
                let state = State::UNUSED.take(held).add_waiters();
                assert_eq!(fields(state), (held, true));
                assert!(!state.has_room(0, size));
                assert!(state == State::after_grant(held, true));
                assert!(State::after_grant(held, false) == State::UNUSED.take(held));
            }
        }
    }
}
