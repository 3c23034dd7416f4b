//! A context that is done when a signal arrives.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use sudog_runtime::chan::Chan;
use sudog_runtime::goroutine::go;
use sudog_runtime::panics::drop_payload;

use super::kind::Signal;
use super::{notify, stop};
use crate::context::{self, CancelCauseFunc, Context};

/// The cause of a context that a signal has cancelled: see [`notify_context`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Received(pub Signal);

/// Formats the cause with Go's text.
impl fmt::Display for Received {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} signal received", self.0)
    }
}

impl std::error::Error for Received {}

/// A function that cancels the context with which it was returned, and stops sending the signals to that context: see
/// [`notify_context`].
///
/// Dropping a `StopFunc` does nothing: the signals still do not do their default action. The counterpart of Go's `defer
/// stop()` is [`StopFunc::on_drop`].
#[derive(Clone)]
#[must_use = "without it the signals never do again what they do by default"]
pub struct StopFunc {
    cancel: CancelCauseFunc,
    channel: Chan<Signal>,
}

/// A guard that stops the signals when the guard is dropped: see [`StopFunc::on_drop`].
#[must_use = "it stops as soon as it is dropped"]
#[derive(Debug)]
pub struct StopOnDrop(StopFunc);

impl StopFunc {
    /// Cancels the context, unless the context is done, and stops the signals as [`stop`] does. A second call does
    /// nothing.
    ///
    /// # Panics
    ///
    /// Panics if a waker of the context panics; the panic goes on after all wakers have been called and the signals are
    /// stopped.
    pub fn stop(&self) {
        stop(&self.channel); // stop the signals first: that does not panic
        self.cancel.cancel_without_cause();
    }

    /// Returns a guard that stops the signals when the guard is dropped: Go's `defer stop()`.
    pub fn on_drop(self) -> StopOnDrop {
        StopOnDrop(self)
    }
}

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

impl fmt::Debug for StopFunc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StopFunc").field(&self.cancel).finish()
    }
}

/// Derives a context that is cancelled when one of `signals` arrives, by [`StopFunc::stop`] of the returned `StopFunc`,
/// or when the parent is done. Go's `signal.NotifyContext`, without the `Stringer`.
///
/// If a signal came first, [`Context::cause`] returns a [`Received`], with the text `interrupt signal received`, for
/// example. Until [`StopFunc::stop`] the signals have no other effect: a second interrupt does not end the process
/// either.
///
/// # Panics
///
/// The same as [`notify`].
///
/// # Examples
///
/// ```
/// use sudog::run;
/// use sudog::context;
/// use sudog::context::Error;
/// use sudog::signal::{Received, Signal, notify_context};
///
/// run(|| {
///     let (ctx, stop) = notify_context(&context::background(), &[Signal::USR1]);
///     let _stop = stop.on_drop();
///     signal_hook::low_level::raise(libc::SIGUSR1).unwrap();
///     assert_eq!(ctx.wait(), Error::Canceled);
///     let cause = ctx.cause().unwrap();
///     assert_eq!(cause.downcast_ref(), Some(&Received(Signal::USR1)));
///     assert_eq!(cause.to_string(), "user defined signal 1 signal received");
/// });
/// ```
pub fn notify_context(parent: &Context, signals: &[Signal]) -> (Context, StopFunc) {
    let channel = Chan::new(1);
    notify(&channel, signals);
    let (ctx, cancel) = context::with_cancel_cause(parent);
    let stop = StopFunc { cancel: cancel.clone(), channel: channel.clone() };
    let done = ctx.clone();
    if ctx.err().is_none() {
        go(move || {
            let Ok(Some(signal)) = channel.recv_limited(&done) else { return };
            // Wakers of the context are user code, and a panic of this goroutine would end the process.
            let cancel = AssertUnwindSafe(|| cancel.cancel_with(Some(Arc::new(Received(signal)))));
            if let Err(payload) = catch_unwind(cancel) {
                drop_payload(payload);
            }
        });
    }
    (ctx, stop)
}
