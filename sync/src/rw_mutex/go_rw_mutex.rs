//! Go's readers-writer mutex.
//!
//! The state word, and with it most of the protocol:
//!
//! ```text
//!   63                34  33  32  31  30                                  0
//!  ┌────────────────────┬───┬───┬───┬──────────────────────────────────────┐
//!  │ before             │ P │ W │ S │ readers                              │
//!  └────────────────────┴───┴───┴───┴──────────────────────────────────────┘
//! ```
//!
//! | field | means |
//! |---|---|
//! | readers | the number of readers that have the lock, or wait for a writer. A writer that waits for a sole owner, the *successor*, is counted, too |
//! | S sole | the writer has the lock without `writers`: it is the *sole owner*. S is set only with W |
//! | W | a writer has announced itself: later readers wait until that writer has unlocked |
//! | P phase | changes with each writer that ends: readers wait for the end of their phase |
//! | before | while W is set: the number of readers left that came before the writer; else without a meaning |
//!
//! | step | changes the word by | then |
//! |---|---|---|
//! | `rlock` | readers + 1 | W was clear: has the lock. Else waits for the end of phase P |
//! | `runlock` | readers - 1, before - 1 | W is set and before has become 0: releases `drained` |
//! | `lock`, if W is clear and there is no reader | W and S set, before = 0 | has the lock: it is the sole owner |
//! | `lock`, after `writers` is locked, if W is clear | W set, before = readers | before = 0: has the lock. Else waits on `drained` |
//! | `lock`, after `writers` is locked, if W is set: the caller is the successor | readers + 1 | waits as a reader does, until the successor may read |
//! | the successor may read | readers - 1, W set, before = readers | as `lock` above |
//! | `unlock`, S is clear | W + 1, which clears W and flips P | admits the readers that wait; unlocks `writers` |
//! | `unlock`, S is set | S + 1, which clears S and W and flips P | admits the readers that wait |
//! | a reader that waits, and gives up | readers - 1, if W is set and P is the reader's phase | else the phase has ended, and the reader has the lock |
//! | a writer that waits, and gives up | W + 1, if before is not 0 | admits the readers that wait, unlocks `writers`. If before is 0, the writer has the lock |
//! | a successor that waits, and gives up | as a reader that gives up | unlocks `writers` |
//!
//! A writer that has announced itself owns `writers`, or is the sole owner, so only a single writer is announced at a
//! time. Readers that came during a write go before the next writer, and a writer waits for no reader that came after
//! its announcement: neither side can starve the other. A sole owner may overtake the writers that wait for `writers`,
//! but not the successor once the successor is counted as a reader: the sole owner's step needs a word without readers.
//! Sole owners exist only if newcomers may overtake waiters in `writers`, too ([`RawLock::barging_guard`]).
//!
//! Go keeps `before` in a separate word, `readerWait`, so a `runlock` that meets a writer takes two steps. Here
//! `runlock` is a single step, on which a writer that gives up relies: that writer must know how many readers to admit.
//! `runlock` does not look at W first, so `before` changes while W is clear, too, and may wrap. That is why `before` is
//! at the top of the word, and why a writer sets `before`.
//!
//! **How readers wait.** A reader that spins has the lock as soon as it sees the end of its phase: W is clear, or P has
//! flipped. Such a reader takes no permit. A reader that is about to sleep registers, in the count of `sleepers` of its
//! phase:
//!
//! | reader of phase P | writer, at the end of phase P |
//! |---|---|
//! | 1: `sleepers[P]` + 1 | 1: clears W, flips P |
//! | 2: loads the word: has the phase ended? | 2: loads `sleepers[P]`: not 0? |
//! | 3: if not, takes a permit of `admitted[P]`; begins anew | 3: if so, exchanges `sleepers[P]` for 0, and grants as many permits |
//! | 3: if so, `sleepers[P]` - 1; if `sleepers[P]` is 0 already, takes a permit | |
//!
//! All four accesses of steps 1 and 2 are sequentially consistent, so the reader sees the end of the phase, or the
//! writer sees the reader. For each parity of the phase, the number of registered readers equals `sleepers` plus the
//! number of permits that are granted or about to be. So each registered reader finds a count or a permit, though
//! perhaps one that was meant for another reader. A writer may be late for its step 2: the readers of its phase and
//! another writer after them have gone, and other readers sleep in a phase of the same parity. Those readers get the
//! permits. So a permit is a hint: a reader that has taken a permit looks at the word again.
//!
//! **One bit of phase is enough.** A reader must not mistake a later phase for its own. Let a reader come in phase k.
//! While the reader has not seen the end of k, phase k + 1 may begin, but does not end:
//!
//! * No unlock ends phase k + 1, as the writer of k + 1 counts the reader in `before`.
//! * No writer that gives up ends phase k + 1. Only a writer with a limit gives up, and before such a writer announces
//!   itself, it waits until all readers that were admitted at the end of k have seen that end. `entering` counts these
//!   readers.
//!
//! So if W is set and P is the reader's phase, the phase is k, and no writer has admitted the reader. A sole owner
//! begins its phase when there is no reader, so each reader that has been admitted has gone.
//!
//! Orderings. All changes of the word are RMWs, so each change passes on the releases of the changes before. `runlock`
//! is a Release, and the writer's announcement, or its load after a wait, is an Acquire: the write comes after all
//! reads. `unlock` is a Release, and `rlock` is an Acquire: a read comes after all writes. A reader that waits comes
//! after the writes by the load that sees the end of its phase. The word orders the writers: each begins with an
//! Acquire, and ends with a Release.
//!
//! Source: Go's `sync/rwmutex.go`, in the development tree of 1.28; deadlines and the downgrade are ours.

