//! The cases of a select: the operations that a case needs of a channel of any type, and the storage of the values.

use std::cell::{Cell, RefCell};
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::task::{Context, Poll};

use super::Chosen;
#[cfg(all(unix, not(sudog_loom)))]
use super::timed::TimerRef;
use crate::Instant;
use crate::chan::core::{Core, Done, Readied};
use crate::chan::port::{RecvPort, Sealed, SendPort};
use crate::chan::raw::{Dir, Locked, Peer, Raw};
use crate::chan::recv::NotReceived;
use crate::chan::send::NotSent;
use crate::chan::value::Slot;
use crate::chan::waiters::Waiter;

/// A send or a receive of a case, with its channel and its slot, but without the types of its handle and value.
///
/// In the contracts of this trait, *the waiter of the operation* is a waiter that was put into the queue, and has the
/// slot, that the last call of `lend` has returned. This happened since that call.
pub(in crate::chan) trait Operation {
    /// Does the operation, if that is possible now. `locked` is the lock of the operation's channel, which stays locked.
    fn poll<'l>(&'l self, locked: Locked<'l>) -> (Locked<'l>, Option<Done>);

    /// Lends the slot to a waiter. Returns the queue in which the operation waits, and the address of the slot.
    fn lend(&self, is_task: bool) -> (Dir, *mut ());

    /// Ends the loan of the slot, because the waiter has not taken its claim.
    ///
    /// # Safety
    ///
    /// The waiter of the operation is in no queue, and no peer has taken the waiter.
    unsafe fn end_loan(&self);

    /// Finishes the operation: takes the value that a peer has given, or sends to the place that a peer has given. If a
    /// close has woken a receive, tries to receive once more. Returns whether the channel was closed, and the peers that
    /// the caller must wake.
    ///
    /// If the select `gives_up`, undoes the step of the peer instead, as far as possible. If a receive has been given a
    /// value, that value goes to the next receiver. If a send has been given a place, that place goes to the next sender.
    ///
    /// # Safety
    ///
    /// This is the waiter of the operation. A peer has taken the waiter and has readied its G. This is called once.
    unsafe fn settle(&self, waiter: &Waiter, gives_up: bool) -> (bool, [Option<Peer>; 2]);
}

/// The receive of a case.
pub(in crate::chan) struct Receiving<P: RecvPort> {
    port: P,
    slot: Slot<P::Item>,
}

impl<P: RecvPort> Receiving<P> {
    #[inline]
    pub(in crate::chan) fn new(port: P) -> Self {
        Self { port, slot: Slot::empty() }
    }

    #[inline]
    fn core(&self) -> &Core<P::Item> {
        self.port.core().expect("a nil channel is never ready")
    }

    #[inline]
    pub(in crate::chan) fn describe(&self) -> CaseRef<'_> {
        let Some(core) = self.port.core() else { return CaseRef::NONE };
        CaseRef { dir: Dir::Recv, raw: Some(&core.raw), operation: Some(self) }
    }

    /// Receives a value, or waits until the deadline: see [`Slot::recv`]. The caller has made a safepoint.
    pub(in crate::chan) fn recv(&self, deadline: Option<Instant>) -> Result<(), NotReceived> {
        self.slot.recv(self.core(), deadline)
    }

    #[inline]
    pub(in crate::chan) fn output(&self) -> P::Received {
        P::received(self.slot.take())
    }
}

impl<P: RecvPort> Operation for Receiving<P> {
    fn poll<'l>(&'l self, locked: Locked<'l>) -> (Locked<'l>, Option<Done>) {
        let mut guard = self.core().guard(locked);
        let done = self.slot.receive(&mut guard);
        (guard.into_locked(), done)
    }

    fn lend(&self, _is_task: bool) -> (Dir, *mut ()) {
        (Dir::Recv, self.slot.lend())
    }

    unsafe fn end_loan(&self) {
        // SAFETY: the waiter is in no queue, and no peer has taken the waiter, so nothing refers to the slot.
        unsafe { self.slot.end_loan(false) };
    }

    unsafe fn settle(&self, waiter: &Waiter, gives_up: bool) -> (bool, [Option<Peer>; 2]) {
        // SAFETY: the waiter was put into a queue of this channel, and has been readied. Nothing else uses its slot, which
        // is lent. This is called once, by the contract of this function.
        let readied = unsafe { Readied::new(self.core(), waiter) };
        if gives_up {
            readied.give_back();
            return (false, [None, None]);
        }
        let closed = !self.slot.end_receive(readied);
        (closed, [None, None])
    }
}

/// A handle that is a reference to the channel itself.
pub(in crate::chan) struct CoreRef<'a, T>(pub(in crate::chan) &'a Core<T>);

