//! A map of one object, for tests and models.

use std::ptr;

use sudog_runtime::shim::{AtomicPtr, Ordering::SeqCst};

use super::Free;
use super::collector::Guard;

/// An object in a box, or none.
pub(super) struct Slot<T>(AtomicPtr<Boxed<T>>);

struct Boxed<T>(T);

impl<T> Free for Boxed<T> {
    unsafe fn free(this: *mut Self) {
        // SAFETY: by the contract of `free`, `this` came from a box, and is freed once.
        drop(unsafe { Box::from_raw(this) });
    }
}

impl<T> Slot<T> {
    pub(super) fn new(object: T) -> Self {
        Self(AtomicPtr::new(boxed(Some(object))))
    }

    /// Returns the object, which the guard of the slot's collector keeps.
    pub(super) fn load<'g>(&self, _guard: &'g Guard<'_>) -> Option<&'g T> {
        // SAFETY: the slot has null, or a pointer of a boxed object that is freed only after the guard.
        Some(&unsafe { self.0.load(SeqCst).as_ref() }?.0)
    }

    /// Stores an object, or none, and retires the object before.
    pub(super) fn replace(&self, guard: &Guard<'_>, object: Option<T>) {
        let gone = self.0.swap(boxed(object), SeqCst);
        if !gone.is_null() {
            // SAFETY: the object came from a box, and the swap has taken it out of the only slot that has it.
            unsafe { guard.retire(gone) };
        }
    }
}

fn boxed<T>(object: Option<T>) -> *mut Boxed<T> {
    object.map_or(ptr::null_mut(), |object| Box::into_raw(Box::new(Boxed(object))))
}
