//! Go's final mutex.
//!
//! The state word, and with it the whole protocol:
//!
//! ```text
//!   31                              3   2   1   0
//!  ┌─────────────────────────────────┬───┬───┬───┐
//!  │ waiters                         │ S │ W │ L │
//!  └─────────────────────────────────┴───┴───┴───┘
//! ```
//!
//! | bit | set means | set by | cleared by |
//! |---|---|---|---|
//! | L locked | somebody owns the mutex | its owner-to-be | its owner's unlock |
//! | W woken | one contender is awake and will see to the mutex: unlocks wake nobody | an unlock, for the waiter that it wakes; a contender, for itself; an heir that had claimed leaves it set, for its successor | that contender, as it locks, sleeps or gives up |
//! | S starving | newcomers may not lock: the mutex is promised | the contender with W, when it has waited too long; one whose threshold is 0, if nobody has W | the one to whom the promise is kept; one with W that gives up; the last to leave |
//! | waiters | how many sleep, or are about to | a contender, before it sleeps | normal mode: the unlock that wakes one; starvation mode: the woken one itself, or an heir, for its successor; and one that gives up |
//!
//! | unlock leaves | and the mutex goes |
//! |---|---|
//! | waiters, no W, no S | to anybody: one waiter is woken, with W set for it, and competes |
//! | W, no S | to anybody: the one with W is awake |
//! | S, no W | to the first in line: the semaphore hands it over (L stays clear; S alone keeps others out) |
//! | S and W | to the one with W, who is awake and watches. Under [`SpinStrategy::Successor`](super::policy::SpinStrategy::Successor) only |
//!
//! Invariants: at most one contender has W. Only the one with W sets S, or, while nobody has W, one that starves from the
//! start. S implies a waiter, or W. In normal mode, those who sleep are as many as `waiters` plus the permits released; in
//! starvation mode, as many as `waiters`, and a permit is released if and only if L and W are clear.
//!
//! Threads, goroutines and async tasks contend for one mutex, each in its own way: threads by [`Policy::STRATEGY`],
//! goroutines by [`Policy::GOROUTINE_STRATEGY`], which is spinning or nothing, tasks not at all while they are awake. The table
//! does not know them apart, because:
//!
//! * W is taken by a step from a state without W, or is given by an unlock or an heir to the one that it wakes. So
//!   whoever is to have it, of whatever kind, is the only one.
//! * One that spins and one that stands by differ in what they do with S. The former sets it in the step in which it
//!   goes to sleep, and W is clear after it: the mutex goes to the first in line. The latter, a thread, sets it while
//!   it is awake and keeps W: the mutex is its own to take. So S with W always means an awake heir, and S without W the
//!   first in line, of whatever kind.
//! * While S is set nobody takes W: both kinds take it from states without S only. So whoever is handed the mutex finds
//!   W clear. It ends the mode by its own rule: one that spins, if it has not waited for too long; one that stands by,
//!   always.
//! * The successor that an heir wakes may be of any kind: it finds normal mode, and W its own.
//!
//! Source: Go's `internal/sync/mutex.go`, in the development tree of 1.28; `SpinStrategy::Successor`, deadlines and the closed
//! steal window are ours. The orderings are argued in `docs/orderings.md`: in short, everything is decided on one word,
//! so coherence orders it; `Acquire` on what takes the mutex and `Release` on what frees it order the data.

use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
#[cfg(not(sudog_loom))]
use std::time::Duration;

use sudog_runtime::event::Kind;
use sudog_runtime::{AtomicU32, Instant};

use super::future::LockFuture;
use super::hints;
use super::owner::Owner;
use super::policy::{Policy, Threads};
use crate::raw::{AsyncRawLock, AsyncSemaphore, RawLock, Semaphore};
use crate::semaphore::RuntimeSema;

pub(super) const LOCKED: u32 = 1;
pub(super) const WOKEN: u32 = 2;
pub(super) const STARVING: u32 = 4;
pub(super) const WAITER: u32 = 8;
pub(super) const MAX_WAITERS: u32 = u32::MAX / WAITER;

