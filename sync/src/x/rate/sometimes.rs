//! An action that is done at times only: for log lines, for instance.

use std::fmt;
use std::sync::PoisonError;
use std::time::{Duration, Instant};
use sudog_runtime::shim::system::Mutex;

use crate::now;

/// Does an action at some calls only: at the first so many, at every so-manyth, and after so long a time. Go's
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
    /// Calls.
    count: u64,
    /// When the action was last done.
    last: Option<Instant>,
}

impl Sometimes {
    /// Without a condition: the action is done at the first call alone, as in Go. Add one or more.
    #[must_use]
    pub const fn new() -> Self {
        let state = Mutex::new(State { count: 0, last: None });
        Self { first: 0, every: 0, interval: Duration::ZERO, state }
    }

    /// At the first `n` calls.
    #[must_use]
    pub const fn first(mut self, n: u64) -> Self {
        self.first = n;
        self
    }

    /// At the first call, and each `n`th after it.
    #[must_use]
    pub const fn every(mut self, n: u64) -> Self {
        self.every = n;
        self
    }

    /// At the first call, and if the action was last done so long ago.
    #[must_use]
    pub const fn interval(mut self, d: Duration) -> Self {
        self.interval = d;
        self
    }

    /// Calls `f`, if one of the conditions holds.
    ///
    /// Different from Go: `f` runs outside of the lock. So it may take its time, call this again, and run beside
    /// another call's; and a slow action keeps no caller waiting. A call counts when it begins: also if its `f` panics, and
    /// an interval lasts from the beginning of `f`, not from its end.
    pub fn do_(&self, f: impl FnOnce()) {
        if self.is_due() {
            f();
        }
    }

    fn is_due(&self) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner); // nothing panics under it
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
