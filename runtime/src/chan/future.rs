//! Sending and receiving as futures: async tasks in the same queues as threads and goroutines.
//!
//! | stage | the waiter | on poll | on drop |
//! |---|---|---|---|
//! | `Apart` | is in no queue | tries, then queues: `Queued` | a send drops its value |
//! | `Queued` | is in its queue, or taken by a peer that is about to ready it | registers the waker; readied: `Over` | leaves; a receive that was given a value gives it back, a send that was given a place gives it up |
//! | `Over` | is in no queue | panics | nothing |
//!
//! What a peer gives to a future is provisional until the future is polled: the table is at the top of `core.rs`.
//!
//! The waker is registered after the channel has been unlocked, as a waker's `clone` is user code. A `ready` that comes
//! before leaves a mark in the G.

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

/// A waiter with its G, in a future.
pub(super) struct TaskWaiter {
    pub(super) stage: Cell<Stage>,
    pub(super) g: G,
    pub(super) coop: Coop,
    /// Made as it is queued. In a cell: others write to it while it is.
    waiter: UnsafeCell<MaybeUninit<Waiter>>,
}

impl TaskWaiter {
    pub(super) fn new() -> Self {
        let waiter = UnsafeCell::new(MaybeUninit::uninit());
        Self { stage: Cell::new(Stage::Apart), g: G::task(), coop: Coop::new(), waiter }
    }

    /// # Safety
    ///
    /// - The stage is `Apart`.
    /// - This and the slot stay where they are, alive, until the stage is `Over`.
    pub(super) unsafe fn queue(&self, locked: &mut Locked<'_>, dir: Dir, slot: *mut ()) {
        // SAFETY: nothing else uses it: the stage is `Apart`.
        let waiter = unsafe { (*self.waiter.get()).write(Waiter::of_task(&raw const self.g, slot)) };
        // SAFETY: new; by the contract.
        unsafe { locked.enqueue(dir, waiter) };
        self.stage.set(Stage::Queued);
    }

    /// # Safety
    ///
    /// `queue` has been called.
    pub(super) unsafe fn waiter(&self) -> &Waiter {
        // SAFETY: made by `queue`, and written to through its cells only.
        unsafe { (*self.waiter.get()).assume_init_ref() }
    }

    /// Leaves the queue of those that wait to send, or for a place; gives up a place that it has been given. True if it has
    /// left, or has given up a place: its value has not been sent.
    ///
    /// # Safety
    ///
    /// The stage is `Queued`, and `queue` was called with the lock of this channel. The waiter is not used after this.
    pub(super) unsafe fn leave_senders<T>(&self, core: &Core<T>) -> bool {
        // SAFETY: queued, by the contract.
        let waiter = unsafe { self.waiter() };
        // SAFETY: put into a queue of this channel.
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

/// Receives: made by [`Chan::recv_async`](super::Chan::recv_async) and its like.
///
/// It does nothing before it is first polled; then it receives, or joins the queue. It may be dropped at any time, and has
/// taken nothing then. A sender may have given it a value just before: that value goes to the next receiver, or is the
/// next to be received. The drop may take as long as a send that is under way on another thread.
///
/// Until the future is polled, such a value is the channel's. So a closed channel is not at its end before the value has
/// been received: another receiver that would be told so takes the value, and the future then ends as if the value had never come.
///
/// Once it has been polled it must be polled again when its waker is woken, or dropped. One that is leaked stays in the
/// queue for ever, and keeps a value until the channel is closed.
#[must_use = "a future does nothing unless polled"]
pub struct RecvFuture<'a, P: RecvPort> {
    port: &'a P,
    receiving: Receiving<P::Item>,
    _pinned: PhantomPinned,
}

// SAFETY: what is in its wait is touched under the channel's lock while it is queued, by the peer that has taken it until
// it readies it, and else by the owner of the future, which may be handed to another thread as any value. Its G is a task:
// not bound to a thread, but a lock with a flag and a waker in it, which are `Send`. A value in its slot is sent with it.
unsafe impl<P: RecvPort + Sync> Send for RecvFuture<'_, P> where P::Item: Send {}
// SAFETY: nothing can be done with a shared reference to it.
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
        // SAFETY: pinned, and `drop` leaves; a port's channel is always the same.
        unsafe { this.receiving.poll(core, cx) }.map(P::received)
    }
}

