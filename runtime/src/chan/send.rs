//! Sending by a thread or a goroutine.

use std::mem::ManuallyDrop;
use std::task::Waker;

use super::core::{Core, Offer};
use super::raw::{Dir, Locked, Peer};
use super::waiters::{Outcome, Waiter};
use crate::shim::mark;
use crate::{G, Instant, ParkResult, goroutine};

/// Why a send has failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NotSent {
    Full,
    Closed,
    TimedOut,
}

impl<T> Core<T> {
    /// Sends without waiting. Go's `select` with one send and a `default`.
    #[inline]
    pub(super) fn try_send(&self, value: T) -> Result<(), (NotSent, T)> {
        goroutine::safepoint();
        if let Some(peer) = self.try_offer(value)? {
            // SAFETY: taken out here, and not used after.
            unsafe { peer.wake() };
        }
        Ok(())
    }

    /// [`try_send`](Self::try_send) that runs no user code: it is no safepoint, and the waker of a task that receives is
    /// the caller's to wake. So the caller may hold a lock.
    pub(super) fn try_send_quietly(&self, value: T) -> Result<Option<Waker>, (NotSent, T)> {
        let peer = self.try_offer(value)?;
        // SAFETY: taken out by us alone and not readied yet, so its waiter is still there; not used after.
        Ok(peer.and_then(|peer| unsafe { G::mark_ready(peer.g()) }))
    }

    /// Sends if that need not wait: the receiver that must be woken, if one waited.
    #[inline]
    fn try_offer(&self, value: T) -> Result<Option<Peer>, (NotSent, T)> {
        if self.raw.look().is_full_for_certain() {
            return Err((NotSent::Full, value));
        }
        let value = ManuallyDrop::new(value);
        let mut locked = self.raw.lock();
        // SAFETY: the lock is this channel's; a value, which is not used after `Sent`.
        let offer = unsafe { self.offer(&mut locked, &raw const *value) };
        locked.unlock();
        let why = match offer {
            Offer::Sent(peer) => return Ok(peer),
            Offer::Full => NotSent::Full,
            Offer::Closed => NotSent::Closed,
        };
        Err((why, ManuallyDrop::into_inner(value)))
    }

    /// Sends. Go's `chansend`.
    #[inline]
    pub(super) fn send(&self, value: T, deadline: Option<Instant>) -> Result<(), (NotSent, T)> {
        goroutine::safepoint();
        let mut value = ManuallyDrop::new(value);
        let mut locked = self.raw.lock();
        // SAFETY: the lock is this channel's; a value, which is not used after `Sent`.
        match unsafe { self.offer(&mut locked, &raw const *value) } {
            Offer::Sent(peer) => {
                locked.unlock();
                if let Some(peer) = peer {
                    // SAFETY: taken out here, and not used after.
                    unsafe { peer.wake() };
                }
                Ok(())
            }
            Offer::Full => {
                // SAFETY: the lock is this channel's; a value, which is not used after `Ok` or a panic.
                match unsafe { self.wait_to_send(locked, &raw mut *value, deadline) } {
                    Ok(()) => Ok(()),
                    Err(why) => Err((why, ManuallyDrop::into_inner(value))),
                }
            }
            Offer::Closed => {
                locked.unlock();
                Err((NotSent::Closed, ManuallyDrop::into_inner(value)))
            }
        }
    }

    /// Step 4.
    ///
    /// # Safety
    ///
    /// - `locked` is the lock of this channel.
    /// - `value` has a value. After `Ok`, or if this is unwound, it is gone.
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
        // - this frame is not left while it is queued, or taken and not readied: by a return, below; by a panic, by
        //   `Waiting`. G and value live as long, as both were made before it.
        unsafe { locked.enqueue(Dir::Send, &waiter) };
        // A goroutine that is unwound leaves `park` by a panic.
        let waiting = Waiting { core: self, waiter: &waiter, g: &g, value };
        if g.park_spinning(deadline, || locked.unlock()) == ParkResult::TimedOut {
            // SAFETY: put into a queue of this channel.
            if unsafe { self.raw.leave(&waiter) } {
                std::mem::forget(waiting);
                return Err(NotSent::TimedOut);
            }
            // A peer has taken us and will ready us, if it has not. Until it has, this frame must stand.
            g.park(None, || ());
        }
        std::mem::forget(waiting);
        match waiter.outcome.get() {
            Outcome::Done => Ok(()),
            Outcome::Closed => Err(NotSent::Closed),
            Outcome::Idle | Outcome::Queued | Outcome::Held => unreachable!("readied by no peer"),
        }
    }
}

/// A sender that is unwound while it waits: its value has been received, or is dropped.
struct Waiting<'a, T> {
    core: &'a Core<T>,
    waiter: &'a Waiter,
    g: &'a G,
    value: *mut T,
}

impl<T> Drop for Waiting<'_, T> {
    #[cold]
    fn drop(&mut self) {
        // SAFETY: put into a queue of this channel.
        if !unsafe { self.core.raw.leave(self.waiter) } {
            self.g.await_ready();
            if self.waiter.outcome.get() == Outcome::Done {
                return;
            }
        }
        mark("a sender that is unwound drops its value");
        // SAFETY: it is in no queue, and no peer has taken the value; its owner does not use it after a panic.
        unsafe { self.value.drop_in_place() };
    }
}
