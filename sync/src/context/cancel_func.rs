//! The functions and guards that cancel a context.

use std::error;
use std::fmt;
use std::sync::Arc;

use super::done::Outcome;
use super::{Cause, Context, Error};

/// A function that cancels the context with which it was returned. Go's `context.CancelFunc`.
///
/// Dropping a `CancelFunc` does nothing: the context then ends with its parent or at its deadline. The counterpart of
/// Go's `defer cancel()` is [`CancelFunc::on_drop`].
///
/// # Examples
///
/// ```
/// use sudog::context;
/// use sudog::context::Error;
///
/// let (ctx, cancel) = context::with_cancel(&context::background());
/// {
///     let _cancel = cancel.on_drop();
///     assert_eq!(ctx.err(), None);
/// }
/// assert_eq!(ctx.err(), Some(Error::Canceled));
/// ```
#[derive(Clone)]
#[must_use = "without it the context is cancelled by its parent or its deadline only"]
pub struct CancelFunc {
    context: Context,
}

/// A function that cancels the context with which it was returned, for a cause. Go's `context.CancelCauseFunc`.
///
/// Dropping a `CancelCauseFunc` does nothing; see [`CancelCauseFunc::on_drop`].
///
/// # Examples
///
/// ```
/// use sudog::context;
/// use sudog::context::Error;
///
/// let (ctx, cancel) = context::with_cancel_cause(&context::background());
/// cancel.cancel("the disk is full");
/// assert_eq!(ctx.err(), Some(Error::Canceled));
/// assert_eq!(ctx.cause().unwrap().to_string(), "the disk is full");
/// ```
#[derive(Clone)]
#[must_use = "without it the context is cancelled by its parent or its deadline only"]
pub struct CancelCauseFunc {
    context: Context,
}

/// A guard that cancels a context when the guard is dropped: see [`CancelFunc::on_drop`].
#[must_use = "it cancels as soon as it is dropped"]
pub struct CancelOnDrop {
    context: Context,
}

impl CancelFunc {
    pub(super) fn of(context: &Context) -> Self {
        Self { context: context.clone() }
    }

    /// Cancels the context and all contexts derived from it, unless the context is done. When this call returns, all
    /// these contexts are done.
    ///
    /// This call wakes the waiters of these contexts, and does not wait for them to stop. A goroutine that has run for
    /// long yields here, after all waiters have been woken.
    ///
    /// # Panics
    ///
    /// Panics if a waker panics; the panic goes on after all wakers have been called.
    pub fn cancel(&self) {
        self.context.cancel(None);
        sudog_runtime::safepoint();
    }

    /// Returns a guard that cancels the context when the guard is dropped: Go's `defer cancel()`.
    pub fn on_drop(self) -> CancelOnDrop {
        CancelOnDrop { context: self.context }
    }
}

impl CancelCauseFunc {
    pub(super) fn of(context: &Context) -> Self {
        Self { context: context.clone() }
    }

    /// Cancels the context as [`CancelFunc::cancel`] does. [`Context::cause`] then returns `cause`; but a context that
    /// is done already keeps its first cause.
    ///
    /// # Panics
    ///
    /// The same as [`CancelFunc::cancel`].
    pub fn cancel(&self, cause: impl Into<Box<dyn error::Error + Send + Sync>>) {
        self.cancel_with(Some(Arc::from(cause.into())));
        sudog_runtime::safepoint();
    }

    /// Cancels the context as [`CancelFunc::cancel`] does, without a cause: the cause is then [`Error::Canceled`].
    /// Go's `cancel(nil)`.
    ///
    /// # Panics
    ///
    /// The same as [`CancelFunc::cancel`].
    pub fn cancel_without_cause(&self) {
        self.cancel_with(None);
        sudog_runtime::safepoint();
    }

    /// Cancels the context without a safepoint, for a caller that has more to do.
    pub(crate) fn cancel_with(&self, cause: Option<Cause>) {
        self.context.cancel(cause);
    }

    /// Returns a guard that cancels the context, without a cause, when the guard is dropped.
    pub fn on_drop(self) -> CancelOnDrop {
        CancelOnDrop { context: self.context }
    }
}

impl Context {
    fn cancel(&self, cause: Option<Cause>) {
        if let Some(done) = self.governor() {
            done.cancel(Outcome { error: Error::Canceled, cause });
        }
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.context.cancel(None);
        sudog_runtime::safepoint();
    }
}

impl fmt::Debug for CancelFunc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CancelFunc").field(&self.context).finish()
    }
}

impl fmt::Debug for CancelCauseFunc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CancelCauseFunc").field(&self.context).finish()
    }
}

impl fmt::Debug for CancelOnDrop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CancelOnDrop").field(&self.context).finish()
    }
}
