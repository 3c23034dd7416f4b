//! x/sync's weighted semaphore: a word that counts tokens, and a wait list of acquirers that want more tokens than are
//! free. `weighted/state.rs` has the protocol.
//!
//! Source: `golang.org/x/sync/semaphore` of 2026-02, which has a mutex around each step.

mod held;
mod line;
mod state;

use std::fmt;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use sudog_runtime::AtomicU32;
use sudog_runtime::const_unless_model;
use sudog_runtime::sema::{Cancel, IntoLimit, Order, WaitError, WaitLimit, semacquire, semacquire_limited};
use sudog_runtime::shim::{Mutex, MutexGuard};

pub use held::Held;
use line::{Granted, InLine, Line, Waiter};
use state::{AtomicState, State};

#[cfg(all(unix, not(sudog_loom)))]
use crate::context;

/// A semaphore with a number of tokens. An acquisition may take several tokens at once.
///
/// Waiters are served strictly in turn: waiters for few tokens do not pass a waiter for many, even if their tokens are
/// free. So a semaphore of `n` tokens makes a lock for `n` readers (of one token each) or a writer (of `n` tokens)
/// without starvation. A request for more tokens than the semaphore has waits until the request is cancelled or times
/// out; such a request does not block other waiters.
///
/// If the context is done, or the `cancel` of the [`WaitLimit`] is cancelled, an acquire fails even if tokens are free.
/// If a waiter gives up at the moment at which tokens are granted to the waiter, it passes the tokens on, and holds
/// them until then. A deadline limits waiting only: free tokens are taken even after the deadline.
///
/// A wait without a deadline does not allocate. Everything before a release happens before everything after an
/// acquisition that gets tokens of that release.
///
/// Go: `golang.org/x/sync/semaphore.Weighted`; here weights have no sign.
///
/// # Examples
///
/// ```
/// use sudog::x::Weighted;
///
/// static READERS: Weighted = Weighted::new(8);
///
/// assert!(READERS.try_acquire(1));
/// assert!(!READERS.try_acquire(8), "there is a reader");
/// READERS.release(1);
/// ```
pub struct Weighted {
    size: u64,
    state: AtomicState,
    line: Mutex<Line>,
}

impl Weighted {
    /// The largest number of tokens that a semaphore can have: Go's sizes are of type `int64`.
    pub const MAX_SIZE: u64 = i64::MAX as u64;

    const_unless_model! {
        /// Creates a semaphore of `size` tokens, all of them free.
        ///
        /// # Panics
        ///
        /// Panics if `size` is more than [`MAX_SIZE`](Self::MAX_SIZE).
        #[must_use]
        #[track_caller]
        pub const fn new(size: u64) -> Self {
            assert!(size <= Self::MAX_SIZE, "semaphore: larger than Weighted::MAX_SIZE");
            Self { size, state: AtomicState::new(), line: Mutex::new(Line::new()) }
        }
    }

    /// Takes `tokens` tokens. Waits for the tokens, in turn, but gives up when `ctx` is done.
    ///
    /// # Errors
    ///
    /// Returns the context's error if the context is done. No token has been taken then.
    ///
    /// # Examples
    ///
    /// ```
    /// use sudog::context;
    /// use sudog::x::Weighted;
    ///
    /// let (semaphore, ctx) = (Weighted::new(8), context::background());
    /// semaphore.acquire(&ctx, 5)?;
    /// semaphore.release(5);
    /// # Ok::<(), context::Error>(())
    /// ```
    #[cfg(all(unix, not(sudog_loom)))]
    #[inline]
    pub fn acquire(&self, ctx: &context::Context, tokens: u64) -> Result<(), context::Error> {
        self.acquire_limited(tokens, ctx)
    }

    /// Takes `tokens` tokens. Waits for the tokens, in turn, until `limit` ends the wait: see [`IntoLimit`]. With a
    /// deadline in the past, does not wait.
    ///
    /// # Errors
    ///
    /// The error says which limit came first. No token has been taken then.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use sudog::x::Weighted;
    /// use sudog::{Cancel, WaitError};
    ///
    /// let (semaphore, stop) = (Weighted::new(2), Cancel::new());
    /// assert_eq!(semaphore.acquire_limited(2, Duration::ZERO), Ok(()));
    /// assert_eq!(semaphore.acquire_limited(1, Duration::from_millis(1)), Err(WaitError::TimedOut));
    /// stop.cancel();
    /// assert_eq!(semaphore.acquire_limited(1, &stop), Err(WaitError::Cancelled));
    /// ```
    #[inline]
    pub fn acquire_limited<L: IntoLimit>(&self, tokens: u64, limit: L) -> Result<(), L::Error> {
        limit.limited(|limit| {
            if is_cancelled(limit) {
                return Err(WaitError::Cancelled);
            }
            if self.take(tokens) { self.unless_cancelled(tokens, limit) } else { self.acquire_slow(tokens, limit) }
        })
    }

