//! The semaphore table: acquire and release by address.
//!
//! | acquirer that found no permit | releaser |
//! |---|---|
//! | 1. takes the bucket's lock, | 1. `count += 1` |
//! | 2. and, in the same step, `nwait += 1` | 2. reads `nwait`: 0 means that there is no waiter, done |
//! | 3. tries `count` once more | 3. takes the bucket's lock |
//! | 4. queues its sudog | 4. unlinks the first waiter of this address |
//! | 5. parks, which unlocks | 5. unlocks, and `nwait -= 1` in the same step; then readies the waiter |
//!
//! `nwait` is the count in the word of the bucket's lock, a [`CountedLock`]. Acquirer 2, 3 against releaser 1, 2 is a
//! Dekker pair: each side writes its own word, then reads the other's. All four accesses are sequentially consistent,
//! so at least one side sees the other: no wake-up is lost. See `docs/orderings.md`.
//!
//! A handoff takes the lock first and decides under the lock: the handoff gives the permit to the first waiter, past
//! `count`, or, if there is no waiter, adds to `count`. Acquirers test `count` under the same lock before they queue,
//! so a handoff needs no Dekker pair, and at no moment can a newcomer take a permit that is being handed over. A grant
//! is a handoff whose releaser does not yield.

use crossbeam_utils::CachePadded;

use super::acquire::acquire_slow;
use super::future::Acquire;
use super::queue::BucketQueue;
use super::wake_many::WakeBatch;
use super::{CountedLock, Global, Guard, Order, SudogPtr, Table, WaitError, WaitLimit, WaitOutcome, Wake};
use crate::profile::{QueuedWait, Released};
use crate::shim::Ordering;
use crate::unpolled::Watch;
use crate::{AtomicU32, G, fatal, goroutine};

/// The number of buckets of Go's table: a prime, against regular strides of addresses. (In a model, 1.)
pub const BUCKETS: usize = if cfg!(sudog_loom) { 1 } else { 251 };

/// A table in which acquirers wait if they have found a semaphore without permits. The functions of [`sema`](super) use
/// a global table.
///
/// A separate table is for models, measurements and isolation: all calls on the same semaphore must use the same table.
/// [`queue`](super::queue) lists the queues that a table's buckets can have: by default treaps, with the feature
/// `event` recorded ones. `A` is a type with the alignment of the buckets.
///
/// # Examples
///
/// ```
/// use std::sync::atomic::AtomicU32;
/// use sudog::low_level::sema::{Order, Wake};
/// use sudog::study::SemTable;
///
/// static TABLE: SemTable<8> = SemTable::new();
/// let permits = AtomicU32::new(0);
/// TABLE.release(&permits, Wake::Normal);
/// TABLE.acquire(&permits, Order::Fifo);
/// ```
pub struct SemTable<const N: usize = BUCKETS, Q = <Global as Table>::Queue, A = CachePadded<()>> {
    buckets: [Aligned<Bucket<Q>, A>; N],
}

/// A value that is aligned as `A` is, too. With `CachePadded<()>` each bucket has cache lines of its own.
struct Aligned<T, A> {
    value: T,
    _align: [A; 0],
}

pub(super) struct Bucket<Q> {
    queue: CountedLock<Q>,
}

impl<const N: usize> SemTable<N> {
    crate::const_unless_model! {
        /// Creates an empty table.
        #[must_use]
        pub const fn new() -> Self {
            Self::const_new()
        }
    }
}

impl<const N: usize, Q: BucketQueue> SemTable<N, Q> {
    /// Creates an empty table, with any kind of queue.
    #[cfg(not(sudog_loom))]
    #[must_use]
    pub const fn const_new() -> Self {
        Self::empty()
    }

