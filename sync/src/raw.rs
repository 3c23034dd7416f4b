//! The traits that backends implement: [`RawLock`] for locks, [`Semaphore`] for the semaphores that locks are built on.
//!
//! Both are `unsafe` traits: a [`Mutex`](crate::Mutex) hands out `&mut T` because it trusts them. A backend that lacks
//! an operation says so by an associated constant, and never panics. The documentation of the trait names the
//! substitute for that operation.

use std::time::Duration;

pub use sudog_runtime::sema::{Order, Wake};

use crate::now;
use sudog_runtime::sema::{WaitError, WaitLimit};
use sudog_runtime::{G, Instant};

/// A lock without data: mutual exclusion, and nothing else.
///
/// The trait has the shape of `lock_api` 0.5's: the state that an acquisition keeps for its release is in
/// [`RawLock::Guard`]. Unlike in `lock_api`, a lock is made by a function, [`RawLock::new`], so that locks can live in
/// a loom model.
///
/// # Safety
///
/// - Between a `lock` or a successful `try_lock` and the `unlock` that consumes its guard, no other acquisition
///   succeeds.
/// - Everything that happens before an `unlock` also happens before everything that follows the next acquisition.
/// - Forgetting a guard leaves the lock locked for ever; the lock itself may still be moved or dropped.
///
/// # Examples
///
/// Any `RawLock` gets the whole of `lock_api`'s interface:
///
/// ```
/// use sudog::low_level::RuntimeSema;
/// use sudog::low_level::policy;
/// use sudog::sync::{GoMutex, MutexWith};
///
/// let faithful = MutexWith::<GoMutex<RuntimeSema, policy::Go>, _>::new(5);
/// assert_eq!(*faithful.lock(), 5);
/// ```
pub unsafe trait RawLock: Sized + Send + Sync {
    /// The state that an acquisition hands to its release. The type is `Send` if another thread may release the lock.
    type Guard;

    /// True if a caller with a deadline waits in the same queue as the other callers. If false, a caller with a
    /// deadline polls.
    const DEADLINES: bool;

    /// An unlocked lock.
    fn new() -> Self;

    /// Returns a guard without locking. Another lock that is built on this lock may let a newcomer overtake the waiters
    /// of this lock, and needs such a guard then. The guard is dropped, never passed to `unlock`.
    ///
    /// The provided method returns `None`. So do locks whose guards differ from each other, and locks that are first
    /// come, first served.
    #[inline(always)]
    fn barging_guard() -> Option<Self::Guard> {
        None
    }

    /// Locks, waiting until the lock is free.
    fn lock(&self) -> Self::Guard;

    /// Takes the lock if that is possible without waiting. May fail only if the lock is held or promised to a waiter,
    /// or another contender is about to take it.
    fn try_lock(&self) -> Option<Self::Guard>;

    /// Locks, waiting until `deadline` at most. With a deadline in the past, does the same as [`RawLock::try_lock`].
    ///
    /// The provided method polls until the deadline, without a place in any queue.
    fn try_lock_until(&self, deadline: Instant) -> Option<Self::Guard> {
        poll_until(deadline, || self.try_lock())
    }

    /// Locks, waiting until a [`WaitLimit`] at most. A cancel ends the wait only: a free lock is locked, even if
    /// `limit.cancel` is cancelled already.
    ///
    /// The provided method waits as [`RawLock::lock`] or [`RawLock::try_lock_until`] does. If `limit.cancel` is set,
    /// the method ends its wait every millisecond to check for a cancel, and then begins a new wait.
    ///
    /// # Errors
    ///
    /// The error says which limit came first.
    fn lock_limited(&self, limit: &WaitLimit<'_>) -> Result<Self::Guard, WaitError> {
        match self.try_lock() {
            Some(guard) => Ok(guard),
            None => wait_limited(limit, || self.lock(), |deadline| self.try_lock_until(deadline)),
        }
    }

    /// Releases the lock. The lock must stay alive until the call returns, even if another owner has the lock before
    /// that.
    ///
    /// # Safety
    ///
    /// `guard` came from an acquisition of this lock that has not been released. Unless `Guard` is `Send`, the
    /// acquisition was made on this thread.
    unsafe fn unlock(&self, guard: Self::Guard);

    /// Returns whether the lock is held at this moment.
    fn is_locked(&self) -> bool;
}

