//! Sending and receiving as futures: async tasks in the same queues as threads and goroutines.
//!
//! | stage | the waiter | on poll | on drop |
//! |---|---|---|---|
//! | `Apart` | is in no queue | tries, then queues: `Queued` | a send drops its value |
//! | `Queued` | is in its queue, or taken by a peer that is about to ready the waiter | registers the waker; if readied: `Over` | leaves the queue. If a receive has been given a value, gives back that value. If a send has been given a place, gives up that place |
//! | `Over` | is in no queue | panics | nothing |
//!
//! A value or a place that is given to a waiting future is provisional until the future is polled: see the section
//! "Tasks" of `core.rs`.
//!
//! The waker is registered after the channel has been unlocked, because a waker's `clone` is user code. A `ready` that
//! comes before the registration sets a flag in the G, which the poll then finds.

use std::cell::{Cell, UnsafeCell};
use std::fmt;
use std::future::Future;
use std::marker::PhantomPinned;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use super::core::{Core, Offer, Take};
use super::port::{RecvPort, SendPort};
use super::raw::{Dir, Locked, wake_all};
use super::recv::leave_or_give_back;
use super::select::case::Slot;
use super::waiters::{Outcome, Waiter};
use crate::{Coop, G};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Apart,
    Queued,
    Over,
}

/// A waiter with its G, inside a future.
pub(super) struct TaskWaiter {
    pub(super) stage: Cell<Stage>,
    pub(super) g: G,
    pub(super) coop: Coop,
    /// The waiter, which `queue` makes. The field is a cell because peers write to the waiter while it is queued.
    waiter: UnsafeCell<MaybeUninit<Waiter>>,
}

impl TaskWaiter {
    pub(super) fn new() -> Self {
        let waiter = UnsafeCell::new(MaybeUninit::uninit());
        Self { stage: Cell::new(Stage::Apart), g: G::task(), coop: Coop::new(), waiter }
    }

    /// Makes the waiter, and puts it into a queue.
    ///
    /// # Safety
    ///
    /// - The stage is `Apart`.
    /// - This value and the slot stay alive and in place until the stage is `Over`.
    pub(super) unsafe fn queue(&self, locked: &mut Locked<'_>, dir: Dir, slot: *mut ()) {
        // SAFETY: nothing else uses the waiter, because the stage is `Apart`.
        let waiter = unsafe { (*self.waiter.get()).write(Waiter::of_task(&raw const self.g, slot)) };
        // SAFETY: `waiter` is new, so no queue contains it. The waiter, its G and its slot stay alive and in place
        // until the stage is `Over`, by the contract of this function.
        unsafe { locked.enqueue(dir, waiter) };
        self.stage.set(Stage::Queued);
    }

    /// # Safety
    ///
    /// `queue` has been called.
    pub(super) unsafe fn waiter(&self) -> &Waiter {
        // SAFETY: `queue` has made the waiter, by the contract of this function. The waiter is changed only through its
        // cells.
        unsafe { (*self.waiter.get()).assume_init_ref() }
    }

    /// Takes the waiter out of its queue, in which it waits to send or to reserve. If a peer has given the waiter a
    /// place, gives up that place. Returns true if the value has not been sent. Returns false if the value has been
    /// moved to a receiver or into the ring.
    ///
    /// # Safety
    ///
    /// The stage is `Queued`, and `queue` was called with the lock of this channel. The waiter is not used after this.
    pub(super) unsafe fn leave_senders<T>(&self, core: &Core<T>) -> bool {
        // SAFETY: the stage is `Queued`, so `queue` has been called.
        let waiter = unsafe { self.waiter() };
        // SAFETY: the waiter is alive, and was put into a queue of this channel, by the contract of this function.
        if unsafe { core.raw.leave(waiter) } {
            crate::shim::mark("a sender that gives up leaves its queue");
            return true;
        }
        self.g.await_ready();
        match (waiter.outcome.get(), waiter.dir()) {
            (Outcome::Done, Dir::Reserve) => core.give_up_place(),
            (Outcome::Done, _) => return false,
            _ => {}
        }
        true
    }
}

