//! A channel: the steps of a send and of a receive under its lock. Go's `hchan`.
//!
//! | under the lock | send ([`Core::offer`]) | receive ([`Core::take`]) |
//! |---|---|---|
//! | 1 | closed: fails | a value is there: takes the oldest; then the first blocked sender's value goes to the end |
//! | 2 | a receiver waits: its value goes there | closed: fails |
//! | 3 | room: into the ring | a sender waits: takes its value |
//! | 4 | waits | waits |
//!
//! Receivers wait only while there is no value, and senders only while there is no room; so values are received in the
//! order in which they were sent. A peer that was taken out of a queue is woken after the unlock.
//!
//! Once the channel is closed its blocked senders are for `close` alone: their sends fail, whatever room there is.
//!
//! Values move by copying bytes, so no code of `T` runs under the lock.

use std::mem::MaybeUninit;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::ptr;

use super::buffer::{Node, Returned, Ring};
use super::raw::{CLOSED, Dir, Locked, ONE, Peer, Raw, SENDERS};
use super::waiters::Outcome;
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
        if let Some(peer) = locked.dequeue(Dir::Recv, Outcome::Done) {
            // SAFETY: the peer has room for one value of this channel's type, and touches it when it has been woken; a
            // value at `from`, by the contract; the two are different waiters'.
            unsafe { ptr::copy_nonoverlapping(from, peer.slot().cast(), 1) };
            return Offer::Sent(Some(peer));
        }
        if locked.state().len() < self.raw.capacity() {
            // SAFETY: the lock is held; the ring has no more values than `len`, so there is a slot; by the contract.
            unsafe { self.ring.push(from) };
            locked.word += ONE;
            return Offer::Sent(None);
        }
        Offer::Full
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
            if locked.word & (SENDERS | CLOSED) == SENDERS
                && locked.state().len() < self.raw.capacity()
                && let Some(peer) = locked.dequeue(Dir::Send, Outcome::Done)
            {
                // SAFETY: the lock is held; room, as `len` says; the peer has a value, and believes that it is gone when
                // it has been woken.
                unsafe { self.ring.push(peer.slot().cast()) };
                locked.word += ONE;
                return Take::Got(Some(peer));
            }
            return Take::Got(None);
        }
        if locked.word & CLOSED != 0 {
            return Take::Closed;
        }
        if let Some(peer) = locked.dequeue(Dir::Send, Outcome::Done) {
            // SAFETY: the peer has a value of this channel's type, and believes that it is gone when it has been woken;
            // room at `to`, by the contract; the two are different waiters'.
            unsafe { ptr::copy_nonoverlapping(peer.slot().cast(), to, 1) };
            return Take::Got(Some(peer));
        }
        Take::Empty
    }

    /// A receiver that was given the value at `from` will not return it: the next receiver gets it.
    ///
    /// # Safety
    ///
    /// `from` has a value, which is gone after this.
    #[cold]
    pub(super) unsafe fn give_back(&self, from: *const T) {
        // Before the lock is taken: an allocator is not ours.
        // SAFETY: by the contract.
        let node = unsafe { Node::new(from) };
        let mut locked = self.raw.lock();
        if let Some(peer) = locked.dequeue(Dir::Recv, Outcome::Done) {
            crate::shim::mark("a value that is given back goes to the next receiver");
            // SAFETY: as in `offer`; the node does not drop its value.
            unsafe { ptr::copy_nonoverlapping(node.value(), peer.slot().cast(), 1) };
            locked.unlock();
            // SAFETY: taken out here, and not used after.
            unsafe { peer.wake() };
        } else {
            crate::shim::mark("a value that is given back stays in the channel");
            self.returned.push(node);
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
