//! A readers-writer mutex whose readers scale: each reader writes the mutex's name in a slot of its thread.
//!
//! ```text
//!   slots of a thread         slots of another         word              inner: a GoRwMutex
//!  ┌──────┬──────┬─────┐     ┌──────┬──────┬─────┐    ┌────────────┐    ┌──────────────────────────────┐
//!  │ name │ name │ ... │     │ name │ 0    │ ... │    │ name  WUCB │    │ writers, and the readers that│
//!  └──────┴──────┴─────┘     └──────┴──────┴─────┘    └────────────┘    │ wrote no name                │
//!                                                                       └──────────────────────────────┘
//! ```
//!
//! | flag of the word | means |
//! |---|---|
//! | W written | a writer has the mutex; set only with C |
//! | U unnamed | the mutex has no name yet |
//! | C closed | a writer has the mutex, or looks for readers that have written the name |
//! | B biased | readers execute light fences, which cost nothing; the next writer executes a heavy fence, a system call |
//!
//! | | a reader comes | a reader leaves, or withdraws its name |
//! |---|---|---|
//! | 1 | loads the word. If U is set, and C is not, names the mutex. If C is set, or the thread has no free slot, reads by `inner` | writes 0 into the slot; fence |
//! | 2 | writes the word into the slot; fence | loads the word. If C is clear, has left |
//! | 3 | loads the word again. If the word is the same, has the mutex. Else withdraws the name, and reads by `inner` | if `waits` is set and no slot has the name, clears `waits` and releases `drained` |
//!
//! | | a writer |
//! |---|---|
//! | 1 | locks `inner`, which excludes other writers, and readers of `inner` |
//! | 2 | sets C; fence. A `try_lock` gives up before, if a slot has the name |
//! | 3 | looks at the slots of all threads. If no slot has the name, sets W, and has the mutex |
//! | 4 | sets `waits`, and looks again. If a slot has the name, waits on `drained`; else clears `waits`, or takes the permit of the reader that has. Goes to 3 |
//! | 5 | writes; clears W, C and B, unlocks `inner` |
//! | gives up in 3 or 4 | clears `waits`, if set, or takes the permit; clears C, unlocks `inner` |
//!
//! **The fences.** A reader that comes while B is set, and has the mutex, comes and leaves with light fences. A reader that
//! comes while B is clear writes the name and the 0 by locked instructions, and a reader that withdraws writes the 0 by a
//! locked instruction. A writer executes the heavy fence if B was set as the writer set C; else setting C by a locked
//! instruction is the writer's fence. Once B is set, B is cleared only by a writer that has written, and so not while a
//! reader has the mutex: the writer against which a light fence stands has found B set. But B may be cleared before a
//! reader withdraws: then the next writer executes no heavy fence.
//!
//! **A writer sees each reader that has the mutex.** The reader sees C, or the writer sees the name: each writes, executes
//! its fence, and then looks. A reader that sees C does not have the mutex.
//!
//! **The last reader wakes the writer.** If a reader sees that C is clear in step 2, the first look of a later writer sees
//! the 0. Else the reader executes a full fence (the fence before may be light, and the writer executes no heavy fence after
//! setting `waits`), and looks at `waits`: either the reader sees `waits`, or the writer's second look sees the 0. The reader
//! whose full fence is the last sees no other name, or misses `waits`: then the writer's second look sees each 0.
//!
//! **Names are never used again**, so a name in a slot whose reader was forgotten delays no writer of another mutex. The slot
//! is lost.
//!
//! **The bias.** The word gets B from a reader that has the mutex. Each slot gives at most one bias in
//! [`READS_FOR_A_BIAS`](crate::bias) reads that execute locked instructions. So there is at most one heavy fence
//! for so many reads, however reads and writes alternate; and one for each writer that gives up in step 4, as B stays.
//!
//! **A write looks at 256 threads at most**, and only at threads that have read a sharded mutex. Readers of further threads lock `inner`.
//!
//! Orderings. A reader ends with Release, and a writer looks at the slots with Acquire: the write comes after all reads. A
//! slot's next reader sees 0 with Acquire before writing another name with Release, so a writer that sees the other name
//! comes after the first read, too. A writer clears C with Release, and a reader's second load is an Acquire: the read comes
//! after all writes. The fences are those of locked instructions and of the pair of `asymmetric`, the SeqCst exchange of the
//! writer's step 4, and the full fence of step 3 of a reader that leaves. Changes of `waits` publish nothing.
//!
//! Source: Dice and Kogan, "BRAVO: Biased Locking for Reader-Writer Locks", USENIX ATC 2019: a table of readers, and an
//! inner mutex for the others. There all threads share the table, a reader executes a compare-exchange, and a write forbids
//! the bias for a multiple of the time that the writer waited for readers.

