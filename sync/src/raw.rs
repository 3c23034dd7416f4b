//! The traits that backends implement: [`RawLock`] for locks, [`Semaphore`] for the semaphores that locks are built on.
//!
//! Both are `unsafe` traits: a [`Mutex`](crate::Mutex) hands out `&mut T` because it trusts them. A backend states what
//! operations it lacks by an associated constant, never by a panic; the trait documents the substitute that it provides
//! then.

use std::time::Duration;

pub use sudog_runtime::sema::{Order, Wake};

use crate::now;
use sudog_runtime::sema::{WaitError, WaitLimit};
use sudog_runtime::{G, Instant};

/// A lock without data: mutual exclusion, and nothing else.
///
/// The trait has the shape of `lock_api` 0.5's: the state that an acquisition keeps for its release is in
/// [`RawLock::Guard`]. Unlike there, a function makes a lock, so that locks can live in a loom model.
///
/// # Safety
///
/// - Between a `lock` or a successful `try_lock` and the `unlock` that consumes its guard, no other acquisition
///   succeeds.
/// - All that happened before an `unlock` happens before all that follows the acquisition after that `unlock`.
/// - Forgetting a guard leaves the lock locked for ever; the lock itself may still be moved or dropped.
///
/// # Examples
///
/// Any `RawLock` gets the whole of `lock_api`'s interface:
///
/// ```
/// use sudog::sync::mutex::policy;
/// use sudog::sync::semaphore::RuntimeSema;
/// use sudog::sync::{GoMutex, MutexWith};
///
/// let faithful = MutexWith::<GoMutex<RuntimeSema, policy::Go>, _>::new(5);
/// assert_eq!(*faithful.lock(), 5);
/// ```
pub unsafe trait RawLock: Sized + Send + Sync {
    /// The state that an acquisition hands to its release. `Send` if another thread may do the release.
    type Guard;

    /// True if a wait with a deadline stands in the same queue as the other waits. If false, a wait with a deadline
    /// polls.
    const DEADLINES: bool;

    /// An unlocked lock.
    fn new() -> Self;

    /// Returns a guard that belongs to no acquisition, for a lock that is built on this lock and lets a newcomer pass
    /// without locking this lock. The guard is dropped, never passed to `unlock`.
    ///
    /// The provided method returns `None`, as do the locks whose guards differ or that are first come, first served.
    #[inline(always)]
    fn barging_guard() -> Option<Self::Guard> {
        None
    }

    /// Locks, waiting until the lock is free.
    fn lock(&self) -> Self::Guard;

    /// Takes the lock if that is possible without waiting. May fail only if the lock is held or promised to a waiter,
    /// or another contender is about to take it.
    fn try_lock(&self) -> Option<Self::Guard>;

    /// Locks, waiting until `deadline` at most. A deadline in the past makes this [`RawLock::try_lock`].
    ///
    /// The provided method polls until the deadline, without a place in any queue.
    fn try_lock_until(&self, deadline: Instant) -> Option<Self::Guard> {
        poll_until(deadline, || self.try_lock())
    }

    /// Locks, waiting until a [`WaitLimit`] at most.
    ///
    /// The provided method waits as [`RawLock::lock`] or [`RawLock::try_lock_until`] does. If the limit has a cancel,
    /// the method checks for the cancel every millisecond, and then begins a new wait.
    ///
    /// # Errors
    ///
    /// The error says which limit came first.
    fn lock_limited(&self, limit: &WaitLimit<'_>) -> Result<Self::Guard, WaitError> {
        wait_limited(limit, || self.lock(), |deadline| self.try_lock_until(deadline))
    }

    /// Releases the lock. The lock must stay alive until the call returns, though another owner may have the lock
    /// before that.
    ///
    /// # Safety
    ///
    /// `guard` came from an acquisition of this lock that has not been released. Unless `Guard` is `Send`, the
    /// acquisition was made on this thread.
    unsafe fn unlock(&self, guard: Self::Guard);

    /// Returns whether the lock is held at this moment.
    fn is_locked(&self) -> bool;
}

