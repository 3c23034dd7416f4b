//! Locking an [`RwMutex`](crate::RwMutex) until a limit is reached.

use sudog_runtime::sema::IntoLimit;

use crate::{ApiRwLock, ConstRawRwLock, RwMutexWith, lock_api};

/// Adds methods to [`RwMutex`](crate::RwMutex), and to every [`RwMutexWith`], that lock for reading or for writing, but
/// give up at a limit: see [`IntoLimit`].
///
/// If the lock is a [`GoRwMutex`](crate::GoRwMutex) or a [`ShardedRwMutex`](crate::rw_mutex::ShardedRwMutex), over the
/// default semaphore, the callers of these methods wait in the same queues as the other callers. If a lock or a
/// semaphore uses the provided methods [`rlock_limited`](crate::RawRwLock::rlock_limited) and `lock_limited`, or
/// [`acquire_limited`](crate::Semaphore::acquire_limited), a caller with a cancel leaves the queue every millisecond, to
/// check for the cancel, and then joins the queue anew: beside many others, such a caller may wait for ever.
///
/// If the lock is free, a [`Cancel`](sudog_runtime::sema::Cancel) that is cancelled already, or an `Instant` in the past,
/// keeps no caller from the lock. A context that is done already does.
///
/// To lock a [`Mutex`](crate::Mutex) with a context, pass `mutex.lock_async()` to
/// [`block_on_limited`](sudog_runtime::goroutine).
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use sudog::context;
/// use sudog::sync::{RwLimited, RwMutex};
///
/// let words = RwMutex::new(vec!["go"]);
/// let (ctx, cancel) = context::with_cancel(&context::background());
/// assert_eq!(words.read_limited(Duration::from_millis(1)).unwrap().len(), 1);
/// let _writing = words.write_limited(&ctx).unwrap();
/// cancel.cancel();
/// assert_eq!(words.read_limited(&ctx).err(), Some(context::Error::Canceled));
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
    fn read_limited<L: IntoLimit>(&self, limit: L) -> Result<Self::ReadGuard<'_>, L::Error>;

    /// Locks for writing, waiting until `limit` at most.
    ///
    /// # Errors
    ///
    /// The error says which limit came first.
    fn write_limited<L: IntoLimit>(&self, limit: L) -> Result<Self::WriteGuard<'_>, L::Error>;
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

    fn read_limited<L: IntoLimit>(&self, limit: L) -> Result<Self::ReadGuard<'_>, L::Error> {
        // SAFETY: the raw lock is only acquired here, never released, so no live guard loses its lock.
        let lock = unsafe { self.raw() }.get();
        let guard = limit.limited(|limit| lock.rlock_limited(limit))?;
        // SAFETY: `guard` came from the read acquisition above, and no other `RwLockReadGuard` has been made from
        // `guard`.
        Ok(unsafe { self.make_read_guard_unchecked(guard) })
    }

    fn write_limited<L: IntoLimit>(&self, limit: L) -> Result<Self::WriteGuard<'_>, L::Error> {
        // SAFETY: the raw lock is only acquired here, never released, so no live guard loses its lock.
        let lock = unsafe { self.raw() }.get();
        let guard = limit.limited(|limit| lock.lock_limited(limit))?;
        // SAFETY: `guard` came from the write acquisition above, and no other `RwLockWriteGuard` has been made from
        // `guard`.
        Ok(unsafe { self.make_write_guard_unchecked(guard) })
    }
}