    /// Creates an empty table, with any kind of queue.
    #[cfg(sudog_loom)]
    #[must_use]
    pub fn const_new() -> Self {
        let bucket = |_| Aligned { value: Bucket { queue: CountedLock::new(Q::EMPTY) }, _align: [] };
        Self { buckets: std::array::from_fn(bucket) }
    }
}

#[cfg(not(sudog_loom))]
impl<const N: usize, Q: BucketQueue> SemTable<N, Q, ()> {
    /// Creates an empty table whose buckets share cache lines: for measurements of the padding.
    #[doc(hidden)]
    #[must_use]
    pub const fn unpadded() -> Self {
        Self::empty()
    }
}

impl<const N: usize, Q: BucketQueue, A> SemTable<N, Q, A> {
    #[cfg(not(sudog_loom))]
    const fn empty() -> Self {
        const { assert!(N > 0, "a semaphore table needs a bucket") };
        Self { buckets: [const { Aligned { value: Bucket { queue: CountedLock::new(Q::EMPTY) }, _align: [] } }; N] }
    }

    /// Takes a permit, and waits for a permit if there is none: see [`semacquire_mutex`](super::semacquire_mutex).
    #[inline]
    pub fn acquire(&self, count: &AtomicU32, order: Order) {
        self.acquire_for(count, order, QueuedWait::for_lock());
    }

    /// Acquires as [`SemTable::acquire`] does. `wait` tells the mutex profile whether the wait is for a lock.
    #[inline]
    pub(super) fn acquire_for(&self, count: &AtomicU32, order: Order, wait: QueuedWait) {
        if !take(count) {
            let never = WaitLimit::default();
            let got = acquire_slow(self.bucket(key(count)), count, order, &never, sleep_at_once, wait);
            debug_assert_eq!(got, Ok(()));
        }
    }

    /// Takes a permit, and gives up waiting at the limit: see [`semacquire_limited`](super::semacquire_limited).
    ///
    /// # Errors
    ///
    /// Returns the limit that came first.
    #[inline]
    pub fn acquire_limited(&self, count: &AtomicU32, order: Order, limit: &WaitLimit<'_>) -> Result<(), WaitError> {
        self.acquire_standing_by(count, order, limit, sleep_at_once)
    }

    /// Acquires as [`SemTable::acquire_limited`] does, but a thread calls `stand_by` each time before sleeping. The
    /// waiter is in the queue then. `stand_by` is given a function that tells whether the waiter has been woken;
    /// `stand_by` returns once the waiter has been woken, or when the thread is to sleep.
    ///
    /// # Errors
    ///
    /// Returns the limit that came first.
    #[doc(hidden)]
    #[inline]
    pub fn acquire_standing_by(
        &self,
        count: &AtomicU32,
        order: Order,
        limit: &WaitLimit<'_>,
        stand_by: impl Fn(&dyn Fn() -> bool),
    ) -> Result<(), WaitError> {
        self.acquire_limited_for(count, order, limit, stand_by, QueuedWait::for_lock())
    }

    /// Acquires as [`SemTable::acquire_standing_by`] does. `wait` tells the mutex profile whether the wait is for a
    /// lock.
    #[inline]
    pub(super) fn acquire_limited_for(
        &self,
        count: &AtomicU32,
        order: Order,
        limit: &WaitLimit<'_>,
        stand_by: impl Fn(&dyn Fn() -> bool),
        wait: QueuedWait,
    ) -> Result<(), WaitError> {
        if limit.is_cancelled() {
            return Err(WaitError::Cancelled);
        }
        if take(count) { Ok(()) } else { acquire_slow(self.bucket(key(count)), count, order, limit, stand_by, wait) }
    }

    /// Returns a future that takes a permit: see [`semacquire_mutex_async`](super::semacquire_mutex_async).
    pub fn acquire_async<'a>(&'a self, count: &'a AtomicU32, order: Order) -> Acquire<'a, Q> {
        Acquire::new(self.bucket(key(count)), count, order, QueuedWait::for_lock(), Watch::new())
    }

