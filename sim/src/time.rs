//! The clock.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::machine::{is_simulated, now_ns, sleep_until};

/// Returns the point of time at which all machines begin.
fn epoch() -> Instant {
    static EPOCH: OnceLock<Instant> = OnceLock::new();
    *EPOCH.get_or_init(Instant::now)
}

/// Returns the current time: simulated time inside a simulation.
#[must_use]
pub fn now() -> Instant {
    if is_simulated() { epoch() + Duration::from_nanos(now_ns()) } else { Instant::now() }
}

/// Returns the nanoseconds from the machine's beginning to `time`.
pub(crate) fn ns_of(time: Instant) -> u64 {
    u64::try_from(time.saturating_duration_since(epoch()).as_nanos()).unwrap_or(u64::MAX)
}

/// The counterpart of `std`'s `sleep`.
pub fn sleep(time: Duration) {
    if is_simulated() {
        sleep_until(ns_of(now() + time));
    } else {
        std::thread::sleep(time);
    }
}
