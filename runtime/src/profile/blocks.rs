//! The block profile: how long each call has waited.

use std::time::{Duration, Instant};

use super::sites::{Sites, random};
use crate::goroutine::now;
use crate::shim::system::atomic::{AtomicU64, Ordering};

/// The rate of the block profile, in nanoseconds: all waits of this duration or more are recorded, and some of the
/// shorter waits. 0 if the profile is off.
pub(super) static RATE: AtomicU64 = AtomicU64::new(0);
/// The recorded waits.
pub(super) static SITES: Sites = Sites::new();

/// A call that may wait, perhaps several times until it has the resource. All its waits are recorded as one wait at the
/// end of the call, with the stack of that moment.
pub(crate) struct Blocked {
    /// The time at which the first wait began. `None` if the call has not waited, or if the profile was off.
    begun: Option<Instant>,
}

impl Blocked {
    #[inline]
    pub(crate) const fn new() -> Self {
        Self { begun: None }
    }

    /// Notes that the calling goroutine or thread is about to wait.
    #[inline]
    pub(crate) fn begin(&mut self) {
        if RATE.load(Ordering::Relaxed) != 0 && self.begun.is_none() {
            self.begun = Some(now());
        }
    }
}

impl Drop for Blocked {
    #[inline]
    fn drop(&mut self) {
        if let Some(begun) = self.begun {
            record(begun);
        }
    }
}

#[cold]
fn record(begun: Instant) {
    let rate = RATE.load(Ordering::Relaxed);
    if rate != 0
        && let Some((count, delay)) = sample(now().saturating_duration_since(begun), rate)
    {
        SITES.add(count, delay);
    }
}

/// Decides whether a wait of this duration is recorded. Returns the number of waits for which the recorded wait stands,
/// and the sum of their delays; `None` if the wait is not recorded.
///
/// A wait that is shorter than the rate is recorded with the probability `waited / rate`, and stands for `rate /
/// waited` waits, whose delays are `rate` together.
fn sample(waited: Duration, rate: u64) -> Option<(f64, Duration)> {
    let nanoseconds = u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX);
    if nanoseconds >= rate {
        return Some((1.0, waited));
    }
    (random() % rate < nanoseconds).then(|| (rate as f64 / nanoseconds as f64, Duration::from_nanos(rate)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Go's `TestBlockProfileBias`: neither short nor long waits are over-represented.
    #[test]
    fn short_and_long_waits_stand_for_their_sums() {
        const RATE: u64 = 100_000;
        for nanoseconds in [100, 1_000, 10_000, 90_000, 100_000, 1_000_000] {
            let waited = Duration::from_nanos(nanoseconds);
            let rounds = 100_000_000 / nanoseconds.min(RATE) * 10;
            let (mut count, mut delay) = (0.0, Duration::ZERO);
            for (n, d) in (0..rounds).filter_map(|_| sample(waited, RATE)) {
                count += n;
                delay += d;
            }
            let share = delay.as_secs_f64() / (waited.as_secs_f64() * rounds as f64);
            assert!((0.9..1.1).contains(&share), "{nanoseconds} ns: {share}");
            assert!((0.9..1.1).contains(&(count / rounds as f64)), "{nanoseconds} ns: {count} of {rounds}");
        }
    }

    #[test]
    fn no_time_is_no_wait() {
        assert_eq!(sample(Duration::ZERO, 1), None);
        assert_eq!(sample(Duration::from_nanos(1), 1), Some((1.0, Duration::from_nanos(1))));
    }
}