    /// Returns a future as [`SemTable::acquire_async`] does. `wait` tells the mutex profile whether the wait is for a
    /// lock.
    pub(super) fn acquire_async_for<'a>(
        &'a self,
        count: &'a AtomicU32,
        order: Order,
        wait: QueuedWait,
    ) -> Acquire<'a, Q> {
        Acquire::new(self.bucket(key(count)), count, order, wait, Watch::NONE)
    }

    /// Gives a permit: see [`semrelease`](super::semrelease).
    #[inline]
    pub fn release(&self, count: &AtomicU32, wake: Wake) {
        let (bucket, addr) = (self.bucket(key(count)), key(count));
        match wake {
            Wake::Handoff => bucket.hand_off(count),
            Wake::Grant => {
                bucket.grant_one(count);
                goroutine::safepoint();
            }
            Wake::Normal => {
                add(count, 1);
                // From here on use `count` as an address only: an acquirer may have freed the counter.
                if bucket.has_waiters() {
                    bucket.wake_one(addr);
                }
                goroutine::safepoint();
            }
        }
    }

    /// Gives `n` permits: see [`semrelease_many`](super::semrelease_many).
    #[inline]
    pub fn release_many(&self, count: &AtomicU32, n: u32) {
        let (bucket, addr) = (self.bucket(key(count)), key(count));
        if n > 0 {
            add(count, n);
            if bucket.has_waiters() {
                if n == 1 { bucket.wake_one(addr) } else { bucket.wake_many(addr, n) }
            }
        }
        // Make a safepoint even if `n` is 0: resetting a timer for which no goroutine waits calls this function.
        goroutine::safepoint();
    }

    /// Gives `n` permits to the waiters: see [`semgrant_many`](super::semgrant_many).
    #[inline]
    pub fn grant_many(&self, count: &AtomicU32, n: u32) {
        let bucket = self.bucket(key(count));
        match n {
            0 => {}
            1 => _ = bucket.grant_one(count),
            _ => WakeBatch::granting(bucket, count, n).run(),
        }
        goroutine::safepoint();
    }

    /// Returns the number of waiters of this semaphore: see [`waiters`](super::waiters).
    #[must_use]
    pub fn waiters(&self, count: &AtomicU32) -> usize {
        self.bucket(key(count)).lock().len(key(count))
    }

    #[inline]
    fn bucket(&self, addr: usize) -> &Bucket<Q> {
        // Use Go's hash. Two semaphores in the same aligned 8 bytes always share a bucket.
        &self.buckets[(addr >> 3) % N].value
    }
}

impl<const N: usize> Default for SemTable<N> {
    fn default() -> Self {
        Self::new()
    }
}

/// Checks, at the end of a model, that no waiter is counted: none is left.
#[cfg(sudog_loom)]
impl<const N: usize, Q, A> Drop for SemTable<N, Q, A> {
    fn drop(&mut self) {
        for bucket in &self.buckets {
            assert!(
                std::thread::panicking() || bucket.value.queue.count() == 0,
                "a waiter is counted, and does not wait"
            );
        }
    }
}

impl<const N: usize, Q, A> std::fmt::Debug for SemTable<N, Q, A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad("SemTable { .. }")
    }
}

/// Returns the key of a semaphore: its address.
#[inline]
pub(super) fn key(count: &AtomicU32) -> usize {
    std::ptr::from_ref(count).addr()
}

/// Does nothing: a waiter that calls this function before it sleeps, sleeps at once.
#[inline(always)]
pub(super) fn sleep_at_once(_woken: &dyn Fn() -> bool) {}

/// Takes a permit if there is one.
#[inline]
pub(super) fn take(count: &AtomicU32) -> bool {
    // Use SeqCst, because the slow path's test is one side of the Dekker pair. Elsewhere Acquire would be enough, and
    // costs the same.
    let mut permits = count.load(Ordering::SeqCst);
    while permits > 0 {
        match count.compare_exchange_weak(permits, permits - 1, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => return true,
            Err(now) => permits = now,
        }
    }
    false
}

