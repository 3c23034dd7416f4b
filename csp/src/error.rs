//! The errors of reads and writes.

use std::fmt;

/// The error of a read or a write for which no partner can come: no end is left through which a partner could come, or
/// the caller's [`ActiveSet`](crate::ActiveSet) has been dropped.
///
/// A fibre that gets this error should return, by `?`: the errors of a read and of a write both convert to `Reclaimed`.
///
/// # Examples
///
/// ```
/// use sudog::csp::{End, Reclaimed};
///
/// /// Ends with its partners.
/// fn squares(mut from: End<u64>, mut to: End<u64>) -> Result<(), Reclaimed> {
///     loop {
///         let n = from.read()?;
///         to.write(n * n)?;
///     }
/// }
/// # let [from, to] = sudog::csp::make_channel::<u64, 2>();
/// # drop((from, to));
/// # let [a] = sudog::csp::make_channel(); let [b] = sudog::csp::make_channel();
/// # assert_eq!(squares(a, b), Err(Reclaimed));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reclaimed;

impl fmt::Display for Reclaimed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "no partner can come: the other ends of the channel are gone or hang too, or the active set was dropped",
        )
    }
}

impl std::error::Error for Reclaimed {}

/// The reason why a read or a write with a limit has failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failed {
    /// No partner can come: see [`Reclaimed`].
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

impl Failed {
    /// Converts to the error of a read or a write without a limit.
    pub(crate) fn without_limit(self) -> Reclaimed {
        debug_assert_eq!(self, Self::Reclaimed, "no limit was set");
        Reclaimed
    }
}

impl From<Reclaimed> for Failed {
    fn from(_: Reclaimed) -> Self {
        Self::Reclaimed
    }
}

/// A value that was not written, with the reason.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Unwritten<T, W = Reclaimed> {
    /// The value.
    pub value: T,
    /// The reason why the value was not written.
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

/// Drops the value.
impl<T> From<Unwritten<T>> for Reclaimed {
    fn from(unwritten: Unwritten<T>) -> Self {
        unwritten.why
    }
}

/// Drops the value.
impl<T> From<Unwritten<T, Self>> for Failed {
    fn from(unwritten: Unwritten<T, Self>) -> Self {
        unwritten.why
    }
}