/// A future that receives a value. Made by [`Chan::recv_async`](super::Chan::recv_async) and the similar functions.
///
/// The future does nothing before its first poll. That poll receives a value, or puts the future into the queue of
/// receivers.
///
/// A future may be dropped at any time, and a dropped future has received nothing. If a sender has given a value to the
/// future just before the drop, that value goes to the next receiver, or is the next value to be received. The drop may
/// have to wait for a send that is under way on another thread.
///
/// A value that a sender has given to the future belongs to the channel until the future is polled. So a closed channel
/// does not report its end before that value has been received. A receiver that finds no other value in the closed
/// channel takes the value away from the future, and the future then ends as if the value had never come.
///
/// A future that has been polled must be polled again when its waker is woken, or be dropped. A leaked future stays in
/// the queue for ever. If a sender gives a value to the leaked future, no receiver gets that value before the channel
/// is closed.
#[must_use = "a future does nothing unless polled"]
pub struct RecvFuture<'a, P: RecvPort> {
    port: &'a P,
    receiving: Receiving<P::Item>,
    _pinned: PhantomPinned,
}

// SAFETY: the fields of `wait` are read and written under the channel's lock while the waiter is queued; by the peer
// that has taken the waiter, until the peer readies the waiter; and otherwise by the owner of the future. The owner may
// move the future to another thread, as any value. The future's G is a task. Such a G is not bound to a thread: it
// contains only a lock around a flag and a waker, and both are `Send`. A value in the slot is sent with the future.
unsafe impl<P: RecvPort + Sync> Send for RecvFuture<'_, P> where P::Item: Send {}
// SAFETY: a shared reference to this future permits no operation.
unsafe impl<P: RecvPort> Sync for RecvFuture<'_, P> {}

impl<'a, P: RecvPort> RecvFuture<'a, P> {
    pub(super) fn new(port: &'a P) -> Self {
        Self { port, receiving: Receiving::new(), _pinned: PhantomPinned }
    }
}

impl<P: RecvPort> Future for RecvFuture<'_, P> {
    type Output = P::Received;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<P::Received> {
        let this = self.as_ref().get_ref();
        let Some(core) = this.port.core() else { return Poll::Pending };
        // SAFETY: the future is pinned, so it stays in place until `drop`, which calls `leave`. A port always returns
        // the same channel.
        unsafe { this.receiving.poll(core, cx) }.map(P::received)
    }
}

impl<P: RecvPort> Drop for RecvFuture<'_, P> {
    fn drop(&mut self) {
        if let Some(core) = self.port.core() {
            // SAFETY: `core` is the channel of `poll`, which is not called again.
            unsafe { self.receiving.leave(core) };
        }
    }
}

/// A stream of the values that a handle receives: a `Stream` of the crate `futures-core`. With the feature `stream`
/// only.
///
/// The stream ends when the channel is closed and has no values left. The rules of [`RecvFuture`] for drops and polls
/// hold for the stream, too. The stream owns `port`, its handle of the channel, which may be a reference to a handle.
///
/// # Examples
///
/// ```
/// # #[cfg(unix)] {
/// use std::future::poll_fn;
/// use std::pin::pin;
/// use futures_core::Stream;
/// use sudog::chan::{RecvStream, channel};
/// use sudog::{go, run, spawn_async};
///
/// let (tx, rx) = channel(0);
/// let sum = run(|| {
///     go(move || (1..=4).for_each(|n| tx.send(n).unwrap()));
///     let task = spawn_async(async {
///         let mut values = pin!(RecvStream::new(rx));
///         let mut sum = 0;
///         while let Some(n) = poll_fn(|cx| values.as_mut().poll_next(cx)).await {
///             sum += n; // with the crate futures: while let Some(n) = values.next().await
///         }
///         sum
///     });
///     task.join().unwrap()
/// });
/// assert_eq!(sum, 10);
/// # }
/// ```
#[cfg(feature = "stream")]
#[must_use = "a stream does nothing unless polled"]
pub struct RecvStream<P: RecvPort> {
    port: P,
    receiving: Receiving<P::Item>,
    _pinned: PhantomPinned,
}