use std::fmt;
use std::ptr;
use std::sync::atomic::Ordering::{self, Acquire, Relaxed, Release, SeqCst};
#[cfg(not(sudog_loom))]
use std::time::Duration;

use sudog_runtime::goroutine::without_switching;
use sudog_runtime::sema::{Cancel, WaitError, WaitLimit};
use sudog_runtime::shim::mark;
use sudog_runtime::{AtomicU32, AtomicU64, G, Instant, fatal};

use super::spinning::{READER_PAUSES, WRITER_PAUSES, look_seldom, spin_while};
use crate::mutex::UnguardedLock;
use crate::mutex::contention_hint::{self, NextWrite};
use crate::now;
use crate::raw::{Order, RawLock, Semaphore, Wake};
use crate::raw_rw::RawRwLock;
use crate::semaphore::RuntimeSema;
use crate::{GoMutex, RLocker};

const READER: u64 = 1;
const READERS: u64 = (1 << 31) - 1;
/// The limit of readers (Go's `rwmutexMaxReaders` is 2^30). `before` has 30 bits: room for this many readers and for a
/// successor.
const TOO_MANY: u64 = 1 << 29;
const SOLE: u64 = 1 << 31;
const WRITER: u64 = 1 << 32;
const PHASE: u64 = 1 << 33;
const BEFORE: u64 = 1 << 34;

fn readers(state: u64) -> u64 {
    state & READERS
}

fn before(state: u64) -> u64 {
    state / BEFORE
}

/// Returns the index of a phase in `sleepers` and `admitted`.
fn parity(phase: u64) -> usize {
    usize::from(phase != 0)
}

/// Ends the process if there were too many readers in `old`: the word before the caller counted itself as a reader.
fn check_count(old: u64) {
    if old & TOO_MANY != 0 {
        fatal("sync: more than 536870912 readers of an RWMutex");
    }
}

/// The Go readers-writer mutex, bare: any number of readers, or one writer.
///
/// Writers lock `W` among themselves; readers and writers wait for each other on semaphores `S`. For a mutex with data
/// and guards see [`RwMutex`](crate::RwMutex).
///
/// As in Go, the mutex is not owned by a thread, and not reentrant. In particular, a reader must not read-lock again: a
/// writer that has announced itself in between would wait for the first read, and the second read would wait for the
/// writer.
///
/// A writer waits for the readers that came before the writer announced itself. Readers that come later wait for the
/// writer, and go before the next writer. `W` decides the order of the writers.
///
/// # Misuse
///
/// Misuse ends the process with Go's messages: `sync: RUnlock of unlocked RWMutex`, `sync: Unlock of unlocked RWMutex`.
/// Not each misuse is noticed: while others read, an extra `runlock` takes the lock from a reader. Guards cannot be
/// misused.
///
/// # Limits
///
/// At most 2^29 readers, half of Go's limit. A further reader ends the process.
///
/// # Examples
///
/// ```
/// use sudog::sync::GoRwMutex;
///
/// static RW: GoRwMutex = GoRwMutex::new();
///
/// RW.rlock();
/// assert!(RW.try_rlock() && !RW.try_lock());
/// RW.runlock();
/// RW.runlock();
/// RW.lock();
/// assert!(!RW.try_rlock());
/// RW.unlock();
/// ```
pub struct GoRwMutex<W = GoMutex, S = RuntimeSema> {
    state: AtomicU64,
    /// The lock among writers. The owner of `writers` may announce itself. A sole owner does not lock `writers`.
    writers: W,
    /// A permit for the writer, released by the last of the readers that came before the writer.
    drained: S,
    /// The numbers of readers that sleep or are about to, by the phase in which they came. A reader registers and
    /// unregisters itself; the writer at the end of the phase exchanges the number for 0.
    sleepers: [AtomicU32; 2],
    /// The permits for the readers in `sleepers`, by the same phases.
    admitted: [S; 2],
    /// The number of readers that have been admitted, but have not seen their admission yet. The writer that admits
    /// readers adds them; each reader subtracts itself.
    entering: AtomicU32,
}

#[cfg(not(sudog_loom))]
impl GoRwMutex {
    /// An unlocked mutex over the default lock and semaphore.
    #[must_use]
    pub const fn new() -> Self {
        Self::const_new()
    }
}

