//! What a thread has lately seen of mutexes, of whichever. Only speed depends on these hints.
//!
//! Goroutines share the hints of their worker.

use std::cell::Cell;
use std::time::Duration;

use sudog_runtime::shim::system;
use sudog_runtime::{G, Instant, safepoint, safepoint_is_asked_for};

use super::policy::{Policy, SpinStrategy};
use super::state::State;

struct ContentionHint {
    /// An unlock left contenders behind, and no lock has found its mutex without contenders since.
    contended: Cell<bool>,
    /// How many unlocks left a designated waker behind, since a contender of this thread last entered the slow path.
    held_streak: Cell<u32>,
    /// When a contender of this thread last read the clock as it waited.
    turns_from: Cell<Option<Instant>>,
    /// How many writes must yet meet no other thread, before a write is expected to meet none; and [`LOOKS_FIRST`].
    writes_in_turn: Cell<u32>,
}

system::thread_local! {
    static HINT: ContentionHint = const {
        ContentionHint {
            contended: Cell::new(false),
            held_streak: Cell::new(0),
            turns_from: Cell::new(None),
            writes_in_turn: Cell::new(0),
        }
    };
}

/// A model must not depend on the models before it.
const MODEL: bool = cfg!(sudog_loom);

/// An unlock has left contenders behind.
#[inline(always)]
pub(super) fn note_contention() {
    HINT.with(|hint| hint.contended.set(true));
}

/// Gives `lock` the prediction whether the mutex that it is about to lock has waiters or other contenders. `lock`
/// renews it.
#[inline(always)]
pub(super) fn predict<T>(lock: impl FnOnce(&Cell<bool>) -> T) -> T {
    if MODEL { lock(&Cell::new(true)) } else { HINT.with(|hint| lock(&hint.contended)) }
}

/// What a writer had better do that is about to lock a readers-writer mutex.
pub(crate) enum NextWrite {
    /// It is likely to meet neither readers nor writers.
    Alone,
    /// It is likely to meet others, and does as a thread.
    InTurn,
    /// It is likely to meet others, and does as a goroutine.
    LooksFirst,
}

/// So many writes must meet no other thread, after one that has, before a write is expected to meet none.
const WRITES_IN_TURN: u32 = 1024;
/// A flag beside their count: the write that met others was a goroutine's. So a thread need not ask before each write.
const LOOKS_FIRST: u32 = 1 << 31;

#[inline(always)]
pub(crate) fn next_write() -> NextWrite {
    if MODEL {
        return NextWrite::Alone;
    }
    match HINT.with(|hint| hint.writes_in_turn.get()) {
        0 => NextWrite::Alone,
        left if left & LOOKS_FIRST == 0 => NextWrite::InTurn,
        _ => NextWrite::LooksFirst,
    }
}

/// A writer has met readers or writers: true; or has not, though it was prepared for it: false.
#[inline(always)]
pub(crate) fn note_write(met_others: bool) {
    if !MODEL {
        HINT.with(|hint| {
            let old = hint.writes_in_turn.get();
            hint.writes_in_turn.set(if met_others || hint.contended.get() {
                let flag = if old != 0 { old & LOOKS_FIRST } else { flag_of_caller() };
                WRITES_IN_TURN | flag
            } else if old & !LOOKS_FIRST > 1 {
                old - 1
            } else {
                0
            });
        });
    }
}

#[cold]
fn flag_of_caller() -> u32 {
    if G::is_goroutine() { LOOKS_FIRST } else { 0 }
}

/// After so many turns, the time that they took tells whether the thread hogs the mutex.
const MANY_TURNS: u32 = 64;

/// What its last turns suggest to a thread that must wait for a mutex. A *turn* is an unlock that leaves a designated waker
/// behind. The turns since the thread last waited count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TurnsHint {
    /// The thread has not hogged the mutex: its turns were few, or slow. Threads that hog a mutex tend to contend with
    /// each other.
    pub(super) spins_eagerly: bool,
    /// The thread has not hogged the mutex, and has had at least a few turns: it finds the mutex free mostly. Threads with
    /// fewer turns meet in nearly each of them, and are faster if one of them sleeps.
    pub(super) spins_beside_sleepers: bool,
}

impl TurnsHint {
    pub(super) const NONE: Self = Self { spins_eagerly: false, spins_beside_sleepers: false };

    /// `time` is what the turns took, if that is known.
    fn new(turns: u32, time: Option<Duration>) -> Self {
        const SOME_TURNS: u32 = 4;
        // Two threads that meet in nearly each turn hand the mutex over twice in a turn, at 50 to 200 ns each. A thread
        // whose turns take longer than that spends most of its time outside the mutex.
        const SHORT_TURN: Duration = Duration::from_nanos(500);
        let hogs = turns >= MANY_TURNS && time.is_none_or(|time| time < SHORT_TURN.saturating_mul(turns));
        Self { spins_eagerly: !hogs, spins_beside_sleepers: !hogs && turns >= SOME_TURNS }
    }
}

