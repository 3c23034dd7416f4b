//! The mutex, its fast paths, and what it promises. `state.rs` has the state word and the protocol, `lock.rs` and
//! `unlock.rs` the slow paths.

use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
#[cfg(not(sudog_loom))]
use std::time::Duration;

use sudog_runtime::Instant;
use sudog_runtime::event::Kind;
use sudog_runtime::sema::{WaitError, WaitLimit};

use super::contention_hint;
use super::future::LockFuture;
use super::policy::{Policy, Threads};
use super::state::{AtomicState, State};
use super::yielding;
use crate::deadlock_owner::DeadlockOwner;
use crate::raw::{AsyncRawLock, AsyncSemaphore, RawLock, Semaphore};
use crate::semaphore::RuntimeSema;

/// The Go mutex, bare: `lock` and `unlock` as in Go, over the semaphore `S`, under the policy `P`.
///
/// The mutex has eight bytes with the default semaphore, and sixteen more in debug builds, for reports. The mutex is
/// not owned by a thread: another thread may unlock. The mutex is not reentrant. For a mutex with data and guards see
/// [`Mutex`](crate::Mutex).
///
/// The mutex is fair only in the long run. In normal mode a newcomer may overtake the waiters. A contender that has
/// waited for longer than the policy's threshold turns on starvation mode: newcomers queue, and the mutex goes to that
/// contender or to the waiters. Under the default policy the successor, which watches the mutex for all threads, does so.
///
/// # Examples
///
/// ```
/// use sudog::sync::GoMutex;
///
/// static MU: GoMutex = GoMutex::new();
///
/// MU.lock();
/// assert!(!MU.try_lock());
/// MU.unlock();
/// ```
///
/// # Limits
///
/// At most 2^29 - 1 contenders can sleep on a mutex. Any further contender polls until the count has room: the count
/// never overflows into the flags.
///
/// # Source
///
/// Go's `internal/sync/mutex.go`, in the development tree of 1.28. The [policy](super::policy) for threads, deadlines
/// and async tasks are ours.
pub struct GoMutex<S = RuntimeSema, P = Threads> {
    pub(super) state: AtomicState,
    pub(super) sema: S,
    pub(super) deadlock_owner: DeadlockOwner,
    policy: PhantomData<P>,
}

#[cfg(not(sudog_loom))]
impl GoMutex {
    /// An unlocked mutex over the default semaphore, under the default policy.
    #[must_use]
    pub const fn new() -> Self {
        Self::const_new()
    }
}

#[cfg(not(sudog_loom))]
impl<S: crate::ConstSemaphore, P: Policy> GoMutex<S, P> {
    /// An unlocked mutex over any semaphore, under any policy.
    ///
    /// # Examples
    ///
    /// ```
    /// use sudog::low_level::RuntimeSema;
    /// use sudog::low_level::policy;
    /// use sudog::sync::GoMutex;
    ///
    /// static MU: GoMutex<RuntimeSema, policy::Go> = GoMutex::const_new();
    /// MU.lock();
    /// MU.unlock();
    /// ```
    #[must_use]
    pub const fn const_new() -> Self {
        Self { state: AtomicState::new(), sema: S::INIT, deadlock_owner: DeadlockOwner::NONE, policy: PhantomData }
    }
}

#[cfg(not(sudog_loom))]
impl<S: crate::ConstSemaphore, P: Policy> crate::ConstRawLock for GoMutex<S, P> {
    const INIT: Self = Self::const_new();
}