// SAFETY: the reasons of `RecvFuture` hold for the stream, too; and its handle, which is `Send`, is sent with the
// stream.
#[cfg(feature = "stream")]
unsafe impl<P: RecvPort + Send> Send for RecvStream<P> where P::Item: Send {}
// SAFETY: a shared reference to this stream permits no operation.
#[cfg(feature = "stream")]
unsafe impl<P: RecvPort> Sync for RecvStream<P> {}

#[cfg(feature = "stream")]
impl<P: RecvPort> RecvStream<P> {
    /// Makes a stream of the values that this handle will receive.
    pub fn new(port: P) -> Self {
        Self { port, receiving: Receiving::new(), _pinned: PhantomPinned }
    }
}

#[cfg(feature = "stream")]
impl<P: RecvPort> futures_core::Stream for RecvStream<P> {
    type Item = P::Item;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<P::Item>> {
        let this = self.as_ref().get_ref();
        let Some(core) = this.port.core() else { return Poll::Pending };
        /// Resets the stage at the end of the poll, even by a panic. If a sender's waker panics, only the received
        /// value is lost.
        struct Again<'a, T>(&'a Receiving<T>);
        impl<T> Drop for Again<'_, T> {
            fn drop(&mut self) {
                self.0.again();
            }
        }
        let _again = Again(&this.receiving);
        // SAFETY: the stream is pinned, so it stays in place until `drop`, which calls `leave`. A port always returns
        // the same channel.
        unsafe { this.receiving.poll(core, cx) }
    }
}

#[cfg(feature = "stream")]
impl<P: RecvPort> Drop for RecvStream<P> {
    fn drop(&mut self) {
        if let Some(core) = self.port.core() {
            // SAFETY: `core` is the channel of `poll`, which is not called again.
            unsafe { self.receiving.leave(core) };
        }
    }
}

#[cfg(feature = "stream")]
impl<P: RecvPort> fmt::Debug for RecvStream<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("RecvStream { .. }")
    }
}

/// A receive by a task: the common part of [`RecvFuture`] and `RecvStream`.
struct Receiving<T> {
    wait: TaskWaiter,
    slot: UnsafeCell<MaybeUninit<T>>,
}

impl<T> Receiving<T> {
    fn new() -> Self {
        Self { wait: TaskWaiter::new(), slot: UnsafeCell::new(MaybeUninit::uninit()) }
    }

    fn slot(&self) -> *mut T {
        self.slot.get().cast()
    }

    /// Resets a finished receive, so that the next poll begins another receive.
    #[cfg(feature = "stream")]
    fn again(&self) {
        if self.wait.stage.get() == Stage::Over {
            self.wait.stage.set(Stage::Apart);
        }
    }

