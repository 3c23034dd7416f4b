//! Sends and receives that give up at a limit of any kind, for all kinds of handles.

use std::time::Duration;

use super::core::Core;
use super::error::GaveUp;
use super::recv::NotReceived;
use super::select::{nothing_comes, recv_cancellable, send_cancellable};
use super::send::NotSent;
use crate::goroutine::now;
use crate::sema::{WaitError, WaitLimit};

/// The reason why a send with a limit has failed.
pub(super) enum Unsent<T> {
    Closed(T),
    GaveUp(GaveUp<T>),
}

/// The reason why a receive with a limit has failed.
pub(super) enum Unreceived {
    Closed,
    GaveUp(WaitError),
}

/// Sends a value, and gives up at the limit. Without a channel (a nil channel), just waits for the limit.
pub(super) fn send<T>(core: Option<&Core<T>>, value: T, limit: &WaitLimit<'_>) -> Result<(), Unsent<T>> {
    let gave_up = |value, why| Err(Unsent::GaveUp(GaveUp { value, why }));
    let Some(core) = core else { return gave_up(value, nothing_comes("chan send (nil chan)", limit)) };
    if limit.cancel.is_some() {
        return send_cancellable(core, value, limit);
    }
    core.send(value, limit.deadline, |why, value| match why {
        NotSent::Closed => Unsent::Closed(value),
        NotSent::TimedOut | NotSent::Full => Unsent::GaveUp(GaveUp { value, why: WaitError::TimedOut }),
    })
}

/// Receives a value, and gives up at the limit. Without a channel (a nil channel), just waits for the limit.
pub(super) fn recv<T>(core: Option<&Core<T>>, limit: &WaitLimit<'_>) -> Result<T, Unreceived> {
    let Some(core) = core else { return Err(Unreceived::GaveUp(nothing_comes("chan receive (nil chan)", limit))) };
    if limit.cancel.is_some() {
        return recv_cancellable(core, limit);
    }
    core.recv(limit.deadline, |why| match why {
        NotReceived::Closed => Unreceived::Closed,
        NotReceived::TimedOut | NotReceived::Empty => Unreceived::GaveUp(WaitError::TimedOut),
    })
}

/// Returns a limit whose deadline is `d` from now. If the clock cannot represent that time, the limit has no deadline.
pub(super) fn within(d: Duration) -> WaitLimit<'static> {
    WaitLimit { deadline: now().checked_add(d), cancel: None }
}
