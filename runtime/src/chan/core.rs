//! A channel: the steps of a send and of a receive under its lock. Go's `hchan`.
//!
//! | under the lock | send ([`Core::offer`]) | receive ([`Core::take`]) |
//! |---|---|---|
//! | 1 | closed: fails | a value is there: takes the oldest; then the place goes to the first that waits for one ([`Core::refill`]) |
//! | 2 | a receiver waits: its value goes there | closed: takes a value that a task holds; if there is none, fails |
//! | 3 | room: into the ring | a sender waits: takes its value |
//! | 4 | waits | waits |
//!
//! Receivers wait only while there is no value, and senders only while there is no room; so values are received in the
//! order in which they were sent. A peer that was taken out of a queue is woken after the unlock.
//!
//! Once the channel is closed its blocked senders are for `close` alone: their sends fail, whatever room there is.
//!
//! # Tasks
//!
//! A task that has been readied may be dropped before it is polled. So what a peer gives to a task is provisional:
//!
//! | a task that | is given | the value is the channel's | when it is polled | when it is dropped |
//! |---|---|---|---|---|
//! | receives | a value, which it holds in its slot (`Outcome::Held`) | until then; a receiver that finds the channel closed and empty takes it | it has received the value; or looks once more, if that is gone | the value goes to the next receiver, or stays in the channel ([`Core::give_back`]) |
//! | sends to a buffer, or reserves | a place | not before then | it sends ([`Core::send_reserved`]), or has a permit | the place goes to the next sender ([`Core::give_up_place`]) |
//! | sends without a buffer | nothing: its value is taken | at once | it has sent | it has sent |
//!
//! Invariants, of waiters whose claims are not taken: a receiver waits only if no value is there and no sender waits with
//! one; a sender or a reserver waits only if there is no room or place for it.
//!
//! Values move by copying bytes, so no code of `T` runs under the lock.

use std::mem::MaybeUninit;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::ptr;

use super::buffer::{Node, Returned, Ring};
use super::raw::{CLOSED, Dir, Locked, ONE, Peer, RECEIVERS, RESERVERS, Raw, SENDERS};
use super::waiters::{Outcome, Waiter};
use crate::panics::Panics;
use crate::shim::AtomicUsize;

/// A channel, without its handles.
pub struct Core<T> {
    pub(super) raw: Raw,
    ring: Ring<T>,
    returned: Returned<T>,
    /// How many ends there are, if they are counted.
    pub(super) send_ends: AtomicUsize,
    pub(super) recv_ends: AtomicUsize,
    /// Dropped with the channel.
    pub(super) kept: Option<Box<dyn Send + Sync>>,
}

// SAFETY: values are moved from thread to thread, and never shared: the ring, the queues and what they name are touched
// by the owner of the lock only.
unsafe impl<T: Send> Send for Core<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Core<T> {}

// Whatever panics, it stays whole.
impl<T> UnwindSafe for Core<T> {}
impl<T> RefUnwindSafe for Core<T> {}

/// What came of a send under the lock.
pub(super) enum Offer {
    /// The value is gone; a receiver may have it, which must be woken.
    Sent(Option<Peer>),
    Full,
    Closed,
}

/// What came of a receive under the lock.
pub(super) enum Take {
    /// The value is there; it may have been that of a blocked sender, or have made room for one, which must be woken.
    Got(Option<Peer>),
    Empty,
    Closed,
}

impl<T> Core<T> {
    /// # Panics
    ///
    /// If so many values cannot be.
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

    /// Steps 1 to 3 of a send.
    ///
    /// # Safety
    ///
    /// - `locked` is the lock of this channel.
    /// - `from` has a value. After `Sent` it is gone; else it is the caller's still.
    #[inline]
    pub(super) unsafe fn offer(&self, locked: &mut Locked<'_>, from: *const T) -> Offer {
        if locked.word & CLOSED != 0 {
            return Offer::Closed;
        }
        // SAFETY: the lock is this channel's; a value at `from`, by the contract.
        if let Some(peer) = unsafe { self.hand_over(locked, from, None) } {
            return Offer::Sent(Some(peer));
        }
        if locked.has_room() {
            // SAFETY: the lock is held; the ring has no more values than `len`, so there is a slot; by the contract.
            unsafe { self.ring.push(from) };
            locked.word += ONE;
            return Offer::Sent(None);
        }
        Offer::Full
    }

    /// Gives a value to the first receiver that waits, which the caller wakes. `age` is that of a value which was handed
    /// over before.
    ///
    /// # Safety
    ///
    /// - `locked` is the lock of this channel.
    /// - `from` has a value. After `Some` it is gone.
    #[inline]
    unsafe fn hand_over(&self, locked: &mut Locked<'_>, from: *const T, age: Option<u64>) -> Option<Peer> {
        // SAFETY: by the contract.
        if locked.word & RECEIVERS == 0 { None } else { unsafe { self.hand_over_some(locked, from, age) } }
    }

