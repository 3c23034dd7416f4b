//! The cases of a select: the operations that a case needs of a channel of any type, and the storage of the values.

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
    /// The contract of [`Core::offer`].
    unsafe fn offer(&self, locked: &mut Locked<'_>, from: *const ()) -> Offer;

    /// # Safety
    ///
    /// The contract of [`Core::take`].
    unsafe fn take(&self, locked: &mut Locked<'_>, to: *mut ()) -> Take;

    /// # Safety
    ///
    /// The contract of [`Core::receive_held`].
    unsafe fn receive_held(&self, locked: &mut Locked<'_>, waiter: &Waiter, to: *mut ()) -> Take;

    /// # Safety
    ///
    /// The contract of [`Core::give_back`].
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
        // SAFETY: the contract of this function is that of [`Core::offer`].
        unsafe { self.offer(locked, from.cast()) }
    }

    unsafe fn take(&self, locked: &mut Locked<'_>, to: *mut ()) -> Take {
        // SAFETY: the contract of this function is that of [`Core::take`].
        unsafe { self.take(locked, to.cast()) }
    }

    unsafe fn receive_held(&self, locked: &mut Locked<'_>, waiter: &Waiter, to: *mut ()) -> Take {
        // SAFETY: the contract of this function is that of [`Core::receive_held`].
        unsafe { self.receive_held(locked, waiter, to.cast()) }
    }

    unsafe fn give_back(&self, waiter: &Waiter) {
        // SAFETY: the contract of this function is that of [`Core::give_back`].
        unsafe { self.give_back(waiter) }
    }

    unsafe fn send_reserved(&self, locked: &mut Locked<'_>, from: *const ()) -> (Offer, Option<Peer>) {
        // SAFETY: the contract of this function is that of [`Core::send_reserved`].
        unsafe { self.send_reserved(locked, from.cast()) }
    }

    fn give_up_place(&self) {
        self.give_up_place();
    }
}

/// A case without the types of its handle and value: the view of a case that the algorithm of a select uses.
#[derive(Clone, Copy)]
pub struct CaseRef<'a> {
    pub(super) dir: Dir,
    /// The channel of the case. A case without a channel is never ready.
    pub(super) channel: Option<&'a dyn Channel>,
    /// The address of a slot for a value of the channel's type.
    pub(super) slot: *mut (),
    /// The address of the slot's flag: true if the slot has a value.
    pub(super) full: *const Cell<bool>,
}

