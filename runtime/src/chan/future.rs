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
use std::ptr::NonNull;
use std::task::{Context, Poll, Waker, ready};

use super::core::{Core, Done, Guard, Readied};
use super::port::{RecvPort, SendPort};
use super::raw::{Dir, wake_all};
use super::value::{Owned, Slot};
use super::waiters::Waiter;
use crate::{Coop, G};

enum Stage<T> {
    Apart,
    /// The waiter has been put into a queue of this channel.
    Queued(NonNull<Core<T>>),
    Over,
}

impl<T> Clone for Stage<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Stage<T> {}

/// A waiter with its G, inside a future that waits for a channel of this type.
pub(super) struct TaskWaiter<T> {
    /// The stage: see the table at the head of this file. While the stage is `Queued`, `waiter` is initialised, and the
    /// channel is alive.
    stage: Cell<Stage<T>>,
    g: G,
    pub(super) coop: Coop,
    /// The waiter, which `queue` makes. The field is a cell because peers write to the waiter while it is queued.
    waiter: UnsafeCell<MaybeUninit<Waiter>>,
    /// Makes every type `!Unpin` that contains a waiter and has a destructor. Peers write to the waiter, and to the slot beside
    /// the waiter, until the destructor has left the queue; and a `&mut` of an `Unpin` type promises the compiler that nobody
    /// else does.
    _pinned: PhantomPinned,
}

/// How a waiter has left its queue.
pub(super) enum Left<'w, T> {
    /// The waiter was in no queue.
    Apart,
    /// The waiter has left the queue by itself, so no peer has used its slot.
    Unserved,
    /// A peer had taken the waiter, and has readied it.
    Readied(Readied<'w, 'w, T>),
}

impl<T> TaskWaiter<T> {
    pub(super) fn new() -> Self {
        let waiter = UnsafeCell::new(MaybeUninit::uninit());
        Self { stage: Cell::new(Stage::Apart), g: G::task(), coop: Coop::new(), waiter, _pinned: PhantomPinned }
    }

    /// Returns true if the future has to begin: this is the first poll. Then the future is over, unless `queue` is
    /// called. Returns false if the waiter has been queued.
    ///
    /// # Panics
    ///
    /// Panics if the future is over.
    pub(super) fn begin(&self) -> bool {
        match self.stage.get() {
            Stage::Apart => self.stage.set(Stage::Over),
            Stage::Queued(_) => return false,
            Stage::Over => panic!("a future was polled after it was ready"),
        }
        true
    }

    /// Resets a future that is over, so that the next poll begins again.
    #[cfg(feature = "stream")]
    fn again(&self) {
        if matches!(self.stage.get(), Stage::Over) {
            self.stage.set(Stage::Apart);
        }
    }

    /// Makes the waiter, puts it into a queue, and unlocks.
    ///
    /// # Safety
    ///
    /// - `begin` has just returned true.
    /// - This value, the slot and the channel stay alive, and the first two in place, until `poll_ready` has returned
    ///   `Some`, or `leave` has been called.
    /// - The slot is as [`Locked::enqueue`](super::raw::Locked::enqueue) says. It is used only as [`Readied`] or
    ///   [`Left`] permits, until one of them is dropped.
    pub(super) unsafe fn queue(&self, mut guard: Guard<'_, T>, dir: Dir, slot: *mut ()) {
        // SAFETY: nothing else uses the waiter, because the future was in no queue when `begin` was called.
        let waiter = unsafe { (*self.waiter.get()).write(Waiter::of_task(&raw const self.g, slot)) };
        // SAFETY: `waiter` is new, so no queue contains it. The waiter, its G and its slot stay alive and in place until
        // they are out of the queue, and the slot is as it must be, by the contract of this function. The G waits for
        // nothing else.
        unsafe { guard.enqueue(dir, waiter) };
        self.stage.set(Stage::Queued(guard.core().into()));
        guard.unlock();
    }

    /// Returns the channel and the waiter, if the waiter has been queued.
    fn queued(&self) -> Option<(&Core<T>, &Waiter)> {
        let Stage::Queued(core) = self.stage.get() else { return None };
        // SAFETY: the stage is `Queued`, so the channel is alive, by the contract of `queue`.
        let core = unsafe { core.as_ref() };
        // SAFETY: the stage is `Queued`, so `queue` has made the waiter, which is changed only through its cells.
        let waiter = unsafe { (*self.waiter.get()).assume_init_ref() };
        Some((core, waiter))
    }