use std::fmt;

use crossbeam_utils::CachePadded;
use sudog_runtime::sema::{WaitError, WaitLimit};
use sudog_runtime::shim::{AtomicBool, AtomicU64, Ordering::*, asymmetric, full_fence, mark, system};
use sudog_runtime::{Instant, fatal};

use super::GoRwMutex;
use super::read_slots::{ReadSlot, all_slots, first_slot, free_slot};
use super::spinning::{WRITER_PAUSES, spin_while};
use crate::GoMutex;
use crate::raw::{Order, RawLock, Semaphore, Wake};
use crate::raw_rw::RawRwLock;
use crate::semaphore::RuntimeSema;
use sudog_runtime::goroutine::without_switching;

const BIASED: u64 = 1;
const CLOSED: u64 = 2;
const UNNAMED: u64 = 4;
const WRITTEN: u64 = 8;
/// The lowest bit of the name.
const NAME: u64 = 16;

/// The value of the word, or of a slot.
#[derive(Clone, Copy, PartialEq, Eq)]
struct State(u64);

/// Predicates.
impl State {
    /// The word of a new mutex.
    const UNNAMED: Self = Self(UNNAMED);

    /// Returns whether a reader may write the name into a slot.
    #[inline(always)]
    const fn is_open(self) -> bool {
        self.0 & (CLOSED | UNNAMED) == 0
    }

    #[inline(always)]
    const fn is_closed(self) -> bool {
        self.0 & CLOSED != 0
    }

    #[inline(always)]
    const fn is_biased(self) -> bool {
        self.0 & BIASED != 0
    }

    const fn is_written(self) -> bool {
        self.0 & WRITTEN != 0
    }

    const fn is_unnamed(self) -> bool {
        self.0 & UNNAMED != 0
    }

    /// Returns whether a slot has the name.
    fn is_read(self) -> bool {
        !self.is_unnamed() && all_slots().is_read(|slot| self.0 / NAME == slot / NAME)
    }
}

/// Transitions.
impl State {
    /// The mutex gets a name that no mutex of the process had before.
    fn named() -> Self {
        static NAMES: system::atomic::AtomicU64 = system::atomic::AtomicU64::new(1);
        Self(NAMES.fetch_add(1, Relaxed) * NAME)
    }

    const fn biased(self) -> Self {
        Self(self.0 | BIASED)
    }

    /// A writer has seen that no slot has the name.
    #[inline]
    const fn written(self) -> Self {
        Self(self.0 | WRITTEN)
    }

    /// A writer ends.
    #[inline]
    const fn opened(self) -> Self {
        Self(self.0 & !(CLOSED | BIASED | WRITTEN))
    }

    /// A writer gives up.
    const fn reopened(self) -> Self {
        Self(self.0 & !CLOSED)
    }
}

