//! The clock of the calling thread, which is a bubble's in a bubble; and the coarse clock of waits.

use crate::Instant;
use crate::shim::system;
use crate::shim::system::OnceLock;
use crate::shim::system::atomic::{AtomicU64, Ordering};
use std::cell::Cell;
use std::time::Duration;

/// The time between two looks of the watcher.
pub(crate) const TICK: Duration = Duration::from_millis(10);

/// The time of the first [`refresh`].
static BEGUN: OnceLock<Instant> = OnceLock::new();
/// The milliseconds from `BEGUN` to the last [`refresh`]. A wait that begins reads this clock, which takes no system
/// call.
static COARSE: AtomicU64 = AtomicU64::new(0);

/// Returns the time as of the last [`refresh`], in milliseconds.
#[inline]
pub(crate) fn coarse_now() -> u64 {
    COARSE.load(Ordering::Relaxed)
}

/// Returns a time on the coarse clock, exactly.
pub(crate) fn time_of(instant: Instant) -> Duration {
    instant.saturating_duration_since(*BEGUN.get_or_init(|| instant))
}

/// Sets the coarse clock to `now`. Called at each look of the watcher, by the function that rouses the watcher (which
/// sleeps while all workers sleep), and before a dump reads the clock.
pub(crate) fn refresh(now: Instant) {
    let begun = *BEGUN.get_or_init(|| now);
    COARSE.fetch_max(now.saturating_duration_since(begun).as_millis() as u64, Ordering::Relaxed);
}

system::thread_local! {
    // Constant and without a destructor, for the reasons given at `CURRENT`.
    /// The time of the bubble whose worker the calling thread is. None: the thread is in no bubble.
    static BUBBLE: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Returns the time: in a bubble, the bubble's time.
#[inline]
pub(crate) fn now() -> Instant {
    BUBBLE.with(Cell::get).unwrap_or_else(system::now)
}

/// Returns whether the calling thread is the worker of a bubble.
#[inline]
pub(crate) fn is_of_bubble() -> bool {
    BUBBLE.with(Cell::get).is_some()
}

/// Sets the time of the bubble whose worker the calling thread is, and returns the former time. None: the thread is in no
/// bubble from now on.
pub(crate) fn set_bubble(now: Option<Instant>) -> Option<Instant> {
    BUBBLE.with(|bubble| bubble.replace(now))
}

/// Converts a deadline of the bubble's clock to the system's clock, for a caller that waits until `deadline` and lets no
/// goroutine of the bubble run meanwhile. So the bubble's clock jumps, unless `is_outside_left` returns true: a source of
/// work outside of the bubble is left.
#[inline]
pub(crate) fn of_the_system(deadline: Instant, is_outside_left: impl FnOnce() -> bool) -> Instant {
    if is_of_bubble() { pass_time(deadline, is_outside_left) } else { deadline }
}

#[cold]
fn pass_time(deadline: Instant, is_outside_left: impl FnOnce() -> bool) -> Instant {
    let (system, bubble) = (system::now(), now());
    if is_outside_left() {
        return system.checked_add(deadline.saturating_duration_since(bubble)).unwrap_or(deadline);
    }
    set_bubble(Some(bubble.max(deadline)));
    system
}