impl<T> Sealed for CoreRef<'_, T> {}

impl<T> RecvPort for CoreRef<'_, T> {
    type Item = T;
    type Received = Option<T>;

    fn core(&self) -> Option<&Core<T>> {
        Some(self.0)
    }

    fn received(value: Option<T>) -> Option<T> {
        value
    }
}

impl<T> SendPort for CoreRef<'_, T> {
    type Item = T;
    type Sent = Result<(), T>;

    fn core(&self) -> Option<&Core<T>> {
        Some(self.0)
    }

    fn sent(result: Result<(), T>) -> Result<(), T> {
        result
    }
}

/// The send of a case.
pub(in crate::chan) struct Sending<P: SendPort> {
    port: P,
    slot: Slot<P::Item>,
}

impl<P: SendPort> Sending<P> {
    /// Makes the send of a case. Without a value, the case is never ready.
    #[inline]
    pub(in crate::chan) fn new(port: P, value: Option<P::Item>) -> Self {
        Self { port, slot: value.map_or_else(Slot::empty, Slot::new) }
    }

    /// Makes the send of a case that gets its value by [`put`](Self::put). A large value is not moved as often then.
    pub(in crate::chan) fn empty(port: P) -> Self {
        Self { port, slot: Slot::empty() }
    }

    /// Stores the value to send.
    pub(in crate::chan) fn put(&self, value: P::Item) {
        self.slot.put(value);
    }

    #[inline]
    fn core(&self) -> &Core<P::Item> {
        self.port.core().expect("a nil channel is never ready")
    }

    #[inline]
    pub(in crate::chan) fn describe(&self) -> CaseRef<'_> {
        match self.port.core() {
            Some(core) if !self.slot.is_empty() => {
                CaseRef { dir: Dir::Send, raw: Some(&core.raw), operation: Some(self) }
            }
            _ => CaseRef::NONE,
        }
    }

    /// Sends the value, or waits until the deadline: see [`Slot::send`]. The caller has made a safepoint.
    pub(in crate::chan) fn send(&self, deadline: Option<Instant>) -> Result<(), NotSent> {
        self.slot.send(self.core(), deadline)
    }

    /// Returns the value, if the value has not been sent.
    #[inline]
    pub(in crate::chan) fn unsent(&self) -> Option<P::Item> {
        self.slot.take()
    }

    #[inline]
    #[track_caller]
    pub(super) fn output(&self) -> P::Sent {
        P::sent(self.unsent().map_or(Ok(()), Err))
    }
}

impl<P: SendPort> Operation for Sending<P> {
    fn poll<'l>(&'l self, locked: Locked<'l>) -> (Locked<'l>, Option<Done>) {
        let mut guard = self.core().guard(locked);
        let done = self.slot.offer(&mut guard);
        (guard.into_locked(), done)
    }

    fn lend(&self, is_task: bool) -> (Dir, *mut ()) {
        // A task that sends to a buffer waits for a place, and keeps its value meanwhile.
        let dir = if is_task && self.core().raw.capacity() > 0 { Dir::Reserve } else { Dir::Send };
        (dir, self.slot.lend())
    }

    unsafe fn end_loan(&self) {
        // SAFETY: the waiter is in no queue, and no peer has taken the waiter, so nothing refers to the slot, which still
        // has its value.
        unsafe { self.slot.end_loan(true) };
    }

    unsafe fn settle(&self, waiter: &Waiter, gives_up: bool) -> (bool, [Option<Peer>; 2]) {
        // SAFETY: the waiter was put into a queue of this channel, and has been readied. Nothing else uses its slot, which
        // is lent. This is called once, by the contract of this function.
        let readied = unsafe { Readied::new(self.core(), waiter) };
        let Err(place) = self.slot.end_send(readied) else { return (false, [None, None]) };
        // A place that is not filled is given up.
        match place.filter(|_| !gives_up).and_then(|place| self.slot.fill_place(place)) {
            Some(peers) => (false, peers),
            None => (true, [None, None]),
        }
    }
}

/// A case without the types of its handle and value: the view of a case that the algorithm of a select uses.
#[derive(Clone, Copy)]
pub struct CaseRef<'a> {
    pub(super) dir: Dir,
    /// The channel. `None` if the case is never ready as an operation on a channel.
    pub(super) raw: Option<&'a Raw>,
    /// The operation. `None` if the case has no channel.
    operation: Option<&'a dyn Operation>,
}

impl<'a> CaseRef<'a> {
    /// Returns the operation and its channel.
    ///
    /// # Panics
    ///
    /// Panics if the case has no channel.
    #[inline]
    pub(super) fn operation(&self) -> (&'a dyn Operation, &'a Raw) {
        self.operation.zip(self.raw).expect("only what can be ready is polled")
    }
}

