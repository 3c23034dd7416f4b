//! Cases of a select: what they need of a channel, whatever its values are, and where the values are meanwhile.

use std::cell::{Cell, UnsafeCell};
use std::future::{Future, IntoFuture};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::ptr;
use std::task::{Context, Poll};

use super::Chosen;
#[cfg(all(unix, not(sudog_loom)))]
use super::timed::TimerRef;
use crate::chan::core::{Core, Offer, Take};
use crate::chan::port::{RecvPort, SendPort};
use crate::chan::raw::{Dir, Locked, Peer, Raw};
use crate::chan::waiters::{Outcome, Waiter};

/// A channel, without the type of its values.
pub(in crate::chan) trait Channel {
    fn raw(&self) -> &Raw;

    /// # Safety
    ///
    /// As for [`Core::offer`].
    unsafe fn offer(&self, locked: &mut Locked<'_>, from: *const ()) -> Offer;

    /// # Safety
    ///
    /// As for [`Core::take`].
    unsafe fn take(&self, locked: &mut Locked<'_>, to: *mut ()) -> Take;

    /// # Safety
    ///
    /// The contract of [`Core::receive_held`].
    unsafe fn receive_held(&self, locked: &mut Locked<'_>, waiter: &Waiter, to: *mut ()) -> Take;

    /// # Safety
    ///
    /// As for [`Core::give_back`].
    unsafe fn give_back(&self, waiter: &Waiter);

    /// # Safety
    ///
    /// The contract of [`Core::send_reserved`].
    unsafe fn send_reserved(&self, locked: &mut Locked<'_>, from: *const ()) -> (Offer, Option<Peer>);

    fn give_up_place(&self);
}

impl<T> Channel for Core<T> {
    #[inline]
    fn raw(&self) -> &Raw {
        &self.raw
    }

    unsafe fn offer(&self, locked: &mut Locked<'_>, from: *const ()) -> Offer {
        // SAFETY: by the contract.
        unsafe { self.offer(locked, from.cast()) }
    }

    unsafe fn take(&self, locked: &mut Locked<'_>, to: *mut ()) -> Take {
        // SAFETY: by the contract.
        unsafe { self.take(locked, to.cast()) }
    }

    unsafe fn receive_held(&self, locked: &mut Locked<'_>, waiter: &Waiter, to: *mut ()) -> Take {
        // SAFETY: by the contract.
        unsafe { self.receive_held(locked, waiter, to.cast()) }
    }

    unsafe fn give_back(&self, waiter: &Waiter) {
        // SAFETY: by the contract.
        unsafe { self.give_back(waiter) }
    }

    unsafe fn send_reserved(&self, locked: &mut Locked<'_>, from: *const ()) -> (Offer, Option<Peer>) {
        // SAFETY: by the contract.
        unsafe { self.send_reserved(locked, from.cast()) }
    }

    fn give_up_place(&self) {
        self.give_up_place();
    }
}

/// One case, as the algorithm sees it.
#[derive(Clone, Copy)]
pub struct CaseRef<'a> {
    pub(super) dir: Dir,
    /// `None`: never ready.
    pub(super) channel: Option<&'a dyn Channel>,
    /// Of a value of the channel's type.
    pub(super) slot: *mut (),
    /// Whether there is a value in the slot.
    pub(super) full: *const Cell<bool>,
}

impl CaseRef<'_> {
    /// Sends or receives, if that can be done: whether the channel is closed, else the peer to be woken.
    ///
    /// # Safety
    ///
    /// - The lock is that of the case's channel, which it has.
    /// - The slot is alive, and has a value if it is to be sent, else room. If this returns `(false, _)`, the value has been
    ///   moved, and the caller calls [`CaseRef::moved`].
    #[inline]
    pub(super) unsafe fn poll(&self, locked: &mut Locked<'_>) -> Option<(bool, Option<Peer>)> {
        let channel = self.channel.expect("only what can be ready is polled");
        match self.dir {
            // SAFETY: the lock is this channel's; the slot has a value, by the contract.
            Dir::Send | Dir::Reserve => match unsafe { channel.offer(locked, self.slot) } {
                Offer::Sent(peer) => Some((false, peer)),
                Offer::Closed => Some((true, None)),
                Offer::Full => None,
            },
            // SAFETY: the lock is this channel's; the slot has room, by the contract.
            Dir::Recv => match unsafe { channel.take(locked, self.slot) } {
                Take::Got(peer) => Some((false, peer)),
                Take::Closed => Some((true, None)),
                Take::Empty => None,
            },
        }
    }

    /// Returns the queue in which the case waits. The send of a task to a buffer waits for a place, and keeps its value meanwhile.
    pub(super) fn queue(&self, is_task: bool) -> Dir {
        let buffered = || self.channel.is_some_and(|channel| channel.raw().capacity() > 0);
        if is_task && self.dir == Dir::Send && buffered() { Dir::Reserve } else { self.dir }
    }

    /// Finishes the case of a thread or a goroutine. Returns whether a close has ended the case. A receive that a close has
    /// woken looks once more.
    ///
    /// # Safety
    ///
    /// The waiter is that of this case. It has been taken by a peer and readied, and is in no queue.
    pub(super) unsafe fn settle(&self, waiter: &Waiter) -> bool {
        let closed = match (waiter.outcome.get(), self.dir) {
            (Outcome::Done, _) => false,
            (Outcome::Closed, Dir::Recv) => return self.look_once_more(),
            (Outcome::Closed, _) => true,
            _ => unreachable!("chosen by no peer"),
        };
        if !closed {
            // SAFETY: its peer has moved the value.
            unsafe { self.moved() };
        }
        closed
    }

    /// Takes, for a receive that a close has woken, a value that a task held then. Returns whether there was none.
    #[cold]
    fn look_once_more(&self) -> bool {
        let mut locked = self.channel.expect("it was queued").raw().lock();
        // SAFETY: the lock is that of the case's channel; the slot has room, as no peer has put a value there.
        let polled = unsafe { self.poll(&mut locked) };
        locked.unlock();
        let Some((closed, _)) = polled else { unreachable!("a channel stays closed") };
        if !closed {
            // SAFETY: a value has been moved there, just now.
            unsafe { self.moved() };
        }
        closed
    }

    /// Finishes the case of a task: takes the value that the task holds, or sends to its place. Returns whether the channel
    /// was closed, and the peers to wake.
    ///
    /// # Safety
    ///
    /// As there.
    pub(super) unsafe fn settle_task(&self, waiter: &Waiter) -> (bool, [Option<Peer>; 2]) {
        let channel = self.channel.expect("it was queued");
        let mut locked = channel.raw().lock();
        let (closed, peers) = match waiter.dir() {
            // SAFETY: the lock is that of the case's channel; the waiter has been in its queue with this slot, and has been
            // readied.
            Dir::Recv => match unsafe { channel.receive_held(&mut locked, waiter, self.slot) } {
                Take::Got(peer) => (false, [peer, None]),
                Take::Closed => (true, [None, None]),
                Take::Empty => unreachable!("a channel stays closed"),
            },
            Dir::Reserve if waiter.outcome.get() == Outcome::Done => {
                // SAFETY: the lock is that of the case's channel; the slot has a value; the peer has given it a place.
                let (offer, next) = unsafe { channel.send_reserved(&mut locked, self.slot) };
                match offer {
                    Offer::Sent(peer) => (false, [peer, next]),
                    Offer::Closed => (true, [None, None]),
                    Offer::Full => unreachable!("it had a place"),
                }
            }
            Dir::Send | Dir::Reserve => (waiter.outcome.get() == Outcome::Closed, [None, None]),
        };
        locked.unlock();
        if !closed {
            // SAFETY: by a peer, or just now.
            unsafe { self.moved() };
        }
        (closed, peers)
    }

    /// Undoes what a peer has done for a case whose select will return nothing, as far as that can be undone.
    ///
    /// # Safety
    ///
    /// The contract of [`CaseRef::settle`]. The waiter is not used after this.
    pub(super) unsafe fn undo(&self, waiter: &Waiter) {
        let channel = self.channel.expect("it was queued");
        let done = || waiter.outcome.get() == Outcome::Done;
        match waiter.dir() {
            // SAFETY: the waiter was in its channel's queue of receivers, and has been readied.
            Dir::Recv => unsafe { channel.give_back(waiter) },
            Dir::Reserve if done() => channel.give_up_place(),
            // SAFETY: a peer has taken the value.
            Dir::Send if done() => unsafe { self.moved() },
            Dir::Send | Dir::Reserve => {}
        }
    }

    /// The value has been taken out of the slot, or been put there.
    ///
    /// # Safety
    ///
    /// The case's slot is alive, and it is so.
    pub(super) unsafe fn moved(&self) {
        // SAFETY: alive, by the contract.
        unsafe { &*self.full }.set(self.dir == Dir::Recv);
    }
}

/// Where a case's value is, before it is sent, or after it was received.
pub(in crate::chan) struct Slot<T> {
    value: UnsafeCell<MaybeUninit<T>>,
    full: Cell<bool>,
}

impl<T> Slot<T> {
    pub(in crate::chan) fn empty() -> Self {
        Self { value: UnsafeCell::new(MaybeUninit::uninit()), full: Cell::new(false) }
    }

    pub(in crate::chan) fn new(value: T) -> Self {
        let slot = Self::empty();
        // SAFETY: room for one. (`MaybeUninit::new` moves the value three times more, without optimisation.)
        unsafe { slot.value().write(value) };
        slot.full.set(true);
        slot
    }

    /// Where the value is.
    pub fn value(&self) -> *mut T {
        self.value.get().cast()
    }

    /// # Safety
    ///
    /// The value has been moved out.
    pub unsafe fn is_gone(&self) {
        self.full.set(false);
    }

    /// Takes the value out, if there is one.
    pub fn take(&self) -> Option<T> {
        if !self.full.replace(false) {
            return None;
        }
        // SAFETY: there is a value, and it is taken once.
        Some(unsafe { self.value().read() })
    }

    /// The case of this slot in a select.
    pub fn case<'a>(&self, dir: Dir, core: Option<&'a Core<T>>) -> CaseRef<'a> {
        let channel = core.map(|core| core as &dyn Channel);
        CaseRef { dir, channel, slot: self.value.get().cast(), full: ptr::from_ref(&self.full) }
    }
}

