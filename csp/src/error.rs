//! Why a read or a write has failed.

use std::fmt;

/// No end is left through which a partner could come.
///
/// The caller is a thread, or a fibre that cannot be unwound where it is: any other fibre has been ended instead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reclaimed;

impl fmt::Display for Reclaimed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no partner can come: the other ends of the channel are gone, or hang on it too")
    }
}

impl std::error::Error for Reclaimed {}

/// Why a read or a write with a limit has failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failed {
    /// See [`Reclaimed`].
    Reclaimed,
    /// The deadline has come before a partner.
    TimedOut,
    /// The cancel has come before a partner.
    Cancelled,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reclaimed => Reclaimed.fmt(f),
            Self::TimedOut => f.write_str("the deadline has come before a partner"),
            Self::Cancelled => f.write_str("the cancel has come before a partner"),
        }
    }
}

impl std::error::Error for Failed {}

impl From<Reclaimed> for Failed {
    fn from(_: Reclaimed) -> Self {
        Self::Reclaimed
    }
}

/// A value that was not written, and why.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Unwritten<T, W = Reclaimed> {
    /// The value.
    pub value: T,
    /// Why it was not written.
    pub why: W,
}

impl<T, W: fmt::Debug> fmt::Debug for Unwritten<T, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unwritten").field("why", &self.why).finish_non_exhaustive()
    }
}

impl<T, W: fmt::Display> fmt::Display for Unwritten<T, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.why.fmt(f)
    }
}

impl<T, W: std::error::Error> std::error::Error for Unwritten<T, W> {}
