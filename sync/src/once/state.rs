//! Go's `Once`: a state word, and a semaphore for the waiters.
//!
//! ```text
//!   31                                           2     1       0
//!  ┌──────────────────────────────────────────────┬─────────┬──────┐
//!  │ waiters                                      │ RUNNING │ DONE │    all 0: new
//!  └──────────────────────────────────────────────┴─────────┴──────┘
//! ```
//!
//! | step | actor | transition | effect |
//! |---|---|---|---|
//! | a new word becomes `RUNNING` | the first `do_` | `begin` | runs its function |
//! | `waiters += 1`, then takes a permit | a `do_` that finds `RUNNING` | `add_waiter` | waits |
//! | the word becomes `DONE`, then each waiter is granted a permit, which no newcomer can take | the first `do_`, when its function has returned or panicked | `finish` | all waiters go on |
//! | `waiters -= 1`; or takes its permit, if the word is `DONE` | a waiter whose limit has come | `remove_waiter` | gives up |
//!
//! In the state `DONE` the count of waiters is 0, and the word does not change any more. So the fast path is one load
//! and one comparison.
//!
//! The `Once` may be freed when all waiters have returned and the word is known to be `DONE`. The runner does not
//! access the `Once` after setting `DONE` without waiters, or after giving the last waiter its permit.
//!
//! Orderings: the swap to `DONE` is a Release, and callers read `DONE` with Acquire. The semaphore orders the waiters:
//! everything before the release of a permit happens before everything after its acquisition. All other changes of the
//! word publish nothing.
//!
//! The count of waiters has 30 bits. Each waiter has a stack, so memory does not suffice for that many waiters.
//!
//! Source: Go's `sync/once.go`, in the development tree of 1.28; Go uses a flag and a mutex.

use std::fmt;
use std::sync::atomic::Ordering::{self, Acquire, Relaxed, Release};

use sudog_runtime::AtomicU32;
use sudog_runtime::const_unless_model;
use sudog_runtime::sema::{
    Cancel, IntoLimit, Order, WaitError, WaitLimit, semacquire, semacquire_limited, semgrant_many,
};

const DONE: u32 = 1;
const RUNNING: u32 = 2;
/// The amount by which a waiter increases the word: the lowest bit of the count.
const WAITER: u32 = 4;

/// The value of the state word.
#[derive(Clone, Copy, PartialEq, Eq)]
struct State(u32);

/// Predicates.
impl State {
    /// No function has begun.
    const NEW: Self = Self(0);
    /// A function runs, and no caller waits.
    #[cfg(not(sudog_loom))]
    const BEGUN: Self = Self(RUNNING);
    /// The function has ended: the last state.
    const DONE: Self = Self(DONE);

    #[inline]
    const fn is_new(self) -> bool {
        self.0 == Self::NEW.0
    }

    #[inline]
    const fn is_done(self) -> bool {
        self.0 == Self::DONE.0
    }

    #[inline]
    const fn waiters(self) -> u32 {
        self.0 / WAITER
    }
}

/// Transitions: from the state that they are called on, to the state that they return.
impl State {
    /// The first caller runs its function.
    #[inline]
    const fn begin(self) -> Self {
        Self(self.0 + RUNNING)
    }

    /// Counts a caller that waits until the function has ended.
    #[inline]
    const fn add_waiter(self) -> Self {
        Self(self.0 + WAITER)
    }

    /// A waiter gives up, while the function runs.
    #[inline]
    const fn remove_waiter(self) -> Self {
        Self(self.0 - WAITER)
    }
}

/// The state word. The caller of a method gives the ordering, and is the place that the models name.
struct AtomicState(AtomicU32);

impl AtomicState {
    const_unless_model! {
        const fn new(state: State) -> Self {
            Self(AtomicU32::new(state.0))
        }
    }

    #[inline(always)]
    #[track_caller]
    fn load(&self, order: Ordering) -> State {
        State(self.0.load(order))
    }

    #[inline(always)]
    #[track_caller]
    fn compare_exchange_weak(&self, old: State, new: State, ok: Ordering, err: Ordering) -> Result<State, State> {
        self.0.compare_exchange_weak(old.0, new.0, ok, err).map(State).map_err(State)
    }

    /// Ends the function, takes all waiters off the count, and returns the state before that.
    #[inline(always)]
    #[track_caller]
    fn finish(&self, order: Ordering) -> State {
        State(self.0.swap(State::DONE.0, order))
    }
}