    /// Receives a value, or puts the waiter into the queue of receivers.
    ///
    /// # Safety
    ///
    /// - The caller is the owner of this value, which stays in place until `leave` has been called.
    /// - The channel is the same in each call.
    unsafe fn poll(&self, core: &Core<T>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        ready!(self.wait.coop.poll_proceed(cx));
        match self.wait.stage.get() {
            Stage::Apart => {
                if core.is_closed_and_drained() {
                    self.wait.stage.set(Stage::Over);
                    return Poll::Ready(None);
                }
                let mut locked = core.raw.lock();
                // SAFETY: `locked` is the lock of this channel, and the slot has room for a value.
                match unsafe { core.take(&mut locked, self.slot()) } {
                    Take::Got(peer) => {
                        locked.unlock();
                        self.wait.stage.set(Stage::Over);
                        // Read the value before waking, which may panic: the panic then drops the value.
                        // SAFETY: after `Got` the slot has a value, which is read once.
                        let value = unsafe { self.slot().read() };
                        if let Some(peer) = peer {
                            peer.wake();
                        }
                        return Poll::Ready(Some(value));
                    }
                    Take::Closed => {
                        locked.unlock();
                        self.wait.stage.set(Stage::Over);
                        return Poll::Ready(None);
                    }
                    Take::Empty => {
                        // SAFETY: the stage is `Apart`. This value stays in place until `leave`, which takes the waiter
                        // out of the queue.
                        unsafe { self.wait.queue(&mut locked, Dir::Recv, self.slot().cast()) };
                        locked.unlock();
                    }
                }
            }
            Stage::Queued => {}
            Stage::Over => panic!("a future was polled after it was ready"),
        }
        if !self.wait.g.poll_ready(cx.waker()) {
            return Poll::Pending;
        }
        self.wait.stage.set(Stage::Over);
        let mut locked = core.raw.lock();
        // SAFETY: the waiter was queued above or by an earlier poll, as a receiver of this channel with this slot, and
        // has been readied.
        let received = unsafe { core.receive_held(&mut locked, self.wait.waiter(), self.slot()) };
        locked.unlock();
        Poll::Ready(match received {
            // SAFETY: after `Got` the slot has a value, which is read once. There is no peer to wake: the value was
            // held, or the channel is closed.
            Take::Got(_) => Some(unsafe { self.slot().read() }),
            Take::Closed => None,
            Take::Empty => unreachable!("a channel stays closed"),
        })
    }

    /// Takes the waiter out of its queue, if the waiter is queued. If the waiter has been given a value, gives the
    /// value back.
    ///
    /// # Safety
    ///
    /// `core` is the channel that was passed to `poll`, and `poll` is not called again.
    unsafe fn leave(&self, core: &Core<T>) {
        if self.wait.stage.get() == Stage::Queued {
            // SAFETY: the waiter was queued as a receiver of this channel, with this G and this slot, and is not used
            // after this.
            unsafe { leave_or_give_back(core, self.wait.waiter(), &self.wait.g) };
        }
    }
}

/// A future that sends a value. Made by [`Chan::send_async`](super::Chan::send_async) and the similar functions.
///
/// The future does nothing before its first poll. That poll sends the value, or puts the future into the queue of
/// senders. A future may be dropped at any time, and the unsent value is dropped with the future. The drop may have to
/// wait for a receive that is under way on another thread.
///
/// If the channel has a buffer, a future that is dropped before it is ready has not sent its value. Without a buffer, a
/// receiver may have taken the value while the future waited to be polled. If that matters, as in a loop that sends
/// again, reserve a place first ([`Sender::reserve_async`](super::Sender::reserve_async)).
///
/// A future that has been polled must be polled again when its waker is woken, or be dropped. A leaked future stays in
/// the queue for ever: it keeps a place that it is given, or, without a buffer, keeps its value until a receiver takes
/// the value.
#[must_use = "a future does nothing unless polled"]
pub struct SendFuture<'a, P: SendPort> {
    port: &'a P,
    wait: TaskWaiter,
    slot: Slot<P::Item>,
    _pinned: PhantomPinned,
}

// SAFETY: the reasons of `RecvFuture` hold for this future, too.
unsafe impl<P: SendPort + Sync> Send for SendFuture<'_, P> where P::Item: Send {}
// SAFETY: a shared reference to this future permits no operation.
unsafe impl<P: SendPort> Sync for SendFuture<'_, P> {}

impl<'a, P: SendPort> SendFuture<'a, P> {
    pub(super) fn new(port: &'a P, value: P::Item) -> Self {
        Self { port, wait: TaskWaiter::new(), slot: Slot::new(value), _pinned: PhantomPinned }
    }

