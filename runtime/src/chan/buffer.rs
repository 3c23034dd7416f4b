//! The storage of a channel's values: a ring of `capacity` slots, or the segments of a channel without a bound; and the
//! list `Returned` of the values beside these.
//!
//! Only the owner of the channel's lock has a reference to a `Store`: see `Guard` (`core.rs`).

use std::mem::MaybeUninit;

use super::segments::Segments;
use super::state::State;
use super::value::Owned;

/// The values of a channel. A store does not know how many values it has: the channel's word counts them (`state.rs`).
pub(super) struct Store<T> {
    ring: Ring<T>,
    returned: Returned<T>,
}

impl<T> Store<T> {
    /// Makes an empty store. Returns `None` if `capacity` is too large, or there is not enough memory.
    pub(super) fn new(capacity: usize) -> Option<Self> {
        Some(Self { ring: Ring::new(capacity)?, returned: Returned { first: None } })
    }

    /// Makes an empty store that grows.
    pub(super) fn unbounded() -> Self {
        let ring = Ring { slots: Box::default(), head: 0, tail: 0, end: OUT, more: Some(Box::default()) };
        Self { ring, returned: Returned { first: None } }
    }

    /// Returns whether there are no values beside the ring.
    pub(super) fn has_none_returned(&self) -> bool {
        self.returned.first.is_none()
    }

    /// Moves a value to the end of the ring. In a full ring, the value replaces the oldest value, which is leaked.
    #[inline]
    pub(super) fn push(&mut self, value: Owned<'_, T>) {
        self.ring.push(value);
    }

    /// Inserts a value into the list beside the ring, which is ordered by `ticket`.
    pub(super) fn insert(&mut self, node: Box<Node<T>>, value: Owned<'_, T>, ticket: u64) {
        self.returned.insert(node, value, ticket);
    }

    /// Moves the oldest value to `room`.
    ///
    /// # Safety
    ///
    /// The store has a value.
    #[inline]
    pub(super) unsafe fn pop<'v>(&mut self, room: &'v mut MaybeUninit<T>) -> Owned<'v, T> {
        if self.returned.first.is_some() {
            return self.returned.pop(room);
        }
        // SAFETY: the store has a value, by the contract of this function, and no value is beside the ring.
        unsafe { self.ring.pop(room) }
    }
}

struct Ring<T> {
    slots: Box<[MaybeUninit<T>]>,
    /// The index of the oldest value.
    head: usize,
    /// The index of the slot for the next value.
    tail: usize,
    /// The index that follows the last index of `slots`: 0, or `OUT` if the channel has no bound.
    end: usize,
    /// The segments behind `slots`, if the channel has no bound. Then `slots` is no ring, but the first segment: an index
    /// that is out of range says that the segment has been filled, or emptied.
    more: Option<Box<Segments<T>>>,
}

/// An index that is out of range.
const OUT: usize = usize::MAX;

impl<T> Ring<T> {
    fn new(capacity: usize) -> Option<Self> {
        let mut slots = Vec::<MaybeUninit<T>>::new();
        if capacity > State::MAX_LEN || slots.try_reserve_exact(capacity).is_err() {
            return None;
        }
        // SAFETY: `try_reserve_exact` has reserved room for `capacity` elements, and a `MaybeUninit` needs no
        // initialisation.
        unsafe { slots.set_len(capacity) };
        Some(Self { slots: slots.into(), head: 0, tail: 0, end: 0, more: None })
    }

    fn after(&self, at: usize) -> usize {
        if at + 1 == self.slots.len() { self.end } else { at + 1 }
    }

    #[inline]
    fn push(&mut self, value: Owned<'_, T>) {
        let at = self.tail;
        match self.slots.get_mut(at) {
            Some(slot) => {
                value.move_to(slot).leave();
                self.tail = self.after(at);
            }
            None => self.push_behind(value),
        }
    }

