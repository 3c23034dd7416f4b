//! Variants of [`OnceValue`]: for a function that returns nothing, and for a function that returns two values.

use std::fmt;

use sudog_runtime::sema::IntoLimit;

use super::OnceValue;

/// A function that runs once, no matter how often the `OnceFunc` is called.
///
/// In contrast to a [`Once`](crate::Once), a `OnceFunc` contains its function, and if the function panics, every call
/// panics with the same value. In all other respects a `OnceFunc` is an [`OnceValue`] without a value: see the
/// contract of that type.
///
/// Go: `sync.OnceFunc`; [`once_func`] has Go's signature.
///
/// # Examples
///
/// ```
/// use sudog::sync::OnceFunc;
///
/// static SETUP: OnceFunc = OnceFunc::new(|| println!("printed once"));
///
/// SETUP.call();
/// SETUP.call();
/// ```
pub struct OnceFunc<F = fn()>(OnceValue<(), F>);

impl<F> OnceFunc<F> {
    /// Creates a function that will call `f` once.
    #[must_use]
    pub const fn new(f: F) -> Self {
        Self(OnceValue::new(f))
    }
}

impl<F: FnOnce()> OnceFunc<F> {
    /// Calls the function if this is the first call; otherwise waits until the function has ended.
    ///
    /// # Panics
    ///
    /// Panics if the function has panicked, with the same value each time. Also panics if the function has ended its
    /// goroutine.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::panic::catch_unwind;
    /// use sudog::sync::OnceFunc;
    ///
    /// static FAILS: OnceFunc = OnceFunc::new(|| panic!("no"));
    ///
    /// for _ in 0..2 {
    ///     assert_eq!(catch_unwind(|| FAILS.call()).unwrap_err().downcast_ref(), Some(&"no"));
    /// }
    /// ```
    #[inline]
    #[track_caller]
    pub fn call(&self) {
        self.0.get();
    }

    /// Does the same as [`OnceFunc::call`], but waits for another caller's call only until `limit` ends the wait:
    /// see [`IntoLimit`].
    ///
    /// # Errors
    ///
    /// The same as [`Once::do_limited`](crate::Once::do_limited).
    ///
    /// # Panics
    ///
    /// The same as [`OnceFunc::call`].
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use sudog::WaitError;
    /// use sudog::sync::OnceFunc;
    ///
    /// static SETUP: OnceFunc = OnceFunc::new(|| assert_eq!(again(), Err(WaitError::TimedOut), "it has not ended"));
    ///
    /// fn again() -> Result<(), WaitError> {
    ///     SETUP.call_limited(Duration::from_millis(1))
    /// }
    /// SETUP.call();
    /// assert_eq!(again(), Ok(()));
    /// ```
    #[inline]
    #[track_caller]
    pub fn call_limited<L: IntoLimit>(&self, limit: L) -> Result<(), L::Error> {
        self.0.get_limited(limit).copied()
    }
}

impl<F> fmt::Debug for OnceFunc<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OnceFunc").field(&self.0).finish()
    }
}

/// Returns a function that calls `f` the first time: Go's `sync.OnceFunc`, with the same signature.
///
/// # Examples
///
/// ```
/// use std::sync::atomic::{AtomicU32, Ordering};
/// use sudog::sync::once_func;
///
/// let calls = AtomicU32::new(0);
/// let f = once_func(|| _ = calls.fetch_add(1, Ordering::Relaxed));
/// f();
/// f();
/// assert_eq!(calls.load(Ordering::Relaxed), 1);
/// ```
pub fn once_func<F: FnOnce() + Send>(f: F) -> impl Fn() + Send + Sync {
    let f = OnceFunc::new(f);
    move || f.call()
}

/// Two values that a single function makes together, at the first call of `get`: often a result, and a second value
/// that qualifies the result.
///
/// Except for the number of values, an `OnceValues` is an [`OnceValue`]: see the contract of that type. Go:
/// `sync.OnceValues`; [`once_values`] has Go's signature.
///
/// # Examples
///
/// ```
/// use sudog::sync::OnceValues;
///
/// static PAIR: OnceValues<u32, &str> = OnceValues::new(|| (1, "one"));
///
/// assert_eq!(PAIR.get(), (&1, &"one"));
/// ```
pub struct OnceValues<A, B, F = fn() -> (A, B)>(OnceValue<(A, B), F>);

impl<A, B, F> OnceValues<A, B, F> {
    /// Creates two values that `f` will make.
    #[must_use]
    pub const fn new(f: F) -> Self {
        Self(OnceValue::new(f))
    }
}

fn each<A, B>((a, b): &(A, B)) -> (&A, &B) {
    (a, b)
}

impl<A, B, F: FnOnce() -> (A, B)> OnceValues<A, B, F> {
    /// Returns the values. The first call makes the values; calls that come meanwhile wait.
    ///
    /// # Panics
    ///
    /// The same as [`OnceValue::get`].
    ///
    /// # Examples
    ///
    /// ```
    /// use sudog::sync::OnceValues;
    ///
    /// let values = OnceValues::new(|| ("forty", 2));
    /// let (text, number) = values.get();
    /// assert_eq!((*text, *number), ("forty", 2));
    /// ```
    #[inline]
    #[track_caller]
    pub fn get(&self) -> (&A, &B) {
        each(self.0.get())
    }

    /// Does the same as [`OnceValues::get`], but waits for another caller to make the values only until `limit`
    /// ends the wait: see [`IntoLimit`].
    ///
    /// # Errors
    ///
    /// The same as [`Once::do_limited`](crate::Once::do_limited).
    ///
    /// # Panics
    ///
    /// The same as [`OnceValue::get`].
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use sudog::sync::OnceValues;
    ///
    /// assert_eq!(OnceValues::new(|| (1, 2)).get_limited(Duration::ZERO), Ok((&1, &2)));
    /// ```
    #[inline]
    #[track_caller]
    pub fn get_limited<L: IntoLimit>(&self, limit: L) -> Result<(&A, &B), L::Error> {
        self.0.get_limited(limit).map(each)
    }
}

impl<A: fmt::Debug, B: fmt::Debug, F> fmt::Debug for OnceValues<A, B, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OnceValues").field(&self.0).finish()
    }
}

/// Returns a function that returns the result of the first call of `f`: Go's `sync.OnceValues`, with the same
/// signature.
///
/// The function returns clones; [`OnceValues`] gives out references, and can live in a `static`.
///
/// # Examples
///
/// ```
/// use sudog::sync::once_values;
///
/// let answer = once_values(|| ("forty", 2));
/// assert_eq!(answer(), answer());
/// ```
pub fn once_values<A, B, F>(f: F) -> impl Fn() -> (A, B) + Send + Sync
where
    A: Clone + Send + Sync,
    B: Clone + Send + Sync,
    F: FnOnce() -> (A, B) + Send,
{
    let values = OnceValues::new(f);
    move || values.0.get().clone()
}
