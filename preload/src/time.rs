//! Deadlines: POSIX's, on a clock, as instants.

use std::time::{Duration, Instant};

use libc::{c_int, clockid_t, timespec};

/// Returns whether a clock is one of the two that glibc's timed functions allow.
pub fn is_known(clock: clockid_t) -> bool {
    clock == libc::CLOCK_REALTIME || clock == libc::CLOCK_MONOTONIC
}

/// A moment on a clock.
#[derive(Clone, Copy, Debug)]
pub struct Until {
    clock: clockid_t,
    time: timespec,
}

impl Until {
    /// Returns the moment.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the clock is neither of glibc's two, or if the nanoseconds are out of their range.
    ///
    /// # Safety
    ///
    /// `time` points to a time.
    pub unsafe fn new(clock: clockid_t, time: *const timespec) -> Result<Self, c_int> {
        // SAFETY: `time` points to a time, by the contract of `new`.
        let time = unsafe { *time };
        if is_known(clock) && (0..1_000_000_000).contains(&time.tv_nsec) {
            Ok(Self { clock, time })
        } else {
            Err(libc::EINVAL)
        }
    }

    /// Returns the time until the moment, and `None` if the moment has passed.
    pub fn left(self) -> Option<Duration> {
        let mut now = timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `now` is a `timespec` that the call may write to; the clock is one of the two that always exist.
        unsafe { libc::clock_gettime(self.clock, &raw mut now) };
        let nanos = |time: timespec| i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec);
        let left = u128::try_from(nanos(self.time) - nanos(now)).ok().filter(|&left| left > 0)?;
        Some(Duration::new(u64::try_from(left / 1_000_000_000).unwrap_or(u64::MAX), (left % 1_000_000_000) as u32))
    }

    /// Calls `attempt`, which waits until an instant at most, until the moment has passed by its own clock.
    ///
    /// The wall clock may be set during a wait: if set back, the wait is repeated; if set forward, the wait ends later
    /// than the moment.
    pub fn wait(self, attempt: impl Fn(Instant) -> bool) -> bool {
        // A moment that no `Instant` can represent: wait a year, again and again.
        const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
        while let Some(left) = self.left() {
            if attempt(Instant::now() + left.min(YEAR)) {
                return true;
            }
        }
        false
    }
}
