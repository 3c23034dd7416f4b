//! What a backend implements: [`RawLock`] for locks, [`Semaphore`] for what locks are built on.
//!
//! Both are `unsafe` traits: a [`Mutex`](crate::Mutex) hands out `&mut T` on their word. What a backend cannot do is
//! an associated constant, never a panic; the trait then does the next best thing, and says so.

use std::time::Duration;

pub use sudog_runtime::sema::{Order, Wake};

use crate::now;
use sudog_runtime::sema::{WaitError, WaitLimit};
use sudog_runtime::{G, Instant};

/// A lock without data: mutual exclusion, and nothing else.
///
/// Its shape is that of `lock_api` 0.5: what one acquisition must remember for its release travels in
/// [`RawLock::Guard`]. It differs in that a lock is made by a function, so that it can live in a model.
///
/// # Safety
///
/// - Between a `lock` or a successful `try_lock` and the `unlock` that consumes its guard, no other acquisition
///   succeeds.
/// - What happened before an `unlock` happens before what follows the acquisition after it.
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
    /// What an acquisition hands to its release. `Send` if another thread may do the release.
    type Guard;

    /// Whether a wait with a deadline stands in the same line as the others. If not, it polls.
    const DEADLINES: bool;

    /// An unlocked lock.
    fn new() -> Self;

    /// A guard that no acquisition stands behind, for a lock that is built on this one and lets a newcomer pass without
    /// asking it. It is dropped, never unlocked with.
    ///
    /// Provided: `None`, as for each lock whose guards differ, or that is first come, first served.
    #[inline(always)]
    fn barging_guard() -> Option<Self::Guard> {
        None
    }

    /// Waits until the lock is ours.
    fn lock(&self) -> Self::Guard;

    /// Takes the lock if that is possible without waiting. May fail only if the lock is held or promised to a waiter,
    /// or another contender is about to take it.
    fn try_lock(&self) -> Option<Self::Guard>;

    /// Waits until the lock is ours, or until `deadline`. With a deadline in the past it is [`RawLock::try_lock`].
    ///
    /// The provided method polls: bounded by the deadline, but without a place in any line.
    fn try_lock_until(&self, deadline: Instant) -> Option<Self::Guard> {
        poll_until(deadline, || self.try_lock())
    }

    /// Waits until the lock is ours, or for a [`WaitLimit`].
    ///
    /// The provided method waits as [`RawLock::lock`] or [`RawLock::try_lock_until`]; with a cancel it looks for that every
    /// millisecond, and waits anew then.
    ///
    /// # Errors
    ///
    /// Which limit came first.
    fn lock_limited(&self, limit: &WaitLimit<'_>) -> Result<Self::Guard, WaitError> {
        wait_limited(limit, || self.lock(), |deadline| self.try_lock_until(deadline))
    }

    /// Releases the lock. The lock must stay alive until the call returns, though another owner may have it before.
    ///
    /// # Safety
    ///
    /// `guard` came from an acquisition of this lock that has not been released. Unless `Guard` is `Send`, on this
    /// thread.
    unsafe fn unlock(&self, guard: Self::Guard);

    /// Whether the lock is held at this moment.
    fn is_locked(&self) -> bool;
}

/// A [`RawLock`] that a `static` can hold, and that can therefore stand under `lock_api`.
pub trait ConstRawLock: RawLock {
    /// An unlocked lock.
    #[allow(clippy::declare_interior_mutable_const)] // to be copied into place, as lock_api's INIT is
    const INIT: Self;
}

