//! The waits for a lock, in time and in admissions of others, measured without slowing the lock down.

use std::time::{Duration, Instant};

use crate::measure::mt::Mt;
use hdrhistogram::Histogram;

use crate::measure::ticks::Ticks;
use crate::run::lockable::{Access, PerAccess};
use sudog_runtime::shim::system;

/// A histogram of waiting times in nanoseconds.
pub type WaitHistogram = Histogram<u64>;

/// Returns an empty histogram: exact to one part in a hundred, up to an hour.
pub fn empty_waits() -> WaitHistogram {
    const HOUR: u64 = 3_600_000_000_000;
    WaitHistogram::new_with_bounds(1, HOUR, 2).expect("the bounds are good")
}

pub fn empty_waits_by_access() -> PerAccess<WaitHistogram> {
    PerAccess { read: empty_waits(), write: empty_waits() }
}

/// Records a contender's waits, from the request for the lock to the entry into the critical section.
///
/// Reading the time at every acquisition would cost more than a fast lock does, and reading the time at a few
/// acquisitions would miss the rare long waits, which matter for fairness. So there are two classes of waits, told
/// apart by the coarse clock, which is cheap enough to read each time:
///
/// * a wait that contains two ticks is *long*: every long wait is recorded, with weight 1;
/// * any other wait is *short*: one in `rate` on average is timed, and recorded with weight `rate`.
///
/// Every wait is in exactly one class, and chance does not decide in which class. So long waits are counted and short
/// waits are estimated, and the whole is unbiased: a short wait contributes `rate` with probability 1/`rate`. The gaps
/// between timed waits are random, so that they do not keep step with anything periodic. A timed wait that turns out to
/// be long is dropped, as the coarse clock has counted the wait already.
///
/// Histograms are kept apart by access. The timed waits are drawn from all accesses together, which makes no difference
/// for each access.
///
/// The same waits are also measured by the admissions of others meanwhile. For a timed wait, the number of admissions
/// is read at the request and at the entry. For a long wait, the number was read just after the first tick in the wait,
/// so the admissions before that tick are missing from the result. Reading the number at each request would take the
/// number's cache line from the contender inside.
#[derive(Debug)]
pub struct WaitRecorder<'a> {
    ticks: &'a Ticks,
    waits: PerAccess<WaitHistogram>,
    bypasses: Bypasses,
    rate: u32,
    /// The number of acquisitions until the next timed wait.
    gap: u32,
    random: Mt,
}

/// Admissions of others during waits.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Bypasses {
    /// The largest number of admissions during a single wait.
    pub max: u64,
    /// The admissions during all waits.
    pub all: u64,
    /// The admissions that there would not have been, if each other contender had been admitted only once in each wait.
    pub beyond: u64,
}

impl Bypasses {
    /// Records a wait that stands for `weight` waits.
    #[inline]
    pub fn record(&mut self, bypass: u64, others: u64, weight: u64) {
        self.max = self.max.max(bypass);
        self.all += bypass * weight;
        self.beyond += bypass.saturating_sub(others) * weight;
    }

    /// Returns the sum of both, with the larger of the two maxima.
    pub fn and(self, other: Self) -> Self {
        Self { max: self.max.max(other.max), all: self.all + other.all, beyond: self.beyond + other.beyond }
    }
}

/// The facts known when the lock is requested.
#[derive(Debug)]
pub struct Request {
    tick: usize,
    timed: Option<(Instant, u64)>,
}

/// The facts known on entry.
#[derive(Debug)]
pub struct Wait {
    from: usize,
    to: usize,
    /// The length of the wait, and the number of admissions at the request.
    timed: Option<(Duration, u64)>,
}

impl<'a> WaitRecorder<'a> {
    /// Creates a recorder that records one short wait in `rate`; with a rate of 0, no short waits.
    pub fn new(ticks: &'a Ticks, rate: u32, seed: u32) -> Self {
        let mut recorder = Self {
            ticks,
            waits: empty_waits_by_access(),
            bypasses: Bypasses::default(),
            rate,
            gap: u32::MAX,
            random: Mt::new(seed),
        };
        recorder.rearm();
        recorder
    }

    /// Leaves the first wait untimed: the wait begins before the clock does. A long first wait is recorded, from the
    /// start on.
    pub fn leave_out_the_first(&mut self) {
        if self.gap == 1 {
            self.gap = 2;
        }
    }

