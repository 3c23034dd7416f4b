//! Sending by a thread or a goroutine.

use std::mem::{ManuallyDrop, MaybeUninit};
use std::task::Waker;

use super::core::{Core, Offer};
use super::raw::{Dir, Locked, Peer};
use super::waiters::{Outcome, Waiter};
use crate::{G, Instant, ParkResult, goroutine};

/// The reason why a send has failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NotSent {
    Full,
    Closed,
    TimedOut,
}

// Without optimisation, each move of a value is a copy, and each copy takes room in the function's frame. So a value is
// moved to a slot when the call begins, and is moved out of the slot only if the send fails. All functions in between
// use a pointer to the slot.
impl<T> Core<T> {
    /// Sends without waiting. Go's `select` with one send and a `default`. `refused` makes the error from the reason
    /// and the value.
    #[inline]
    pub(super) fn try_send<E>(&self, value: T, refused: impl FnOnce(NotSent, T) -> E) -> Result<(), E> {
        goroutine::safepoint();
        let mut slot = MaybeUninit::<T>::uninit();
        // SAFETY: the slot has room for a value. (`MaybeUninit::new` would move the value three times more.)
        unsafe { slot.as_mut_ptr().write(value) };
        // SAFETY: the slot has a value, which is not used after `Ok`.
        match unsafe { self.try_offer(slot.as_ptr()) } {
            Ok(peer) => {
                if let Some(peer) = peer {
                    peer.wake();
                }
                Ok(())
            }
            // SAFETY: the slot still has its value, which is not used after this.
            Err(why) => unsafe { refuse(why, slot.as_ptr(), refused) },
        }
    }

    /// Sends as [`try_send`](Self::try_send) does, but may be called under a lock: the call is no safepoint, and runs
    /// no user code. If a task receives the value, the caller must wake the returned waker.
    pub(super) fn try_send_quietly(&self, value: T) -> Result<Option<Waker>, T> {
        let value = ManuallyDrop::new(value);
        // SAFETY: `value` has a value, which is not used after `Ok`.
        match unsafe { self.try_offer(&raw const *value) } {
            Ok(peer) => Ok(peer.and_then(Peer::mark_ready)),
            Err(_) => Err(ManuallyDrop::into_inner(value)),
        }
    }

    /// Sends the value at `from`, if that is possible without waiting. If a receiver waited, returns that receiver,
    /// which the caller must wake.
    ///
    /// # Safety
    ///
    /// `from` has a value. If this returns `Ok`, the value has been moved out; otherwise the caller still owns the
    /// value.
    #[inline]
    unsafe fn try_offer(&self, from: *const T) -> Result<Option<Peer>, NotSent> {
        if self.raw.look().is_full_for_certain(self.raw.capacity()) {
            return Err(NotSent::Full);
        }
        let mut locked = self.raw.lock();
        // SAFETY: `locked` is the lock of this channel, and `from` has a value, by the contract of this function.
        let offer = unsafe { self.offer(&mut locked, from) };
        locked.unlock();
        match offer {
            Offer::Sent(peer) => Ok(peer),
            Offer::Full => Err(NotSent::Full),
            Offer::Closed => Err(NotSent::Closed),
        }
    }

    /// Sends a value. Waits for room or a receiver, or until the deadline. Go's `chansend`. `refused` makes the error
    /// from the reason and the value.
    #[inline]
    pub(super) fn send<E>(
        &self,
        value: T,
        deadline: Option<Instant>,
        refused: impl FnOnce(NotSent, T) -> E,
    ) -> Result<(), E> {
        goroutine::safepoint();
        let mut slot = MaybeUninit::<T>::uninit();
        // SAFETY: the slot has room for a value.
        unsafe { slot.as_mut_ptr().write(value) };
        // SAFETY: the slot has a value, which is not used after `Ok` or a panic.
        match unsafe { self.send_from(slot.as_mut_ptr(), deadline) } {
            Ok(()) => Ok(()),
            // SAFETY: the slot still has its value, which is not used after this.
            Err(why) => unsafe { refuse(why, slot.as_ptr(), refused) },
        }
    }

    /// Sends the value at `from`.
    ///
    /// # Safety
    ///
    /// `from` has a value. After `Ok`, or after a panic of the peer's waker, the value has been moved out; otherwise
    /// the value still belongs to the caller.
    #[inline]
    unsafe fn send_from(&self, from: *mut T, deadline: Option<Instant>) -> Result<(), NotSent> {
        let mut locked = self.raw.lock();
        // SAFETY: `locked` is the lock of this channel, and `from` has a value, by the contract of this function.
        match unsafe { self.offer(&mut locked, from) } {
            Offer::Sent(peer) => {
                locked.unlock();
                if let Some(peer) = peer {
                    peer.wake();
                }
                Ok(())
            }
            // SAFETY: `locked` is the lock of this channel. `from` has a value, which is not used after `Ok` or a
            // panic, by the contract of this function.
            Offer::Full => unsafe { self.wait_to_send(locked, from, deadline) },
            Offer::Closed => {
                locked.unlock();
                Err(NotSent::Closed)
            }
        }
    }

    /// Queues a waiter with the value, and waits until a receiver takes the value, the channel is closed, or the
    /// deadline passes: step 4 of a send.
    ///
    /// # Safety
    ///
    /// - `locked` is the lock of this channel.
    /// - `value` has a value. After `Ok`, or after a panic of the peer's waker, the value has been moved out.
    unsafe fn wait_to_send(
        &self,
        mut locked: Locked<'_>,
        value: *mut T,
        deadline: Option<Instant>,
    ) -> Result<(), NotSent> {
        let g = G::current();
        let waiter = Waiter::new(&raw const g, value.cast());
        goroutine::note_wait("chan send", std::ptr::null());
        // SAFETY:
        // - `waiter` is new, so no queue contains it.
        // - This frame stays while `waiter` is queued, or taken and not readied: `park_queued_spinning` returns only
        //   afterwards, and never unwinds. `g` and `value` outlive `waiter`, as both were made before it.
        unsafe { locked.enqueue(Dir::Send, &waiter) };
        // SAFETY: `waiter` is alive, and was put into a queue of this channel.
        let leave = || unsafe { self.raw.leave(&waiter) };
        if g.park_queued_spinning(deadline, || locked.unlock(), leave) == ParkResult::TimedOut {
            return Err(NotSent::TimedOut);
        }
        match waiter.outcome.get() {
            Outcome::Done => Ok(()),
            Outcome::Closed => Err(NotSent::Closed),
            Outcome::Idle | Outcome::Queued | Outcome::Held => unreachable!("readied by no peer"),
        }
    }
}

/// Moves the unsent value out of its slot, and returns the error that `refused` makes.
///
/// # Safety
///
/// `value` has a value, which is not used again.
#[cold]
#[inline(never)]
unsafe fn refuse<T, E>(why: NotSent, value: *const T, refused: impl FnOnce(NotSent, T) -> E) -> Result<(), E> {
    // SAFETY: `value` has a value, which is not used again, by the contract of this function.
    Err(refused(why, unsafe { value.read() }))
}