impl CaseRef<'_> {
    /// Does the send or the receive of the case, if that is possible now; returns `None` if not. The returned flag is
    /// true if the case was done because the channel is closed. The caller must wake the returned peer.
    ///
    /// # Safety
    ///
    /// - `locked` is the lock of the case's channel, and the case has a channel.
    /// - The slot is alive. For a send the slot has a value; for a receive the slot has room. If this returns
    ///   `(false, _)`, the value has been moved, and the caller calls [`CaseRef::moved`].
    #[inline]
    pub(super) unsafe fn poll(&self, locked: &mut Locked<'_>) -> Option<(bool, Option<Peer>)> {
        let channel = self.channel.expect("only what can be ready is polled");
        match self.dir {
            // SAFETY: `locked` is the lock of this channel, and the slot has a value, by the contract of this function.
            Dir::Send | Dir::Reserve => match unsafe { channel.offer(locked, self.slot) } {
                Offer::Sent(peer) => Some((false, peer)),
                Offer::Closed => Some((true, None)),
                Offer::Full => None,
            },
            // SAFETY: `locked` is the lock of this channel, and the slot has room, by the contract of this function.
            Dir::Recv => match unsafe { channel.take(locked, self.slot) } {
                Take::Got(peer) => Some((false, peer)),
                Take::Closed => Some((true, None)),
                Take::Empty => None,
            },
        }
    }

    /// Returns the queue in which the case waits. A task that sends to a buffer waits for a place, and keeps its value
    /// meanwhile.
    pub(super) fn queue(&self, is_task: bool) -> Dir {
        let buffered = || self.channel.is_some_and(|channel| channel.raw().capacity() > 0);
        if is_task && self.dir == Dir::Send && buffered() { Dir::Reserve } else { self.dir }
    }

    /// Finishes the case of a thread or a goroutine. Returns whether a close has ended the case. If a close has woken a
    /// receive, this call tries to receive once more.
    ///
    /// # Safety
    ///
    /// The waiter belongs to this case. A peer has taken the waiter and has readied its G, and the waiter is in no
    /// queue.
    pub(super) unsafe fn settle(&self, waiter: &Waiter) -> bool {
        let closed = match (waiter.outcome.get(), self.dir) {
            (Outcome::Done, _) => false,
            (Outcome::Closed, Dir::Recv) => return self.look_once_more(),
            (Outcome::Closed, _) => true,
            _ => unreachable!("chosen by no peer"),
        };
        if !closed {
            // SAFETY: the slot is alive, and the peer has moved the value.
            unsafe { self.moved() };
        }
        closed
    }

    /// Tries once more to receive, after a close has ended the wait: a task may have held a value at the time of the
    /// close. Returns true if there was no value.
    #[cold]
    fn look_once_more(&self) -> bool {
        let mut locked = self.channel.expect("it was queued").raw().lock();
        // SAFETY: `locked` is the lock of the case's channel. The slot has room, because no peer has put a value there.
        let polled = unsafe { self.poll(&mut locked) };
        locked.unlock();
        let Some((closed, _)) = polled else { unreachable!("a channel stays closed") };
        if !closed {
            // SAFETY: the slot is alive, and `poll` has moved a value there just now.
            unsafe { self.moved() };
        }
        closed
    }

    /// Finishes the case of a task: takes the value that the task holds, or sends to the place that the task was given.
    /// Returns whether the channel was closed, and the peers that the caller must wake.
    ///
    /// # Safety
    ///
    /// The contract of [`CaseRef::settle`].
    pub(super) unsafe fn settle_task(&self, waiter: &Waiter) -> (bool, [Option<Peer>; 2]) {
        let channel = self.channel.expect("it was queued");
        let mut locked = channel.raw().lock();
        let (closed, peers) = match waiter.dir() {
            // SAFETY: `locked` is the lock of the case's channel. The waiter has been in the channel's queue with this
            // slot, and has been readied.
            Dir::Recv => match unsafe { channel.receive_held(&mut locked, waiter, self.slot) } {
                Take::Got(peer) => (false, [peer, None]),
                Take::Closed => (true, [None, None]),
                Take::Empty => unreachable!("a channel stays closed"),
            },
            Dir::Reserve if waiter.outcome.get() == Outcome::Done => {
                // SAFETY: `locked` is the lock of the case's channel. The slot has a value, and the peer has given this
                // case a place.
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
            // SAFETY: the slot is alive. A peer, or the call above, has moved the value.
            unsafe { self.moved() };
        }
        (closed, peers)
    }

    /// Undoes the step that a peer has done for this case, as far as possible, because the select gives up and returns
    /// nothing.
    ///
    /// # Safety
    ///
    /// The contract of [`CaseRef::settle`]. The waiter is not used after this.
    pub(super) unsafe fn undo(&self, waiter: &Waiter) {
        let channel = self.channel.expect("it was queued");
        let done = || waiter.outcome.get() == Outcome::Done;
        match waiter.dir() {
            // SAFETY: the waiter was in its channel's queue of receivers, has been readied, and is not used after this.
            Dir::Recv => unsafe { channel.give_back(waiter) },
            Dir::Reserve if done() => channel.give_up_place(),
            // SAFETY: the slot is alive, and a peer has taken the value.
            Dir::Send if done() => unsafe { self.moved() },
            Dir::Send | Dir::Reserve => {}
        }
    }

    /// Notes that the value has been taken out of the slot, or put into the slot.
    ///
    /// # Safety
    ///
    /// - The case's slot is alive.
    /// - For a send, the value has been taken out of the slot. For a receive, a value has been put into the slot.
    pub(super) unsafe fn moved(&self) {
        // SAFETY: `full` is part of the slot, which is alive, by the contract of this function.
        unsafe { &*self.full }.set(self.dir == Dir::Recv);
    }
}

