//! Permits: a sender reserves a place in a channel before it has a value to send, as with tokio's `reserve`.
//!
//! | capacity | a place is | number of places |
//! |---|---|---|
//! | n > 0 | a slot of the buffer, which no other sender fills | n, including the values in the buffer |
//! | 0 | room for a value beside the ring | 1, including the values that are beside the ring |
//!
//! A waiter for a place is in the queue `Dir::Reserve`. A task that sends to a buffer waits in the same queue.

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

/// A place for a value in a channel: made by [`Sender::reserve_async`](super::Sender::reserve_async) and the similar
/// functions.
///
/// A permit that is dropped gives its place to the next sender. While a permit exists, the channel has one place less
/// for other senders.
#[must_use = "a permit that is dropped gives up its place"]
pub struct Permit<'a, P: SendPort> {
    port: &'a P,
    /// True while the permit has a place: false if the channel was closed when the permit was made, or if the permit
    /// has been used.
    has_place: bool,
}

impl<'a, P: SendPort> Permit<'a, P> {
    /// Returns a permit for a place, if there is a free place now.
    pub(super) fn try_new(port: &'a P) -> Option<Self> {
        let core = port.core()?;
        let mut locked = core.raw.lock();
        let reserved = locked.try_reserve();
        locked.unlock();
        reserved.map(|has_place| Self { port, has_place })
    }

    /// Sends a value, without waiting. Returns the same as the handle's `send`: for a [`Sender`](super::Sender) whose
    /// channel has been closed, an error that contains the value.
    ///
    /// # Panics
    ///
    /// Panics with `send on closed channel` if the channel has been closed, and is a [`Chan`](super::Chan) or a view of
    /// a `Chan`.
    #[track_caller]
    pub fn send(mut self, value: P::Item) -> P::Sent {
        let port = self.port;
        let core = port.core().expect("a nil channel gives no permit");
        if !std::mem::take(&mut self.has_place) {
            return P::sent(Err(value)); // a closed channel stays closed
        }
        // Allocate before the lock is taken.
        let node = (core.raw.capacity() == 0).then(Node::new);
        let value = ManuallyDrop::new(value);
        let mut locked = core.raw.lock();
        // SAFETY: `locked` is the lock of this channel. The permit had a place, and `has_place` is false from now on.
        // `value` is a value, which is not used after `Sent`.
        let (offer, next) = unsafe { core.send_reserved(&mut locked, &raw const *value) };
        let offer = match (offer, node) {
            (Offer::Full, Some(node)) => {
                // SAFETY: `locked` is the lock of this channel. `value` is a value, which is not used after this.
                unsafe { core.keep(&mut locked, node, &raw const *value) };
                Offer::Sent(None)
            }
            (offer, _) => offer,
        };
        locked.unlock();
        let Offer::Sent(peer) = offer else { return P::sent(Err(ManuallyDrop::into_inner(value))) };
        wake_all([peer, next]);
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

/// A future that reserves a place. Made by [`Sender::reserve_async`](super::Sender::reserve_async) and the similar
/// functions.
///
/// The future does nothing before its first poll, which reserves a place, or puts the future into the queue of
/// reservers. A future may be dropped at any time: if the future has been given a place, that place goes to the next
/// sender. A future that has been polled must be polled again when its waker is woken, or be dropped.
#[must_use = "a future does nothing unless polled"]
pub struct ReserveFuture<'a, P: SendPort> {
    port: &'a P,
    wait: TaskWaiter,
    _pinned: PhantomPinned,
}

// SAFETY: the fields of `wait` are read and written under the channel's lock while the waiter is queued; by the peer
// that has taken the waiter, until the peer readies the waiter; and otherwise by the owner of the future. The future's
// G is a task, which is not bound to a thread. The future contains no value.
unsafe impl<P: SendPort + Sync> Send for ReserveFuture<'_, P> {}
// SAFETY: a shared reference to this future permits no operation.
unsafe impl<P: SendPort> Sync for ReserveFuture<'_, P> {}

impl<'a, P: SendPort> ReserveFuture<'a, P> {
    pub(super) fn new(port: &'a P) -> Self {
        Self { port, wait: TaskWaiter::new(), _pinned: PhantomPinned }
    }

    fn over(&self, has_place: bool) -> Poll<Permit<'a, P>> {
        self.wait.stage.set(Stage::Over);
        Poll::Ready(Permit { port: self.port, has_place })
    }

    /// Reserves a place, or joins the queue if there is no free place. Returns `Some(true)` with a place, `Some(false)`
    /// if the channel is closed, and `None` if the future has joined the queue.
    ///
    /// # Safety
    ///
    /// The stage is `Apart`. This future is pinned, and its `drop` leaves the queue.
    unsafe fn try_or_queue(&self, core: &Core<P::Item>) -> Option<bool> {
        let mut locked = core.raw.lock();
        let reserved = locked.try_reserve();
        if reserved.is_none() {
            // SAFETY: the stage is `Apart`, and this future stays in place until it has left the queue, by the contract
            // of this function. Nothing uses the slot of a waiter in this queue.
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
                // SAFETY: the stage is `Apart`. The future is pinned by `poll`, and its `drop` leaves the queue.
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
        // SAFETY: the waiter was queued above, or by an earlier poll.
        this.over(unsafe { this.wait.waiter() }.outcome.get() == Outcome::Done)
    }
}

impl<P: SendPort> Drop for ReserveFuture<'_, P> {
    fn drop(&mut self) {
        if self.wait.stage.get() == Stage::Queued
            && let Some(core) = self.port.core()
        {
            // SAFETY: the stage is `Queued`, by a poll with the lock of this channel. The waiter is not used after
            // this.
            unsafe { self.wait.leave_senders(core) };
        }
    }
}

impl<P: SendPort> fmt::Debug for ReserveFuture<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("ReserveFuture { .. }")
    }
}
