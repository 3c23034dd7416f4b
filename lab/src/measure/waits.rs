//! How long one waits for the lock, in time and in admissions of others, measured without slowing it down.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rand_mt::Mt;

use crate::measure::ticks::Ticks;
use crate::targets::lockable::{Access, PerAccess};
use sudog_runtime::shim::system;

/// A histogram of waiting times in nanoseconds.
pub type WaitHistogram = Histogram<u64>;

/// An empty histogram: to one part in a hundred, up to an hour.
#[must_use]
pub fn empty_waits() -> WaitHistogram {
    const HOUR: u64 = 3_600_000_000_000;
    WaitHistogram::new_with_bounds(1, HOUR, 2).expect("the bounds are good")
}

/// One for each access.
#[must_use]
pub fn empty_waits_by_access() -> PerAccess<WaitHistogram> {
    PerAccess { read: empty_waits(), write: empty_waits() }
}

/// Records one contender's waits, from the request for the lock to its entry into the critical section.
///
/// Reading the time at every acquisition would cost more than a fast lock does, and reading it at a few would miss the
/// rare long wait, which is what fairness is about. So there are two classes of waits, told apart by the coarse clock,
/// which is cheap enough to read each time:
///
/// * a wait in which two ticks fell is *long*: every one is recorded, with weight 1;
/// * any other is *short*: one in `rate` on average is timed, and recorded with weight `rate`.
///
/// Every wait is in one class and no matter of chance decides in which, so the long ones are counted and the short ones
/// estimated, and the whole is unbiased: a short wait contributes `rate` with probability 1/`rate`, at gaps that are
/// random so as not to keep step with anything periodic. A timed wait that turns out to be long is dropped, as the
/// clock has counted it already.
///
/// WaitHistogram are kept apart by access. Which of them are timed is drawn for all together, so it is as it would be for each.
///
/// The same waits are measured by how many others were admitted meanwhile. At the request of a timed one, their number
/// is read, as at its entry; that of a long one was read just after the first tick in it, so it has less than it should
/// by what came before. To read it at each request would be to take its line from the contender inside.
#[derive(Debug)]
pub struct WaitRecorder<'a> {
    ticks: &'a Ticks,
    waits: PerAccess<WaitHistogram>,
    bypasses: Bypasses,
    rate: u32,
    /// Acquisitions until the next one that is timed.
    gap: u32,
    random: Mt,
}

/// Admissions of others during waits.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Bypasses {
    /// The most during one wait.
    pub max: u64,
    /// Those during all waits.
    pub all: u64,
    /// Those that there would not have been, had each other one been admitted once.
    pub beyond: u64,
}

impl Bypasses {
    /// A wait that stands for `weight` waits.
    #[inline]
    pub fn record(&mut self, bypass: u64, others: u64, weight: u64) {
        self.max = self.max.max(bypass);
        self.all += bypass * weight;
        self.beyond += bypass.saturating_sub(others) * weight;
    }

    /// Both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self { max: self.max.max(other.max), all: self.all + other.all, beyond: self.beyond + other.beyond }
    }
}

/// What is known when the lock is requested.
#[derive(Debug)]
pub struct Request {
    tick: usize,
    timed: Option<(Instant, u64)>,
}

/// What is known on entry.
#[derive(Debug)]
pub struct Wait {
    from: usize,
    to: usize,
    /// How long it was, and how many had been admitted when it began.
    timed: Option<(Duration, u64)>,
}

impl<'a> WaitRecorder<'a> {
    /// Records one short wait in `rate`; with a rate of 0, none.
    #[must_use]
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

    /// The first wait is not timed: it begins before the clock does. If it is long it is recorded, from the start on.
    pub fn leave_out_the_first(&mut self) {
        if self.gap == 1 {
            self.gap = 2;
        }
    }

    /// To be called before the acquisition. `admissions` counts them, the contender's own as well.
    #[inline]
    pub fn request(&mut self, admissions: impl FnOnce() -> u64) -> Request {
        self.gap = self.gap.wrapping_sub(1);
        Request { tick: self.ticks.latest(), timed: (self.gap == 0).then(|| (system::now(), admissions())) }
    }

    /// To be called first thing after it.
    #[inline]
    pub fn entry(&self, request: Request) -> Wait {
        let timed = request.timed.map(|(time, admissions)| (system::now().saturating_duration_since(time), admissions));
        Wait { from: request.tick, to: self.ticks.latest(), timed }
    }

    /// To be called instead of [`WaitRecorder::entry`] when the run is over: the coarse clock stands still by then, so
    /// it has the length that the wait had reached, if it was a long one.
    #[inline]
    pub fn cut_short(&self, request: Request) -> Wait {
        Wait { from: request.tick, to: self.ticks.latest(), timed: None }
    }

    /// To be called after the release: it is no part of the critical section. On entry `admissions` had been, and there
    /// are so many `others`.
    #[inline]
    pub fn record(&mut self, wait: Wait, access: Access, admissions: u64, others: u64) {
        if wait.timed.is_some() {
            self.rearm();
        }
        let waits = self.waits.of(access);
        if let Some(long) = self.ticks.between(wait.from, wait.to) {
            waits.saturating_record(long.as_nanos() as u64);
            // The last tick in it may have been counted after its end.
            let bypass = admissions.saturating_sub(self.ticks.count_after(wait.from + 1));
            self.bypasses.record(bypass, others, 1);
        } else if let Some((short, before)) = wait.timed {
            waits.saturating_record_n(short.as_nanos() as u64, self.rate.into());
            self.bypasses.record(admissions - before, others, self.rate.into());
        }
    }

    /// What has been recorded.
    #[must_use]
    pub fn into_records(self) -> (PerAccess<WaitHistogram>, Bypasses) {
        (self.waits, self.bypasses)
    }

    /// Uniform from 1 to 2 `rate` - 1, so `rate` on average.
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

    /// One acquisition. While it waits, so many others are admitted.
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
            // Of the nine, four come after the first tick.
            record(&mut recorder, &admissions, 9, || (1..=5).for_each(|n| ticks.advance(Ticks::PERIOD * n, || 15)));
            let (waits, bypasses) = recorder.into_records();
            let waits = waits.write;
            assert_eq!(waits.len(), 1);
            assert!(waits.equivalent(waits.max(), 4_500_000), "{}", waits.max());
            assert_eq!(bypasses, Bypasses { max: 4, all: 4, beyond: 2 });
        }
    }
}