/// Runs a function once.
///
/// The first [`do_`](Once::do_) runs its function. Concurrent callers wait until that function has ended. Later callers
/// return at once, at the cost of a load. Everything that the function does happens before the return of every call.
///
/// A goroutine that has run for long, and has run its function here, yields after the function has ended. A call that
/// finds the `Once` done never switches to another goroutine.
///
/// A function that panics counts as done, as in Go: the panic goes to the caller that ran the function, the other
/// callers return, and no function will run any more. (`std`'s `Once` would be poisoned.) A function that calls
/// [`goexit`](sudog_runtime::goroutine) also counts as done. To give the panic to all callers, use a
/// [`OnceFunc`](crate::OnceFunc).
///
/// A function that calls `do_` on its own `Once` waits for itself for ever. If nothing else can run, the deadlock
/// report shows the function's goroutine in `sync.Once.Do`.
///
/// Go: `sync.Once`.
///
/// # Examples
///
/// ```
/// use sudog::sync::Once;
///
/// static SETUP: Once = Once::new();
///
/// std::thread::scope(|s| {
///     for _ in 0..3 {
///         s.spawn(|| SETUP.do_(|| println!("printed once")));
///     }
/// });
/// assert!(SETUP.is_done());
/// ```
pub struct Once {
    state: AtomicState,
    permits: AtomicU32,
}

impl Once {
    const_unless_model! {
        /// Creates a `Once` that has run no function yet.
        #[must_use]
        pub const fn new() -> Self {
            Self { state: AtomicState::new(State::NEW), permits: AtomicU32::new(0) }
        }
    }

    /// Runs `f` if this is the first call; otherwise waits until the function of the first call has ended.
    ///
    /// Go: `Once.Do`; `do` is a keyword of Rust.
    ///
    /// # Panics
    ///
    /// Panics if this call runs `f`, and `f` panics.
    ///
    /// # Examples
    ///
    /// ```
    /// use sudog::sync::Once;
    ///
    /// let (once, mut runs) = (Once::new(), 0);
    /// once.do_(|| runs += 1);
    /// once.do_(|| runs += 1);
    /// assert_eq!(runs, 1);
    /// ```
    #[inline]
    pub fn do_<F: FnOnce()>(&self, f: F) {
        if !self.is_done() {
            let ended = self.do_slow(f, &WaitLimit::default());
            debug_assert_eq!(ended, Ok(()));
        }
    }

    /// Does the same as [`Once::do_`], but waits for another caller's function only until `limit` ends the wait: see
    /// [`IntoLimit`]. If this call runs `f`, `f` runs to its end, even past the limit.
    ///
    /// # Errors
    ///
    /// The error says which limit came first. If `limit` has been cancelled before the call, or is a context that is
    /// done, `f` does not run. If the function has ended before the call, the result is `Ok`, whatever the limit.
    ///
    /// # Panics
    ///
    /// Panics if this call runs `f`, and `f` panics.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use sudog::sync::Once;
    /// use sudog::{Cancel, WaitError};
    ///
    /// let (once, stop) = (Once::new(), Cancel::new());
    /// stop.cancel();
    /// assert_eq!(once.do_limited(|| unreachable!(), &stop), Err(WaitError::Cancelled));
    /// let again = || once.do_limited(|| unreachable!(), Duration::from_millis(1));
    /// once.do_(|| assert_eq!(again(), Err(WaitError::TimedOut), "it is not done, and does not run twice"));
    /// assert_eq!(again(), Ok(()));
    /// ```
    #[inline]
    pub fn do_limited<F: FnOnce(), L: IntoLimit>(&self, f: F, limit: L) -> Result<(), L::Error> {
        if self.is_done() {
            return Ok(());
        }
        limit.limited(|limit| {
            if limit.cancel.is_some_and(Cancel::is_cancelled) {
                return Err(WaitError::Cancelled);
            }
            self.do_slow(f, limit)
        })
    }