/// A [`RawLock`] that a `static` can hold, as the locks of `lock_api` must.
pub trait ConstRawLock: RawLock {
    /// An unlocked lock.
    #[allow(clippy::declare_interior_mutable_const)] // to be copied into place, as lock_api's INIT is
    const INIT: Self;
}

/// A counting semaphore, on which the waiters of a lock sleep.
///
/// # Safety
///
/// - Permits are conserved. An `acquire`, and a `try_acquire` or `acquire_until` that returns true, takes a permit that
///   was there from the start or was released. A call that returns false takes no permit.
/// - A released permit does not lie idle while an acquirer waits in `acquire`.
/// - All that happened before a release happens before all that follows the acquire that takes the permit.
///
/// # Panics
///
/// An implementation should not panic. If an acquire panics, for instance in a waiting policy of the user's, a lock
/// over the semaphore still counts the caller as a waiter, and may stay locked for ever.
///
/// # Examples
///
/// The mutex over another semaphore:
///
/// ```
/// # #[cfg(target_os = "linux")] {
/// use sudog::study::FutexSema;
/// use sudog::sync::{GoMutex, MutexWith};
///
/// let m: MutexWith<GoMutex<FutexSema>, _> = MutexWith::new(String::new());
/// m.lock().push('!');
/// # }
/// ```
pub unsafe trait Semaphore: Sized + Send + Sync {
    /// True if [`Order::Lifo`] puts a waiter at the head of the queue. If false, `Order::Lifo` is treated as
    /// [`Order::Fifo`].
    const LIFO: bool;

    /// True if waiters of the same [`Order`] are served in the order in which they came.
    const FIFO: bool;

    /// True if [`Wake::Handoff`] and [`Wake::Grant`] give the permit directly to a waiter, so that no newcomer can take
    /// that permit. If false, both act as [`Wake::Normal`], and a newcomer may take the permit first.
    const HANDOFF: bool;

    /// True if a caller with a deadline waits in the same queue as the other callers. If false, a caller with a
    /// deadline polls.
    const DEADLINES: bool;

    /// Returns a semaphore with `permits` permits.
    fn new(permits: u32) -> Self;

    /// Takes a permit, waiting until a permit is available.
    fn acquire(&self, order: Order);

    /// Takes a permit if a permit is available, without waiting. Returns whether the caller has taken a permit.
    fn try_acquire(&self) -> bool;

    /// Takes a permit, waiting until `deadline` at most. With a deadline in the past, does the same as
    /// [`Semaphore::try_acquire`].
    ///
    /// The provided method polls until the deadline, without a place in any queue.
    fn acquire_until(&self, order: Order, deadline: Instant) -> bool {
        let _ = order;
        poll_until(deadline, || self.try_acquire().then_some(())).is_some()
    }

    /// Takes a permit, waiting until a [`WaitLimit`] at most.
    ///
    /// The provided method waits as [`Semaphore::acquire`] or [`Semaphore::acquire_until`] does. If `limit.cancel` is
    /// set, the method leaves the queue every millisecond to check for a cancel, and then joins the queue anew.
    ///
    /// # Errors
    ///
    /// The error says which limit came first.
    fn acquire_limited(&self, order: Order, limit: &WaitLimit<'_>) -> Result<(), WaitError> {
        wait_limited(limit, || self.acquire(order), |deadline| self.acquire_until(order, deadline).then_some(()))
    }

    /// Takes a permit as [`Semaphore::acquire_limited`] does, for a thread that stays awake for a while: the thread
    /// calls `stand_by` after joining the queue and before going to sleep. The argument of `stand_by` is a function
    /// that returns whether the thread has been woken. `stand_by` returns once the thread has been woken, or when the
    /// thread shall sleep.
    ///
    /// The provided method does not call `stand_by`.
    ///
    /// # Errors
    ///
    /// The error says which limit came first.
    fn acquire_standing_by(
        &self,
        order: Order,
        limit: &WaitLimit<'_>,
        stand_by: impl Fn(&dyn Fn() -> bool),
    ) -> Result<(), WaitError> {
        let _ = stand_by;
        self.acquire_limited(order, limit)
    }

    /// Releases a permit, and wakes a waiter if there is a waiter. If the semaphore cannot count that many permits, the
    /// process ends, by [`fatal`](sudog_runtime::fatal). The semaphore must stay alive until the call returns, even if an acquirer has the permit before
    /// that.
    ///
    /// At the end of the release, a goroutine that has run for long gives way to other goroutines. A semaphore whose
    /// waiters block their threads is an exception: its release never switches to another goroutine.
    fn release(&self, wake: Wake);