#[cfg(not(sudog_loom))]
impl<W: crate::ConstRawLock, S: crate::ConstSemaphore> GoRwMutex<W, S> {
    /// An unlocked mutex over any lock and semaphore.
    ///
    /// # Examples
    ///
    /// ```
    /// use sudog::sync::mutex::policy;
    /// use sudog::sync::semaphore::RuntimeSema;
    /// use sudog::sync::{GoMutex, GoRwMutex};
    ///
    /// static RW: GoRwMutex<GoMutex<RuntimeSema, policy::Go>> = GoRwMutex::const_new();
    /// RW.lock();
    /// RW.unlock();
    /// ```
    #[must_use]
    pub const fn const_new() -> Self {
        Self {
            state: AtomicU64::new(0),
            writers: W::INIT,
            drained: S::INIT,
            sleepers: [const { AtomicU32::new(0) }; 2],
            admitted: [S::INIT; 2],
            entering: AtomicU32::new(0),
        }
    }
}

#[cfg(not(sudog_loom))]
impl<W: crate::ConstRawLock, S: crate::ConstSemaphore> crate::ConstRawRwLock for GoRwMutex<W, S> {
    const INIT: Self = Self::const_new();
}

impl<W: RawLock, S: Semaphore> GoRwMutex<W, S> {
    /// Locks for reading, waiting for a writer if a writer has the lock or is announced. Go: `RLock`.
    #[inline]
    pub fn rlock(&self) {
        let old = self.state.fetch_add(READER, Acquire);
        if old & (WRITER | TOO_MANY) != 0 {
            let locked = self.rlock_slow(old, &WaitLimit::default());
            debug_assert_eq!(locked, Ok(()));
        }
    }

    /// Locks for reading if no writer has the lock or is announced. Go: `TryRLock`.
    #[inline]
    #[must_use]
    pub fn try_rlock(&self) -> bool {
        let mut old = self.state.load(Relaxed);
        while old & (WRITER | TOO_MANY) == 0 {
            match self.state.compare_exchange_weak(old, old + READER, Acquire, Relaxed) {
                Ok(_) => return true,
                Err(now) => old = now,
            }
        }
        false
    }

    /// Locks for reading unless `deadline` comes first. Returns whether the caller has the lock. With a deadline in the
    /// past, does the same as [`GoRwMutex::try_rlock`].
    ///
    /// May return slightly late: if an unlock is already admitting this reader at the deadline, the call waits for that
    /// unlock.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    ///
    /// let rw = sudog::sync::GoRwMutex::new();
    /// rw.lock();
    /// assert!(!rw.try_rlock_until(Instant::now() + Duration::from_millis(1)));
    /// # rw.unlock();
    /// ```
    #[inline]
    #[must_use]
    pub fn try_rlock_until(&self, deadline: Instant) -> bool {
        let old = self.state.fetch_add(READER, Acquire);
        old & (WRITER | TOO_MANY) == 0 || self.rlock_slow(old, &WaitLimit::until(deadline)).is_ok()
    }

    /// Locks for reading unless a [`WaitLimit`] comes first.
    ///
    /// # Errors
    ///
    /// The error says which limit came first.
    #[inline]
    pub fn rlock_limited(&self, limit: &WaitLimit<'_>) -> Result<(), WaitError> {
        let old = self.state.fetch_add(READER, Acquire);
        if old & (WRITER | TOO_MANY) == 0 { Ok(()) } else { self.rlock_slow(old, limit) }
    }

    /// Does the same as [`GoRwMutex::try_rlock_until`], with the deadline `timeout` from now. Waits without end if the
    /// clock cannot express that deadline.
    #[cfg(not(sudog_loom))]
    #[must_use]
    pub fn try_rlock_for(&self, timeout: Duration) -> bool {
        match now().checked_add(timeout) {
            Some(deadline) => self.try_rlock_until(deadline),
            None => {
                self.rlock();
                true
            }
        }
    }

    /// Ends a read: undoes one [`GoRwMutex::rlock`], possibly of another caller. Go: `RUnlock`.
    ///
    /// The last of the readers that a writer waits for wakes the writer, and there a goroutine may give way to others.
    /// Any other `runlock` is a single atomic operation, and never switches to another goroutine. So a goroutine that
    /// only reads, in a loop, should call [`gosched`](sudog_runtime::goroutine) now and then.
    #[inline]
    pub fn runlock(&self) {
        let old = self.state.fetch_sub(READER + BEFORE, Release);
        if old & WRITER != 0 || readers(old) == 0 {
            self.runlock_slow(old);
        }
    }

    /// Returns the number of readers that have the lock, or wait for a writer, at this moment. A writer that waits for
    /// another writer may be counted, too. For tests and diagnostics.
    #[must_use]
    pub fn readers(&self) -> u32 {
        readers(self.state.load(Relaxed)) as u32
    }

