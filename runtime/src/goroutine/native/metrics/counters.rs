//! The numbers that workers and their queues keep for [`metrics`](super), and the calls that keep them.

#[cfg(feature = "metrics")]
pub(crate) use on::{Counters, Length, Readied};

#[cfg(not(feature = "metrics"))]
pub(crate) use off::{Counters, Length, Readied};

use crate::shim::system::atomic::{AtomicU64, Ordering};

/// Adds 1 to `number`. Needs no read-modify-write, as only the worker that owns the number writes.
#[inline]
pub(crate) fn count(number: &AtomicU64) {
    number.store(number.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

#[cfg(feature = "metrics")]
mod on {
    use std::cell::Cell;
    use std::ptr;

    use crate::Instant;
    use crate::goroutine::native::metrics::counters::count;
    use crate::goroutine::native::metrics::histogram::Recorded;
    use crate::shim::system;
    use crate::shim::system::atomic::{AtomicU32, AtomicU64, Ordering};

    /// The number of readied goroutines for each goroutine whose latency is measured. Not each latency is measured,
    /// because a measurement reads the clock twice. Go's `gTrackingPeriod`.
    const SAMPLED: u32 = 8;

    /// The greatest number of latencies that a worker measures at a time.
    const MEASURED: usize = 8;

    /// The counts of a worker. Written by the worker's thread only.
    pub(crate) struct Counters {
        /// The number of times that the worker has stolen work from another worker.
        pub(in crate::goroutine::native::metrics) steals: AtomicU64,
        /// The number of times that the worker has gone to sleep.
        pub(in crate::goroutine::native::metrics) sleeps: AtomicU64,
        /// The times from the moment when a goroutine was readied to the moment when the goroutine ran.
        pub(in crate::goroutine::native::metrics) latencies: Recorded,
        /// The goroutines whose latency is being measured: the address of a goroutine's [`Readied`], and the time at
        /// which the goroutine was readied.
        measured: [Cell<Option<(usize, Instant)>>; MEASURED],
    }

    impl Counters {
        pub(crate) const fn new() -> Self {
            Self {
                steals: AtomicU64::new(0),
                sleeps: AtomicU64::new(0),
                latencies: Recorded::new(),
                measured: [const { Cell::new(None) }; MEASURED],
            }
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
                self.measure(readied);
            }
        }

        /// Begins to measure a latency, unless too many are measured already.
        #[cold]
        fn measure(&self, readied: &Readied) {
            if let Some(free) = self.measured.iter().find(|place| place.get().is_none()) {
                free.set(Some((ptr::from_ref(readied).addr(), system::now())));
                readied.0.set(true);
            }
        }

        /// Notes that a goroutine of this worker runs.
        #[inline]
        pub(crate) fn runs(&self, readied: &Readied) {
            if readied.0.get() {
                self.record(readied);
            }
        }

        #[cold]
        fn record(&self, readied: &Readied) {
            readied.0.set(false);
            for place in &self.measured {
                if let Some((measured, at)) = place.get()
                    && measured == ptr::from_ref(readied).addr()
                {
                    place.set(None);
                    self.latencies.record(system::now().saturating_duration_since(at));
                }
            }
        }
    }

    /// True if the goroutine has been readied, and its latency is being measured. A byte: a fibre has no room for more.
    pub(crate) struct Readied(Cell<bool>);

    impl Readied {
        pub(crate) const fn new() -> Self {
            Self(Cell::new(false))
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
