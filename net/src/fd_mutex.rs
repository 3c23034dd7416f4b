//! `FdMutex`: decides which calls may use a descriptor, and when the descriptor is closed. Go's `fdMutex`.
//!
//! `state.rs` has the protocol: the state word, its steps, and their orderings.
//!
//! Source: Go's `internal/poll/fd_mutex.go` (1.27). Different: this mutex owns the value that it guards, and waits may
//! have a limit.

mod state;

use std::cell::UnsafeCell;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Deref;

use sudog_runtime::const_unless_model;
use sudog_runtime::sema::{
    Order, WaitError, WaitLimit, Wake, semacquire, semacquire_limited, semrelease, semrelease_many,
};
use sudog_runtime::shim::{AtomicU32, Ordering};

use state::{AtomicState, State};

/// A side of a descriptor: reading or writing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The incoming side: reading, accepting.
    Read,
    /// The outgoing side: writing, connecting.
    Write,
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
    state: AtomicState,
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
                state: AtomicState::new(),
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

    /// Uses the value without locking a side: to set an option, for instance. Returns None if the mutex is closed.
    ///
    /// # Panics
    ///
    /// If there are 2^20 - 1 users already.
    pub fn refer(&self) -> Option<FdRef<'_, T>> {
        self.state.step(|state| (!state.is_closed()).then(|| state.refer())).ok()?;
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
            let tried = self.state.step(|state| {
                if state.is_closed() {
                    None
                } else if state.is_locked(side) {
                    Some(state.add_waiter(side))
                } else {
                    Some(state.lock(side))
                }
            });
            let before = tried.map_err(|_| LockError::Closed)?;
            if !before.is_locked(side) {
                return Ok(FdGuard { value: ManuallyDrop::new(FdRef { mutex: self }), side });
            }
            self.sleep(side, limit).map_err(LockError::GaveUp)?;
        }
    }

    /// Sleeps until an unlock or a close gives a permit. The caller has counted itself as a waiter.
    #[cold]
    fn sleep(&self, side: Side, limit: &WaitLimit<'_>) -> Result<(), WaitError> {
        let result = semacquire_limited(self.permits(side), Order::Fifo, limit);
        if result.is_err() {
            let left = self.state.step(|state| state.has_waiters(side).then(|| state.remove_waiter(side)));
            if left.is_err() {
                // An unlock or a close has removed this waiter from the count: take the permit, which is there or on
                // its way.
                semacquire(self.permits(side));
            }
        }
        result
    }

    fn unlock(&self, side: Side) {
        let before = self.state.step(|state| Some(state.unlock(side))).unwrap_or_else(|state| state);
        if before.has_waiters(side) {
            semrelease(self.permits(side), Wake::Normal);
        }
        self.drop_if_last(before);
    }

    fn unrefer(&self) {
        let before = self.state.unrefer();
        self.drop_if_last(before);
    }

    /// Drops the value if the caller's reference was the last one. `before` is the state before that reference was
    /// removed.
    fn drop_if_last(&self, before: State) {
        if before.has_last_reference() {
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
        let Ok(before) = self.state.step(|state| (!state.is_closed()).then(|| state.close())) else {
            return false;
        };
        // Keep a reference until the end of this function: its drop may drop the value.
        let _closing = FdRef { mutex: self };
        for side in [Side::Read, Side::Write] {
            semrelease_many(self.permits(side), before.waiters(side));
        }
        true
    }

    /// Returns whether the mutex has been closed.
    pub fn is_closed(&self) -> bool {
        self.state.load(Ordering::Acquire).is_closed()
    }

    /// Returns the number of callers that wait for a side.
    pub fn waiters(&self, side: Side) -> usize {
        self.state.load(Ordering::Relaxed).waiters(side) as usize
    }
}

impl<T> Drop for FdMutex<T> {
    fn drop(&mut self) {
        // A leaked reference keeps a close from dropping the value: drop the value here then, too.
        if !self.state.load(Ordering::Relaxed).has_dropped_value() {
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
            .field("closed", &state.is_closed())
            .field("references", &state.references())
            .field("read_locked", &state.is_locked(Side::Read))
            .field("write_locked", &state.is_locked(Side::Write))
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
    /// The guard's reference to the value. The unlock removes this reference from the count together with the lock.
    value: ManuallyDrop<FdRef<'a, T>>,
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
        &self.value
    }
}

impl<T> FdGuard<'_, T> {
    /// Returns whether the mutex has been closed since this guard locked its side.
    pub fn is_closed(&self) -> bool {
        self.value.mutex.is_closed()
    }
}

impl<T> Drop for FdRef<'_, T> {
    fn drop(&mut self) {
        self.mutex.unrefer();
    }
}

impl<T> Drop for FdGuard<'_, T> {
    fn drop(&mut self) {
        self.value.mutex.unlock(self.side);
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
