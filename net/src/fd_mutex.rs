//! Which calls may use a descriptor, and when it is closed: Go's `fdMutex`.
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
//! | unlock a side | | not locked, references - 1, and if there are waiters: waiters - 1 | a permit, if there was a waiter; then as *unrefer* |
//! | unrefer | | references - 1 | if it is closed, and this was the last: drops what is in it |
//! | give up | waiters of the side > 0 | waiters - 1 | |
//! | | no waiter is counted | | takes the permit that is due, so that none is left over |
//! | close | not closed | closed, references + 1, no waiters | a permit for each that was counted; then *unrefer* |
//!
//! For each side, the waiters that are counted and the permits that are given, or are about to be, are together as many
//! as the callers that sleep. So a waiter that gives up finds itself counted, or a permit on its way. (Which waiter a
//! count stands for is not known, and does not matter: all do the same.)
//!
//! Orderings: each step is one compare-exchange, AcqRel. So what an owner of a side did, the next owner sees, and what
//! all that referred to the value did happens before it is dropped. A permit is given after the step that counted its
//! waiter off.
//!
//! Source: Go's `internal/poll/fd_mutex.go` (1.27). Different: it owns what it guards; waits may have a limit.

use std::cell::UnsafeCell;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Deref;

use sudog_runtime::const_unless_model;
use sudog_runtime::goroutine::MustReturn;
use sudog_runtime::sema::{
    Order, WaitError, WaitLimit, Wake, semacquire, semacquire_limited, semrelease, semrelease_many,
};
use sudog_runtime::shim::{AtomicU32, AtomicU64, Ordering};

const CLOSED: u64 = 1;
const REF: u64 = 1 << 3;
const REF_MASK: u64 = COUNT_MASK * REF;
/// Of 20 bits.
const COUNT_MASK: u64 = (1 << 20) - 1;

/// Which of the two sides of a descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// What comes in: reading, accepting.
    Read,
    /// What goes out: writing, connecting.
    Write,
}

impl Side {
    const fn locked(self) -> u64 {
        match self {
            Self::Read => 1 << 1,
            Self::Write => 1 << 2,
        }
    }

    /// One waiter.
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

/// Why a side could not be locked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum LockError {
    /// It is closed, or was closed meanwhile.
    Closed,
    /// The limit of the wait came first.
    GaveUp(WaitError),
}

/// Guards a value with two sides, each for one user at a time, that any user may close while others use it. Go's
/// `poll.fdMutex`.
///
/// The value is dropped when it has been closed and no caller uses it any more: by the last of them, or with the mutex.
///
/// # Examples
///
/// ```
/// use sudog::net::{FdMutex, LockError, Side};
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

// SAFETY: users have shared references to the value, on any thread (`T: Sync`), and the last of them, on any thread,
// drops it (`T: Send`).
unsafe impl<T: Send + Sync> Sync for FdMutex<T> {}
// SAFETY: it owns the value.
unsafe impl<T: Send> Send for FdMutex<T> {}

impl<T> FdMutex<T> {
    const_unless_model! {
        /// Open, and in use by no caller.
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

    /// Changes the state until that succeeds: what it was. `None` from `change`: it stays as it is.
    fn step(&self, change: impl FnMut(u64) -> Option<u64>) -> Result<u64, u64> {
        self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, change)
    }