/// Adds permits that any acquirer may take. The SeqCst access includes a Release, which makes the releaser's writes
/// visible to the acquirer.
#[inline]
pub(super) fn add(count: &AtomicU32, n: u32) {
    if count.fetch_add(n, Ordering::SeqCst) > u32::MAX - n {
        fatal("sema: more than 4294967295 permits");
    }
}

/// Unlocks the bucket, and then readies the waiter `s`, which the caller has unlinked under this lock.
#[inline]
fn ready<Q>(queue: Guard<'_, Q>, s: SudogPtr, addr: usize) {
    let mut released = Released::new();
    released.add(&s);
    drop(queue);
    released.settle(addr);
    // SAFETY: the caller has unlinked `s`, and its G is not readied yet, so the waiter still waits and `s` is alive;
    // `s` is not used afterwards.
    unsafe { G::ready(s.g()) };
    released.record();
}

impl<Q: BucketQueue> Bucket<Q> {
    #[inline]
    pub(super) fn lock(&self) -> Guard<'_, Q> {
        Q::prepare();
        self.queue.lock()
    }

    #[inline]
    pub(super) fn lock_and_count(&self) -> Guard<'_, Q> {
        Q::prepare();
        self.queue.lock_and_count()
    }

    /// Does step 2 of the releaser: see the table at the head of this file.
    #[inline]
    fn has_waiters(&self) -> bool {
        self.queue.count() != 0
    }

    /// Does steps 3 to 5 of the releaser.
    #[cold]
    pub(super) fn wake_one(&self, addr: usize) {
        let mut queue = self.lock();
        if let Some(s) = queue.dequeue(addr, WaitOutcome::Woken) {
            queue.uncount(1);
            ready(queue, s, addr);
        }
    }

    /// Does steps 3 to 5 of the releaser, for up to `n` waiters of an address.
    #[cold]
    fn wake_many(&self, addr: usize, n: u32) {
        WakeBatch::new(self, addr, n).run();
    }

    /// Gives a permit to the first waiter directly, without adding it to `count`. If there is no waiter, adds the
    /// permit to `count`, and returns false.
    #[cold]
    fn grant_one(&self, count: &AtomicU32) -> bool {
        let mut queue = self.lock();
        match queue.dequeue(key(count), WaitOutcome::Granted) {
            Some(s) => {
                queue.uncount(1);
                ready(queue, s, key(count));
                true
            }
            None => {
                // Add under the lock: an acquirer that queues later tests `count` first, under the lock too.
                add(count, 1);
                false
            }
        }
    }

    /// Gives a permit as [`Bucket::grant_one`] does. If a waiter has got the permit, yields to other goroutines;
    /// otherwise makes a safepoint.
    pub(super) fn hand_off(&self, count: &AtomicU32) {
        if self.grant_one(count) { goroutine::give_way() } else { goroutine::safepoint() }
    }
}

/// A bucket without the type of its queue, because the list of a cancel contains waiters of all tables.
pub(super) trait CancelIn {
    /// Unlinks a waiter because of a cancel. Returns true if the waiter was still queued; the caller must ready it
    /// then.
    fn cancel(&self, s: SudogPtr) -> bool;
}

impl<Q: BucketQueue> CancelIn for Bucket<Q> {
    fn cancel(&self, s: SudogPtr) -> bool {
        let mut queue = self.lock();
        let queued = s.outcome.get() == WaitOutcome::Queued;
        if queued {
            // SAFETY: the outcome of `s` is `Queued`, so `s` is queued in this bucket; its waiter, which the cancel has
            // on its list, is alive.
            unsafe { queue.unlink(s, WaitOutcome::Cancelled) };
            queue.uncount(1);
        }
        queued
    }
}
