//! Where a channel keeps values: a ring of `capacity` slots, and a list of values beside it.
//!
//! All of it is under the channel's lock, but for the dropping.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::ptr;

use super::raw::MAX_LEN;
use crate::shim::Cell;

/// A ring. It does not count its values: the channel's word does.
pub(super) struct Ring<T> {
    slots: Box<[UnsafeCell<MaybeUninit<T>>]>,
    /// Where the oldest value is.
    head: Cell<usize>,
    /// Where the next value goes.
    tail: Cell<usize>,
}

impl<T> Ring<T> {
    /// `None` if so many values cannot be.
    pub(super) fn new(capacity: usize) -> Option<Self> {
        let mut slots = Vec::<UnsafeCell<MaybeUninit<T>>>::new();
        if capacity > MAX_LEN || slots.try_reserve_exact(capacity).is_err() {
            return None;
        }
        // SAFETY: room for so many has just been reserved; and what is not initialised is a `MaybeUninit`.
        unsafe { slots.set_len(capacity) };
        Some(Self { slots: slots.into(), head: Cell::new(0), tail: Cell::new(0) })
    }

    fn after(&self, at: usize) -> usize {
        if at + 1 == self.slots.len() { 0 } else { at + 1 }
    }

    /// Moves the value at `from` to the end.
    ///
    /// # Safety
    ///
    /// - The lock is held, and a slot is free.
    /// - `from` has a value, which is the ring's from now on.
    #[inline]
    pub(super) unsafe fn push(&self, from: *const T) {
        let at = self.tail.get();
        // SAFETY: a value at `from`, and a free slot, by the contract; the two are not the same memory, as the ring's
        // slots are never lent.
        unsafe { ptr::copy_nonoverlapping(from, self.slots[at].get().cast(), 1) };
        self.tail.set(self.after(at));
    }

    /// Moves the oldest value to `to`.
    ///
    /// # Safety
    ///
    /// - The lock is held, and the ring has a value.
    /// - `to` has room for it.
    #[inline]
    pub(super) unsafe fn pop(&self, to: *mut T) {
        let at = self.head.get();
        // SAFETY: as in `push`, the other way round.
        unsafe { ptr::copy_nonoverlapping(self.slots[at].get().cast(), to, 1) };
        self.head.set(self.after(at));
    }
}

/// Values beside the ring: those that a receiver had been given and has given back, because its future was dropped
/// before it could return them; and, of a channel without capacity, those that were sent by a permit. They are received
/// before those of the ring, the oldest first.
pub(super) struct Returned<T> {
    first: Cell<*mut Node<T>>,
}

pub(super) struct Node<T> {
    value: MaybeUninit<T>,
    ticket: u64,
    next: *mut Self,
}

impl<T> Node<T> {
    /// Makes room for a value, before the lock is taken: an allocator is not ours.
    pub(super) fn new() -> Box<Self> {
        Box::new(Self { value: MaybeUninit::uninit(), ticket: 0, next: ptr::null_mut() })
    }
}

impl<T> Returned<T> {
    pub(super) fn new() -> Self {
        Self { first: Cell::new(ptr::null_mut()) }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.first.get().is_null()
    }

    /// Moves the value at `from` to its place by its age, in a new node.
    ///
    /// # Safety
    ///
    /// - The lock is held.
    /// - `from` has a value, which is the list's from now on.
    pub(super) unsafe fn insert(&self, mut node: Box<Node<T>>, from: *const T, ticket: u64) {
        // SAFETY: `from` has a value; the node is new, so it is other memory.
        unsafe { ptr::copy_nonoverlapping(from, node.value.as_mut_ptr(), 1) };
        node.ticket = ticket;
        let first = self.first.get();
        // SAFETY: each node of the list is alive while the lock is held, and only the lock's owner uses it.
        unsafe {
            if first.is_null() || (*first).ticket > ticket {
                node.next = first;
                self.first.set(Box::into_raw(node));
                return;
            }
            let mut before = first;
            while !(*before).next.is_null() && (*(*before).next).ticket <= ticket {
                before = (*before).next;
            }
            node.next = (*before).next;
            (*before).next = Box::into_raw(node);
        }
    }

    /// Moves a value to `to`. Frees the node, which is the allocator's code under the lock: the one place where that is.
    ///
    /// # Safety
    ///
    /// - The lock is held, and there is a value.
    /// - `to` has room for it.
    #[cold]
    pub(super) unsafe fn pop(&self, to: *mut T) {
        // SAFETY: there is one, by the contract; made by `push`, and in no other hand.
        let node = unsafe { Box::from_raw(self.first.get()) };
        self.first.set(node.next);
        // SAFETY: the node's value is moved out once: the node is dropped after this, which does not drop it.
        unsafe { ptr::copy_nonoverlapping(node.value.as_ptr(), to, 1) };
    }
}