impl<T> Drop for Slot<T> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

/// A receive.
pub struct RecvCase<'a, P: RecvPort + ?Sized> {
    port: &'a P,
    slot: Slot<P::Item>,
}

impl<'a, P: RecvPort + ?Sized> RecvCase<'a, P> {
    /// Evaluated in its place in the list.
    #[inline]
    pub fn new(port: &'a P) -> Self {
        Self { port, slot: Slot::empty() }
    }
}

/// A send.
pub struct SendCase<'a, P: SendPort + ?Sized> {
    port: &'a P,
    slot: Slot<P::Item>,
}

impl<'a, P: SendPort + ?Sized> SendCase<'a, P> {
    /// Evaluated in its place in the list.
    #[inline]
    pub fn new(port: &'a P, value: P::Item) -> Self {
        Self { port, slot: Slot::new(value) }
    }
}

/// A send of a value that is taken if this case is chosen, and else stays where it is.
pub struct SendFromCase<'a, 'v, P: SendPort + ?Sized> {
    port: &'a P,
    slot: Slot<P::Item>,
    from: &'v mut Option<P::Item>,
}

impl<'a, 'v, P: SendPort + ?Sized> SendFromCase<'a, 'v, P> {
    /// Evaluated in its place in the list.
    #[inline]
    pub fn new(port: &'a P, from: &'v mut Option<P::Item>) -> Self {
        let slot = from.take().map_or_else(Slot::empty, Slot::new);
        Self { port, slot, from }
    }
}

