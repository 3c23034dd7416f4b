//! Readers that scale: each counts itself in its own shard.
//!
//! ```text
//!   shard 0      shard 1            inner: a GoRwMutex
//!  ┌────────┐   ┌────────┐         ┌──────────────────────────────────┐
//!  │ readers│   │ readers│  ...    │ readers that found their shard   │
//!  │ CLOSED │   │ CLOSED │         │ closed; and writers              │
//!  └────────┘   └────────┘         └──────────────────────────────────┘
//! ```
//!
//! | caller | its shard is open | its shard is closed |
//! |---|---|---|
//! | a reader that comes | counts itself there, by a compare-exchange | reads by `inner`: waits for the writer there |
//! | a reader that leaves its shard | counts itself off | the same, and takes one off `pending`; brings it to 0: releases `drained` |
//!
//! | writer | |
//! |---|---|
//! | 1 | locks `inner`: no other writers, no readers there |
//! | 2 | closes the shards; adds the readers that it has found in them to `pending`; waits on `drained` unless that makes it 0 |
//! | 3 | writes; opens the shards, unlocks `inner` |
//! | gives up in 2 | opens the shards, and takes the readers that it finds there now off `pending`; those that have left their closed shards take, or have taken, themselves off. If theirs is the step to 0, it takes their permit |
//!
//! A shard is one word, so its coherence decides for each reader whether it was there as the writer closed it; there is
//! no pair of words whose order matters. `pending` is below 0 if readers leave before the writer has added them.
//!
//! Orderings: a reader's leaving is a Release, on the shard and on `pending`; the writer's closing, its adding to
//! `pending` and its permit are Acquires: it comes after all that was read. Its opening is a Release, a reader's coming
//! an Acquire: it comes after all writes.
//!
//! Source: the idea is that of Go issue 17973 and its many proposals; a writer that closes what readers use, and makes
//! them go another way meanwhile, is Dice and Kogan, "BRAVO: Biased Locking for Reader-Writer Locks", USENIX ATC 2019.

use std::fmt;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crossbeam_utils::CachePadded;
use sudog_runtime::{AtomicU32, Instant, fatal};

use super::GoRwMutex;
use super::spinning::{WRITER_PAUSES, spin_while};
use crate::GoMutex;
use crate::raw::{Order, RawLock, Semaphore, Wake};
use crate::raw_rw::RawRwLock;
use crate::semaphore::RuntimeSema;
use crate::thread_index::thread_index;
use sudog_runtime::goroutine::without_switching;

/// A shard's bit; the rest is the count of its readers.
const CLOSED: u32 = 1 << 31;

/// A readers-writer mutex for much reading and little writing: readers on different processors do not meet.
///
/// Each reader counts itself in one of `N` shards, chosen by its thread, each on cache lines of its own: 128 bytes each.
/// A writer visits all shards, and so pays for what readers save; from how many writes on it does not pay is in
/// `docs/performance.md`. Readers that come during a write wait for it, and go before the next, as with [`GoRwMutex`].
///
/// # Limits
///
/// 2^31 / `N` readers in one shard; one more ends the process.
///
/// # Examples
///
/// ```
/// use sudog::sync::RwMutexWith;
/// use sudog::sync::rw_mutex::ShardedRwMutex;
///
/// static ROUTES: RwMutexWith<ShardedRwMutex<16>, Vec<&str>> = RwMutexWith::new(Vec::new());
/// ROUTES.write().push("/");
/// assert!(ROUTES.read().contains(&"/"));
/// ```
pub struct ShardedRwMutex<const N: usize = 8, W = GoMutex, S = RuntimeSema> {
    shards: [CachePadded<AtomicU32>; N],
    /// Of the readers that the writer has found in shards, how many are left.
    pending: AtomicU32,
    /// A permit for the writer, from the last of them.
    drained: S,
    inner: GoRwMutex<W, S>,
}

