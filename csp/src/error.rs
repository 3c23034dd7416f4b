//! The errors of reads and writes.

use std::fmt;

use sudog_runtime::sema::{IntoLimit, WaitError, WaitLimit};

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

/// The reason why a read or a write with a limit has failed. `E` is the error of the limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failed<E = WaitError> {
    /// No partner can come: see [`Reclaimed`].
    Reclaimed,
    /// The limit has come before a partner.
    GaveUp(E),
}

impl<E: fmt::Display> fmt::Display for Failed<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reclaimed => Reclaimed.fmt(f),
            Self::GaveUp(why) => why.fmt(f),
        }
    }
}

impl<E: std::error::Error + 'static> std::error::Error for Failed<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Reclaimed => None,
            Self::GaveUp(why) => Some(why),
        }
    }
}

/// Runs a read or a write, whose step gets the limit. Turns the error of a step that gave up into the limit's error.
pub(crate) fn limited<T, L: IntoLimit>(
    limit: L,
    step: impl FnOnce(&WaitLimit<'_>) -> Result<T, Failed>,
) -> Result<T, Failed<L::Error>> {
    let over = limit.limited(|limit| match step(limit) {
        Ok(done) => Ok(Ok(done)),
        Err(Failed::Reclaimed) => Ok(Err(Failed::Reclaimed)),
        Err(Failed::GaveUp(why)) => Err(why),
    });
    over.unwrap_or_else(|why| Err(Failed::GaveUp(why)))
}

impl Failed {
    /// Converts to the error of a read or a write without a limit.
    pub(crate) fn without_limit(self) -> Reclaimed {
        debug_assert_eq!(self, Self::Reclaimed, "no limit was set");
        Reclaimed
    }
}

impl<E> From<Reclaimed> for Failed<E> {
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

impl<T, W: std::error::Error> std::error::Error for Unwritten<T, W> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.why.source()
    }
}

/// Drops the value.
impl<T> From<Unwritten<T>> for Reclaimed {
    fn from(unwritten: Unwritten<T>) -> Self {
        unwritten.why
    }
}

/// Drops the value.
impl<T, E> From<Unwritten<T, Self>> for Failed<E> {
    fn from(unwritten: Unwritten<T, Self>) -> Self {
        unwritten.why
    }
}
