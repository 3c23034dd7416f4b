//! The numbers that workers and their queues keep for [`metrics`](super), and the calls that keep them.

#[cfg(feature = "metrics")]
pub(crate) use on::{Counters, Length, Readied};

#[cfg(not(feature = "metrics"))]
pub(crate) use off::{Counters, Length, Readied};

#[cfg(feature = "metrics")]
mod on {
    use std::cell::Cell;
    use std::time::Duration;

    use crate::Instant;
    use crate::goroutine::native::metrics::histogram::Recorded;
    use crate::goroutine::native::sched::worker::count;
    use crate::shim::system;
    use crate::shim::system::atomic::{AtomicU32, AtomicU64, Ordering};

    /// The latency of one in so many readied goroutines is measured, as a measurement reads the clock twice. Go's
    /// `gTrackingPeriod`.
    const SAMPLED: u32 = 8;

    /// The nanoseconds of a unit in which [`Readied`] stores a time.
    const UNIT: u32 = 32;

    /// The counts of a worker. Written by the worker's thread only.
    pub(crate) struct Counters {
        /// The time when the worker was made.
        began: Instant,
        /// The number of times that the worker has stolen work from another worker.
        pub(in crate::goroutine::native::metrics) steals: AtomicU64,
        /// The number of times that the worker has gone to sleep.
        pub(in crate::goroutine::native::metrics) sleeps: AtomicU64,
        /// The times from the moment when a goroutine was readied to the moment when the goroutine ran.
        pub(in crate::goroutine::native::metrics) latencies: Recorded,
    }

    impl Counters {
        pub(crate) fn new() -> Self {
            Self {
                began: system::now(),
                steals: AtomicU64::new(0),
                sleeps: AtomicU64::new(0),
                latencies: Recorded::new(),
            }
        }

        /// Returns the number of units since the worker was made, modulo 2^32.
        fn units(&self) -> u32 {
            (system::now().saturating_duration_since(self.began).as_nanos() / u128::from(UNIT)) as u32
        }

        #[inline]
        pub(crate) fn count_steal(&self) {
            count(&self.steals);
        }

        #[inline]
        pub(crate) fn count_sleep(&self) {
            count(&self.sleeps);
        }

        /// Notes that a goroutine of this worker has been readied.
        #[inline]
        pub(crate) fn is_readied(&self, readied: &Readied) {
            if self.latencies.is_sample(SAMPLED) {
                readied.0.set(self.units().max(1));
            }
        }

        /// Notes that a goroutine of this worker runs.
        #[inline]
        pub(crate) fn runs(&self, readied: &Readied) {
            let at = readied.0.take();
            if at != 0 {
                let units = self.units().wrapping_sub(at);
                self.latencies.record(Duration::from_nanos(u64::from(units) * u64::from(UNIT)));
            }
        }
    }

    /// The time at which a goroutine was readied, in [`UNIT`]s since the goroutine's worker was made; 0 if the latency is
    /// not measured. A latency is measured modulo 137 seconds.
    pub(crate) struct Readied(Cell<u32>);

    impl Readied {
        pub(crate) const fn new() -> Self {
            Self(Cell::new(0))
        }
    }

    /// The length of a queue that only one thread changes, and others read.
    pub(crate) struct Length(AtomicU32);

    impl Length {
        pub(crate) const fn new() -> Self {
            Self(AtomicU32::new(0))
        }

        #[inline]
        pub(in crate::goroutine::native) fn get(&self) -> u32 {
            self.0.load(Ordering::Relaxed)
        }

        #[inline]
        pub(crate) fn grow(&self) {
            self.0.store(self.get() + 1, Ordering::Relaxed);
        }

        #[inline]
        pub(crate) fn shrink(&self) {
            self.0.store(self.get() - 1, Ordering::Relaxed);
        }

        /// Adds the length of another queue, which becomes empty.
        pub(crate) fn add(&self, other: &Self) {
            self.0.store(self.get() + other.get(), Ordering::Relaxed);
            other.0.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(not(feature = "metrics"))]
mod off {
    pub(crate) struct Counters;

    impl Counters {
        pub(crate) const fn new() -> Self {
            Self
        }

        #[inline(always)]
        pub(crate) fn count_steal(&self) {}

        #[inline(always)]
        pub(crate) fn count_sleep(&self) {}

        #[inline(always)]
        pub(crate) fn is_readied(&self, _: &Readied) {}

        #[inline(always)]
        pub(crate) fn runs(&self, _: &Readied) {}
    }

    pub(crate) struct Readied;

    impl Readied {
        pub(crate) const fn new() -> Self {
            Self
        }
    }

    pub(crate) struct Length;

    impl Length {
        pub(crate) const fn new() -> Self {
            Self
        }

        #[inline(always)]
        pub(crate) fn grow(&self) {}

        #[inline(always)]
        pub(crate) fn shrink(&self) {}

        #[inline(always)]
        pub(crate) fn add(&self, _: &Self) {}
    }
}
