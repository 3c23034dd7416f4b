//! Locking as a future: an async task among the contenders.
//!
//! It goes through the steps of `slow.rs`, but sleeps by returning `Poll::Pending`.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use super::GoMutex;
use super::policy::Policy;
use super::slow::{Contender, Step};
use crate::raw::AsyncSemaphore;

/// Locks a [`GoMutex`]: made by [`GoMutex::lock_async`]. Once it is ready, the mutex is locked, and to be unlocked by
/// hand.
///
/// It does nothing before it is first polled. A task never spins or stands by; it starves after
/// [`Policy::GOROUTINE_THRESHOLD`].
///
/// It may be dropped at any time, and is then as a contender that is out of time: it leaves the line. If it has been
/// woken, or the mutex has been handed to it, that goes to the next. That may take as long as an unlock that is under
/// way on another thread.
///
/// Once it has been polled it must be polled again when its waker is woken, or dropped: with a wake-up comes the duty
/// to see to the mutex, and until it has done so those who sleep are left asleep. One that is leaked may take the mutex
/// with it.
#[must_use = "a future does nothing unless polled"]
pub struct LockFuture<'a, S: AsyncSemaphore + 'a, P: Policy> {
    mutex: &'a GoMutex<S, P>,
    stage: Stage,
    me: Contender,
    /// Its place in the semaphore's line. Pinned with the future.
    sleep: Option<S::Acquire<'a>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Not polled yet.
    New,
    Contending,
    Over,
}

impl<'a, S: AsyncSemaphore, P: Policy> LockFuture<'a, S, P> {
    pub(super) fn new(mutex: &'a GoMutex<S, P>) -> Self {
        Self { mutex, stage: Stage::New, me: Contender::task::<P>(), sleep: None }
    }
}

impl<S: AsyncSemaphore, P: Policy> Future for LockFuture<'_, S, P> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        // SAFETY: nothing is moved out of it; `sleep` is used by way of the pin below only.
        let Self { mutex, stage, me, sleep } = unsafe { self.get_unchecked_mut() };
        // SAFETY: the projection of a pin to a field: it is never moved, `drop` drops it in place, and `Self` is
        // `Unpin` only if it is.
        let mut sleep = unsafe { Pin::new_unchecked(sleep) };
        assert!(*stage != Stage::Over, "a future was polled after it was ready");
        *stage = Stage::Contending;
        loop {
            if let Some(acquire) = sleep.as_mut().as_pin_mut() {
                ready!(acquire.poll(cx));
                sleep.set(None);
                if mutex.rise(me) {
                    break;
                }
            }
            match mutex.contend(me) {
                Step::Locked => break,
                Step::Sleep(order) => sleep.set(Some(mutex.sema.acquire_async(order))),
                Step::Crowded => {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Step::GaveUp => unreachable!("it has no deadline"),
            }
        }
        *stage = Stage::Over;
        Poll::Ready(())
    }
}

impl<'a, S: AsyncSemaphore + 'a, P: Policy> Drop for LockFuture<'a, S, P> {
    fn drop(&mut self) {
        if self.stage == Stage::Contending {
            // SAFETY: pinned if it was ever polled, and not moved by this; it is dropped in place.
            unsafe { Pin::new_unchecked(&mut self.sleep) }.set(None);
            self.mutex.abandon(&mut self.me);
        }
    }
}

impl<'a, S: AsyncSemaphore + 'a, P: Policy> fmt::Debug for LockFuture<'a, S, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("LockFuture { .. }")
    }
}
