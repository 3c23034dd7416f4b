//! The semaphore table: acquire and release by address.
//!
//! | acquirer, who found no permit | releaser |
//! |---|---|
//! | 1. takes the bucket's lock, | 1. `count += 1` |
//! | 2. and, in the same step, `nwait += 1` | 2. reads `nwait`: 0 means that nobody waits, done |
//! | 3. tries `count` once more | 3. takes the bucket's lock |
//! | 4. queues its sudog | 4. unlinks the first waiter of this address |
//! | 5. parks, which unlocks | 5. unlocks, and `nwait -= 1` in the same step; then readies the waiter |
//!
//! `nwait` is the count in the word of the bucket's lock, a [`CountedLock`]. Acquirer 2, 3 against releaser 1, 2 is a
//! Dekker pair: each writes its own word, then reads the other's. All four are sequentially consistent, so at least one
//! of the two sees the other: no wake-up is lost. See `docs/orderings.md`.
//!
//! A handoff takes the lock first and decides under it: it gives the permit to the first waiter without letting it
//! touch `count`, or, if nobody waits, adds to `count`. Acquirers test `count` under the same lock before they queue,
//! so this needs no Dekker pair, and there is no moment at which a newcomer could take what is being handed over. A
//! grant is a handoff whose releaser goes on.

use crossbeam_utils::CachePadded;

use super::acquire::acquire_slow;
use super::future::Acquire;
use super::queue::BucketQueue;
use super::waking::Waking;
use super::{Cancel, CountedLock, Global, Guard, Order, SudogPtr, Table, WaitOutcome, Wake};
use crate::shim::Ordering;
use crate::{AtomicU32, G, Instant, fatal, goroutine};

/// How many buckets Go's table has: a prime, against regular strides of addresses. (In a model there is one.)
pub const BUCKETS: usize = if cfg!(sudog_loom) { 1 } else { 251 };

/// Where those wait who found a semaphore empty. The functions of [`sema`](super) use a global one.
///
/// A table of one's own is for models, measurements and isolation: all calls on one semaphore must go to one table.
/// [`queue`](super::queue) has what its buckets can keep their waiters in: by default treaps, with the feature `event`
/// recorded ones.
///
/// # Examples
///
/// ```
/// use std::sync::atomic::AtomicU32;
/// use sudog_runtime::sema::{Order, SemTable, Wake};
///
/// static TABLE: SemTable<8> = SemTable::new();
/// let permits = AtomicU32::new(0);
/// TABLE.release(&permits, Wake::Normal);
/// TABLE.acquire(&permits, Order::Fifo);
/// ```
pub struct SemTable<const N: usize = BUCKETS, Q = <Global as Table>::Queue> {
    buckets: [CachePadded<Bucket<Q>>; N],
}

pub(super) struct Bucket<Q> {
    queue: CountedLock<Q>,
}

/// When to stop waiting. The default is never.
///
/// # Examples
///
/// ```
/// use std::time::{Duration, Instant};
/// use sudog_runtime::sema::{Cancel, WaitLimit};
///
/// static STOP: Cancel = Cancel::new();
/// let limit = WaitLimit { cancel: Some(&STOP), ..WaitLimit::until(Instant::now() + Duration::from_secs(1)) };
/// # let _ = limit;
/// ```
#[derive(Clone, Copy, Default)]
pub struct WaitLimit<'a> {
    /// Give up at this time.
    pub deadline: Option<Instant>,
    /// Give up when this is cancelled.
    pub cancel: Option<&'a Cancel>,
}

/// Why a limited acquire took no permit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitError {
    /// [`WaitLimit::deadline`] passed.
    TimedOut,
    /// [`WaitLimit::cancel`] was cancelled.
    Cancelled,
}

impl std::fmt::Display for WaitError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::TimedOut => "the deadline passed before there was a permit",
            Self::Cancelled => "the wait was cancelled",
        })
    }
}

impl std::error::Error for WaitError {}

impl WaitLimit<'_> {
    /// A limit that is a deadline.
    #[must_use]
    pub fn until(deadline: Instant) -> Self {
        Self { deadline: Some(deadline), cancel: None }
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.cancel.is_some_and(Cancel::is_cancelled)
    }
}