/// A counting semaphore: what a lock sleeps on.
///
/// # Safety
///
/// - Permits are conserved: an `acquire`, and a `try_acquire` or `acquire_until` that returns true, takes one that was
///   there from the start or was released; and takes nothing when it returns false.
/// - A released permit does not lie idle while an acquirer waits in `acquire`.
/// - What happened before a release happens before what follows the acquire that takes its permit.
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
    /// Whether [`Order::Lifo`] puts a waiter in front. If not, it is taken for [`Order::Fifo`].
    const LIFO: bool;

    /// Whether waiters of one order are served in the order in which they came.
    const FIFO: bool;

    /// Whether [`Wake::Handoff`] and [`Wake::Grant`] give the permit to a waiter past all newcomers. If not, they are
    /// [`Wake::Normal`], and a newcomer may take it first.
    const HANDOFF: bool;

    /// Whether a wait with a deadline stands in the same line as the others. If not, it polls.
    const DEADLINES: bool;

    /// A semaphore with this many permits.
    fn new(permits: u32) -> Self;

    /// Takes a permit, waiting for it if need be.
    fn acquire(&self, order: Order);

    /// Takes a permit if there is one.
    fn try_acquire(&self) -> bool;

    /// Takes a permit, waiting for it until `deadline`. With a deadline in the past it is [`Semaphore::try_acquire`].
    ///
    /// The provided method polls: bounded by the deadline, but without a place in any line.
    fn acquire_until(&self, order: Order, deadline: Instant) -> bool {
        let _ = order;
        poll_until(deadline, || self.try_acquire().then_some(())).is_some()
    }

    /// Takes a permit, waiting for it for a [`WaitLimit`].
    ///
    /// The provided method waits as [`Semaphore::acquire`] or [`Semaphore::acquire_until`]; with a cancel it looks for that
    /// every millisecond, and stands in line anew then.
    ///
    /// # Errors
    ///
    /// Which limit came first.
    fn acquire_limited(&self, order: Order, limit: &WaitLimit<'_>) -> Result<(), WaitError> {
        wait_limited(limit, || self.acquire(order), |deadline| self.acquire_until(order, deadline).then_some(()))
    }

    /// [`Semaphore::acquire_limited`], where a thread calls `stand_by` before it sleeps, with its place in the line.
    /// `stand_by` is given what says whether the thread has been woken, and returns once it has, or when the thread is to
    /// sleep.
    ///
    /// The provided method does not call it.
    ///
    /// # Errors
    ///
    /// Which limit came first.
    fn acquire_standing_by(
        &self,
        order: Order,
        limit: &WaitLimit<'_>,
        stand_by: impl Fn(&dyn Fn() -> bool),
    ) -> Result<(), WaitError> {
        let _ = stand_by;
        self.acquire_limited(order, limit)
    }

    /// Gives a permit, and wakes a waiter if there is one. More permits than it can count end the process. The
    /// semaphore must stay alive until the call returns, though an acquirer may have the permit before.
    ///
    /// A goroutine that has run for long gives way at the end of it. Not if the semaphore blocks the threads of its waiters:
    /// then a release never switches.
    fn release(&self, wake: Wake);

    /// Gives `n` permits, and wakes as many waiters.
    fn release_many(&self, n: u32) {
        Releases { sema: self, wake: Wake::Normal, left: n }.run();
    }

    /// [`Semaphore::release`] of `n` permits for waiters, as by [`Wake::Grant`]: with [`Semaphore::HANDOFF`], past all
    /// newcomers. The caller goes on.
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

/// A [`Semaphore`] that a `static` can hold with this many permits in it.
pub trait ConstPermits<const N: u32>: ConstSemaphore {
    /// A semaphore with `N` permits.
    #[allow(clippy::declare_interior_mutable_const)] // to be copied into place
    const WITH_PERMITS: Self;
}

/// A [`Semaphore`] that async tasks can wait for, in the same line as threads and goroutines.
///
/// # Safety
///
/// - An `acquire_async` that has become ready has taken a permit, as `acquire` has.
/// - One that is dropped before has taken none, and has lost none: a permit that it was given is there for others, and
///   waiters in `acquire` do not sleep beside it.
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
    /// What [`AsyncSemaphore::acquire_async`] returns.
    type Acquire<'a>: Future<Output = ()> + Send + 'a
    where
        Self: 'a;

    /// Takes a permit, waiting for it if need be. Does nothing before it is polled.
    fn acquire_async(&self, order: Order) -> Self::Acquire<'_>;
}

/// A [`RawLock`] that async tasks can wait for.
///
/// # Safety
///
/// A `lock_async` that has become ready is an acquisition, as `lock` is. One that is dropped before is none.
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
    /// What [`AsyncRawLock::lock_async`] returns.
    type Lock<'a>: Future<Output = Self::Guard> + Send + 'a
    where
        Self: 'a;

    /// Waits until the lock is ours. Does nothing before it is polled.
    fn lock_async(&self) -> Self::Lock<'_>;
}

/// Releases of several permits. If one panics, by the waker of an async task, the others follow all the same.
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

/// A wait with a limit, of waits without one and with a deadline.
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
        let look = now.checked_add(LOOK).unwrap_or(now); // a bubble's clock may be at its end
        if let Some(got) = wait_until(limit.deadline.map_or(look, |deadline| deadline.min(look))) {
            return Ok(got);
        }
        if limit.deadline.is_some_and(|deadline| deadline <= crate::now()) {
            return Err(WaitError::TimedOut);
        }
    }
}

/// Tries until it works or until `deadline`: at least once, giving way to other threads in between.
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
