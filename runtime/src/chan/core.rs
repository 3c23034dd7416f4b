//! A channel: the steps of a send and of a receive under the channel's lock. Go's `hchan`.
//!
//! | under the lock | send ([`Core::offer`]) | receive ([`Core::take`]) |
//! |---|---|---|
//! | 1 | closed: fails | a value is there: takes the oldest value; then gives the freed slot to a waiting sender or reserver ([`Core::refill`]) |
//! | 2 | a receiver waits: gives the value to that receiver | closed: takes a value that a task holds (see below); if there is no such value, fails |
//! | 3 | room: puts the value into the ring | a sender waits: takes its value |
//! | 4 | waits | waits |
//!
//! Receivers wait only while there is no value, and senders wait only while there is no room. So values are received in
//! the order in which they were sent. A call and the waiter that it takes out of a queue are *peers* of each other. The
//! waiter is woken after the unlock.
//!
//! Once the channel is closed, only `close` takes the blocked senders out of their queues. Their sends fail, even if
//! there is room.
//!
//! # Tasks
//!
//! A task that has been readied may be dropped before it is polled. So a value or a place (see `permit.rs`) that is
//! given to a waiting task is provisional:
//!
//! | a task that | is given | the channel owns the value | when the task is polled | when the task is dropped |
//! |---|---|---|---|---|
//! | receives | a value, which the task holds in its slot (`Outcome::Held`) | until the task is polled or dropped, or until another receiver finds the channel closed and empty and takes the value from the task | the task has received the value; or tries to receive again, if the value has been taken away | the value goes to the next receiver, or stays in the channel ([`Core::give_back`]) |
//! | sends to a buffer, or reserves | a place | from the time when the task is polled | the task sends ([`Core::send_reserved`]), or has a permit | the place goes to the next sender ([`Core::give_up_place`]) |
//! | sends without a buffer | nothing: a receiver takes the task's value at once | never | the task has sent | the task has sent |
//!
//! Two invariants hold for the waiters whose claims (`Claim`) are not taken. A receiver waits only if there is no value
//! in the channel and no sender waits with a value. A sender waits only if there is no room, and a reserver only if
//! there is no free place.
//!
//! Values move by copying bytes, so no code of `T` runs under the lock.

use std::mem::MaybeUninit;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::ptr;

use super::buffer::{Node, Returned, Ring};
use super::raw::{Dir, Locked, Peer, Raw};
use super::waiters::{Outcome, Waiter};
use crate::panics::Panics;
use crate::shim::AtomicUsize;

/// A channel, without its handles.
pub struct Core<T> {
    pub(super) raw: Raw,
    ring: Ring<T>,
    returned: Returned<T>,
    /// The number of [`Sender`](super::Sender)s, if the ends of this channel are counted.
    pub(super) send_ends: AtomicUsize,
    pub(super) recv_ends: AtomicUsize,
    /// A value that is dropped together with the channel: see [`Chan::keeping`](super::Chan::keeping).
    pub(super) kept: Option<Box<dyn Send + Sync>>,
}

// SAFETY: values are moved from thread to thread, and never shared. Only the owner of the lock reads or writes the
// ring, the queues, and the waiters and values that these refer to.
unsafe impl<T: Send> Send for Core<T> {}
// SAFETY: the same reason as for `Send`.
unsafe impl<T: Send> Sync for Core<T> {}

// A panic in user code leaves the channel consistent.
impl<T> UnwindSafe for Core<T> {}
impl<T> RefUnwindSafe for Core<T> {}

/// The result of a send under the lock.
pub(super) enum Offer {
    /// The value has been sent. If the value went to a waiting receiver, this is that receiver, which the caller must
    /// wake.
    Sent(Option<Peer>),
    Full,
    Closed,
}

/// The result of a receive under the lock.
pub(super) enum Take {
    /// A value has been received. The caller must wake the peer, if there is a peer: the blocked sender whose value
    /// this was, or the sender or reserver that has been given the freed slot.
    Got(Option<Peer>),
    Empty,
    Closed,
}

