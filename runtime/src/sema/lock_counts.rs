//! Counts of what mutexes do on their slow paths. Without the feature `metrics` nothing is counted.

#[cfg(all(feature = "metrics", unix, not(sudog_loom)))]
use crossbeam_utils::CachePadded;

#[cfg(all(feature = "metrics", unix, not(sudog_loom)))]
use crate::shim::system::atomic::{AtomicU64, Ordering};

/// The number of acquisitions by contenders that had spun, or watched the mutex, and had not slept.
pub static SPIN_WINS: LockCount = LockCount::new();
/// The number of times that a waiter, or a successor that claims the mutex, has turned starvation mode on.
pub static STARVATIONS: LockCount = LockCount::new();

/// A count of the process.
#[cfg(all(feature = "metrics", unix, not(sudog_loom)))]
pub struct LockCount(CachePadded<AtomicU64>);

#[cfg(all(feature = "metrics", unix, not(sudog_loom)))]
impl LockCount {
    const fn new() -> Self {
        Self(CachePadded::new(AtomicU64::new(0)))
    }

    /// Adds 1 if `happened` is true.
    #[inline]
    pub fn add_if(&self, happened: bool) {
        if happened {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A count of the process: nothing.
#[cfg(not(all(feature = "metrics", unix, not(sudog_loom))))]
pub struct LockCount;

#[cfg(not(all(feature = "metrics", unix, not(sudog_loom))))]
impl LockCount {
    const fn new() -> Self {
        Self
    }

    /// Does nothing.
    #[inline(always)]
    pub fn add_if(&self, _: bool) {}
}
