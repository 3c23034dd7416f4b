//! Timers for the contexts of `sudog-sync`.

use std::task::Waker;
use std::time::Instant;

use crate::goroutine::native::alarm::here;

/// A timer that [`alarm`] has set. The timer goes off even if this value is dropped.
#[derive(Debug)]
pub struct Alarm(here::Key);

/// Wakes `waker` at `when`, on a thread that only wakes.
///
/// No deadlock is reported until the alarm has gone off or has been called off.
#[must_use]
pub fn alarm(when: Instant, waker: Waker) -> Alarm {
    Alarm(here::set(when, waker))
}

impl Alarm {
    /// Calls the alarm off, and drops the waker, unless the waker is being woken.
    pub fn call_off(self) {
        here::cancel(self.0);
    }
}
