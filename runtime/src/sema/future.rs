//! Acquire: a future that acquires a permit. An async task waits in the same queue as threads and goroutines.
//!
//! | stage | the sudog | on poll | on drop |
//! |---|---|---|---|
//! | `Idle` | is in no queue | tries, then joins the queue: `Queued` | nothing |
//! | `Queued` | is in the bucket's queue, or unlinked and about to be readied | registers the waker; if readied: `Done`, or `Idle` if a newcomer took the permit | leaves the queue; or passes on the permit or the wake-up that the future has been given |
//! | `Done` | is in no queue | panics | nothing |
//!
//! The waker is registered after the sudog has been queued and the bucket unlocked, as a waker's `clone` is user code.
//! No wake-up is lost: a wake-up that comes before the registration sets a flag in the G, which [`G::poll_ready`]
//! finds.

use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::marker::PhantomPinned;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use super::acquire::wait_result;
use super::queue::BucketQueue;
use super::table::{Bucket, key, take};
use super::{Global, Order, Sudog, Table, WaitLimit};
use crate::profile::QueuedWait;
use crate::unpolled::Watch;
use crate::{AtomicU32, Coop, G};

/// A future that takes a permit: made by [`semacquire_async`](super::semacquire_async).
///
/// The future does nothing before its first poll. That poll takes a permit, or joins the queue, in which tasks, threads
/// and goroutines are served first in, first out. The future keeps its place in the queue, whichever task polls the
/// future.
///
/// The future may be dropped at any time, and then takes no permit and loses none: a permit or a wake-up that the
/// future had been given goes to the next waiter. The drop may have to wait for a release that is under way on another
/// thread.
///
/// A future that has been polled must be polled again when its waker is woken, or dropped: the future may own a permit
/// already, or may be the only waiter that has been woken to take a permit from the counter. A future that is leaked
/// (for example by `mem::forget` of a `Pin<Box<Acquire>>`) stays in the queue for ever, and swallows the permit or the
/// wake-up that it is given. The queue goes by the address of the semaphore, so a leaked future counts as a waiter also
/// of any later semaphore at this address. Memory stays safe: pinned memory may not be reused before the value has been
/// dropped.
#[must_use = "a future does nothing unless polled"]
pub struct Acquire<'a, Q: BucketQueue = <Global as Table>::Queue> {
    bucket: &'a Bucket<Q>,
    count: &'a AtomicU32,
    order: Cell<Order>,
    stage: Cell<Stage>,
    sudog: Sudog,
    coop: Coop,
    _pinned: PhantomPinned,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Idle,
    Queued,
    Done,
}

// SAFETY:
// - `sudog` is the field that is not `Send`. While `sudog` is queued, its links and outcome are accessed under the
//   bucket's lock, and otherwise by the owner of the future; `stage` likewise. An owner that receives the future on
//   another thread sees the previous owner's writes, as with any value that is sent.
// - The `G` of `sudog` is a task. Such a `G` is not bound to a thread: it contains only a lock around a flag, a
//   `Waker` and a `Watch`, and these are `Send`.
unsafe impl<Q: BucketQueue> Send for Acquire<'_, Q> {}
// SAFETY: a shared reference to an `Acquire` allows no operation.
unsafe impl<Q: BucketQueue> Sync for Acquire<'_, Q> {}

impl<'a, Q: BucketQueue> Acquire<'a, Q> {
    pub(super) fn new(
        bucket: &'a Bucket<Q>,
        count: &'a AtomicU32,
        order: Order,
        wait: QueuedWait,
        watch: Watch,
    ) -> Self {
        let sudog = Sudog::new(G::watched_task(watch), key(count), wait);
        let (order, stage) = (Cell::new(order), Cell::new(Stage::Idle));
        Self { bucket, count, order, stage, sudog, coop: Coop::new(), _pinned: PhantomPinned }
    }

    /// Takes a permit, or joins the queue.
    fn try_or_join(&self) -> bool {
        // SAFETY:
        // - `self.sudog` is in no queue: the stage is `Idle`;
        // - the future is pinned, by `poll`, and `drop` takes the sudog out of the queue before its memory can be
        //   reused;
        // - the links of the sudog are private, and used through the bucket's queue only.
        let joined = unsafe { self.bucket.join(self.count, &self.sudog, self.order.get(), &WaitLimit::default()) };
        match joined {
            Ok(Some(queue)) => {
                self.stage.set(Stage::Queued);
                drop(queue);
                false
            }
            Ok(None) => true,
            Err(_) => unreachable!("no limit was set"),
        }
    }
}

impl<Q: BucketQueue> Future for Acquire<'_, Q> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.as_ref().get_ref();
        ready!(this.coop.poll_proceed(cx));
        loop {
            match this.stage.get() {
                Stage::Idle if take(this.count) || this.try_or_join() => break,
                Stage::Idle => {}
                Stage::Queued if !this.sudog.g.poll_ready(cx.waker()) => {
                    crate::note_task_wait("semacquire");
                    return Poll::Pending;
                }
                Stage::Queued => {
                    this.stage.set(Stage::Idle);
                    if wait_result(this.count, &this.sudog).is_some() {
                        break;
                    }
                    this.order.set(Order::Lifo);
                }
                Stage::Done => panic!("a future was polled after it was ready"),
            }
        }
        this.stage.set(Stage::Done);
        Poll::Ready(())
    }
}

impl<Q: BucketQueue> Drop for Acquire<'_, Q> {
    fn drop(&mut self) {
        if self.stage.get() == Stage::Queued {
            self.bucket.abandon(self.count, &self.sudog);
        }
    }
}

impl<Q: BucketQueue> fmt::Debug for Acquire<'_, Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("Acquire { .. }")
    }
}
