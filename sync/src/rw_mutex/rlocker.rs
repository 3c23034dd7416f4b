//! The reader's side of a readers-writer mutex, as a lock.

use std::fmt;

use super::GoRwMutex;
use crate::mutex::UnguardedLock;
use crate::{Locker, Semaphore};

/// Locks a [`GoRwMutex`] for reading: made by [`GoRwMutex::rlocker`]. Go: `RLocker`.
///
/// An `RLocker` serves code that takes any [`Locker`]. The lock excludes writers only.
pub struct RLocker<'a, W, S>(&'a GoRwMutex<W, S>);

impl<'a, W: UnguardedLock, S: Semaphore> RLocker<'a, W, S> {
    pub(super) fn new(rw: &'a GoRwMutex<W, S>) -> Self {
        Self(rw)
    }
}

impl<W, S> Clone for RLocker<'_, W, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<W, S> Copy for RLocker<'_, W, S> {}

impl<W: UnguardedLock, S: Semaphore> Locker for RLocker<'_, W, S> {
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    fn lock(&self) {
        self.0.rlock();
    }

    #[inline]
    fn unlock(&self) {
        self.0.runlock();
    }
}

impl<W, S> fmt::Debug for RLocker<'_, W, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RLocker").field(self.0).finish()
    }
}
