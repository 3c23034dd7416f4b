//! A collector for models of the trie, which frees all memory with the map.

use std::cell::RefCell;

use super::Free;

type Freeing = (*mut (), Box<dyn FnOnce()>);

/// A list of all memory that was retired. Loom runs all threads of a model on a single thread of the machine, and switches
/// between them only at its own operations, so a cell suffices.
#[derive(Default)]
pub(in crate::map) struct Collector(RefCell<Vec<Freeing>>);

// SAFETY: loom runs all threads of a model on a single thread of the machine.
unsafe impl Send for Collector {}
// SAFETY: loom runs all threads of a model on a single thread of the machine, and switches only at its own
// operations.
unsafe impl Sync for Collector {}

pub(in crate::map) struct Guard<'a>(&'a Collector);

impl Collector {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn with_guard<R>(&self, f: impl FnOnce(&Guard<'_>) -> R) -> R {
        f(&Guard(self))
    }

    pub fn with_own_guard<R>(&self, f: impl FnOnce(&Guard<'_>) -> R) -> R {
        f(&Guard(self))
    }
}

impl Guard<'_> {
    /// # Safety
    /// As of the collector's.
    pub unsafe fn retire<T: Free>(&self, gone: *mut T) {
        let mut list = self.0.0.borrow_mut();
        assert!(list.iter().all(|(other, _)| *other != gone.cast()), "retired twice");
        // SAFETY: by the contract of `retire`, `gone` came from a box, and no other code frees `gone`. The closure
        // runs once, when the map is dropped, so no operation looks at `gone`.
        let free: Box<dyn FnOnce() + '_> = Box::new(move || unsafe { T::free(gone) });
        // SAFETY: the map owns the list, so the closure is gone before the data that the map's keys and values may
        // borrow.
        let free = unsafe { std::mem::transmute::<Box<dyn FnOnce() + '_>, Box<dyn FnOnce()>>(free) };
        list.push((gone.cast(), free));
    }

    pub fn hasten(&self) {}
}

impl Drop for Collector {
    fn drop(&mut self) {
        for (_, free) in self.0.take() {
            free();
        }
    }
}
