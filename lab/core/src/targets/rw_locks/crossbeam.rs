//! CrossbeamSharded: an adapter for `ShardedLock` of `crossbeam-utils`.

use std::mem::{MaybeUninit, transmute};
use std::sync::PoisonError;

use crossbeam_utils::sync::{ShardedLock, ShardedLockReadGuard, ShardedLockWriteGuard};
use sudog_sync::RawRwLock;

use super::tried;

/// `crossbeam_utils::sync::ShardedLock` as a [`RawRwLock`].
///
/// The lock has no downgrade: a writer that has become a reader still excludes all others.
#[derive(Debug)]
pub struct CrossbeamSharded(ShardedLock<()>);

type ReadGuard<'a> = ShardedLockReadGuard<'a, ()>;
type WriteGuard<'a> = ShardedLockWriteGuard<'a, ()>;

/// The guard of a reader of a [`CrossbeamSharded`]: crossbeam's guard without its lifetime, as for
/// [`StdRwLock`](super::StdRwLock).
#[derive(Debug)]
pub enum CrossbeamReadGuard {
    Read(MaybeUninit<ReadGuard<'static>>),
    /// The guard of a writer that has become a reader.
    Downgraded(CrossbeamWriteGuard),
}

/// The guard of a writer of a [`CrossbeamSharded`]: crossbeam's guard without its lifetime.
#[derive(Debug)]
pub struct CrossbeamWriteGuard(MaybeUninit<WriteGuard<'static>>);

impl CrossbeamReadGuard {
    #[inline]
    fn new(guard: ReadGuard<'_>) -> Self {
        // SAFETY: only the lifetime changes. Only `runlock` uses the guard, and by the contract of `runlock` the guard
        // came from the lock that is borrowed there.
        Self::Read(MaybeUninit::new(unsafe { transmute::<ReadGuard<'_>, ReadGuard<'static>>(guard) }))
    }
}

impl CrossbeamWriteGuard {
    #[inline]
    fn new(guard: WriteGuard<'_>) -> Self {
        // SAFETY: only the lifetime changes. Only `unlock`, and `runlock` after a `downgrade`, use the guard, and by
        // their contracts the guard came from the lock that is borrowed there.
        Self(MaybeUninit::new(unsafe { transmute::<WriteGuard<'_>, WriteGuard<'static>>(guard) }))
    }
}

// SAFETY: a writer has locked all shards for writing, a reader has locked one shard for reading, and each shard is a
// lock of the standard library; a forgotten guard leaves its shards locked.
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
            // SAFETY: the guard was initialised by `CrossbeamReadGuard::new`, and is consumed here; by the contract of
            // `runlock` it refers to this lock.
            CrossbeamReadGuard::Read(guard) => drop(unsafe { guard.assume_init() }),
            // SAFETY: `guard` came from a `lock` of this lock on this thread, and is unused, by the contract of
            // `runlock`.
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
        // SAFETY: the guard was initialised by `CrossbeamWriteGuard::new`, and is consumed here; by the contract of
        // `unlock` it refers to this lock.
        drop(unsafe { guard.0.assume_init() });
    }

    #[inline]
    unsafe fn downgrade(&self, guard: CrossbeamWriteGuard) -> CrossbeamReadGuard {
        CrossbeamReadGuard::Downgraded(guard)
    }

    /// Tries to lock, as there is no other way to ask. The lock may be held for the moment of the call.
    fn is_locked(&self) -> bool {
        tried(self.0.try_write()).is_none()
    }

    /// Tries to lock for reading. The lock may be held for the moment of the call.
    fn is_locked_exclusive(&self) -> bool {
        tried(self.0.try_read()).is_none()
    }
}
