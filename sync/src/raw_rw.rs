//! The trait that readers-writer locks implement.

use sudog_runtime::Instant;
use sudog_runtime::sema::{WaitError, WaitLimit};

use crate::raw::{poll_until, wait_limited};

/// A readers-writer lock without data: any number of readers, or one writer.
///
/// The counterpart of [`RawLock`](crate::RawLock): the state that an acquisition keeps for its release is in a guard.
///
/// # Safety
///
/// - Between a `lock` and the `unlock` or `downgrade` that consumes the guard, no other acquisition succeeds; between
///   an `rlock` and the `runlock` that consumes the guard, no `lock` succeeds.
/// - Everything that happens before an `unlock` also happens before everything that follows a later acquisition.
///   Everything that happens before a `runlock` also happens before everything that follows a later `lock`.
/// - Forgetting a guard leaves the lock locked for ever; the lock may then be moved and dropped.
///
/// # Examples
///
/// Any `RawRwLock` gets the whole of `lock_api`'s interface:
///
/// ```
/// use sudog::sync::RwMutexWith;
/// use sudog::sync::ShardedRwMutex;
///
/// let table = RwMutexWith::<ShardedRwMutex, _>::new(vec![1, 2]);
/// table.write().push(3);
/// assert_eq!(table.read().len(), 3);
/// ```
pub unsafe trait RawRwLock: Sized + Send + Sync {
    /// The state that a reader's acquisition hands to its release. The type is `Send` if another thread may release the
    /// lock.
    type SharedGuard;

    /// The state that a writer's acquisition hands to its release. The type is `Send` if another thread may release the
    /// lock.
    type ExclusiveGuard;

    /// True if a caller with a deadline waits in the same queues as the other callers. If false, a caller with a
    /// deadline polls.
    const DEADLINES: bool;

    /// An unlocked lock.
    fn new() -> Self;

    /// Locks for reading, waiting for a writer if necessary.
    fn rlock(&self) -> Self::SharedGuard;

    /// Locks for reading if that is possible without waiting.
    fn try_rlock(&self) -> Option<Self::SharedGuard>;

    /// Locks for reading, waiting until `deadline` at most. With a deadline in the past, does the same as
    /// [`RawRwLock::try_rlock`].
    ///
    /// The provided method polls until the deadline.
    fn try_rlock_until(&self, deadline: Instant) -> Option<Self::SharedGuard> {
        poll_until(deadline, || self.try_rlock())
    }

    /// Locks for reading, waiting until a [`WaitLimit`] at most. A cancel ends the wait only: a free lock is locked, even
    /// if `limit.cancel` is cancelled already. The provided method checks for a cancel every millisecond.
    ///
    /// # Errors
    ///
    /// The error says which limit came first.
    fn rlock_limited(&self, limit: &WaitLimit<'_>) -> Result<Self::SharedGuard, WaitError> {
        match self.try_rlock() {
            Some(guard) => Ok(guard),
            None => wait_limited(limit, || self.rlock(), |deadline| self.try_rlock_until(deadline)),
        }
    }

    /// Ends a read. The lock must stay alive until the call returns.
    ///
    /// # Safety
    ///
    /// `guard` came from an acquisition of this lock that has not been released. Unless the guard's type is `Send`, the
    /// acquisition was made on this thread.
    unsafe fn runlock(&self, guard: Self::SharedGuard);

    /// Locks for writing, waiting for readers and other writers to unlock.
    fn lock(&self) -> Self::ExclusiveGuard;

    /// Locks for writing if that is possible without waiting.
    fn try_lock(&self) -> Option<Self::ExclusiveGuard>;

    /// Locks for writing, waiting until `deadline` at most. With a deadline in the past, does the same as
    /// [`RawRwLock::try_lock`].
    ///
    /// The provided method polls until the deadline.
    fn try_lock_until(&self, deadline: Instant) -> Option<Self::ExclusiveGuard> {
        poll_until(deadline, || self.try_lock())
    }

    /// Locks for writing, waiting until a [`WaitLimit`] at most. A cancel ends the wait only: a free lock is locked, even
    /// if `limit.cancel` is cancelled already. The provided method checks for a cancel every millisecond.
    ///
    /// # Errors
    ///
    /// The error says which limit came first.
    fn lock_limited(&self, limit: &WaitLimit<'_>) -> Result<Self::ExclusiveGuard, WaitError> {
        match self.try_lock() {
            Some(guard) => Ok(guard),
            None => wait_limited(limit, || self.lock(), |deadline| self.try_lock_until(deadline)),
        }
    }

    /// Ends a write. The lock must stay alive until the call returns.
    ///
    /// # Safety
    ///
    /// The same conditions as for [`RawRwLock::runlock`].
    unsafe fn unlock(&self, guard: Self::ExclusiveGuard);

    /// Turns a write into a read, without letting another writer in between.
    ///
    /// # Safety
    ///
    /// The same conditions as for [`RawRwLock::runlock`].
    unsafe fn downgrade(&self, guard: Self::ExclusiveGuard) -> Self::SharedGuard;

    /// Returns whether, at this moment, a reader or a writer holds the lock, or a writer is about to lock.
    fn is_locked(&self) -> bool;

    /// Returns whether a writer holds the lock at this moment.
    fn is_locked_exclusive(&self) -> bool;
}

/// A [`RawRwLock`] that a `static` can hold, as the locks of `lock_api` must.
pub trait ConstRawRwLock: RawRwLock {
    /// An unlocked lock.
    #[allow(clippy::declare_interior_mutable_const)] // to be copied into place, as lock_api's INIT is
    const INIT: Self;
}
