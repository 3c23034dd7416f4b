//! The acquirer's slow path: `table.rs` has the two columns that it and the releaser go through.
//!
//! | the waiter | then |
//! |---|---|
//! | [`Bucket::join`]: steps 1 to 4 | it has a permit, or stands in line, holding the lock |
//! | unlocks and waits: a thread or a goroutine by `park`, a task by `poll_ready` | somebody has unlinked and readied it |
//! | [`outcome`] | it has a permit; or it was beaten to it, and joins again, at the front |
//! | [`Linked`]: unwound, or dropped, while it waits | it stands in no line, and whoever is next has what it was given |

use std::pin::pin;

use super::queue::BucketQueue;
use super::table::{Bucket, WaitError, WaitLimit, key, take};
use super::{Guard, Order, Sudog, WaitOutcome};
use crate::shim::mark;
use crate::{AtomicU32, G, ParkResult};

#[cold]
pub(super) fn acquire_slow<Q: BucketQueue>(
    bucket: &Bucket<Q>,
    count: &AtomicU32,
    mut order: Order,
    limit: &WaitLimit<'_>,
) -> Result<(), WaitError> {
    let sudog = Sudog::new(G::current(), key(count));
    // SAFETY: `sudog` does not move and is dropped after this; it will be queued in `bucket` or nowhere.
    let registered = pin!(limit.cancel.map(|cancel| unsafe { cancel.registration(&sudog, bucket) }));
    if let Some(registered) = registered.as_ref().as_pin_ref()
        && !registered.enter()
    {
        return Err(WaitError::Cancelled);
    }
    loop {
        // SAFETY:
        // - it is in no queue: new, or unlinked by the waker that has just readied it;
        // - it lives on this stack frame, which is not left while it is queued: every way out below comes after an
        //   unlinking;
        // - nobody else but the bucket's queue and the cancel, under the bucket's lock, reaches its links.
        let Some(queue) = (unsafe { bucket.join(count, &sudog, order, limit) })? else { return Ok(()) };
        // A goroutine that is unwound leaves `park` by a panic.
        let linked = Linked { bucket, count, sudog: &sudog };
        if sudog.g.park(limit.deadline, || drop(queue)) == ParkResult::TimedOut {
            if bucket.leave(&sudog) {
                std::mem::forget(linked);
                return Err(WaitError::TimedOut);
            }
            // Somebody unlinked us and will ready us, if it has not. Until it has, this frame must stand.
            sudog.g.park(None, || ());
        }
        std::mem::forget(linked);
        if let Some(outcome) = outcome(count, &sudog) {
            return outcome;
        }
        order = Order::Lifo;
    }
}

impl<Q: BucketQueue> Bucket<Q> {
    /// Acquirer, steps 1 to 4: takes a permit after all (`None`), or queues the sudog, and leaves the lock to the
    /// caller.
    ///
    /// # Safety
    ///
    /// The contract of [`BucketQueue::queue`].
    #[inline]
    pub(super) unsafe fn join(
        &self,
        count: &AtomicU32,
        sudog: &Sudog,
        order: Order,
        limit: &WaitLimit<'_>,
    ) -> Result<Option<Guard<'_, Q>>, WaitError> {
        let mut queue = self.lock_and_count();
        if take(count) {
            queue.count_off(1);
            return Ok(None);
        }
        // Under the lock: a cancel sets its flag before it comes here for our sudog, so it finds us queued, or we see
        // it.
        if limit.is_cancelled() {
            queue.count_off(1);
            return Err(WaitError::Cancelled);
        }
        // SAFETY: by the contract.
        unsafe { queue.queue(sudog, order) };
        Ok(Some(queue))
    }

    /// Takes a waiter out that gives up. False if somebody else has unlinked it, and readies it.
    pub(super) fn leave(&self, sudog: &Sudog) -> bool {
        let mut queue = self.lock();
        let queued = sudog.fate.get() == WaitOutcome::Queued;
        if queued {
            // SAFETY: alive, and the lock is held; queued, hence in this bucket.
            unsafe { queue.unlink(sudog.as_queued(), WaitOutcome::Idle) };
            queue.count_off(1);
        }
        queued
    }
}

/// What has come of the wait of one who was readied. `None`: it was beaten to its permit.
#[inline]
pub(super) fn outcome(count: &AtomicU32, sudog: &Sudog) -> Option<Result<(), WaitError>> {
    match sudog.fate.get() {
        WaitOutcome::Granted => Some(Ok(())),
        WaitOutcome::Cancelled => Some(Err(WaitError::Cancelled)),
        // The permit that we were woken for is ours to take whatever the clock says: were we to leave it, those
        // behind us would sleep beside it.
        WaitOutcome::Woken if take(count) => Some(Ok(())),
        // A newcomer was faster; it will wake the next when it releases. We were first in line, and go back there.
        WaitOutcome::Woken => None,
        WaitOutcome::Idle | WaitOutcome::Queued => unreachable!("readied while {:?}", sudog.fate.get()),
    }
}

/// A waiter that may be in the queue, or on its way out of it by another's hand. Dropped, it gives up, and loses
/// nothing: a permit or a wake-up that it has just been given goes to the next.
pub(super) struct Linked<'a, Q: BucketQueue> {
    pub(super) bucket: &'a Bucket<Q>,
    pub(super) count: &'a AtomicU32,
    pub(super) sudog: &'a Sudog,
}

impl<Q: BucketQueue> Drop for Linked<'_, Q> {
    #[cold]
    fn drop(&mut self) {
        let Self { bucket, count, sudog } = *self;
        if bucket.leave(sudog) {
            mark("who is unwound or dropped leaves the line");
            return;
        }
        sudog.g.await_ready();
        match sudog.fate.get() {
            WaitOutcome::Granted => {
                mark("who is unwound or dropped hands on a permit");
                bucket.hand_off(count);
            }
            // The permit is in the counter, or a newcomer has it, who will wake the next in its turn.
            WaitOutcome::Woken => {
                mark("who is unwound or dropped passes on a wake-up");
                bucket.wake_one(key(count));
            }
            WaitOutcome::Cancelled => {}
            WaitOutcome::Idle | WaitOutcome::Queued => unreachable!("readied while {:?}", sudog.fate.get()),
        }
    }
}