/// The storage of a case's value, before the value is sent, or after a value was received.
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
        // SAFETY: the slot has room for a value. (`MaybeUninit::new` would move the value three times more, without
        // optimisation.)
        unsafe { slot.value().write(value) };
        slot.full.set(true);
        slot
    }

    /// Returns the address of the value, or of the room for a value.
    pub fn value(&self) -> *mut T {
        self.value.get().cast()
    }

    /// Notes that the value has been moved out.
    ///
    /// # Safety
    ///
    /// The value has been moved out.
    pub unsafe fn is_gone(&self) {
        self.full.set(false);
    }

    /// Takes the value out of the slot, if the slot has a value.
    pub fn take(&self) -> Option<T> {
        if !self.full.replace(false) {
            return None;
        }
        // SAFETY: the slot has a value, because `full` was true. `full` is false now, so the value is taken once.
        Some(unsafe { self.value().read() })
    }

    /// Returns a case of a select that uses this slot.
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

/// A case that receives.
pub struct RecvCase<'a, P: RecvPort + ?Sized> {
    port: &'a P,
    slot: Slot<P::Item>,
}

impl<'a, P: RecvPort + ?Sized> RecvCase<'a, P> {
    /// Makes the case. `select!` puts this call into its list of cases.
    #[inline]
    pub fn new(port: &'a P) -> Self {
        Self { port, slot: Slot::empty() }
    }
}

/// A case that sends.
pub struct SendCase<'a, P: SendPort + ?Sized> {
    port: &'a P,
    slot: Slot<P::Item>,
}

impl<'a, P: SendPort + ?Sized> SendCase<'a, P> {
    /// Makes the case. `select!` puts this call into its list of cases.
    #[inline]
    pub fn new(port: &'a P, value: P::Item) -> Self {
        Self { port, slot: Slot::new(value) }
    }
}

/// A case that sends a value of an `Option`. The value is taken if this case is chosen, and stays in the `Option`
/// otherwise.
pub struct SendFromCase<'a, 'v, P: SendPort + ?Sized> {
    port: &'a P,
    slot: Slot<P::Item>,
    from: &'v mut Option<P::Item>,
}

impl<'a, 'v, P: SendPort + ?Sized> SendFromCase<'a, 'v, P> {
    /// Makes the case. `select!` puts this call into its list of cases.
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

/// A case that is a future. The future is polled and dropped in place.
pub struct FutureCase<F: Future> {
    /// The future. `None` once the future has been dropped.
    future: UnsafeCell<Option<F>>,
    output: Cell<Option<F::Output>>,
}

impl<F: Future> FutureCase<F> {
    /// Makes the case. `select!` puts this call into its list of cases.
    #[inline]
    pub fn new(future: impl IntoFuture<IntoFuture = F>) -> Self {
        Self { future: UnsafeCell::new(Some(future.into_future())), output: Cell::new(None) }
    }
}

/// A case of a select.
pub trait Case {
    type Output;

    /// True if the case is a future when the select runs in a task.
    const IS_FUTURE: bool = false;

    /// True if the case is a future that needs a waker even when the select runs in a goroutine. False for a timer.
    const HAS_WAKER: bool = Self::IS_FUTURE;

    /// Returns the case for the algorithm of the select. The result is valid as long as the case is not moved.
    fn describe(&self) -> CaseRef<'_>;

    /// Returns the timer, if the case is a timer. The result is valid as long as the case is not moved.
    #[cfg(all(unix, not(sudog_loom)))]
    fn timer(&self) -> Option<TimerRef<'_>> {
        None
    }

