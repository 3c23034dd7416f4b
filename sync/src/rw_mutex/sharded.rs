//! A readers-writer mutex whose readers scale: each reader counts itself in the shard of its thread.
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
//! | a reader that comes | adds 1 to the shard, by a compare-exchange | reads by `inner`: waits for the writer there |
//! | a reader that leaves its shard | subtracts 1 from the shard | the same, and subtracts 1 from `pending`; if that makes `pending` 0, releases `drained` |
//!
//! | writer | |
//! |---|---|
//! | 1 | locks `inner`, which excludes other writers, and readers of `inner` |
//! | 2 | closes the shards; adds the readers that the shards contained to `pending`; waits on `drained` unless `pending` is 0 then |
//! | 3 | writes; opens the shards, unlocks `inner` |
//! | gives up in 2 | opens the shards, and subtracts the readers that the shards contain then from `pending`. Readers that have left their closed shards subtract, or have subtracted, themselves. If such a reader makes `pending` 0, the writer takes the permit of that reader |
//!
//! A shard is a single word, so the coherence of the word decides for each reader whether the reader was counted when
//! the writer closed the shard. The order of two words does not matter anywhere. `pending` is below 0 if readers leave
//! before the writer has added them.
//!
//! Orderings: a reader leaves with Release, on the shard and on `pending`. The writer closes the shards, adds to
//! `pending` and takes its permit with Acquire, so the write comes after all reads. The writer opens the shards with
//! Release, and a reader comes with Acquire, so the read comes after all writes.
//!
//! Source: the idea is that of Go issue 17973 and the many proposals there. A writer that closes the path of the
//! readers, and makes them go another way meanwhile, is from Dice and Kogan, "BRAVO: Biased Locking for Reader-Writer
//! Locks", USENIX ATC 2019.

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

/// The flag of a closed shard. The other bits are the number of the shard's readers.
const CLOSED: u32 = 1 << 31;

/// A readers-writer mutex for much reading and little writing: readers on different processors do not meet.
///
/// Each reader counts itself in a shard of `N`, chosen by the reader's thread. Each shard has cache lines of its own:
/// 128 bytes. A writer visits all shards, and so pays for the time that readers save. Above some rate of writes this
/// mutex is slower: `docs/journal/readers-and-writers.md`. Readers that come during a write wait for that write, and go
/// before the next write, as with [`GoRwMutex`].
///
/// # Limits
///
/// A shard has room for 2^31 / `N` readers. A further reader ends the process.
///
/// # Examples
///
/// ```
/// use sudog::sync::RwMutexWith;
/// use sudog::sync::ShardedRwMutex;
///
/// static ROUTES: RwMutexWith<ShardedRwMutex<16>, Vec<&str>> = RwMutexWith::new(Vec::new());
/// ROUTES.write().push("/");
/// assert!(ROUTES.read().contains(&"/"));
/// ```
pub struct ShardedRwMutex<const N: usize = 8, W = GoMutex, S = RuntimeSema> {
    shards: [CachePadded<AtomicU32>; N],
    /// The number of readers that the writer has found in shards and that have not left. Changed by the writer, and by
    /// each reader that leaves a closed shard. May wrap below 0 for a moment.
    pending: AtomicU32,
    /// A permit for the writer, released by the last of the readers in `pending`.
    drained: S,
    inner: GoRwMutex<W, S>,
}

/// The place where a reader of a [`ShardedRwMutex`] has counted itself.
#[derive(Debug)]
pub struct SharedGuard(Place);

#[derive(Debug, Clone, Copy)]
enum Place {
    Shard(u32),
    Inner,
}

impl<const N: usize, W: RawLock, S: Semaphore> ShardedRwMutex<N, W, S> {
    /// The most readers in a shard, so that the readers of all shards can be added up.
    const MOST: u32 = (CLOSED - 1) / N as u32;

    /// Adds the caller to the shard of the calling thread, if that shard is open.
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

    /// Subtracts a reader that has left a closed shard from `pending`, and wakes the writer if no reader is left.
    #[cold]
    fn left_closed(&self) {
        if self.pending.fetch_sub(1, AcqRel) == 1 {
            self.drained.release(Wake::Normal);
        }
    }

    /// Makes the caller, which owns `inner`, the owner of the shards, too. The `deadline` `Some(None)` means not to
    /// wait at all. Returns false if the deadline has passed.
    #[inline]
    fn close(&self, deadline: Option<Option<Instant>>) -> bool {
        let mut found = 0;
        for shard in &self.shards {
            found += shard.fetch_or(CLOSED, Acquire);
        }
        found == 0 || self.pending.fetch_add(found, AcqRel).wrapping_add(found) == 0 || self.drain(deadline)
    }