    /// Returns whether a writer has the lock, or waits for readers to leave, at this moment. For tests and diagnostics.
    #[must_use]
    pub fn has_writer(&self) -> bool {
        self.state.load(Relaxed) & WRITER != 0
    }

    #[cold]
    fn rlock_slow(&self, old: u64, limit: &WaitLimit<'_>) -> Result<(), WaitError> {
        check_count(old);
        self.wait_to_read(old, limit, "sync.RWMutex.RLock")
    }

    /// Waits until the caller may read. The caller is a reader or a successor, has found W set in `old`, and has
    /// counted itself.
    fn wait_to_read(&self, old: u64, limit: &WaitLimit<'_>, what: &'static str) -> Result<(), WaitError> {
        let phase = old & PHASE;
        loop {
            spin_while(READER_PAUSES, || self.must_wait(phase, Relaxed));
            if !self.must_wait(phase, Acquire) || !self.register(phase) {
                break;
            }
            // SAFETY: `note_wait` accepts a null pointer.
            unsafe { sudog_runtime::note_wait(what, ptr::null()) };
            let over = self.admitted[parity(phase)].acquire_limited(Order::Fifo, limit);
            if over.is_err() {
                return if self.withdraw(phase) { over } else { Ok(()) };
            }
            if cfg!(sudog_loom) && self.must_wait(phase, Relaxed) {
                mark("a reader is woken by the writer of an earlier phase");
            }
        }
        self.enter();
        Ok(())
    }

    /// Does steps 1 and 2 of a reader that is about to sleep. Returns false if the phase has ended: the reader is not
    /// registered then.
    fn register(&self, phase: u64) -> bool {
        self.sleepers[parity(phase)].fetch_add(1, SeqCst);
        // SeqCst contains Acquire.
        let must_wait = self.must_wait(phase, SeqCst);
        if !must_wait {
            mark("a reader that is about to sleep sees the end of its phase");
            self.unregister(phase);
        }
        must_wait
    }

    /// Does step 3 of a registered reader that does not sleep.
    #[cold]
    fn unregister(&self, phase: u64) {
        let sleepers = &self.sleepers[parity(phase)];
        let mut old = sleepers.load(Relaxed);
        while old != 0 {
            // Relaxed: the step publishes nothing.
            match sleepers.compare_exchange_weak(old, old - 1, Relaxed, Relaxed) {
                Ok(_) => return,
                Err(now) => old = now,
            }
        }
        mark("a reader that does not sleep takes the permit of one that does");
        self.admitted[parity(phase)].acquire(Order::Fifo); // the permit is granted, or about to be
    }

    /// Withdraws a registered reader that gives up, and that has left the semaphore's queue. Returns false if the
    /// reader has been admitted: then the reader has the lock.
    #[cold]
    fn withdraw(&self, phase: u64) -> bool {
        self.unregister(phase);
        let mut old = self.state.load(Acquire);
        // The head of this file argues that one bit of phase is enough.
        while old & (WRITER | PHASE) == WRITER | phase {
            match self.state.compare_exchange_weak(old, old - READER, Relaxed, Acquire) {
                Ok(_) => return true,
                Err(now) => old = now,
            }
        }
        self.enter();
        false
    }

    /// Returns whether `phase` has not ended. Only for a reader that has come in `phase`, and has not called
    /// [`enter`](Self::enter).
    #[inline]
    fn must_wait(&self, phase: u64, ordering: Ordering) -> bool {
        self.state.load(ordering) & (WRITER | PHASE) == WRITER | phase
    }

    /// Notes that an admitted reader has seen the end of its phase.
    #[inline]
    fn enter(&self) {
        // Release: a thread that reads 0 comes after the reader's load that has seen the end of the phase.
        self.entering.fetch_sub(1, Release);
    }

    #[cold]
    fn runlock_slow(&self, old: u64) {
        // If a writer is announced and no reader before that writer is left, all readers still wait, and none may
        // unlock.
        if readers(old) == 0 || before(old) == 0 {
            fatal("sync: RUnlock of unlocked RWMutex");
        }
        if before(old) == 1 {
            self.drained.release(Wake::Normal);
        }
    }

    #[inline]
    fn write(&self) -> W::Guard {
        if Self::has_sole_owners() {
            // Where writers meet, lock `writers`, which is faster: `writers` restricts how many writers are awake.
            match contention_hint::next_write() {
                NextWrite::Alone => {
                    if let Some(guard) = self.write_alone() {
                        return guard;
                    }
                }
                NextWrite::LooksFirst => return self.look_and_write(),
                NextWrite::InTurn => {}
            }
            return self.write_in_turn();
        }
        self.write_with_writers()
    }

    /// Locks for writing, and locks `writers` first.
    #[inline]
    pub(super) fn write_with_writers(&self) -> W::Guard {
        let guard = self.writers.lock();
        match self.announce(0) {
            Some(true) => guard,
            Some(false) => self.drain_for_good(guard),
            None => self.succeed_for_good(guard),
        }
    }

