//! The state word of an [`FdMutex`](super::FdMutex), and with it the whole protocol.
//!
//! ```text
//!   62             43 42             23 22           3     2        1        0
//!  ┌─────────────────┬─────────────────┬──────────────┬────────┬────────┬────────┐
//!  │ waiters for the │ waiters for the │ references   │ write  │ read   │ CLOSED │
//!  │ write side      │ read side       │              │ locked │ locked │        │
//!  └─────────────────┴─────────────────┴──────────────┴────────┴────────┴────────┘
//! ```
//!
//! | step | transition | if | state | then |
//! |---|---|---|---|---|
//! | refer | `refer` | not closed | references + 1 | |
//! | lock a side | `lock` | not closed, the side is free | locked, references + 1 | |
//! | | `add_waiter` | not closed, the side is locked | waiters of the side + 1 | sleeps for a permit of the side, and tries again |
//! | unlock a side | `unlock` | | not locked, references - 1, and if there are waiters: waiters - 1 | gives a permit, if there was a waiter; then as *unrefer* |
//! | unrefer | `unrefer` | | references - 1 | drops the value, if the mutex is closed and this was the last reference |
//! | give up | `remove_waiter` | waiters of the side > 0 | waiters - 1 | |
//! | | | no waiter is counted | | takes the permit that is due, so that no permit is left over |
//! | close | `close` | not closed | closed, references + 1, no waiters | a permit for each waiter that was counted; then *unrefer* |
//!
//! For each side, the number of sleeping callers equals the number of counted waiters plus the number of permits that
//! are given, or are about to be given. So a waiter that gives up either finds a counted waiter, and reduces the count,
//! or takes a permit that has been given or will be given. (A count does not say which waiters it counts. That does not
//! matter, because all waiters behave alike.)
//!
//! Orderings: each step is a single read-modify-write, AcqRel. So the next owner of a side sees all that the previous
//! owner did, and the drop of the value happens after all uses of the value. The step that reduces the count of waiters
//! comes first; then the permit is given.
//!
//! Source: Go's `internal/poll/fd_mutex.go` (1.27).

use sudog_runtime::const_unless_model;
use sudog_runtime::shim::{AtomicU64, Ordering};

use super::Side;

const CLOSED: u64 = 1;
const READ_LOCKED: u64 = 1 << 1;
const WRITE_LOCKED: u64 = 1 << 2;
/// The amounts by which a reference, and a waiter for a side, increase the word: the lowest bits of the counts.
const REFERENCE: u64 = 1 << 3;
const READ_WAITER: u64 = 1 << 23;
const WRITE_WAITER: u64 = 1 << 43;
/// The largest value of a count: each of the three counts has 20 bits.
const MAX: u64 = (1 << 20) - 1;
/// The masks of the counts.
const REFERENCES: u64 = MAX * REFERENCE;
const READ_WAITERS: u64 = MAX * READ_WAITER;
const WRITE_WAITERS: u64 = MAX * WRITE_WAITER;

const OVERFLOW: &str = "too many concurrent operations on a single file or socket (max 1048575)";

impl Side {
    #[inline]
    const fn locked(self) -> u64 {
        match self {
            Self::Read => READ_LOCKED,
            Self::Write => WRITE_LOCKED,
        }
    }

    #[inline]
    const fn waiter(self) -> u64 {
        match self {
            Self::Read => READ_WAITER,
            Self::Write => WRITE_WAITER,
        }
    }

    #[inline]
    const fn waiters(self) -> u64 {
        match self {
            Self::Read => READ_WAITERS,
            Self::Write => WRITE_WAITERS,
        }
    }
}

/// The value of the state word.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct State(u64);

/// Predicates.
impl State {
    /// Open, no references, no waiters.
    pub(super) const UNUSED: Self = Self(0);

    #[inline]
    pub(super) const fn is_closed(self) -> bool {
        self.0 & CLOSED != 0
    }

    #[inline]
    pub(super) const fn is_locked(self, side: Side) -> bool {
        self.0 & side.locked() != 0
    }

