//! `WakeBatch`: the part of a release that wakes several waiters.

use std::task::Waker;

use super::WaitOutcome;
use super::queue::BucketQueue;
use super::table::{Bucket, add, key};
use crate::AtomicU32;
use crate::g::ReadyBatch;
use crate::panics::Panics;
use crate::profile::Released;

/// The maximum number of waiters that are unlinked under one hold of the lock. The number is limited because the
/// waiters' wakers are stored on the stack.
const BATCH: usize = 32;

/// A batch that wakes several waiters of an address. All unlinked waiters are readied before any task's waker is
/// called, because a waker is user code. A waker may drop another task, which would wait for a `ready` that comes
/// later. A waker may also panic: then the other wakers are called all the same, and may panic too, and the first panic
/// is resumed at the end.
pub(super) struct WakeBatch<'a, Q: BucketQueue> {
    bucket: &'a Bucket<Q>,
    addr: usize,
    /// The counter, if each waiter is given a permit; `None` if the waiters are just woken.
    grants: Option<&'a AtomicU32>,
    left: u32,
    released: Released,
    wakers: [Option<Waker>; BATCH],
}

impl<'a, Q: BucketQueue> WakeBatch<'a, Q> {
    /// Creates a batch that wakes up to `n` waiters of an address.
    pub(super) fn new(bucket: &'a Bucket<Q>, addr: usize, n: u32) -> Self {
        Self { bucket, addr, grants: None, left: n, released: Released::new(), wakers: [const { None }; BATCH] }
    }

    /// Creates a batch that grants permits to up to `n` waiters; the remaining permits go to the counter, which is not
    /// used any more once all permits have been given.
    pub(super) fn granting(bucket: &'a Bucket<Q>, count: &'a AtomicU32, n: u32) -> Self {
        let mut batch = Self::new(bucket, key(count), n);
        batch.grants = Some(count);
        batch
    }

    pub(super) fn run(mut self) {
        let mut panics = Panics::default();
        loop {
            for waker in self.wakers.iter_mut().filter_map(Option::take) {
                panics.catch(|| waker.wake());
            }
            if self.left == 0 {
                break;
            }
            self.next_batch();
        }
        self.released.record();
        panics.resume();
    }

    fn next_batch(&mut self) {
        let mut batch = [const { None }; BATCH];
        let most = BATCH.min(self.left as usize);
        let mut woken = 0;
        let outcome = if self.grants.is_some() { WaitOutcome::Granted } else { WaitOutcome::Woken };
        let mut queue = self.bucket.lock();
        while woken < most
            && let Some(s) = queue.dequeue(self.addr, outcome)
        {
            self.released.add(&s);
            batch[woken] = Some(s);
            woken += 1;
        }
        queue.uncount(woken as u32);
        self.left -= woken as u32;
        if woken < most {
            // Add under the lock: an acquirer that queues later tests the counter first, under the lock too.
            if let Some(count) = self.grants {
                add(count, self.left);
            }
            self.left = 0;
        }
        drop(queue);
        self.released.settle(self.addr);
        let mut ready = ReadyBatch::new();
        self.wakers = batch.map(|s| {
            // SAFETY: this call has unlinked `s`, and its G is not readied yet, so the waiter still waits and `s`
            // is alive; `s` is not used afterwards. `ready` is dropped below, with no user code and no wait before
            // that.
            s.and_then(|s| unsafe { ready.mark_ready(s.g()) })
        });
    }
}