    /// # Safety
    ///
    /// The contract of `hand_over`.
    #[inline]
    unsafe fn hand_over_some(&self, locked: &mut Locked<'_>, from: *const T, age: Option<u64>) -> Option<Peer> {
        let peer = locked.dequeue(Dir::Recv, Outcome::Done)?;
        // SAFETY: the peer has room for one value of this channel's type, and touches it when it has been woken; a value at
        // `from`, by the contract; the two are different waiters'.
        unsafe { ptr::copy_nonoverlapping(from, peer.slot().cast(), 1) };
        if peer.is_task() {
            let age = age.unwrap_or_else(|| locked.ticket());
            // SAFETY: a receiver, taken out here, and not woken yet.
            unsafe { locked.hold(peer, age) };
        }
        Some(peer)
    }

    /// Steps 1 to 3 of a receive.
    ///
    /// # Safety
    ///
    /// - `locked` is the lock of this channel.
    /// - `to` has room for a value, which is there after `Got`.
    #[inline]
    pub(super) unsafe fn take(&self, locked: &mut Locked<'_>, to: *mut T) -> Take {
        if locked.state().len() > 0 {
            if self.returned.is_empty() {
                // SAFETY: the lock is held; `len` counts the ring's values and those that came back, and of these there
                // are none; room at `to`, by the contract.
                unsafe { self.ring.pop(to) };
            } else {
                // SAFETY: the lock is held, and it is not empty; room at `to`, by the contract.
                unsafe { self.returned.pop(to) };
            }
            locked.word -= ONE;
            return Take::Got(self.refill(locked));
        }
        if locked.word & CLOSED != 0 {
            // SAFETY: the lock is this channel's; room at `to`, by the contract.
            return unsafe { self.take_at_the_end(locked, to) };
        }
        if let Some(peer) = locked.dequeue(Dir::Send, Outcome::Done) {
            // SAFETY: the peer has a value of this channel's type, and believes that it is gone when it has been woken;
            // room at `to`, by the contract; the two are different waiters'.
            unsafe { ptr::copy_nonoverlapping(peer.slot().cast(), to, 1) };
            return Take::Got(Some(peer));
        }
        Take::Empty
    }

    /// Takes a value that a task holds, from a channel that is closed and has no other value.
    ///
    /// # Safety
    ///
    /// The contract of `take`.
    #[cold]
    #[inline(never)]
    unsafe fn take_at_the_end(&self, locked: &mut Locked<'_>, to: *mut T) -> Take {
        let Some(held) = locked.take_held() else { return Take::Closed };
        crate::shim::mark("a value that a task holds is taken as the channel is closed");
        // SAFETY: the slot had a value of this channel's type, and its task no longer believes so; room at `to`, by
        // the contract; the task is not the caller, whose waiter is not `Held`.
        unsafe { ptr::copy_nonoverlapping(held.cast(), to, 1) };
        Take::Got(None)
    }

    /// Gives a place that has become free to the first that waits for one: a sender, whose value moves into the ring, or a
    /// reserver. That one is the caller's to wake.
    #[inline]
    pub(super) fn refill(&self, locked: &mut Locked<'_>) -> Option<Peer> {
        if locked.word & (SENDERS | RESERVERS) == 0 { None } else { self.refill_some(locked) }
    }

    #[inline(never)]
    fn refill_some(&self, locked: &mut Locked<'_>) -> Option<Peer> {
        if locked.word & CLOSED != 0 {
            return None;
        }
        let first = locked.first_to_send();
        let second = if first == Dir::Send { Dir::Reserve } else { Dir::Send };
        // The second, in case that all of the first queue have been taken elsewhere.
        [first, second].into_iter().find_map(|dir| {
            if dir == Dir::Reserve {
                let peer = locked.has_place().then(|| locked.dequeue(dir, Outcome::Done))??;
                locked.reserve(true);
                return Some(peer);
            }
            let peer = locked.has_room().then(|| locked.dequeue(dir, Outcome::Done))??;
            // SAFETY: the lock is held; there is room; the peer has a value, and believes that it is gone when it has been
            // woken. No receiver waits, as there is a sender with a value.
            unsafe { self.ring.push(peer.slot().cast()) };
            locked.word += ONE;
            Some(peer)
        })
    }

