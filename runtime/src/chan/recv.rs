//! Receiving by a thread or a goroutine.

use std::mem::MaybeUninit;

use super::core::{Core, Take};
use super::raw::{Dir, Locked, Peer};
use super::waiters::{Outcome, Waiter};
use crate::{G, Instant, ParkResult, goroutine};

/// The reason why a receive has failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NotReceived {
    Empty,
    Closed,
    TimedOut,
}

impl<T> Core<T> {
    /// Receives without waiting. Go's `select` with one receive and a `default`. `failed` makes the error from the
    /// reason.
    #[inline]
    pub(super) fn try_recv<E>(&self, failed: impl FnOnce(NotReceived) -> E) -> Result<T, E> {
        goroutine::safepoint();
        if self.is_closed_and_drained() {
            return Err(failed(NotReceived::Closed));
        }
        let state = self.raw.look();
        if state.is_empty_for_certain() {
            return Err(failed(NotReceived::Empty));
        }
        if state.is_at_its_end() {
            return Err(failed(NotReceived::Closed));
        }
        let mut slot = MaybeUninit::uninit();
        let mut locked = self.raw.lock();
        // SAFETY: `locked` is the lock of this channel, and `slot` has room for a value.
        let taken = unsafe { self.take(&mut locked, slot.as_mut_ptr()) };
        locked.unlock();
        match taken {
            Take::Got(peer) => {
                // SAFETY: after `Got` the slot has a value, which this call does not use if `wake_with` panics.
                unsafe { wake_with(peer, slot.as_mut_ptr()) };
                // SAFETY: after `Got` the slot has a value, which is read once.
                Ok(unsafe { slot.as_ptr().read() })
            }
            Take::Empty => Err(failed(NotReceived::Empty)),
            Take::Closed => Err(failed(NotReceived::Closed)),
        }
    }

    /// Receives a value. Waits until there is a value, or until the deadline. Go's `chanrecv`. `failed` makes the error
    /// from the reason.
    #[inline]
    pub(super) fn recv<E>(&self, deadline: Option<Instant>, failed: impl FnOnce(NotReceived) -> E) -> Result<T, E> {
        goroutine::safepoint();
        let mut slot = MaybeUninit::uninit();
        // SAFETY: `slot` has room for a value.
        match unsafe { self.recv_to(slot.as_mut_ptr(), deadline) } {
            // SAFETY: after `Ok` the slot has a value, which is read once.
            Ok(()) => Ok(unsafe { slot.as_ptr().read() }),
            Err(why) => Err(failed(why)),
        }
    }

    /// Receives a value into `to`.
    ///
    /// # Safety
    ///
    /// `to` has room for a value. If this returns `Ok`, `to` has a value.
    #[inline]
    unsafe fn recv_to(&self, to: *mut T, deadline: Option<Instant>) -> Result<(), NotReceived> {
        if self.is_closed_and_drained() {
            return Err(NotReceived::Closed);
        }
        let mut locked = self.raw.lock();
        // SAFETY: `locked` is the lock of this channel, and `to` has room, by the contract of this function.
        match unsafe { self.take(&mut locked, to) } {
            Take::Got(peer) => {
                locked.unlock();
                // SAFETY: after `Got` there is a value at `to`, which this call does not use if `wake_with` panics.
                unsafe { wake_with(peer, to) };
                Ok(())
            }
            // SAFETY: `locked` is the lock of this channel, and `to` has room, by the contract of this function.
            Take::Empty => unsafe { self.wait_to_recv(locked, to, deadline) },
            Take::Closed => {
                locked.unlock();
                Err(NotReceived::Closed)
            }
        }
    }

    /// Returns whether the channel is closed, and no value is left or can be given back. A load without the lock and
    /// without a fence is enough, because a channel stays in this state.
    #[inline]
    pub(super) fn is_closed_and_drained(&self) -> bool {
        self.raw.glance().is_at_its_end()
    }

