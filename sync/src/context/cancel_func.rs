//! What cancels a context.

use std::error;
use std::fmt;
use std::sync::Arc;

use super::done::Outcome;
use super::{Cause, Context, Error};

/// Cancels the context that it came with. Go's `context.CancelFunc`.
///
/// Dropped, it does nothing: the context then ends with its parent or at its deadline. Go's `defer cancel()` is
/// [`CancelFunc::on_drop`].
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

/// Cancels the context that it came with, and says why. Go's `context.CancelCauseFunc`.
///
/// Dropped, it does nothing; see [`CancelCauseFunc::on_drop`].
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

/// Cancels a context when it is dropped: see [`CancelFunc::on_drop`].
#[must_use = "it cancels as soon as it is dropped"]
pub struct CancelOnDrop {
    context: Context,
}

impl CancelFunc {
    pub(super) fn of(context: &Context) -> Self {
        Self { context: context.clone() }
    }

    /// Cancels the context, and all that are derived from it, unless it is done. When this returns, they all are.
    ///
    /// This call wakes its waiters, and does not wait for them to stop. A goroutine that has run for long gives way
    /// here, after it has woken all of them.
    ///
    /// # Panics
    ///
    /// If a waker does; after all wakers have been called.
    pub fn cancel(&self) {
        self.context.cancel(None);
        sudog_runtime::safepoint();
    }

    /// A guard that cancels when it is dropped: Go's `defer cancel()`.
    pub fn on_drop(self) -> CancelOnDrop {
        CancelOnDrop { context: self.context }
    }
}

impl CancelCauseFunc {
    pub(super) fn of(context: &Context) -> Self {
        Self { context: context.clone() }
    }

    /// [`CancelFunc::cancel`], with what [`Context::cause`] is to return. If the context is done it stays as it is: the
    /// first cause counts.
    ///
    /// # Panics
    ///
    /// As [`CancelFunc::cancel`].
    pub fn cancel(&self, cause: impl Into<Box<dyn error::Error + Send + Sync>>) {
        self.cancel_with(Some(Arc::from(cause.into())));
        sudog_runtime::safepoint();
    }

    /// [`CancelFunc::cancel`], without a cause: it is [`Error::Canceled`] then. Go's `cancel(nil)`.
    ///
    /// # Panics
    ///
    /// As [`CancelFunc::cancel`].
    pub fn cancel_without_cause(&self) {
        self.cancel_with(None);
        sudog_runtime::safepoint();
    }

    /// No safepoint: the caller has more to do.
    pub(crate) fn cancel_with(&self, cause: Option<Cause>) {
        self.context.cancel(cause);
    }

    /// A guard that cancels when it is dropped, without a cause.
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
