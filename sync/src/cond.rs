//! Go's condition variable: a list of waiters, and the mutex that they unlock while they wait.
//!
//! | `wait` | `signal`, `broadcast` |
//! |---|---|
//! | 1. takes a ticket | |
//! | 2. unlocks the mutex | |
//! | 3. waits on the ticket | notifies the oldest ticket, or all of them |
//! | 4. locks the mutex, even if 2 panics | |
//!
//! The list, and the protocol between steps 1 and 3, are in `sudog_runtime::sema::NotifyList`.

use std::fmt;
use std::mem::{self, ManuallyDrop};
use std::ptr;
use std::sync::Arc;

use sudog_runtime::sema::{IntoLimit, NotifyList, WaitError, WaitLimit};

use crate::Locker;
use crate::lock_api::{
    ArcMutexGuard, ArcRwLockReadGuard, ArcRwLockWriteGuard, Mutex, MutexGuard, RawMutex, RawRwLock, RwLock,
    RwLockReadGuard, RwLockWriteGuard,
};

/// A condition variable: the owner of a mutex waits until another thread or goroutine signals that a condition may
/// hold.
///
/// A `Cond` works with the guards of [`Mutex`](crate::Mutex) and [`RwMutex`](crate::RwMutex), and of each other
/// `Mutex` and `RwLock` of `lock_api` ([`CondGuard`]), unless the guard is mapped or upgradable; and with bare locks
/// ([`Cond::wait_locker`]). Callers that wait at the same time should use the same lock; `Cond` does not check this.
/// `wait` cannot return without a signal or a broadcast. A stackless goroutine that calls `wait` has a stack until
/// `wait` returns.
///
/// # Examples
///
/// ```
/// use sudog::sync::{Cond, Mutex};
///
/// static READY: Mutex<bool> = Mutex::new(false);
/// static CHANGED: Cond = Cond::new();
///
/// let waiter = std::thread::spawn(|| {
///     let mut ready = READY.lock();
///     while !*ready {
///         CHANGED.wait(&mut ready);
///     }
/// });
/// *READY.lock() = true;
/// CHANGED.signal();
/// waiter.join().unwrap();
/// ```
#[derive(Default)]
pub struct Cond {
    waiters: NotifyList,
}

impl Cond {
    /// Returns a condition variable without waiters.
    #[must_use]
    pub const fn new() -> Self {
        Self { waiters: NotifyList::new() }
    }

    /// Unlocks the mutex, waits for a [`signal`](Cond::signal) or [`broadcast`](Cond::broadcast), and locks the mutex.
    ///
    /// The condition may be false again by the time that the caller has the mutex, so the caller must check the
    /// condition in a loop.
    ///
    /// # Panics
    ///
    /// Panics if the lock panics: an unlock may call the waker of an async task that waits for the mutex, and that
    /// waker may panic. Before the panic goes on, the mutex is locked again, because the caller keeps a guard. A signal
    /// that has come for this wait by then is used up.
    #[inline]
    pub fn wait<G: CondGuard>(&self, guard: &mut G) {
        let _ = self.wait_limited(guard, &WaitLimit::default());
    }

    /// Waits as [`Cond::wait`] does, until `limit` ends the wait: see [`IntoLimit`]. The mutex is locked in either case,
    /// however long that takes.
    ///
    /// # Errors
    ///
    /// The error says which limit came first. After an error, this wait has used up no signal: each signal was for
    /// another waiter.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use sudog::sync::{Cond, Mutex};
    /// use sudog::{WaitError, context};
    ///
    /// let (mutex, cond) = (Mutex::new(0), Cond::new());
    /// let mut guard = mutex.lock();
    /// assert_eq!(cond.wait_limited(&mut guard, Duration::from_millis(1)), Err(WaitError::TimedOut));
    /// *guard += 1;
    ///
    /// let (ctx, cancel) = context::with_cancel(&context::background());
    /// cancel.cancel();
    /// assert_eq!(cond.wait_limited(&mut guard, &ctx), Err(context::Error::Canceled));
    /// ```
    #[inline]
    pub fn wait_limited<G: CondGuard, L: IntoLimit>(&self, guard: &mut G, limit: L) -> Result<(), L::Error> {
        limit.limited(|limit| self.wait_up_to(guard, limit))
    }

