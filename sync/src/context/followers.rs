//! The followers of a context, in a slab, so that each follower can be removed by its index.

use std::sync::Arc;
use std::task::Waker;

use super::done::Done;

/// A follower of a context, which is told when that context is done.
pub(super) enum Follower {
    /// A context that is derived from the followed context.
    Child(Arc<Done>),
    /// The waker of a task that waits for the end of the context.
    Task(Waker),
    /// A function that is to run in a goroutine of its own.
    Call(Box<dyn FnOnce() + Send>),
}

/// The place of a follower in the slab. An index is reused, an id is not. So an outdated place finds no follower.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    at: usize,
    id: u64,
}

#[derive(Default)]
pub(super) struct Followers {
    slots: Vec<Slot>,
    /// The index of the first free slot. Free slots form a linked list.
    free: Option<usize>,
    len: usize,
    next_id: u64,
}

enum Slot {
    Free { next: Option<usize> },
    Taken { id: u64, follower: Follower },
}

impl Followers {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn insert(&mut self, follower: Follower) -> Place {
        let id = self.next_id;
        self.next_id += 1;
        self.len += 1;
        let slot = Slot::Taken { id, follower };
        let at = match self.free {
            None => {
                self.slots.push(slot);
                self.slots.len() - 1
            }
            Some(at) => {
                if let Slot::Free { next } = std::mem::replace(&mut self.slots[at], slot) {
                    self.free = next;
                }
                at
            }
        };
        Place { at, id }
    }

    pub(super) fn remove(&mut self, place: Place) -> Option<Follower> {
        let slot = self.slots.get_mut(place.at)?;
        if !matches!(slot, Slot::Taken { id, .. } if *id == place.id) {
            return None;
        }
        let taken = std::mem::replace(slot, Slot::Free { next: self.free });
        self.free = Some(place.at);
        self.len -= 1;
        if self.len == 0 && self.slots.len() > 32 {
            // A context that once had many followers, and lives long, must not keep the memory for them.
            (self.slots, self.free) = (Vec::new(), None);
        }
        match taken {
            Slot::Taken { follower, .. } => Some(follower),
            Slot::Free { .. } => None,
        }
    }

    /// Returns the waker at `place`, if the follower there is a task.
    pub(super) fn waker(&mut self, place: Place) -> Option<&mut Waker> {
        match self.slots.get_mut(place.at)? {
            Slot::Taken { id, follower: Follower::Task(waker) } if *id == place.id => Some(waker),
            _ => None,
        }
    }

    /// Returns the first child in slot `from` or later, and the index of the slot after that child.
    pub(super) fn next_child(&self, from: usize) -> Option<(&Arc<Done>, usize)> {
        self.slots.iter().enumerate().skip(from).find_map(|(at, slot)| match slot {
            Slot::Taken { follower: Follower::Child(child), .. } => Some((child, at + 1)),
            _ => None,
        })
    }

    pub(super) fn into_iter(self) -> impl Iterator<Item = Follower> {
        self.slots.into_iter().filter_map(|slot| match slot {
            Slot::Taken { follower, .. } => Some(follower),
            Slot::Free { .. } => None,
        })
    }
}
