//! Locking a [`Mutex`](crate::Mutex) as a future.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use crate::{ApiLock, AsyncRawLock, ConstRawLock, MutexWith, lock_api};

/// Locks that async tasks can wait for: adds [`lock_async`](LockAsync::lock_async) to [`Mutex`](crate::Mutex), and to
/// [`MutexWith`] every lock that can.
///
/// Tasks stand in the same line as the threads and goroutines that call `lock`.
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
    /// What the future yields: access to the value until it is dropped.
    type Guard<'a>
    where
        Self: 'a;

    /// What [`LockAsync::lock_async`] returns.
    type Lock<'a>: Future<Output = Self::Guard<'a>>
    where
        Self: 'a;

    /// Waits until the lock is ours. Does nothing before it is polled; it may be dropped at any time: see
    /// [`LockFuture`](crate::mutex::LockFuture).
    ///
    /// Its waker must not lock this very mutex, nor wait for one that does: it may be used by a thread inside of its
    /// own `lock`, when it has the mutex already.
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
        // SAFETY: nothing is done with the lock but one more acquisition.
        let lock = unsafe { self.raw() }.get().lock_async();
        GuardFuture { mutex: self, lock }
    }
}

/// Locks a mutex, and yields its guard: made by [`LockAsync::lock_async`].
#[must_use = "a future does nothing unless polled"]
pub struct GuardFuture<'a, R: AsyncRawLock + 'a, T: ?Sized> {
    mutex: &'a MutexWith<R, T>,
    lock: R::Lock<'a>,
}

impl<'a, R: AsyncRawLock + ConstRawLock, T: ?Sized> Future for GuardFuture<'a, R, T> {
    type Output = lock_api::MutexGuard<'a, ApiLock<R>, T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mutex = self.mutex;
        // SAFETY: the projection of a pin to a field that is never moved; there is no `Drop`, and `Self` is `Unpin`
        // only if the field is.
        let lock = unsafe { self.map_unchecked_mut(|this| &mut this.lock) };
        let guard = ready!(lock.poll(cx));
        // SAFETY: the lock has just been acquired, with this guard, for which no other has been made.
        Poll::Ready(unsafe { mutex.make_guard_unchecked(guard) })
    }
}

impl<'a, R: AsyncRawLock + 'a, T: ?Sized> fmt::Debug for GuardFuture<'a, R, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("GuardFuture { .. }")
    }
}
