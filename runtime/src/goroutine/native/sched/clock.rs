//! The coarse clock of waits.

use crate::shim::system::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How often the watcher looks, and how long a goroutine may run.
pub(crate) const TICK: Duration = Duration::from_millis(10);

/// Milliseconds since the watcher started, as of its last look: the time at which a wait begins, without a system call.
static COARSE: AtomicU64 = AtomicU64::new(0);

/// The time as of the watcher's last look: milliseconds since it started.
#[inline]
pub(crate) fn coarse_now() -> u64 {
    COARSE.load(Ordering::Relaxed)
}

/// By the watcher.
pub(crate) fn set_coarse(since_start: Duration) {
    COARSE.store(since_start.as_millis() as u64, Ordering::Relaxed);
}