    /// Takes `tokens` tokens, if they are free and there is no waiter. Never waits. Returns whether the tokens have
    /// been taken.
    ///
    /// # Examples
    ///
    /// ```
    /// use sudog::x::Weighted;
    ///
    /// let semaphore = Weighted::new(2);
    /// assert!(semaphore.try_acquire(2));
    /// assert!(!semaphore.try_acquire(1));
    /// ```
    #[inline]
    #[must_use]
    pub fn try_acquire(&self, tokens: u64) -> bool {
        self.take(tokens)
    }

    /// Gives `tokens` tokens back, and serves the first waiters in line for as long as there are enough tokens.
    /// `tokens` need not equal the number of tokens of an acquisition, and the tokens may have been acquired by another
    /// caller.
    ///
    /// A goroutine that has run for long yields here, after the tokens have been given.
    ///
    /// # Panics
    ///
    /// Panics, with Go's text, if fewer than `tokens` tokens are held; nothing has changed then. (In Go, the tokens are
    /// gone.) The acquisition must happen before the release, so that this call sees the acquisition.
    ///
    /// If a caller mistakenly releases tokens that another caller holds, that release goes unnoticed. The other caller
    /// panics later: in `release`, in an acquire that gives granted tokens back, or in the destructor of a [`Held`].
    ///
    /// # Examples
    ///
    /// ```
    /// use sudog::x::Weighted;
    ///
    /// let semaphore = Weighted::new(2);
    /// assert!(semaphore.try_acquire(2));
    /// semaphore.release(1);
    /// assert!(semaphore.try_acquire(1));
    /// ```
    #[inline]
    #[track_caller]
    pub fn release(&self, tokens: u64) {
        let mut state = self.state.load(Relaxed);
        loop {
            if state.has_waiters() {
                if self.release_to_waiters(tokens) {
                    break;
                }
                state = self.state.load(Relaxed);
                continue;
            }
            let Some(left) = state.give_back(tokens) else { released_more_than_held() };
            match self.state.compare_exchange_weak(state, left, Release, Relaxed) {
                Ok(_) => break,
                Err(now) => state = now,
            }
        }
        sudog_runtime::safepoint();
    }

    /// Returns the number of waiters at this moment. For tests and debugging: the call walks along the line, under the
    /// lock.
    #[must_use]
    pub fn waiters(&self) -> usize {
        self.line.lock().len()
    }

    /// Takes `tokens` tokens, if they are free and there are no waiters. Returns whether the tokens have been taken.
    #[inline]
    fn take(&self, tokens: u64) -> bool {
        let mut state = self.state.load(Relaxed);
        while state.has_room(tokens, self.size) {
            match self.state.compare_exchange_weak(state, state.take(tokens), Acquire, Relaxed) {
                Ok(_) => return true,
                Err(now) => state = now,
            }
        }
        false
    }

    /// Keeps the tokens that the caller has taken, unless the limit has been cancelled. The cancel may have come before
    /// the release that gave back these tokens.
    #[inline]
    fn unless_cancelled(&self, tokens: u64, limit: &WaitLimit<'_>) -> Result<(), WaitError> {
        if is_cancelled(limit) {
            self.release(tokens);
            return Err(WaitError::Cancelled);
        }
        Ok(())
    }

    #[cold]
    fn acquire_slow(&self, tokens: u64, limit: &WaitLimit<'_>) -> Result<(), WaitError> {
        if tokens > self.size {
            return wait_for_ever(limit);
        }
        let line = self.line.lock();
        let mut state = self.state.load(Relaxed);
        while !state.has_waiters() {
            let takes = state.has_room(tokens, self.size);
            let new = if takes { state.take(tokens) } else { state.add_waiters() };
            // Acquire: a caller that takes tokens comes after the releases of these tokens. If this step sets
            // `WAITERS`, all plain stores that follow come after the releases, too.
            match self.state.compare_exchange_weak(state, new, Acquire, Relaxed) {
                Ok(_) if takes => {
                    drop(line);
                    return self.unless_cancelled(tokens, limit);
                }
                Ok(_) => break,
                Err(now) => state = now,
            }
        }
        self.wait_in_line(line, tokens, limit)
    }