    #[inline]
    fn write_limited(&self, limit: &WaitLimit<'_>) -> Result<W::Guard, WaitError> {
        if let Some(guard) = self.write_alone() {
            return Ok(guard);
        }
        let guard = self.writers.lock_limited(limit)?;
        if Self::has_sole_owners() || self.entering.load(Acquire) != 0 {
            self.succeed(guard, limit)
        } else if self.announce(0) == Some(true) {
            Ok(guard)
        } else {
            self.drain(guard, limit)
        }
    }

    /// Returns whether a newcomer may overtake writers that wait for `writers`. Known at compile time.
    #[inline(always)]
    fn has_sole_owners() -> bool {
        W::barging_guard().is_some()
    }

    /// Makes the caller the sole owner, if there is neither a reader nor a writer, and if `W` allows sole owners.
    #[inline]
    fn write_alone(&self) -> Option<W::Guard> {
        let guard = W::barging_guard()?;
        let mut old = self.state.load(Relaxed);
        while old & (WRITER | READERS) == 0 {
            match self.state.compare_exchange_weak(old, (old & PHASE) | WRITER | SOLE, Acquire, Relaxed) {
                Ok(_) => return Some(guard),
                Err(now) => old = now,
            }
        }
        None
    }

    /// Locks for writing, and locks `writers` first: there is a reader or a writer, or there likely will be.
    #[inline(never)]
    fn write_in_turn(&self) -> W::Guard {
        let guard = self.writers.lock();
        let announced = self.announce(0);
        contention_hint::note_write(announced != Some(true));
        match announced {
            Some(true) => guard,
            Some(false) => self.drain_for_good(guard),
            None => self.succeed_for_good(guard),
        }
    }

    /// Locks for writing, for a goroutine. Before the writer announces itself, it looks a few times for a word without
    /// readers and writers. Until the announcement no reader waits for the writer, so readers on other workers go on at
    /// full speed.
    #[cold]
    fn look_and_write(&self) -> W::Guard {
        let mut looks = 0;
        let alone = look_seldom(|| {
            looks += 1;
            self.write_alone()
        });
        let Some(guard) = alone else { return self.write_in_turn() };
        contention_hint::note_write(looks > 1);
        guard
    }

    /// Waits without a limit for a sole owner, which is mostly about to unlock. The caller owns `writers`.
    #[cold]
    fn succeed_for_good(&self, guard: W::Guard) -> W::Guard {
        let mut announced = None;
        spin_while(WRITER_PAUSES, || {
            announced = self.announce(0);
            announced.is_none()
        });
        match announced {
            Some(true) => guard,
            Some(false) => self.drain_for_good(guard),
            None => {
                let turn = self.succeed(guard, &WaitLimit::default());
                turn.unwrap_or_else(|_| unreachable!("without a limit it waits"))
            }
        }
    }

    /// Counts the owner of `writers` as a reader, so that no sole owner overtakes the owner of `writers` from then on.
    /// Announces the owner of `writers` once that owner may read.
    ///
    /// A writer with a limit, which may have to retract, announces itself only once all readers that the previous
    /// writer has admitted have seen their admission. No further reader is admitted meanwhile, as the writer itself is
    /// counted as a reader. So the writer can give up here without a trace, and need not wait for these readers when it
    /// retracts. Such a wait could last long: the readers may be goroutines of the writer's own worker, and the writer
    /// may be unable to switch to them.
    #[cold]
    fn succeed(&self, guard: W::Guard, limit: &WaitLimit<'_>) -> Result<W::Guard, WaitError> {
        match self.read_and_announce(limit) {
            Ok(true) => Ok(guard),
            Ok(false) => self.drain(guard, limit),
            Err(why) => {
                // SAFETY: `guard` is that of the caller's acquisition of `writers`.
                unsafe { self.writers.unlock(guard) };
                Err(why)
            }
        }
    }

    /// Announces the owner of `writers` once that owner may read. Returns true if there is no other reader: in that
    /// case the owner has the lock.
    fn read_and_announce(&self, limit: &WaitLimit<'_>) -> Result<bool, WaitError> {
        let old = self.state.fetch_add(READER, Acquire);
        check_count(old);
        if old & WRITER != 0 {
            mark("a writer succeeds a sole owner");
            self.wait_to_read(old, limit, "sync.RWMutex.Lock").inspect_err(|_| mark("a successor gives up"))?;
        }
        if limit.cancel.is_some() || limit.deadline.is_some() {
            self.await_entering(limit).inspect_err(|_| self.runlock())?;
        }
        // No writer is there: a sole owner needs a word without readers, any other writer needs `writers`.
        let Some(alone) = self.announce(READER) else { fatal("sync: RUnlock of unlocked RWMutex") };
        mark(if alone { "a successor has the lock as it announces itself" } else { "a successor reads beside others" });
        Ok(alone)
    }

