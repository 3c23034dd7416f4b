//! An action that runs only at some of its calls: for example, to write only some log lines.

use std::fmt;
use std::sync::PoisonError;
use std::time::{Duration, Instant};
use sudog_runtime::shim::system::Mutex;

use crate::now;

/// An action that runs only at some of its calls: at the first `n`, at every `n`th, and after an interval. Go's
/// `rate.Sometimes`.
///
/// # Examples
///
/// ```
/// use sudog::x::rate::Sometimes;
///
/// static LOUD: Sometimes = Sometimes::new().first(1).every(10);
///
/// let mut lines = 0;
/// for _ in 0..21 {
///     LOUD.do_(|| lines += 1);
/// }
/// assert_eq!(lines, 3); // the first, the 11th, the 21st
/// ```
pub struct Sometimes {
    first: u64,
    every: u64,
    interval: Duration,
    state: Mutex<State>,
}

struct State {
    /// The number of calls.
    count: u64,
    /// The time at which the action last ran.
    last: Option<Instant>,
}

impl Sometimes {
    /// Creates an action without a condition, which runs at the first call only, as in Go. Add at least one condition.
    #[must_use]
    pub const fn new() -> Self {
        let state = Mutex::new(State { count: 0, last: None });
        Self { first: 0, every: 0, interval: Duration::ZERO, state }
    }

    /// Runs the action at the first `n` calls.
    #[must_use]
    pub const fn first(mut self, n: u64) -> Self {
        self.first = n;
        self
    }

    /// Runs the action at the first call, and at each `n`th call after the first.
    #[must_use]
    pub const fn every(mut self, n: u64) -> Self {
        self.every = n;
        self
    }

    /// Runs the action at the first call, and at each call that comes at least `d` after the action last ran.
    #[must_use]
    pub const fn interval(mut self, d: Duration) -> Self {
        self.interval = d;
        self
    }

    /// Calls `f`, if one of the conditions holds.
    ///
    /// Different from Go: `f` runs outside of the lock. So `f` may take time, call `do_` again, and run at the same
    /// time as the `f` of another call; and a slow action keeps no caller waiting. A call is counted when it begins,
    /// even if `f` panics. An interval lasts from the beginning of `f`, not from its end.
    pub fn do_(&self, f: impl FnOnce()) {
        if self.is_due() {
            f();
        }
    }

    fn is_due(&self) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner); // nothing panics under the lock
        let count = state.count;
        state.count += 1;
        let is_long_ago = || state.last.is_none_or(|last| now().saturating_duration_since(last) >= self.interval);
        let due = count == 0
            || count < self.first
            || self.every > 0 && count.is_multiple_of(self.every)
            || !self.interval.is_zero() && is_long_ago();
        if due && !self.interval.is_zero() {
            state.last = Some(now());
        }
        due
    }
}

impl Default for Sometimes {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Sometimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sometimes")
            .field("first", &self.first)
            .field("every", &self.every)
            .field("interval", &self.interval)
            .finish_non_exhaustive()
    }
}
