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
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use super::core::Place;
use super::future::{Left, TaskWaiter};
use super::port::SendPort;
use super::raw::{Dir, wake_all};
use super::value::Owned;

/// A place for a value in a channel: made by [`Sender::reserve_async`](super::Sender::reserve_async) and the similar
/// functions.
///
/// A permit that is dropped gives its place to the next sender. While a permit exists, the channel has one place less
/// for other senders.
#[must_use = "a permit that is dropped gives up its place"]
pub struct Permit<'a, P: SendPort> {
    /// The place. `None` if the channel was closed when the permit was made.
    place: Option<Place<'a, P::Item>>,
    port: PhantomData<&'a P>,
}

impl<'a, P: SendPort> Permit<'a, P> {
    fn new(place: Option<Place<'a, P::Item>>) -> Self {
        Self { place, port: PhantomData }
    }

    /// Returns a permit for a place, if there is a free place now.
    pub(super) fn try_new(port: &'a P) -> Option<Self> {
        match port.core()?.try_reserve() {
            Ok(place) => Some(Self::new(place)),
            Err(guard) => {
                guard.unlock();
                None
            }
        }
    }

    /// Sends a value, without waiting. Returns the same as the handle's `send`: for a [`Sender`](super::Sender) whose
    /// channel has been closed, an error that contains the value.
    ///
    /// # Panics
    ///
    /// Panics with `send on closed channel` if the channel has been closed, and is a [`Chan`](super::Chan) or a view of
    /// a `Chan`.
    #[track_caller]
    pub fn send(self, value: P::Item) -> P::Sent {
        crate::goroutine::safepoint();
        let Some(place) = self.place else { return P::sent(Err(value)) }; // a closed channel stays closed
        let mut slot = MaybeUninit::uninit();
        P::sent(match place.send(Owned::fill(&mut slot, value)) {
            Ok(peers) => {
                wake_all(peers);
                Ok(())
            }
            Err(value) => Err(value.into_inner()),
        })
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
    wait: TaskWaiter<P::Item>,
}

// SAFETY: the fields of `wait` are read and written under the channel's lock while the waiter is queued; by the peer
// that has taken the waiter, until the peer readies the waiter; and otherwise by the owner of the future. The future's
// G is a task, which is not bound to a thread. The future contains no value.
unsafe impl<P: SendPort + Sync> Send for ReserveFuture<'_, P> {}
// SAFETY: a shared reference to this future permits no operation.
unsafe impl<P: SendPort> Sync for ReserveFuture<'_, P> {}

impl<'a, P: SendPort> ReserveFuture<'a, P> {
    pub(super) fn new(port: &'a P) -> Self {
        Self { port, wait: TaskWaiter::new() }
    }
}

impl<'a, P: SendPort> Future for ReserveFuture<'a, P> {
    type Output = Permit<'a, P>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Permit<'a, P>> {
        let this = self.as_ref().get_ref();
        let Some(core) = this.port.core() else { return Poll::Pending };
        ready!(this.wait.coop.poll_proceed(cx));
        if this.wait.begin() {
            match core.try_reserve() {
                Ok(place) => return Poll::Ready(Permit::new(place)),
                // SAFETY: the future is pinned, and its `drop` leaves the queue, so the waiter stays in place while it
                // is queued. The channel lives as long as `port`. Nothing uses the slot of a waiter in this queue.
                Err(guard) => unsafe { this.wait.queue(guard, Dir::Reserve, std::ptr::null_mut()) },
            }
        }
        let Some(readied) = this.wait.poll_ready("chan send", cx.waker()) else { return Poll::Pending };
        Poll::Ready(Permit::new(readied.place().map(|place| place.with(core))))
    }
}

impl<P: SendPort> Drop for ReserveFuture<'_, P> {
    fn drop(&mut self) {
        match self.wait.leave() {
            Left::Apart => {}
            Left::Unserved => crate::shim::mark("a sender that gives up leaves its queue"),
            Left::Readied(readied) => drop(readied.place()),
        }
    }
}

impl<P: SendPort> fmt::Debug for ReserveFuture<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("ReserveFuture { .. }")
    }
}