    /// Returns whether the function has ended. If so, everything that the function did happens before the return of
    /// this call.
    ///
    /// # Examples
    ///
    /// ```
    /// use sudog::sync::Once;
    ///
    /// let once = Once::new();
    /// once.do_(|| assert!(!once.is_done()));
    /// assert!(once.is_done());
    /// ```
    #[inline]
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.state.load(Acquire).is_done()
    }

    #[cold]
    fn do_slow<F: FnOnce()>(&self, f: F, limit: &WaitLimit<'_>) -> Result<(), WaitError> {
        /// Marks the `Once` as done when this value is dropped, even by a panic.
        struct Done<'a>(&'a Once);
        impl Drop for Done<'_> {
            fn drop(&mut self) {
                self.0.finish();
            }
        }
        if self.begin_or_wait(limit)? {
            let done = Done(self);
            f();
            drop(done);
            sudog_runtime::safepoint();
        }
        Ok(())
    }

    /// Returns true if the caller must run its function, and then call [`finish`](Once::finish). Returns false if
    /// another caller's function has ended.
    fn begin_or_wait(&self, limit: &WaitLimit<'_>) -> Result<bool, WaitError> {
        let mut state = self.state.load(Acquire);
        while !state.is_done() {
            let begins = state.is_new();
            let next = if begins { state.begin() } else { state.add_waiter() };
            match self.state.compare_exchange_weak(state, next, Relaxed, Acquire) {
                Ok(_) if begins => return Ok(true),
                Ok(_) => return self.wait_counted("sync.Once.Do", limit).map(|()| false),
                Err(now) => state = now,
            }
        }
        Ok(false)
    }

    /// Waits for a permit. The caller has been counted as a waiter.
    fn wait_counted(&self, what: &'static str, limit: &WaitLimit<'_>) -> Result<(), WaitError> {
        sudog_runtime::note_wait_at(what, self);
        let ended = semacquire_limited(&self.permits, Order::Fifo, limit);
        if ended.is_err() && self.leave() { ended } else { Ok(()) }
    }

    /// Subtracts a waiter that has left the semaphore's queue from the count of waiters, and returns true. If the
    /// function has ended, the waiter has been subtracted already: in that case, takes the waiter's permit, and returns
    /// false.
    #[cold]
    fn leave(&self) -> bool {
        let mut state = self.state.load(Relaxed);
        while !state.is_done() {
            match self.state.compare_exchange_weak(state, state.remove_waiter(), Relaxed, Relaxed) {
                Ok(_) => return true,
                Err(now) => state = now,
            }
        }
        semacquire(&self.permits); // the permit is there, or on its way
        false
    }

    /// Marks the function as ended, and releases a permit to each waiter. A second call does nothing.
    pub(crate) fn finish(&self) {
        let waiters = self.state.finish(Release).waiters();
        if waiters > 0 {
            semgrant_many(&self.permits, waiters);
        }
    }
}

/// Methods for other types of this crate that contain a `Once`, and run the function themselves.
#[cfg(not(sudog_loom))]
impl Once {
    /// Creates a `Once` whose function already runs: the creator must [`finish`](Once::finish) it.
    pub(crate) const fn begun() -> Self {
        Self { state: AtomicState::new(State::BEGUN), permits: AtomicU32::new(0) }
    }

    /// Waits until the function, which another caller runs, has ended. The deadlock report names this wait `what`.
    pub(crate) fn wait(&self, what: &'static str, limit: &WaitLimit<'_>) -> Result<(), WaitError> {
        let mut state = self.state.load(Acquire);
        while !state.is_done() {
            match self.state.compare_exchange_weak(state, state.add_waiter(), Relaxed, Acquire) {
                Ok(_) => return self.wait_counted(what, limit),
                Err(now) => state = now,
            }
        }
        Ok(())
    }

    /// Returns the number of callers that wait at this moment.
    pub(crate) fn waiters(&self) -> usize {
        self.state.load(Relaxed).waiters() as usize
    }
}

/// Writes to both words, as if to free them, so that loom reports a later use of the words.
#[cfg(sudog_loom)]
impl Drop for Once {
    fn drop(&mut self) {
        self.state.0.with_mut(|_| ());
        self.permits.with_mut(|permits| assert!(std::thread::panicking() || *permits == 0, "a permit was left behind"));
    }
}

impl Default for Once {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Once {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.load(Relaxed);
        let name = if state.is_new() {
            "new"
        } else if state.is_done() {
            "done"
        } else {
            "running"
        };
        f.debug_struct("Once").field("state", &format_args!("{name}")).field("waiters", &state.waiters()).finish()
    }
}

#[cfg(all(test, not(sudog_loom)))]
mod tests {
    use super::*;

    fn fields(state: State) -> (bool, bool, u32) {
        (state.is_new(), state.is_done(), state.waiters())
    }

    #[test]
    fn waiters_are_counted_while_the_function_runs() {
        assert_eq!(fields(State::NEW), (true, false, 0));
        let running = State::NEW.begin();
        assert!(running == State::BEGUN);
        assert_eq!(fields(running), (false, false, 0));
        let waited_for = running.add_waiter().add_waiter();
        assert_eq!(fields(waited_for), (false, false, 2));
        assert_eq!(fields(waited_for.remove_waiter()), (false, false, 1));
        assert!(waited_for.remove_waiter().remove_waiter() == running);
    }

    #[test]
    fn the_end_takes_all_waiters_off() {
        for running in [State::BEGUN, State::BEGUN.add_waiter(), State(RUNNING + u32::MAX / WAITER * WAITER)] {
            let word = AtomicState::new(running);
            assert!(word.finish(Relaxed) == running);
            assert_eq!(fields(word.load(Relaxed)), (false, true, 0));
            assert!(word.finish(Relaxed) == State::DONE, "a second call finds no waiter");
        }
    }
}
