//! x/sync's weighted semaphore: a word of tokens, and a wait list of acquirers that want more than there are.
//!
//! ```text
//!   63        62                                     0
//!  ┌─────────┬────────────────────────────────────────┐
//!  │ WAITERS │ held: tokens that have been acquired   │      the line, under a lock:
//!  └─────────┴────────────────────────────────────────┘        Waiter ⇄ Waiter ⇄ ... ⇄ Waiter    each on its waiter's stack,
//!                                                               first                   last      with a counter to wait on
//! ```
//!
//! | step | actor | condition | the word | then |
//! |---|---|---|---|---|
//! | take | an acquire | no `WAITERS`; its tokens are free | `held +=` its tokens | |
//! | give back | a release | no `WAITERS` | `held -=` its tokens | |
//! | join | an acquire that waits, of no more tokens than there can be, under the lock | | `WAITERS` | a `Waiter` at the end; waits for a permit on its own counter |
//! | grant | a release, under the lock | `WAITERS` | `held -=` its tokens; while the first in line fits: `held +=` that one's tokens; no `WAITERS` if none is left | unlinks them, `granted`; unlocks; gives a permit to each |
//! | leave | a waiter whose limit has come, under the lock | it is not `granted` | as for a grant | unlinks itself. If it was `granted`, it takes its permit, which is there or on its way |
//!
//! * `WAITERS` says that the line is not empty, whenever the lock is free. It is set by a compare-exchange, as any take or
//!   release may come in between; while it is set, only the holder of the lock writes the word, by plain stores.
//! * While it is set, the first one's tokens are not free. So only an acquire without waiters takes, and a waiter that
//!   leaves from behind the first changes nothing for the others.
//! * A waiter is freed when it has taken its permit, or has left. So the giver does not touch it after the grant; and a
//!   waiter that has been `granted` cannot go before that permit.
//!
//! Orderings. What was done before a release happens before what follows an acquire that its tokens went to: a release
//! writes the word with Release, a take reads it with Acquire, and the compare-exchanges in between are of one release
//! sequence. Plain stores break that sequence, so a holder of the lock comes after all that it had: `WAITERS` is set with
//! Acquire, by a holder of the lock before. A grant passes that on by its permit.
//!
//! A cancel before a release is to be seen by an acquire that takes the tokens of that release (Go's issue 63615). So an
//! acquire asks for it once more when it has its tokens, and gives them back if so.
//!
//! Source: `golang.org/x/sync/semaphore` of 2026-02, which has a mutex around each step.

mod held;
mod line;

use std::fmt;
use std::ptr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use sudog_runtime::const_unless_model;
use sudog_runtime::sema::{Cancel, Order, WaitError, WaitLimit, semacquire, semacquire_limited};
use sudog_runtime::shim::{Mutex, MutexGuard};
use sudog_runtime::{AtomicU32, AtomicU64, Instant};

pub use held::Held;
use line::{Granted, Line, Waiter};

#[cfg(all(unix, not(sudog_loom)))]
use crate::context;

/// A semaphore with a number of tokens, of which each acquisition takes as many as it likes.
///
/// Waiters are served strictly in turn: a waiter for many tokens is not passed by waiters for few, even if those are
/// free. So a semaphore of `n` tokens makes a lock for `n` readers (of one token) or a writer (of `n`) without
/// starvation. A request larger than the semaphore waits until it is cancelled or times out; it does not block other
/// waiters.
///
/// With a context that is done, or a handle that is cancelled, an acquire fails even if tokens are free. A waiter that
/// gives up at the moment at which it is given tokens passes them on; until then they are held. A deadline limits waiting
/// only: tokens that are free are taken whatever the time.
///
/// No wait without a deadline allocates. What was done before a release happens before what follows an acquisition that
/// its tokens went to.
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
    state: AtomicU64,
    line: Mutex<Line>,
}

/// In the word: the line is not empty. More than any number of tokens, so a word with it has none that are free.
const WAITERS: u64 = 1 << 63;

impl Weighted {
    /// The most tokens that a semaphore can have: Go's sizes are of type `int64`.
    pub const MAX_SIZE: u64 = i64::MAX as u64;