impl<P: SendPort + ?Sized> Drop for SendFromCase<'_, '_, P> {
    fn drop(&mut self) {
        if let Some(value) = self.slot.take() {
            *self.from = Some(value);
        }
    }
}

/// A future. Polled in its place, and dropped there.
pub struct FutureCase<F: Future> {
    /// Until it is dropped.
    future: UnsafeCell<Option<F>>,
    output: Cell<Option<F::Output>>,
}

impl<F: Future> FutureCase<F> {
    /// Evaluated in its place in the list.
    #[inline]
    pub fn new(future: impl IntoFuture<IntoFuture = F>) -> Self {
        Self { future: UnsafeCell::new(Some(future.into_future())), output: Cell::new(None) }
    }
}

/// A case.
pub trait Case {
    type Output;

    /// Returns whether the case is a future, in a task.
    const IS_FUTURE: bool = false;

    /// Returns whether the case is a future that needs a waker in a goroutine, too: not a timer.
    const HAS_WAKER: bool = Self::IS_FUTURE;

    /// Itself, for as long as it is not moved.
    fn describe(&self) -> CaseRef<'_>;

    /// The timer, if it is one, for as long as the case is not moved.
    #[cfg(all(unix, not(sudog_loom)))]
    fn timer(&self) -> Option<TimerRef<'_>> {
        None
    }

    /// Polls it, if it is a future: whether it is ready.
    ///
    /// # Safety
    ///
    /// It is pinned, and the caller is its owner.
    unsafe fn poll_future(&self, _cx: &mut Context<'_>) -> bool {
        false
    }

    /// Drops the future where it is.
    ///
    /// # Safety
    ///
    /// The caller is its owner.
    unsafe fn drop_future(&self) {}

    /// Returns the result, once the case has been chosen. To be called once.
    #[track_caller]
    fn output(&self, closed: bool) -> Self::Output;
}

