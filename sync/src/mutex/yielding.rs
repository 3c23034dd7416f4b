//! When an owner yields to an awake contender after an unlock, and when a successor yields while it watches. Only speed
//! depends on these yields.

use std::time::Duration;

use sudog_runtime::shim::system;
use sudog_runtime::shim::system::OnceLock;
use sudog_runtime::shim::system::atomic::AtomicU64;
use sudog_runtime::shim::system::atomic::Ordering::Relaxed;
use sudog_runtime::{G, Instant, safepoint, safepoint_is_asked_for};

use super::contention_hint::count_turn;
use super::policy::{Policy, SpinStrategy};
use super::state::State;
use crate::thread_hints::{HINTS, MODEL};

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
        let streak = count_turn();
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
    HINTS.with(|hint| {
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

/// The time for which no successor yields after a yield that has cost a slice. With 64 threads, ten times this time adds a
/// fifth of throughput beside two busy programs, and doubles the longest wait where there is none: see
/// `docs/journal/busy-neighbours.md`.
const PAUSE: Duration = Duration::from_millis(1);

/// The pause in the yields of all successors of the process. A pause of each thread would not help: of many threads, each
/// watches seldom, and would lose a slice each time.
static YIELDS: Yields = Yields { epoch: OnceLock::new(), paused_until: AtomicU64::new(0) };

struct Yields {
    /// The time of the first look.
    epoch: OnceLock<Instant>,
    /// The end of the last pause, in nanoseconds since the epoch. All accesses are relaxed: a thread that reads an old
    /// time yields once more, or once less.
    paused_until: AtomicU64,
}

impl Yields {
    fn since_epoch(&self, time: Instant) -> u64 {
        time.saturating_duration_since(*self.epoch.get_or_init(|| time)).as_nanos() as u64
    }

    fn are_paused(&self, now: Instant) -> bool {
        self.since_epoch(now) < self.paused_until.load(Relaxed)
    }

    /// Notes a yield from `begun` to `ended`. Starts a pause if that yield has cost a slice.
    fn note(&self, begun: Instant, ended: Instant) {
        if ended.saturating_duration_since(begun) > SLICE {
            self.paused_until.store(self.since_epoch(ended) + PAUSE.as_nanos() as u64, Relaxed);
        }
    }
}

/// Yields the calling thread's processor, as the owner may be waiting for that processor, unless a successor's yield has
/// lately cost a slice: another program is more likely to wait there. `now` is the time that the caller has just read.
pub(super) fn yield_as_successor(now: Instant) {
    // The clock of a simulated machine begins anew with each machine.
    const HAS_PAUSES: bool = !MODEL && !cfg!(sudog_sim);
    if HAS_PAUSES && YIELDS.are_paused(now) {
        return;
    }
    G::yield_now();
    if HAS_PAUSES {
        YIELDS.note(now, system::now());
    }
}

#[cfg(all(test, not(sudog_loom)))]
mod tests {
    use super::*;

    #[test]
    fn successors_do_not_yield_after_a_yield_that_cost_a_slice() {
        let yields = Yields { epoch: OnceLock::new(), paused_until: AtomicU64::new(0) };
        let begun = system::now();
        assert!(!yields.are_paused(begun));
        yields.note(begun, begun + SLICE);
        assert!(!yields.are_paused(begun + SLICE));
        let ended = begun + SLICE + Duration::from_nanos(1);
        yields.note(begun, ended);
        assert!(yields.are_paused(ended));
        assert!(yields.are_paused(ended + PAUSE - Duration::from_nanos(1)));
        assert!(!yields.are_paused(ended + PAUSE));
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
}