    /// Gives tokens back while there are waiters. Returns false if there are no waiters any more.
    #[cold]
    #[track_caller]
    fn release_to_waiters(&self, tokens: u64) -> bool {
        let mut line = self.line.lock();
        // Relaxed, as in `leave`: writes under the lock are visible, and if there are waiters, no other thread writes
        // the word now.
        let state = self.state.load(Relaxed);
        if !state.has_waiters() {
            return false;
        }
        let Some(held) = state.held().checked_sub(tokens) else {
            drop(line);
            released_more_than_held()
        };
        let granted = self.grant(&mut line, held);
        drop(line);
        granted.wake();
        true
    }

    /// Takes tokens for the first waiters in line, and unlinks these waiters, for as long as there are enough tokens.
    /// The caller holds the lock, and there were waiters when the caller locked.
    fn grant(&self, line: &mut Line, held: u64) -> Granted {
        let (held, granted) = line.grant(held, self.size);
        self.state.store(State::after_grant(held, !line.is_empty()), Release);
        granted
    }

    fn wait_in_line(
        &self,
        mut line: MutexGuard<'_, Line>,
        tokens: u64,
        limit: &WaitLimit<'_>,
    ) -> Result<(), WaitError> {
        let waiter = Waiter::new(tokens);
        // SAFETY: `waiter` is new and does not move, and this function returns only when the waiter is no longer in line:
        // the permit is given after the waiter has been unlinked, and `leave` unlinks the waiter, or waits for that
        // permit. The line is a part of `self`, which is borrowed until then.
        let in_line = unsafe { line.push(&waiter) };
        drop(line);
        sudog_runtime::note_wait_at(WHAT, self);
        let ended = semacquire_limited(&waiter.permit, Order::Fifo, limit);
        let left = ended.is_err() && self.leave(in_line);
        // Look for a cancel after a grant, too. Whether the limit or the grant came first cannot be determined, nor
        // whether a cancel came before the events that led to the grant. By this rule, a caller that cancels and then
        // releases can rely on the fact that the waiter gets none of those tokens.
        let gives_up = ended.err().or_else(|| is_cancelled(limit).then_some(WaitError::Cancelled));
        let Some(why) = gives_up else { return Ok(()) };
        if !left {
            self.release(tokens);
        }
        Err(why)
    }

    /// Removes a waiter that gives up from the line, and returns true. Returns false if the waiter had been granted its
    /// tokens: in that case the waiter has the tokens.
    #[cold]
    fn leave(&self, in_line: InLine<'_>) -> bool {
        let waiter = in_line.waiter;
        let mut line = self.line.lock();
        if !line.remove(in_line) {
            drop(line);
            semacquire(&waiter.permit); // the permit is there, or on its way
            return false;
        }
        let granted = self.grant(&mut line, self.state.load(Relaxed).held());
        drop(line);
        granted.wake();
        sudog_runtime::safepoint();
        true
    }
}

const WHAT: &str = "semaphore.Weighted.Acquire";

/// Waits until the limit, for a caller that wants more tokens than the semaphore has.
#[cold]
fn wait_for_ever(limit: &WaitLimit<'_>) -> Result<(), WaitError> {
    let never = AtomicU32::new(0);
    sudog_runtime::note_wait(WHAT);
    semacquire_limited(&never, Order::Fifo, limit)
}

#[cold]
#[track_caller]
fn released_more_than_held() -> ! {
    panic!("semaphore: released more than held")
}

#[inline]
fn is_cancelled(limit: &WaitLimit<'_>) -> bool {
    limit.cancel.is_some_and(Cancel::is_cancelled)
}

impl fmt::Debug for Weighted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = self.line.lock();
        let (held, waiters) = (self.state.load(Relaxed).held(), line.len());
        drop(line);
        let mut all = f.debug_struct("Weighted");
        all.field("size", &self.size).field("held", &held).field("waiters", &waiters).finish()
    }
}