/// A readers-writer mutex for much reading and little writing: readers on different processors do not meet.
///
/// Each reader writes the name of the mutex in a slot of its thread. A write looks at the slots of all threads, and so pays
/// for the time that readers save. Above some rate of writes this mutex is slower:
/// `docs/journal/readers-and-writers.md`. Readers that come during a write wait for that write, and go before the next
/// write, as with [`GoRwMutex`].
///
/// Where writes are rare, reads are cheap even alone: on Linux, after ten thousand reads, reads execute no locked
/// instruction. The next write executes a system call, `membarrier`: 0.4 us, or 15 us and more while other threads of the
/// process run. So does each writer that gives up at a limit. If the system allows the call at first, and refuses the
/// call later, the write ends the process.
///
/// # Limits
///
/// 256 threads at a time have slots: four each, for all sharded mutexes. Further readers share a cache line of the mutex.
/// A thread that finds no slots at its first read of a sharded mutex never gets slots, even if other threads end.
///
/// Of two `try_` forms at the same time, both may fail.
///
/// # Examples
///
/// ```
/// use sudog::sync::RwMutexWith;
/// use sudog::sync::ShardedRwMutex;
///
/// static ROUTES: RwMutexWith<ShardedRwMutex, Vec<&str>> = RwMutexWith::new(Vec::new());
/// ROUTES.write().push("/");
/// assert!(ROUTES.read().contains(&"/"));
/// ```
pub struct ShardedRwMutex<W = GoMutex, S = RuntimeSema> {
    /// The name and the flags, as a [`State`].
    word: CachePadded<AtomicU64>,
    /// Whether a writer waits for `drained`, or is about to. Set by the writer, cleared by the thread that ends the wait.
    waits: AtomicBool,
    /// A permit for the writer, released by the reader that clears `waits`.
    drained: S,
    /// The mutex of the writers, and of the readers without a slot.
    inner: GoRwMutex<W, S>,
}

/// The slot in which a reader of a [`ShardedRwMutex`] has written the name. None if the reader has locked `inner`.
pub struct SharedGuard(Option<&'static ReadSlot>);

impl fmt::Debug for SharedGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedGuard").finish_non_exhaustive()
    }
}

/// Readers.
impl<W: RawLock, S: Semaphore> ShardedRwMutex<W, S> {
    #[inline(always)]
    fn state(&self) -> State {
        State(self.word.load(SeqCst))
    }

    /// Locks for reading, if the mutex is open and the thread has a free slot.
    #[inline(always)]
    fn enter(&self) -> Option<SharedGuard> {
        let state = self.state();
        match first_slot() {
            Some(slot) if state.is_open() => self.enter_by(slot, state),
            _ => self.enter_slow(state),
        }
    }

    /// Does the same as [`enter`](Self::enter) by any free slot, and names the mutex.
    #[cold]
    #[inline(never)]
    fn enter_slow(&self, mut state: State) -> Option<SharedGuard> {
        if state.is_unnamed() {
            state = self.name();
        }
        if !state.is_open() {
            return None;
        }
        self.enter_by(free_slot()?, state)
    }

    /// Does steps 2 and 3 of a reader that comes.
    #[inline(always)]
    fn enter_by(&self, slot: &'static ReadSlot, state: State) -> Option<SharedGuard> {
        if state.is_biased() {
            slot.write_lightly(state.0);
        } else {
            slot.write(state.0);
        }
        if self.state() != state {
            return self.withdraw(slot);
        }
        if !state.is_biased() && slot.unbiased_reads.count() {
            self.bias(state);
        }
        Some(SharedGuard(Some(slot)))
    }

    /// Gives the mutex a name, unless a writer has closed the mutex. Returns the state.
    #[cold]
    fn name(&self) -> State {
        // If another reader, or a writer, comes first, the state has changed.
        let _ = self.word.compare_exchange(UNNAMED, State::named().0, Relaxed, Relaxed);
        self.state()
    }

    /// Leaves, as the word is not that of the slot any more. Executes a locked instruction, as the word may have lost the bias:
    /// then the next writer executes no heavy fence.
    #[cold]
    #[inline(never)]
    fn withdraw(&self, slot: &ReadSlot) -> Option<SharedGuard> {
        mark("a reader withdraws its name");
        self.leave_unbiased(slot);
        None
    }

    /// Biases the mutex, unless a writer has closed the mutex.
    #[cold]
    fn bias(&self, state: State) {
        if asymmetric::is_available() {
            mark("a mutex is biased");
            // Relaxed: a reader that sees B comes after the last writer, as an RMW continues that writer's release.
            let _ = self.word.compare_exchange(state.0, state.biased().0, Relaxed, Relaxed);
        }
    }

