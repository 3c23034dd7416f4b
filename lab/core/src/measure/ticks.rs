//! A coarse clock whose readers pay a single load of a line that is rarely written; and a count, as coarse.

use std::time::Duration;
use sudog_runtime::shim::system::atomic::{AtomicU64, AtomicUsize, Ordering, fence};

use crossbeam_utils::CachePadded;

/// A clock that one thread advances about every [`Ticks::PERIOD`] and that any thread reads.
///
/// The clock counts ticks and keeps the time of each tick. A reading is the number of a tick and not a time, because
/// ticks may be late: on a busy machine the thread that advances the clock waits for a processor too. Two ticks are
/// never closer than a period, though, so an interval that contains two ticks has lasted at least a period, however
/// late the ticks were.
///
/// With each tick, the clock keeps a count of events that the caller chooses.
#[derive(Debug)]
pub struct Ticks {
    latest: CachePadded<AtomicUsize>,
    /// The time of each tick, in nanoseconds since tick 0.
    times: Box<[AtomicU64]>,
    /// The count just after each tick.
    counts: Box<[AtomicU64]>,
}

impl Ticks {
    /// The least time between two ticks.
    pub const PERIOD: Duration = Duration::from_millis(1);

    /// Creates a clock at tick 0, with room for the ticks of `room`.
    pub fn new(room: Duration) -> Self {
        let ticks = room.as_nanos().div_ceil(Self::PERIOD.as_nanos()) as usize;
        let zeroes = || (0..=ticks).map(|_| AtomicU64::new(0)).collect();
        Self { latest: CachePadded::new(AtomicUsize::new(0)), times: zeroes(), counts: zeroes() }
    }

    /// Returns the number of the latest tick.
    #[inline]
    pub fn latest(&self) -> usize {
        // Acquire, for the times of this tick and the ticks before, and the counts of the ticks before.
        self.latest.load(Ordering::Acquire)
    }

    /// Adds a tick, `time` after tick 0 and at least a period after the previous tick. Only a single thread may call
    /// this.
    ///
    /// The count is taken after the tick. So for a reader that still reads the previous tick, the count is not from the
    /// reader's past.
    pub fn advance(&self, time: Duration, count: impl FnOnce() -> u64) {
        let next = self.latest.load(Ordering::Relaxed) + 1;
        self.times[next].store(time.as_nanos() as u64, Ordering::Relaxed);
        self.latest.store(next, Ordering::Release);
        fence(Ordering::SeqCst);
        self.counts[next].store(count(), Ordering::Relaxed);
    }

    /// Returns the count just after a tick. The tick must not be the latest.
    pub fn count_after(&self, tick: usize) -> u64 {
        self.counts[tick].load(Ordering::Relaxed)
    }

    /// Returns the length of a wait that began after tick `from` and ended after tick `to`, give or take a tick at
    /// either end. Returns `None` if the wait was too short for this clock.
    ///
    /// The wait is assumed to have begun halfway between two ticks, and to have ended with the last tick during the
    /// wait.
    #[inline]
    pub fn between(&self, from: usize, to: usize) -> Option<Duration> {
        if to < from + 2 {
            return None;
        }
        let time = |tick: usize| self.times[tick].load(Ordering::Relaxed);
        Some(Duration::from_nanos(time(to) - u64::midpoint(time(from), time(from + 1))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_tick_is_too_short_however_late_it_was() {
        let ticks = Ticks::new(Duration::from_millis(10));
        ticks.advance(Duration::from_millis(1), || 5);
        ticks.advance(Duration::from_millis(9), || 7);
        assert_eq!(ticks.latest(), 2);
        assert_eq!(ticks.between(1, 1), None);
        assert_eq!(ticks.between(1, 2), None);
        assert_eq!(ticks.between(0, 2), Some(Duration::from_micros(8_500)));
        assert_eq!(ticks.count_after(1), 5);
    }

    #[test]
    fn there_is_room_for_every_period() {
        let ticks = Ticks::new(Duration::from_micros(2_500));
        (1..=3).for_each(|n| ticks.advance(Ticks::PERIOD * n, || 0));
        assert_eq!(ticks.latest(), 3);
    }
}
