//! The coarse clock of waits.

use crate::Instant;
use crate::shim::system::OnceLock;
use crate::shim::system::atomic::{AtomicU64, Ordering};
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
