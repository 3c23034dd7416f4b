//! Go's `atomic.Pointer[T]`. Go's garbage collector keeps the pointee alive; here the reference count of an `Arc`
//! does, and during a load a hazard pointer.

use std::fmt;
use std::sync::Arc;

use crate::hazard::HazardArc;

/// An `Option<Arc<T>>` that is loaded, stored and exchanged atomically. All these operations have a single sequentially
/// consistent order.
///
/// Pointers are compared by identity ([`Arc::ptr_eq`]), as Go's are. The `old` pointer that `compare_and_swap` gets
/// keeps its object alive, so no other object can have the same address.
///
/// Loads and stores cost what those of a [`Value`](super::Value) do, and a load also counts a reference.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use sudog::sync::atomic::Pointer;
///
/// static CONFIG: Pointer<String> = Pointer::new();
///
/// assert!(CONFIG.load().is_none());
/// CONFIG.store(Some(Arc::new("one".into())));
/// let old = CONFIG.load();
/// assert!(CONFIG.compare_and_swap(old.as_ref(), Some(Arc::new("two".into()))));
/// assert_eq!(*CONFIG.load().unwrap(), "two");
/// ```
pub struct Pointer<T>(HazardArc<T>);

impl<T> Pointer<T> {
    /// Creates a pointer that is `None`, Go's nil.
    #[must_use]
    pub const fn new() -> Self {
        Self(HazardArc::new())
    }

    /// Returns the pointer.
    #[inline]
    #[must_use]
    pub fn load(&self) -> Option<Arc<T>> {
        self.0.load()
    }

    /// Calls `f` with the pointee, and returns the result of `f`. Does not change the reference count of the pointee,
    /// so readers on several processors do not write to a shared cache line.
    #[inline]
    pub(super) fn load_with<R>(&self, f: impl FnOnce(&T) -> R) -> Option<R> {
        self.0.load_with(f)
    }

    /// Sets the pointer.
    #[inline]
    pub fn store(&self, new: Option<Arc<T>>) {
        drop(self.0.swap(new));
    }

    /// Sets the pointer, and returns the previous pointer.
    #[inline]
    pub fn swap(&self, new: Option<Arc<T>>) -> Option<Arc<T>> {
        self.0.swap(new)
    }

    /// Sets the pointer to `new` if the current pointer is identical to `old`. Returns whether the two were identical.
    #[inline]
    pub fn compare_and_swap(&self, old: Option<&Arc<T>>, new: Option<Arc<T>>) -> bool {
        self.0.compare_and_swap(old, new)
    }
}

impl<T> Default for Pointer<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> From<Option<Arc<T>>> for Pointer<T> {
    fn from(pointer: Option<Arc<T>>) -> Self {
        let this = Self::new();
        this.store(pointer);
        this
    }
}

impl<T> From<Arc<T>> for Pointer<T> {
    fn from(pointer: Arc<T>) -> Self {
        Some(pointer).into()
    }
}

impl<T: fmt::Debug> fmt::Debug for Pointer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.load().fmt(f)
    }
}
