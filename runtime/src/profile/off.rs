//! The calls that locks make, in a build without the feature `profile`: they do nothing.

use crate::sema::sudog::Sudog;

/// The state of a waiter in the mutex profile.
pub(crate) struct QueuedWait {
    #[cfg(all(feature = "metrics", unix, not(sudog_loom)))]
    is_for_lock: bool,
}

impl QueuedWait {
    /// Makes the state of a wait for a mutex, a readers-writer lock or a semaphore.
    pub(crate) const fn for_lock() -> Self {
        Self {
            #[cfg(all(feature = "metrics", unix, not(sudog_loom)))]
            is_for_lock: true,
        }
    }

    /// Makes the state of any other wait.
    pub(crate) const fn for_other() -> Self {
        Self {
            #[cfg(all(feature = "metrics", unix, not(sudog_loom)))]
            is_for_lock: false,
        }
    }

    /// Returns whether the wait is for a lock.
    #[cfg(all(feature = "metrics", unix, not(sudog_loom)))]
    pub(crate) fn is_for_lock(&self) -> bool {
        self.is_for_lock
    }

    /// Notes that the waiter is about to be queued.
    #[inline(always)]
    pub(crate) fn begin(&self, _addr: usize) {}

    /// Notes that the waiter has left the queue.
    #[inline(always)]
    pub(crate) fn end(&self, _addr: usize, _is_woken: bool) {}
}

/// A release that takes waiters out of a queue.
pub(crate) struct Released;

impl Released {
    pub(crate) const fn new() -> Self {
        Self
    }

    /// Adds a waiter that has been unlinked.
    #[inline(always)]
    pub(crate) fn add(&mut self, _sudog: &Sudog) {}

    /// Computes the charge. Called before the waiters are readied.
    #[inline(always)]
    pub(crate) fn settle(&mut self, _addr: usize) {}

    /// Records the charge. Called after the waiters have been readied.
    #[inline(always)]
    pub(crate) fn record(self) {}
}

/// A call that may wait.
pub(crate) struct Blocked;

impl Blocked {
    pub(crate) const fn new() -> Self {
        Self
    }

    /// Notes that the calling goroutine or thread is about to wait.
    #[inline(always)]
    pub(crate) fn begin(&mut self) {}
}
