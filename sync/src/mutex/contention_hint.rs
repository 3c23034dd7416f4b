//! Hints from a thread's recent use of mutexes, kept for all mutexes together. Only speed depends on these hints.
//!
//! All goroutines of a worker share the hints of the worker's thread.

use std::cell::Cell;
use std::time::Duration;

use sudog_runtime::shim::system;
use sudog_runtime::{G, Instant, safepoint, safepoint_is_asked_for};

use super::policy::{Policy, SpinStrategy};
use super::state::State;

struct ContentionHint {
    /// True if an unlock of this thread has left contenders behind, and since then no lock of this thread has found its
    /// mutex without contenders.
    contended: Cell<bool>,
    /// The number of unlocks that left a designated waker behind since a contender of this thread last entered the slow
    /// path.
    held_streak: Cell<u32>,
    /// The time at which a contender of this thread last read the clock as it waited.
    turns_from: Cell<Option<Instant>>,
    /// The number of yields to leave out, because the last yields have cost a slice: see [`yield_processor`].
    yields_to_skip: Cell<u32>,
    /// The number of yields that were left out after the last yield that has cost a slice; 0 if the last yield was
    /// cheap.
    skipped: Cell<u32>,
    /// The number of further writes that must meet no other thread until the next write is expected to meet none. The
    /// top bit is the flag [`LOOKS_FIRST`].
    writes_in_turn: Cell<u32>,
}

system::thread_local! {
    static HINT: ContentionHint = const {
        ContentionHint {
            contended: Cell::new(false),
            held_streak: Cell::new(0),
            turns_from: Cell::new(None),
            yields_to_skip: Cell::new(0),
            skipped: Cell::new(0),
            writes_in_turn: Cell::new(0),
        }
    };
}

/// True in a build for loom: a model must not depend on the hints of earlier models.
const MODEL: bool = cfg!(sudog_loom);

/// Notes that an unlock has left contenders behind.
#[inline(always)]
pub(super) fn note_contention() {
    HINT.with(|hint| hint.contended.set(true));
}

/// Calls `lock` with the prediction: true if the mutex that `lock` is about to lock is expected to have contenders.
/// `lock` updates the prediction.
#[inline(always)]
pub(super) fn predict<T>(lock: impl FnOnce(&Cell<bool>) -> T) -> T {
    if MODEL { lock(&Cell::new(true)) } else { HINT.with(|hint| lock(&hint.contended)) }
}

/// Advice for a writer that is about to lock a readers-writer mutex.
pub(crate) enum NextWrite {
    /// The writer is likely to meet neither readers nor writers.
    Alone,
    /// The writer is likely to meet readers or writers, and locks as a thread does.
    InTurn,
    /// The writer is likely to meet readers or writers, and locks as a goroutine does.
    LooksFirst,
}

/// The number of writes that must meet no other thread, after a write that has met another thread, before a write is
/// expected to meet none.
const WRITES_IN_TURN: u32 = 1024;
/// The flag in `writes_in_turn`. Set if a goroutine made the first write that met others since `writes_in_turn` was 0.
/// With the flag, a write need not check whether its caller is a goroutine.
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

/// Notes whether a writer has met readers or writers. `met_others` says whether the writer has really met others, not
/// whether the writer expected to.
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

/// The least number of turns whose time tells whether the thread hogs the mutex.
const MANY_TURNS: u32 = 64;

/// Advice to a thread that must wait for a mutex, from the thread's last turns. A *turn* is an unlock that leaves a
/// designated waker behind. Only the turns since the thread last waited are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TurnsHint {
    /// True if the thread has not hogged the mutex: its turns were few, or slow. Threads that hog a mutex tend to
    /// contend with each other.
    pub(super) spins_eagerly: bool,
    /// True if the thread has not hogged the mutex, and has had at least a few turns: the thread mostly finds the mutex
    /// free. Threads with fewer turns meet each other in nearly each turn, and are faster if one of them sleeps.
    pub(super) spins_beside_sleepers: bool,
}

impl TurnsHint {
    pub(super) const NONE: Self = Self { spins_eagerly: false, spins_beside_sleepers: false };

    /// Returns the hint for a number of `turns`. `time` is the time that the turns took, if that time is known.
    fn new(turns: u32, time: Option<Duration>) -> Self {
        const SOME_TURNS: u32 = 4;
        // Two threads that meet in nearly each turn hand the mutex over twice in a turn, at 50 to 200 ns each. A thread
        // whose turns take longer than that is mostly outside the mutex.
        const SHORT_TURN: Duration = Duration::from_nanos(500);
        let hogs = turns >= MANY_TURNS && time.is_none_or(|time| time < SHORT_TURN.saturating_mul(turns));
        Self { spins_eagerly: !hogs, spins_beside_sleepers: !hogs && turns >= SOME_TURNS }
    }
}

