//! The errors of calls on a channel. The error of a send returns the value.

use std::fmt;

use crate::sema::WaitError;

/// The error of [`Sender::send`](super::Sender::send): the channel is closed, or no receiver is left.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SendError<T>(pub T);

/// The error of [`Sender::try_send`](super::Sender::try_send).
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum TrySendError<T> {
    /// There is no room, and no receiver waits.
    Full(T),
    /// The channel is closed, or no receiver is left.
    Closed(T),
}

/// The error of [`Sender::send_limited`](super::Sender::send_limited). `E` is the error of the limit.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum SendLimitedError<T, E = WaitError> {
    /// The channel is closed, or no receiver is left.
    Closed(T),
    /// The send gave up at its limit.
    GaveUp(GaveUp<T, E>),
}

/// A send that gave up at its limit, with its value. `E` is the error of the limit.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct GaveUp<T, E = WaitError> {
    /// The value that was not sent.
    pub value: T,
    /// The error of the limit that ended the wait.
    pub why: E,
}

/// The error of [`Receiver::recv`](super::Receiver::recv): all values have been received, and the channel is closed or
/// no sender is left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecvError;

/// The error of [`Chan::try_recv`](super::Chan::try_recv) and of [`Receiver::try_recv`](super::Receiver::try_recv).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TryRecvError {
    /// There is no value, and no sender waits with a value. (A task that sends to a buffer waits for a place in the buffer.)
    Empty,
    /// All values have been received, and the channel is closed or no sender is left.
    Closed,
}

/// The error of [`Receiver::recv_limited`](super::Receiver::recv_limited). `E` is the error of the limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecvLimitedError<E = WaitError> {
    /// All values have been received, and the channel is closed or no sender is left.
    Closed,
    /// The receive gave up at its limit. No value has been taken.
    GaveUp(E),
}

impl<T> SendError<T> {
    /// Returns the value that was not sent.
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T> TrySendError<T> {
    /// Returns the value that was not sent.
    pub fn into_inner(self) -> T {
        match self {
            Self::Full(value) | Self::Closed(value) => value,
        }
    }
}

impl<T, E> SendLimitedError<T, E> {
    /// Returns the value that was not sent.
    pub fn into_inner(self) -> T {
        match self {
            Self::Closed(value) | Self::GaveUp(GaveUp { value, .. }) => value,
        }
    }
}

/// Drops the value.
impl<T> From<GaveUp<T>> for WaitError {
    fn from(error: GaveUp<T>) -> Self {
        error.why
    }
}

impl<T> From<SendError<T>> for TrySendError<T> {
    fn from(SendError(value): SendError<T>) -> Self {
        Self::Closed(value)
    }
}

impl<T, E> From<SendError<T>> for SendLimitedError<T, E> {
    fn from(SendError(value): SendError<T>) -> Self {
        Self::Closed(value)
    }
}

impl From<RecvError> for TryRecvError {
    fn from(_: RecvError) -> Self {
        Self::Closed
    }
}

impl<E> From<RecvError> for RecvLimitedError<E> {
    fn from(_: RecvError) -> Self {
        Self::Closed
    }
}

const SEND_CLOSED: &str = "sending on a closed channel";
const RECV_CLOSED: &str = "receiving on a closed channel that has no values left";

// These `Debug` implementations do not require `T: Debug`, so that `unwrap` works for any value.

impl<T> fmt::Debug for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("SendError(..)")
    }
}

impl<T> fmt::Debug for TrySendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Full(_) => "Full(..)",
            Self::Closed(_) => "Closed(..)",
        })
    }
}

impl<T, E: fmt::Debug> fmt::Debug for SendLimitedError<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed(_) => f.pad("Closed(..)"),
            Self::GaveUp(error) => error.fmt(f),
        }
    }
}

impl<T, E: fmt::Debug> fmt::Debug for GaveUp<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GaveUp").field("why", &self.why).finish_non_exhaustive()
    }
}

impl<T> fmt::Display for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(SEND_CLOSED)
    }
}

impl<T> fmt::Display for TrySendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Full(_) => "sending on a full channel",
            Self::Closed(_) => SEND_CLOSED,
        })
    }
}

impl<T, E: fmt::Display> fmt::Display for SendLimitedError<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed(_) => f.pad(SEND_CLOSED),
            Self::GaveUp(error) => fmt::Display::fmt(error, f),
        }
    }
}

impl<T, E: fmt::Display> fmt::Display for GaveUp<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.why.fmt(f)
    }
}

impl fmt::Display for RecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(RECV_CLOSED)
    }
}

impl fmt::Display for TryRecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Empty => "receiving on an empty channel",
            Self::Closed => RECV_CLOSED,
        })
    }
}

impl<E: fmt::Display> fmt::Display for RecvLimitedError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.pad(RECV_CLOSED),
            Self::GaveUp(why) => why.fmt(f),
        }
    }
}

impl<T> std::error::Error for SendError<T> {}
impl<T> std::error::Error for TrySendError<T> {}
impl std::error::Error for RecvError {}
impl std::error::Error for TryRecvError {}

impl<T, E: std::error::Error + 'static> std::error::Error for SendLimitedError<T, E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Closed(_) => None,
            Self::GaveUp(error) => error.source(),
        }
    }
}

/// The source is the limit's error.
impl<T, E: std::error::Error + 'static> std::error::Error for GaveUp<T, E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.why)
    }
}

impl<E: std::error::Error + 'static> std::error::Error for RecvLimitedError<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Closed => None,
            Self::GaveUp(why) => Some(why),
        }
    }
}
