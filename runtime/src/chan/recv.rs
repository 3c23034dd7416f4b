//! Receiving by a thread or a goroutine.

use std::mem::MaybeUninit;

use super::core::{Core, Take};
use super::raw::{Dir, Locked, Peer};
use super::waiters::{Outcome, Waiter};
use crate::{G, Instant, ParkResult, goroutine};

/// Why a receive has failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NotReceived {
    Empty,
    Closed,
    TimedOut,
}

impl<T> Core<T> {
    /// Receives without waiting. Go's `select` with one receive and a `default`. `failed` makes the error.
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
        // SAFETY: the lock is this channel's; room for one.
        let taken = unsafe { self.take(&mut locked, slot.as_mut_ptr()) };
        locked.unlock();
        match taken {
            Take::Got(peer) => {
                // SAFETY: there is a value, after `Got`; the peer was taken out here.
                unsafe { wake_with(peer, slot.as_mut_ptr()) };
                // SAFETY: there is a value, after `Got`; read once.
                Ok(unsafe { slot.as_ptr().read() })
            }
            Take::Empty => Err(failed(NotReceived::Empty)),
            Take::Closed => Err(failed(NotReceived::Closed)),
        }
    }

    /// Receives. Go's `chanrecv`. `failed` makes the error.
    #[inline]
    pub(super) fn recv<E>(&self, deadline: Option<Instant>, failed: impl FnOnce(NotReceived) -> E) -> Result<T, E> {
        goroutine::safepoint();
        let mut slot = MaybeUninit::uninit();
        // SAFETY: room for one.
        match unsafe { self.recv_to(slot.as_mut_ptr(), deadline) } {
            // SAFETY: there is a value, after `Ok`; read once.
            Ok(()) => Ok(unsafe { slot.as_ptr().read() }),
            Err(why) => Err(failed(why)),
        }
    }

    /// Receives to `to`.
    ///
    /// # Safety
    ///
    /// `to` has room for a value, which is there after `Ok`.
    #[inline]
    unsafe fn recv_to(&self, to: *mut T, deadline: Option<Instant>) -> Result<(), NotReceived> {
        if self.is_closed_and_drained() {
            return Err(NotReceived::Closed);
        }
        let mut locked = self.raw.lock();
        // SAFETY: the lock is this channel's; room for one, by the contract.
        match unsafe { self.take(&mut locked, to) } {
            Take::Got(peer) => {
                locked.unlock();
                // SAFETY: there is a value, after `Got`; the peer was taken out here.
                unsafe { wake_with(peer, to) };
                Ok(())
            }
            // SAFETY: the lock is this channel's; room for one, by the contract.
            Take::Empty => unsafe { self.wait_to_recv(locked, to, deadline) },
            Take::Closed => {
                locked.unlock();
                Err(NotReceived::Closed)
            }
        }
    }

    /// Whether the channel is closed, and no value is left or can be given back. Looks without the lock and without a
    /// fence: so it stays.
    #[inline]
    pub(super) fn is_closed_and_drained(&self) -> bool {
        self.raw.glance().is_at_its_end()
    }

    /// Step 4.
    ///
    /// # Safety
    ///
    /// - `locked` is the lock of this channel.
    /// - `slot` has room for a value, which is there after `Ok`.
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
        // - it is new;
        // - this frame is not left while the waiter is queued, or taken and not readied: `park_queued_spinning` returns
        //   afterwards, and never unwinds. G and slot live as long, as both were made before the waiter.
        unsafe { locked.enqueue(Dir::Recv, &waiter) };
        // SAFETY: put into a queue of this channel.
        let leave = || unsafe { self.raw.leave(&waiter) };
        if g.park_queued_spinning(deadline, || locked.unlock(), leave) == ParkResult::TimedOut {
            return Err(NotReceived::TimedOut);
        }
        match waiter.outcome.get() {
            Outcome::Done => Ok(()),
            // SAFETY: the slot has room, as no peer has put a value there.
            Outcome::Closed => unsafe { self.look_once_more(slot) },
            Outcome::Idle | Outcome::Queued | Outcome::Held => unreachable!("readied by no peer"),
        }
    }

    /// A receive that a close has ended: takes a value that a task held then.
    ///
    /// # Safety
    ///
    /// `slot` has room for a value, which is there after `Ok`.
    #[cold]
    unsafe fn look_once_more(&self, slot: *mut T) -> Result<(), NotReceived> {
        let mut locked = self.raw.lock();
        // SAFETY: the lock is this channel's; room for one.
        let taken = unsafe { self.take(&mut locked, slot) };
        locked.unlock();
        match taken {
            Take::Got(_) => Ok(()), // of a closed channel, so there is no sender to wake
            Take::Closed | Take::Empty => Err(NotReceived::Closed),
        }
    }
}

/// Wakes the peer that a receive has taken out. That may run user code: if it panics, the value is dropped.
///
/// # Safety
///
/// - `peer` is not used after this.
/// - `value` has a value, which is gone after a panic.
#[inline]
unsafe fn wake_with<T>(peer: Option<Peer>, value: *mut T) {
    struct DropOnPanic<T>(*mut T);
    impl<T> Drop for DropOnPanic<T> {
        fn drop(&mut self) {
            // SAFETY: a value, by the contract of `wake_with`, which is being unwound.
            unsafe { self.0.drop_in_place() };
        }
    }
    if let Some(peer) = peer {
        let guard = DropOnPanic(value);
        // SAFETY: by the contract.
        unsafe { peer.wake() };
        std::mem::forget(guard);
    }
}

/// A receiver that has waited and gives up leaves its queue; or gives back what it was given.
///
/// # Safety
///
/// The waiter has been put into the queue of receivers of this channel, with this G, and with a slot for a value.
pub(super) unsafe fn leave_or_give_back<T>(core: &Core<T>, waiter: &Waiter, g: &G) {
    // SAFETY: by the contract.
    if unsafe { core.raw.leave(waiter) } {
        crate::shim::mark("a receiver that gives up leaves its queue");
        return;
    }
    g.await_ready();
    // SAFETY: by the contract; readied; its owner does not use it after this.
    unsafe { core.give_back(waiter) };
}
