//! What a contender expects, from its thread's recent use of mutexes: does the mutex have contenders, and has the thread
//! hogged a mutex? Only speed depends on these hints.

use std::cell::Cell;
use std::time::Duration;

use sudog_runtime::Instant;
use sudog_runtime::shim::system;

use crate::thread_hints::{HINTS, MODEL};

/// Notes that an unlock has left contenders behind.
#[inline(always)]
pub(super) fn note_contention() {
    HINTS.with(|hint| hint.contended.set(true));
}

/// Calls `lock` with the prediction: true if the mutex that `lock` is about to lock is expected to have contenders.
/// `lock` updates the prediction.
#[inline(always)]
pub(super) fn predict<T>(lock: impl FnOnce(&Cell<bool>) -> T) -> T {
    if MODEL { lock(&Cell::new(true)) } else { HINTS.with(|hint| lock(&hint.contended)) }
}

/// The least number of turns whose time tells whether the thread hogs the mutex.
const MANY_TURNS: u32 = 64;

/// The least number of turns that tells that a thread which does not hog the mutex mostly finds the mutex free.
const SOME_TURNS: u32 = 4;

/// Two threads that meet in nearly each turn hand the mutex over twice in a turn, at 50 to 200 ns each. A thread whose
/// turns take longer than this time is mostly outside the mutex.
const SHORT_TURN: Duration = Duration::from_nanos(500);

/// Advice to a thread that must wait for a mutex, from the thread's last turns. A *turn* is an unlock that leaves a
/// designated waker behind. Only the turns since the thread last waited are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TurnsHint {
    /// True if the thread hogs the mutex: its turns were many and short.
    hogs: bool,
    /// The number of turns, but at most [`SOME_TURNS`].
    turns: u8,
}

impl TurnsHint {
    /// The hint for a contender that has slept.
    pub(super) const NONE: Self = Self { hogs: true, turns: 0 };

    /// Returns the hint for a number of `turns`. `time` is the time that the turns took, if that time is known.
    fn new(turns: u32, time: Option<Duration>) -> Self {
        let hogs = turns >= MANY_TURNS && time.is_none_or(|time| time < SHORT_TURN.saturating_mul(turns));
        Self { hogs, turns: turns.min(SOME_TURNS) as u8 }
    }

    /// Returns whether the thread has not hogged the mutex. Threads that hog a mutex tend to contend with each other.
    pub(super) fn spins_eagerly(self) -> bool {
        !self.hogs
    }

    /// Returns whether the thread has not hogged the mutex, and has had at least a few turns: the thread mostly finds the
    /// mutex free. Threads with fewer turns meet each other in nearly each turn, and are faster if one of them sleeps,
    /// unless the turns are [long](Self::has_long_turns).
    pub(super) fn spins_beside_sleepers(self) -> bool {
        !self.hogs && u32::from(self.turns) >= SOME_TURNS
    }

    /// Returns whether the thread's turns were few and long. Then other threads have had the mutex in between: a thread
    /// that is away for longer than a handoff takes is likely to get the mutex sooner than it could fall asleep. Reads
    /// the clock, so only a contender that would sleep otherwise asks, before it calls [`note_waiting`].
    pub(super) fn has_long_turns(self) -> bool {
        if self.hogs || MODEL {
            return false;
        }
        // The owner of a readers-writer mutex's mutex of writers waits for readers: a writer that spins meanwhile takes a
        // processor from them.
        let from = HINTS.with(|hint| hint.turns_from.get().filter(|_| hint.writes_in_turn.get() == 0));
        let time = from.map(|from| system::now().saturating_duration_since(from));
        time.is_some_and(|time| time >= SHORT_TURN.saturating_mul(u32::from(self.turns) + 1))
    }
}

/// Returns the hint for the calling thread, which must wait now, and sets the count of the thread's turns (see
/// [`TurnsHint`]) back to 0.
pub(super) fn last_turns() -> TurnsHint {
    if MODEL {
        return TurnsHint::NONE;
    }
    HINTS.with(|hint| {
        let turns = hint.held_streak.replace(0);
        // If the turns are few, their time is not needed. If the turns began without a wait (the mutex was free again
        // at the second look), the measured time is too long. A thread that hogs the mutex has waited, because an awake
        // contender has taken the mutex from that thread. So the time of such a thread is right.
        let from = hint.turns_from.get().filter(|_| turns >= MANY_TURNS);
        TurnsHint::new(turns, from.map(|from| system::now().saturating_duration_since(from)))
    })
}