/// The Go mutex, bare: `lock` and `unlock` as in Go, over the semaphore `S`, under the policy `P`.
///
/// Eight bytes with the default semaphore (and eight more in debug builds, for the deadlock report). It is not owned by
/// a thread: another one may unlock it. It is not reentrant. For a mutex with data and guards see
/// [`Mutex`](crate::Mutex).
///
/// Locking it is fair in the long run and greedy in the short: normally a newcomer may overtake those who wait; once
/// somebody has waited longer than the policy's threshold, nobody may.
///
/// # Examples
///
/// ```
/// use sudog_sync::GoMutex;
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
/// At most 2^29 - 1 contenders can sleep on one mutex. One more finds no room in the count, and polls until there is:
/// the count never runs into the flags.
pub struct GoMutex<S = RuntimeSema, P = Threads> {
    pub(super) state: AtomicU32,
    pub(super) sema: S,
    pub(super) owner: Owner,
    policy: PhantomData<P>,
}

#[cfg(not(sudog_loom))]
impl GoMutex {
    /// An unlocked mutex over the default semaphore, under the default policy.
    #[must_use]
    pub const fn new() -> Self {
        Self::unlocked()
    }
}

#[cfg(not(sudog_loom))]
impl<S: crate::ConstSemaphore, P: Policy> GoMutex<S, P> {
    /// An unlocked mutex over any semaphore, under any policy.
    ///
    /// # Examples
    ///
    /// ```
    /// use sudog_sync::GoMutex;
    /// use sudog_sync::mutex::policy;
    /// use sudog_sync::semaphore::RuntimeSema;
    ///
    /// static MU: GoMutex<RuntimeSema, policy::Go> = GoMutex::unlocked();
    /// MU.lock();
    /// MU.unlock();
    /// ```
    #[must_use]
    pub const fn unlocked() -> Self {
        Self { state: AtomicU32::new(0), sema: S::EMPTY, owner: Owner::NOBODY, policy: PhantomData }
    }
}

#[cfg(not(sudog_loom))]
impl<S: crate::ConstSemaphore, P: Policy> crate::ConstRawLock for GoMutex<S, P> {
    const UNLOCKED: Self = Self::unlocked();
}

impl<S: Semaphore, P: Policy> GoMutex<S, P> {
    /// Locks the mutex, waiting until it can. It is not reentrant: its owner would wait for itself.
    #[inline]
    #[track_caller]
    pub fn lock(&self) {
        if !self.lock_fast() {
            self.lock_slow(None);
        }
        self.owner.set();
    }

    /// Locks the mutex if it is neither locked nor promised to somebody who starves. As in Go, it may overtake waiters.
    ///
    /// # Examples
    ///
    /// ```
    /// let mu = sudog_sync::GoMutex::new();
    /// assert!(mu.try_lock());
    /// assert!(!mu.try_lock());
    /// # mu.unlock();
    /// ```
    #[inline]
    #[must_use]
    pub fn try_lock(&self) -> bool {
        let mut old = self.state.load(Relaxed);
        // A change elsewhere in the word is no reason to fail: unlike Go, we try again.
        while old & (LOCKED | STARVING) == 0 {
            match self.state.compare_exchange_weak(old, old | LOCKED, Acquire, Relaxed) {
                Ok(_) => {
                    self.report_if(old / WAITER != 0, Kind::Barge);
                    self.owner.set();
                    return true;
                }
                Err(now) => old = now,
            }
        }
        false
    }

    /// Locks the mutex unless `deadline` comes first; says whether it did. A deadline in the past makes it
    /// [`GoMutex::try_lock`], give or take a few microseconds of spinning.
    ///
    /// The deadline may be overrun by the time that an unlock takes which is under way at that moment and means us.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    ///
    /// let mu = sudog_sync::GoMutex::new();
    /// mu.lock();
    /// assert!(!mu.try_lock_until(Instant::now() + Duration::from_millis(1)));
    /// # mu.unlock();
    /// ```
    #[inline]
    #[must_use]
    #[track_caller]
    pub fn try_lock_until(&self, deadline: Instant) -> bool {
        let locked = self.lock_fast() || self.lock_slow(Some(deadline));
        if locked {
            self.owner.set();
        }
        locked
    }

    /// [`GoMutex::try_lock_until`], from now. A timeout past the end of time waits for ever.
    #[cfg(not(sudog_loom))]
    #[must_use]
    pub fn try_lock_for(&self, timeout: Duration) -> bool {
        match Instant::now().checked_add(timeout) {
            Some(deadline) => self.try_lock_until(deadline),
            None => {
                self.lock(); // past the end of time
                true
            }
        }
    }