    /// Moves a value behind the first segment, which has been filled; or to the beginning of that segment, if all values
    /// have been taken.
    #[cold]
    #[inline(never)]
    fn push_behind(&mut self, value: Owned<'_, T>) {
        let more = self.more.as_mut().expect("a ring has a slot for each index");
        if self.head >= self.slots.len() && more.is_empty() {
            (self.head, self.tail) = (0, 0);
            if self.slots.is_empty() {
                self.slots = more.segment();
            }
            return self.push(value);
        }
        more.push(value);
    }

    /// Replaces the first segment, whose values have all been taken, by the next segment, and moves that segment's oldest
    /// value to `room`.
    ///
    /// # Safety
    ///
    /// The ring has a value.
    #[cold]
    #[inline(never)]
    unsafe fn pop_behind<'v>(&mut self, room: &'v mut MaybeUninit<T>) -> Owned<'v, T> {
        let more = self.more.as_mut().expect("a ring has a slot for each index");
        let (next, len) = more.pop().expect("the store has a value");
        more.keep(std::mem::replace(&mut self.slots, next));
        (self.head, self.tail) = (0, len);
        // SAFETY: the ring has a value, by the contract of this function.
        unsafe { self.pop(room) }
    }

    /// Moves the oldest value to `room`.
    ///
    /// # Safety
    ///
    /// The ring has a value.
    #[inline]
    unsafe fn pop<'v>(&mut self, room: &'v mut MaybeUninit<T>) -> Owned<'v, T> {
        let at = self.head;
        let Some(slot) = self.slots.get_mut(at) else {
            // SAFETY: the ring has a value, by the contract of this function.
            return unsafe { self.pop_behind(room) };
        };
        // SAFETY: the ring has a value, by the contract of this function: the value at `head`. The slot is free from now
        // on, so nothing else uses the value.
        let value = unsafe { Owned::new(slot) }.move_to(room);
        self.head = self.after(at);
        value
    }
}

/// The values beside the ring. There are two kinds: a value that a receiver has given back, because its future was
/// dropped before the future could return the value; and, in a channel without capacity, a value that a permit has
/// sent. These values are received before those of the ring, the oldest first.
struct Returned<T> {
    first: Option<Box<Node<T>>>,
}

/// An element of the list. Each node in the list has a value.
pub(super) struct Node<T> {
    value: MaybeUninit<T>,
    ticket: u64,
    next: Option<Box<Self>>,
}

impl<T> Node<T> {
    /// Makes a node without a value. The caller calls this before it takes the channel's lock, because the allocator
    /// may be user code.
    pub(super) fn new() -> Box<Self> {
        Box::new(Self { value: MaybeUninit::uninit(), ticket: 0, next: None })
    }
}

impl<T> Returned<T> {
    /// Moves a value into `node`, and inserts the node before all nodes with a later ticket.
    fn insert(&mut self, mut node: Box<Node<T>>, value: Owned<'_, T>, ticket: u64) {
        value.move_to(&mut node.value).leave();
        node.ticket = ticket;
        let mut at = &mut self.first;
        while at.as_ref().is_some_and(|other| other.ticket <= ticket) {
            let Some(other) = at else { unreachable!("it has a ticket") };
            at = &mut other.next;
        }
        node.next = at.take();
        *at = Some(node);
    }

    /// Moves the oldest value to `room`, and frees the value's node. Only this call and the segments (`segments.rs`) run
    /// the allocator under the channel's lock.
    ///
    /// # Panics
    ///
    /// Panics if the list is empty.
    #[cold]
    fn pop<'v>(&mut self, room: &'v mut MaybeUninit<T>) -> Owned<'v, T> {
        let mut node = self.first.take().expect("the list is not empty");
        self.first = node.next.take();
        // SAFETY: a node in the list has a value. The node is freed, and its drop does not drop the value, so nothing
        // else uses the value.
        unsafe { Owned::new(&mut node.value) }.move_to(room)
    }
}