    #[inline(always)]
    fn leave(&self, slot: &ReadSlot) {
        if State(slot.own_name()).is_biased() {
            slot.write_lightly(0);
            self.look_for_writer();
        } else {
            self.leave_unbiased(slot);
        }
    }

    #[inline(always)]
    fn leave_unbiased(&self, slot: &ReadSlot) {
        slot.write(0);
        self.look_for_writer();
    }

    /// Step 2 of a reader that leaves.
    #[inline(always)]
    fn look_for_writer(&self) {
        let state = self.state();
        if state.is_closed() {
            self.left_closed(state);
        }
    }

    /// Step 3 of a reader that leaves.
    #[cold]
    #[inline(never)]
    fn left_closed(&self, state: State) {
        full_fence();
        if !self.waits.load(Relaxed) {
            return;
        }
        if state.is_read() {
            mark("a reader leaves the wake-up of the writer to another reader");
        } else if self.waits.swap(false, Relaxed) {
            mark("the last reader wakes the writer");
            self.drained.release(Wake::Normal);
        }
    }
}

/// Writers.
impl<W: RawLock, S: Semaphore> ShardedRwMutex<W, S> {
    /// Makes the caller, which owns `inner`, the only owner. Without a `limit` does not wait at all.
    #[inline]
    fn close(&self, limit: Option<&WaitLimit<'_>>) -> Result<(), WaitError> {
        if limit.is_none() && self.state().is_read() {
            return Err(WaitError::TimedOut); // saves the heavy fence
        }
        let state = State(self.word.fetch_or(CLOSED, SeqCst));
        if state.is_biased() {
            mark("a biased mutex is closed");
            if !asymmetric::heavy() {
                fatal("sync: the system refuses membarrier, which it has allowed before");
            }
        }
        if state.is_read() {
            self.drain(state, limit)?;
        }
        // No other thread changes a closed word, so a store suffices, here and where C is cleared.
        self.word.store(State(self.word.load(Relaxed)).written().0, Relaxed);
        Ok(())
    }

    /// Waits until no slot has the name. If the limit comes first, opens the mutex again.
    #[cold]
    fn drain(&self, state: State, limit: Option<&WaitLimit<'_>>) -> Result<(), WaitError> {
        if limit.is_some() {
            spin_while(WRITER_PAUSES, || state.is_read());
        }
        self.inner.deadlock_owner.note_wait("sync.RWMutex.Lock");
        while state.is_read() {
            let waited = limit.map_or(Err(WaitError::TimedOut), |limit| self.wait(state, limit));
            if waited.is_err() && state.is_read() {
                self.word.store(self.state().reopened().0, Release);
                return waited;
            }
        }
        Ok(())
    }

    /// Step 4. Takes a permit, or sees that no slot has the name.
    fn wait(&self, state: State, limit: &WaitLimit<'_>) -> Result<(), WaitError> {
        // Not a store: in loom a store may come between a later swap and the value that the swap has read.
        self.waits.swap(true, SeqCst);
        if !state.is_read() {
            mark("a writer that is about to wait sees the last reader's end");
            self.stop_waiting();
            return Ok(());
        }
        self.drained.acquire_limited(Order::Fifo, limit).inspect_err(|_| self.stop_waiting())
    }

    /// Clears `waits`, or takes the permit of the reader that has.
    #[cold]
    fn stop_waiting(&self) {
        if !self.waits.swap(false, Relaxed) {
            mark("a writer takes the permit of a reader that has come first");
            self.drained.acquire(Order::Fifo); // released, or about to be
        }
    }

    /// Ends a write.
    #[inline]
    fn open(&self) {
        self.word.store(State(self.word.load(Relaxed)).opened().0, Release);
    }