    /// Uses the value on neither side: to set an option, for instance. None if it is closed.
    ///
    /// # Panics
    ///
    /// If there are 2^20 - 1 users already.
    pub fn refer(&self) -> Option<FdRef<'_, T>> {
        self.step(|state| (state & CLOSED == 0).then(|| one_more(state))).ok()?;
        Some(FdRef { mutex: self })
    }

    /// Locks a side: waits for its turn, first come, first served but for newcomers that find the side free.
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

    /// [`lock`](FdMutex::lock) that gives up at a limit.
    ///
    /// # Errors
    ///
    /// [`LockError`].
    ///
    /// # Panics
    ///
    /// As [`lock`](FdMutex::lock).
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

    /// A waiter that has been counted sleeps.
    #[cold]
    fn sleep(&self, side: Side, limit: &WaitLimit<'_>) -> Result<(), WaitError> {
        /// A waiter that gives up, or is unwound.
        struct GiveUp<'a, T>(&'a FdMutex<T>, Side);
        impl<T> Drop for GiveUp<'_, T> {
            fn drop(&mut self) {
                let Self(mutex, side) = *self;
                let counted = |state: u64| (state & side.waiters() != 0).then(|| state - side.waiter());
                if mutex.step(counted).is_err() {
                    // Counted off by another: its permit is there, or on its way.
                    // SAFETY: the guard is a local of this call, so the calling goroutine drops it as the call ends.
                    let _must_return = unsafe { MustReturn::begin() };
                    semacquire(mutex.permits(side));
                }
            }
        }
        let give_up = GiveUp(self, side);
        semacquire_limited(self.permits(side), Order::Fifo, limit)?;
        std::mem::forget(give_up);
        Ok(())
    }

    fn unlock(&self, side: Side) {
        let before = self.step(|state| {
            let waiter = if state & side.waiters() == 0 { 0 } else { side.waiter() };
            Some(state - side.locked() - REF - waiter)
        });
        let before = before.unwrap_or_else(|state| state);
        if before & side.waiters() != 0 {
            // A goroutine is not unwound here: the rest of the unlock would be left out.
            // SAFETY: the guard is a local of this call, so the calling goroutine drops it as the call ends.
            let _must_return = unsafe { MustReturn::begin() };
            semrelease(self.permits(side), Wake::Normal);
        }
        self.drop_if_last(before);
    }

    fn unrefer(&self) {
        let before = self.state.fetch_sub(REF, Ordering::AcqRel);
        self.drop_if_last(before);
    }

    /// `before`: the state before the caller's reference went.
    fn drop_if_last(&self, before: u64) {
        if before & (CLOSED | REF_MASK) == CLOSED | REF {
            // SAFETY: closed, so nothing refers to it from now on; and this was the last that did. Only one step leads
            // from one reference to none once it is closed.
            unsafe { ManuallyDrop::drop(&mut *self.value.get()) };
        }
    }

    /// Closes it: no caller can refer to it or lock it from now on, and waiters are told so. Those that use it go on.
    /// False if it was closed already.
    ///
    /// # Panics
    ///
    /// If there are 2^20 - 1 users already.
    pub fn close(&self) -> bool {
        let waiters = Side::Read.waiters() | Side::Write.waiters();
        let Ok(before) = self.step(|state| (state & CLOSED == 0).then(|| (one_more(state) | CLOSED) & !waiters)) else {
            return false;
        };
        // Dropped at the end: the value may go then.
        let _closing = FdRef { mutex: self };
        // SAFETY: the guard is a local of this call, so the calling goroutine drops it as the call ends.
        let _must_return = unsafe { MustReturn::begin() };
        for side in [Side::Read, Side::Write] {
            let n = (before & side.waiters()) / side.waiter();
            semrelease_many(self.permits(side), n as u32);
        }
        true
    }

    /// Whether it has been closed.
    pub fn is_closed(&self) -> bool {
        self.state.load(Ordering::Acquire) & CLOSED != 0
    }

    /// How many callers wait for a side.
    pub fn waiters(&self, side: Side) -> usize {
        ((self.state.load(Ordering::Relaxed) & side.waiters()) / side.waiter()) as usize
    }
}

const OVERFLOW: &str = "too many concurrent operations on a single file or socket (max 1048575)";

/// One reference more.
fn one_more(state: u64) -> u64 {
    assert!(state & REF_MASK != REF_MASK, "{OVERFLOW}");
    state + REF
}

impl<T> Drop for FdMutex<T> {
    fn drop(&mut self) {
        // A reference that was leaked leaves a closed value that was not dropped.
        let state = self.state.load(Ordering::Relaxed);
        if state & CLOSED == 0 || state & REF_MASK != 0 {
            // SAFETY: not dropped yet, as it was not closed, or had references; and nothing refers to it: references
            // borrow this mutex.
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

/// A use of the value of an [`FdMutex`]: it is not dropped meanwhile.
#[must_use = "the value may be dropped when this has been"]
pub struct FdRef<'a, T> {
    mutex: &'a FdMutex<T>,
}

/// A use of one side of the value of an [`FdMutex`], which is locked meanwhile.
#[must_use = "the side is unlocked when this is dropped"]
pub struct FdGuard<'a, T> {
    mutex: &'a FdMutex<T>,
    side: Side,
}

impl<T> Deref for FdRef<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: not dropped while this reference is counted; and there are shared references only.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T> Deref for FdGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: as in `FdRef`.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T> FdGuard<'_, T> {
    /// Whether the descriptor has been closed meanwhile.
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
