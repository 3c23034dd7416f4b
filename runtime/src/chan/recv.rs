//! Receiving by a thread or a goroutine.

use std::mem::MaybeUninit;

use super::core::{Core, Guard};
use super::raw::{Dir, Peer};
use super::value::Owned;
use super::waiters::Outcome;
use crate::{Instant, goroutine};

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
        let mut guard = self.lock();
        let taken = guard.take(&mut slot);
        let is_closed = guard.state().is_closed();
        guard.unlock();
        if let Some((value, peer)) = taken {
            return Ok(wake_with(peer, value).into_inner());
        }
        Err(failed(if is_closed { NotReceived::Closed } else { NotReceived::Empty }))
    }

    /// Receives a value. Waits until there is a value. Go's `chanrecv`. `closed` makes the error.
    #[inline]
    pub(super) fn recv<E>(&self, closed: impl FnOnce() -> E) -> Result<T, E> {
        goroutine::safepoint();
        let mut slot = MaybeUninit::uninit();
        match self.recv_to(&mut slot, None) {
            // SAFETY: `recv_to` has moved a value to `slot`, and nothing else owns that value.
            Ok(()) => Ok(unsafe { Owned::new(&mut slot) }.into_inner()),
            Err(_) => Err(closed()),
        }
    }

    /// Receives as [`recv`](Self::recv) does, but moves the value to `room`, and gives up at the deadline. After `Ok` the
    /// value belongs to the caller. The caller has made a safepoint.
    #[inline]
    pub(super) fn recv_to(&self, room: &mut MaybeUninit<T>, deadline: Option<Instant>) -> Result<(), NotReceived> {
        if self.is_closed_and_drained() {
            return Err(NotReceived::Closed);
        }
        let mut guard = self.lock();
        if let Some((value, peer)) = guard.take(room) {
            guard.unlock();
            wake_with(peer, value).leave();
            return Ok(());
        }
        if guard.state().is_closed() {
            guard.unlock();
            return Err(NotReceived::Closed);
        }
        self.wait_to_recv(guard, room, deadline).map(Owned::leave)
    }

    /// Returns whether the channel is closed, and no value is left or can be given back. A load without the lock and
    /// without a fence is enough, because a channel stays in this state.
    #[inline]
    pub(super) fn is_closed_and_drained(&self) -> bool {
        self.raw.glance().is_at_its_end()
    }

    /// Queues a waiter for the room, and waits until a sender fills the room, the channel is closed, or the deadline
    /// passes: step 4 of a receive.
    fn wait_to_recv<'v>(
        &self,
        guard: Guard<'_, T>,
        room: &'v mut MaybeUninit<T>,
        deadline: Option<Instant>,
    ) -> Result<Owned<'v, T>, NotReceived> {
        let slot = room.as_mut_ptr().cast();
        // SAFETY: `room` has room for a value of the channel's type, and nothing else uses `room` while this call waits.
        let outcome = unsafe { guard.into_locked().wait(Dir::Recv, slot, "chan receive", deadline) };
        match outcome {
            // SAFETY: after `Done` there is a value, which the sender has moved to `room`.
            Some(Outcome::Done) => Ok(unsafe { Owned::new(room) }),
            Some(Outcome::Closed) => self.look_once_more(room),
            None => Err(NotReceived::TimedOut),
            Some(Outcome::Idle | Outcome::Queued | Outcome::Held) => unreachable!("readied by no peer"),
        }
    }

    /// Tries to receive again after a close has ended the wait: a task may have held a value at the time of the close.
    #[cold]
    fn look_once_more<'v>(&self, room: &'v mut MaybeUninit<T>) -> Result<Owned<'v, T>, NotReceived> {
        let mut guard = self.lock();
        let taken = guard.take_apart(room);
        guard.unlock();
        // The channel is closed, so there is no sender to wake.
        taken.map(|(value, _)| value).ok_or(NotReceived::Closed)
    }
}

/// Wakes the peer that a receive has taken out of its queue, and returns the received value. The waker of a task is user
/// code: if the waker panics, the value is dropped.
#[inline]
fn wake_with<T>(peer: Option<Peer>, value: Owned<'_, T>) -> Owned<'_, T> {
    if let Some(peer) = peer {
        peer.wake();
    }
    value
}
