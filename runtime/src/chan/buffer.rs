//! The storage of a channel's values: a `Ring` of `capacity` slots, and the list `Returned` of the values beside the
//! ring.
//!
//! The methods of both are called under the channel's lock, except while the channel is made or dropped.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::ptr;

use super::state::State;
use crate::shim::Cell;

/// A ring of values. The ring does not store the number of its values: the channel's word counts them (`state.rs`).
pub(super) struct Ring<T> {
    slots: Box<[UnsafeCell<MaybeUninit<T>>]>,
    /// The index of the oldest value. Changed under the channel's lock.
    head: Cell<usize>,
    /// The index of the slot for the next value. Changed under the channel's lock.
    tail: Cell<usize>,
}

impl<T> Ring<T> {
    /// Makes an empty ring. Returns `None` if `capacity` is too large, or there is not enough memory.
    pub(super) fn new(capacity: usize) -> Option<Self> {
        let mut slots = Vec::<UnsafeCell<MaybeUninit<T>>>::new();
        if capacity > State::MAX_LEN || slots.try_reserve_exact(capacity).is_err() {
            return None;
        }
        // SAFETY: `try_reserve_exact` has reserved room for `capacity` elements, and a `MaybeUninit` needs no
        // initialisation.
        unsafe { slots.set_len(capacity) };
        Some(Self { slots: slots.into(), head: Cell::new(0), tail: Cell::new(0) })
    }

    fn after(&self, at: usize) -> usize {
        if at + 1 == self.slots.len() { 0 } else { at + 1 }
    }

    /// Moves the value at `from` to the end of the ring.
    ///
    /// # Safety
    ///
    /// - The lock is held, and a slot is free.
    /// - `from` has a value, which the ring owns after this call.
    #[inline]
    pub(super) unsafe fn push(&self, from: *const T) {
        let at = self.tail.get();
        // SAFETY: `from` has a value, and a slot is free, by the contract of this function. The two do not overlap,
        // because the ring's slots are never lent.
        unsafe { ptr::copy_nonoverlapping(from, self.slots[at].get().cast(), 1) };
        self.tail.set(self.after(at));
    }

    /// Moves the oldest value to `to`.
    ///
    /// # Safety
    ///
    /// - The lock is held, and the ring has a value.
    /// - `to` has room for the value.
    #[inline]
    pub(super) unsafe fn pop(&self, to: *mut T) {
        let at = self.head.get();
        // SAFETY: `to` has room, and the ring has a value, by the contract of this function. The two do not overlap,
        // because the ring's slots are never lent.
        unsafe { ptr::copy_nonoverlapping(self.slots[at].get().cast(), to, 1) };
        self.head.set(self.after(at));
    }
}

/// The values beside the ring. There are two kinds: a value that a receiver has given back, because its future was
/// dropped before the future could return the value; and, in a channel without capacity, a value that a permit has
/// sent. These values are received before those of the ring, the oldest first.
pub(super) struct Returned<T> {
    first: Cell<*mut Node<T>>,
}

pub(super) struct Node<T> {
    value: MaybeUninit<T>,
    ticket: u64,
    next: *mut Self,
}

impl<T> Node<T> {
    /// Makes a node without a value. The caller calls this before it takes the channel's lock, because the allocator
    /// may be user code.
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

    /// Moves the value at `from` into `node`, and inserts the node into the list, which is ordered by `ticket`.
    ///
    /// # Safety
    ///
    /// - The lock is held.
    /// - `from` has a value, which the list owns after this call.
    pub(super) unsafe fn insert(&self, mut node: Box<Node<T>>, from: *const T, ticket: u64) {
        // SAFETY: `from` has a value, by the contract of this function. The node is new, so the two do not overlap.
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

    /// Moves the oldest value to `to`, and frees the value's node. This is the only call that runs the allocator under
    /// the channel's lock.
    ///
    /// # Safety
    ///
    /// - The lock is held, and the list has a value.
    /// - `to` has room for the value.
    #[cold]
    pub(super) unsafe fn pop(&self, to: *mut T) {
        // SAFETY: the list has a first node, by the contract of this function. `insert` made the pointer by
        // `Box::into_raw`, and only the list has the pointer.
        let node = unsafe { Box::from_raw(self.first.get()) };
        self.first.set(node.next);
        // SAFETY: `to` has room, by the contract of this function. The value is moved out once: the drop of the node
        // does not drop its value.
        unsafe { ptr::copy_nonoverlapping(node.value.as_ptr(), to, 1) };
    }
}
