//! The time that goroutines and threads have waited for locks. Without the feature `metrics` nothing is measured.

#[cfg(not(all(feature = "metrics", unix, not(sudog_loom))))]
pub(super) use off::MutexWait;
#[cfg(all(feature = "metrics", unix, not(sudog_loom)))]
pub(super) use on::MutexWait;
#[cfg(all(feature = "metrics", unix, not(sudog_loom)))]
pub(crate) use on::waited;

#[cfg(all(feature = "metrics", unix, not(sudog_loom)))]
mod on {
    use std::time::Duration;

    use crossbeam_utils::CachePadded;

    use crate::Instant;
    use crate::goroutine::now;
    use crate::profile::QueuedWait;
    use crate::shim::system::atomic::{AtomicU64, Ordering};

    /// The nanoseconds of all waits that have ended.
    static WAITED: CachePadded<AtomicU64> = CachePadded::new(AtomicU64::new(0));

    /// Returns the time of all waits that have ended.
    pub(crate) fn waited() -> Duration {
        Duration::from_nanos(WAITED.load(Ordering::Relaxed))
    }

    /// A wait for a lock, from the first [`begin`](Self::begin) to the drop.
    pub(in crate::sema) struct MutexWait(Option<Instant>);

    impl MutexWait {
        pub(in crate::sema) const fn new() -> Self {
            Self(None)
        }

        /// Notes that the caller is about to wait. Calls after the first change nothing, and neither does a wait that
        /// is not for a lock.
        #[inline]
        pub(in crate::sema) fn begin(&mut self, wait: &QueuedWait) {
            if wait.is_for_lock() && self.0.is_none() {
                self.0 = Some(now());
            }
        }
    }

    impl Drop for MutexWait {
        #[inline]
        fn drop(&mut self) {
            if let Some(begun) = self.0 {
                let time = now().saturating_duration_since(begun);
                WAITED.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
            }
        }
    }
}

#[cfg(not(all(feature = "metrics", unix, not(sudog_loom))))]
mod off {
    use crate::profile::QueuedWait;

    pub(in crate::sema) struct MutexWait;

    impl MutexWait {
        pub(in crate::sema) const fn new() -> Self {
            Self
        }

        #[inline(always)]
        pub(in crate::sema) fn begin(&mut self, _: &QueuedWait) {}
    }
}