impl<T> Core<T> {
    /// # Panics
    ///
    /// Panics if `capacity` is too large, or there is not enough memory.
    #[track_caller]
    pub(super) fn new(capacity: usize) -> Self {
        let Some(ring) = Ring::new(capacity) else { panic!("makechan: size out of range") };
        Self {
            raw: Raw::new(capacity),
            ring,
            returned: Returned::new(),
            send_ends: AtomicUsize::new(1),
            recv_ends: AtomicUsize::new(1),
            kept: None,
        }
    }

    /// Does steps 1 to 3 of a send: see the table at the head of this file.
    ///
    /// # Safety
    ///
    /// - `locked` is the lock of this channel.
    /// - `from` has a value. If this returns `Sent`, the value has been moved out; otherwise the caller still owns the
    ///   value.
    #[inline]
    pub(super) unsafe fn offer(&self, locked: &mut Locked<'_>, from: *const T) -> Offer {
        if locked.state.is_closed() {
            return Offer::Closed;
        }
        // SAFETY: `locked` is the lock of this channel, and `from` has a value, by the contract of this function.
        if let Some(peer) = unsafe { self.hand_over(locked, from, None) } {
            return Offer::Sent(Some(peer));
        }
        if locked.has_room() {
            // SAFETY: the lock is held, and `from` has a value, by the contract of this function. The ring has no more
            // values than `len`, so a slot is free.
            unsafe { self.ring.push(from) };
            locked.state = locked.state.add_value();
            return Offer::Sent(None);
        }
        Offer::Full
    }

    /// Gives a value to the first receiver that waits, and returns that receiver, which the caller must wake. `age` is
    /// the value's ticket, if the value was handed to another receiver before.
    ///
    /// # Safety
    ///
    /// - `locked` is the lock of this channel.
    /// - `from` has a value. If this returns `Some`, the value has been moved out.
    #[inline]
    unsafe fn hand_over(&self, locked: &mut Locked<'_>, from: *const T, age: Option<u64>) -> Option<Peer> {
        // SAFETY: the contract of `hand_over_some` is the contract of this function.
        if locked.state.has_waiters(Dir::Recv) { unsafe { self.hand_over_some(locked, from, age) } } else { None }
    }

    /// # Safety
    ///
    /// The contract of `hand_over`.
    #[inline]
    unsafe fn hand_over_some(&self, locked: &mut Locked<'_>, from: *const T, age: Option<u64>) -> Option<Peer> {
        // SAFETY: the next statement moves a value of this channel's type to the receiver's slot.
        let peer = unsafe { locked.dequeue_to_serve(Dir::Recv) }?;
        // SAFETY: the peer has room for a value of this channel's type, and touches its slot only after its wake-up.
        // `from` has a value, by the contract of `hand_over`. The slots of two different waiters do not overlap.
        unsafe { ptr::copy_nonoverlapping(from, peer.slot().cast(), 1) };
        if peer.is_task() {
            let age = age.unwrap_or_else(|| locked.ticket());
            // SAFETY: `peer` is a task, and this call has taken `peer` out of this channel's receivers, and has moved a
            // value to its slot.
            return Some(unsafe { locked.hold(peer, age) });
        }
        Some(peer)
    }

    /// Does steps 1 to 3 of a receive: see the table at the head of this file.
    ///
    /// # Safety
    ///
    /// - `locked` is the lock of this channel.
    /// - `to` has room for a value. If this returns `Got`, `to` has a value.
    #[inline]
    pub(super) unsafe fn take(&self, locked: &mut Locked<'_>, to: *mut T) -> Take {
        if locked.state.len() > 0 {
            if self.returned.is_empty() {
                // SAFETY: the lock is held, and `to` has room, by the contract of this function. `len` counts the
                // values in the ring and the returned values. There are no returned values, so the ring has a value.
                unsafe { self.ring.pop(to) };
            } else {
                // SAFETY: the lock is held, and `returned` is not empty. `to` has room, by the contract of this
                // function.
                unsafe { self.returned.pop(to) };
            }
            locked.state = locked.state.remove_value();
            return Take::Got(self.refill(locked));
        }
        if locked.state.is_closed() {
            // SAFETY: `locked` is the lock of this channel, and `to` has room, by the contract of this function.
            return unsafe { self.take_at_the_end(locked, to) };
        }
        // SAFETY: the next statement moves the value out of the sender's slot.
        if let Some(peer) = unsafe { locked.dequeue_to_serve(Dir::Send) } {
            // SAFETY: the peer has a value of this channel's type, and treats the value as moved out once the peer has
            // been woken. `to` has room, by the contract of this function. The slots of two different waiters do not
            // overlap.
            unsafe { ptr::copy_nonoverlapping(peer.slot().cast(), to, 1) };
            return Take::Got(Some(peer));
        }
        Take::Empty
    }