/// Counts a turn of the calling thread (see [`TurnsHint`]). Returns the number of turns since the thread last waited.
#[inline(always)]
pub(super) fn count_turn() -> u32 {
    HINTS.with(|hint| {
        let turns = hint.held_streak.get().wrapping_add(1);
        hint.held_streak.set(turns);
        turns
    })
}

/// Notes that the calling thread waits for a mutex, and has just read the clock: `now`. So the thread's next turns (see
/// [`TurnsHint`]) begin later than `now`.
///
/// Only a waiter notes the time. An owner must not read the clock for this note: while the owner reads the clock, an
/// awake contender would lock the mutex.
pub(super) fn note_waiting(now: Instant) {
    if !MODEL {
        HINTS.with(|hint| hint.turns_from.set(Some(now)));
    }
}

#[cfg(all(test, not(sudog_loom)))]
mod tests {
    use super::super::policy::Threads;
    use super::super::state::State;
    use super::super::yielding::yield_occasionally;
    use super::*;

    const EAGER: TurnsHint = TurnsHint { hogs: false, turns: 0 };
    const BESIDE_SLEEPERS: TurnsHint = TurnsHint { hogs: false, turns: SOME_TURNS as u8 };
    const A_HOG: TurnsHint = TurnsHint { hogs: true, turns: SOME_TURNS as u8 };

    #[test]
    fn a_few_turns_suggest_a_mutex_that_is_mostly_free() {
        let at_once = Some(Duration::ZERO);
        assert_eq!(TurnsHint::new(0, at_once), EAGER);
        assert_eq!(TurnsHint::new(3, at_once), TurnsHint { turns: 3, ..EAGER });
        assert_eq!(TurnsHint::new(4, at_once), BESIDE_SLEEPERS);
        assert!(EAGER.spins_eagerly() && !EAGER.spins_beside_sleepers());
        assert!(BESIDE_SLEEPERS.spins_eagerly() && BESIDE_SLEEPERS.spins_beside_sleepers());
        assert!(!A_HOG.spins_eagerly() && !A_HOG.spins_beside_sleepers() && !A_HOG.has_long_turns());
        assert_eq!(TurnsHint::new(MANY_TURNS - 1, at_once), BESIDE_SLEEPERS);
    }

    #[test]
    fn many_turns_are_a_hogs_if_they_were_short() {
        for turns in [MANY_TURNS, 100, 10_000, u32::MAX] {
            assert_eq!(TurnsHint::new(turns, Some(Duration::from_nanos(499) * turns)), A_HOG);
            assert_eq!(TurnsHint::new(turns, Some(Duration::from_nanos(500) * turns)), BESIDE_SLEEPERS);
            assert_eq!(TurnsHint::new(turns, None), A_HOG);
        }
    }

    #[test]
    fn few_turns_are_long_if_the_last_wait_is_long_ago() {
        let after = |ago: i64| {
            last_turns();
            let (now, us) = (system::now(), Duration::from_micros(ago.unsigned_abs()));
            note_waiting(if ago < 0 { now + us } else { now - us });
            last_turns().has_long_turns()
        };
        assert!(after(10));
        assert!(!after(-1_000_000));
        // The writers of a readers-writer mutex do not spin beside sleepers.
        HINTS.with(|hint| hint.writes_in_turn.set(1));
        assert!(!after(10));
        HINTS.with(|hint| hint.writes_in_turn.set(0));
    }

    #[test]
    fn a_wait_restarts_the_count() {
        last_turns();
        let beside_a_designated_waker = State::UNLOCKED.designate_self();
        for _ in 0..4 {
            yield_occasionally::<Threads>(beside_a_designated_waker);
        }
        assert_eq!(last_turns(), BESIDE_SLEEPERS);
        assert_eq!(last_turns(), EAGER);
    }
}
