//! The slow path of an acquire: there is no permit at first. `table.rs` lists the steps of acquirer and releaser side
//! by side.
//!
//! | step of the waiter | afterwards |
//! |---|---|
//! | [`Bucket::join`]: steps 1 to 4 | the waiter has a permit, or is queued and holds the lock |
//! | unlocks and waits: a thread or a goroutine by `park`, a task by `poll_ready` | another G has unlinked and readied the waiter |
//! | [`wait_result`] | the waiter has a permit; or a newcomer took that permit, and the waiter joins again, at the front |
//! | [`Bucket::abandon`]: the waiter's future is dropped during the wait, or `stand_by` panics | the waiter is in no queue, and the next waiter gets the permit or the wake-up that this waiter had been given |

use std::pin::pin;

use super::mutex_wait::MutexWait;
use super::queue::BucketQueue;
use super::table::{Bucket, key, take};
use super::{Guard, Order, Sudog, WaitError, WaitLimit, WaitOutcome};
use crate::profile::{Blocked, QueuedWait};
use crate::shim::{Parker, mark};
use crate::{AtomicU32, G, ParkResult};

#[cold]
pub(super) fn acquire_slow<Q: BucketQueue>(
    bucket: &Bucket<Q>,
    count: &AtomicU32,
    mut order: Order,
    limit: &WaitLimit<'_>,
    stand_by: impl Fn(&dyn Fn() -> bool),
    wait: QueuedWait,
) -> Result<(), WaitError> {
    let mut blocked = Blocked::new();
    let mut mutex_wait = MutexWait::new();
    let sudog = Sudog::new(G::current(), key(count), wait);
    // SAFETY: `sudog` will be queued in `bucket` or nowhere.
    let registered = pin!(limit.cancel.map(|cancel| unsafe { cancel.registration(&sudog, bucket) }));
    if let Some(registered) = registered.as_ref().as_pin_ref()
        && !registered.enter()
    {
        return Err(WaitError::Cancelled);
    }
    loop {
        // SAFETY:
        // - `sudog` is in no queue: it is new, or was unlinked by the waker that has just readied it;
        // - `sudog` lives on this stack frame, which is not left while `sudog` is queued: each return below comes after
        //   an unlinking, and so does the unwinding of a panic of `stand_by`;
        // - only the bucket's queue and the cancel access the links of `sudog`, both under the bucket's lock.
        let Some(queue) = (unsafe { bucket.join(count, &sudog, order, limit) })? else { return Ok(()) };
        blocked.begin();
        mutex_wait.begin(&sudog.wait);
        let guard = AbandonOnPanic { bucket, count, sudog: &sudog };
        let look = |parker: &Parker| stand_by(&|| parker.is_ready());
        let parked = sudog.g.park_standing_by(limit.deadline, || drop(queue), look);
        std::mem::forget(guard);
        if sudog.g.leave_or_await(parked, || bucket.leave(&sudog)) == ParkResult::TimedOut {
            return Err(WaitError::TimedOut);
        }
        if let Some(result) = wait_result(count, &sudog) {
            return result;
        }
        order = Order::Lifo;
    }
}

/// A guard that abandons a queued waiter if `stand_by`, which is the caller's code, panics.
struct AbandonOnPanic<'a, Q: BucketQueue> {
    bucket: &'a Bucket<Q>,
    count: &'a AtomicU32,
    sudog: &'a Sudog,
}

impl<Q: BucketQueue> Drop for AbandonOnPanic<'_, Q> {
    #[cold]
    fn drop(&mut self) {
        self.bucket.abandon(self.count, self.sudog);
    }
}

impl<Q: BucketQueue> Bucket<Q> {
    /// Does steps 1 to 4 of the acquirer (see `table.rs`). Returns the guard of the bucket's lock if the sudog has been
    /// queued; `None` if this call has taken a permit instead; an error if the wait has been cancelled.
    ///
    /// # Safety
    ///
    /// The same as for [`BucketQueue::queue`].
    #[inline]
    pub(super) unsafe fn join(
        &self,
        count: &AtomicU32,
        sudog: &Sudog,
        order: Order,
        limit: &WaitLimit<'_>,
    ) -> Result<Option<Guard<'_, Q>>, WaitError> {
        sudog.wait.begin(sudog.addr);
        let mut queue = self.lock_and_count();
        let not_queued = if take(count) {
            Ok(None)
        } else if limit.is_cancelled() {
            // Check under the lock: a cancel sets its flag before it takes this lock to look for the sudog. So either
            // the cancel finds the sudog queued, or the flag is seen here.
            Err(WaitError::Cancelled)
        } else {
            // SAFETY: the caller keeps the contract of `BucketQueue::queue` for `sudog`.
            unsafe { queue.queue(sudog, order) };
            return Ok(Some(queue));
        };
        queue.uncount(1);
        drop(queue);
        sudog.wait.end(sudog.addr, false);
        not_queued
    }

    /// Unlinks a waiter that gives up. Returns false if another G has unlinked the waiter; that G readies it.
    pub(super) fn leave(&self, sudog: &Sudog) -> bool {
        let mut queue = self.lock();
        let queued = sudog.outcome.get() == WaitOutcome::Queued;
        if queued {
            // SAFETY: `sudog` is alive, as it is borrowed, and this thread holds the bucket's lock; the outcome is
            // `Queued`, so `sudog` is queued in this bucket.
            unsafe { queue.unlink(sudog.as_queued(), WaitOutcome::Idle) };
            queue.uncount(1);
            drop(queue);
            sudog.end_wait();
        }
        queued
    }

    /// Ends the wait of a waiter, which may be queued, or may have been unlinked by another G. Loses nothing: a permit
    /// or a wake-up that the waiter has just been given goes to the next waiter.
    #[cold]
    pub(super) fn abandon(&self, count: &AtomicU32, sudog: &Sudog) {
        if self.leave(sudog) {
            mark("a waiter that is dropped leaves the queue");
            return;
        }
        sudog.g.await_ready();
        sudog.end_wait();
        match sudog.outcome.get() {
            WaitOutcome::Granted => {
                mark("a waiter that is dropped hands on a permit");
                self.hand_off(count);
            }
            // The permit is in the counter, or a newcomer has it; the newcomer's release will wake the next waiter.
            WaitOutcome::Woken => {
                mark("a waiter that is dropped passes on a wake-up");
                self.wake_one(key(count));
            }
            WaitOutcome::Cancelled => {}
            WaitOutcome::Idle | WaitOutcome::Queued => unreachable!("readied while {:?}", sudog.outcome.get()),
        }
    }
}

/// Returns the result of a wait whose waiter was readied, or `None` if a newcomer took the permit.
#[inline]
pub(super) fn wait_result(count: &AtomicU32, sudog: &Sudog) -> Option<Result<(), WaitError>> {
    sudog.end_wait();
    match sudog.outcome.get() {
        WaitOutcome::Granted => Some(Ok(())),
        WaitOutcome::Cancelled => Some(Err(WaitError::Cancelled)),
        // Take the permit for which the waiter was woken, even after the deadline: if the waiter left the permit, the
        // waiters behind it would sleep although there is a permit.
        WaitOutcome::Woken if take(count) => Some(Ok(())),
        // A newcomer was faster; the newcomer's release will wake the next waiter. This waiter was the first of the
        // queue, and returns to the front.
        WaitOutcome::Woken => None,
        WaitOutcome::Idle | WaitOutcome::Queued => unreachable!("readied while {:?}", sudog.outcome.get()),
    }
}
