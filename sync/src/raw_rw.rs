//! What a readers-writer lock implements.

use sudog_runtime::Instant;
use sudog_runtime::sema::{WaitError, WaitLimit};

use crate::raw::{poll_until, wait_limited};

/// A readers-writer lock without data: any number of readers, or one writer.
///
/// The counterpart of [`RawLock`](crate::RawLock): what an acquisition must remember for its release travels in a
/// guard.
///
/// # Safety
///
/// - Between a `lock` and the `unlock` or `downgrade` that consumes its guard, no other acquisition succeeds; between
///   an `rlock` and its `runlock`, no `lock` does.
/// - What happened before an `unlock` happens before what follows any acquisition after it; what happened before a
///   `runlock`, before what follows a `lock` after it.
/// - Forgetting a guard leaves the lock locked for ever, and it may then be moved and dropped.
///
/// # Examples
///
/// Any of them gets the whole of `lock_api`'s interface:
///
/// ```
/// use sudog::sync::rw_mutex::ShardedRwMutex;
/// use sudog::sync::RwMutexWith;
///
/// let table = RwMutexWith::<ShardedRwMutex, _>::new(vec![1, 2]);
/// table.write().push(3);
/// assert_eq!(table.read().len(), 3);
/// ```
pub unsafe trait RawRwLock: Sized + Send + Sync {
    /// What a reader's acquisition hands to its release. `Send` if another thread may do the release.
    type SharedGuard;

    /// What a writer's acquisition hands to its release. `Send` if another thread may do the release.
    type ExclusiveGuard;

    /// Whether waits with a deadline stand in the same lines as the others. If not, they poll.
    const DEADLINES: bool;

    /// An unlocked lock.
    fn new() -> Self;

    /// Waits until it may read.
    fn rlock(&self) -> Self::SharedGuard;

    /// Begins to read if that is possible without waiting.
    fn try_rlock(&self) -> Option<Self::SharedGuard>;

    /// Waits until it may read, or until `deadline`. With a deadline in the past it is [`RawRwLock::try_rlock`].
    ///
    /// The provided method polls.
    fn try_rlock_until(&self, deadline: Instant) -> Option<Self::SharedGuard> {
        poll_until(deadline, || self.try_rlock())
    }

    /// Waits until it may read, or for a [`WaitLimit`]. The provided method looks for a cancel every millisecond.
    ///
    /// # Errors
    ///
    /// Which limit came first.
    fn rlock_limited(&self, limit: &WaitLimit<'_>) -> Result<Self::SharedGuard, WaitError> {
        wait_limited(limit, || self.rlock(), |deadline| self.try_rlock_until(deadline))
    }

    /// Ends a read. The lock must stay alive until the call returns.
    ///
    /// # Safety
    ///
    /// `guard` came from an acquisition of this lock that has not been released. Unless it is `Send`, on this thread.
    unsafe fn runlock(&self, guard: Self::SharedGuard);

    /// Waits until it may write.
    fn lock(&self) -> Self::ExclusiveGuard;

    /// Begins to write if that is possible without waiting.
    fn try_lock(&self) -> Option<Self::ExclusiveGuard>;

    /// Waits until it may write, or until `deadline`. With a deadline in the past it is [`RawRwLock::try_lock`].
    ///
    /// The provided method polls.
    fn try_lock_until(&self, deadline: Instant) -> Option<Self::ExclusiveGuard> {
        poll_until(deadline, || self.try_lock())
    }

    /// Waits until it may write, or for a [`WaitLimit`]. The provided method looks for a cancel every millisecond.
    ///
    /// # Errors
    ///
    /// Which limit came first.
    fn lock_limited(&self, limit: &WaitLimit<'_>) -> Result<Self::ExclusiveGuard, WaitError> {
        wait_limited(limit, || self.lock(), |deadline| self.try_lock_until(deadline))
    }

    /// Ends a write. The lock must stay alive until the call returns.
    ///
    /// # Safety
    ///
    /// As for [`RawRwLock::runlock`].
    unsafe fn unlock(&self, guard: Self::ExclusiveGuard);

    /// From writing to reading, without letting another writer in between.
    ///
    /// # Safety
    ///
    /// As for [`RawRwLock::runlock`].
    unsafe fn downgrade(&self, guard: Self::ExclusiveGuard) -> Self::SharedGuard;

    /// Whether a reader or a writer holds the lock, or a writer is about to, at this moment.
    fn is_locked(&self) -> bool;

    /// Whether a writer holds the lock at this moment.
    fn is_locked_exclusive(&self) -> bool;
}

/// A [`RawRwLock`] that a `static` can hold, and that can therefore stand under `lock_api`.
pub trait ConstRawRwLock: RawRwLock {
    /// An unlocked lock.
    #[allow(clippy::declare_interior_mutable_const)] // to be copied into place, as lock_api's INIT is
    const INIT: Self;
}