    #[inline]
    fn wait_up_to<G: CondGuard>(&self, guard: &mut G, limit: &WaitLimit<'_>) -> Result<(), WaitError> {
        self.waiters.with_ticket(|ticket| {
            let mut relock = Relock { lock: guard.lock(), place: guard, over: false };
            // The unlock may panic: the waker of a task, or a user's `Locker`, is user code.
            // SAFETY: `relock.place` is a reference to a guard, so it is valid for reads. The guard in the place is not
            // used again: `relock` writes another guard into the place, or aborts the process.
            drop(unsafe { ptr::read(relock.place) });
            sudog_runtime::note_wait_at("sync.Cond.Wait", self);
            let over = ticket.wait_limited(limit);
            relock.now();
            over
        })
    }

    /// Waits as [`Cond::wait`] does, with a bare lock: unlocks `locker`, waits, and locks `locker` again. The caller
    /// must have locked `locker`.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    /// use sudog::sync::{Cond, GoMutex};
    ///
    /// static MU: GoMutex = GoMutex::new();
    /// static READY: AtomicBool = AtomicBool::new(false);
    /// static CHANGED: Cond = Cond::new();
    ///
    /// let waiter = std::thread::spawn(|| {
    ///     MU.lock();
    ///     while !READY.load(Relaxed) {
    ///         CHANGED.wait_locker(&MU);
    ///     }
    ///     MU.unlock();
    /// });
    /// MU.lock();
    /// READY.store(true, Relaxed);
    /// MU.unlock();
    /// CHANGED.signal();
    /// waiter.join().unwrap();
    /// ```
    #[inline]
    pub fn wait_locker(&self, locker: &impl Locker) {
        let _ = self.wait_locker_limited(locker, &WaitLimit::default());
    }

    /// Waits as [`Cond::wait_limited`] does, with a bare lock.
    ///
    /// # Errors
    ///
    /// The same as those of [`Cond::wait_limited`].
    #[inline]
    pub fn wait_locker_limited<L: IntoLimit>(&self, locker: &impl Locker, limit: L) -> Result<(), L::Error> {
        // `wait_limited` drops the guard `Locked`, which unlocks `locker`, and puts a new guard into its place. The new
        // guard must not be dropped, because the caller itself unlocks `locker`.
        self.wait_limited(&mut *ManuallyDrop::new(Locked(locker)), limit)
    }

    /// Wakes the waiter that has waited longest, if any waits. The caller need not hold the mutex during this call, but
    /// must have held the mutex while or after the caller changed the condition.
    ///
    /// A `wait` that begins after the signal cannot take that signal.
    ///
    /// A goroutine that has run for long gives way here, after the signal.
    #[inline]
    pub fn signal(&self) {
        self.waiters.notify_one();
    }

    /// Wakes all waiters. In all other respects, does the same as [`Cond::signal`].
    ///
    /// # Examples
    ///
    /// ```
    /// use sudog::sync::{Cond, Mutex};
    ///
    /// let (open, changed) = (Mutex::new(false), Cond::new());
    /// std::thread::scope(|s| {
    ///     for _ in 0..3 {
    ///         s.spawn(|| {
    ///             let mut open = open.lock();
    ///             while !*open {
    ///                 changed.wait(&mut open);
    ///             }
    ///         });
    ///     }
    ///     *open.lock() = true;
    ///     changed.broadcast();
    /// });
    /// ```
    #[inline]
    pub fn broadcast(&self) {
        self.waiters.notify_all();
    }

    /// Returns the number of waiters at this moment. For tests and diagnostics.
    #[must_use]
    pub fn waiters(&self) -> usize {
        self.waiters.waiters()
    }
}

/// A guard that a [`Cond`] can drop before its owner waits, and replace by a new guard of the same lock after the wait.
///
/// # Examples
///
/// ```
/// use sudog::sync::{Cond, RwMutex};
///
/// static LEVEL: RwMutex<u32> = RwMutex::new(0);
/// static RISEN: Cond = Cond::new();
///
/// let reader = std::thread::spawn(|| {
///     let mut level = LEVEL.read();
///     while *level < 1 {
///         RISEN.wait(&mut level);
///     }
/// });
/// *LEVEL.write() = 1;
/// RISEN.broadcast();
/// reader.join().unwrap();
/// ```
pub trait CondGuard: Sized {
    /// A reference or an `Arc` to the lock of the guard.
    type Lock: Clone;

