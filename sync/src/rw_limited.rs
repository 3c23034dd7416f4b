//! Locking an [`RwMutex`](crate::RwMutex) until a limit is reached or a context is done.

use sudog_runtime::sema::{WaitError, WaitLimit};

use crate::{ApiRwLock, ConstRawRwLock, RwMutexWith, lock_api};

/// Adds methods to [`RwMutex`](crate::RwMutex), and to every [`RwMutexWith`], that lock for reading or for writing, but
/// give up at a [`WaitLimit`] or when a context is done.
///
/// If the lock is a [`GoRwMutex`](crate::GoRwMutex), the callers of these methods wait in the same queues as the other
/// callers, with one exception: a writer that waits for another writer leaves the queue every millisecond, to check for
/// a cancel, and then joins the queue anew. (A writer does not do so if the writers' lock is a
/// [`FifoMutex`](crate::mutex::FifoMutex).) If a lock uses the provided methods
/// [`rlock_limited`](crate::RawRwLock::rlock_limited) and `lock_limited`, all callers check for a cancel in this way.
///
/// To lock a [`Mutex`](crate::Mutex) with a context, pass `mutex.lock_async()` to
/// [`context::block_on`](crate::context::block_on).
///
/// # Examples
///
/// ```
/// use sudog::{Cancel, WaitError, WaitLimit};
/// use sudog::sync::{RwLimited, RwMutex};
///
/// let words = RwMutex::new(vec!["go"]);
/// let stop = Cancel::new();
/// let limit = WaitLimit { cancel: Some(&stop), ..WaitLimit::default() };
/// assert_eq!(words.read_limited(&limit).unwrap().len(), 1);
/// let _writing = words.write_limited(&limit).unwrap();
/// stop.cancel();
/// assert_eq!(words.read_limited(&limit).err(), Some(WaitError::Cancelled));
/// ```
pub trait RwLimited {
    /// The guard that a read returns: shared access to the value until the guard is dropped.
    type ReadGuard<'a>
    where
        Self: 'a;

    /// The guard that a write returns: access to the value until the guard is dropped.
    type WriteGuard<'a>
    where
        Self: 'a;

    /// Locks for reading, waiting until `limit` at most.
    ///
    /// # Errors
    ///
    /// The error says which limit came first.
    fn read_limited(&self, limit: &WaitLimit<'_>) -> Result<Self::ReadGuard<'_>, WaitError>;

    /// Locks for writing, waiting until `limit` at most.
    ///
    /// # Errors
    ///
    /// The error says which limit came first.
    fn write_limited(&self, limit: &WaitLimit<'_>) -> Result<Self::WriteGuard<'_>, WaitError>;

    /// Locks for reading, as [`read_limited`](Self::read_limited) does, but gives up when `ctx` is done.
    ///
    /// # Errors
    ///
    /// Returns the context's error.
    #[cfg(all(unix, not(sudog_loom)))]
    fn read_ctx(&self, ctx: &crate::context::Context) -> Result<Self::ReadGuard<'_>, crate::context::Error> {
        ctx.limited(|limit| self.read_limited(limit))
    }

    /// Locks for writing, as [`write_limited`](Self::write_limited) does, but gives up when `ctx` is done.
    ///
    /// # Errors
    ///
    /// Returns the context's error.
    #[cfg(all(unix, not(sudog_loom)))]
    fn write_ctx(&self, ctx: &crate::context::Context) -> Result<Self::WriteGuard<'_>, crate::context::Error> {
        ctx.limited(|limit| self.write_limited(limit))
    }
}

impl<R: ConstRawRwLock, T: ?Sized> RwLimited for RwMutexWith<R, T> {
    type ReadGuard<'a>
        = lock_api::RwLockReadGuard<'a, ApiRwLock<R>, T>
    where
        Self: 'a;

    type WriteGuard<'a>
        = lock_api::RwLockWriteGuard<'a, ApiRwLock<R>, T>
    where
        Self: 'a;

    fn read_limited(&self, limit: &WaitLimit<'_>) -> Result<Self::ReadGuard<'_>, WaitError> {
        // SAFETY: the raw lock is only acquired here, never released, so no live guard loses its lock.
        let guard = unsafe { self.raw() }.get().rlock_limited(limit)?;
        // SAFETY: `guard` came from the read acquisition above, and no other `RwLockReadGuard` has been made from
        // `guard`.
        Ok(unsafe { self.make_read_guard_unchecked(guard) })
    }

    fn write_limited(&self, limit: &WaitLimit<'_>) -> Result<Self::WriteGuard<'_>, WaitError> {
        // SAFETY: the raw lock is only acquired here, never released, so no live guard loses its lock.
        let guard = unsafe { self.raw() }.get().lock_limited(limit)?;
        // SAFETY: `guard` came from the write acquisition above, and no other `RwLockWriteGuard` has been made from
        // `guard`.
        Ok(unsafe { self.make_write_guard_unchecked(guard) })
    }
}