    #[inline]
    fn write(&self, guard: W::Guard, limit: Option<&WaitLimit<'_>>) -> Result<W::Guard, WaitError> {
        if let Err(why) = self.close(limit) {
            // A `try_lock` must not switch to another goroutine, so unlock without switching. SAFETY: `guard` is that of the
            // caller's acquisition of `inner`.
            without_switching(|| unsafe { RawRwLock::unlock(&self.inner, guard) });
            return Err(why);
        }
        Ok(guard)
    }
}

// SAFETY:
// - The write owner has `inner` for writing, has closed the word, and has seen that no slot has the name. Readers that
//   come find the word closed, and `inner` locked.
// - A reader has written the name into a slot before the word was closed, or has `inner` for reading: in both cases a
//   writer waits for the reader.
// - The head of this file argues the orderings.
unsafe impl<W: RawLock, S: Semaphore> RawRwLock for ShardedRwMutex<W, S> {
    type SharedGuard = SharedGuard;
    type ExclusiveGuard = W::Guard;

    const DEADLINES: bool = GoRwMutex::<W, S>::DEADLINES;

    fn new() -> Self {
        Self {
            word: CachePadded::new(AtomicU64::new(State::UNNAMED.0)),
            waits: AtomicBool::new(false),
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
        SharedGuard(None)
    }

    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    fn try_rlock(&self) -> Option<SharedGuard> {
        self.enter().or_else(|| self.inner.try_rlock().then_some(SharedGuard(None)))
    }

    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    fn try_rlock_until(&self, deadline: Instant) -> Option<SharedGuard> {
        self.rlock_limited(&WaitLimit::until(deadline)).ok()
    }

    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    fn rlock_limited(&self, limit: &WaitLimit<'_>) -> Result<SharedGuard, WaitError> {
        if let Some(guard) = self.enter() {
            return Ok(guard);
        }
        self.inner.rlock_limited(limit)?;
        Ok(SharedGuard(None))
    }

    #[inline]
    unsafe fn runlock(&self, guard: SharedGuard) {
        match guard.0 {
            Some(slot) => self.leave(slot),
            None => self.inner.runlock(),
        }
    }

    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    fn lock(&self) -> W::Guard {
        // Lock `writers`: a sole owner of `inner` takes longer here, as measured.
        let acquisition = self.inner.deadlock_owner.locks();
        let guard = self.inner.write_with_writers();
        self.inner.deadlock_owner.set(acquisition);
        self.write(guard, Some(&WaitLimit::default())).unwrap_or_else(|_| unreachable!("without a limit it waits"))
    }

    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    fn try_lock(&self) -> Option<W::Guard> {
        let guard = RawRwLock::try_lock(&self.inner)?;
        self.write(guard, None).ok()
    }

    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    fn try_lock_until(&self, deadline: Instant) -> Option<W::Guard> {
        RawRwLock::lock_limited(self, &WaitLimit::until(deadline)).ok()
    }

    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    fn lock_limited(&self, limit: &WaitLimit<'_>) -> Result<W::Guard, WaitError> {
        let guard = RawRwLock::lock_limited(&self.inner, limit)?;
        self.write(guard, Some(limit))
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
        SharedGuard(None)
    }

    #[inline]
    fn is_locked(&self) -> bool {
        self.inner.is_locked() || self.state().is_read()
    }

    #[inline]
    fn is_locked_exclusive(&self) -> bool {
        self.state().is_written()
    }
}

#[cfg(not(sudog_loom))]
impl<W: crate::ConstRawLock, S: crate::ConstSemaphore> crate::ConstRawRwLock for ShardedRwMutex<W, S> {
    const INIT: Self = Self {
        word: CachePadded::new(AtomicU64::new(State::UNNAMED.0)),
        waits: AtomicBool::new(false),
        drained: S::INIT,
        inner: GoRwMutex::const_new(),
    };
}

impl<W: RawLock, S: Semaphore> fmt::Debug for ShardedRwMutex<W, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("ShardedRwMutex")
            .field("is_closed", &state.is_closed())
            .field("is_biased", &state.is_biased())
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(sudog_loom)))]
#[path = "sharded_tests.rs"]
mod tests;