#[cfg(not(sudog_loom))]
impl<const N: usize> SemTable<N> {
    /// An empty table.
    #[must_use]
    pub const fn new() -> Self {
        Self::const_new()
    }
}

#[cfg(sudog_loom)]
impl<const N: usize> SemTable<N> {
    /// An empty table.
    #[must_use]
    pub fn new() -> Self {
        Self::const_new()
    }
}

impl<const N: usize, Q: BucketQueue> SemTable<N, Q> {
    /// An empty table, with queues of any kind.
    #[cfg(not(sudog_loom))]
    #[must_use]
    pub const fn const_new() -> Self {
        const { assert!(N > 0, "a semaphore table needs a bucket") };
        Self { buckets: [const { CachePadded::new(Bucket { queue: CountedLock::new(Q::EMPTY) }) }; N] }
    }

    /// An empty table, with queues of any kind.
    #[cfg(sudog_loom)]
    #[must_use]
    pub fn const_new() -> Self {
        let bucket = |_| CachePadded::new(Bucket { queue: CountedLock::new(Q::EMPTY) });
        Self { buckets: std::array::from_fn(bucket) }
    }

    /// Takes a permit, waiting for it if need be: [`semacquire_mutex`](super::semacquire_mutex).
    #[inline]
    pub fn acquire(&self, count: &AtomicU32, order: Order) {
        if !take(count) {
            let got = acquire_slow(self.bucket(key(count)), count, order, &WaitLimit::default());
            debug_assert_eq!(got, Ok(()));
        }
    }

    /// Takes a permit unless the limit comes first: [`semacquire_limited`](super::semacquire_limited).
    ///
    /// # Errors
    ///
    /// Which limit came first.
    #[inline]
    pub fn acquire_limited(&self, count: &AtomicU32, order: Order, limit: &WaitLimit<'_>) -> Result<(), WaitError> {
        if limit.is_cancelled() {
            return Err(WaitError::Cancelled);
        }
        if take(count) { Ok(()) } else { acquire_slow(self.bucket(key(count)), count, order, limit) }
    }

    /// Takes a permit as a future: [`semacquire_mutex_async`](super::semacquire_mutex_async).
    pub fn acquire_async<'a>(&'a self, count: &'a AtomicU32, order: Order) -> Acquire<'a, Q> {
        Acquire::new(self.bucket(key(count)), count, order)
    }

    /// Gives a permit: [`semrelease`](super::semrelease).
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
                // From here on `count` is an address only.
                if bucket.has_waiters() {
                    bucket.wake_one(addr);
                }
                goroutine::safepoint();
            }
        }
    }

    /// Gives `n` permits: [`semrelease_many`](super::semrelease_many).
    #[inline]
    pub fn release_many(&self, count: &AtomicU32, n: u32) {
        let (bucket, addr) = (self.bucket(key(count)), key(count));
        if n > 0 {
            add(count, n);
            if bucket.has_waiters() {
                if n == 1 { bucket.wake_one(addr) } else { bucket.wake_many(addr, n) }
            }
        }
        // Also without permits: a timer that is set anew, with no goroutine that waits for it, comes here.
        goroutine::safepoint();
    }

    /// Gives `n` permits to those who wait: [`semgrant_many`](super::semgrant_many).
    #[inline]
    pub fn grant_many(&self, count: &AtomicU32, n: u32) {
        let bucket = self.bucket(key(count));
        match n {
            0 => {}
            1 => _ = bucket.grant_one(count),
            _ => Waking::granting(bucket, count, n).run(),
        }
        goroutine::safepoint();
    }

    /// How many wait for a permit of this semaphore: [`waiters`](super::waiters).
    #[must_use]
    pub fn waiters(&self, count: &AtomicU32) -> usize {
        self.bucket(key(count)).lock().len(key(count))
    }

    #[inline]
    fn bucket(&self, addr: usize) -> &Bucket<Q> {
        // Go's hash. Two semaphores in one aligned 8 bytes share a bucket, always.
        &self.buckets[(addr >> 3) % N]
    }
}

