//! The reasons for which a context is done.

use std::error;
use std::fmt;
use std::io;
use std::sync::Arc;
use sudog_runtime::chan::GaveUp;
use sudog_runtime::shim::system::OnceLock;

/// The reason for which a context was cancelled, in more detail than an [`Error`].
pub type Cause = Arc<dyn error::Error + Send + Sync>;

/// The reason for which a context is done. Go's `context.Canceled` and `context.DeadlineExceeded`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Error {
    /// The context was cancelled.
    Canceled,
    /// The context's deadline has passed.
    DeadlineExceeded,
}

impl Error {
    /// Returns whether the reason is a deadline. Go's `Timeout` method of `context.DeadlineExceeded`.
    #[must_use]
    pub fn timeout(self) -> bool {
        self == Self::DeadlineExceeded
    }

    /// Returns the error as a cause. Each call returns the same `Arc`.
    pub(super) fn as_cause(self) -> Cause {
        static CAUSES: [OnceLock<Cause>; 2] = [const { OnceLock::new() }; 2];
        CAUSES[self as usize].get_or_init(|| Arc::new(self)).clone()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Canceled => "context canceled",
            Self::DeadlineExceeded => "context deadline exceeded",
        })
    }
}

impl error::Error for Error {}

/// The error's kind is `TimedOut` after the context's deadline, else `Other`.
impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        Self::new(if error.timeout() { io::ErrorKind::TimedOut } else { io::ErrorKind::Other }, error)
    }
}

/// Drops the value of a send that gave up.
impl<T> From<GaveUp<T, Self>> for Error {
    fn from(gave_up: GaveUp<T, Self>) -> Self {
        gave_up.why
    }
}
