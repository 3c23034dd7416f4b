//! Guards of tokens. When a guard is dropped, its tokens go back to the semaphore.

use sudog_runtime::sema::IntoLimit;

use super::Weighted;
#[cfg(all(unix, not(sudog_loom)))]
use crate::context;

/// A guard of tokens of a [`Weighted`]. When the guard is dropped, the tokens go back to the semaphore.
///
/// # Examples
///
/// ```
/// use sudog::x::Weighted;
///
/// let semaphore = Weighted::new(3);
/// let held = semaphore.try_hold(2).unwrap();
/// assert_eq!(held.tokens(), 2);
/// ```
#[must_use = "the tokens go back at once"]
#[derive(Debug)]
pub struct Held<'a> {
    semaphore: &'a Weighted,
    tokens: u64,
}

impl Held<'_> {
    /// Returns the number of tokens.
    #[must_use]
    pub fn tokens(&self) -> u64 {
        self.tokens
    }
}

impl Drop for Held<'_> {
    /// Gives the tokens back.
    ///
    /// # Panics
    ///
    /// Panics as [`Weighted::release`] does, if another caller has released these tokens meanwhile.
    fn drop(&mut self) {
        self.semaphore.release(self.tokens);
    }
}

impl Weighted {
    /// Takes tokens as [`Weighted::acquire`] does, and returns a guard: the tokens go back when the guard is dropped.
    ///
    /// # Errors
    ///
    /// The same as [`Weighted::acquire`].
    ///
    /// # Examples
    ///
    /// ```
    /// use sudog::context;
    /// use sudog::x::Weighted;
    ///
    /// let (semaphore, ctx) = (Weighted::new(2), context::background());
    /// let held = semaphore.hold(&ctx, 2)?;
    /// assert!(semaphore.try_hold(1).is_none());
    /// drop(held);
    /// assert!(semaphore.try_hold(1).is_some());
    /// # Ok::<(), context::Error>(())
    /// ```
    #[cfg(all(unix, not(sudog_loom)))]
    #[inline]
    pub fn hold(&self, ctx: &context::Context, tokens: u64) -> Result<Held<'_>, context::Error> {
        self.acquire(ctx, tokens).map(|()| self.held(tokens))
    }

    /// Takes tokens as [`Weighted::acquire_limited`] does, and returns a guard.
    ///
    /// # Errors
    ///
    /// The same as [`Weighted::acquire_limited`].
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use sudog::x::Weighted;
    ///
    /// assert_eq!(Weighted::new(2).hold_limited(2, Duration::from_millis(1)).unwrap().tokens(), 2);
    /// ```
    #[inline]
    pub fn hold_limited<L: IntoLimit>(&self, tokens: u64, limit: L) -> Result<Held<'_>, L::Error> {
        self.acquire_limited(tokens, limit).map(|()| self.held(tokens))
    }

    /// Takes tokens as [`Weighted::try_acquire`] does, and returns a guard.
    ///
    /// # Examples
    ///
    /// ```
    /// use sudog::x::Weighted;
    ///
    /// assert!(Weighted::new(2).try_hold(3).is_none());
    /// ```
    #[inline]
    pub fn try_hold(&self, tokens: u64) -> Option<Held<'_>> {
        self.try_acquire(tokens).then(|| self.held(tokens))
    }

    fn held(&self, tokens: u64) -> Held<'_> {
        Held { semaphore: self, tokens }
    }
}