    /// Begins a wait. Call this before the acquisition. `admissions` counts all admissions, including the contender's
    /// own.
    #[inline]
    pub fn request(&mut self, admissions: impl FnOnce() -> u64) -> Request {
        self.gap = self.gap.wrapping_sub(1);
        Request { tick: self.ticks.latest(), timed: (self.gap == 0).then(|| (system::now(), admissions())) }
    }

    /// Ends a wait. Call this first thing after the acquisition.
    #[inline]
    pub fn entry(&self, request: Request) -> Wait {
        let timed = request.timed.map(|(time, admissions)| (system::now().saturating_duration_since(time), admissions));
        Wait { from: request.tick, to: self.ticks.latest(), timed }
    }

    /// Ends a wait that the end of the run has cut short, in place of [`WaitRecorder::entry`]. The coarse clock stops with
    /// the run, so the recorded length is the length at that time.
    #[inline]
    pub fn cut_short(&self, request: Request) -> Wait {
        Wait { from: request.tick, to: self.ticks.latest(), timed: None }
    }

    /// Records a wait. Call this after the release, so that the recording is no part of the critical section.
    /// `admissions` is the number of admissions before the entry, `others` the number of other contenders.
    #[inline]
    pub fn record(&mut self, wait: Wait, access: Access, admissions: u64, others: u64) {
        if wait.timed.is_some() {
            self.rearm();
        }
        let waits = self.waits.of(access);
        if let Some(long) = self.ticks.between(wait.from, wait.to) {
            waits.saturating_record(long.as_nanos() as u64);
            // The count of the last tick in the wait may have been taken after the end of the wait.
            let bypass = admissions.saturating_sub(self.ticks.count_after(wait.from + 1));
            self.bypasses.record(bypass, others, 1);
        } else if let Some((short, before)) = wait.timed {
            waits.saturating_record_n(short.as_nanos() as u64, self.rate.into());
            self.bypasses.record(admissions - before, others, self.rate.into());
        }
    }

    pub fn into_records(self) -> (PerAccess<WaitHistogram>, Bypasses) {
        (self.waits, self.bypasses)
    }

    /// Draws the gap to the next timed wait, uniformly from 1 to 2 `rate` - 1, so `rate` on average.
    fn rearm(&mut self) {
        if self.rate > 0 {
            self.gap = 1 + self.random.next_u32() % (2 * self.rate - 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Makes an acquisition. During the wait, `bypass` others are admitted.
    fn record(recorder: &mut WaitRecorder<'_>, admissions: &Cell<u64>, bypass: u64, during: impl FnOnce()) {
        let request = recorder.request(|| admissions.get());
        admissions.set(admissions.get() + bypass);
        during();
        let wait = recorder.entry(request);
        recorder.record(wait, Access::Write, admissions.get(), 2);
        admissions.set(admissions.get() + 1);
    }

    #[test]
    fn short_waits_weigh_what_they_stand_for() {
        let ticks = Ticks::new(Duration::ZERO);
        let mut recorder = WaitRecorder::new(&ticks, 16, 1);
        let admissions = Cell::new(0);
        (0..160_000).for_each(|_| record(&mut recorder, &admissions, 5, || ()));
        let (waits, bypasses) = recorder.into_records();
        assert!(waits.read.is_empty());
        let weight = waits.write.len();
        assert!((150_000..170_000).contains(&weight), "{weight}");
        assert_eq!(bypasses, Bypasses { max: 5, all: 5 * weight, beyond: 3 * weight });
    }

    #[test]
    fn a_long_wait_counts_once_timed_or_not() {
        for rate in [0, 1, 1_000] {
            let ticks = Ticks::new(Duration::from_millis(5));
            let mut recorder = WaitRecorder::new(&ticks, rate, 1);
            let admissions = Cell::new(10);
            // Of the nine admissions, four come after the first tick.
            record(&mut recorder, &admissions, 9, || (1..=5).for_each(|n| ticks.advance(Ticks::PERIOD * n, || 15)));
            let (waits, bypasses) = recorder.into_records();
            let waits = waits.write;
            assert_eq!(waits.len(), 1);
            assert!(waits.equivalent(waits.max(), 4_500_000), "{}", waits.max());
            assert_eq!(bypasses, Bypasses { max: 4, all: 4, beyond: 2 });
        }
    }
}
