//! A histogram of times. A power of two has four buckets, so a bucket is at most a quarter wider than its lower end.
//! Go's `timeHistogram` (`runtime/histogram.go`, 1.27) has the same form.

use std::cell::Cell;
use std::fmt;
use std::iter;
use std::ops::Range;
use std::time::Duration;

use crate::shim::system::atomic::{AtomicU64, Ordering};

/// The number of bits of a time that tell the four buckets of a power of two apart.
const BITS: u32 = 2;
const PER_POWER: u64 = 1 << BITS;
/// The number of buckets: times below 4 ns have a bucket each.
const BUCKETS: usize = bucket(u64::MAX) + 1;

/// Returns the bucket of a time in nanoseconds.
const fn bucket(ns: u64) -> usize {
    if ns < PER_POWER {
        return ns as usize;
    }
    let power = ns.ilog2();
    let within = (ns >> (power - BITS)) & (PER_POWER - 1);
    ((power - BITS + 1) as u64 * PER_POWER + within) as usize
}

/// Returns the smallest time, in nanoseconds, of a bucket.
const fn lower(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < PER_POWER {
        return bucket;
    }
    (PER_POWER + bucket % PER_POWER) << (bucket / PER_POWER - 1)
}

/// The counts of a histogram that a single thread records, while others read.
pub(super) struct Recorded {
    counts: [AtomicU64; BUCKETS],
    /// The number of times to leave out until the next sample.
    pause: Cell<u32>,
}

impl Recorded {
    pub(super) const fn new() -> Self {
        Self { counts: [const { AtomicU64::new(0) }; BUCKETS], pause: Cell::new(0) }
    }

    /// Returns true at each `of`th call.
    #[inline]
    pub(super) fn is_sample(&self, of: u32) -> bool {
        let pause = self.pause.get();
        self.pause.set(if pause == 0 { of - 1 } else { pause - 1 });
        pause == 0
    }

    /// Adds a time. A load and a store are enough: only the owner records.
    pub(super) fn record(&self, time: Duration) {
        let count = &self.counts[bucket(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))];
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

/// Times, counted by their lengths.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use sudog::runtime::metrics;
///
/// let latencies = metrics().latencies;
/// let count: u64 = latencies.buckets().map(|(_times, count)| count).sum();
/// assert_eq!(count, latencies.count());
/// assert!(latencies.quantile(0.5) <= latencies.quantile(0.99));
/// ```
#[derive(Clone)]
pub struct Histogram([u64; BUCKETS]);

impl Histogram {
    pub(super) fn sum<'a>(all: impl Iterator<Item = &'a Recorded>) -> Self {
        let mut sum = [0; BUCKETS];
        for recorded in all {
            for (sum, count) in iter::zip(&mut sum, &recorded.counts) {
                *sum += count.load(Ordering::Relaxed);
            }
        }
        Self(sum)
    }

    /// Returns the number of recorded times.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Returns the buckets that have times, shortest first: the range of the times, and their number.
    pub fn buckets(&self) -> impl Iterator<Item = (Range<Duration>, u64)> {
        let end = |bucket| if bucket + 1 < BUCKETS { lower(bucket + 1) } else { u64::MAX };
        let range = move |bucket| Duration::from_nanos(lower(bucket))..Duration::from_nanos(end(bucket));
        self.0.iter().enumerate().filter(|(_, count)| **count > 0).map(move |(bucket, count)| (range(bucket), *count))
    }

    /// Returns a time that the given part of the times does not exceed: 0.99 for the 99th percentile. The result is
    /// exact up to the width of a bucket, a quarter. Zero if there are no times.
    ///
    /// # Panics
    ///
    /// If `part` is not between 0 and 1.
    #[must_use]
    pub fn quantile(&self, part: f64) -> Duration {
        assert!((0.0..=1.0).contains(&part), "a part is between 0 and 1: {part}");
        let wanted = (part * self.count() as f64).ceil().max(1.0) as u64;
        let mut so_far = 0;
        let reached = |(_, count): &(_, u64)| {
            so_far += count;
            so_far >= wanted
        };
        self.buckets().find(reached).map_or(Duration::ZERO, |(times, _)| times.end)
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.buckets()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_is_in_its_bucket() {
        let powers = (0..64).flat_map(|power| [1_u64 << power, (1 << power) - 1, (1 << power) + (1 << power >> 1)]);
        for ns in powers.chain(0..1000).chain([u64::MAX]) {
            let bucket = bucket(ns);
            assert!(lower(bucket) <= ns, "{ns}");
            assert!(bucket + 1 == BUCKETS || ns < lower(bucket + 1), "{ns}");
        }
        for bucket in 4..BUCKETS - 1 {
            let width = lower(bucket + 1) - lower(bucket);
            assert!(width * 4 <= lower(bucket), "bucket {bucket} is {width} ns wide");
        }
    }

    #[test]
    fn quantiles() {
        let recorded = Recorded::new();
        assert_eq!(Histogram::sum(iter::once(&recorded)).quantile(0.5), Duration::ZERO);
        for microseconds in 1..=1000 {
            recorded.record(Duration::from_micros(microseconds));
        }
        let histogram = Histogram::sum([&recorded, &Recorded::new()].into_iter());
        assert_eq!(histogram.count(), 1000);
        for (part, exact) in [(0.0, 1), (0.5, 500), (0.99, 990), (1.0, 1000)] {
            let (quantile, exact) = (histogram.quantile(part), Duration::from_micros(exact));
            assert!(quantile >= exact && quantile <= exact * 5 / 4, "{part}: {quantile:?}");
        }
    }

    #[test]
    fn one_of_eight_is_a_sample() {
        let recorded = Recorded::new();
        assert_eq!((0..80).filter(|_| recorded.is_sample(8)).count(), 10);
    }
}