impl<P: RecvPort + ?Sized> Case for RecvCase<'_, P> {
    type Output = P::Received;

    #[inline]
    fn describe(&self) -> CaseRef<'_> {
        self.slot.case(Dir::Recv, self.port.core())
    }

    #[inline]
    fn output(&self, _closed: bool) -> P::Received {
        P::received(self.slot.take())
    }
}

impl<P: SendPort + ?Sized> Case for SendCase<'_, P> {
    type Output = P::Sent;

    #[inline]
    fn describe(&self) -> CaseRef<'_> {
        self.slot.case(Dir::Send, self.port.core())
    }

    #[inline]
    #[track_caller]
    fn output(&self, closed: bool) -> P::Sent {
        let left = self.slot.take();
        debug_assert_eq!(left.is_some(), closed);
        P::sent(left.map_or(Ok(()), Err))
    }
}

impl<P: SendPort + ?Sized> Case for SendFromCase<'_, '_, P> {
    type Output = P::Sent;

    #[inline]
    fn describe(&self) -> CaseRef<'_> {
        // Without a value it is never ready.
        let core = self.port.core().filter(|_| self.slot.full.get());
        self.slot.case(Dir::Send, core)
    }

    #[inline]
    #[track_caller]
    fn output(&self, closed: bool) -> P::Sent {
        let left = self.slot.take();
        debug_assert_eq!(left.is_some(), closed);
        P::sent(left.map_or(Ok(()), Err))
    }
}

impl<F: Future> Case for FutureCase<F> {
    type Output = F::Output;

    const IS_FUTURE: bool = true;

    fn describe(&self) -> CaseRef<'_> {
        CaseRef::NONE
    }

    unsafe fn poll_future(&self, cx: &mut Context<'_>) -> bool {
        // SAFETY: its owner calls, and nothing else refers to it.
        let Some(future) = (unsafe { &mut *self.future.get() }) else { return false };
        // SAFETY: pinned, by the contract: it is moved nowhere before `drop_future`.
        match unsafe { Pin::new_unchecked(future) }.poll(cx) {
            Poll::Ready(output) => {
                self.output.set(Some(output));
                true
            }
            Poll::Pending => false,
        }
    }

    unsafe fn drop_future(&self) {
        // SAFETY: its owner calls, and nothing else refers to it. The assignment drops it in its place.
        unsafe { *self.future.get() = None };
    }

    fn output(&self, _closed: bool) -> F::Output {
        self.output.take().expect("it was ready when it was chosen")
    }
}

/// All cases of a select: pairs of a case and a list, and at the end `()`.
pub trait CaseList {
    /// How many.
    const LEN: usize;

    /// Returns whether a case is a future, in a task.
    const FUTURES: bool;

