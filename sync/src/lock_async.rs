//! Locking a [`Mutex`](crate::Mutex) as a future.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use crate::{ApiLock, AsyncRawLock, ConstRawLock, MutexWith, lock_api};

/// Adds the method [`lock_async`](LockAsync::lock_async) to [`Mutex`](crate::Mutex), and to each [`MutexWith`] whose
/// lock supports async tasks. With this method, an async task waits for the mutex.
///
/// Tasks wait in the same queue as the threads and goroutines that call `lock`.
///
/// # Examples
///
/// ```
/// use sudog::sync::{LockAsync, Mutex};
///
/// async fn add(total: &Mutex<u64>, n: u64) {
///     *total.lock_async().await += n;
/// }
///
/// let total = Mutex::new(0);
/// # #[cfg(unix)] {
/// sudog::block_on(async { add(&total, 5).await });
/// assert_eq!(total.into_inner(), 5);
/// # }
/// ```
pub trait LockAsync {
    /// The guard that the future yields: access to the value until the guard is dropped.
    type Guard<'a>
    where
        Self: 'a;

    /// The future that [`LockAsync::lock_async`] returns.
    type Lock<'a>: Future<Output = Self::Guard<'a>>
    where
        Self: 'a;

    /// Waits until the caller has the lock. The future does nothing before its first poll, and may be dropped at any
    /// time: see [`LockFuture`](crate::mutex::LockFuture).
    ///
    /// The waker of the polling task must neither lock this mutex nor wait for a thread that does: another thread may
    /// call the waker inside of `lock`, at a moment when that thread already has the mutex.
    fn lock_async(&self) -> Self::Lock<'_>;
}

impl<R: AsyncRawLock + ConstRawLock, T: ?Sized> LockAsync for MutexWith<R, T> {
    type Guard<'a>
        = lock_api::MutexGuard<'a, ApiLock<R>, T>
    where
        Self: 'a;

    type Lock<'a>
        = GuardFuture<'a, R, T>
    where
        Self: 'a;

    fn lock_async(&self) -> GuardFuture<'_, R, T> {
        // SAFETY: the raw lock is only acquired here, never released, so no live guard loses its lock.
        let lock = unsafe { self.raw() }.get().lock_async();
        GuardFuture { mutex: self, lock }
    }
}

/// A future that locks a mutex and yields the guard, made by [`LockAsync::lock_async`].
#[must_use = "a future does nothing unless polled"]
pub struct GuardFuture<'a, R: AsyncRawLock + 'a, T: ?Sized> {
    mutex: &'a MutexWith<R, T>,
    lock: R::Lock<'a>,
}

impl<'a, R: AsyncRawLock + ConstRawLock, T: ?Sized> Future for GuardFuture<'a, R, T> {
    type Output = lock_api::MutexGuard<'a, ApiLock<R>, T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mutex = self.mutex;
        // SAFETY: `map_unchecked_mut` projects the pin to the field `lock`, which is never moved: there is no `Drop`,
        // and `Self` is `Unpin` only if the field is.
        let lock = unsafe { self.map_unchecked_mut(|this| &mut this.lock) };
        let guard = ready!(lock.poll(cx));
        // SAFETY: `guard` came from the acquisition that has just become ready, and no other `MutexGuard` has been made
        // from `guard`.
        Poll::Ready(unsafe { mutex.make_guard_unchecked(guard) })
    }
}

impl<'a, R: AsyncRawLock + 'a, T: ?Sized> fmt::Debug for GuardFuture<'a, R, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("GuardFuture { .. }")
    }
}