    /// Sends to a place that is reserved. Returns the peers to wake: a receiver, and a sender that has got the place instead.
    /// `Full`: the channel has no capacity, and no receiver waits.
    ///
    /// # Safety
    ///
    /// - As for `offer`.
    /// - The caller has a place, which it no longer has after this.
    pub(super) unsafe fn send_reserved(&self, locked: &mut Locked<'_>, from: *const T) -> (Offer, Option<Peer>) {
        locked.reserve(false);
        if locked.word & CLOSED != 0 {
            return (Offer::Closed, None);
        }
        // SAFETY: by the contract.
        if let Some(peer) = unsafe { self.hand_over(locked, from, None) } {
            // The place is free still.
            return (Offer::Sent(Some(peer)), self.refill(locked));
        }
        if self.raw.capacity() == 0 {
            return (Offer::Full, None);
        }
        // `len` may be above the capacity, by values beside the ring that were given back since the place was reserved.
        // SAFETY: the lock is held; the ring has a slot that is free, which was reserved; by the contract.
        unsafe { self.ring.push(from) };
        locked.word += ONE;
        (Offer::Sent(None), None)
    }

    /// Gives up a place that is reserved.
    #[cold]
    pub(super) fn give_up_place(&self) {
        let mut locked = self.raw.lock();
        locked.reserve(false);
        let next = self.refill(&mut locked);
        locked.unlock();
        if let Some(next) = next {
            crate::shim::mark("a place that is given up goes to the next sender");
            // SAFETY: taken out here, and not used after.
            unsafe { next.wake() };
        }
    }

    /// Puts a value that a permit has sent beside the ring: the channel has no capacity, and no receiver waits.
    ///
    /// # Safety
    ///
    /// `from` has a value, which is the channel's from now on.
    pub(super) unsafe fn keep(&self, locked: &mut Locked<'_>, node: Box<Node<T>>, from: *const T) {
        let ticket = locked.ticket();
        // SAFETY: the lock is held; by the contract.
        unsafe { self.returned.insert(node, from, ticket) };
        locked.word += ONE;
    }

    /// Finishes the receive of a task that was readied: the value that the task holds, in the slot `to`, is the task's now. A
    /// task that holds none looks once more: the channel is closed, and another value may be there.
    ///
    /// # Safety
    ///
    /// - The waiter has been in this channel's queue of receivers, and has been readied.
    /// - `to` is the waiter's slot.
    pub(super) unsafe fn receive_held(&self, locked: &mut Locked<'_>, waiter: &Waiter, to: *mut T) -> Take {
        if waiter.outcome.get() == Outcome::Held {
            // SAFETY: the outcome is `Held`, under the lock.
            unsafe { locked.release_held(waiter) };
            return Take::Got(None);
        }
        // SAFETY: the lock is this channel's; the slot has no value now.
        unsafe { self.take(locked, to) }
    }

    /// Undoes the receive of a task that was readied and will return nothing: a value that the task holds goes to the next
    /// receiver, or stays in the channel.
    ///
    /// # Safety
    ///
    /// The waiter has been in this channel's queue of receivers, with a slot for a value, and has been readied. It is not
    /// used after this.
    #[cold]
    pub(super) unsafe fn give_back(&self, waiter: &Waiter) {
        let node = Node::new();
        let mut locked = self.raw.lock();
        if waiter.outcome.get() != Outcome::Held {
            return locked.unlock();
        }
        // SAFETY: the outcome is `Held`, under the lock.
        unsafe { locked.release_held(waiter) };
        let (from, ticket) = (waiter.slot.cast::<T>(), waiter.ticket.get());
        // SAFETY: the lock is this channel's; a value is there, which this waiter does not use any more.
        if let Some(peer) = unsafe { self.hand_over(&mut locked, from, Some(ticket)) } {
            crate::shim::mark("a value that is given back goes to the next receiver");
            locked.unlock();
            // SAFETY: taken out here, and not used after.
            unsafe { peer.wake() };
        } else {
            crate::shim::mark("a value that is given back stays in the channel");
            // SAFETY: the lock is held; a value is there, which this waiter does not use any more.
            unsafe { self.returned.insert(node, from, ticket) };
            locked.word += ONE;
            locked.unlock();
        }
    }

    /// Drops all values that are there.
    pub(super) fn discard(&self) {
        let mut panics = Panics::default();
        loop {
            let mut value = MaybeUninit::<T>::uninit();
            let mut locked = self.raw.lock();
            // SAFETY: the lock is this channel's; room for one.
            let taken = unsafe { self.take(&mut locked, value.as_mut_ptr()) };
            locked.unlock();
            let Take::Got(peer) = taken else { break };
            if let Some(peer) = peer {
                // SAFETY: taken out here, and not used after.
                panics.catch(|| unsafe { peer.wake() });
            }
            // SAFETY: there is one, after `Got`; dropped once.
            panics.catch(|| unsafe { value.assume_init_drop() });
        }
        panics.resume();
    }
}

impl<T> Drop for Core<T> {
    fn drop(&mut self) {
        // Values without a destructor go with the ring.
        if std::mem::needs_drop::<T>() || !self.returned.is_empty() {
            self.discard();
        }
    }
}