/// A [`RawLock`] that a `static` can hold, and that can therefore stand under `lock_api`.
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
/// An implementation should not panic. If an acquire panics, for instance by a waiting policy of the user's, a lock over
/// the semaphore still counts that waiter, and may stay locked for ever.
///
/// # Examples
///
/// The mutex over another semaphore:
///
/// ```
/// # #[cfg(target_os = "linux")] {
/// use sudog::sync::semaphore::FutexSema;
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

    /// True if [`Wake::Handoff`] and [`Wake::Grant`] give the permit to a waiter, past all newcomers. If false, they
    /// act as [`Wake::Normal`], and a newcomer may take the permit first.
    const HANDOFF: bool;

    /// True if a wait with a deadline stands in the same queue as the other waits. If false, a wait with a deadline
    /// polls.
    const DEADLINES: bool;

    /// Returns a semaphore with `permits` permits.
    fn new(permits: u32) -> Self;

    /// Takes a permit, waiting until a permit is available.
    fn acquire(&self, order: Order);

    /// Takes a permit if a permit is available without waiting.
    fn try_acquire(&self) -> bool;

    /// Takes a permit, waiting until `deadline` at most. A deadline in the past makes this [`Semaphore::try_acquire`].
    ///
    /// The provided method polls until the deadline, without a place in any queue.
    fn acquire_until(&self, order: Order, deadline: Instant) -> bool {
        let _ = order;
        poll_until(deadline, || self.try_acquire().then_some(())).is_some()
    }

    /// Takes a permit, waiting until a [`WaitLimit`] at most.
    ///
    /// The provided method waits as [`Semaphore::acquire`] or [`Semaphore::acquire_until`] does. If the limit has a
    /// cancel, the method checks for the cancel every millisecond, and then joins the queue anew.
    ///
    /// # Errors
    ///
    /// The error says which limit came first.
    fn acquire_limited(&self, order: Order, limit: &WaitLimit<'_>) -> Result<(), WaitError> {
        wait_limited(limit, || self.acquire(order), |deadline| self.acquire_until(order, deadline).then_some(()))
    }

    /// [`Semaphore::acquire_limited`] for a thread that stays awake for a while: the thread calls `stand_by` after it
    /// has joined the queue and before it sleeps. The argument of `stand_by` is a function that returns whether the
    /// thread has been woken. `stand_by` returns once the thread has been woken, or when the thread shall sleep.
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

    /// Gives a permit, and wakes a waiter if any waits. More permits than the semaphore can count end the process. The
    /// semaphore must stay alive until the call returns, though an acquirer may have the permit before that.
    ///
    /// A goroutine that has run for long gives way at the end of the release, unless the semaphore blocks the threads
    /// of its waiters: a release of such a semaphore never switches.
    fn release(&self, wake: Wake);

    /// Gives `n` permits, and wakes up to `n` waiters.
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
/// - An `acquire_async` that has become ready has taken a permit, as `acquire` has.
/// - An `acquire_async` that is dropped before has taken no permit, and has lost no permit: a permit that the future
///   was given is available to others, and no waiter in `acquire` sleeps beside such a permit.
///
/// # Examples
///
/// ```
/// use sudog::sync::semaphore::RuntimeSema;
/// use sudog::sync::{AsyncSemaphore, ConstSemaphore, Order, Semaphore, Wake};
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
/// A `lock_async` that has become ready is an acquisition, as `lock` is. A `lock_async` that is dropped before is no
/// acquisition.
///
/// # Examples
///
/// ```
/// use sudog::sync::{AsyncRawLock, GoMutex, RawLock};
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

/// Releases of several permits. If a release panics, through the waker of an async task, the remaining permits are
/// released all the same.
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

/// Waits with a limit, by `wait`, a wait without a limit, or by `wait_until`, a wait with a deadline.
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
        let look = now.checked_add(LOOK).unwrap_or(now); // the clock of a bubble may be at the end
        if let Some(got) = wait_until(limit.deadline.map_or(look, |deadline| deadline.min(look))) {
            return Ok(got);
        }
        if limit.deadline.is_some_and(|deadline| deadline <= crate::now()) {
            return Err(WaitError::TimedOut);
        }
    }
}

/// Calls `attempt` until it succeeds or `deadline` passes: at least once, giving way to other threads in between.
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