    /// Finishes the send of a future that has been readied: if the future has been given a place, sends the value to
    /// that place. Notes in the slot whether the value has been moved out.
    ///
    /// # Safety
    ///
    /// The waiter has been queued in this channel, and readied. This is called once.
    unsafe fn settle(&self, core: &Core<P::Item>) {
        self.wait.stage.set(Stage::Over);
        // SAFETY: the waiter has been queued, by the contract of this function.
        let waiter = unsafe { self.wait.waiter() };
        if waiter.outcome.get() != Outcome::Done {
            return;
        }
        if waiter.dir() == Dir::Send {
            // SAFETY: a peer has moved the value out of the slot.
            return unsafe { self.slot.is_gone() };
        }
        let mut locked = core.raw.lock();
        // SAFETY: `locked` is the lock of this channel. A peer has given this future a place, and the slot has a value.
        let (offer, next) = unsafe { core.send_reserved(&mut locked, self.slot.value()) };
        locked.unlock();
        match offer {
            Offer::Sent(peer) => {
                // SAFETY: `send_reserved` has moved the value out of the slot.
                unsafe { self.slot.is_gone() };
                wake_all([peer, next]);
            }
            Offer::Closed => {}
            Offer::Full => unreachable!("it had a place"),
        }
    }

    fn over(&self) -> Poll<P::Sent> {
        self.wait.stage.set(Stage::Over);
        Poll::Ready(P::sent(self.slot.take().map_or(Ok(()), Err)))
    }
}

impl<P: SendPort> Future for SendFuture<'_, P> {
    type Output = P::Sent;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<P::Sent> {
        let this = self.as_ref().get_ref();
        let Some(core) = this.port.core() else { return Poll::Pending };
        ready!(this.wait.coop.poll_proceed(cx));
        match this.wait.stage.get() {
            Stage::Apart => {
                let mut locked = core.raw.lock();
                // SAFETY: `locked` is the lock of this channel. The slot has a value until this future is over.
                match unsafe { core.offer(&mut locked, this.slot.value()) } {
                    Offer::Sent(peer) => {
                        locked.unlock();
                        // SAFETY: `offer` has moved the value out of the slot.
                        unsafe { this.slot.is_gone() };
                        this.wait.stage.set(Stage::Over);
                        if let Some(peer) = peer {
                            peer.wake();
                        }
                        return this.over();
                    }
                    Offer::Closed => {
                        locked.unlock();
                        return this.over();
                    }
                    Offer::Full => {
                        let dir = if core.raw.capacity() == 0 { Dir::Send } else { Dir::Reserve };
                        // SAFETY: the stage is `Apart`. The future is pinned by `poll`, and its `drop` takes the waiter
                        // out of the queue before the memory can be used for something else.
                        unsafe { this.wait.queue(&mut locked, dir, this.slot.value().cast()) };
                        locked.unlock();
                    }
                }
            }
            Stage::Queued => {}
            Stage::Over => panic!("a future was polled after it was ready"),
        }
        if !this.wait.g.poll_ready(cx.waker()) {
            return Poll::Pending;
        }
        // SAFETY: the waiter was queued in this channel, and has been readied. The stage is `Over` afterwards, so this
        // is called once.
        unsafe { this.settle(core) };
        this.over()
    }
}

impl<P: SendPort> Drop for SendFuture<'_, P> {
    fn drop(&mut self) {
        if self.wait.stage.get() == Stage::Queued
            && let Some(core) = self.port.core()
        {
            // SAFETY: the stage is `Queued`, by a poll with the lock of this channel. The waiter is not used after
            // this.
            if !unsafe { self.wait.leave_senders(core) } {
                // SAFETY: a peer has moved the value out of the slot.
                unsafe { self.slot.is_gone() };
            }
        }
    }
}

impl<P: RecvPort> fmt::Debug for RecvFuture<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("RecvFuture { .. }")
    }
}

impl<P: SendPort> fmt::Debug for SendFuture<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("SendFuture { .. }")
    }
}
