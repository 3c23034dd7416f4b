//! Go's `atomic.Value`: a [`Pointer`] whose pointee is what one sees.

use std::fmt;
use std::sync::Arc;

use super::Pointer;

/// A value of one type, or none yet, that is loaded, stored and exchanged atomically.
///
/// A store never changes the value that others look at; it puts another one in its place. Values are copied out as Go's
/// are: cloned. Make it `Value<Arc<T>>`, or a [`Pointer<T>`](Pointer), if clones are dear; or use
/// [`load_with`](Value::load_with).
///
/// Once there is a value, there always is one.
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
    /// None yet.
    #[must_use]
    pub const fn new() -> Self {
        Self(Pointer::new())
    }

    /// The value, if there is one.
    #[inline]
    #[must_use]
    pub fn load(&self) -> Option<T>
    where
        T: Clone,
    {
        self.load_with(T::clone)
    }

    /// What `f` says about the value, if there is one. `f` may do what it likes, and take its time.
    #[inline]
    pub fn load_with<R>(&self, f: impl FnOnce(&T) -> R) -> Option<R> {
        self.0.load_with(f)
    }

    /// Sets the value.
    #[inline]
    pub fn store(&self, new: T) {
        self.0.store(Some(Arc::new(new)));
    }

    /// Sets the value; returns the one before, if there was one.
    #[inline]
    pub fn swap(&self, new: T) -> Option<T>
    where
        T: Clone,
    {
        self.0.swap(Some(Arc::new(new))).map(Arc::unwrap_or_clone)
    }

    /// Sets the value to `new` if it equals `old`; `None` equals no value. Whether it did.
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
