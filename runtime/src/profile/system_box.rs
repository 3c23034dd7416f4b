//! A box in the memory of the system's allocator.
//!
//! The profiles use no other memory while they count. The global allocator may be user code, and may wait for a
//! profiled lock, while the owner or a waiter of that lock is running the code of a profile.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

pub(super) struct SystemBox<T>(NonNull<T>);

// SAFETY: the box owns the value, as a `Box` does.
unsafe impl<T: Send> Send for SystemBox<T> {}

impl<T> SystemBox<T> {
    const IS_SIZED: () = assert!(size_of::<T>() > 0);

    /// Moves `value` into a box. Returns `None` if there is no memory.
    pub(super) fn new(value: T) -> Option<Self> {
        const { Self::IS_SIZED };
        // SAFETY: the size of the layout is not zero.
        let place = NonNull::new(unsafe { System.alloc(Layout::new::<T>()) }.cast::<T>())?;
        // SAFETY: `place` is memory for a `T` that was just allocated.
        unsafe { place.write(value) };
        Some(Self(place))
    }

    /// Gives up the box without freeing the value, and returns the address of the value.
    pub(super) fn leak(self) -> NonNull<T> {
        std::mem::ManuallyDrop::new(self).0
    }

    /// Takes back a box that was leaked.
    ///
    /// # Safety
    ///
    /// `place` comes from [`SystemBox::leak`], and nothing else uses the value.
    pub(super) unsafe fn from_leaked(place: NonNull<T>) -> Self {
        Self(place)
    }
}

impl<T> Deref for SystemBox<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the box owns the value, which `new` has written.
        unsafe { self.0.as_ref() }
    }
}

impl<T> DerefMut for SystemBox<T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the box, which is borrowed exclusively, owns the value, which `new` has written.
        unsafe { self.0.as_mut() }
    }
}

impl<T> Drop for SystemBox<T> {
    fn drop(&mut self) {
        // SAFETY: `new` has written the value, and allocated its memory by this layout; the box, their owner, ends here.
        unsafe {
            self.0.drop_in_place();
            System.dealloc(self.0.as_ptr().cast(), Layout::new::<T>());
        }
    }
}
