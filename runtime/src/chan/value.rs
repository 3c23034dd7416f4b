//! Values on their way through a channel, by the type of their owner.
//!
//! | type | is | dropped |
//! |---|---|---|
//! | `&mut MaybeUninit<T>` | room for a value | nothing happens |
//! | [`Owned`] | a value in memory that somebody else provides | drops the value |
//! | [`Slot`] | room for a value, which knows whether it has the value, and whether a waiter lends it to the channel | drops the value, if there is a value that is not lent |
//!
//! A value is moved by copying its bytes, so no code of `T` runs when a value is moved. Without optimisation, each move of
//! a value is a copy, and each copy takes room in the function's frame. So a call moves its value to a slot when the
//! call begins, and out of the slot at its end; all functions in between move an `Owned`, which is a pointer.

use std::cell::{Cell, UnsafeCell};
use std::mem::{self, ManuallyDrop, MaybeUninit};
use std::ptr;

use super::core::{Core, Done, Guard, Offer, Place, Readied};
use super::raw::Peer;
use super::recv::NotReceived;
use super::send::NotSent;
use crate::Instant;

/// A value that belongs to the holder of this pointer, in memory that somebody else provides.
pub(super) struct Owned<'a, T>(&'a mut MaybeUninit<T>);

impl<'a, T> Owned<'a, T> {
    /// Takes possession of the value in `room`.
    ///
    /// # Safety
    ///
    /// `room` has a value, which no other owner uses or drops.
    #[inline]
    pub(super) unsafe fn new(room: &'a mut MaybeUninit<T>) -> Self {
        Self(room)
    }

    /// Moves a value into `room`.
    #[inline]
    pub(super) fn fill(room: &'a mut MaybeUninit<T>, value: T) -> Self {
        // SAFETY: `room` has room for a value. (`MaybeUninit::write` would move the value more often, without
        // optimisation.)
        unsafe { room.as_mut_ptr().write(value) };
        Self(room)
    }

    /// Moves the value out.
    #[inline]
    pub(super) fn into_inner(self) -> T {
        let this = ManuallyDrop::new(self);
        // SAFETY: there is a value, and this `Owned`, which owned the value, is not used or dropped after this.
        unsafe { this.0.as_ptr().read() }
    }

    /// Moves the value to `room`.
    #[inline]
    pub(super) fn move_to<'b>(self, room: &'b mut MaybeUninit<T>) -> Owned<'b, T> {
        let this = ManuallyDrop::new(self);
        // SAFETY: there is a value, and this `Owned`, which owned the value, is not used or dropped after this. Two
        // exclusive references do not overlap.
        unsafe { ptr::copy_nonoverlapping(this.0.as_ptr(), room.as_mut_ptr(), 1) };
        Owned(room)
    }

    /// Leaves the value where the value is, without an owner.
    #[inline]
    pub(super) fn leave(self) {
        mem::forget(self);
    }

    /// Returns the address of the value.
    #[inline]
    pub(super) fn address(&mut self) -> *mut () {
        self.0.as_mut_ptr().cast()
    }
}

impl<T> Drop for Owned<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: there is a value, which this `Owned` owns.
        unsafe { self.0.assume_init_drop() };
    }
}

/// Room for a value, before the value is sent, or after a value was received.
pub(super) struct Slot<T> {
    room: UnsafeCell<MaybeUninit<T>>,
    content: Cell<Content>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Content {
    Empty,
    Full,
    /// An [`Owned`] or a queued waiter refers to the room.
    Lent,
}

impl<T> Slot<T> {
    #[inline]
    pub(super) fn empty() -> Self {
        Self { room: UnsafeCell::new(MaybeUninit::uninit()), content: Cell::new(Content::Empty) }
    }

    #[inline]
    pub(super) fn new(value: T) -> Self {
        let mut slot = Self::empty();
        Owned::fill(slot.room.get_mut(), value).leave();
        slot.content.set(Content::Full);
        slot
    }

    /// Moves a value into the slot, which is empty.
    pub(super) fn put(&self, value: T) {
        assert!(self.is_empty(), "a slot has one value");
        // SAFETY: the slot is empty, so nothing else refers to the room.
        Owned::fill(unsafe { &mut *self.room.get() }, value).leave();
        self.content.set(Content::Full);
    }

    pub(super) fn is_full(&self) -> bool {
        self.content.get() == Content::Full
    }

    /// Returns whether the slot has no value, and is not lent.
    pub(super) fn is_empty(&self) -> bool {
        self.content.get() == Content::Empty
    }

    /// Takes possession of the value, if the slot has a value. From then on the slot is lent.
    #[inline]
    pub(super) fn owned(&self) -> Option<Owned<'_, T>> {
        if !self.is_full() {
            return None;
        }
        self.content.set(Content::Lent);
        // SAFETY: the slot was full, so there is a value, and nothing else refers to the room. The slot is lent now, so
        // this is the only reference, and the slot does not use the value.
        Some(unsafe { Owned::new(&mut *self.room.get()) })
    }

