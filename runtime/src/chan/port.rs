//! The traits by which selects, futures and iterators use handles of any kind.

use super::core::Core;
use super::select::case::{Case, RecvCase};
use super::{Chan, Receiver, RecvError, RecvOnly, SendError, SendOnly, Sender};

mod sealed {
    pub trait Sealed {}
}
pub(super) use sealed::Sealed;

/// An operand of `recv(..)` in a [`select!`](crate::select): a handle that receives ([`RecvPort`]), a
/// [`Timer`](crate::goroutine::Timer) or a [`Ticker`](crate::goroutine::Ticker), a reference to such an operand, or an
/// `Option` of such an operand. `None` behaves like a nil channel: never ready.
///
/// # Examples
///
/// ```
/// # #[cfg(unix)] {
/// use std::time::Duration;
/// use sudog::chan::{Chan, select};
/// use sudog::time::Ticker;
///
/// let values = Chan::<u32>::nil();
/// let (ticker, off) = (Ticker::new(Duration::from_millis(1)), None::<Ticker>);
/// select! {
///     recv(values) -> _ => unreachable!(),
///     recv(off) -> _ => unreachable!(),
///     recv(ticker) -> at => assert!(at <= sudog::time::now()),
/// }
/// # }
/// ```
///
/// No other type implements this trait. The compiler's message names the types that do.
///
/// ```compile_fail,E0277
/// use sudog::chan::{channel, select};
///
/// let (sender, _receiver) = channel::<u32>(1);
/// select! { recv(sender) => {} }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot stand in `recv(..)`",
    label = "neither the receiving side of a channel nor a timer",
    note = "`Chan`, `RecvOnly`, `Receiver`, `time::Timer`, `time::Ticker`, references to them and `Option`s of them can",
    note = "of a context use `ctx.done_chan()`, of an `Arc` or a `Box` what it points to: `recv(*timer)`, of a future `future(..)`"
)]
pub trait RecvArm: Sealed {
    /// The type of the value that is matched with the pattern of the arm.
    type Received;

    #[doc(hidden)]
    type Case<'a>: Case<Output = Self::Received>
    where
        Self: 'a;

    /// Makes the case that receives from this operand. `select!` puts this call into its list of cases.
    #[doc(hidden)]
    fn recv_case(&self) -> Self::Case<'_>;
}

impl<P: RecvPort + ?Sized> RecvArm for P {
    type Received = P::Received;
    type Case<'a>
        = RecvCase<'a, P>
    where
        Self: 'a;

    #[inline]
    fn recv_case(&self) -> RecvCase<'_, P> {
        RecvCase::new(self)
    }
}

/// A handle that receives: [`Chan`], [`RecvOnly`], [`Receiver`], a reference to such a handle, or an `Option` of such a
/// handle. `None` behaves like a nil channel: never ready.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not receive from a channel",
    label = "not the receiving side of a channel",
    note = "`Chan`, `RecvOnly`, `Receiver`, references to them and `Option`s of them do; of a context use `ctx.done_chan()`",
    note = "in `recv(..)` of a `select!` a `time::Timer` and a `time::Ticker` can stand, too; elsewhere use `timer.recv_async()`"
)]
pub trait RecvPort: Sealed {
    /// The type of the channel's values.
    type Item;

    /// The result of a receive: `Option<Item>` for a Go channel, `Result<Item, RecvError>` for a [`Receiver`].
    type Received;

    /// Returns the channel, or `None` for a nil channel.
    #[doc(hidden)]
    fn core(&self) -> Option<&Core<Self::Item>>;

    /// Converts a received value to the result of the receive. `None` means that the channel is closed and has no
    /// values left.
    #[doc(hidden)]
    fn received(value: Option<Self::Item>) -> Self::Received;
}

/// A handle that sends: [`Chan`], [`SendOnly`], [`Sender`], a reference to such a handle, or an `Option` of such a
/// handle. `None` behaves like a nil channel: never ready.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot stand in `send(..)`",
    label = "not the sending side of a channel",
    note = "a `Receiver` or `RecvOnly` does not send"
)]
pub trait SendPort: Sealed {
    /// The type of the channel's values.
    type Item;