impl<P: RecvPort> Drop for RecvFuture<'_, P> {
    fn drop(&mut self) {
        if let Some(core) = self.port.core() {
            // SAFETY: of this channel.
            unsafe { self.receiving.leave(core) };
        }
    }
}

/// Receives again and again, as a `Stream` of the crate `futures-core`: with the feature `stream`.
///
/// It ends when the channel is closed and has no values left. What [`RecvFuture`] promises of a drop and asks of a poll
/// holds here, too. It owns its handle, which may be a reference.
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

// SAFETY: as for `RecvFuture`; and its handle is sent with it.
#[cfg(feature = "stream")]
unsafe impl<P: RecvPort + Send> Send for RecvStream<P> where P::Item: Send {}
// SAFETY: as for `RecvFuture`.
#[cfg(feature = "stream")]
unsafe impl<P: RecvPort> Sync for RecvStream<P> {}

#[cfg(feature = "stream")]
impl<P: RecvPort> RecvStream<P> {
    /// The values that this handle will receive.
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
        /// However the poll ends: a panic of a sender's waker has taken the value with it, and no more.
        struct Again<'a, T>(&'a Receiving<T>);
        impl<T> Drop for Again<'_, T> {
            fn drop(&mut self) {
                self.0.again();
            }
        }
        let _again = Again(&this.receiving);
        // SAFETY: pinned, and `drop` leaves; a port's channel is always the same.
        unsafe { this.receiving.poll(core, cx) }
    }
}

