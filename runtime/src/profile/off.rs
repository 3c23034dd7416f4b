//! What the locks call, in a build without the feature `profile`: nothing.

use crate::sema::sudog::Sudog;

/// The state of a waiter in the mutex profile.
pub(crate) struct QueuedWait;

impl QueuedWait {
    pub(crate) const fn new() -> Self {
        Self
    }

    /// Notes that the waiter is about to be queued.
    #[inline(always)]
    pub(crate) fn begin(&self, _addr: usize) {}

    /// Notes that the waiter has left the queue.
    #[inline(always)]
    pub(crate) fn end(&self, _addr: usize, _is_woken: bool) {}
}

/// The waiters that a release has taken out of a queue.
pub(crate) struct Released;

impl Released {
    #[inline(always)]
    pub(crate) const fn new() -> Self {
        Self
    }

    /// Adds a waiter, which has been taken out of the queue.
    #[inline(always)]
    pub(crate) fn add(&mut self, _sudog: &Sudog) {}

    /// Charges the release by the calling goroutine or thread, around `ready`, which readies the waiters.
    #[inline(always)]
    pub(crate) fn charge<R>(self, _addr: usize, ready: impl FnOnce() -> R) -> R {
        ready()
    }
}

/// Runs `wait`, in which the calling goroutine or thread blocks.
#[inline(always)]
pub(crate) fn blocks<R>(wait: impl FnOnce() -> R) -> R {
    wait()
}