/// Where a reader of a [`ShardedRwMutex`] has counted itself.
#[derive(Debug)]
pub struct SharedGuard(Place);

#[derive(Debug, Clone, Copy)]
enum Place {
    Shard(u32),
    Inner,
}

impl<const N: usize, W: RawLock, S: Semaphore> ShardedRwMutex<N, W, S> {
    /// So many readers in one shard, and no more: those of all shards can be added up.
    const MOST: u32 = (CLOSED - 1) / N as u32;

    /// Counts the caller in its shard, if that is open.
    #[inline]
    fn enter(&self) -> Option<SharedGuard> {
        const { assert!(N > 0, "a sharded lock needs a shard") };
        let index = thread_index() % N;
        let shard = &self.shards[index];
        let mut old = shard.load(Relaxed);
        while old < Self::MOST {
            match shard.compare_exchange_weak(old, old + 1, Acquire, Relaxed) {
                Ok(_) => return Some(SharedGuard(Place::Shard(index as u32))),
                Err(now) => old = now,
            }
        }
        if old & CLOSED == 0 {
            fatal("sync: too many readers of a sharded RWMutex");
        }
        None
    }

    /// A reader has left a closed shard.
    #[cold]
    fn left_closed(&self) {
        if self.pending.fetch_sub(1, AcqRel) == 1 {
            self.drained.release(Wake::Normal);
        }
    }

    /// The owner of `inner` makes it the owner of the shards, too. `deadline`: `Some(None)` means not to wait at all.
    #[inline]
    fn close(&self, deadline: Option<Option<Instant>>) -> bool {
        let mut found = 0;
        for shard in &self.shards {
            found += shard.fetch_or(CLOSED, Acquire);
        }
        found == 0 || self.pending.fetch_add(found, AcqRel).wrapping_add(found) == 0 || self.drain(deadline)
    }

    /// Waits for the readers that the caller has found in shards. If the deadline comes first, opens the shards again.
    #[cold]
    fn drain(&self, deadline: Option<Option<Instant>>) -> bool {
        if deadline != Some(None) {
            // Relaxed: the permit orders.
            spin_while(WRITER_PAUSES, || self.pending.load(Relaxed) != 0);
        }
        // SAFETY: null.
        unsafe { sudog_runtime::note_wait("sync.RWMutex.Lock", std::ptr::null()) };
        let drained = match deadline {
            None => {
                self.drained.acquire(Order::Fifo);
                true
            }
            Some(Some(deadline)) => self.drained.acquire_until(Order::Fifo, deadline),
            Some(None) => self.drained.try_acquire(),
        };
        if !drained {
            self.reopen();
        }
        drained
    }

    /// A writer gives up.
    #[cold]
    fn reopen(&self) {
        let mut still = 0;
        for shard in &self.shards {
            still += shard.fetch_and(!CLOSED, Release) & !CLOSED;
        }
        let before = self.pending.fetch_sub(still, AcqRel);
        // All are accounted for by our step; and it was not theirs that made it 0, earlier.
        if still == 0 || before != still {
            self.drained.acquire(Order::Fifo); // there, or on its way: by the last that left a closed shard
        }
    }

    /// The end of a write.
    #[inline]
    fn open(&self) {
        for shard in &self.shards {
            // A closed shard without readers is not changed by any thread.
            shard.store(0, Release);
        }
    }

    #[inline]
    fn write(&self, guard: W::Guard, deadline: Option<Option<Instant>>) -> Option<W::Guard> {
        if self.close(deadline) {
            return Some(guard);
        }
        // A `try_lock` never switches. SAFETY: `guard` is that of the caller's acquisition of `inner`.
        without_switching(|| unsafe { RawRwLock::unlock(&self.inner, guard) });
        None
    }
}

