//! The limits of waits: [`WaitLimit`], the types that limit a wait ([`IntoLimit`]), and the error of a wait that a limit
//! has ended.

use std::io;
use std::time::Duration;

use super::Cancel;
use crate::Instant;
use crate::goroutine::now;

/// The limit of a wait: a deadline, a [`Cancel`], or both. The default is no limit.
///
/// A wait takes all kinds of limits: see [`IntoLimit`].
///
/// # Examples
///
/// ```
/// use std::time::{Duration, Instant};
/// use sudog::{Cancel, WaitLimit};
///
/// static STOP: Cancel = Cancel::new();
/// let limit = WaitLimit { cancel: Some(&STOP), ..WaitLimit::until(Instant::now() + Duration::from_secs(1)) };
/// # let _ = limit;
/// ```
#[derive(Clone, Copy, Default)]
pub struct WaitLimit<'a> {
    /// The time at which the waiter gives up.
    pub deadline: Option<Instant>,
    /// The handle whose cancellation makes the waiter give up.
    pub cancel: Option<&'a Cancel>,
}

impl WaitLimit<'_> {
    /// Returns a limit that is a deadline.
    #[must_use]
    pub fn until(deadline: Instant) -> Self {
        Self { deadline: Some(deadline), cancel: None }
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.cancel.is_some_and(Cancel::is_cancelled)
    }
}

/// The reason why a limited wait ended early.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitError {
    /// [`WaitLimit::deadline`] passed.
    TimedOut,
    /// [`WaitLimit::cancel`] was cancelled.
    Cancelled,
}

impl std::fmt::Display for WaitError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::TimedOut => "the deadline passed",
            Self::Cancelled => "the wait was cancelled",
        })
    }
}

impl std::error::Error for WaitError {}

/// The error's kind is `TimedOut` after a deadline, and `Other` after a cancel.
impl From<WaitError> for io::Error {
    fn from(why: WaitError) -> Self {
        let kind = match why {
            WaitError::TimedOut => io::ErrorKind::TimedOut,
            WaitError::Cancelled => io::ErrorKind::Other,
        };
        Self::new(kind, why)
    }
}

/// A limit that a call `x_limited` takes for its wait, and `default(limit)` of a [`select!`](crate::select).
///
/// | limit | the wait ends early | error |
/// |---|---|---|
/// | a [`Duration`] | after that time | [`WaitError`] |
/// | an [`Instant`] | at that time; if that time has passed, the call does not wait | [`WaitError`] |
/// | a `&`[`Cancel`] | when the handle is cancelled | [`WaitError`] |
/// | a [`WaitLimit`], a `&WaitLimit` | at the deadline, or when the handle is cancelled | [`WaitError`] |
/// | a `&Context` | when the context is done; if the context is done already, the call does not begin | the context's error |
///
/// # Examples
///
/// ```
/// use std::time::{Duration, Instant};
/// use sudog::context;
/// use sudog::sync::WaitGroup;
/// use sudog::{Cancel, WaitError};
///
/// let (group, stop) = (WaitGroup::new(), Cancel::new());
/// let (ctx, cancel) = context::with_cancel(&context::background());
/// group.add(1);
/// assert_eq!(group.wait_limited(Duration::from_millis(1)), Err(WaitError::TimedOut));
/// assert_eq!(group.wait_limited(Instant::now()), Err(WaitError::TimedOut));
/// stop.cancel();
/// assert_eq!(group.wait_limited(&stop), Err(WaitError::Cancelled));
/// cancel.cancel();
/// assert_eq!(group.wait_limited(&ctx), Err(context::Error::Canceled));
/// ```
pub trait IntoLimit {
    /// The error of a wait that this limit has ended.
    type Error;

    /// Runs `wait` under this limit, and turns the error of `wait` into the error of this limit.
    ///
    /// # Errors
    ///
    /// Returns an error if `wait` does. A limit that has come may return an error without running `wait`.
    fn limited<T>(self, wait: impl FnOnce(&WaitLimit<'_>) -> Result<T, WaitError>) -> Result<T, Self::Error>;
}

impl IntoLimit for &WaitLimit<'_> {
    type Error = WaitError;

    #[inline]
    fn limited<T>(self, wait: impl FnOnce(&WaitLimit<'_>) -> Result<T, WaitError>) -> Result<T, WaitError> {
        wait(self)
    }
}

impl IntoLimit for WaitLimit<'_> {
    type Error = WaitError;

    #[inline]
    fn limited<T>(self, wait: impl FnOnce(&WaitLimit<'_>) -> Result<T, WaitError>) -> Result<T, WaitError> {
        wait(&self)
    }
}

impl IntoLimit for &Cancel {
    type Error = WaitError;

    #[inline]
    fn limited<T>(self, wait: impl FnOnce(&WaitLimit<'_>) -> Result<T, WaitError>) -> Result<T, WaitError> {
        wait(&WaitLimit { deadline: None, cancel: Some(self) })
    }
}

impl IntoLimit for Instant {
    type Error = WaitError;

    #[inline]
    fn limited<T>(self, wait: impl FnOnce(&WaitLimit<'_>) -> Result<T, WaitError>) -> Result<T, WaitError> {
        wait(&WaitLimit::until(self))
    }
}

impl IntoLimit for Duration {
    type Error = WaitError;

    #[inline]
    fn limited<T>(self, wait: impl FnOnce(&WaitLimit<'_>) -> Result<T, WaitError>) -> Result<T, WaitError> {
        // A time that the clock cannot represent never comes.
        wait(&WaitLimit { deadline: now().checked_add(self), cancel: None })
    }
}
