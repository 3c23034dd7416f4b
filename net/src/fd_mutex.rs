//! `FdMutex`: decides which calls may use a descriptor, and when the descriptor is closed. Go's `fdMutex`.
//!
//! ```text
//!  bit  0        1        2        3 .. 22        23 .. 42            43 .. 62
//!      ┌────────┬────────┬────────┬──────────────┬───────────────────┬───────────────────┐
//!      │ closed │ read   │ write  │ references   │ waiters for the   │ waiters for the   │
//!      │        │ locked │ locked │              │ read side         │ write side        │
//!      └────────┴────────┴────────┴──────────────┴───────────────────┴───────────────────┘
//! ```
//!
//! | step | if | state | then |
//! |---|---|---|---|
//! | refer | not closed | references + 1 | |
//! | lock a side | not closed, the side is free | locked, references + 1 | |
//! | | not closed, the side is locked | waiters of the side + 1 | sleeps for a permit of the side, and tries again |
//! | unlock a side | | not locked, references - 1, and if there are waiters: waiters - 1 | gives a permit, if there was a waiter; then as *unrefer* |
//! | unrefer | | references - 1 | drops the value, if the mutex is closed and this was the last reference |
//! | give up | waiters of the side > 0 | waiters - 1 | |
//! | | no waiter is counted | | takes the permit that is due, so that no permit is left over |
//! | close | not closed | closed, references + 1, no waiters | a permit for each waiter that was counted; then *unrefer* |
//!
//! For each side, the number of sleeping callers equals the number of counted waiters plus the number of permits that
//! are given, or are about to be given. So a waiter that gives up either finds a counted waiter, and reduces the count,
//! or takes a permit that has been given or will be given. (A count does not say which waiters it counts. That does not
//! matter, because all waiters behave alike.)
//!
//! Orderings: each step is a single compare-exchange, AcqRel. So the next owner of a side sees all that the previous
//! owner did, and the drop of the value happens after all uses of the value. The step that reduces the count of waiters
//! comes first; then the permit is given.
//!
//! Source: Go's `internal/poll/fd_mutex.go` (1.27). Different: this mutex owns the value that it guards, and waits may
//! have a limit.

use std::cell::UnsafeCell;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Deref;

use sudog_runtime::const_unless_model;
use sudog_runtime::sema::{
    Order, WaitError, WaitLimit, Wake, semacquire, semacquire_limited, semrelease, semrelease_many,
};
use sudog_runtime::shim::{AtomicU32, AtomicU64, Ordering};

const CLOSED: u64 = 1;
const REF: u64 = 1 << 3;
const REF_MASK: u64 = COUNT_MASK * REF;
/// The mask of a count: each count has 20 bits.
const COUNT_MASK: u64 = (1 << 20) - 1;

/// A side of a descriptor: reading or writing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The incoming side: reading, accepting.
    Read,
    /// The outgoing side: writing, connecting.
    Write,
}

impl Side {
    const fn locked(self) -> u64 {
        match self {
            Self::Read => 1 << 1,
            Self::Write => 1 << 2,
        }
    }

    /// The value that a waiter of this side adds to the state.
    const fn waiter(self) -> u64 {
        match self {
            Self::Read => 1 << 23,
            Self::Write => 1 << 43,
        }
    }

    const fn waiters(self) -> u64 {
        COUNT_MASK * self.waiter()
    }
}

/// The reason why a side could not be locked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum LockError {
    /// The mutex is closed, or was closed during the wait.
    Closed,
    /// The limit of the wait came first.
    GaveUp(WaitError),
}

/// Guards a value that has two sides, each for one user at a time. Any user may close the mutex while others use the
/// value. Go's `poll.fdMutex`.
///
/// Once the mutex is closed, the last caller that uses the value drops the value. A mutex that is never closed drops
/// the value together with itself.
///
/// # Examples
///
/// ```
/// use sudog::net::Side;
/// use sudog::net::low_level::{FdMutex, LockError};
///
/// let descriptor = FdMutex::new("a file".to_owned());
/// let reader = descriptor.lock(Side::Read).unwrap();
/// let writer = descriptor.lock(Side::Write).unwrap(); // the other side
/// assert!(descriptor.close());
/// assert!(!descriptor.close(), "it is closed already");
/// assert_eq!(*reader, "a file"); // until its users have gone
/// drop((reader, writer));
/// assert_eq!(descriptor.lock(Side::Read).unwrap_err(), LockError::Closed);
/// ```
pub struct FdMutex<T> {
    state: AtomicU64,
    read_permits: AtomicU32,
    write_permits: AtomicU32,
    value: UnsafeCell<ManuallyDrop<T>>,
}