// SAFETY:
// - The write owner has `inner` for writing, has closed all shards, and has seen the readers leave that it found there,
//   by `pending`. Readers that come find their shards closed, and `inner` locked.
// - A reader has counted itself in an open shard, or has `inner` for reading: either keeps a writer waiting.
// - The orderings are above.
unsafe impl<const N: usize, W: RawLock, S: Semaphore> RawRwLock for ShardedRwMutex<N, W, S> {
    type SharedGuard = SharedGuard;
    type ExclusiveGuard = W::Guard;

    const DEADLINES: bool = GoRwMutex::<W, S>::DEADLINES;

    fn new() -> Self {
        Self {
            shards: std::array::from_fn(|_| CachePadded::new(AtomicU32::new(0))),
            pending: AtomicU32::new(0),
            drained: S::new(0),
            inner: RawRwLock::new(),
        }
    }

    #[inline]
    fn rlock(&self) -> SharedGuard {
        if let Some(guard) = self.enter() {
            return guard;
        }
        self.inner.rlock();
        SharedGuard(Place::Inner)
    }

    #[inline]
    fn try_rlock(&self) -> Option<SharedGuard> {
        self.enter().or_else(|| self.inner.try_rlock().then_some(SharedGuard(Place::Inner)))
    }

    #[inline]
    fn try_rlock_until(&self, deadline: Instant) -> Option<SharedGuard> {
        self.enter().or_else(|| self.inner.try_rlock_until(deadline).then_some(SharedGuard(Place::Inner)))
    }

    #[inline]
    unsafe fn runlock(&self, guard: SharedGuard) {
        match guard.0 {
            Place::Shard(index) => {
                if self.shards[index as usize].fetch_sub(1, Release) & CLOSED != 0 {
                    self.left_closed();
                }
            }
            Place::Inner => self.inner.runlock(),
        }
    }

    #[inline]
    fn lock(&self) -> W::Guard {
        // Measured: a sole owner of `inner` takes longer here.
        let guard = self.inner.write_with_writers();
        self.write(guard, None).expect("without a deadline it waits")
    }

    #[inline]
    fn try_lock(&self) -> Option<W::Guard> {
        let guard = RawRwLock::try_lock(&self.inner)?;
        self.write(guard, Some(None))
    }

    #[inline]
    fn try_lock_until(&self, deadline: Instant) -> Option<W::Guard> {
        let guard = RawRwLock::try_lock_until(&self.inner, deadline)?;
        self.write(guard, Some(Some(deadline)))
    }

    #[inline]
    unsafe fn unlock(&self, guard: W::Guard) {
        self.open();
        // SAFETY: the same contract.
        unsafe { RawRwLock::unlock(&self.inner, guard) };
    }

    #[inline]
    unsafe fn downgrade(&self, guard: W::Guard) -> SharedGuard {
        self.open();
        // SAFETY: the same contract.
        unsafe { RawRwLock::downgrade(&self.inner, guard) };
        SharedGuard(Place::Inner)
    }

    #[inline]
    fn is_locked(&self) -> bool {
        self.inner.is_locked() || self.shards.iter().any(|shard| shard.load(Relaxed) != 0)
    }

    #[inline]
    fn is_locked_exclusive(&self) -> bool {
        // Between steps 1 and 2 there is no writer.
        self.inner.is_locked_exclusive() && self.shards.iter().all(|shard| shard.load(Relaxed) == CLOSED)
    }
}

#[cfg(not(sudog_loom))]
impl<const N: usize, W: crate::ConstRawLock, S: crate::ConstSemaphore> crate::ConstRawRwLock
    for ShardedRwMutex<N, W, S>
{
    const INIT: Self = Self {
        shards: [const { CachePadded::new(AtomicU32::new(0)) }; N],
        pending: AtomicU32::new(0),
        drained: S::INIT,
        inner: GoRwMutex::const_new(),
    };
}

impl<const N: usize, W, S> fmt::Debug for ShardedRwMutex<N, W, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShardedRwMutex")
            .field("shards", &self.shards)
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}
