//! Go's `atomic.Pointer[T]`: what the collector of garbage is to it, the count of an `Arc` is here.
//!
//! Over [`arc_swap`], whose loads never wait. It fits: every load, swap and compare-exchange of the pointer that
//! decides an operation is SeqCst there, and each operation takes effect at one of them.
//!
//! A load that meets a swap may be given its result by the swapping thread, which loads SeqCst on its behalf, meanwhile;
//! no goroutine leaves its thread inside of a load before it is decided. Destructors of items may run inside of
//! `arc_swap`, but when it holds nothing.

use std::fmt;
use std::ptr;
use std::sync::Arc;

use arc_swap::ArcSwapOption;

/// An `Option<Arc<T>>` that is loaded, stored and exchanged atomically, all in one sequentially consistent order.
///
/// Pointers are compared by identity ([`Arc::ptr_eq`]), as Go's are. The one that `compare_and_swap` is given keeps its
/// object alive, so no other one can have the same address.
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
    /// `None`, which is Go's nil.
    #[must_use]
    pub const fn new() -> Self {
        Self(ArcSwapOption::const_empty())
    }

    /// The pointer.
    #[inline]
    #[must_use]
    pub fn load(&self) -> Option<Arc<T>> {
        self.0.load_full()
    }

    /// What `f` says about the pointee, without counting a reference to it: readers on several processors do not write
    /// to one line. A thread that is inside of more than a few of these at a time counts references after all.
    #[inline]
    pub(super) fn load_with<R>(&self, f: impl FnOnce(&T) -> R) -> Option<R> {
        self.0.load().as_deref().map(f)
    }

    /// Sets the pointer.
    #[inline]
    pub fn store(&self, new: Option<Arc<T>>) {
        self.0.store(new);
    }

    /// Sets the pointer; returns the one before.
    #[inline]
    pub fn swap(&self, new: Option<Arc<T>>) -> Option<Arc<T>> {
        self.0.swap(new)
    }

    /// Sets the pointer to `new` if it is `old`, the very same: whether it was.
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
