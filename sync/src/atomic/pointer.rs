//! Go's `atomic.Pointer[T]`. Go's garbage collector keeps the pointee alive; here the reference count of an `Arc`
//! does.
//!
//! The implementation is [`arc_swap`], whose loads never wait. Its orderings suffice: in `arc_swap`, every load, swap
//! and compare-exchange of the pointer that decides an operation is SeqCst, and each operation takes effect at such a
//! step.
//!
//! If a swap runs while a load is under way, the swapping thread may provide the result of that load: before the load
//! ends, the swapping thread loads the pointer, with SeqCst, on behalf of the loading thread. A goroutine that is
//! inside of a load does not leave its thread before the load is decided. Destructors of items may run inside of
//! `arc_swap`, but only while `arc_swap` holds nothing.

use std::fmt;
use std::ptr;
use std::sync::Arc;

use arc_swap::ArcSwapOption;

/// An `Option<Arc<T>>` that is loaded, stored and exchanged atomically. All these operations have a single sequentially
/// consistent order.
///
/// Pointers are compared by identity ([`Arc::ptr_eq`]), as Go's are. The `old` pointer that `compare_and_swap` gets
/// keeps its object alive, so no other object can have the same address.
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
pub struct Pointer<T>(ArcSwapOption<T>);

impl<T> Pointer<T> {
    /// Creates a pointer that is `None`, Go's nil.
    #[must_use]
    pub const fn new() -> Self {
        Self(ArcSwapOption::const_empty())
    }

    /// Returns the pointer.
    #[inline]
    #[must_use]
    pub fn load(&self) -> Option<Arc<T>> {
        self.0.load_full()
    }

    /// Calls `f` with the pointee, and returns the result of `f`. Does not change the reference count of the pointee,
    /// so readers on several processors do not write to a shared cache line. A thread can be in a few such calls at the
    /// same time; further calls of that thread change the count.
    #[inline]
    pub(super) fn load_with<R>(&self, f: impl FnOnce(&T) -> R) -> Option<R> {
        self.0.load().as_deref().map(f)
    }

    /// Sets the pointer.
    #[inline]
    pub fn store(&self, new: Option<Arc<T>>) {
        self.0.store(new);
    }

    /// Sets the pointer, and returns the previous pointer.
    #[inline]
    pub fn swap(&self, new: Option<Arc<T>>) -> Option<Arc<T>> {
        self.0.swap(new)
    }

    /// Sets the pointer to `new` if the current pointer is identical to `old`. Returns whether the two were identical.
    #[inline]
    pub fn compare_and_swap(&self, old: Option<&Arc<T>>, new: Option<Arc<T>>) -> bool {
        let address = |arc: Option<&Arc<T>>| arc.map_or(ptr::null(), Arc::as_ptr);
        let found = self.0.compare_and_swap(address(old), new);
        address(found.as_ref()) == address(old)
    }
}

impl<T> Default for Pointer<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> From<Option<Arc<T>>> for Pointer<T> {
    fn from(pointer: Option<Arc<T>>) -> Self {
        Self(ArcSwapOption::new(pointer))
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