impl<S: Semaphore, P: Policy> GoMutex<S, P> {
    /// Locks the mutex, waiting until the mutex is free. The mutex is not reentrant: an owner that locks again waits
    /// for itself.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn lock(&self) {
        let acquisition = self.deadlock_owner.locks();
        if !self.lock_fast() {
            let _ = self.lock_slow(None, None); // without a limit it waits
        }
        self.deadlock_owner.set(acquisition);
    }

    /// Locks the mutex if the mutex is neither locked nor in starvation mode. As in Go, the caller may overtake
    /// waiters.
    ///
    /// Returns false if the mutex is locked, or promised to a waiter.
    ///
    /// # Examples
    ///
    /// ```
    /// let mu = sudog::sync::GoMutex::new();
    /// assert!(mu.try_lock());
    /// assert!(!mu.try_lock());
    /// # mu.unlock();
    /// ```
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    #[must_use]
    pub fn try_lock(&self) -> bool {
        let mut state = self.state.load(Relaxed);
        // Try again if only another part of the state has changed. Go fails then.
        while state.is_lockable() {
            match self.state.compare_exchange_weak(state, state.lock(), Acquire, Relaxed) {
                Ok(_) => {
                    self.report_if(state.has_waiters(), Kind::Barge);
                    self.deadlock_owner.set(self.deadlock_owner.tries());
                    return true;
                }
                Err(now) => state = now,
            }
        }
        false
    }

    /// Locks the mutex, or gives up at `deadline`. With a deadline in the past, does the same as [`GoMutex::try_lock`],
    /// after at most a few microseconds of spinning.
    ///
    /// May return slightly late: if an unlock has already picked this waiter, the call waits for that unlock to finish.
    ///
    /// Returns false if the deadline has passed: the caller does not own the mutex.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    ///
    /// let mu = sudog::sync::GoMutex::new();
    /// mu.lock();
    /// assert!(!mu.try_lock_until(Instant::now() + Duration::from_millis(1)));
    /// # mu.unlock();
    /// ```
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    #[must_use]
    pub fn try_lock_until(&self, deadline: Instant) -> bool {
        RawLock::lock_limited(self, &WaitLimit::until(deadline)).is_ok()
    }

    /// Does the same as [`GoMutex::try_lock_until`], with the deadline `timeout` from now. Waits without end if the
    /// clock cannot express that deadline.
    #[cfg(not(sudog_loom))]
    #[cfg_attr(debug_assertions, track_caller)]
    #[must_use]
    pub fn try_lock_for(&self, timeout: Duration) -> bool {
        match crate::now().checked_add(timeout) {
            Some(deadline) => self.try_lock_until(deadline),
            None => {
                self.lock();
                true
            }
        }
    }

    /// Unlocks the mutex. The caller need not be the thread, goroutine or task that locked the mutex.
    ///
    /// The next owner can run before this call returns, and this call still uses the mutex: the mutex must not be freed
    /// until the call has returned. References and guards ensure that, raw pointers do not.
    ///
    /// If contenders are left, a goroutine may give way to others here. Without contenders the unlock is one atomic
    /// operation, and never switches to another goroutine. So a goroutine that does nothing else in a loop should call
    /// [`gosched`](sudog_runtime::goroutine) now and then. Under [`Threads`] a thread may yield its processor.
    ///
    /// # Fatal errors
    ///
    /// An unlock of an unlocked mutex ends the process with Go's `fatal error: sync: unlock of unlocked mutex`. The
    /// program cannot recover from that error.
    #[inline]
    pub fn unlock(&self) {
        self.deadlock_owner.clear();
        let state = self.state.unlock(Release);
        if state != State::UNLOCKED {
            contention_hint::note_contention();
            if state.is_left_to_designated() {
                yielding::yield_occasionally::<P>(state);
            } else {
                self.unlock_slow(state);
            }
        }
    }

    /// Locks by a single compare-exchange, with or without waiters. So an owner that locks again pays no more while
    /// others sleep.
    ///
    /// The hint predicts which state to expect. A load of the state first would slow down the uncontended path, as the
    /// load must wait for the previous unlock. An exchange that first expects INIT would slow down the contended path.
    /// `docs/journal/mutex-variants.md` has the figures.
    #[inline(always)]
    fn lock_fast(&self) -> bool {
        let lock = |state: State| self.state.compare_exchange(state, state.lock(), Acquire, Relaxed).is_ok();
        contention_hint::predict(|contended| {
            if !contended.get() {
                return lock(State::UNLOCKED);
            }
            let state = self.state.load(Relaxed);
            contended.set(state != State::UNLOCKED);
            let locked = state.is_lockable() && lock(state);
            self.report_if(locked && state.has_waiters(), Kind::Barge);
            locked
        })
    }

    /// Returns whether the mutex has an owner at this moment.
    #[inline]
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.state.load(Relaxed).is_locked()
    }

    /// Returns the number of contenders that sleep on the mutex, or are about to, at this moment. For tests and
    /// diagnostics.
    #[must_use]
    pub fn waiters(&self) -> u32 {
        self.state.load(Relaxed).waiters()
    }

    /// Returns whether the mutex is in starvation mode at this moment. For tests and diagnostics.
    #[must_use]
    pub fn is_starving(&self) -> bool {
        self.state.load(Relaxed).is_starving()
    }
}