    fn await_entering(&self, limit: &WaitLimit<'_>) -> Result<(), WaitError> {
        while self.entering.load(Acquire) != 0 {
            if limit.cancel.is_some_and(Cancel::is_cancelled) {
                return Err(WaitError::Cancelled);
            }
            if limit.deadline.is_some_and(|deadline| now() >= deadline) {
                return Err(WaitError::TimedOut);
            }
            G::yield_now();
        }
        Ok(())
    }

    #[cold]
    fn drain_for_good(&self, guard: W::Guard) -> W::Guard {
        let drained = self.drain(guard, &WaitLimit::default());
        drained.unwrap_or_else(|_| unreachable!("without a limit it waits"))
    }

    #[inline]
    fn try_write(&self) -> Option<W::Guard> {
        if Self::has_sole_owners() {
            return self.write_alone();
        }
        let guard = self.writers.try_lock()?;
        let mut old = self.state.load(Relaxed);
        while readers(old) == 0 {
            match self.state.compare_exchange_weak(old, (old & PHASE) | WRITER, Acquire, Relaxed) {
                Ok(_) => return Some(guard),
                Err(now) => old = now,
            }
        }
        // A `try_lock` never switches to another goroutine, so unlock without switching. SAFETY: `guard` is that of the
        // acquisition of `writers` above.
        without_switching(|| unsafe { self.writers.unlock(guard) });
        None
    }

    /// Announces the owner of `writers`: sets W. Returns whether the owner of `writers` now has the lock, or `None` if
    /// a sole owner has the lock.
    ///
    /// `own` is `READER` if the caller is counted as a reader, else 0. The announcement takes the caller out of the
    /// count of readers.
    #[inline]
    fn announce(&self, own: u64) -> Option<bool> {
        let mut old = self.state.load(Relaxed);
        loop {
            if Self::has_sole_owners() && (old & WRITER != 0 || readers(old) < own) {
                return None;
            }
            let before = readers(old) - own;
            let new = (before * BEFORE) | (old & PHASE) | WRITER | before;
            match self.state.compare_exchange_weak(old, new, Acquire, Relaxed) {
                Ok(_) => return Some(before == 0),
                Err(now) => old = now,
            }
        }
    }

    /// Waits for the readers that came before the caller, an announced writer.
    #[cold]
    fn drain(&self, guard: W::Guard, limit: &WaitLimit<'_>) -> Result<W::Guard, WaitError> {
        spin_while(WRITER_PAUSES, || before(self.state.load(Relaxed)) != 0);
        // SAFETY: `note_wait` accepts a null pointer.
        unsafe { sudog_runtime::note_wait("sync.RWMutex.Lock", ptr::null()) };
        if let Err(why) = self.drained.acquire_limited(Order::Fifo, limit)
            && let Some(old) = self.retract()
        {
            self.admit(old);
            // SAFETY: `guard` is that of the caller's acquisition of `writers`.
            unsafe { self.writers.unlock(guard) };
            return Err(why);
        }
        // Only the last reader releases the permit. Acquire the word, to come after the other readers, too.
        self.state.load(Acquire);
        Ok(guard)
    }

    /// Ends the phase of an announced writer that gives up. The writer has left its queue, but still owns `writers`.
    /// Returns the word before the phase ended: the caller must [`admit`](Self::admit) the readers that came in that
    /// phase. Returns `None` if the last of the readers before the writer has left: then the writer has the lock.
    #[cold]
    fn retract(&self) -> Option<u64> {
        let mut old = self.state.load(Relaxed);
        while before(old) != 0 {
            match self.state.compare_exchange_weak(old, old.wrapping_add(WRITER), SeqCst, Relaxed) {
                Ok(_) => return Some(old),
                Err(now) => old = now,
            }
        }
        self.drained.acquire(Order::Fifo); // the permit is released, or about to be
        None
    }

    /// Admits the readers that came in a phase that has ended. `old` is the word before the end.
    #[inline]
    fn admit(&self, old: u64) {
        let n = (readers(old) - before(old)) as u32;
        if n > 0 {
            self.admit_some(old & PHASE, n);
        }
    }

    #[inline]
    fn admit_some(&self, phase: u64, n: u32) {
        // Relaxed: a thread that reads `entering` owns `writers`, and so comes after this step. Some of the readers may
        // have subtracted themselves already; then `entering` is below 0 for a moment.
        self.entering.fetch_add(n, Relaxed);
        self.wake_sleepers(phase);
    }

    /// Does step 2 of a writer at the end of a phase. Step 1 was SeqCst.
    #[inline]
    fn wake_sleepers(&self, phase: u64) {
        if self.sleepers[parity(phase)].load(SeqCst) != 0 {
            self.grant_to_sleepers(phase);
        }
    }

    #[cold]
    fn grant_to_sleepers(&self, phase: u64) {
        // Relaxed: the readers see the end of the phase in the word, and a permit orders all that came before the
        // grant.
        self.admitted[parity(phase)].grant_many(self.sleepers[parity(phase)].swap(0, Relaxed));
    }

