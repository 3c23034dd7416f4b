//! Locking an [`RwMutex`](crate::RwMutex) until a limit is reached or a context is done.

use sudog_runtime::sema::{WaitError, WaitLimit};

use crate::{ApiRwLock, ConstRawRwLock, RwMutexWith, lock_api};

/// Adds reads and writes that give up at a [`WaitLimit`], or when a context is done, to [`RwMutex`](crate::RwMutex) and
/// to [`RwMutexWith`] over every lock.
///
/// Over [`GoRwMutex`](crate::GoRwMutex) such a wait stands in the same queues as the other waits, with an exception: a
/// writer that waits for another writer checks for a cancel every millisecond and then joins the queue anew, unless the
/// writers' lock is a [`FifoMutex`](crate::mutex::FifoMutex). Every wait for a lock that uses the provided methods
/// [`rlock_limited`](crate::RawRwLock::rlock_limited) and `lock_limited` does the same.
///
/// (A [`Mutex`](crate::Mutex) with a context: [`context::block_on`](crate::context::block_on)`(&ctx, mutex.lock_async())`.)
///
/// # Examples
///
/// ```
/// use sudog::runtime::sema::{Cancel, WaitError, WaitLimit};
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

    /// Locks for reading, waiting until a limit is reached.
    ///
    /// # Errors
    ///
    /// The error says which limit came first.
    fn read_limited(&self, limit: &WaitLimit<'_>) -> Result<Self::ReadGuard<'_>, WaitError>;

    /// Locks for writing, waiting until a limit is reached.
    ///
    /// # Errors
    ///
    /// The error says which limit came first.
    fn write_limited(&self, limit: &WaitLimit<'_>) -> Result<Self::WriteGuard<'_>, WaitError>;

    /// Locks for reading, as [`read_limited`](Self::read_limited) does, for as long as `ctx` is not done.
    ///
    /// # Errors
    ///
    /// The context's error.
    #[cfg(all(unix, not(sudog_loom)))]
    fn read_ctx(&self, ctx: &crate::context::Context) -> Result<Self::ReadGuard<'_>, crate::context::Error> {
        ctx.limited(|limit| self.read_limited(limit))
    }

    /// Locks for writing, as [`write_limited`](Self::write_limited) does, for as long as `ctx` is not done.
    ///
    /// # Errors
    ///
    /// The context's error.
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
        // SAFETY: the raw lock is used for another acquisition only, so no live guard loses its lock.
        let guard = unsafe { self.raw() }.get().rlock_limited(limit)?;
        // SAFETY: `guard` is that of the read acquisition above, and no other `RwLockReadGuard` has been made from
        // `guard`.
        Ok(unsafe { self.make_read_guard_unchecked(guard) })
    }

    fn write_limited(&self, limit: &WaitLimit<'_>) -> Result<Self::WriteGuard<'_>, WaitError> {
        // SAFETY: the raw lock is used for another acquisition only, so no live guard loses its lock.
        let guard = unsafe { self.raw() }.get().lock_limited(limit)?;
        // SAFETY: `guard` is that of the write acquisition above, and no other `RwLockWriteGuard` has been made from
        // `guard`.
        Ok(unsafe { self.make_write_guard_unchecked(guard) })
    }
}
