//! Go's readers-writer mutex, its fast paths, and its contract. `state.rs` has the state word and the protocol.

use std::fmt;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
#[cfg(not(sudog_loom))]
use std::time::Duration;

use sudog_runtime::sema::{IntoLimit, WaitError, WaitLimit};
use sudog_runtime::{AtomicU32, Instant};

use super::state::{AtomicState, Then};
use crate::deadlock_owner::{DeadlockOwner, READERS};
use crate::mutex::UnguardedLock;
#[cfg(not(sudog_loom))]
use crate::now;
use crate::raw::{RawLock, Semaphore};
use crate::raw_rw::RawRwLock;
use crate::semaphore::RuntimeSema;
use crate::{GoMutex, RLocker};

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
    pub(super) state: AtomicState,
    /// The lock among writers. The owner of `writers` may announce itself. A sole owner does not lock `writers`.
    pub(super) writers: W,
    /// A permit for the writer, released by the last of the readers that came before the writer.
    pub(super) drained: S,
    /// The numbers of readers that sleep or are about to, by the phase in which they came. A reader registers and
    /// unregisters itself; the writer at the end of the phase exchanges the number for 0.
    pub(super) sleepers: [AtomicU32; 2],
    /// The permits for the readers in `sleepers`, by the same phases.
    pub(super) admitted: [S; 2],
    /// The number of readers that have been admitted, but have not seen their admission yet. The writer that admits
    /// readers adds them; each reader subtracts itself.
    pub(super) entering: AtomicU32,
    /// The goroutines that have the lock.
    pub(super) deadlock_owner: DeadlockOwner<READERS>,
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
    /// use sudog::low_level::RuntimeSema;
    /// use sudog::low_level::policy;
    /// use sudog::sync::{GoMutex, GoRwMutex};
    ///
    /// static RW: GoRwMutex<GoMutex<RuntimeSema, policy::Go>> = GoRwMutex::const_new();
    /// RW.lock();
    /// RW.unlock();
    /// ```
    #[must_use]
    pub const fn const_new() -> Self {
        Self {
            state: AtomicState::new(),
            writers: W::INIT,
            drained: S::INIT,
            sleepers: [const { AtomicU32::new(0) }; 2],
            admitted: [S::INIT; 2],
            entering: AtomicU32::new(0),
            deadlock_owner: DeadlockOwner::NONE,
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
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn rlock(&self) {
        let acquisition = self.deadlock_owner.reads();
        let old = self.state.read(Acquire);
        if !old.is_readable() {
            let locked = self.rlock_slow(old, &WaitLimit::default());
            debug_assert_eq!(locked, Ok(()));
        }
        self.deadlock_owner.set_reader(acquisition);
    }

    /// Locks for reading if no writer has the lock or is announced. Go: `TryRLock`.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    #[must_use]
    pub fn try_rlock(&self) -> bool {
        let mut old = self.state.load(Relaxed);
        while old.is_readable() {
            match self.state.compare_exchange_weak(old, old.read(), Acquire, Relaxed) {
                Ok(_) => {
                    self.deadlock_owner.set_reader(self.deadlock_owner.tries_to_read());
                    return true;
                }
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
    #[cfg_attr(debug_assertions, track_caller)]
    #[must_use]
    pub fn try_rlock_until(&self, deadline: Instant) -> bool {
        self.rlock_limited(&WaitLimit::until(deadline)).is_ok()
    }

    /// Locks for reading unless `limit` comes first: see [`IntoLimit`].
    ///
    /// # Errors
    ///
    /// The error says which limit came first.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn rlock_limited<L: IntoLimit>(&self, limit: L) -> Result<(), L::Error> {
        let acquisition = self.deadlock_owner.tries_to_read();
        limit.limited(|limit| {
            let old = self.state.read(Acquire);
            if old.is_readable() { Ok(()) } else { self.rlock_slow(old, limit) }
        })?;
        self.deadlock_owner.set_reader(acquisition);
        Ok(())
    }

    /// Does the same as [`GoRwMutex::try_rlock_until`], with the deadline `timeout` from now. Waits without end if the
    /// clock cannot express that deadline.
    #[cfg(not(sudog_loom))]
    #[cfg_attr(debug_assertions, track_caller)]
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
        self.deadlock_owner.end_read();
        self.leave();
    }

    /// Takes the caller out of the count of readers.
    #[inline]
    pub(super) fn leave(&self) {
        let old = self.state.end_read(Release);
        if old.has_writer() || !old.has_readers() {
            self.runlock_slow(old);
        }
    }

    /// Returns the number of readers that have the lock, or wait for a writer, at this moment. A writer that waits for
    /// another writer may be counted, too. For tests and diagnostics.
    #[must_use]
    pub fn readers(&self) -> u32 {
        self.state.load(Relaxed).readers() as u32
    }

    /// Returns whether a writer has the lock, or waits for readers to leave, at this moment. For tests and diagnostics.
    #[must_use]
    pub fn has_writer(&self) -> bool {
        self.state.load(Relaxed).has_writer()
    }
}

impl<W: UnguardedLock, S: Semaphore> GoRwMutex<W, S> {
    /// Locks for writing, waiting for other writers and for the readers that came before. Go: `Lock`.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn lock(&self) {
        self.write();
    }

    /// Locks for writing if there is no reader and no writer. Go: `TryLock`.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
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
    #[cfg_attr(debug_assertions, track_caller)]
    #[must_use]
    pub fn try_lock_until(&self, deadline: Instant) -> bool {
        self.lock_limited(&WaitLimit::until(deadline)).is_ok()
    }

    /// Locks for writing unless `limit` comes first: see [`IntoLimit`].
    ///
    /// # Errors
    ///
    /// The error says which limit came first.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn lock_limited<L: IntoLimit>(&self, limit: L) -> Result<(), L::Error> {
        self.write_limited(limit).map(|_| ())
    }

    /// Does the same as [`GoRwMutex::try_lock_until`], with the deadline `timeout` from now. Waits without end if the
    /// clock cannot express that deadline.
    #[cfg(not(sudog_loom))]
    #[cfg_attr(debug_assertions, track_caller)]
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
        unsafe { self.end_write((), Then::Leave) };
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
        unsafe { self.end_write((), Then::Read) };
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
// - The head of `state.rs` argues the orderings.
unsafe impl<W: RawLock, S: Semaphore> RawRwLock for GoRwMutex<W, S> {
    type SharedGuard = ();
    type ExclusiveGuard = W::Guard;

    const DEADLINES: bool = W::DEADLINES && S::DEADLINES;

    fn new() -> Self {
        Self {
            state: AtomicState::new(),
            writers: W::new(),
            drained: S::new(0),
            sleepers: [AtomicU32::new(0), AtomicU32::new(0)],
            admitted: [S::new(0), S::new(0)],
            entering: AtomicU32::new(0),
            deadlock_owner: DeadlockOwner::NONE,
        }
    }

    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    fn rlock(&self) {
        Self::rlock(self);
    }

    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    fn try_rlock(&self) -> Option<()> {
        Self::try_rlock(self).then_some(())
    }

    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    fn try_rlock_until(&self, deadline: Instant) -> Option<()> {
        Self::try_rlock_until(self, deadline).then_some(())
    }

    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    fn rlock_limited(&self, limit: &WaitLimit<'_>) -> Result<(), WaitError> {
        Self::rlock_limited(self, limit)
    }

    #[inline]
    unsafe fn runlock(&self, (): ()) {
        Self::runlock(self);
    }

    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    fn lock(&self) -> W::Guard {
        self.write()
    }

    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    fn try_lock(&self) -> Option<W::Guard> {
        self.try_write()
    }

    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    fn try_lock_until(&self, deadline: Instant) -> Option<W::Guard> {
        self.write_limited(&WaitLimit::until(deadline)).ok()
    }

    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    fn lock_limited(&self, limit: &WaitLimit<'_>) -> Result<W::Guard, WaitError> {
        self.write_limited(limit)
    }

    #[inline]
    unsafe fn unlock(&self, guard: W::Guard) {
        // SAFETY: by the contract of this method, `guard` came from an acquisition of this lock for writing that has
        // not been released.
        unsafe { self.end_write(guard, Then::Leave) };
    }

    #[inline]
    unsafe fn downgrade(&self, guard: W::Guard) {
        // SAFETY: by the contract of this method, `guard` came from an acquisition of this lock for writing that has
        // not been released.
        unsafe { self.end_write(guard, Then::Read) };
    }

    #[inline]
    fn is_locked(&self) -> bool {
        !self.state.load(Relaxed).is_free()
    }

    #[inline]
    fn is_locked_exclusive(&self) -> bool {
        self.state.load(Relaxed).is_written()
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
            .field("writer", &state.has_writer())
            .field("readers", &state.readers())
            .finish_non_exhaustive()
    }
}