    /// Polls the case, if the case is a future. Returns whether the future is ready.
    ///
    /// # Safety
    ///
    /// The case is pinned, and the caller is its owner.
    unsafe fn poll_future(&self, _cx: &mut Context<'_>) -> bool {
        false
    }

    /// Drops the future in place.
    ///
    /// # Safety
    ///
    /// The caller is the owner of the case.
    unsafe fn drop_future(&self) {}

    /// Returns the result of the case, which has been chosen. The caller calls this once.
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
        // A case without a value is never ready.
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
        // SAFETY: the caller is the owner of the case, by the contract of this function, so nothing else refers to the
        // future.
        let Some(future) = (unsafe { &mut *self.future.get() }) else { return false };
        // SAFETY: the case is pinned, by the contract of this function, and the future is not moved before
        // `drop_future`.
        match unsafe { Pin::new_unchecked(future) }.poll(cx) {
            Poll::Ready(output) => {
                self.output.set(Some(output));
                true
            }
            Poll::Pending => false,
        }
    }

    unsafe fn drop_future(&self) {
        // SAFETY: the caller is the owner of the case, by the contract of this function, so nothing else refers to the
        // future. The assignment drops the future in place.
        unsafe { *self.future.get() = None };
    }

    fn output(&self, _closed: bool) -> F::Output {
        self.output.take().expect("it was ready when it was chosen")
    }
}

/// A list of all cases of a select: a pair of the first case and the list of the other cases, or `()` if there is no
/// case.
pub trait CaseList {
    /// The number of cases.
    const LEN: usize;

    /// True if a case is a future when the select runs in a task.
    const FUTURES: bool;

    /// True if a case is a future that needs a waker even when the select runs in a goroutine. A timer does not.
    const WAKERS: bool;

    /// The result of the chosen case.
    type Output;

    /// Writes the cases into `into`. The written cases are valid as long as the list is not moved.
    fn describe<'a>(&'a self, into: &mut [CaseRef<'a>]);

    /// Writes the timer of each case, or `None`, into `into`, at the index of the case.
    #[cfg(all(unix, not(sudog_loom)))]
    fn timers<'a>(&'a self, into: &mut [Option<TimerRef<'a>>]);

    /// Returns whether the case with this index is a future.
    fn is_future(index: usize) -> bool;

    /// Calls [`Case::poll_future`] of the case with this index.
    ///
    /// # Safety
    ///
    /// The contract of [`Case::poll_future`].
    unsafe fn poll_future(&self, index: usize, cx: &mut Context<'_>) -> bool;

    /// Calls [`Case::drop_future`] of all cases.
    ///
    /// # Safety
    ///
    /// The contract of [`Case::drop_future`].
    unsafe fn drop_futures(&self);

    /// Returns the result of the chosen case. The caller calls this once. The list is passed by reference, because a
    /// list may be large.
    #[track_caller]
    fn output(&self, chosen: Chosen) -> Self::Output;
}

/// The result of the chosen case of a list: of the first case, or of a case in the rest of the list.
pub enum Either<A, B> {
    /// The result of the first case.
    First(A),
    /// The result of a case in the rest.
    Rest(B),
}

/// The result type of an empty list of cases. This type has no values, because an empty list has no case to choose.
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
        // SAFETY: the contract of this function is that of the called functions; the parts of a pinned list are pinned.
        unsafe { if index == 0 { self.0.poll_future(cx) } else { self.1.poll_future(index - 1, cx) } }
    }

    unsafe fn drop_futures(&self) {
        // SAFETY: the contract of this function is that of the called functions.
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
    /// A placeholder: the elements of an array have this value until `describe` fills the array.
    pub(in crate::chan) const NONE: Self =
        Self { dir: Dir::Recv, channel: None, slot: ptr::null_mut(), full: ptr::null() };
}
