//! Go's condition variable: a list of waiters, and the mutex that they unlock meanwhile.
//!
//! | `wait` | `signal`, `broadcast` |
//! |---|---|
//! | 1. takes a ticket | |
//! | 2. unlocks the mutex | |
//! | 3. waits on the ticket | notifies the oldest ticket, or all of them |
//! | 4. locks the mutex, even if 2 panics | |
//!
//! The list, and what happens between 1 and 3, is `sudog_runtime::sema::NotifyList`.

use std::fmt;
use std::mem::{self, ManuallyDrop};
use std::ptr;
use std::sync::Arc;
use std::time::Instant;

use sudog_runtime::sema::{NotifyList, WaitError, WaitLimit};

use crate::Locker;
use crate::lock_api::{
    ArcMutexGuard, ArcRwLockReadGuard, ArcRwLockWriteGuard, Mutex, MutexGuard, RawMutex, RawRwLock, RwLock,
    RwLockReadGuard, RwLockWriteGuard,
};

/// A condition variable: threads and goroutines wait under a mutex until another one signals that the condition may
/// hold.
///
/// It goes with any guard of [`Mutex`](crate::Mutex) and [`RwMutex`](crate::RwMutex), ours and others' of `lock_api`
/// ([`CondGuard`]), and with bare locks ([`Cond::wait_locker`]). All waiters at a time should use one lock: that is not
/// checked. `wait` cannot return without a signal or a broadcast. A stackless goroutine that waits here has a stack
/// until it returns.
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
    /// A condition variable without waiters.
    #[must_use]
    pub const fn new() -> Self {
        Self { waiters: NotifyList::new() }
    }

    /// Unlocks the mutex, waits for a [`signal`](Cond::signal) or [`broadcast`](Cond::broadcast), and locks the mutex.
    ///
    /// What the caller waits for may be gone again when it has the mutex: so it looks, in a loop.
    ///
    /// # Panics
    ///
    /// As the lock does: the waker of an async task that waits for the mutex may panic as the mutex is unlocked. The mutex
    /// is locked all the same before the panic goes on, by the guard's promise. A signal that came before that is used up.
    #[inline]
    pub fn wait<G: CondGuard>(&self, guard: &mut G) {
        let _ = self.wait_limited(guard, &WaitLimit::default());
    }

    /// [`Cond::wait`] until a deadline at most: says whether a signal came. The mutex is locked in either case.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use sudog::sync::{Cond, Mutex};
    ///
    /// let (mutex, cond) = (Mutex::new(0), Cond::new());
    /// let mut guard = mutex.lock();
    /// assert!(!cond.wait_until(&mut guard, Instant::now() + Duration::from_millis(1)));
    /// *guard += 1;
    /// ```
    #[inline]
    pub fn wait_until<G: CondGuard>(&self, guard: &mut G, deadline: Instant) -> bool {
        self.wait_limited(guard, &WaitLimit::until(deadline)).is_ok()
    }

    /// [`Cond::wait`] until a [`WaitLimit`] at most. The mutex is locked in either case, however long that takes.
    ///
    /// # Errors
    ///
    /// Which limit came first. No signal was for this wait then: the one that came next went to another.
    ///
    /// # Examples
    ///
    /// ```
    /// use sudog::runtime::sema::{Cancel, WaitError, WaitLimit};
    /// use sudog::sync::{Cond, Mutex};
    ///
    /// static STOP: Cancel = Cancel::new();
    /// STOP.cancel();
    ///
    /// let (mutex, cond) = (Mutex::new(0), Cond::new());
    /// let limit = WaitLimit { cancel: Some(&STOP), deadline: None };
    /// assert_eq!(cond.wait_limited(&mut mutex.lock(), &limit), Err(WaitError::Cancelled));
    /// ```
    #[inline]
    pub fn wait_limited<G: CondGuard>(&self, guard: &mut G, limit: &WaitLimit<'_>) -> Result<(), WaitError> {
        self.waiters.with_ticket(|ticket| {
            let mut relock = Relock { lock: guard.lock(), place: guard, over: false };
            // To unlock may call a task's waker, or a `Locker` of the user's, which may panic.
            // SAFETY: `relock` puts another guard into the place, whatever happens.
            drop(unsafe { ptr::read(relock.place) });
            // SAFETY: the pointer is null.
            unsafe { sudog_runtime::note_wait("sync.Cond.Wait", ptr::null()) };
            let over = ticket.wait_limited(limit);
            relock.now();
            over
        })
    }

    /// [`Cond::wait`] for as long as `ctx` is not done. The mutex is locked in either case, however long that takes.
    ///
    /// # Errors
    ///
    /// The context's. No signal was for this wait then.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use sudog::context;
    /// use sudog::sync::{Cond, Mutex};
    ///
    /// let (ctx, _cancel) = context::with_timeout(&context::background(), Duration::from_millis(1));
    /// let (mutex, cond) = (Mutex::new(0), Cond::new());
    /// assert_eq!(cond.wait_ctx(&ctx, &mut mutex.lock()), Err(context::Error::DeadlineExceeded));
    /// ```
    #[cfg(unix)]
    pub fn wait_ctx<G: CondGuard>(
        &self,
        ctx: &crate::context::Context,
        guard: &mut G,
    ) -> Result<(), crate::context::Error> {
        ctx.limited(|limit| self.wait_limited(guard, limit))
    }

    /// [`Cond::wait`] with a lock that is bare: it is unlocked, and locked again. The caller has locked it.
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

    /// [`Cond::wait_limited`] with a lock that is bare.
    ///
    /// # Errors
    ///
    /// As [`Cond::wait_limited`].
    #[inline]
    pub fn wait_locker_limited(&self, locker: &impl Locker, limit: &WaitLimit<'_>) -> Result<(), WaitError> {
        // Locked once for each unlock, whether this unlocks or the caller does.
        self.wait_limited(&mut *ManuallyDrop::new(Locked(locker)), limit)
    }

    /// Wakes the longest waiter, if there is one. The caller may, but need not, hold the mutex; it must have held it
    /// since it changed the condition.
    ///
    /// A `wait` that begins after this cannot take the signal.
    ///
    /// A goroutine that has run for long gives way here, after the signal.
    #[inline]
    pub fn signal(&self) {
        self.waiters.notify_one();
    }

    /// Wakes all waiters. The rest is as for [`Cond::signal`].
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

    /// How many wait at this moment. For tests and the curious.
    #[must_use]
    pub fn waiters(&self) -> usize {
        self.waiters.waiters()
    }
}

/// A guard that can be given up while its owner waits on a [`Cond`], and be had again.
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
    /// What the guard is a guard of.
    type Lock: Clone;

    /// What this guard locks, until it is dropped.
    fn lock(&self) -> Self::Lock;

    /// Another guard of the same.
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

/// Locks again, and puts the guard where the last one was taken from, even if the lock's user code panics.
struct Relock<'a, G: CondGuard> {
    lock: G::Lock,
    place: &'a mut G,
    over: bool,
}

impl<G: CondGuard> Relock<'_, G> {
    #[inline]
    fn now(&mut self) {
        // May panic; `drop` then tries once more.
        let guard = G::relock(self.lock.clone());
        // SAFETY: valid for writes, by the reference; what was there has been moved out.
        unsafe { ptr::write(self.place, guard) };
        self.over = true;
    }
}

impl<G: CondGuard> Drop for Relock<'_, G> {
    #[inline]
    fn drop(&mut self) {
        /// There is no way to go on without the guard.
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
