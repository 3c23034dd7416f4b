//! A doubly linked list of entries that stand in their owners' frames. Used by the notify list, by cancels, and for the
//! threads that wait.
//!
//! Only the holder of a reference to the list, as a rule the holder of the lock around the list, reads or writes the
//! links of its entries. A linked entry is alive: its owner takes the entry out before the entry goes away.

use std::ptr::NonNull;

use crate::shim::Cell;

/// The links of an entry. Used by the list that contains the entry.
pub(crate) struct Links<T> {
    next: Cell<Option<NonNull<T>>>,
    prev: Cell<Option<NonNull<T>>>,
}

/// A value that a list can contain.
pub(crate) trait Entry: Sized {
    fn links(&self) -> &Links<Self>;
}

pub(crate) struct List<T> {
    first: Option<NonNull<T>>,
    last: Option<NonNull<T>>,
}

// SAFETY: the list refers to its entries, and does not own them. Whoever puts an entry in permits the use of that entry
// by the holder of the list, on whatever thread: see `push_back`.
unsafe impl<T> Send for List<T> {}

impl<T> Links<T> {
    pub(crate) fn new() -> Self {
        Self { next: Cell::new(None), prev: Cell::new(None) }
    }
}

impl<T> List<T> {
    pub(crate) const fn new() -> Self {
        Self { first: None, last: None }
    }
}

impl<T: Entry> List<T> {
    /// Returns an entry that `link`, which is a link of this list, refers to.
    #[inline]
    fn entry(&self, link: NonNull<T>) -> &T {
        // SAFETY: only the functions of this file read and write links, and they link entries of this list with each
        // other. Such an entry is alive, until the reference to this list ends, by the contract of `push_back`.
        unsafe { link.as_ref() }
    }

    /// Iterates over the entries, from the first to the last.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        let entry = |link| self.entry(link);
        std::iter::successors(self.first.map(entry), move |at| at.links().next.get().map(entry))
    }

    /// Puts an entry at the end of the list.
    ///
    /// # Safety
    ///
    /// - The entry is in no list.
    /// - The entry stays alive and in place until it has left the list, and then until the reference to the list by
    ///   which it has left ends: as a rule, until the lock around the list is released.
    /// - The holder of the list may use the entry, whatever the holder's thread is.
    pub(crate) unsafe fn push_back(&mut self, entry: &T) {
        let this = NonNull::from(entry);
        entry.links().next.set(None);
        entry.links().prev.set(self.last);
        match self.last.replace(this) {
            Some(last) => self.entry(last).links().next.set(Some(this)),
            None => self.first = Some(this),
        }
    }

    /// Puts an entry at the front of the list.
    ///
    /// # Safety
    ///
    /// The contract of [`push_back`](Self::push_back).
    pub(crate) unsafe fn push_front(&mut self, entry: &T) {
        let this = NonNull::from(entry);
        entry.links().prev.set(None);
        entry.links().next.set(self.first);
        match self.first.replace(this) {
            Some(first) => self.entry(first).links().prev.set(Some(this)),
            None => self.last = Some(this),
        }
    }

    /// Takes the first entry out of the list.
    pub(crate) fn pop(&mut self) -> Option<&T> {
        let first = self.first?;
        let next = self.entry(first).links().next.get();
        self.first = next;
        match next {
            Some(next) => self.entry(next).links().prev.set(None),
            None => self.last = None,
        }
        Some(self.entry(first))
    }

    /// Takes an entry out of the list.
    ///
    /// # Safety
    ///
    /// The entry is in this list.
    pub(crate) unsafe fn remove(&mut self, entry: &T) {
        let (prev, next) = (entry.links().prev.get(), entry.links().next.get());
        match prev {
            Some(prev) => self.entry(prev).links().next.set(next),
            None => self.first = next,
        }
        match next {
            Some(next) => self.entry(next).links().prev.set(prev),
            None => self.last = prev,
        }
    }
}