    /// The result of a send: `()` for a Go channel, `Result<(), SendError<Item>>` for a [`Sender`].
    type Sent;

    /// Returns the channel, or `None` for a nil channel.
    #[doc(hidden)]
    fn core(&self) -> Option<&Core<Self::Item>>;

    /// Converts the outcome of a send to the result of the send. An error means that the channel is closed, and
    /// contains the value.
    ///
    /// # Panics
    ///
    /// Panics if `result` is an error, and the channel is a Go channel.
    #[doc(hidden)]
    #[track_caller]
    fn sent(result: Result<(), Self::Item>) -> Self::Sent;
}

impl<P: Sealed + ?Sized> Sealed for &P {}
impl<P: Sealed> Sealed for Option<P> {}
impl<T> Sealed for Chan<T> {}
impl<T> Sealed for RecvOnly<T> {}
impl<T> Sealed for SendOnly<T> {}
impl<T> Sealed for Receiver<T> {}
impl<T> Sealed for Sender<T> {}

impl<P: RecvPort + ?Sized> RecvPort for &P {
    type Item = P::Item;
    type Received = P::Received;

    #[inline]
    fn core(&self) -> Option<&Core<P::Item>> {
        (**self).core()
    }

    #[inline]
    fn received(value: Option<P::Item>) -> P::Received {
        P::received(value)
    }
}

impl<P: RecvPort> RecvPort for Option<P> {
    type Item = P::Item;
    type Received = P::Received;

    #[inline]
    fn core(&self) -> Option<&Core<P::Item>> {
        self.as_ref()?.core()
    }

    #[inline]
    fn received(value: Option<P::Item>) -> P::Received {
        P::received(value)
    }
}

impl<P: SendPort + ?Sized> SendPort for &P {
    type Item = P::Item;
    type Sent = P::Sent;

    #[inline]
    fn core(&self) -> Option<&Core<P::Item>> {
        (**self).core()
    }

    #[inline]
    #[track_caller]
    fn sent(result: Result<(), P::Item>) -> P::Sent {
        P::sent(result)
    }
}

impl<P: SendPort> SendPort for Option<P> {
    type Item = P::Item;
    type Sent = P::Sent;

    #[inline]
    fn core(&self) -> Option<&Core<P::Item>> {
        self.as_ref()?.core()
    }

    #[inline]
    #[track_caller]
    fn sent(result: Result<(), P::Item>) -> P::Sent {
        P::sent(result)
    }
}

macro_rules! go_port {
    ($($Recv:ident)+; $($Send:ident)+) => {
        $(impl<T> RecvPort for $Recv<T> {
            type Item = T;
            type Received = Option<T>;

            #[inline]
            fn core(&self) -> Option<&Core<T>> {
                self.shared()
            }

            #[inline]
            fn received(value: Option<T>) -> Option<T> {
                value
            }
        })+
        $(impl<T> SendPort for $Send<T> {
            type Item = T;
            type Sent = ();

            #[inline]
            fn core(&self) -> Option<&Core<T>> {
                self.shared()
            }

            #[inline]
            #[track_caller]
            fn sent(result: Result<(), T>) {
                if let Err(value) = result {
                    send_on_closed(value);
                }
            }
        })+
    };
}

go_port!(Chan RecvOnly; Chan SendOnly);

/// Panics as Go does. The panic drops the value.
#[cold]
#[inline(never)]
#[track_caller]
pub(super) fn send_on_closed<T>(_value: T) -> ! {
    panic!("send on closed channel")
}

impl<T> RecvPort for Receiver<T> {
    type Item = T;
    type Received = Result<T, RecvError>;

    #[inline]
    fn core(&self) -> Option<&Core<T>> {
        Some(self.shared())
    }

    #[inline]
    fn received(value: Option<T>) -> Result<T, RecvError> {
        value.ok_or(RecvError)
    }
}

impl<T> SendPort for Sender<T> {
    type Item = T;
    type Sent = Result<(), SendError<T>>;

    #[inline]
    fn core(&self) -> Option<&Core<T>> {
        Some(self.shared())
    }

    #[inline]
    fn sent(result: Result<(), T>) -> Result<(), SendError<T>> {
        result.map_err(SendError)
    }
}