    /// Unlocks the mutex, whoever locked it.
    ///
    /// The next owner can run before this call returns, and this call still uses the mutex: it must not be freed until
    /// the call has returned. References and guards see to that, raw pointers do not. Under
    /// [`Threads`] it may yield the processor.
    ///
    /// If others wait, a goroutine may give way here. If none does, the unlock is one atomic operation and never
    /// switches: a goroutine that does nothing else in a loop calls [`gosched`](sudog_runtime::goroutine) at times.
    ///
    /// An unlocked mutex cannot be unlocked: that ends the process with Go's `fatal error: sync: unlock of unlocked
    /// mutex`, which nothing can recover from.
    #[inline]
    pub fn unlock(&self) {
        self.owner.clear();
        let new = self.state.fetch_sub(LOCKED, Release).wrapping_sub(LOCKED);
        if new != 0 {
            hints::note_contention();
            if new & (LOCKED | WOKEN | STARVING) == WOKEN {
                hints::give_way_at_times::<P>();
            } else {
                self.unlock_slow(new);
            }
        }
    }

    /// One compare-exchange, whether others wait or not: an owner who locks again while they sleep pays no more.
    ///
    /// Which one is a guess from this thread's last unlocks. To look at the word first would cost the uncontended path,
    /// as the load must wait for the unlock before it; to compare with 0 first, the contended one:
    /// `docs/performance.md`.
    #[inline(always)]
    fn lock_fast(&self) -> bool {
        let expect = |old| self.state.compare_exchange(old, old | LOCKED, Acquire, Relaxed).is_ok();
        hints::guess(|contended| {
            if !contended.get() {
                return expect(0);
            }
            let old = self.state.load(Relaxed);
            contended.set(old != 0);
            let locked = old & (LOCKED | STARVING) == 0 && expect(old);
            self.report_if(locked && old / WAITER != 0, Kind::Barge);
            locked
        })
    }

    /// Whether somebody holds the mutex at this moment.
    #[inline]
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.state.load(Relaxed) & LOCKED != 0
    }

    /// How many sleep on the mutex, or are about to, at this moment. For tests and the curious.
    #[must_use]
    pub fn waiters(&self) -> u32 {
        self.state.load(Relaxed) / WAITER
    }

    /// Whether the mutex is in starvation mode at this moment. For tests and the curious.
    #[must_use]
    pub fn is_starving(&self) -> bool {
        self.state.load(Relaxed) & STARVING != 0
    }
}

// SAFETY: L is set by one contender at a time: by a compare-exchange from a state without it, or by `accept`, for which
// the semaphore grants one permit while S keeps everybody else from setting it. `docs/orderings.md` has the rest.
unsafe impl<S: Semaphore, P: Policy> RawLock for GoMutex<S, P> {
    /// Nothing to remember, and any thread may unlock, as in Go.
    type Guard = ();

    const DEADLINES: bool = S::DEADLINES;

    fn new() -> Self {
        Self { state: AtomicU32::new(0), sema: S::new(0), owner: Owner::NOBODY, policy: PhantomData }
    }

    #[inline]
    #[track_caller]
    fn lock(&self) {
        Self::lock(self);
    }

    #[inline]
    fn try_lock(&self) -> Option<()> {
        Self::try_lock(self).then_some(())
    }

    #[inline]
    fn try_lock_until(&self, deadline: Instant) -> Option<()> {
        Self::try_lock_until(self, deadline).then_some(())
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
    /// [`GoMutex::lock`] as a future, for async tasks: they stand in the same line as threads and goroutines.
    ///
    /// See [`LockFuture`] for what dropping it does.
    ///
    /// # Examples
    ///
    /// ```
    /// use sudog_sync::GoMutex;
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

// SAFETY: `LockFuture` locks as `lock` does, once, when it is ready; and unlocks whatever it has been given if it is
// dropped before.
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
        Self::unlocked()
    }
}

impl<S, P> fmt::Debug for GoMutex<S, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.load(Relaxed);
        f.debug_struct("GoMutex")
            .field("locked", &(state & LOCKED != 0))
            .field("woken", &(state & WOKEN != 0))
            .field("starving", &(state & STARVING != 0))
            .field("waiters", &(state / WAITER))
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "go_mutex_tests.rs"]
mod tests;
