//! Channel operations with a context: Go's `select { case v := <-ch: ...; case <-ctx.Done(): return ctx.Err() }` as a
//! single call.

use std::fmt;

use sudog_runtime::chan::{RecvPort, SendPort, select};

use super::{Context, Error};

/// Adds a receive that gives up when a context is done. Every receiving handle of a channel implements this trait.
///
/// # Examples
///
/// ```
/// use sudog::chan::{Chan, RecvError, channel};
/// use sudog::context;
/// use sudog::context::{Error, RecvCtx, SendCtx};
///
/// let (ctx, cancel) = context::with_cancel(&context::background());
/// let (ch, (tx, rx)) = (Chan::new(1), channel(1));
/// assert_eq!(ch.send_ctx(1, &ctx), Ok(()));
/// assert_eq!(ch.recv_ctx(&ctx), Ok(Some(1)));
/// assert_eq!(tx.send_ctx(2, &ctx), Ok(Ok(())));
/// drop(tx);
/// assert_eq!(rx.recv_ctx(&ctx), Ok(Ok(2)));
/// assert_eq!(rx.recv_ctx(&ctx), Ok(Err(RecvError)));
/// cancel.cancel();
/// assert_eq!(ch.recv_ctx(&ctx), Err(Error::Canceled));
/// let error = ch.send_ctx(3, &ctx).unwrap_err();
/// assert_eq!((error.value, error.error), (3, Error::Canceled));
/// ```
pub trait RecvCtx: RecvPort {
    /// Receives as `recv` does, but gives up when `ctx` is done.
    ///
    /// # Errors
    ///
    /// Returns the context's error if the context is done. No value has been received then.
    fn recv_ctx(&self, ctx: &Context) -> Result<Self::Received, Error> {
        ctx.limited(|limit| {
            select! {
                recv(self) -> received => Ok(received),
                default(limit) -> why => Err(why),
            }
        })
    }
}

impl<P: RecvPort + ?Sized> RecvCtx for P {}

/// Adds a send that gives up when a context is done. Every sending handle of a channel implements this trait. See
/// [`RecvCtx`] for an example.
pub trait SendCtx: SendPort {
    /// Sends as `send` does, but gives up when `ctx` is done.
    ///
    /// # Errors
    ///
    /// Returns the context's error, with the value, if the context is done.
    ///
    /// # Panics
    ///
    /// Panics if `send` would panic.
    #[track_caller]
    fn send_ctx(&self, value: Self::Item, ctx: &Context) -> Result<Self::Sent, NotSent<Self::Item>> {
        let mut value = Some(value);
        let sent = ctx.limited(|limit| {
            select! {
                send_from(self, &mut value) -> sent => Ok(sent),
                default(limit) -> why => Err(why),
            }
        });
        sent.map_err(|error| NotSent { value: value.expect("what is not sent stays where it is"), error })
    }
}

impl<P: SendPort + ?Sized> SendCtx for P {}

/// The error of a send whose context was done before the value was sent. Contains the value.
#[derive(Clone, PartialEq, Eq)]
pub struct NotSent<T> {
    /// The value that was not sent.
    pub value: T,
    /// The context's error.
    pub error: Error,
}

impl<T> fmt::Debug for NotSent<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NotSent").field("error", &self.error).finish_non_exhaustive()
    }
}

impl<T> fmt::Display for NotSent<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<T> std::error::Error for NotSent<T> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

impl<T> From<NotSent<T>> for Error {
    fn from(not_sent: NotSent<T>) -> Self {
        not_sent.error
    }
}