impl<const N: usize> Default for SemTable<N> {
    fn default() -> Self {
        Self::new()
    }
}

/// At the end of a model nobody is counted, as nobody waits.
#[cfg(sudog_loom)]
impl<const N: usize, Q> Drop for SemTable<N, Q> {
    fn drop(&mut self) {
        for bucket in &self.buckets {
            assert!(std::thread::panicking() || bucket.queue.count() == 0, "somebody is counted, and does not wait");
        }
    }
}

impl<const N: usize, Q> std::fmt::Debug for SemTable<N, Q> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad("SemTable { .. }")
    }
}

/// What a semaphore is known by.
#[inline]
pub(super) fn key(count: &AtomicU32) -> usize {
    std::ptr::from_ref(count).addr()
}

/// Takes a permit if there is one.
#[inline]
pub(super) fn take(count: &AtomicU32) -> bool {
    // SeqCst: the slow path's test is one side of the Dekker pair; elsewhere Acquire would do, and costs the same.
    let mut permits = count.load(Ordering::SeqCst);
    while permits > 0 {
        match count.compare_exchange_weak(permits, permits - 1, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => return true,
            Err(now) => permits = now,
        }
    }
    false
}

/// Adds permits for anybody to take. Release (in SeqCst) publishes what the releaser did to whoever takes them.
#[inline]
pub(super) fn add(count: &AtomicU32, n: u32) {
    if count.fetch_add(n, Ordering::SeqCst) > u32::MAX - n {
        fatal("sema: more than 4294967295 permits");
    }
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

    /// Releaser, step 2.
    #[inline]
    fn has_waiters(&self) -> bool {
        self.queue.count() != 0
    }

    /// Releaser, steps 3 to 5.
    #[cold]
    pub(super) fn wake_one(&self, addr: usize) {
        let mut queue = self.lock();
        if let Some(s) = queue.dequeue(addr, WaitOutcome::Woken) {
            queue.count_off(1);
            drop(queue);
            // SAFETY: unlinked by us alone and not readied yet, so its waiter is still there; not used after.
            unsafe { G::ready(s.g()) };
        }
    }

    /// Releaser, steps 3 to 5, for up to `n` waiters of one address.
    #[cold]
    fn wake_many(&self, addr: usize, n: u32) {
        Waking::new(self, addr, n).run();
    }

    /// Gives a permit to the first waiter, past `count`; or adds it to `count` if nobody waits, and is false.
    #[cold]
    fn grant_one(&self, count: &AtomicU32) -> bool {
        let mut queue = self.lock();
        match queue.dequeue(key(count), WaitOutcome::Granted) {
            Some(s) => {
                queue.count_off(1);
                drop(queue);
                // SAFETY: unlinked by us alone and not readied yet, so its waiter is still there; not used after.
                unsafe { G::ready(s.g()) };
                true
            }
            None => {
                // Under the lock: whoever queues after us tests `count` first, under the lock too.
                add(count, 1);
                false
            }
        }
    }

    /// [`Bucket::grant_one`], after which the caller gives way.
    pub(super) fn hand_off(&self, count: &AtomicU32) {
        if self.grant_one(count) { goroutine::give_way() } else { goroutine::safepoint() }
    }
}

/// A bucket, whatever its queue: for a cancel, which finds waiters of all tables on its list.
pub(super) trait CancelIn {
    /// Takes a waiter out because of a cancel. True if it was still in, and must be readied.
    fn cancel(&self, s: SudogPtr) -> bool;
}

impl<Q: BucketQueue> CancelIn for Bucket<Q> {
    fn cancel(&self, s: SudogPtr) -> bool {
        let mut queue = self.lock();
        let queued = s.fate.get() == WaitOutcome::Queued;
        if queued {
            // SAFETY: queued, hence in this bucket; its waiter, which the cancel has on its list, is alive.
            unsafe { queue.unlink(s, WaitOutcome::Cancelled) };
            queue.count_off(1);
        }
        queued
    }
}