// SAFETY:
// - exclusion: a single contender at a time sets LOCKED, by a compare-exchange from a state without LOCKED, or by
//   `accept_handoff`, for which the semaphore grants a single permit while STARVING keeps all other contenders from
//   locking.
// - happens-before: the step that sets LOCKED is Acquire, the unlock is Release, and all changes are RMWs of the same
//   word.
unsafe impl<S: Semaphore, P: Policy> RawLock for GoMutex<S, P> {
    /// An acquisition hands no state to its unlock: any thread may unlock, as in Go.
    type Guard = ();

    const DEADLINES: bool = S::DEADLINES;

    fn new() -> Self {
        Self { state: AtomicState::new(), sema: S::new(0), deadlock_owner: DeadlockOwner::NONE, policy: PhantomData }
    }

    /// Returns `None` if the policy lets waiters starve from the start, as the mutex is first come, first served then.
    #[inline(always)]
    fn barging_guard() -> Option<()> {
        (!P::THRESHOLD.is_zero() && !P::GOROUTINE_THRESHOLD.is_zero()).then_some(())
    }

    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    fn lock(&self) {
        Self::lock(self);
    }

    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    fn try_lock(&self) -> Option<()> {
        Self::try_lock(self).then_some(())
    }

    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    fn try_lock_until(&self, deadline: Instant) -> Option<()> {
        Self::try_lock_until(self, deadline).then_some(())
    }

    /// Waits for a cancel in the same queue as the other callers, as far as the semaphore does.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    fn lock_limited(&self, limit: &WaitLimit<'_>) -> Result<(), WaitError> {
        let acquisition = self.deadlock_owner.tries();
        if !self.lock_fast() {
            self.lock_slow(limit.deadline, limit.cancel)?;
        }
        self.deadlock_owner.set(acquisition);
        Ok(())
    }

    #[inline]
    unsafe fn unlock(&self, (): ()) {
        Self::unlock(self);
    }

    #[inline]
    fn is_locked(&self) -> bool {
        Self::is_locked(self)
    }
}

impl<S: AsyncSemaphore, P: Policy> GoMutex<S, P> {
    /// Returns a future that locks as [`GoMutex::lock`] does. Async tasks wait in the same queue as threads and
    /// goroutines.
    ///
    /// The future may be dropped at any time: see [`LockFuture`].
    ///
    /// # Examples
    ///
    /// ```
    /// use sudog::sync::GoMutex;
    ///
    /// static MU: GoMutex = GoMutex::new();
    ///
    /// async fn critical() {
    ///     MU.lock_async().await;
    ///     // ...
    ///     MU.unlock();
    /// }
    /// # let _ = critical();
    /// ```
    pub fn lock_async(&self) -> LockFuture<'_, S, P> {
        LockFuture::new(self)
    }
}

// SAFETY:
// - A `LockFuture` locks as `lock` does, once, when the future is ready.
// - If a `LockFuture` is dropped before it has returned `Ready`, and the mutex has been handed to the future, the drop
//   unlocks the mutex.
unsafe impl<S: AsyncSemaphore, P: Policy> AsyncRawLock for GoMutex<S, P> {
    type Lock<'a>
        = LockFuture<'a, S, P>
    where
        Self: 'a;

    fn lock_async(&self) -> LockFuture<'_, S, P> {
        Self::lock_async(self)
    }
}

#[cfg(not(sudog_loom))]
impl<S: crate::ConstSemaphore, P: Policy> Default for GoMutex<S, P> {
    fn default() -> Self {
        Self::const_new()
    }
}

impl<S, P> fmt::Debug for GoMutex<S, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.load(Relaxed);
        f.debug_struct("GoMutex")
            .field("locked", &state.is_locked())
            .field("woken", &state.is_woken())
            .field("starving", &state.is_starving())
            .field("waiters", &state.waiters())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "go_mutex_tests.rs"]
mod tests;