/// For a thread that must wait now. Restarts the count of its turns.
pub(super) fn last_turns() -> TurnsHint {
    if MODEL {
        return TurnsHint::NONE;
    }
    HINT.with(|hint| {
        let turns = hint.held_streak.replace(0);
        // Few turns need no clock. The mean is too long if the turns began without a wait, as when the mutex was free again
        // at the second look. A hog has waited: an awake contender has taken the mutex from it.
        let from = hint.turns_from.get().filter(|_| turns >= MANY_TURNS);
        TurnsHint::new(turns, from.map(|from| system::now().saturating_duration_since(from)))
    })
}

/// A thread waits, and has just read the clock: its next turns begin later than `now`. An owner must not read the clock for
/// this: an awake contender would lock the mutex meanwhile.
pub(super) fn note_waiting(now: Instant) {
    if !MODEL {
        HINT.with(|hint| hint.turns_from.set(Some(now)));
    }
}

/// How often a goroutine has a safepoint: the contender may be waiting for its worker.
const SAFEPOINT_INTERVAL: u32 = 64;

/// How often a thread yields its processor: the scheduler may have put the contender behind it, and would leave it
/// there for milliseconds.
const YIELD_INTERVAL: u32 = 8192;

/// The same, while many contenders sleep. A contender behind the owner on one processor has it only when the owner
/// yields, so the slice is that much longer, for all who wait in line. With fewer sleepers the waits of a slice that a
/// yield ends are too many: p99.9 rises.
const CROWDED_YIELD_INTERVAL: u32 = 2048;

/// An owner has unlocked the mutex beside an awake contender, and may be about to lock it again: once in an interval it
/// lets the contender run. `state` is what its unlock has left.
#[inline(always)]
pub(super) fn yield_occasionally<P: Policy>(state: State) {
    if !MODEL {
        let streak = HINT.with(|hint| {
            let streak = hint.held_streak.get().wrapping_add(1);
            hint.held_streak.set(streak);
            streak
        });
        if streak.is_multiple_of(SAFEPOINT_INTERVAL) {
            yield_after::<P>(streak, state);
        } else {
            yield_if_asked();
        }
    }
}

/// An owner that computes between two unlocks takes long for so many: the watcher asks every 10 ms.
///
/// Cold, though each unlock beside an awake contender comes here: the unlock without contenders must not save registers
/// for this call.
#[cold]
#[inline(never)]
fn yield_if_asked() {
    if safepoint_is_asked_for() {
        safepoint();
    }
}

#[cold]
fn yield_after<P: Policy>(streak: u32, state: State) {
    let interval = if state.is_crowded() { CROWDED_YIELD_INTERVAL } else { YIELD_INTERVAL };
    if G::is_goroutine() {
        safepoint();
    } else if matches!(P::STRATEGY, SpinStrategy::Successor { .. }) && streak.is_multiple_of(interval) {
        G::yield_now();
    }
}

#[cfg(all(test, not(sudog_loom)))]
mod tests {
    use super::*;

    const EAGER: TurnsHint = TurnsHint { spins_eagerly: true, spins_beside_sleepers: false };
    const BESIDE_SLEEPERS: TurnsHint = TurnsHint { spins_eagerly: true, spins_beside_sleepers: true };

    #[test]
    fn a_few_turns_suggest_a_mutex_that_is_mostly_free() {
        let at_once = Some(Duration::ZERO);
        assert_eq!(TurnsHint::new(0, at_once), EAGER);
        assert_eq!(TurnsHint::new(3, at_once), EAGER);
        assert_eq!(TurnsHint::new(4, at_once), BESIDE_SLEEPERS);
        assert_eq!(TurnsHint::new(MANY_TURNS - 1, at_once), BESIDE_SLEEPERS);
    }

    #[test]
    fn many_turns_are_a_hogs_if_they_were_short() {
        for turns in [MANY_TURNS, 100, 10_000, u32::MAX] {
            assert_eq!(TurnsHint::new(turns, Some(Duration::from_nanos(499) * turns)), TurnsHint::NONE);
            assert_eq!(TurnsHint::new(turns, Some(Duration::from_nanos(500) * turns)), BESIDE_SLEEPERS);
            assert_eq!(TurnsHint::new(turns, None), TurnsHint::NONE);
        }
    }

    #[test]
    fn a_write_that_meets_others_makes_the_next_ones_wait_in_turn() {
        let next = || match next_write() {
            NextWrite::Alone => "alone",
            NextWrite::InTurn => "in turn",
            NextWrite::LooksFirst => "looks first",
        };
        let counts_down = |hint: &str| {
            note_write(true);
            for _ in 0..WRITES_IN_TURN {
                assert_eq!(next(), hint);
                note_write(false);
            }
            assert_eq!(next(), "alone");
            note_write(false);
            assert_eq!(next(), "alone");
        };
        counts_down("in turn");
        sudog_runtime::goroutine::run(move || counts_down("looks first"));
    }

    #[test]
    fn a_wait_restarts_the_count() {
        last_turns();
        let beside_a_designated_waker = State::UNLOCKED.designate_self();
        for _ in 0..4 {
            yield_occasionally::<crate::mutex::policy::Threads>(beside_a_designated_waker);
        }
        assert_eq!(last_turns(), BESIDE_SLEEPERS);
        assert_eq!(last_turns(), EAGER);
    }
}