    /// Releases `n` permits, and wakes up to `n` waiters.
    fn release_many(&self, n: u32) {
        Releases { sema: self, wake: Wake::Normal, left: n }.run();
    }

    /// Releases `n` permits to waiters, as [`Semaphore::release`] with [`Wake::Grant`] does. If [`Semaphore::HANDOFF`]
    /// is true, waiters get the permits before any newcomer. The caller keeps running.
    fn grant_many(&self, n: u32) {
        Releases { sema: self, wake: Wake::Grant, left: n }.run();
    }
}

/// A [`Semaphore`] that a `static` can hold.
pub trait ConstSemaphore: Semaphore {
    /// A semaphore without permits.
    #[allow(clippy::declare_interior_mutable_const)] // to be copied into place
    const INIT: Self;
}

/// A [`Semaphore`] that a `static` can hold with `N` permits in it.
pub trait ConstPermits<const N: u32>: ConstSemaphore {
    /// A semaphore with `N` permits.
    #[allow(clippy::declare_interior_mutable_const)] // to be copied into place
    const WITH_PERMITS: Self;
}

/// A [`Semaphore`] that async tasks can wait for, in the same queue as threads and goroutines.
///
/// # Safety
///
/// - A future of `acquire_async` that has become ready has taken a permit, as `acquire` does.
/// - A future that is dropped before it is ready has taken no permit, and has lost no permit. If the future was given a
///   permit, that permit is available to others, and no waiter sleeps in `acquire` while the permit is available.
///
/// # Examples
///
/// ```
/// use sudog::low_level::{AsyncSemaphore, ConstSemaphore, Semaphore};
/// use sudog::low_level::RuntimeSema;
/// use sudog::low_level::sema::{Order, Wake};
///
/// static READY: RuntimeSema = RuntimeSema::INIT;
///
/// async fn wait() {
///     READY.acquire_async(Order::Fifo).await;
/// }
/// # let _ = wait();
/// READY.release(Wake::Normal);
/// ```
pub unsafe trait AsyncSemaphore: Semaphore {
    /// The future that [`AsyncSemaphore::acquire_async`] returns.
    type Acquire<'a>: Future<Output = ()> + Send + 'a
    where
        Self: 'a;

    /// Returns a future that takes a permit, waiting until a permit is available. The future does nothing before its
    /// first poll.
    fn acquire_async(&self, order: Order) -> Self::Acquire<'_>;
}

/// A [`RawLock`] that async tasks can wait for.
///
/// # Safety
///
/// A future of `lock_async` that has become ready has acquired the lock, as `lock` does. A future that is dropped
/// before it is ready has not acquired the lock.
///
/// # Examples
///
/// ```
/// use sudog::low_level::{AsyncRawLock, RawLock};
/// use sudog::sync::GoMutex;
///
/// async fn with<L: AsyncRawLock>(lock: &L) {
///     let guard = lock.lock_async().await;
///     // SAFETY: the guard of this lock, which has not been released.
///     unsafe { lock.unlock(guard) };
/// }
/// # let _ = with(&GoMutex::new());
/// ```
pub unsafe trait AsyncRawLock: RawLock {
    /// The future that [`AsyncRawLock::lock_async`] returns.
    type Lock<'a>: Future<Output = Self::Guard> + Send + 'a
    where
        Self: 'a;

    /// Returns a future that locks, waiting until the lock is free. The future does nothing before its first poll.
    fn lock_async(&self) -> Self::Lock<'_>;
}

/// Several permits that are being released. If a release panics, in the waker of an async task, the drop of this value
/// releases the remaining permits.
struct Releases<'a, S: Semaphore> {
    sema: &'a S,
    wake: Wake,
    left: u32,
}

impl<S: Semaphore> Releases<'_, S> {
    fn run(&mut self) {
        while self.left > 0 {
            self.left -= 1;
            self.sema.release(self.wake);
        }
    }
}

impl<S: Semaphore> Drop for Releases<'_, S> {
    fn drop(&mut self) {
        self.run();
    }
}