    /// Returns the waiter, if it has been readied; then the future is over. If this returns `None`, the waker will be
    /// woken.
    ///
    /// # Panics
    ///
    /// Panics if the waiter is in no queue.
    pub(super) fn poll_ready(&self, what: &'static str, waker: &Waker) -> Option<Readied<'_, '_, T>> {
        let (core, waiter) = self.queued().expect("it has been queued");
        if !self.g.poll_ready(waker) {
            crate::note_task_wait_at(what, &core.raw);
            return None;
        }
        self.stage.set(Stage::Over);
        // SAFETY: the waiter was put into a queue of `core`, and has been readied. This is called once for each `queue`,
        // because the stage is `Over` now. Nothing else uses the slot, by the contract of `queue`.
        Some(unsafe { Readied::new(core, waiter) })
    }

    /// Takes the waiter out of its queue, or waits for the `ready` of the peer that has taken the waiter. Then the future
    /// is over.
    pub(super) fn leave(&self) -> Left<'_, T> {
        let Some((core, waiter)) = self.queued() else { return Left::Apart };
        // SAFETY: the waiter is alive, and was put into a queue of `core`.
        let left = unsafe { core.raw.entry(waiter) }.leave();
        if !left {
            self.g.await_ready();
        }
        self.stage.set(Stage::Over);
        if left {
            return Left::Unserved;
        }
        // SAFETY: the waiter was put into a queue of `core`, and has been readied. This is called once for each `queue`,
        // because the stage is `Over` now. Nothing else uses the slot, by the contract of `queue`.
        Left::Readied(unsafe { Readied::new(core, waiter) })
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
        Self { port, receiving: Receiving::new() }
    }
}

impl<P: RecvPort> Future for RecvFuture<'_, P> {
    type Output = P::Received;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<P::Received> {
        let this = self.as_ref().get_ref();
        let Some(core) = this.port.core() else { return Poll::Pending };
        // SAFETY: `receiving` is pinned with the future. The channel lives as long as `port`.
        unsafe { this.receiving.poll(core, cx) }.map(P::received)
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
    // This field stands before `port`, and so is dropped before the handle.
    receiving: Receiving<P::Item>,
    port: P,
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
        Self { port, receiving: Receiving::new() }
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
                self.0.wait.again();
            }
        }
        let _again = Again(&this.receiving);
        // SAFETY: `receiving` is pinned with the stream. The channel lives as long as `port`, which is dropped after
        // `receiving`.
        unsafe { this.receiving.poll(core, cx) }
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
    wait: TaskWaiter<T>,
    /// The room into which a peer moves the value, while the waiter is queued.
    slot: UnsafeCell<MaybeUninit<T>>,
}

impl<T> Receiving<T> {
    fn new() -> Self {
        Self { wait: TaskWaiter::new(), slot: UnsafeCell::new(MaybeUninit::uninit()) }
    }

    /// Receives a value, or puts the waiter into the queue of receivers.
    ///
    /// # Safety
    ///
    /// This value is pinned, and the channel lives as long as this value.
    unsafe fn poll(&self, core: &Core<T>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        ready!(self.wait.coop.poll_proceed(cx));
        if self.wait.begin() {
            if core.is_closed_and_drained() {
                return Poll::Ready(None);
            }
            let mut room = MaybeUninit::uninit();
            let mut guard = core.lock();
            if let Some((value, peer)) = guard.take(&mut room) {
                guard.unlock();
                // If the wake-up panics, the value is dropped.
                if let Some(peer) = peer {
                    peer.wake();
                }
                return Poll::Ready(Some(value.into_inner()));
            }
            if guard.state().is_closed() {
                guard.unlock();
                return Poll::Ready(None);
            }
            // SAFETY: this value is pinned, and its `drop` leaves the queue, so the waiter and the slot stay in place while
            // the waiter is queued. The channel lives as long, by the contract of this function. Only the waiter uses the
            // slot, which has room.
            unsafe { self.wait.queue(guard, Dir::Recv, self.slot.get().cast()) };
        }
        let Some(readied) = self.wait.poll_ready("chan receive", cx.waker()) else { return Poll::Pending };
        Poll::Ready(readied.receive().map(Owned::into_inner))
    }
}