    /// Takes the value out of the slot, if the slot has a value.
    #[inline]
    pub(super) fn take(&self) -> Option<T> {
        // Without optimisation, a `map` would move the value once more.
        let value = self.owned()?;
        Some(value.into_inner())
    }

    /// Sends the value, if that is possible without waiting, or finds that the channel is closed. If the value is not
    /// sent, the slot keeps the value.
    #[inline]
    pub(super) fn offer(&self, guard: &mut Guard<'_, T>) -> Option<Done> {
        let value = self.owned().expect("a value is sent once");
        let (unsent, done) = match guard.offer(value) {
            Offer::Sent(peer) => return Some(Done { closed: false, peer }),
            Offer::Closed(value) => (value, Some(Done { closed: true, peer: None })),
            Offer::Full(value) => (value, None),
        };
        unsent.leave();
        self.content.set(Content::Full);
        done
    }

    /// Sends the value as [`Core::send`] does, until the deadline. If the value is not sent, the slot keeps the value.
    pub(super) fn send(&self, core: &Core<T>, deadline: Option<Instant>) -> Result<(), NotSent> {
        let value = self.owned().expect("a value is sent once");
        let (why, unsent) = match core.send_owned(value, deadline) {
            Ok(()) => return Ok(()),
            Err(unsent) => unsent,
        };
        unsent.leave();
        self.content.set(Content::Full);
        Err(why)
    }

    /// Sends the value to a reserved place: see [`Place::send`]. If the channel is closed, the slot keeps the value.
    pub(super) fn fill_place(&self, place: Place<'_, T>) -> Option<[Option<Peer>; 2]> {
        let value = self.owned().expect("a value is sent once");
        match place.send(value) {
            Ok(peers) => Some(peers),
            Err(value) => {
                value.leave();
                self.content.set(Content::Full);
                None
            }
        }
    }

    /// Receives a value into the slot, if that is possible without waiting, or finds that the channel is closed.
    #[inline]
    pub(super) fn receive(&self, guard: &mut Guard<'_, T>) -> Option<Done> {
        assert!(self.is_empty(), "a value is received once");
        // SAFETY: the slot is empty, so nothing else refers to the room. `take` does not use this slot.
        match guard.take(unsafe { &mut *self.room.get() }) {
            Some((value, peer)) => {
                value.leave();
                self.content.set(Content::Full);
                Some(Done { closed: false, peer })
            }
            None => guard.state().is_closed().then_some(Done { closed: true, peer: None }),
        }
    }

    /// Receives a value into the slot as [`Core::recv`] does, until the deadline.
    pub(super) fn recv(&self, core: &Core<T>, deadline: Option<Instant>) -> Result<(), NotReceived> {
        assert!(self.is_empty(), "a value is received once");
        // SAFETY: the slot is empty, so nothing else refers to the room. `recv_to` does not use this slot.
        core.recv_to(unsafe { &mut *self.room.get() }, deadline)?;
        self.content.set(Content::Full);
        Ok(())
    }

    /// Lends the slot to a waiter, and returns the address of the room.
    pub(super) fn lend(&self) -> *mut () {
        self.content.set(Content::Lent);
        self.room.get().cast()
    }

    /// Ends the loan to a waiter that a peer has readied, and that waited to receive. Finishes the receive: see
    /// [`Readied::receive`]. Returns whether the slot has a value now.
    ///
    /// # Panics
    ///
    /// Panics if the slot is not lent to that waiter.
    pub(super) fn end_receive(&self, readied: Readied<'_, '_, T>) -> bool {
        readied.check_slot(self.room.get());
        let received = readied.receive().map(Owned::leave).is_some();
        // Nothing refers to the room any more, as `readied` was the last user.
        self.content.set(if received { Content::Full } else { Content::Empty });
        received
    }

    /// Ends the loan to a waiter that a peer has readied, and that waited to send. If the value has not been taken, the
    /// slot keeps the value, and this returns the place that the waiter has been given, if any.
    ///
    /// # Panics
    ///
    /// Panics if the slot is not lent to that waiter.
    pub(super) fn end_send<'c>(&self, readied: Readied<'c, '_, T>) -> Result<(), Option<Place<'c, T>>> {
        readied.check_slot(self.room.get());
        let sent = readied.is_sent();
        // Nothing refers to the room any more, as `place` does not use the slot. The room has its value unless the value was
        // taken.
        self.content.set(if sent { Content::Empty } else { Content::Full });
        if sent { Ok(()) } else { Err(readied.place()) }
    }

    /// Ends the loan.
    ///
    /// # Safety
    ///
    /// - Nothing refers to the room any more.
    /// - If `full` is true, there is a value, which no other owner uses or drops.
    pub(super) unsafe fn end_loan(&self, full: bool) {
        self.content.set(if full { Content::Full } else { Content::Empty });
    }
}

impl<T> Drop for Slot<T> {
    fn drop(&mut self) {
        drop(self.owned());
    }
}
