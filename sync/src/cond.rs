//! Go's condition variable: a list of those who wait, and the mutex that they unlock meanwhile.
//!
//! | `wait` | `signal`, `broadcast` |
//! |---|---|
//! | 1. takes a ticket | |
//! | 2. unlocks the mutex | |
//! | 3. waits on the ticket | notifies the oldest ticket, or all of them |
//! | 4. locks the mutex, even if 2 or 3 is unwound | |
//!
//! The list, and what happens between 1 and 3, is `sudog_runtime::sema::NotifyList`.

use std::fmt;
use std::ptr;
use std::time::Instant;

use sudog_runtime::sema::NotifyList;

use crate::lock_api::{Mutex, MutexGuard, RawMutex};

/// A condition variable: threads and goroutines wait under a mutex until somebody signals that what they wait for may
/// have come.
///
/// It goes with any mutex of `lock_api`, ours and others; code that waits uses [`Mutex<T>`](crate::Mutex), not the bare
/// [`GoMutex`](crate::GoMutex). All who wait at a time should use one mutex: that is not checked. Nobody is woken
/// without a signal or a broadcast. A stackless goroutine that waits here has a stack until it returns.
///
/// # Examples
///
/// ```
/// use sudog_sync::{Cond, Mutex};
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
    /// A condition variable that nobody waits on.
    #[must_use]
    pub const fn new() -> Self {
        Self { waiters: NotifyList::new() }
    }

    /// Unlocks the mutex, waits for a [`signal`](Cond::signal) or [`broadcast`](Cond::broadcast), and locks the mutex.
    ///
    /// What the caller waits for may be gone again when it has the mutex: so it looks, in a loop.
    ///
    /// If the wait is unwound, as its goroutine's scheduler has ended, the mutex is locked all the same before the
    /// unwinding goes on, by the guard's promise; a signal that had come goes to the next. Meanwhile the other
    /// goroutines of its worker are unwound too, so whichever of them has the mutex unlocks it.
    #[inline]
    pub fn wait<R: RawMutex, T: ?Sized>(&self, guard: &mut MutexGuard<'_, R, T>) {
        self.wait_for_signal(guard, None);
    }

    /// [`Cond::wait`] until a deadline at most: says whether a signal came. The mutex is locked in either case.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use sudog_sync::{Cond, Mutex};
    ///
    /// let (mutex, cond) = (Mutex::new(0), Cond::new());
    /// let mut guard = mutex.lock();
    /// assert!(!cond.wait_until(&mut guard, Instant::now() + Duration::from_millis(1)));
    /// *guard += 1;
    /// ```
    #[inline]
    pub fn wait_until<R: RawMutex, T: ?Sized>(&self, guard: &mut MutexGuard<'_, R, T>, deadline: Instant) -> bool {
        self.wait_for_signal(guard, Some(deadline))
    }

    /// Wakes the one that has waited longest, if there is one. The caller may, but need not, have the mutex; it must
    /// have had it since it changed what is waited for.
    ///
    /// Who comes to wait after this cannot take the signal.
    #[inline]
    pub fn signal(&self) {
        self.waiters.notify_one();
    }

    /// Wakes all who wait. The rest is as for [`Cond::signal`].
    ///
    /// # Examples
    ///
    /// ```
    /// use sudog_sync::{Cond, Mutex};
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

    fn wait_for_signal<R: RawMutex, T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, R, T>,
        deadline: Option<Instant>,
    ) -> bool {
        self.waiters.with_ticket(|ticket| {
            let relock = Relock { mutex: MutexGuard::mutex(guard), place: guard };
            // Not `MutexGuard::unlocked`: it ends the process if locking is unwound, which is how the wait of a
            // goroutine ends whose scheduler has. SAFETY: `relock` puts another guard into its place, whatever happens.
            drop(unsafe { ptr::read(relock.place) });
            // SAFETY: null.
            unsafe { sudog_runtime::note_wait("sync.Cond.Wait", ptr::null()) };
            let notified = ticket.wait(deadline);
            relock.now();
            notified
        })
    }
}

/// Locks a mutex again, and puts the guard where its last one was taken from.
struct Relock<'a, 'g, R: RawMutex, T: ?Sized> {
    mutex: &'g Mutex<R, T>,
    place: &'a mut MutexGuard<'g, R, T>,
}

impl<R: RawMutex, T: ?Sized> Relock<'_, '_, R, T> {
    fn now(self) {
        // May be unwound; `drop` then tries once more.
        let guard = self.mutex.lock();
        let place: *mut MutexGuard<'_, R, T> = &raw mut *std::mem::ManuallyDrop::new(self).place;
        // SAFETY: valid for writes, by the reference; what was there has been moved out.
        unsafe { place.write(guard) };
    }
}

impl<R: RawMutex, T: ?Sized> Drop for Relock<'_, '_, R, T> {
    #[cold]
    fn drop(&mut self) {
        /// There is no way to go on without the mutex.
        struct Abort;
        impl Drop for Abort {
            fn drop(&mut self) {
                std::process::abort();
            }
        }
        let abort = Abort;
        let guard = self.mutex.lock();
        std::mem::forget(abort);
        // SAFETY: as in `now`.
        unsafe { ptr::write(self.place, guard) };
    }
}

impl fmt::Debug for Cond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cond").field("waiters", &self.waiters()).finish()
    }
}