    const_unless_model! {
        /// A semaphore of so many tokens, all of them free.
        ///
        /// # Panics
        ///
        /// If they are more than [`MAX_SIZE`](Self::MAX_SIZE).
        #[must_use]
        #[track_caller]
        pub const fn new(size: u64) -> Self {
            assert!(size <= Self::MAX_SIZE, "semaphore: larger than Weighted::MAX_SIZE");
            Self { size, state: AtomicU64::new(0), line: Mutex::new(Line::new()) }
        }
    }

    /// Takes `tokens` tokens; waits for them, in turn, for as long as `ctx` is not done.
    ///
    /// # Errors
    ///
    /// The context's. No token has been taken then.
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
        ctx.limited(|limit| self.acquire_limited(tokens, limit))
    }

    /// Takes `tokens` tokens; waits for them, in turn, up to a deadline at most: true if it has them. With a deadline in
    /// the past it does not wait.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use sudog::x::Weighted;
    ///
    /// let semaphore = Weighted::new(2);
    /// assert!(semaphore.acquire_until(2, Instant::now()));
    /// assert!(!semaphore.acquire_until(1, Instant::now() + Duration::from_millis(1)));
    /// ```
    #[inline]
    #[must_use = "false: the tokens did not come in time"]
    pub fn acquire_until(&self, tokens: u64, deadline: Instant) -> bool {
        self.acquire_limited(tokens, &WaitLimit::until(deadline)).is_ok()
    }

    /// Takes `tokens` tokens; waits for them, in turn, up to a [`WaitLimit`] at most.
    ///
    /// # Errors
    ///
    /// Which limit came first. No token has been taken then.
    ///
    /// # Examples
    ///
    /// ```
    /// use sudog::runtime::sema::{Cancel, WaitError, WaitLimit};
    /// use sudog::x::Weighted;
    ///
    /// let (semaphore, stop) = (Weighted::new(2), Cancel::new());
    /// let limit = WaitLimit { cancel: Some(&stop), ..WaitLimit::default() };
    /// assert_eq!(semaphore.acquire_limited(1, &limit), Ok(()));
    /// stop.cancel();
    /// assert_eq!(semaphore.acquire_limited(1, &limit), Err(WaitError::Cancelled));
    /// ```
    #[inline]
    pub fn acquire_limited(&self, tokens: u64, limit: &WaitLimit<'_>) -> Result<(), WaitError> {
        if is_cancelled(limit) {
            return Err(WaitError::Cancelled);
        }
        if self.take(tokens) { self.unless_cancelled(tokens, limit) } else { self.acquire_slow(tokens, limit) }
    }

    /// Takes `tokens` tokens, if they are free and there is no waiter. Never waits.
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

    /// Gives `tokens` tokens back, and serves the first in line for as long as there are enough for them. The number
    /// need not be that of an acquisition, nor the caller the one that acquired.
    ///
    /// A goroutine that has run for long gives way here, after the tokens have been given.
    ///
    /// # Panics
    ///
    /// If so many are not held, with Go's words; nothing has changed then. (In Go, the tokens are gone.) That they have been
    /// acquired must happen before the release, so that this call sees it.
    ///
    /// A release by mistake of tokens that another caller holds goes unnoticed, and the panic is that caller's: here, in
    /// an acquire that gives back what it was granted, or in the destructor of a [`Held`].
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
            if state & WAITERS != 0 {
                if self.release_to_waiters(tokens) {
                    break;
                }
                state = self.state.load(Relaxed);
                continue;
            }
            let Some(held) = state.checked_sub(tokens) else { released_more_than_held() };
            match self.state.compare_exchange_weak(state, held, Release, Relaxed) {
                Ok(_) => break,
                Err(now) => state = now,
            }
        }
        sudog_runtime::safepoint();
    }

    /// How many stand in line at this moment. For tests and the curious: it costs a walk along the line, under the lock.
    #[must_use]
    pub fn waiters(&self) -> usize {
        self.line.lock().len()
    }

    /// Takes tokens that are free, if there are no waiters.
    #[inline]
    fn take(&self, tokens: u64) -> bool {
        let mut state = self.state.load(Relaxed);
        while self.fits(state, tokens) {
            match self.state.compare_exchange_weak(state, state + tokens, Acquire, Relaxed) {
                Ok(_) => return true,
                Err(now) => state = now,
            }
        }
        false
    }

    /// Whether so many are free. Not if there are waiters: that bit is more than any size.
    #[inline]
    fn fits(&self, state: u64, tokens: u64) -> bool {
        self.size.checked_sub(state).is_some_and(|free| tokens <= free)
    }

    /// The caller has taken tokens, and keeps them unless there was a cancel: it may have come before the release that they
    /// are from.
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
        while state & WAITERS == 0 {
            let takes = self.fits(state, tokens);
            let new = if takes { state + tokens } else { state | WAITERS };
            // Acquire: a caller that takes comes after the releases; and so do all plain stores that follow WAITERS.
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

    /// False if there are no waiters any more.
    #[cold]
    #[track_caller]
    fn release_to_waiters(&self, tokens: u64) -> bool {
        let mut line = self.line.lock();
        // Relaxed, as in `leave`: what was written under the lock is visible; and if there are waiters, no other thread
        // writes it now.
        let state = self.state.load(Relaxed);
        if state & WAITERS == 0 {
            return false;
        }
        let Some(held) = (state & !WAITERS).checked_sub(tokens) else {
            drop(line);
            released_more_than_held()
        };
        let granted = self.grant(&mut line, held);
        drop(line);
        granted.wake();
        true
    }

    /// Takes tokens for the first in line, and unlinks them, for as long as there are enough. The lock is held, and
    /// there were waiters when it was taken.
    fn grant(&self, line: &mut Line, held: u64) -> Granted {
        let (held, granted) = line.grant(held, self.size);
        self.state.store(held | if line.is_empty() { 0 } else { WAITERS }, Release);
        granted
    }

    fn wait_in_line(
        &self,
        mut line: MutexGuard<'_, Line>,
        tokens: u64,
        limit: &WaitLimit<'_>,
    ) -> Result<(), WaitError> {
        let waiter = Waiter::new(tokens);
        // SAFETY: it does not move, and this frame is left only when it is no more in line: its permit is given after it
        // has been unlinked, and `leave` unlinks it, or waits for that permit.
        unsafe { line.push(&waiter) };
        drop(line);
        // SAFETY: the pointer is null.
        unsafe { sudog_runtime::note_wait(WHAT, ptr::null()) };
        let ended = semacquire_limited(&waiter.permit, Order::Fifo, limit);
        let left = ended.is_err() && self.leave(&waiter);
        // Whether the end or the grant came first cannot be told, nor whether a cancel came before what led to the
        // grant. By this rule, a caller that cancels and then releases can rely on it that the waiter gets none of
        // those tokens.
        let gives_up = ended.err().or_else(|| is_cancelled(limit).then_some(WaitError::Cancelled));
        let Some(why) = gives_up else { return Ok(()) };
        if !left {
            self.release(tokens);
        }
        Err(why)
    }

    /// Gives up. True if the waiter has left the line, without tokens. False if the waiter had been granted its tokens:
    /// then the waiter has them.
    #[cold]
    fn leave(&self, waiter: &Waiter) -> bool {
        let mut line = self.line.lock();
        if waiter.granted.get() {
            drop(line);
            semacquire(&waiter.permit); // there, or on its way
            return false;
        }
        line.remove(waiter);
        let granted = self.grant(&mut line, self.state.load(Relaxed) & !WAITERS);
        drop(line);
        granted.wake();
        sudog_runtime::safepoint();
        true
    }
}

const WHAT: &str = "semaphore.Weighted.Acquire";

/// More tokens than there are in all.
#[cold]
fn wait_for_ever(limit: &WaitLimit<'_>) -> Result<(), WaitError> {
    let never = AtomicU32::new(0);
    // SAFETY: null.
    unsafe { sudog_runtime::note_wait(WHAT, ptr::null()) };
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
        let (held, waiters) = (self.state.load(Relaxed) & !WAITERS, line.len());
        drop(line);
        let mut all = f.debug_struct("Weighted");
        all.field("size", &self.size).field("held", &held).field("waiters", &waiters).finish()
    }
}
