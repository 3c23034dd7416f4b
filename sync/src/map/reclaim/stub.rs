//! A collector for models of the trie, which frees all memory with the map.

use std::cell::RefCell;

use super::{Free, Retired};

/// A list of all memory that was retired. Loom runs all threads of a model on a single thread of the machine, and switches
/// between them only at its own operations, so a cell suffices.
#[derive(Default)]
pub(in crate::map) struct Collector(RefCell<Vec<Retired>>);

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
        assert!(list.iter().all(|other| other.address != gone.cast()), "retired twice");
        list.push(Retired::new(gone));
    }

    pub fn hasten(&self) {}
}