/// Returns the hint for the calling thread, which must wait now, and sets the count of the thread's turns (see
/// [`TurnsHint`]) back to 0.
pub(super) fn last_turns() -> TurnsHint {
    if MODEL {
        return TurnsHint::NONE;
    }
    HINT.with(|hint| {
        let turns = hint.held_streak.replace(0);
        // If the turns are few, their time is not needed. If the turns began without a wait (the mutex was free again
        // at the second look), the measured time is too long. A thread that hogs the mutex has waited, because an awake
        // contender has taken the mutex from that thread. So the time of such a thread is right.
        let from = hint.turns_from.get().filter(|_| turns >= MANY_TURNS);
        TurnsHint::new(turns, from.map(|from| system::now().saturating_duration_since(from)))
    })
}

/// Notes that the calling thread waits for a mutex, and has just read the clock: `now`. So the thread's next turns (see
/// [`TurnsHint`]) begin later than `now`.
///
/// Only a waiter notes the time. An owner must not read the clock for this note: while the owner reads the clock, an
/// awake contender would lock the mutex.
pub(super) fn note_waiting(now: Instant) {
    if !MODEL {
        HINT.with(|hint| hint.turns_from.set(Some(now)));
    }
}

/// The number of unlocks beside an awake contender after which a goroutine runs a safepoint: the contender may be
/// waiting for the goroutine's worker.
const SAFEPOINT_INTERVAL: u32 = 64;

/// The number of unlocks beside an awake contender after which a thread yields its processor: the system may have put
/// the contender behind that thread, and would leave the contender there for milliseconds.
const YIELD_INTERVAL: u32 = 8192;

/// The counterpart of `YIELD_INTERVAL` while many contenders sleep. A contender behind the owner on the same processor
/// runs only when the owner yields, and all waiters in the queue wait until then. With fewer sleepers, yields at such a
/// short interval cause too many waits: p99.9 rises.
const CROWDED_YIELD_INTERVAL: u32 = 2048;

/// Lets an awake contender run, once in an interval of unlocks. The caller has unlocked the mutex beside that
/// contender, and may be about to lock the mutex again. `state` is the state that the unlock has left.
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

/// Runs a safepoint if the watcher has asked for a safepoint. The watcher asks every 10 ms. An owner that computes
/// between two unlocks takes long to reach the [`SAFEPOINT_INTERVAL`], so that owner gives way in this function.
///
/// The function is marked as cold, although each unlock beside an awake contender calls it. Otherwise an unlock without
/// contenders would save registers for the call.
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
        yield_processor();
    }
}

/// The time above which a yield has given the processor to another program for one of the system's time slices.
const SLICE: Duration = Duration::from_micros(500);
/// The most yields in a row that are left out. Twice this number, or more, adds little throughput and causes long
/// waits: see `docs/journal/busy-neighbours.md`.
const MOST_SKIPPED: u32 = 3;

/// Returns the number of yields to leave out after a yield that took `time`. `before` is the result for the last yield.
fn yields_to_skip(before: u32, time: Duration) -> u32 {
    if time > SLICE { (2 * before + 1).min(MOST_SKIPPED) } else { 0 }
}

/// Yields the calling thread's processor, unless the last yields have cost a slice. Beside a busy program, a thread
/// that yields at each interval would use the mutex for some ten microseconds of each slice.
fn yield_processor() {
    HINT.with(|hint| {
        let left = hint.yields_to_skip.get();
        if left > 0 {
            hint.yields_to_skip.set(left - 1);
            return;
        }
        let begun = system::now();
        G::yield_now();
        let skipped = yields_to_skip(hint.skipped.get(), system::now().saturating_duration_since(begun));
        hint.skipped.set(skipped);
        hint.yields_to_skip.set(skipped);
    });
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
    fn yields_that_cost_a_slice_are_left_out() {
        let (cheap, dear) = (SLICE, SLICE + Duration::from_nanos(1));
        let after = |times: &[Duration]| times.iter().fold(0, |before, &time| yields_to_skip(before, time));
        assert_eq!(after(&[cheap]), 0);
        assert_eq!(after(&[dear]), 1);
        assert_eq!(after(&[dear, dear]), 3);
        assert_eq!(after(&[dear, dear, dear]), 3);
        assert_eq!(after(&[dear, dear, cheap]), 0);
        assert_eq!(after(&[dear, dear, cheap, dear]), 1);
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
