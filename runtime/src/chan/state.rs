//! The word of a channel: its lock, and the state that the lock protects.
//!
//! ```text
//!   usize::BITS-1                        6      5         4          3           2          1        0
//!  ┌──────────────────────────────────────┬──────┬───────────┬─────────┬───────────┬────────┬────────┐
//!  │ len: how many values the channel has │ HELD │ RESERVERS │ SENDERS │ RECEIVERS │ CLOSED │ LOCKED │
//!  └──────────────────────────────────────┴──────┴───────────┴─────────┴───────────┴────────┴────────┘
//! ```
//!
//! | field | set means | set by | cleared by |
//! |---|---|---|---|
//! | LOCKED | the lock has an owner, and only the owner writes the word | the compare-exchange that takes the lock | the store that unlocks, and publishes the owner's state |
//! | CLOSED | the channel is closed | the first close | nothing |
//! | RECEIVERS, SENDERS, RESERVERS | the queue of this name is not empty | the owner that queues a waiter | the owner that takes the last waiter out, or that finds the queue empty |
//! | HELD | a task has been given a value, and has neither been polled nor been dropped since | the owner that gives a task a value | the owner that takes the last such value, or ends the last such hold |
//! | len | the number of values in the channel | the owner that adds a value | the owner that takes a value |
//!
//! Invariants:
//!
//! * A clear RECEIVERS, SENDERS or RESERVERS proves that the queue has no waiter. A set bit does not prove that a waiter
//!   can be served, because the claim of a queued waiter may be taken already (see `Claim`).
//! * CLOSED is never cleared, so a state for which [`State::is_at_its_end`] returns true is final.
//! * `len` does not count the values that tasks hold. A task may give its value back, so a closed channel has no more
//!   values only if HELD is clear, too.

use crate::shim::{AtomicUsize, Ordering};

use super::waiters::Dir;

const LOCKED: usize = 1;
const CLOSED: usize = 2;
const RECEIVERS: usize = 4;
const SENDERS: usize = 8;
const RESERVERS: usize = 16;
const HELD: usize = 32;
/// The amount by which a single value increases the word: the lowest bit of `len`.
const VALUE: usize = 64;

/// The state of a channel at one moment.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct State(usize);

/// Predicates.
impl State {
    /// An open channel without values and waiters, unlocked.
    pub(super) const EMPTY: Self = Self(0);

    /// The maximum number of values that the word can count.
    pub(super) const MAX_LEN: usize = usize::MAX / VALUE;

    #[inline]
    pub(super) fn is_locked(self) -> bool {
        self.0 & LOCKED != 0
    }

    #[inline]
    pub(super) fn is_closed(self) -> bool {
        self.0 & CLOSED != 0
    }

    /// Returns the number of values, without those that tasks hold.
    #[inline]
    pub(super) fn len(self) -> usize {
        self.0 / VALUE
    }

    /// Returns whether a queue may have a waiter.
    #[inline]
    pub(super) fn has_waiters(self, dir: Dir) -> bool {
        self.0 & bit(dir) != 0
    }

    /// Returns whether a waiter may want a place that has become free: a sender or a reserver.
    #[inline]
    pub(super) fn wants_room(self) -> bool {
        self.0 & (SENDERS | RESERVERS) != 0
    }

    /// Returns whether a receive must wait: the channel is open, there is neither a value nor a sender with a value,
    /// and no owner of the lock is about to change that.
    #[inline]
    pub(super) fn is_empty_for_certain(self) -> bool {
        self.0 & !(RECEIVERS | RESERVERS | HELD) == 0
    }

    /// Returns whether the channel is closed, no value is left, and no value can be given back. If so, the channel
    /// stays in this state.
    #[inline]
    pub(super) fn is_at_its_end(self) -> bool {
        self.0 & !(RECEIVERS | SENDERS | RESERVERS) == CLOSED
    }

    /// Returns whether a send to a channel of this capacity must wait: the channel is open, there is neither room nor a
    /// receiver, and no owner of the lock is about to change that.
    #[inline]
    pub(super) fn is_full_for_certain(self, capacity: usize) -> bool {
        self.0 & (LOCKED | CLOSED | RECEIVERS) == 0 && self.len() >= capacity
    }
}

/// Transitions: from the state that they are called on, to the state that they return.
impl State {
    /// A contender takes the free lock.
    #[inline]
    pub(super) fn lock(self) -> Self {
        Self(self.0 | LOCKED)
    }

    /// The owner unlocks.
    #[inline]
    pub(super) fn unlock(self) -> Self {
        Self(self.0 & !LOCKED)
    }

    /// The owner closes the channel.
    #[inline]
    pub(super) fn close(self) -> Self {
        Self(self.0 | CLOSED)
    }

    /// The owner adds a value to the ring, or to the values beside the ring.
    #[inline]
    pub(super) fn add_value(self) -> Self {
        Self(self.0 + VALUE)
    }

    /// The owner takes a value out of the ring, or from the values beside the ring.
    #[inline]
    pub(super) fn remove_value(self) -> Self {
        Self(self.0 - VALUE)
    }

    /// The owner queues a waiter.
    #[inline]
    pub(super) fn add_waiter(self, dir: Dir) -> Self {
        Self(self.0 | bit(dir))
    }

    /// The owner has taken the last waiter out of a queue.
    #[inline]
    pub(super) fn without_waiters(self, dir: Dir) -> Self {
        Self(self.0 & !bit(dir))
    }

    /// The owner gives a task a value.
    #[inline]
    pub(super) fn add_held(self) -> Self {
        Self(self.0 | HELD)
    }

    /// The owner has ended the last hold of a value by a task.
    #[inline]
    pub(super) fn without_held(self) -> Self {
        Self(self.0 & !HELD)
    }
}

#[inline]
fn bit(dir: Dir) -> usize {
    const { assert!(SENDERS == RECEIVERS << Dir::Send as u32 && RESERVERS == RECEIVERS << Dir::Reserve as u32) };
    RECEIVERS << dir as u32
}

/// The word. The caller of a method gives the ordering, and is the place that the models name.
pub(super) struct AtomicState(AtomicUsize);

impl AtomicState {
    pub(super) fn new() -> Self {
        Self(AtomicUsize::new(State::EMPTY.0))
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
    pub(super) fn compare_exchange(&self, old: State, new: State, ok: Ordering, err: Ordering) -> Result<State, State> {
        self.0.compare_exchange(old.0, new.0, ok, err).map(State).map_err(State)
    }
}
