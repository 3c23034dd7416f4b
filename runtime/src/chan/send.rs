//! Sending by a thread or a goroutine.

use std::mem::{ManuallyDrop, MaybeUninit};
use std::task::Waker;

use super::core::{Core, Offer};
use super::raw::{Dir, Locked, Peer};
use super::waiters::{Outcome, Waiter};
use crate::{G, Instant, ParkResult, goroutine};

/// Why a send has failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NotSent {
    Full,
    Closed,
    TimedOut,
}

// Without optimisation each move of a value is a copy, which has its place in the frame of the function. So a value is moved
// to a slot when it comes, and from there when it is refused, and what is in between has a pointer to it.
impl<T> Core<T> {
    /// Sends without waiting. Go's `select` with one send and a `default`. `refused` makes the error.
    #[inline]
    pub(super) fn try_send<E>(&self, value: T, refused: impl FnOnce(NotSent, T) -> E) -> Result<(), E> {
        goroutine::safepoint();
        let mut slot = MaybeUninit::<T>::uninit();
        // SAFETY: room for one. (`MaybeUninit::new` moves the value three times more.)
        unsafe { slot.as_mut_ptr().write(value) };
        // SAFETY: the slot has a value, which is not used after `Ok`.
        match unsafe { self.try_offer(slot.as_ptr()) } {
            Ok(peer) => {
                if let Some(peer) = peer {
                    // SAFETY: taken out here, and not used after.
                    unsafe { peer.wake() };
                }
                Ok(())
            }
            // SAFETY: the slot has its value still, and is not used after this.
            Err(why) => unsafe { refuse(why, slot.as_ptr(), refused) },
        }
    }

    /// [`try_send`](Self::try_send) that runs no user code: it is no safepoint, and the waker of a task that receives is
    /// the caller's to wake. So the caller may hold a lock.
    pub(super) fn try_send_quietly(&self, value: T) -> Result<Option<Waker>, T> {
        let value = ManuallyDrop::new(value);
        // SAFETY: there is a value, which is not used after `Ok`.
        match unsafe { self.try_offer(&raw const *value) } {
            // SAFETY: taken out by us alone and not readied yet, so its waiter is still there; not used after.
            Ok(peer) => Ok(peer.and_then(|peer| unsafe { G::mark_ready(peer.g()) })),
            Err(_) => Err(ManuallyDrop::into_inner(value)),
        }
    }

    /// Sends if that need not wait: the receiver that must be woken, if one waited.
    ///
    /// # Safety
    ///
    /// `from` has a value. After `Ok` it is gone; else it is the caller's still.
    #[inline]
    unsafe fn try_offer(&self, from: *const T) -> Result<Option<Peer>, NotSent> {
        if self.raw.look().is_full_for_certain() {
            return Err(NotSent::Full);
        }
        let mut locked = self.raw.lock();
        // SAFETY: the lock is this channel's; a value, by the contract.
        let offer = unsafe { self.offer(&mut locked, from) };
        locked.unlock();
        match offer {
            Offer::Sent(peer) => Ok(peer),
            Offer::Full => Err(NotSent::Full),
            Offer::Closed => Err(NotSent::Closed),
        }
    }

    /// Sends. Go's `chansend`. `refused` makes the error.
    #[inline]
    pub(super) fn send<E>(
        &self,
        value: T,
        deadline: Option<Instant>,
        refused: impl FnOnce(NotSent, T) -> E,
    ) -> Result<(), E> {
        goroutine::safepoint();
        let mut slot = MaybeUninit::<T>::uninit();
        // SAFETY: room for one.
        unsafe { slot.as_mut_ptr().write(value) };
        // SAFETY: the slot has a value, which is not used after `Ok` or a panic.
        match unsafe { self.send_from(slot.as_mut_ptr(), deadline) } {
            Ok(()) => Ok(()),
            // SAFETY: the slot has its value still, and is not used after this.
            Err(why) => unsafe { refuse(why, slot.as_ptr(), refused) },
        }
    }

    /// Sends what is at `from`.
    ///
    /// # Safety
    ///
    /// `from` has a value. After `Ok`, or after a panic of the peer's waker, the value is gone; else it is the caller's still.
    #[inline]
    unsafe fn send_from(&self, from: *mut T, deadline: Option<Instant>) -> Result<(), NotSent> {
        let mut locked = self.raw.lock();
        // SAFETY: the lock is this channel's; a value, by the contract.
        match unsafe { self.offer(&mut locked, from) } {
            Offer::Sent(peer) => {
                locked.unlock();
                if let Some(peer) = peer {
                    // SAFETY: taken out here, and not used after.
                    unsafe { peer.wake() };
                }
                Ok(())
            }
            // SAFETY: the lock is this channel's; a value, which is not used after `Ok` or a panic, by the contract.
            Offer::Full => unsafe { self.wait_to_send(locked, from, deadline) },
            Offer::Closed => {
                locked.unlock();
                Err(NotSent::Closed)
            }
        }
    }

    /// Step 4.
    ///
    /// # Safety
    ///
    /// - `locked` is the lock of this channel.
    /// - `value` has a value. After `Ok`, or after a panic of the peer's waker, the value is gone.
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
        // - it is new;
        // - this frame is not left while the waiter is queued, or taken and not readied: `park_queued_spinning` returns
        //   afterwards, and never unwinds. G and value live as long, as both were made before the waiter.
        unsafe { locked.enqueue(Dir::Send, &waiter) };
        // SAFETY: put into a queue of this channel.
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

/// Makes the error of a value that is not sent.
///
/// # Safety
///
/// `value` has a value, which is not used again.
#[cold]
#[inline(never)]
unsafe fn refuse<T, E>(why: NotSent, value: *const T, refused: impl FnOnce(NotSent, T) -> E) -> Result<(), E> {
    // SAFETY: by the contract.
    Err(refused(why, unsafe { value.read() }))
}
