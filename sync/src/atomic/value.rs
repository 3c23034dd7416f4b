//! Go's `atomic.Value`: a [`Pointer`] that shows its pointee to the caller.

use std::fmt;
use std::sync::Arc;

use super::Pointer;

/// A value of one type, or no value yet, that is loaded, stored and exchanged atomically.
///
/// A store never changes a value that other threads read; the store puts another value in its place. A load clones the
/// value, as Go copies it. If clones are expensive, use a `Value<Arc<T>>`, a [`Pointer<T>`](Pointer), or
/// [`load_with`](Value::load_with).
///
/// Once a value has been stored, there always is a value. A value that was replaced is dropped by the store, or at the end
/// of the last load that reads the value.
///
/// Loads are cheap if there are few stores: on Linux, a value that was loaded ten thousand times is loaded without locked
/// instructions from then on. The store that replaces such a value executes a system call, `membarrier`: 0.4 us, or 15 us
/// and more while other threads of the process run.
///
/// # Examples
///
/// ```
/// use sudog::sync::atomic::Value;
///
/// static LEVEL: Value<&str> = Value::new();
///
/// assert_eq!(LEVEL.load(), None);
/// assert!(LEVEL.compare_and_swap(None, "info"));
/// assert!(!LEVEL.compare_and_swap(Some(&"debug"), "warn"));
/// assert_eq!(LEVEL.swap("error"), Some("info"));
/// ```
pub struct Value<T>(Pointer<T>);

impl<T> Value<T> {
    /// Creates a `Value` that has no value yet.
    #[must_use]
    pub const fn new() -> Self {
        Self(Pointer::new())
    }

    /// Returns a clone of the value, if there is a value.
    #[inline]
    #[must_use]
    pub fn load(&self) -> Option<T>
    where
        T: Clone,
    {
        self.load_with(T::clone)
    }

    /// Calls `f` with the value, if there is a value, and returns the result of `f`. `f` may do anything, and take any
    /// time.
    #[inline]
    pub fn load_with<R>(&self, f: impl FnOnce(&T) -> R) -> Option<R> {
        self.0.load_with(f)
    }

    /// Sets the value.
    #[inline]
    pub fn store(&self, new: T) {
        self.0.store(Some(Arc::new(new)));
    }

    /// Sets the value, and returns the previous value, if there was a value.
    #[inline]
    pub fn swap(&self, new: T) -> Option<T>
    where
        T: Clone,
    {
        self.0.swap(Some(Arc::new(new))).map(Arc::unwrap_or_clone)
    }

    /// Sets the value to `new` if the current value equals `old`. If `old` is `None`, sets the value only if no value
    /// has been stored yet. Returns whether this call has set the value.
    pub fn compare_and_swap(&self, old: Option<&T>, new: T) -> bool
    where
        T: PartialEq,
    {
        let mut now = self.0.load();
        if now.as_deref() != old {
            return false; // without an allocation
        }
        let new = Arc::new(new);
        while !self.0.compare_and_swap(now.as_ref(), Some(new.clone())) {
            now = self.0.load();
            if now.as_deref() != old {
                return false;
            }
        }
        true
    }
}

impl<T> Default for Value<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> From<T> for Value<T> {
    fn from(value: T) -> Self {
        Self(Arc::new(value).into())
    }
}

impl<T: fmt::Debug> fmt::Debug for Value<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