impl<T> Drop for Receiving<T> {
    fn drop(&mut self) {
        match self.wait.leave() {
            Left::Apart => {}
            Left::Unserved => crate::shim::mark("a receiver that gives up leaves its queue"),
            Left::Readied(readied) => readied.give_back(),
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
    wait: TaskWaiter<P::Item>,
    slot: Slot<P::Item>,
}

// SAFETY: the reasons of `RecvFuture` hold for this future, too.
unsafe impl<P: SendPort + Sync> Send for SendFuture<'_, P> where P::Item: Send {}
// SAFETY: a shared reference to this future permits no operation.
unsafe impl<P: SendPort> Sync for SendFuture<'_, P> {}

impl<'a, P: SendPort> SendFuture<'a, P> {
    pub(super) fn new(port: &'a P, value: P::Item) -> Self {
        Self { port, wait: TaskWaiter::new(), slot: Slot::new(value) }
    }

    /// Finishes the send of a future that has been readied: if the future has been given a place, sends the value to
    /// that place. Returns the value if the channel is closed.
    fn settle(&self, readied: Readied<'_, '_, P::Item>) -> Result<(), P::Item> {
        let Err(place) = self.slot.end_send(readied) else { return Ok(()) };
        match place.and_then(|place| self.slot.fill_place(place)) {
            Some(peers) => {
                wake_all(peers);
                Ok(())
            }
            None => self.unsent(),
        }
    }

    /// Returns the value, because the channel is closed.
    fn unsent(&self) -> Result<(), P::Item> {
        Err(self.slot.take().expect("the value has not been sent"))
    }
}

impl<P: SendPort> Future for SendFuture<'_, P> {
    type Output = P::Sent;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<P::Sent> {
        let this = self.as_ref().get_ref();
        let Some(core) = this.port.core() else { return Poll::Pending };
        ready!(this.wait.coop.poll_proceed(cx));
        if this.wait.begin() {
            let mut guard = core.lock();
            match this.slot.offer(&mut guard) {
                Some(Done { closed, peer }) => {
                    guard.unlock();
                    if let Some(peer) = peer {
                        peer.wake();
                    }
                    return Poll::Ready(P::sent(if closed { this.unsent() } else { Ok(()) }));
                }
                None => {
                    let dir = if core.raw.capacity() == 0 { Dir::Send } else { Dir::Reserve };
                    // SAFETY: the future is pinned, and its `drop` leaves the queue, so the waiter and the slot stay in
                    // place while the waiter is queued. The channel lives as long as `port`. The slot has a value, and
                    // is lent to the waiter.
                    unsafe { this.wait.queue(guard, dir, this.slot.lend()) };
                }
            }
        }
        let Some(readied) = this.wait.poll_ready("chan send", cx.waker()) else { return Poll::Pending };
        Poll::Ready(P::sent(this.settle(readied)))
    }
}

impl<P: SendPort> Drop for SendFuture<'_, P> {
    fn drop(&mut self) {
        match self.wait.leave() {
            Left::Apart => {}
            Left::Unserved => {
                crate::shim::mark("a sender that gives up leaves its queue");
                // SAFETY: the waiter has left its queue by itself, so nothing refers to the slot, and no peer has taken the
                // value.
                unsafe { self.slot.end_loan(true) };
            }
            // A place is given up.
            Left::Readied(readied) => drop(self.slot.end_send(readied)),
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

#[cfg(all(test, not(sudog_loom)))]
mod tests {
    use std::marker::PhantomData;

    use super::*;

    struct Probe<T>(PhantomData<T>);

    impl<T: Unpin> Probe<T> {
        const IS_UNPIN: bool = true;
    }

    trait Otherwise {
        const IS_UNPIN: bool = false;
    }

    impl<T> Otherwise for Probe<T> {}

    #[test]
    fn no_destructor_has_exclusive_access_to_a_queued_waiter() {
        const { assert!(Probe::<u8>::IS_UNPIN) };
        const { assert!(!Probe::<Receiving<u8>>::IS_UNPIN) };
        const { assert!(!Probe::<SendFuture<'_, crate::chan::Chan<u8>>>::IS_UNPIN) };
        const { assert!(!Probe::<crate::chan::ReserveFuture<'_, crate::chan::Chan<u8>>>::IS_UNPIN) };
    }
}
