//! Alarms by the clock of the calling thread: by the bubble's clock in a bubble, else by the system's.

use std::task::Waker;
use std::time::Instant;

use crate::goroutine::native::alarm::alarms;
use crate::goroutine::native::sched::{bubble, clock};

/// The key by which [`cancel`] finds an alarm.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Key {
    System(alarms::Key),
    Bubble(bubble::Key),
}

/// Wakes `waker` at `when`, unless [`cancel`] is called before with the returned key.
pub(crate) fn set(when: Instant, waker: Waker) -> Key {
    if clock::is_of_bubble() {
        return Key::Bubble(bubble::set_alarm(when, waker));
    }
    Key::System(alarms::set(when, waker))
}

/// Cancels an alarm, and drops the alarm's waker. May be called on any thread.
pub(crate) fn cancel(key: Key) {
    match key {
        Key::System(key) => alarms::cancel(key),
        Key::Bubble(key) => bubble::cancel_alarm(key),
    }
}