    /// Waits for the readers that the caller has found in shards. If the deadline comes first, opens the shards again
    /// and returns false.
    #[cold]
    fn drain(&self, deadline: Option<Option<Instant>>) -> bool {
        if deadline != Some(None) {
            // Relaxed: the permit orders the reads before the write.
            spin_while(WRITER_PAUSES, || self.pending.load(Relaxed) != 0);
        }
        self.inner.deadlock_owner.note_wait("sync.RWMutex.Lock");
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

    /// Opens the shards for a writer that gives up.
    #[cold]
    fn reopen(&self) {
        let mut still = 0;
        for shard in &self.shards {
            still += shard.fetch_and(!CLOSED, Release) & !CLOSED;
        }
        let before = self.pending.fetch_sub(still, AcqRel);
        // Take the permit if a reader makes `pending` 0, before this step or after. No reader does so if this step
        // changes `pending` to 0.
        if still == 0 || before != still {
            self.drained.acquire(Order::Fifo); // released, or about to be, by the last reader that left a closed shard
        }
    }

    /// Ends a write.
    #[inline]
    fn open(&self) {
        for shard in &self.shards {
            // No thread changes a closed shard without readers, so a store suffices.
            shard.store(0, Release);
        }
    }

    #[inline]
    fn write(&self, guard: W::Guard, deadline: Option<Option<Instant>>) -> Option<W::Guard> {
        if self.close(deadline) {
            return Some(guard);
        }
        // A `try_lock` never switches to another goroutine, so unlock without switching. SAFETY: `guard` is that of the
        // caller's acquisition of `inner`.
        without_switching(|| unsafe { RawRwLock::unlock(&self.inner, guard) });
        None
    }
}

// SAFETY:
// - The write owner has `inner` for writing, has closed all shards, and has seen by `pending` that the readers in the
//   shards have left. Readers that come find their shards closed, and `inner` locked.
// - A reader has counted itself in an open shard, or has `inner` for reading: in both cases a writer waits for the
//   reader.
// - The head of this file argues the orderings.
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
    #[cfg_attr(debug_assertions, track_caller)]
    fn rlock(&self) -> SharedGuard {
        if let Some(guard) = self.enter() {
            return guard;
        }
        self.inner.rlock();
        SharedGuard(Place::Inner)
    }

    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    fn try_rlock(&self) -> Option<SharedGuard> {
        self.enter().or_else(|| self.inner.try_rlock().then_some(SharedGuard(Place::Inner)))
    }

    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
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
    #[cfg_attr(debug_assertions, track_caller)]
    fn lock(&self) -> W::Guard {
        // Lock with `writers`: a sole owner of `inner` takes longer here, as measured.
        let acquisition = self.inner.deadlock_owner.locks();
        let guard = self.inner.write_with_writers();
        self.inner.deadlock_owner.set(acquisition);
        self.write(guard, None).expect("without a deadline it waits")
    }

    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    fn try_lock(&self) -> Option<W::Guard> {
        let guard = RawRwLock::try_lock(&self.inner)?;
        self.write(guard, Some(None))
    }

    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    fn try_lock_until(&self, deadline: Instant) -> Option<W::Guard> {
        let guard = RawRwLock::try_lock_until(&self.inner, deadline)?;
        self.write(guard, Some(Some(deadline)))
    }

    #[inline]
    unsafe fn unlock(&self, guard: W::Guard) {
        self.open();
        // SAFETY: by the contract of this method, `guard` came from an acquisition of this lock for writing that has
        // not been released. That acquisition has locked `inner` with the same guard.
        unsafe { RawRwLock::unlock(&self.inner, guard) };
    }

    #[inline]
    unsafe fn downgrade(&self, guard: W::Guard) -> SharedGuard {
        self.open();
        // SAFETY: by the contract of this method, `guard` came from an acquisition of this lock for writing that has
        // not been released. That acquisition has locked `inner` with the same guard.
        unsafe { RawRwLock::downgrade(&self.inner, guard) };
        SharedGuard(Place::Inner)
    }

    #[inline]
    fn is_locked(&self) -> bool {
        self.inner.is_locked() || self.shards.iter().any(|shard| shard.load(Relaxed) != 0)
    }

    #[inline]
    fn is_locked_exclusive(&self) -> bool {
        // Between steps 1 and 2 no writer owns the lock.
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
