//! Sending by a thread or a goroutine.

use std::mem::{ManuallyDrop, MaybeUninit};
use std::task::Waker;

use super::core::{Core, Guard, Offer};
use super::raw::{Dir, Peer};
use super::value::Owned;
use super::waiters::Outcome;
use crate::{Instant, goroutine};

/// The reason why a send has failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NotSent {
    Full,
    Closed,
    TimedOut,
}

impl<T> Core<T> {
    /// Sends without waiting. Go's `select` with one send and a `default`. `refused` makes the error from the reason
    /// and the value.
    #[inline]
    pub(super) fn try_send<E>(&self, value: T, refused: impl FnOnce(NotSent, T) -> E) -> Result<(), E> {
        goroutine::safepoint();
        let mut slot = MaybeUninit::uninit();
        match self.try_offer(Owned::fill(&mut slot, value)) {
            Offer::Sent(peer) => {
                if let Some(peer) = peer {
                    peer.wake();
                }
                Ok(())
            }
            Offer::Full(value) => refuse(NotSent::Full, value, refused),
            Offer::Closed(value) => refuse(NotSent::Closed, value, refused),
        }
    }

    /// Sends as [`try_send`](Self::try_send) does, but may be called under a lock: the call is no safepoint, and runs
    /// no user code. If a task receives the value, the caller must wake the returned waker.
    pub(super) fn try_send_quietly(&self, value: T) -> Result<Option<Waker>, T> {
        let mut slot = MaybeUninit::uninit();
        match self.try_offer(Owned::fill(&mut slot, value)) {
            Offer::Sent(peer) => Ok(peer.and_then(Peer::mark_ready)),
            Offer::Full(value) | Offer::Closed(value) => Err(value.into_inner()),
        }
    }

    /// Sends a value, if that is possible without waiting.
    #[inline]
    fn try_offer<'v>(&self, value: Owned<'v, T>) -> Offer<'v, T> {
        if self.raw.look().is_full_for_certain(self.raw.capacity()) {
            return Offer::Full(value);
        }
        let mut guard = self.lock();
        let offer = guard.offer(value);
        guard.unlock();
        offer
    }

    /// Sends a value. Waits for room or a receiver. Go's `chansend`. `closed` makes the error from the value.
    #[inline]
    pub(super) fn send<E>(&self, value: T, closed: impl FnOnce(T) -> E) -> Result<(), E> {
        goroutine::safepoint();
        let mut slot = MaybeUninit::uninit();
        match self.send_owned(Owned::fill(&mut slot, value), None) {
            Ok(()) => Ok(()),
            Err((why, value)) => refuse(why, value, |_, value| closed(value)),
        }
    }

    /// Sends as [`send`](Self::send) does, but gives up at the deadline. Returns a value that is not sent, with the
    /// reason. The caller has made a safepoint.
    #[inline]
    pub(super) fn send_owned<'v>(
        &self,
        value: Owned<'v, T>,
        deadline: Option<Instant>,
    ) -> Result<(), (NotSent, Owned<'v, T>)> {
        let mut guard = self.lock();
        match guard.offer(value) {
            Offer::Sent(peer) => {
                guard.unlock();
                if let Some(peer) = peer {
                    peer.wake();
                }
                Ok(())
            }
            Offer::Full(value) => guard.wait_to_send(value, deadline),
            Offer::Closed(value) => {
                guard.unlock();
                Err((NotSent::Closed, value))
            }
        }
    }
}

impl<T> Guard<'_, T> {
    /// Queues a waiter with the value, and waits until a receiver takes the value, the channel is closed, or the
    /// deadline passes: step 4 of a send.
    fn wait_to_send<'v>(self, value: Owned<'v, T>, deadline: Option<Instant>) -> Result<(), (NotSent, Owned<'v, T>)> {
        let mut value = ManuallyDrop::new(value);
        let slot = value.address();
        // SAFETY: `value` is a value of the channel's type, which nothing else uses while this call waits. After `Done`
        // the value is neither used nor dropped.
        let outcome = unsafe { self.into_locked().wait(Dir::Send, slot, "chan send", deadline) };
        let why = match outcome {
            Some(Outcome::Done) => return Ok(()),
            Some(Outcome::Closed) => NotSent::Closed,
            None => NotSent::TimedOut,
            Some(Outcome::Idle | Outcome::Queued | Outcome::Held) => unreachable!("readied by no peer"),
        };
        Err((why, ManuallyDrop::into_inner(value)))
    }
}

/// Moves the unsent value out of its slot, and returns the error that `refused` makes.
#[cold]
#[inline(never)]
fn refuse<T, E>(why: NotSent, value: Owned<'_, T>, refused: impl FnOnce(NotSent, T) -> E) -> Result<(), E> {
    Err(refused(why, value.into_inner()))
}