    /// Takes a value away from a task that holds the value (`Outcome::Held`). The channel is closed and has no other
    /// value.
    ///
    /// # Safety
    ///
    /// The contract of `take`.
    #[cold]
    #[inline(never)]
    unsafe fn take_at_the_end(&self, locked: &mut Locked<'_>, to: *mut T) -> Take {
        let Some(held) = locked.take_held() else { return Take::Closed };
        crate::shim::mark("a value that a task holds is taken as the channel is closed");
        // SAFETY: `held` had a value of this channel's type, which `take_held` has taken away from its task. `to` has
        // room, by the contract of `take`. That task is not the caller, whose waiter is not `Held`, so the slots do not
        // overlap.
        unsafe { ptr::copy_nonoverlapping(held.cast(), to, 1) };
        Take::Got(None)
    }

    /// Gives room that has become free to the sender or reserver that has waited longest. A sender's value moves into
    /// the ring; a reserver gets a place. The caller must wake the returned peer.
    #[inline]
    pub(super) fn refill(&self, locked: &mut Locked<'_>) -> Option<Peer> {
        if locked.state.wants_room() { self.refill_some(locked) } else { None }
    }

    #[inline(never)]
    fn refill_some(&self, locked: &mut Locked<'_>) -> Option<Peer> {
        if locked.state.is_closed() {
            return None;
        }
        let first = locked.first_to_send();
        let second = if first == Dir::Send { Dir::Reserve } else { Dir::Send };
        // Try the second queue too, in case all waiters of the first queue have been claimed elsewhere.
        [first, second].into_iter().find_map(|dir| {
            if dir == Dir::Reserve {
                // SAFETY: the next statement reserves a place for the reserver.
                let peer = locked.has_place().then(|| unsafe { locked.dequeue_to_serve(dir) })??;
                locked.reserve(true);
                return Some(peer);
            }
            // SAFETY: the next statement moves the value out of the sender's slot.
            let peer = locked.has_room().then(|| unsafe { locked.dequeue_to_serve(dir) })??;
            // SAFETY: the lock is held, and there is room. The peer has a value, and treats the value as moved out once
            // the peer has been woken. No receiver waits, because there is a sender with a value.
            unsafe { self.ring.push(peer.slot().cast()) };
            locked.state = locked.state.add_value();
            Some(peer)
        })
    }

    /// Sends a value to a place that the caller has reserved. If a receiver waits, that receiver gets the value, and
    /// the place goes to the next sender or reserver. The caller must wake both returned peers. Returns `Full` if the
    /// channel has no capacity and no receiver waits.
    ///
    /// # Safety
    ///
    /// - The contract of `offer`.
    /// - The caller has a reserved place. This call ends the reservation.
    pub(super) unsafe fn send_reserved(&self, locked: &mut Locked<'_>, from: *const T) -> (Offer, Option<Peer>) {
        locked.reserve(false);
        if locked.state.is_closed() {
            return (Offer::Closed, None);
        }
        // SAFETY: `locked` is the lock of this channel, and `from` has a value, by the contract of this function.
        if let Some(peer) = unsafe { self.hand_over(locked, from, None) } {
            // The place is still free, so give the place to the next waiter.
            return (Offer::Sent(Some(peer)), self.refill(locked));
        }
        if self.raw.capacity() == 0 {
            return (Offer::Full, None);
        }
        // `len` may be above the capacity: it includes values beside the ring that were given back since the place was
        // reserved.
        // SAFETY: the lock is held, and `from` has a value, by the contract of this function. The reserved place
        // guarantees a free slot in the ring.
        unsafe { self.ring.push(from) };
        locked.state = locked.state.add_value();
        (Offer::Sent(None), None)
    }

