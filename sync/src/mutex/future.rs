//! An async task as a contender: `lock` as a future.
//!
//! The task goes through the steps of `lock.rs`, but sleeps by returning `Poll::Pending`.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use sudog_runtime::Coop;

use super::GoMutex;
use super::contender::{Contender, Step};
use super::policy::Policy;
use crate::raw::AsyncSemaphore;

/// The future of [`GoMutex::lock_async`]. When the future is ready, the caller owns the mutex, and must unlock it.
///
/// The future does nothing before the first poll. A task never spins, and never watches the mutex as the successor. A
/// task starves after [`Policy::GOROUTINE_THRESHOLD`].
///
/// The future may be dropped at any time: the task leaves the queue. If the task is the designated waker, or has been
/// handed the mutex, the next contender takes the task's place. The drop may have to wait for an unlock that is under
/// way on another thread.
///
/// After the first poll the future must be polled again when its waker is woken, or dropped: a woken task is the
/// designated waker, and until that task runs no other waiter is woken. A leaked future may keep the mutex locked for
/// good. A leaked future also counts as a waiter of any later semaphore at the address of the mutex's semaphore, and so
/// may keep a waiter of a later lock asleep.
#[must_use = "a future does nothing unless polled"]
pub struct LockFuture<'a, S: AsyncSemaphore + 'a, P: Policy> {
    mutex: &'a GoMutex<S, P>,
    stage: Stage,
    coop: Coop,
    me: Contender<'static>,
    /// The task's place in the semaphore's queue. Pinned with the future.
    sleep: Option<S::Acquire<'a>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Unpolled,
    Contending,
    Ready,
}

impl<'a, S: AsyncSemaphore, P: Policy> LockFuture<'a, S, P> {
    pub(super) fn new(mutex: &'a GoMutex<S, P>) -> Self {
        Self { mutex, stage: Stage::Unpolled, coop: Coop::new(), me: Contender::task::<P>(), sleep: None }
    }
}

impl<S: AsyncSemaphore, P: Policy> Future for LockFuture<'_, S, P> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        // SAFETY:
        // - nothing is moved out of the future;
        // - `sleep` is used through the pin below only.
        let Self { mutex, stage, coop, me, sleep } = unsafe { self.get_unchecked_mut() };
        // SAFETY: `Pin::new_unchecked` projects the pin to the field `sleep`:
        // - `sleep` is never moved, and `drop` drops the field in place;
        // - `Self` is `Unpin` only if the type of `sleep` is.
        let mut sleep = unsafe { Pin::new_unchecked(sleep) };
        ready!(coop.poll_proceed(cx));
        assert!(*stage != Stage::Ready, "a future was polled after it was ready");
        *stage = Stage::Contending;
        loop {
            if let Some(acquire) = sleep.as_mut().as_pin_mut() {
                if acquire.poll(cx).is_pending() {
                    mutex.deadlock_owner.note_task_wait("sync.Mutex.Lock");
                    return Poll::Pending;
                }
                sleep.set(None);
                if mutex.after_wakeup(me) {
                    break;
                }
            }
            match mutex.contend(me) {
                Step::Locked => break,
                Step::Sleep(order) => sleep.set(Some(mutex.sema.acquire_async(order))),
                Step::TooManyWaiters => {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Step::GivesUp(_) => unreachable!("a task has no limit"),
            }
        }
        *stage = Stage::Ready;
        Poll::Ready(())
    }
}

impl<'a, S: AsyncSemaphore + 'a, P: Policy> Drop for LockFuture<'a, S, P> {
    fn drop(&mut self) {
        if self.stage == Stage::Contending {
            // The waker's destructor may panic: the contender is taken off the mutex all the same.
            let _cancel = CancelAfter { mutex: self.mutex, me: &mut self.me };
            // Drops the old value of `sleep`, which is pinned, in place.
            self.sleep = None;
        }
    }
}

struct CancelAfter<'m, S: AsyncSemaphore, P: Policy> {
    mutex: &'m GoMutex<S, P>,
    me: &'m mut Contender<'static>,
}

impl<S: AsyncSemaphore, P: Policy> Drop for CancelAfter<'_, S, P> {
    fn drop(&mut self) {
        self.mutex.cancel(self.me);
    }
}

impl<'a, S: AsyncSemaphore + 'a, P: Policy> fmt::Debug for LockFuture<'a, S, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("LockFuture { .. }")
    }
}
