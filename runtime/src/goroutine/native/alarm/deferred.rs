//! Timers for the contexts of `sudog-sync`.

use std::task::Waker;
use std::time::Instant;

use crate::goroutine::native::alarm::alarms;

/// A timer that is set. Forgotten, it goes off all the same.
#[derive(Debug)]
pub struct Alarm(alarms::Key);

/// Wakes `waker` at `when`, on a thread for that.
///
/// Until then, or until it is called off, no deadlock is reported.
#[must_use]
pub fn alarm(when: Instant, waker: Waker) -> Alarm {
    Alarm(alarms::set(when, waker))
}

impl Alarm {
    /// Drops the waker, unless it is being woken.
    pub fn call_off(self) {
        alarms::cancel(self.0);
    }
}