/// Waits until `limit`: by `wait` if there is no limit, and otherwise by `wait_until`, which takes a deadline.
pub fn wait_limited<T>(
    limit: &WaitLimit<'_>,
    wait: impl FnOnce() -> T,
    mut wait_until: impl FnMut(Instant) -> Option<T>,
) -> Result<T, WaitError> {
    const LOOK: Duration = Duration::from_millis(1);
    let Some(cancel) = limit.cancel else {
        return limit.deadline.map_or_else(|| Ok(wait()), |deadline| wait_until(deadline).ok_or(WaitError::TimedOut));
    };
    loop {
        if cancel.is_cancelled() {
            return Err(WaitError::Cancelled);
        }
        let now = now();
        let look = now.checked_add(LOOK).unwrap_or(now); // in a bubble, `now` may be the latest `Instant`
        if let Some(got) = wait_until(limit.deadline.map_or(look, |deadline| deadline.min(look))) {
            return Ok(got);
        }
        if limit.deadline.is_some_and(|deadline| deadline <= crate::now()) {
            return Err(WaitError::TimedOut);
        }
    }
}

/// Calls `attempt`, at least once, until the call succeeds or `deadline` has passed. Gives way to other threads between
/// two calls.
pub fn poll_until<T>(deadline: Instant, mut attempt: impl FnMut() -> Option<T>) -> Option<T> {
    loop {
        if let Some(got) = attempt() {
            return Some(got);
        }
        if now() >= deadline {
            return None;
        }
        G::yield_now();
    }
}

#[cfg(all(test, not(sudog_loom)))]
mod tests {
    use sudog_runtime::sema::{Cancel, WaitError, WaitLimit};

    use super::*;
    use crate::RawRwLock;
    use crate::mutex::{FifoMutex, policy, stages};
    use crate::rw_mutex::{GoRwMutex, PhaseFairRwMutex};
    use crate::{GoMutex, semaphore::RuntimeSema};

    /// A readers-writer lock with the provided methods of the trait. The tests forget the guards.
    struct Provided(GoRwMutex);

    // SAFETY: every call is passed on to `GoRwMutex`, which keeps the contract of `RawRwLock`, or panics.
    unsafe impl RawRwLock for Provided {
        type SharedGuard = ();
        type ExclusiveGuard = ();
        const DEADLINES: bool = false;

        fn new() -> Self {
            Self(RawRwLock::new())
        }
        fn rlock(&self) {
            self.0.rlock();
        }
        fn try_rlock(&self) -> Option<()> {
            RawRwLock::try_rlock(&self.0)
        }
        unsafe fn runlock(&self, (): ()) {
            unreachable!()
        }
        fn lock(&self) {
            self.0.lock();
        }
        fn try_lock(&self) -> Option<()> {
            RawRwLock::try_lock(&self.0)
        }
        unsafe fn unlock(&self, (): ()) {
            unreachable!()
        }
        unsafe fn downgrade(&self, (): ()) {
            unreachable!()
        }
        fn is_locked(&self) -> bool {
            RawRwLock::is_locked(&self.0)
        }
        fn is_locked_exclusive(&self) -> bool {
            RawRwLock::is_locked_exclusive(&self.0)
        }
    }

    #[test]
    fn a_cancel_keeps_nobody_from_a_free_lock() {
        fn mutex<L: RawLock>() {
            let (lock, stop) = (L::new(), Cancel::new());
            stop.cancel();
            let limit = WaitLimit { deadline: None, cancel: Some(&stop) };
            assert!(lock.lock_limited(&limit).is_ok(), "free");
            assert_eq!(lock.lock_limited(&limit).err(), Some(WaitError::Cancelled));
        }
        fn rw_mutex<L: RawRwLock>() {
            let (lock, read, stop) = (L::new(), L::new(), Cancel::new());
            stop.cancel();
            let limit = WaitLimit { deadline: None, cancel: Some(&stop) };
            assert!(lock.lock_limited(&limit).is_ok(), "free");
            assert_eq!(lock.lock_limited(&limit).err(), Some(WaitError::Cancelled));
            assert_eq!(lock.rlock_limited(&limit).err(), Some(WaitError::Cancelled));
            let guard = read.rlock_limited(&limit);
            assert!(guard.is_ok(), "free");
            assert_eq!(read.lock_limited(&limit).err(), Some(WaitError::Cancelled));
        }
        mutex::<GoMutex>();
        mutex::<GoMutex<RuntimeSema, policy::Go>>();
        mutex::<FifoMutex>();
        mutex::<stages::V2>();
        rw_mutex::<GoRwMutex>();
        rw_mutex::<PhaseFairRwMutex>();
        rw_mutex::<Provided>();
    }
}
