//! The pace of the looks at the clock: which calls and which yields of a worker read the clock. See `preempt.rs`.

use std::cell::Cell;
use std::time::Duration;

use crate::Instant;
use crate::shim::system;

/// The greatest number of calls of a slice between two looks at the clock.
const MOST_CALLS: u32 = 64;
/// The greatest number of yields between two looks at the clock, if timers are set and the yields follow each other
/// fast.
const MOST_YIELDS: u32 = 16;
/// Two yields that have read the clock follow each other fast if they are less than this time apart.
const FAST: Duration = Duration::from_micros(50);

/// The pace at which calls and yields read the clock. Not each of them does: reading the clock takes longer than most
/// calls and yields.
pub(crate) struct Pace {
    /// The number of calls since the slice began, or since the last look.
    calls: Cell<u32>,
    /// The number of calls from a look to the next look: 1 when the watcher has asked, and twice as many after each
    /// look.
    every_calls: Cell<u32>,
    /// The number of yields, while timers are set, since the last yield that read the clock.
    yields: Cell<u32>,
    /// The number of such yields from a look to the next look. Doubled after each look that follows the last look fast.
    every_yields: Cell<u32>,
    /// The time when a yield last read the clock.
    looked: Cell<Option<Instant>>,
}

impl Pace {
    pub(crate) const fn new() -> Self {
        Self {
            calls: Cell::new(0),
            every_calls: Cell::new(MOST_CALLS),
            yields: Cell::new(0),
            every_yields: Cell::new(1),
            looked: Cell::new(None),
        }
    }

    #[inline]
    pub(crate) fn slice_begins(&self) {
        self.calls.set(0);
    }

    /// Counts a call. Returns true if the call is to look at the clock.
    #[inline(always)]
    pub(super) fn count_call(&self) -> bool {
        let calls = self.calls.get() + 1;
        self.calls.set(calls);
        calls >= self.every_calls.get()
    }

    /// Has the next call and the next yield look at the clock. Called when the watcher has asked. Goroutines may
    /// compute for long between two calls, so the looks after that come soon, too.
    pub(super) fn look_soon(&self) {
        self.every_calls.set(1);
        self.every_yields.set(1);
    }

    /// Notes that a call looks at the clock.
    pub(super) fn call_looks(&self) {
        self.calls.set(0);
        self.every_calls.set((2 * self.every_calls.get()).min(MOST_CALLS));
    }

    /// Counts a yield. Returns the present time if the yield is to look for timers that are due.
    pub(super) fn count_yield(&self) -> Option<Instant> {
        let yields = self.yields.get() + 1;
        self.yields.set(yields);
        if yields < self.every_yields.get() {
            return None;
        }
        self.yields.set(0);
        let now = system::now();
        let is_fast = self.looked.replace(Some(now)).is_some_and(|looked| now.saturating_duration_since(looked) < FAST);
        self.every_yields.set(if is_fast { (2 * self.every_yields.get()).min(MOST_YIELDS) } else { 1 });
        Some(now)
    }
}