    #[inline]
    pub(super) const fn references(self) -> u64 {
        (self.0 & REFERENCES) / REFERENCE
    }

    /// Returns the number of counted waiters for a side.
    #[inline]
    pub(super) const fn waiters(self, side: Side) -> u32 {
        ((self.0 & side.waiters()) / side.waiter()) as u32
    }

    #[inline]
    pub(super) const fn has_waiters(self, side: Side) -> bool {
        self.0 & side.waiters() != 0
    }

    /// True if the caller that removes a reference from this state must drop the value: the mutex is closed, and the
    /// reference is the last.
    #[inline]
    pub(super) const fn has_last_reference(self) -> bool {
        self.0 & (CLOSED | REFERENCES) == CLOSED | REFERENCE
    }

    /// True if the value has been dropped: the mutex is closed, and no reference is left.
    #[inline]
    pub(super) const fn has_dropped_value(self) -> bool {
        self.0 & (CLOSED | REFERENCES) == CLOSED
    }
}

/// Transitions: from the state that they are called on, to the state that they return.
impl State {
    /// A caller obtains a reference to the value of the open mutex. Panics if the count has no room.
    #[inline]
    pub(super) fn refer(self) -> Self {
        assert!(self.0 & REFERENCES != REFERENCES, "{OVERFLOW}");
        Self(self.0 + REFERENCE)
    }

    /// A caller locks a free side of the open mutex, and obtains a reference. Panics if the count has no room.
    #[inline]
    pub(super) fn lock(self, side: Side) -> Self {
        Self(self.refer().0 | side.locked())
    }

    /// Counts a caller that is about to sleep, because the side is locked. Panics if the count has no room.
    #[inline]
    pub(super) fn add_waiter(self, side: Side) -> Self {
        assert!(self.0 & side.waiters() != side.waiters(), "{OVERFLOW}");
        Self(self.0 + side.waiter())
    }

    /// A counted waiter gives up.
    #[inline]
    pub(super) const fn remove_waiter(self, side: Side) -> Self {
        Self(self.0 - side.waiter())
    }

    /// The owner of a side unlocks that side, and gives back its reference. If waiters are counted, the unlock takes a
    /// waiter off the count.
    #[inline]
    pub(super) const fn unlock(self, side: Side) -> Self {
        let woken = if self.has_waiters(side) { side.waiter() } else { 0 };
        Self(self.0 - side.locked() - REFERENCE - woken)
    }

    /// A caller closes the open mutex, obtains a reference, and takes all waiters off the counts. Panics if the count of
    /// references has no room.
    #[inline]
    pub(super) fn close(self) -> Self {
        Self((self.refer().0 | CLOSED) & !(READ_WAITERS | WRITE_WAITERS))
    }
}

/// The state word.
pub(super) struct AtomicState(AtomicU64);

impl AtomicState {
    const_unless_model! {
        pub(super) const fn new() -> Self {
            Self(AtomicU64::new(State::UNUSED.0))
        }
    }

    #[inline]
    #[track_caller]
    pub(super) fn load(&self, order: Ordering) -> State {
        State(self.0.load(order))
    }

    /// Applies a transition until the compare-exchange succeeds, and returns the state before that. If `transition`
    /// returns `None`, leaves the state unchanged and returns that state as an error.
    #[inline]
    #[track_caller]
    pub(super) fn step(&self, mut transition: impl FnMut(State) -> Option<State>) -> Result<State, State> {
        let change = |word| transition(State(word)).map(|state| state.0);
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, change).map(State).map_err(State)
    }

    /// Gives back a reference, and returns the state before that.
    #[inline]
    #[track_caller]
    pub(super) fn unrefer(&self) -> State {
        State(self.0.fetch_sub(REFERENCE, Ordering::AcqRel))
    }
}

#[cfg(all(test, not(sudog_loom)))]
mod tests {
    use super::*;

    const SIDES: [Side; 2] = [Side::Read, Side::Write];

    fn other(side: Side) -> Side {
        if side == Side::Read { Side::Write } else { Side::Read }
    }

