//! `ShardedLock` of `crossbeam-utils`.

use std::mem::{MaybeUninit, transmute};
use std::sync::PoisonError;

use crossbeam_utils::sync::{ShardedLock, ShardedLockReadGuard, ShardedLockWriteGuard};
use sudog_sync::RawRwLock;

use super::tried;

/// `crossbeam_utils::sync::ShardedLock` as a [`RawRwLock`].
///
/// It has no downgrade: a writer that has become a reader keeps it as a writer does.
#[derive(Debug)]
pub struct CrossbeamSharded(ShardedLock<()>);

type ReadGuard<'a> = ShardedLockReadGuard<'a, ()>;
type WriteGuard<'a> = ShardedLockWriteGuard<'a, ()>;

/// What a reader's acquisition of a [`CrossbeamSharded`] hands to its release: crossbeam's guard without its lifetime, as
/// for [`StdRwLock`](super::StdRwLock).
#[derive(Debug)]
pub enum CrossbeamReadGuard {
    /// A reader's.
    Read(MaybeUninit<ReadGuard<'static>>),
    /// That of a writer which has become a reader.
    Downgraded(CrossbeamWriteGuard),
}

/// The same for a writer.
#[derive(Debug)]
pub struct CrossbeamWriteGuard(MaybeUninit<WriteGuard<'static>>);

impl CrossbeamReadGuard {
    #[inline]
    fn new(guard: ReadGuard<'_>) -> Self {
        // SAFETY: only the lifetime changes. Nothing uses the guard but `runlock`, whose caller vouches that it came from
        // the lock that is borrowed there.
        Self::Read(MaybeUninit::new(unsafe { transmute::<ReadGuard<'_>, ReadGuard<'static>>(guard) }))
    }
}

impl CrossbeamWriteGuard {
    #[inline]
    fn new(guard: WriteGuard<'_>) -> Self {
        // SAFETY: as for readers: `unlock`, and the `runlock` after a `downgrade`.
        Self(MaybeUninit::new(unsafe { transmute::<WriteGuard<'_>, WriteGuard<'static>>(guard) }))
    }
}

// SAFETY: a writer has all shards for writing, a reader has one for reading, and each shard is a lock of the standard
// library; a guard that is forgotten leaves its shards locked.
unsafe impl RawRwLock for CrossbeamSharded {
    type SharedGuard = CrossbeamReadGuard;
    type ExclusiveGuard = CrossbeamWriteGuard;

    const DEADLINES: bool = false;

    fn new() -> Self {
        Self(ShardedLock::new(()))
    }

    #[inline]
    fn rlock(&self) -> CrossbeamReadGuard {
        CrossbeamReadGuard::new(self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    #[inline]
    fn try_rlock(&self) -> Option<CrossbeamReadGuard> {
        tried(self.0.try_read()).map(CrossbeamReadGuard::new)
    }

    #[inline]
    unsafe fn runlock(&self, guard: CrossbeamReadGuard) {
        match guard {
            // SAFETY: made by `CrossbeamReadGuard::new`, and consumed here; it refers to this lock, by the contract.
            CrossbeamReadGuard::Read(guard) => drop(unsafe { guard.assume_init() }),
            // SAFETY: the same contract.
            CrossbeamReadGuard::Downgraded(guard) => unsafe { self.unlock(guard) },
        }
    }

    #[inline]
    fn lock(&self) -> CrossbeamWriteGuard {
        CrossbeamWriteGuard::new(self.0.write().unwrap_or_else(PoisonError::into_inner))
    }

    #[inline]
    fn try_lock(&self) -> Option<CrossbeamWriteGuard> {
        tried(self.0.try_write()).map(CrossbeamWriteGuard::new)
    }

    #[inline]
    unsafe fn unlock(&self, guard: CrossbeamWriteGuard) {
        // SAFETY: made by `CrossbeamWriteGuard::new`, and consumed here; it refers to this lock, by the contract.
        drop(unsafe { guard.0.assume_init() });
    }

    #[inline]
    unsafe fn downgrade(&self, guard: CrossbeamWriteGuard) -> CrossbeamReadGuard {
        CrossbeamReadGuard::Downgraded(guard)
    }

    /// Asks by trying: there is no other way. For that moment the lock may be held.
    fn is_locked(&self) -> bool {
        tried(self.0.try_write()).is_none()
    }

    /// The same.
    fn is_locked_exclusive(&self) -> bool {
        tried(self.0.try_read()).is_none()
    }
}
