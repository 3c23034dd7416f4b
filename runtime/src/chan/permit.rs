//! Reserving a place in a channel before the value is there: tokio's `reserve`.
//!
//! | capacity | a place is | how many |
//! |---|---|---|
//! | n > 0 | a slot of the buffer, which no other sender fills | n, with the values in the buffer |
//! | 0 | room for a value beside the channel | 1, with the values that are there |
//!
//! A place is reserved by a waiter in the queue `Dir::Reserve`, where the sends of tasks to a buffer wait, too.

use std::fmt;
use std::future::Future;
use std::marker::PhantomPinned;
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use super::buffer::Node;
use super::core::{Core, Offer};
use super::future::{Stage, TaskWaiter};
use super::port::SendPort;
use super::raw::{Dir, wake_all};
use super::waiters::Outcome;

/// A place for one value in a channel: made by [`Sender::reserve_async`](super::Sender::reserve_async) and its like.
///
/// A permit that is dropped gives its place to the next sender. While a permit lives, other sends have a place less.
#[must_use = "a permit that is dropped gives up its place"]
pub struct Permit<'a, P: SendPort> {
    port: &'a P,
    /// False if the channel was closed when the permit was made, or if the permit has been used.
    has_place: bool,
}

impl<'a, P: SendPort> Permit<'a, P> {
    /// A permit for a place, if there is one now.
    pub(super) fn try_new(port: &'a P) -> Option<Self> {
        let core = port.core()?;
        let mut locked = core.raw.lock();
        let reserved = locked.try_reserve();
        locked.unlock();
        reserved.map(|has_place| Self { port, has_place })
    }

    /// Sends, without waiting. Returns what a send returns: an error with the value, if the channel has been closed.
    ///
    /// # Panics
    ///
    /// `send on closed channel`, if the channel is a [`Chan`](super::Chan) or a view of one.
    #[track_caller]
    pub fn send(mut self, value: P::Item) -> P::Sent {
        let port = self.port;
        let core = port.core().expect("a nil channel gives no permit");
        if !std::mem::take(&mut self.has_place) {
            return P::sent(Err(value)); // it stays closed
        }
        // Allocate before the lock is taken.
        let node = (core.raw.capacity() == 0).then(Node::new);
        let value = ManuallyDrop::new(value);
        let mut locked = core.raw.lock();
        // SAFETY: the lock is this channel's; the permit had a place; a value, which is not used after `Sent`.
        let (offer, next) = unsafe { core.send_reserved(&mut locked, &raw const *value) };
        let offer = match (offer, node) {
            (Offer::Full, Some(node)) => {
                // SAFETY: a value, which is not used after this.
                unsafe { core.keep(&mut locked, node, &raw const *value) };
                Offer::Sent(None)
            }
            (offer, _) => offer,
        };
        locked.unlock();
        let Offer::Sent(peer) = offer else { return P::sent(Err(ManuallyDrop::into_inner(value))) };
        // SAFETY: taken out just now, and not used after.
        unsafe { wake_all([peer, next]) };
        P::sent(Ok(()))
    }
}

impl<P: SendPort> Drop for Permit<'_, P> {
    fn drop(&mut self) {
        if self.has_place
            && let Some(core) = self.port.core()
        {
            core.give_up_place();
        }
    }
}

impl<P: SendPort> fmt::Debug for Permit<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("Permit { .. }")
    }
}

/// Reserves a place: made by [`Sender::reserve_async`](super::Sender::reserve_async) and its like.
///
/// The future does nothing before its first poll, which takes a place, or joins the queue of senders. A future may be dropped at any
/// time; a place that it has been given goes to the next sender. Once it has been polled it must be polled again when its waker is
/// woken, or dropped.
#[must_use = "a future does nothing unless polled"]
pub struct ReserveFuture<'a, P: SendPort> {
    port: &'a P,
    wait: TaskWaiter,
    _pinned: PhantomPinned,
}

// SAFETY: what is in its wait is touched under the channel's lock while it is queued, by the peer that has taken it until it
// readies it, and else by the owner of the future. Its G is a task, which is not bound to a thread. It has no value.
unsafe impl<P: SendPort + Sync> Send for ReserveFuture<'_, P> {}
// SAFETY: nothing can be done with a shared reference to it.
unsafe impl<P: SendPort> Sync for ReserveFuture<'_, P> {}

impl<'a, P: SendPort> ReserveFuture<'a, P> {
    pub(super) fn new(port: &'a P) -> Self {
        Self { port, wait: TaskWaiter::new(), _pinned: PhantomPinned }
    }

    fn over(&self, has_place: bool) -> Poll<Permit<'a, P>> {
        self.wait.stage.set(Stage::Over);
        Poll::Ready(Permit { port: self.port, has_place })
    }

    /// Reserves a place, or joins the queue if there is none. `Some(false)`: the channel is closed.
    ///
    /// # Safety
    ///
    /// The stage is `Apart`. This is pinned, and its `drop` leaves the queue.
    unsafe fn try_or_queue(&self, core: &Core<P::Item>) -> Option<bool> {
        let mut locked = core.raw.lock();
        let reserved = locked.try_reserve();
        if reserved.is_none() {
            // SAFETY: `Apart`, by the contract; nothing uses the slot of a waiter in this queue.
            unsafe { self.wait.queue(&mut locked, Dir::Reserve, std::ptr::null_mut()) };
        }
        locked.unlock();
        reserved
    }
}

impl<'a, P: SendPort> Future for ReserveFuture<'a, P> {
    type Output = Permit<'a, P>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Permit<'a, P>> {
        let this = self.as_ref().get_ref();
        let Some(core) = this.port.core() else { return Poll::Pending };
        ready!(this.wait.coop.poll_proceed(cx));
        match this.wait.stage.get() {
            Stage::Apart => {
                // SAFETY: `Apart`; pinned by `poll`, and `drop` leaves the queue.
                if let Some(has_place) = unsafe { this.try_or_queue(core) } {
                    return this.over(has_place);
                }
            }
            Stage::Queued => {}
            Stage::Over => panic!("a future was polled after it was ready"),
        }
        if !this.wait.g.poll_ready(cx.waker()) {
            return Poll::Pending;
        }
        // SAFETY: queued above, or by a poll before.
        this.over(unsafe { this.wait.waiter() }.outcome.get() == Outcome::Done)
    }
}

impl<P: SendPort> Drop for ReserveFuture<'_, P> {
    fn drop(&mut self) {
        if self.wait.stage.get() == Stage::Queued
            && let Some(core) = self.port.core()
        {
            // SAFETY: the stage is `Queued`, by a poll with this channel's lock.
            unsafe { self.wait.leave_senders(core) };
        }
    }
}

impl<P: SendPort> fmt::Debug for ReserveFuture<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("ReserveFuture { .. }")
    }
}
