//! Sends and receives that give up at a limit of any kind, for all kinds of handles: the waits of a single case.

use super::core::Core;
use super::error::GaveUp;
use super::recv::NotReceived;
use super::select::case::{CoreRef, Receiving, Sending};
use super::select::{nothing_comes, wait_one};
use super::send::NotSent;
use crate::goroutine;
use crate::sema::{IntoLimit, WaitError, WaitLimit};

/// The reason why a send with a limit has failed. `E` is the error of the limit.
pub(super) enum Unsent<T, E> {
    Closed(T),
    GaveUp(GaveUp<T, E>),
}

/// Sends a value, and gives up at the limit. Without a channel (a nil channel), just waits for the limit.
pub(super) fn send<T, L: IntoLimit>(core: Option<&Core<T>>, value: T, limit: L) -> Result<(), Unsent<T, L::Error>> {
    let Some(core) = core else {
        return match limit.limited(|limit| Err(nothing_comes("chan send (nil chan)", limit))) {
            Ok(()) => unreachable!("nothing comes from a nil channel"),
            Err(why) => Err(Unsent::GaveUp(GaveUp { value, why })),
        };
    };
    let sending = Sending::empty(CoreRef(core));
    sending.put(value);
    let over = limit.limited(|limit| send_within(&sending, limit));
    result(&sending, over)
}

/// Returns the result of a send whose wait is over. Not inlined: without optimisation, a large value needs much room here,
/// which the frames of the wait would add to.
#[inline(never)]
fn result<T, E>(sending: &Sending<CoreRef<'_, T>>, over: Result<(), E>) -> Result<(), Unsent<T, E>> {
    // The slot tells whether the value was sent: with a context that is done already, no send was tried.
    let Some(value) = sending.unsent() else { return Ok(()) };
    match over {
        Ok(()) => Err(Unsent::Closed(value)),
        Err(why) => Err(Unsent::GaveUp(GaveUp { value, why })),
    }
}

/// Sends the value of `sending`, or finds that the channel is closed, or gives up at the limit. A value that is not sent
/// stays in its slot.
fn send_within<T>(sending: &Sending<CoreRef<'_, T>>, limit: &WaitLimit<'_>) -> Result<(), WaitError> {
    if limit.cancel.is_some() {
        return wait_one(sending.describe(), "chan send", limit).map(drop);
    }
    goroutine::safepoint();
    match sending.send(limit.deadline) {
        Ok(()) | Err(NotSent::Closed) => Ok(()),
        Err(NotSent::TimedOut | NotSent::Full) => Err(WaitError::TimedOut),
    }
}

/// Receives a value, and gives up at the limit. Returns `Ok(None)` if the channel is closed and has no values left.
/// Without a channel (a nil channel), just waits for the limit.
pub(super) fn recv<T, L: IntoLimit>(core: Option<&Core<T>>, limit: L) -> Result<Option<T>, L::Error> {
    let Some(core) = core else { return limit.limited(|limit| Err(nothing_comes("chan receive (nil chan)", limit))) };
    let receiving = Receiving::new(CoreRef(core));
    let over = limit.limited(|limit| recv_within(&receiving, limit));
    let received = receiving.output();
    match over {
        Err(why) if received.is_none() => Err(why),
        _ => Ok(received),
    }
}

/// Receives a value into the slot of `receiving`, or finds that the channel is closed, or gives up at the limit.
fn recv_within<T>(receiving: &Receiving<CoreRef<'_, T>>, limit: &WaitLimit<'_>) -> Result<(), WaitError> {
    if limit.cancel.is_some() {
        return wait_one(receiving.describe(), "chan receive", limit).map(drop);
    }
    goroutine::safepoint();
    match receiving.recv(limit.deadline) {
        Ok(()) | Err(NotReceived::Closed) => Ok(()),
        Err(NotReceived::TimedOut | NotReceived::Empty) => Err(WaitError::TimedOut),
    }
}