    /// Ends a write. `then_read` is `READER` if the caller reads from then on, else 0.
    ///
    /// # Safety
    ///
    /// The same conditions as for [`RawLock::unlock`] of `writers`; and the caller has the lock for writing.
    #[inline]
    unsafe fn end_write(&self, guard: W::Guard, then_read: u64) {
        if Self::has_sole_owners() {
            // S does not change before the owner unlocks.
            let old = self.state.load(Relaxed);
            if old & SOLE != 0 {
                self.end_sole(old, then_read);
                return sudog_runtime::safepoint();
            }
        }
        self.end_phase(then_read);
        // SAFETY: by the contract of `end_write`, `guard` is that of the caller's acquisition of `writers`.
        unsafe { self.writers.unlock(guard) };
        sudog_runtime::safepoint();
    }

    /// Ends a sole owner's write.
    #[inline]
    fn end_sole(&self, old: u64, then_read: u64) {
        let waits = readers(old) != 0;
        // Release is enough without readers: a reader leaves `sleepers` before it leaves the word, so no reader is
        // registered.
        if waits || self.state.compare_exchange(old, old + SOLE + then_read, Release, Relaxed).is_err() {
            self.end_sole_and_admit(then_read);
        }
    }

    /// Ends a sole owner's write if readers wait, or have waited a moment ago.
    #[cold]
    fn end_sole_and_admit(&self, then_read: u64) {
        let mut old = self.state.load(Relaxed);
        let mut counted = 0;
        loop {
            if old & (WRITER | SOLE) != WRITER | SOLE {
                fatal("sync: Unlock of unlocked RWMutex");
            }
            let n = readers(old) as u32;
            // Add the waiting readers to `entering` before the step that ends the write: a successor that begins to
            // read after that step must find these readers in `entering`. No thread reads `entering` before that step:
            // a writer that is there has either counted itself as a reader, and waits, or has not done so yet.
            self.entering.fetch_add(n.wrapping_sub(counted), Relaxed);
            counted = n;
            match self.state.compare_exchange_weak(old, old + SOLE + then_read, SeqCst, Relaxed) {
                Ok(_) => break,
                Err(now) => old = now,
            }
        }
        if counted > 1 {
            mark("a sole owner admits more than one");
        }
        if counted > 0 {
            self.wake_sleepers(old & PHASE);
        }
    }

    #[inline]
    fn end_phase(&self, then_read: u64) {
        let old = self.state.fetch_add(WRITER + then_read, SeqCst);
        if old & WRITER == 0 || before(old) != 0 {
            fatal("sync: Unlock of unlocked RWMutex");
        }
        self.admit(old);
    }
}

impl<W: UnguardedLock, S: Semaphore> GoRwMutex<W, S> {
    /// Locks for writing, waiting for other writers and for the readers that came before. Go: `Lock`.
    #[inline]
    pub fn lock(&self) {
        self.write();
    }

    /// Locks for writing if there is no reader and no writer. Go: `TryLock`.
    #[inline]
    #[must_use]
    pub fn try_lock(&self) -> bool {
        self.try_write().is_some()
    }

    /// Locks for writing unless `deadline` comes first. Returns whether the caller has the lock. With a deadline in the
    /// past, tries once.
    ///
    /// May return slightly late: if an unlock has already picked this writer, the call waits for that unlock to finish.
    /// Within the deadline the call also waits until the readers that the previous writer has admitted have woken.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    ///
    /// let rw = sudog::sync::GoRwMutex::new();
    /// rw.rlock();
    /// assert!(!rw.try_lock_until(Instant::now() + Duration::from_millis(1)));
    /// # rw.runlock();
    /// ```
    #[inline]
    #[must_use]
    pub fn try_lock_until(&self, deadline: Instant) -> bool {
        self.lock_limited(&WaitLimit::until(deadline)).is_ok()
    }

    /// Locks for writing unless a [`WaitLimit`] comes first.
    ///
    /// # Errors
    ///
    /// The error says which limit came first.
    #[inline]
    pub fn lock_limited(&self, limit: &WaitLimit<'_>) -> Result<(), WaitError> {
        self.write_limited(limit).map(|_| ())
    }

    /// Does the same as [`GoRwMutex::try_lock_until`], with the deadline `timeout` from now. Waits without end if the
    /// clock cannot express that deadline.
    #[cfg(not(sudog_loom))]
    #[must_use]
    pub fn try_lock_for(&self, timeout: Duration) -> bool {
        match now().checked_add(timeout) {
            Some(deadline) => self.try_lock_until(deadline),
            None => {
                self.lock();
                true
            }
        }
    }

    /// Ends a write: undoes a [`GoRwMutex::lock`], possibly of another caller. The readers that came during the write
    /// go before the next writer. Go: `Unlock`.
    ///
    /// A goroutine that has run for long gives way here, after the lock is free.
    #[inline]
    pub fn unlock(&self) {
        // SAFETY: the guard of an `UnguardedLock` is `()`, so no guard is forged. `end_write` notices if this mutex is
        // not locked for writing. If another caller has locked it, that caller loses the lock, which Go allows; this
        // type guards no data.
        unsafe { self.end_write((), 0) };
    }