// SAFETY: users have shared references to the value, on any thread (`T: Sync`). The last user, on any thread, drops the
// value (`T: Send`).
unsafe impl<T: Send + Sync> Sync for FdMutex<T> {}
// SAFETY: the mutex owns the value.
unsafe impl<T: Send> Send for FdMutex<T> {}

impl<T> FdMutex<T> {
    const_unless_model! {
        /// Creates a mutex that is open and unused.
        pub const fn new(value: T) -> Self {
            Self {
                state: AtomicU64::new(0),
                read_permits: AtomicU32::new(0),
                write_permits: AtomicU32::new(0),
                value: UnsafeCell::new(ManuallyDrop::new(value)),
            }
        }
    }

    fn permits(&self, side: Side) -> &AtomicU32 {
        match side {
            Side::Read => &self.read_permits,
            Side::Write => &self.write_permits,
        }
    }

    /// Applies `change` to the state until the compare-exchange succeeds, and returns the previous state. If `change`
    /// returns `None`, leaves the state unchanged and returns it as an error.
    fn step(&self, change: impl FnMut(u64) -> Option<u64>) -> Result<u64, u64> {
        self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, change)
    }

    /// Uses the value without locking a side: to set an option, for instance. Returns None if the mutex is closed.
    ///
    /// # Panics
    ///
    /// If there are 2^20 - 1 users already.
    pub fn refer(&self) -> Option<FdRef<'_, T>> {
        self.step(|state| (state & CLOSED == 0).then(|| one_more(state))).ok()?;
        Some(FdRef { mutex: self })
    }

    /// Locks a side, and waits for the caller's turn: first come, first served, except that a newcomer may lock a free
    /// side.
    ///
    /// # Errors
    ///
    /// [`LockError::Closed`].
    ///
    /// # Panics
    ///
    /// If there are 2^20 - 1 users, or waiters for the side, already.
    pub fn lock(&self, side: Side) -> Result<FdGuard<'_, T>, LockError> {
        self.lock_limited(side, &WaitLimit::default())
    }

    /// Locks a side as [`lock`](FdMutex::lock) does, but gives up at a limit.
    ///
    /// # Errors
    ///
    /// [`LockError`].
    ///
    /// # Panics
    ///
    /// The same as those of [`lock`](FdMutex::lock).
    pub fn lock_limited(&self, side: Side, limit: &WaitLimit<'_>) -> Result<FdGuard<'_, T>, LockError> {
        loop {
            let before = self
                .step(|state| {
                    if state & CLOSED != 0 {
                        None
                    } else if state & side.locked() == 0 {
                        Some(one_more(state) | side.locked())
                    } else {
                        assert!(state & side.waiters() != side.waiters(), "{OVERFLOW}");
                        Some(state + side.waiter())
                    }
                })
                .map_err(|_| LockError::Closed)?;
            if before & side.locked() == 0 {
                return Ok(FdGuard { mutex: self, side });
            }
            self.sleep(side, limit).map_err(LockError::GaveUp)?;
        }
    }

    /// Sleeps until an unlock or a close gives a permit. The caller has counted itself as a waiter.
    #[cold]
    fn sleep(&self, side: Side, limit: &WaitLimit<'_>) -> Result<(), WaitError> {
        let result = semacquire_limited(self.permits(side), Order::Fifo, limit);
        if result.is_err() {
            let counted = |state: u64| (state & side.waiters() != 0).then(|| state - side.waiter());
            if self.step(counted).is_err() {
                // An unlock or a close has removed this waiter from the count: take the permit, which is there or on
                // its way.
                semacquire(self.permits(side));
            }
        }
        result
    }

    fn unlock(&self, side: Side) {
        let before = self.step(|state| {
            let waiter = if state & side.waiters() == 0 { 0 } else { side.waiter() };
            Some(state - side.locked() - REF - waiter)
        });
        let before = before.unwrap_or_else(|state| state);
        if before & side.waiters() != 0 {
            semrelease(self.permits(side), Wake::Normal);
        }
        self.drop_if_last(before);
    }

    fn unrefer(&self) {
        let before = self.state.fetch_sub(REF, Ordering::AcqRel);
        self.drop_if_last(before);
    }

    /// Drops the value if the caller's reference was the last one. `before` is the state before that reference was
    /// removed.
    fn drop_if_last(&self, before: u64) {
        if before & (CLOSED | REF_MASK) == CLOSED | REF {
            // SAFETY: the mutex is closed, so no caller obtains a new reference to the value, and the removed reference
            // was the last. After the close only one step leads from one reference to none, so the value is dropped
            // once.
            unsafe { ManuallyDrop::drop(&mut *self.value.get()) };
        }
    }

    /// Closes the mutex. From now on no caller can refer to the value or lock a side, and waiters fail with
    /// [`LockError::Closed`]. Callers that use the value continue. Returns false if the mutex was closed already.
    ///
    /// # Panics
    ///
    /// If there are 2^20 - 1 users already.
    pub fn close(&self) -> bool {
        let waiters = Side::Read.waiters() | Side::Write.waiters();
        let Ok(before) = self.step(|state| (state & CLOSED == 0).then(|| (one_more(state) | CLOSED) & !waiters)) else {
            return false;
        };
        // Keep a reference until the end of this function: its drop may drop the value.
        let _closing = FdRef { mutex: self };
        for side in [Side::Read, Side::Write] {
            let n = (before & side.waiters()) / side.waiter();
            semrelease_many(self.permits(side), n as u32);
        }
        true
    }

    /// Returns whether the mutex has been closed.
    pub fn is_closed(&self) -> bool {
        self.state.load(Ordering::Acquire) & CLOSED != 0
    }

    /// Returns the number of callers that wait for a side.
    pub fn waiters(&self, side: Side) -> usize {
        ((self.state.load(Ordering::Relaxed) & side.waiters()) / side.waiter()) as usize
    }
}

