//! Receiving by a thread or a goroutine.

use std::mem::MaybeUninit;

use super::core::{Core, Take};
use super::raw::{Dir, Locked};
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
    /// Receives without waiting. Go's `select` with one receive and a `default`.
    #[inline]
    pub(super) fn try_recv(&self) -> Result<T, NotReceived> {
        goroutine::safepoint();
        if self.is_closed_and_drained() {
            return Err(NotReceived::Closed);
        }
        let state = self.raw.look();
        if state.is_empty_for_certain() {
            return Err(NotReceived::Empty);
        }
        if state.is_at_its_end() {
            return Err(NotReceived::Closed);
        }
        let mut slot = MaybeUninit::uninit();
        let mut locked = self.raw.lock();
        // SAFETY: the lock is this channel's; room for one.
        let taken = unsafe { self.take(&mut locked, slot.as_mut_ptr()) };
        locked.unlock();
        match taken {
            // SAFETY: there is a value, after `Got`.
            Take::Got(peer) => {
                // Before the waking, which may panic: the value is dropped then.
                // SAFETY: there is one, after `Got`.
                let value = unsafe { slot.assume_init() };
                if let Some(peer) = peer {
                    // SAFETY: taken out here, and not used after.
                    unsafe { peer.wake() };
                }
                Ok(value)
            }
            Take::Empty => Err(NotReceived::Empty),
            Take::Closed => Err(NotReceived::Closed),
        }
    }

    /// Receives. Go's `chanrecv`.
    #[inline]
    pub(super) fn recv(&self, deadline: Option<Instant>) -> Result<T, NotReceived> {
        goroutine::safepoint();
        if self.is_closed_and_drained() {
            return Err(NotReceived::Closed);
        }
        let mut slot = MaybeUninit::uninit();
        let mut locked = self.raw.lock();
        // SAFETY: the lock is this channel's; room for one.
        match unsafe { self.take(&mut locked, slot.as_mut_ptr()) } {
            Take::Got(peer) => {
                locked.unlock();
                // Before the waking, which may panic: the value is dropped then.
                // SAFETY: there is one, after `Got`.
                let value = unsafe { slot.assume_init() };
                if let Some(peer) = peer {
                    // SAFETY: taken out here, and not used after.
                    unsafe { peer.wake() };
                }
                Ok(value)
            }
            Take::Empty => {
                // SAFETY: the lock is this channel's; room for one.
                unsafe { self.wait_to_recv(locked, slot.as_mut_ptr(), deadline) }?;
                // SAFETY: there is one, after `Ok`.
                Ok(unsafe { slot.assume_init() })
            }
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
        // - this frame is not left while it is queued, or taken and not readied: by a return, below; by a panic, by
        //   `Waiting`. G and slot live as long, as both were made before it.
        unsafe { locked.enqueue(Dir::Recv, &waiter) };
        // A goroutine that is unwound leaves `park` by a panic.
        let waiting = Waiting { core: self, waiter: &waiter, g: &g };
        if g.park_spinning(deadline, || locked.unlock()) == ParkResult::TimedOut {
            // SAFETY: put into a queue of this channel.
            if unsafe { self.raw.leave(&waiter) } {
                std::mem::forget(waiting);
                return Err(NotReceived::TimedOut);
            }
            // A peer has taken us and will ready us, if it has not. Until it has, this frame must stand.
            g.park(None, || ());
        }
        std::mem::forget(waiting);
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

/// A receiver that is unwound while it waits: a value that it was given goes to the next.
struct Waiting<'a, T> {
    core: &'a Core<T>,
    waiter: &'a Waiter,
    g: &'a G,
}

impl<T> Drop for Waiting<'_, T> {
    #[cold]
    fn drop(&mut self) {
        // SAFETY: put into this queue.
        unsafe { leave_or_give_back(self.core, self.waiter, self.g) };
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