    /// Returns the lock that the guard keeps locked.
    fn lock(&self) -> Self::Lock;

    /// Locks `lock`, and returns the guard.
    fn relock(lock: Self::Lock) -> Self;
}

impl<'a, R: RawMutex, T: ?Sized> CondGuard for MutexGuard<'a, R, T> {
    type Lock = &'a Mutex<R, T>;

    #[inline]
    fn lock(&self) -> Self::Lock {
        MutexGuard::mutex(self)
    }

    #[inline]
    fn relock(lock: Self::Lock) -> Self {
        lock.lock()
    }
}

impl<'a, R: RawRwLock, T: ?Sized> CondGuard for RwLockReadGuard<'a, R, T> {
    type Lock = &'a RwLock<R, T>;

    #[inline]
    fn lock(&self) -> Self::Lock {
        RwLockReadGuard::rwlock(self)
    }

    #[inline]
    fn relock(lock: Self::Lock) -> Self {
        lock.read()
    }
}

impl<'a, R: RawRwLock, T: ?Sized> CondGuard for RwLockWriteGuard<'a, R, T> {
    type Lock = &'a RwLock<R, T>;

    #[inline]
    fn lock(&self) -> Self::Lock {
        RwLockWriteGuard::rwlock(self)
    }

    #[inline]
    fn relock(lock: Self::Lock) -> Self {
        lock.write()
    }
}

impl<R: RawMutex, T: ?Sized> CondGuard for ArcMutexGuard<R, T> {
    type Lock = Arc<Mutex<R, T>>;

    #[inline]
    fn lock(&self) -> Self::Lock {
        ArcMutexGuard::mutex(self).clone()
    }

    #[inline]
    fn relock(lock: Self::Lock) -> Self {
        lock.lock_arc()
    }
}

impl<R: RawRwLock, T: ?Sized> CondGuard for ArcRwLockReadGuard<R, T> {
    type Lock = Arc<RwLock<R, T>>;

    #[inline]
    fn lock(&self) -> Self::Lock {
        ArcRwLockReadGuard::rwlock(self).clone()
    }

    #[inline]
    fn relock(lock: Self::Lock) -> Self {
        lock.read_arc()
    }
}

impl<R: RawRwLock, T: ?Sized> CondGuard for ArcRwLockWriteGuard<R, T> {
    type Lock = Arc<RwLock<R, T>>;

    #[inline]
    fn lock(&self) -> Self::Lock {
        ArcRwLockWriteGuard::rwlock(self).clone()
    }

    #[inline]
    fn relock(lock: Self::Lock) -> Self {
        lock.write_arc()
    }
}

/// A bare lock that the caller has locked.
struct Locked<'a, L: Locker>(&'a L);

impl<L: Locker> Drop for Locked<'_, L> {
    #[inline]
    fn drop(&mut self) {
        self.0.unlock();
    }
}

impl<'a, L: Locker> CondGuard for Locked<'a, L> {
    type Lock = &'a L;

    #[inline]
    fn lock(&self) -> Self::Lock {
        self.0
    }

    #[inline]
    fn relock(lock: Self::Lock) -> Self {
        lock.lock();
        Self(lock)
    }
}

/// Locks again, by `now`, and puts the new guard into the place of the old guard. If user code of the lock panics,
/// `drop` does so.
struct Relock<'a, G: CondGuard> {
    lock: G::Lock,
    place: &'a mut G,
    over: bool,
}

impl<G: CondGuard> Relock<'_, G> {
    #[inline]
    fn now(&mut self) {
        // `relock` may panic. Then `drop` tries once more.
        let guard = G::relock(self.lock.clone());
        // SAFETY: `self.place` is a reference, so it is valid for writes. The old guard has been moved out of the
        // place.
        unsafe { ptr::write(self.place, guard) };
        self.over = true;
    }
}

impl<G: CondGuard> Drop for Relock<'_, G> {
    #[inline]
    fn drop(&mut self) {
        /// Aborts the process if the second attempt panics: the caller cannot go on without a guard.
        struct Abort;
        impl Drop for Abort {
            fn drop(&mut self) {
                std::process::abort();
            }
        }
        if !self.over {
            let abort = Abort;
            self.now();
            mem::forget(abort);
        }
    }
}

impl fmt::Debug for Cond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cond").field("waiters", &self.waiters()).finish()
    }
}
