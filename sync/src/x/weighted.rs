//! x/sync's weighted semaphore: tokens under a short lock, and a wait list of acquirers that want more than there are.
//!
//! ```text
//!   Weighted
//!     size
//!     lock: held, and the line:   Waiter ⇄ Waiter ⇄ ... ⇄ Waiter     each on its waiter's stack,
//!                                  first                   last       with a counter to wait on
//! ```
//!
//! | step | actor | under the lock | then |
//! |---|---|---|---|
//! | take | an acquire, if the list is empty and its tokens are free | `held +=` its tokens | |
//! | join | any other acquire | a `Waiter` at the end: `Queued` | waits for a permit on its own counter |
//! | give | a release; a waiter that leaves from the front | `held -=`; while the first in line fits: unlinks it, `Granted`, `held +=` its tokens | gives a permit to each of them |
//! | leave | a waiter whose limit has come, or that is unwound | if it is `Queued`: unlinks itself, `Left` | takes its permit if it was `Granted`; it is there, or on its way |
//!
//! While the list has a waiter, the first one's tokens are not free. So only an acquire without waiters takes, and a
//! waiter that leaves from behind the first changes nothing for the others.
//!
//! A waiter is freed when it has taken its permit, or has `Left`. So the giver does not touch it after the grant; and a
//! waiter that has been `Granted` cannot go before that grant.
//!
//! Source: `golang.org/x/sync/semaphore` of 2026-02.

mod held;
mod line;

use std::fmt;
use std::ptr;

use sudog_runtime::const_unless_model;
use sudog_runtime::sema::{Cancel, Order, WaitError, WaitLimit, semacquire, semacquire_limited};
use sudog_runtime::shim::{Mutex, MutexGuard};
use sudog_runtime::{AtomicU32, Instant};

pub use held::Held;
use line::{Place, State, Waiter};

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
/// gives up at the moment at which it is given tokens passes them on. A deadline limits waiting only: tokens that are
/// free are taken whatever the time.
///
/// No wait allocates. What was done before a release happens before what follows an acquisition that its tokens went to.
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
    state: Mutex<State>,
}

impl Weighted {
    const_unless_model! {
        /// A semaphore of so many tokens, all of them free.
        #[must_use]
        pub const fn new(size: u64) -> Self {
            Self { size, state: Mutex::new(State::new()) }
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
    pub fn acquire_limited(&self, tokens: u64, limit: &WaitLimit<'_>) -> Result<(), WaitError> {
        let mut state = self.state.lock();
        // Under the lock: a cancel before a release is seen by an acquire that finds the tokens of that release.
        if is_cancelled(limit) {
            return Err(WaitError::Cancelled);
        }
        if state.take(tokens, self.size) {
            return Ok(());
        }
        if tokens > self.size {
            drop(state);
            return wait_for_ever(limit);
        }
        self.wait_in_line(state, tokens, limit)
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
    #[must_use]
    pub fn try_acquire(&self, tokens: u64) -> bool {
        self.state.lock().take(tokens, self.size)
    }

    /// Gives `tokens` tokens back, and serves the first in line for as long as there are enough for them. The number
    /// need not be that of an acquisition, nor the caller the one that acquired.
    ///
    /// A goroutine that has run for long gives way here, after the tokens have been given.
    ///
    /// # Panics
    ///
    /// If so many are not held, with Go's words; nothing has changed then. (In Go, the tokens are gone.)
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
    #[track_caller]
    pub fn release(&self, tokens: u64) {
        let mut state = self.state.lock();
        let Some(held) = state.held.checked_sub(tokens) else {
            drop(state);
            panic!("semaphore: released more than held");
        };
        state.held = held;
        let granted = state.grant(self.size);
        drop(state);
        granted.wake();
        sudog_runtime::safepoint();
    }

    /// How many stand in line at this moment. For tests and the curious: it costs a walk along the line, under the lock.
    #[must_use]
    pub fn waiters(&self) -> usize {
        self.state.lock().len()
    }

    #[cold]
    fn wait_in_line(
        &self,
        mut state: MutexGuard<'_, State>,
        tokens: u64,
        limit: &WaitLimit<'_>,
    ) -> Result<(), WaitError> {
        /// A goroutine that is unwound leaves its sleep by a panic.
        struct Unwound<'a>(&'a Weighted, &'a Waiter);
        impl Drop for Unwound<'_> {
            #[cold]
            fn drop(&mut self) {
                if !self.0.leave(self.1) {
                    self.0.release(self.1.tokens);
                }
            }
        }
        let waiter = Waiter::new(tokens);
        // SAFETY: it does not move, and this frame is left only when it is no more in line: its permit is given after it
        // has been unlinked, and `leave` unlinks it, or waits for that permit.
        unsafe { state.push(&waiter) };
        let unwound = Unwound(self, &waiter);
        drop(state);
        // SAFETY: null.
        unsafe { sudog_runtime::note_wait(WHAT, ptr::null()) };
        let ended = semacquire_limited(&waiter.permit, Order::Fifo, limit);
        let left = ended.is_err() && self.leave(&waiter);
        std::mem::forget(unwound);
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

    /// True if the waiter is no more in line, and has no tokens. False if it had been granted them; it has them now.
    ///
    /// Should this be unwound, it is to be called again.
    #[cold]
    fn leave(&self, waiter: &Waiter) -> bool {
        let mut state = self.state.lock();
        match waiter.place.get() {
            Place::Left => return true,
            Place::Granted => {
                drop(state);
                semacquire(&waiter.permit); // there, or on its way
                return false;
            }
            Place::Queued => {}
        }
        let granted = state.remove(waiter, self.size);
        drop(state);
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

fn is_cancelled(limit: &WaitLimit<'_>) -> bool {
    limit.cancel.is_some_and(Cancel::is_cancelled)
}

impl fmt::Debug for Weighted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        let (held, waiters) = (state.held, state.len());
        drop(state);
        let mut all = f.debug_struct("Weighted");
        all.field("size", &self.size).field("held", &held).field("waiters", &waiters).finish()
    }
}