    /// Gives up a reserved place.
    #[cold]
    pub(super) fn give_up_place(&self) {
        let mut locked = self.raw.lock();
        locked.reserve(false);
        let next = self.refill(&mut locked);
        locked.unlock();
        if let Some(next) = next {
            crate::shim::mark("a place that is given up goes to the next sender");
            next.wake();
        }
    }

    /// Keeps a permit's value in the list beside the ring, because the channel has no capacity and no receiver waits.
    ///
    /// # Safety
    ///
    /// - `locked` is the lock of this channel.
    /// - `from` has a value, which the channel owns after this call.
    pub(super) unsafe fn keep(&self, locked: &mut Locked<'_>, node: Box<Node<T>>, from: *const T) {
        let ticket = locked.ticket();
        // SAFETY: the lock is held, and `from` has a value, by the contract of this function.
        unsafe { self.returned.insert(node, from, ticket) };
        locked.state = locked.state.add_value();
    }

    /// Finishes the receive of a task that was readied. If the task holds a value in the slot `to`, the task owns that
    /// value from now on. If the task holds no value, the channel is closed, and the task tries to receive another
    /// value.
    ///
    /// # Safety
    ///
    /// - The waiter has been in this channel's queue of receivers, and has been readied.
    /// - `to` is the waiter's slot.
    pub(super) unsafe fn receive_held(&self, locked: &mut Locked<'_>, waiter: &Waiter, to: *mut T) -> Take {
        if waiter.outcome.get() == Outcome::Held {
            // SAFETY: the waiter's outcome is `Held`, which was read under the lock.
            unsafe { locked.release_held(waiter) };
            return Take::Got(None);
        }
        // SAFETY: `locked` is the lock of this channel. `to` has room, because the slot has no value now.
        unsafe { self.take(locked, to) }
    }

    /// Undoes the receive of a task that was readied, but will not return a value. If the task holds a value, that
    /// value goes to the next receiver, or stays in the channel.
    ///
    /// # Safety
    ///
    /// The waiter has been in this channel's queue of receivers, with a slot for a value, and has been readied. The
    /// waiter is not used after this.
    #[cold]
    pub(super) unsafe fn give_back(&self, waiter: &Waiter) {
        let node = Node::new();
        let mut locked = self.raw.lock();
        if waiter.outcome.get() != Outcome::Held {
            return locked.unlock();
        }
        // SAFETY: the waiter's outcome is `Held`, which was read under the lock.
        unsafe { locked.release_held(waiter) };
        let (from, ticket) = (waiter.slot.cast::<T>(), waiter.ticket.get());
        // SAFETY: `locked` is the lock of this channel. `from` has the value that the task held, and this waiter does
        // not use the value any more.
        if let Some(peer) = unsafe { self.hand_over(&mut locked, from, Some(ticket)) } {
            crate::shim::mark("a value that is given back goes to the next receiver");
            locked.unlock();
            peer.wake();
        } else {
            crate::shim::mark("a value that is given back stays in the channel");
            // SAFETY: the lock is held. `from` has the value that the task held, and this waiter does not use the value
            // any more.
            unsafe { self.returned.insert(node, from, ticket) };
            locked.state = locked.state.add_value();
            locked.unlock();
        }
    }

    /// Drops all values that are in the channel.
    pub(super) fn discard(&self) {
        let mut panics = Panics::default();
        loop {
            let mut value = MaybeUninit::<T>::uninit();
            let mut locked = self.raw.lock();
            // SAFETY: `locked` is the lock of this channel, and `value` has room for a value.
            let taken = unsafe { self.take(&mut locked, value.as_mut_ptr()) };
            locked.unlock();
            let Take::Got(peer) = taken else { break };
            if let Some(peer) = peer {
                panics.catch(|| peer.wake());
            }
            // SAFETY: after `Got` there is a value, and this drops the value once.
            panics.catch(|| unsafe { value.assume_init_drop() });
        }
        panics.resume();
    }
}

impl<T> Drop for Core<T> {
    fn drop(&mut self) {
        // Skip values without a destructor: the drop of the ring frees them.
        if std::mem::needs_drop::<T>() || !self.returned.is_empty() {
            self.discard();
        }
    }
}
