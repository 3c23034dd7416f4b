//! Locking an [`RwMutex`](crate::RwMutex) for as long as a limit or a context allows.

use sudog_runtime::sema::{WaitError, WaitLimit};

use crate::{ApiRwLock, ConstRawRwLock, RwMutexWith, lock_api};

/// Reads and writes that give up at a [`WaitLimit`], or when a context is done: adds them to
/// [`RwMutex`](crate::RwMutex) and to [`RwMutexWith`] every lock.
///
/// Over [`GoRwMutex`](crate::GoRwMutex) such a wait stands in the same lines as the others; but a writer that waits for
/// another writer looks for a cancel every millisecond, and stands in line anew then, unless the writers' lock is a
/// [`FifoMutex`](crate::mutex::FifoMutex). So does every wait for a lock whose own
/// [`rlock_limited`](crate::RawRwLock::rlock_limited) and `lock_limited` are the provided ones.
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
    /// What a read returns: shared access to the value until it is dropped.
    type ReadGuard<'a>
    where
        Self: 'a;

    /// What a write returns: access to the value until it is dropped.
    type WriteGuard<'a>
    where
        Self: 'a;

    /// Waits until it may read.
    ///
    /// # Errors
    ///
    /// Which limit came first.
    fn read_limited(&self, limit: &WaitLimit<'_>) -> Result<Self::ReadGuard<'_>, WaitError>;

    /// Waits until it may write.
    ///
    /// # Errors
    ///
    /// Which limit came first.
    fn write_limited(&self, limit: &WaitLimit<'_>) -> Result<Self::WriteGuard<'_>, WaitError>;

    /// [`read_limited`](Self::read_limited) for as long as `ctx` is not done.
    ///
    /// # Errors
    ///
    /// The context's.
    #[cfg(all(unix, not(sudog_loom)))]
    fn read_ctx(&self, ctx: &crate::context::Context) -> Result<Self::ReadGuard<'_>, crate::context::Error> {
        ctx.limited(|limit| self.read_limited(limit))
    }

    /// [`write_limited`](Self::write_limited) for as long as `ctx` is not done.
    ///
    /// # Errors
    ///
    /// The context's.
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
        // SAFETY: nothing is done with the lock but one more acquisition.
        let guard = unsafe { self.raw() }.get().rlock_limited(limit)?;
        // SAFETY: it has been locked for reading, and this is its guard.
        Ok(unsafe { self.make_read_guard_unchecked(guard) })
    }

    fn write_limited(&self, limit: &WaitLimit<'_>) -> Result<Self::WriteGuard<'_>, WaitError> {
        // SAFETY: nothing is done with the lock but one more acquisition.
        let guard = unsafe { self.raw() }.get().lock_limited(limit)?;
        // SAFETY: it has been locked for writing, and this is its guard.
        Ok(unsafe { self.make_write_guard_unchecked(guard) })
    }
}