const OVERFLOW: &str = "too many concurrent operations on a single file or socket (max 1048575)";

/// Returns the state with one more reference.
fn one_more(state: u64) -> u64 {
    assert!(state & REF_MASK != REF_MASK, "{OVERFLOW}");
    state + REF
}

impl<T> Drop for FdMutex<T> {
    fn drop(&mut self) {
        // A leaked reference keeps a close from dropping the value: drop the value here then, too.
        let state = self.state.load(Ordering::Relaxed);
        if state & CLOSED == 0 || state & REF_MASK != 0 {
            // SAFETY: the value has not been dropped yet, because the mutex was not closed or still counts references.
            // Nothing refers to the value: references borrow this mutex, which is being dropped.
            unsafe { ManuallyDrop::drop(&mut *self.value.get()) };
        }
    }
}

impl<T> fmt::Debug for FdMutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.load(Ordering::Relaxed);
        f.debug_struct("FdMutex")
            .field("closed", &(state & CLOSED != 0))
            .field("references", &((state & REF_MASK) / REF))
            .field("read_locked", &(state & Side::Read.locked() != 0))
            .field("write_locked", &(state & Side::Write.locked() != 0))
            .field("permits", &[&self.read_permits, &self.write_permits].map(|permits| permits.load(Ordering::Relaxed)))
            .finish_non_exhaustive()
    }
}

/// A reference to the value of an [`FdMutex`], which keeps the value from being dropped.
#[must_use = "the value may be dropped when this has been"]
pub struct FdRef<'a, T> {
    mutex: &'a FdMutex<T>,
}

/// A reference to the value of an [`FdMutex`] that also keeps a side of the mutex locked.
#[must_use = "the side is unlocked when this is dropped"]
pub struct FdGuard<'a, T> {
    mutex: &'a FdMutex<T>,
    side: Side,
}

impl<T> Deref for FdRef<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the value is not dropped while this reference is counted, and all references to the value are shared.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T> Deref for FdGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the value is not dropped while the reference of this guard is counted, and all references to the
        // value are shared.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T> FdGuard<'_, T> {
    /// Returns whether the mutex has been closed since this guard locked its side.
    pub fn is_closed(&self) -> bool {
        self.mutex.is_closed()
    }
}

impl<T> Drop for FdRef<'_, T> {
    fn drop(&mut self) {
        self.mutex.unrefer();
    }
}

impl<T> Drop for FdGuard<'_, T> {
    fn drop(&mut self) {
        self.mutex.unlock(self.side);
    }
}

impl<T: fmt::Debug> fmt::Debug for FdRef<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: fmt::Debug> fmt::Debug for FdGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