    /// Turns a write into a read, without letting another writer in between. Go has no such function.
    ///
    /// A goroutine that has run for long gives way here, with the lock for reading.
    ///
    /// # Examples
    ///
    /// ```
    /// let rw = sudog::sync::GoRwMutex::new();
    /// rw.lock();
    /// rw.downgrade();
    /// assert!(rw.try_rlock());
    /// # rw.runlock();
    /// rw.runlock();
    /// ```
    #[inline]
    pub fn downgrade(&self) {
        // SAFETY: the guard of an `UnguardedLock` is `()`, so no guard is forged. `end_write` notices if this mutex is
        // not locked for writing. `unlock` argues the case that another caller has locked this mutex.
        unsafe { self.end_write((), READER) };
    }

    /// Returns the reader's side as a [`Locker`](crate::Locker). Go: `RLocker`.
    ///
    /// # Examples
    ///
    /// ```
    /// use sudog::sync::{GoRwMutex, Locker};
    ///
    /// let rw = GoRwMutex::new();
    /// let reader = rw.rlocker();
    /// reader.lock();
    /// assert!(rw.try_rlock());
    /// # rw.runlock();
    /// reader.unlock();
    /// ```
    #[inline]
    #[must_use]
    pub fn rlocker(&self) -> RLocker<'_, W, S> {
        RLocker::new(self)
    }
}

// SAFETY:
// - A sole owner has set W in a word without W and without readers. Any other write owner owns `writers`, has set W in
//   a word without W, and has seen `before` at 0: the readers that came before that owner have left, and readers that
//   come later wait for a permit that only the end of the phase gives.
// - A permit of `admitted` lets no reader in by itself: a reader that has taken a permit reads the word again.
// - The head of this file argues the orderings.
unsafe impl<W: RawLock, S: Semaphore> RawRwLock for GoRwMutex<W, S> {
    type SharedGuard = ();
    type ExclusiveGuard = W::Guard;

    const DEADLINES: bool = W::DEADLINES && S::DEADLINES;

    fn new() -> Self {
        Self {
            state: AtomicU64::new(0),
            writers: W::new(),
            drained: S::new(0),
            sleepers: [AtomicU32::new(0), AtomicU32::new(0)],
            admitted: [S::new(0), S::new(0)],
            entering: AtomicU32::new(0),
        }
    }

    #[inline]
    fn rlock(&self) {
        Self::rlock(self);
    }

    #[inline]
    fn try_rlock(&self) -> Option<()> {
        Self::try_rlock(self).then_some(())
    }

    #[inline]
    fn try_rlock_until(&self, deadline: Instant) -> Option<()> {
        Self::try_rlock_until(self, deadline).then_some(())
    }

    #[inline]
    fn rlock_limited(&self, limit: &WaitLimit<'_>) -> Result<(), WaitError> {
        Self::rlock_limited(self, limit)
    }

    #[inline]
    unsafe fn runlock(&self, (): ()) {
        Self::runlock(self);
    }

    #[inline]
    fn lock(&self) -> W::Guard {
        self.write()
    }

    #[inline]
    fn try_lock(&self) -> Option<W::Guard> {
        self.try_write()
    }

    #[inline]
    fn try_lock_until(&self, deadline: Instant) -> Option<W::Guard> {
        self.write_limited(&WaitLimit::until(deadline)).ok()
    }

    #[inline]
    fn lock_limited(&self, limit: &WaitLimit<'_>) -> Result<W::Guard, WaitError> {
        self.write_limited(limit)
    }

    #[inline]
    unsafe fn unlock(&self, guard: W::Guard) {
        // SAFETY: by the contract of this method, `guard` came from an acquisition of this lock for writing that has
        // not been released.
        unsafe { self.end_write(guard, 0) };
    }

    #[inline]
    unsafe fn downgrade(&self, guard: W::Guard) {
        // SAFETY: by the contract of this method, `guard` came from an acquisition of this lock for writing that has
        // not been released.
        unsafe { self.end_write(guard, READER) };
    }

    #[inline]
    fn is_locked(&self) -> bool {
        self.state.load(Relaxed) & (WRITER | READERS) != 0
    }

    #[inline]
    fn is_locked_exclusive(&self) -> bool {
        let state = self.state.load(Relaxed);
        state & WRITER != 0 && before(state) == 0
    }
}

#[cfg(not(sudog_loom))]
impl<W: crate::ConstRawLock, S: crate::ConstSemaphore> Default for GoRwMutex<W, S> {
    fn default() -> Self {
        Self::const_new()
    }
}

impl<W, S> fmt::Debug for GoRwMutex<W, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.load(Relaxed);
        f.debug_struct("GoRwMutex")
            .field("writer", &(state & WRITER != 0))
            .field("readers", &readers(state))
            .finish_non_exhaustive()
    }
}