    /// Queues a waiter for the slot, and waits until a sender fills the slot, the channel is closed, or the deadline
    /// passes: step 4 of a receive.
    ///
    /// # Safety
    ///
    /// - `locked` is the lock of this channel.
    /// - `slot` has room for a value. If this returns `Ok`, `slot` has a value.
    unsafe fn wait_to_recv(
        &self,
        mut locked: Locked<'_>,
        slot: *mut T,
        deadline: Option<Instant>,
    ) -> Result<(), NotReceived> {
        let g = G::current();
        let waiter = Waiter::new(&raw const g, slot.cast());
        goroutine::note_wait("chan receive", std::ptr::null());
        // SAFETY:
        // - `waiter` is new, so no queue contains it.
        // - This frame stays while `waiter` is queued, or taken and not readied: `park_queued_spinning` returns only
        //   afterwards, and never unwinds. `g` and `slot` outlive `waiter`, as both were made before it.
        unsafe { locked.enqueue(Dir::Recv, &waiter) };
        // SAFETY: `waiter` is alive, and was put into a queue of this channel.
        let leave = || unsafe { self.raw.leave(&waiter) };
        if g.park_queued_spinning(deadline, || locked.unlock(), leave) == ParkResult::TimedOut {
            return Err(NotReceived::TimedOut);
        }
        match waiter.outcome.get() {
            Outcome::Done => Ok(()),
            // SAFETY: `slot` has room, because no peer has put a value there.
            Outcome::Closed => unsafe { self.look_once_more(slot) },
            Outcome::Idle | Outcome::Queued | Outcome::Held => unreachable!("readied by no peer"),
        }
    }

    /// Tries to receive again after a close has ended the wait: a task may have held a value at the time of the close.
    ///
    /// # Safety
    ///
    /// `slot` has room for a value. If this returns `Ok`, `slot` has a value.
    #[cold]
    unsafe fn look_once_more(&self, slot: *mut T) -> Result<(), NotReceived> {
        let mut locked = self.raw.lock();
        // SAFETY: `locked` is the lock of this channel, and `slot` has room, by the contract of this function.
        let taken = unsafe { self.take(&mut locked, slot) };
        locked.unlock();
        match taken {
            Take::Got(_) => Ok(()), // the channel is closed, so there is no sender to wake
            Take::Closed | Take::Empty => Err(NotReceived::Closed),
        }
    }
}

/// Wakes the peer that a receive has taken out of its queue. The waker of a task is user code: if the waker panics,
/// this function drops the received value.
///
/// # Safety
///
/// `value` has a value. If this call panics, that value has been dropped.
#[inline]
unsafe fn wake_with<T>(peer: Option<Peer>, value: *mut T) {
    struct DropOnPanic<T>(*mut T);
    impl<T> Drop for DropOnPanic<T> {
        fn drop(&mut self) {
            // SAFETY: `self.0` has a value, by the contract of `wake_with`, which is being unwound.
            unsafe { self.0.drop_in_place() };
        }
    }
    if let Some(peer) = peer {
        let guard = DropOnPanic(value);
        peer.wake();
        std::mem::forget(guard);
    }
}

/// Ends the wait of a receiver that gives up: the receiver leaves its queue, or gives back the value that it was given.
///
/// # Safety
///
/// The waiter has been put into the queue of receivers of this channel, with this G, and with a slot for a value. The
/// waiter is not used after this.
pub(super) unsafe fn leave_or_give_back<T>(core: &Core<T>, waiter: &Waiter, g: &G) {
    // SAFETY: the waiter is alive, and was put into a queue of this channel, by the contract of this function.
    if unsafe { core.raw.leave(waiter) } {
        crate::shim::mark("a receiver that gives up leaves its queue");
        return;
    }
    g.await_ready();
    // SAFETY: the waiter was in this channel's queue of receivers, with a slot for a value, by the contract of this
    // function; it has been readied; and its owner does not use it after this.
    unsafe { core.give_back(waiter) };
}