    /// Returns whether a case is a future that needs a waker in a goroutine, too: not a timer.
    const WAKERS: bool;

    /// What the chosen one has come to.
    type Output;

    /// Themselves, for as long as they are not moved.
    fn describe<'a>(&'a self, into: &mut [CaseRef<'a>]);

    /// Those that are timers, by index.
    #[cfg(all(unix, not(sudog_loom)))]
    fn timers<'a>(&'a self, into: &mut [Option<TimerRef<'a>>]);

    /// Whether the case with this index is a future.
    fn is_future(index: usize) -> bool;

    /// [`Case::poll_future`] of the case with this index.
    ///
    /// # Safety
    ///
    /// As there.
    unsafe fn poll_future(&self, index: usize, cx: &mut Context<'_>) -> bool;

    /// [`Case::drop_future`] of all.
    ///
    /// # Safety
    ///
    /// As there.
    unsafe fn drop_futures(&self);

    /// Returns the result of the chosen case. To be called once. By reference, as a list may be large.
    #[track_caller]
    fn output(&self, chosen: Chosen) -> Self::Output;
}

/// The chosen case is the first of a list, or in its rest.
pub enum Either<A, B> {
    /// The first.
    First(A),
    /// One of the rest.
    Rest(B),
}

/// What an empty list comes to.
#[derive(Debug)]
pub struct Never(std::convert::Infallible);

impl Never {
    pub fn never(self) -> ! {
        match self.0 {}
    }
}

impl CaseList for () {
    const LEN: usize = 0;
    const FUTURES: bool = false;
    const WAKERS: bool = false;

    type Output = Never;

    fn describe<'a>(&'a self, _into: &mut [CaseRef<'a>]) {}

    #[cfg(all(unix, not(sudog_loom)))]
    fn timers<'a>(&'a self, _into: &mut [Option<TimerRef<'a>>]) {}

    fn is_future(_index: usize) -> bool {
        false
    }

    unsafe fn poll_future(&self, _index: usize, _cx: &mut Context<'_>) -> bool {
        false
    }

    unsafe fn drop_futures(&self) {}

    fn output(&self, _chosen: Chosen) -> Never {
        unreachable!("one of the cases was chosen")
    }
}

impl<C: Case, L: CaseList> CaseList for (C, L) {
    const LEN: usize = 1 + L::LEN;
    const FUTURES: bool = C::IS_FUTURE || L::FUTURES;
    const WAKERS: bool = C::HAS_WAKER || L::WAKERS;

    type Output = Either<C::Output, L::Output>;

    #[inline]
    fn describe<'a>(&'a self, into: &mut [CaseRef<'a>]) {
        into[0] = self.0.describe();
        self.1.describe(&mut into[1..]);
    }

    #[cfg(all(unix, not(sudog_loom)))]
    fn timers<'a>(&'a self, into: &mut [Option<TimerRef<'a>>]) {
        into[0] = self.0.timer();
        self.1.timers(&mut into[1..]);
    }

    fn is_future(index: usize) -> bool {
        if index == 0 { C::IS_FUTURE } else { L::is_future(index - 1) }
    }

    unsafe fn poll_future(&self, index: usize, cx: &mut Context<'_>) -> bool {
        // SAFETY: by the contract; a list's parts are pinned with it.
        unsafe { if index == 0 { self.0.poll_future(cx) } else { self.1.poll_future(index - 1, cx) } }
    }

    unsafe fn drop_futures(&self) {
        // SAFETY: by the contract.
        unsafe {
            self.0.drop_future();
            self.1.drop_futures();
        }
    }

    #[inline]
    #[track_caller]
    fn output(&self, chosen: Chosen) -> Self::Output {
        match chosen.case {
            0 => Either::First(self.0.output(chosen.closed)),
            case => Either::Rest(self.1.output(Chosen { case: case - 1, ..chosen })),
        }
    }
}

impl CaseRef<'_> {
    /// Fills an array before `describe` does.
    pub(in crate::chan) const NONE: Self =
        Self { dir: Dir::Recv, channel: None, slot: ptr::null_mut(), full: ptr::null() };
}