/// A case that receives.
pub struct RecvCase<'a, P: RecvPort + ?Sized>(Receiving<&'a P>);

impl<'a, P: RecvPort + ?Sized> RecvCase<'a, P> {
    /// Makes the case. `select!` puts this call into its list of cases.
    #[inline]
    pub fn new(port: &'a P) -> Self {
        Self(Receiving { port, slot: Slot::empty() })
    }
}

/// A case that sends.
pub struct SendCase<'a, P: SendPort + ?Sized>(Sending<&'a P>);

impl<'a, P: SendPort + ?Sized> SendCase<'a, P> {
    /// Makes the case. `select!` puts this call into its list of cases.
    #[inline]
    pub fn new(port: &'a P, value: P::Item) -> Self {
        Self(Sending::new(port, Some(value)))
    }
}

/// A case that sends a value of an `Option`. The value is taken if this case is chosen, and stays in the `Option`
/// otherwise.
pub struct SendFromCase<'a, 'v, P: SendPort + ?Sized> {
    sending: Sending<&'a P>,
    from: &'v mut Option<P::Item>,
}

impl<'a, 'v, P: SendPort + ?Sized> SendFromCase<'a, 'v, P> {
    /// Makes the case. `select!` puts this call into its list of cases.
    #[inline]
    pub fn new(port: &'a P, from: &'v mut Option<P::Item>) -> Self {
        Self { sending: Sending::new(port, from.take()), from }
    }
}

impl<P: SendPort + ?Sized> Drop for SendFromCase<'_, '_, P> {
    fn drop(&mut self) {
        if let Some(value) = self.sending.unsent() {
            *self.from = Some(value);
        }
    }
}

/// A case that is a future. The future is polled and dropped in place.
pub struct FutureCase<F: Future> {
    /// The future. `None` once the future has been dropped.
    future: RefCell<Option<F>>,
    output: Cell<Option<F::Output>>,
}

impl<F: Future> FutureCase<F> {
    /// Makes the case. `select!` puts this call into its list of cases.
    #[inline]
    pub fn new(future: impl IntoFuture<IntoFuture = F>) -> Self {
        Self { future: RefCell::new(Some(future.into_future())), output: Cell::new(None) }
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
    /// The case is pinned.
    unsafe fn poll_future(&self, _cx: &mut Context<'_>) -> bool {
        false
    }

    /// Drops the future in place.
    fn drop_future(&self) {}

    /// Returns the result of the case, which has been chosen. The caller calls this once.
    #[track_caller]
    fn output(&self, closed: bool) -> Self::Output;
}

impl<P: RecvPort + ?Sized> Case for RecvCase<'_, P> {
    type Output = P::Received;

    #[inline]
    fn describe(&self) -> CaseRef<'_> {
        self.0.describe()
    }

    #[inline]
    fn output(&self, _closed: bool) -> P::Received {
        self.0.output()
    }
}

impl<P: SendPort + ?Sized> Case for SendCase<'_, P> {
    type Output = P::Sent;

    #[inline]
    fn describe(&self) -> CaseRef<'_> {
        self.0.describe()
    }

    #[inline]
    #[track_caller]
    fn output(&self, closed: bool) -> P::Sent {
        debug_assert_eq!(self.0.slot.is_full(), closed);
        self.0.output()
    }
}

impl<P: SendPort + ?Sized> Case for SendFromCase<'_, '_, P> {
    type Output = P::Sent;

    #[inline]
    fn describe(&self) -> CaseRef<'_> {
        self.sending.describe()
    }

    #[inline]
    #[track_caller]
    fn output(&self, closed: bool) -> P::Sent {
        debug_assert_eq!(self.sending.slot.is_full(), closed);
        self.sending.output()
    }
}

impl<F: Future> Case for FutureCase<F> {
    type Output = F::Output;

    const IS_FUTURE: bool = true;

    fn describe(&self) -> CaseRef<'_> {
        CaseRef::NONE
    }

    unsafe fn poll_future(&self, cx: &mut Context<'_>) -> bool {
        let mut future = self.future.borrow_mut();
        let Some(future) = future.as_mut() else { return false };
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

    fn drop_future(&self) {
        // The assignment drops the future in place.
        *self.future.borrow_mut() = None;
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
    fn drop_futures(&self);

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

    fn drop_futures(&self) {}

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

    fn drop_futures(&self) {
        self.0.drop_future();
        self.1.drop_futures();
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
    pub(in crate::chan) const NONE: Self = Self { dir: Dir::Recv, raw: None, operation: None };
}