    /// The closed flag, the references, and for each side whether the side is locked, and its waiters.
    fn fields(state: State) -> (bool, u64, [(bool, u32); 2]) {
        let sides = SIDES.map(|side| {
            assert_eq!(state.has_waiters(side), state.waiters(side) != 0);
            (state.is_locked(side), state.waiters(side))
        });
        (state.is_closed(), state.references(), sides)
    }

    /// Two states in which `side` is locked and has a waiter: the other side is unused, or locked with two waiters.
    fn states(side: Side) -> [State; 2] {
        let used = State::UNUSED.refer().lock(side).add_waiter(side);
        [used, used.lock(other(side)).add_waiter(other(side)).add_waiter(other(side))]
    }

    #[test]
    fn each_transition_changes_its_own_fields() {
        for (at, side) in SIDES.into_iter().enumerate() {
            for state in states(side) {
                let (closed, references, sides) = fields(state);
                let with = |references, locked, waiters| {
                    let mut sides = sides;
                    sides[at] = (locked, waiters);
                    (closed, references, sides)
                };
                assert_eq!(fields(state.refer()), with(references + 1, true, 1));
                assert_eq!(fields(state.add_waiter(side)), with(references, true, 2));
                assert_eq!(fields(state.remove_waiter(side)), with(references, true, 0));
                assert_eq!(fields(state.unlock(side)), with(references - 1, false, 0));
                // No waiter is counted any more.
                assert_eq!(fields(state.unlock(side).lock(side)), with(references, true, 0));
                assert_eq!(fields(state.unlock(side).lock(side).unlock(side)), with(references - 1, false, 0));
            }
        }
    }

    #[test]
    fn a_close_keeps_the_owners_and_takes_all_waiters_off() {
        for side in SIDES {
            for state in states(side) {
                let (_, references, sides) = fields(state);
                let closed = (true, references + 1, sides.map(|(locked, _)| (locked, 0)));
                assert_eq!(fields(state.close()), closed);
            }
        }
    }

    #[test]
    fn the_last_reference_of_a_closed_mutex_drops_the_value() {
        assert!(!State::UNUSED.has_dropped_value());
        assert!(!State::UNUSED.refer().has_last_reference(), "the mutex is open");
        for side in SIDES {
            let word = AtomicState(AtomicU64::new(State::UNUSED.lock(side).close().0));
            let shared = word.unrefer();
            assert!(!shared.has_last_reference() && !shared.has_dropped_value());
            let last = word.load(Ordering::Relaxed);
            assert!(last.has_last_reference() && !last.has_dropped_value());
            assert!(word.step(|state| Some(state.unlock(side))) == Ok(last));
            let gone = word.load(Ordering::Relaxed);
            assert!(!gone.has_last_reference() && gone.has_dropped_value());
        }
    }

    #[test]
    fn a_transition_that_is_refused_changes_nothing() {
        let word = AtomicState::new();
        assert!(word.step(|_| None) == Err(State::UNUSED));
        assert!(word.load(Ordering::Relaxed) == State::UNUSED);
    }

    #[test]
    fn full_counts_do_not_reach_their_neighbours() {
        let full = State(REFERENCES | READ_LOCKED | READ_WAITERS);
        assert_eq!(fields(full), (false, MAX, [(true, MAX as u32), (false, 0)]));
        let full = State(REFERENCES | WRITE_LOCKED | WRITE_WAITERS);
        assert_eq!(fields(full), (false, MAX, [(false, 0), (true, MAX as u32)]));
    }

    #[test]
    #[should_panic = "too many concurrent operations"]
    fn references_have_a_limit() {
        State(REFERENCES).refer();
    }

    #[test]
    #[should_panic = "too many concurrent operations"]
    fn an_owner_needs_a_reference() {
        State(REFERENCES).lock(Side::Write);
    }

    #[test]
    #[should_panic = "too many concurrent operations"]
    fn a_close_needs_a_reference() {
        State(REFERENCES).close();
    }

    #[test]
    #[should_panic = "too many concurrent operations"]
    fn waiters_have_a_limit() {
        State(READ_LOCKED | READ_WAITERS).add_waiter(Side::Read);
    }
}