#[cfg(feature = "stream")]
impl<P: RecvPort> Drop for RecvStream<P> {
    fn drop(&mut self) {
        if let Some(core) = self.port.core() {
            // SAFETY: of this channel.
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

/// A receive that a task waits for: what a future and a stream have inside.
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

    /// If it is over it begins anew.
    #[cfg(feature = "stream")]
    fn again(&self) {
        if self.wait.stage.get() == Stage::Over {
            self.wait.stage.set(Stage::Apart);
        }
    }

    /// # Safety
    ///
    /// - By its owner; it stays where it is until `leave` has been called.
    /// - The channel is the same each time.
    unsafe fn poll(&self, core: &Core<T>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        ready!(self.wait.coop.poll_proceed(cx));
        match self.wait.stage.get() {
            Stage::Apart => {
                if core.is_closed_and_drained() {
                    self.wait.stage.set(Stage::Over);
                    return Poll::Ready(None);
                }
                let mut locked = core.raw.lock();
                // SAFETY: the lock is this channel's; room for one.
                match unsafe { core.take(&mut locked, self.slot()) } {
                    Take::Got(peer) => {
                        locked.unlock();
                        self.wait.stage.set(Stage::Over);
                        // Before the waking, which may panic: the value is dropped then.
                        // SAFETY: there is one, after `Got`; read once.
                        let value = unsafe { self.slot().read() };
                        if let Some(peer) = peer {
                            // SAFETY: taken out here, and not used after.
                            unsafe { peer.wake() };
                        }
                        return Poll::Ready(Some(value));
                    }
                    Take::Closed => {
                        locked.unlock();
                        self.wait.stage.set(Stage::Over);
                        return Poll::Ready(None);
                    }
                    Take::Empty => {
                        // SAFETY: `Apart`; it stays in place until `leave`, which takes it out of the queue.
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
        // SAFETY: queued above, or by a poll before, with this slot; readied.
        let received = unsafe { core.receive_held(&mut locked, self.wait.waiter(), self.slot()) };
        locked.unlock();
        Poll::Ready(match received {
            // SAFETY: a value is there, after `Got`; read once. No peer is to be woken: the value was held, or the channel
            // is closed.
            Take::Got(_) => Some(unsafe { self.slot().read() }),
            Take::Closed => None,
            Take::Empty => unreachable!("a channel stays closed"),
        })
    }

    /// Takes it out of its queue, if it is in one; a value that it has been given goes back.
    ///
    /// # Safety
    ///
    /// The channel is that of `poll`, which is not called again.
    unsafe fn leave(&self, core: &Core<T>) {
        if self.wait.stage.get() == Stage::Queued {
            // SAFETY: queued, with this G and this slot.
            unsafe { leave_or_give_back(core, self.wait.waiter(), &self.wait.g) };
        }
    }
}

/// Sends: made by [`Chan::send_async`](super::Chan::send_async) and its like.
///
/// The future does nothing before its first poll, which sends, or joins the queue. A future may be dropped at any time, and the
/// value is dropped with the future. That may take as long as a receive that is under way on another thread.
///
/// If the future is dropped before it was ready, a channel with a buffer has not been sent the value. Without a buffer a
/// receiver may have taken the value while the future waited to be polled: where that matters, as in a loop that sends
/// again, reserve a place first ([`Sender::reserve_async`](super::Sender::reserve_async)).
///
/// Once it has been polled it must be polled again when its waker is woken, or dropped. One that is leaked stays in the
/// queue for ever, and keeps a place, or a value until that is received.
#[must_use = "a future does nothing unless polled"]
pub struct SendFuture<'a, P: SendPort> {
    port: &'a P,
    wait: TaskWaiter,
    slot: Slot<P::Item>,
    _pinned: PhantomPinned,
}

// SAFETY: as for `RecvFuture`.
unsafe impl<P: SendPort + Sync> Send for SendFuture<'_, P> where P::Item: Send {}
// SAFETY: nothing can be done with a shared reference to it.
unsafe impl<P: SendPort> Sync for SendFuture<'_, P> {}

impl<'a, P: SendPort> SendFuture<'a, P> {
    pub(super) fn new(port: &'a P, value: P::Item) -> Self {
        Self { port, wait: TaskWaiter::new(), slot: Slot::new(value), _pinned: PhantomPinned }
    }

    /// Sends the value, once the future has been readied, if the future has been given a place. The slot learns whether the value is gone.
    ///
    /// # Safety
    ///
    /// The waiter has been queued in this channel, and readied. This is called once.
    unsafe fn settle(&self, core: &Core<P::Item>) {
        self.wait.stage.set(Stage::Over);
        // SAFETY: queued.
        let waiter = unsafe { self.wait.waiter() };
        if waiter.outcome.get() != Outcome::Done {
            return;
        }
        if waiter.dir() == Dir::Send {
            // SAFETY: a peer has taken it.
            return unsafe { self.slot.is_gone() };
        }
        let mut locked = core.raw.lock();
        // SAFETY: the lock is this channel's; a peer has given this future a place; the slot has a value.
        let (offer, next) = unsafe { core.send_reserved(&mut locked, self.slot.value()) };
        locked.unlock();
        match offer {
            Offer::Sent(peer) => {
                // SAFETY: so it is.
                unsafe { self.slot.is_gone() };
                // SAFETY: taken out just now, and not used after.
                unsafe { wake_all([peer, next]) };
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
                // SAFETY: the lock is this channel's; the slot has a value until this future is over.
                match unsafe { core.offer(&mut locked, this.slot.value()) } {
                    Offer::Sent(peer) => {
                        locked.unlock();
                        // SAFETY: so it is.
                        unsafe { this.slot.is_gone() };
                        this.wait.stage.set(Stage::Over);
                        if let Some(peer) = peer {
                            // SAFETY: taken out here, and not used after.
                            unsafe { peer.wake() };
                        }
                        return this.over();
                    }
                    Offer::Closed => {
                        locked.unlock();
                        return this.over();
                    }
                    Offer::Full => {
                        let dir = if core.raw.capacity() == 0 { Dir::Send } else { Dir::Reserve };
                        // SAFETY: `Apart`; pinned by `poll`, and `drop` takes it out of the queue before its memory can
                        // be used for something else.
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
        // SAFETY: queued and readied.
        unsafe { this.settle(core) };
        this.over()
    }
}

impl<P: SendPort> Drop for SendFuture<'_, P> {
    fn drop(&mut self) {
        if self.wait.stage.get() == Stage::Queued
            && let Some(core) = self.port.core()
        {
            // SAFETY: the stage is `Queued`, by a poll with this channel's lock.
            if !unsafe { self.wait.leave_senders(core) } {
                // SAFETY: a peer has taken the value.
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
