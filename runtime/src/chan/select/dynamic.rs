//! A select whose cases are not known until the program runs. Go's `reflect.Select`.

use std::cell::RefCell;
use std::future::Future;
use std::pin::pin;
use std::task::Context;

use super::case::{Case, CaseRef, FutureCase, Receiving, Sending};
use super::future::{Cases, SelectFuture};
use super::{Chosen, MAX_CASES, WaiterRoom, try_select, wait_select};
use crate::chan::port::{RecvPort, SendPort};
use crate::goroutine;
use crate::sema::{IntoLimit, WaitLimit};

/// A select with any number of cases. Each case is a send, a receive or a future, together with a function that gets
/// the result of the case.
///
/// A `Select` allocates for each case. For a fixed number of cases, use [`select!`](crate::select).
///
/// # Examples
///
/// ```
/// use sudog::chan::{Chan, Select};
///
/// let channels: Vec<Chan<u32>> = (0..100).map(|_| Chan::new(1)).collect();
/// channels[42].send(7);
/// let mut select = Select::new();
/// for (i, ch) in channels.iter().enumerate() {
///     select.recv(ch, move |value| (i, value));
/// }
/// assert_eq!(select.wait(), (42, Some(7)));
/// ```
#[must_use = "a select does nothing until it waits"]
pub struct Select<'a, R> {
    cases: Vec<Box<dyn DynCase<R> + 'a>>,
    /// True if a case is a future.
    futures: bool,
}

trait DynCase<R> {
    fn describe(&self) -> CaseRef<'_>;

    fn is_future(&self) -> bool {
        false
    }

    /// See [`Case::poll_future`], whose contract holds here.
    unsafe fn poll_future(&self, _cx: &mut Context<'_>) -> bool {
        false
    }

    /// See [`Case::drop_future`].
    fn drop_future(&self) {}

    #[track_caller]
    fn finish(self: Box<Self>) -> R;
}

struct DynRecv<P: RecvPort, F> {
    receiving: Receiving<P>,
    then: F,
}

struct DynSend<P: SendPort, F> {
    sending: Sending<P>,
    then: F,
}

#[cfg_attr(any(sudog_loom, not(unix)), allow(dead_code))]
struct DynFuture<F: Future, T> {
    future: FutureCase<F>,
    then: T,
}

impl<R, F: Future, T: FnOnce(F::Output) -> R> DynCase<R> for DynFuture<F, T> {
    fn describe(&self) -> CaseRef<'_> {
        self.future.describe()
    }

    fn is_future(&self) -> bool {
        true
    }

    unsafe fn poll_future(&self, cx: &mut Context<'_>) -> bool {
        // SAFETY: the contract of this function is that of [`Case::poll_future`].
        unsafe { self.future.poll_future(cx) }
    }

    fn drop_future(&self) {
        self.future.drop_future();
    }

    fn finish(self: Box<Self>) -> R {
        let this = *self;
        (this.then)(this.future.output(false))
    }
}

impl<R, P: RecvPort, F: FnOnce(P::Received) -> R> DynCase<R> for DynRecv<P, F> {
    fn describe(&self) -> CaseRef<'_> {
        self.receiving.describe()
    }

    fn finish(self: Box<Self>) -> R {
        let this = *self;
        (this.then)(this.receiving.output())
    }
}

impl<R, P: SendPort, F: FnOnce(P::Sent) -> R> DynCase<R> for DynSend<P, F> {
    fn describe(&self) -> CaseRef<'_> {
        self.sending.describe()
    }

    #[track_caller]
    fn finish(self: Box<Self>) -> R {
        let this = *self;
        (this.then)(this.sending.output())
    }
}

impl<'a, R> Select<'a, R> {
    /// Makes a select without cases.
    pub const fn new() -> Self {
        Self { cases: Vec::new(), futures: false }
    }

    /// Adds a case that receives from `port`. If the case is chosen, `then` gets the result.
    ///
    /// # Panics
    ///
    /// Panics with `reflect.Select: too many cases (max 65536)` if the select has 65536 cases already.
    #[track_caller]
    pub fn recv<P>(&mut self, port: P, then: impl FnOnce(P::Received) -> R + 'a) -> &mut Self
    where
        P: RecvPort + 'a,
        P::Item: 'a,
    {
        self.add(Box::new(DynRecv { receiving: Receiving::new(port), then }))
    }

    /// Adds a case that sends `value` to `port`. If the case is chosen, `then` gets the result; otherwise the value is
    /// dropped.
    ///
    /// # Panics
    ///
    /// Panics with `reflect.Select: too many cases (max 65536)` if the select has 65536 cases already.
    #[track_caller]
    pub fn send<P>(&mut self, port: P, value: P::Item, then: impl FnOnce(P::Sent) -> R + 'a) -> &mut Self
    where
        P: SendPort + 'a,
        P::Item: 'a,
    {
        self.add(Box::new(DynSend { sending: Sending::new(port, Some(value)), then }))
    }

    /// Adds a case that waits for `future`. If the case is chosen, `then` gets the future's output. See `future(..)` of
    /// [`select!`](crate::select).
    ///
    /// # Panics
    ///
    /// Panics with `reflect.Select: too many cases (max 65536)` if the select has 65536 cases already.
    #[cfg(all(unix, not(sudog_loom)))]
    #[track_caller]
    pub fn future<F>(&mut self, future: F, then: impl FnOnce(F::Output) -> R + 'a) -> &mut Self
    where
        F: std::future::IntoFuture<IntoFuture: 'a, Output: 'a>,
    {
        self.futures = true;
        self.add(Box::new(DynFuture { future: FutureCase::new(future), then }))
    }

    #[track_caller]
    fn add(&mut self, case: Box<dyn DynCase<R> + 'a>) -> &mut Self {
        assert!(self.cases.len() < MAX_CASES, "reflect.Select: too many cases (max 65536)");
        self.cases.push(case);
        self
    }

    /// Returns the number of cases.
    #[must_use]
    pub fn len(&self) -> usize {
        self.cases.len()
    }

    /// Returns whether there are no cases.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.cases.is_empty()
    }

    /// Waits until a case can be done, and does that case. Without any case, waits for ever. The call removes all cases
    /// from the select.
    ///
    /// # Panics
    ///
    /// Panics if the chosen case is a send on a closed [`Chan`](crate::chan::Chan), or if the function of the chosen
    /// case panics.
    #[track_caller]
    pub fn wait(&mut self) -> R {
        match self.wait_limited(&WaitLimit::default()) {
            Ok(result) => result,
            Err(_) => unreachable!("no limit was set"),
        }
    }

    /// Waits as [`wait`](Self::wait) does, but gives up at a limit: see [`IntoLimit`]. The call removes all cases from
    /// the select.
    ///
    /// # Errors
    ///
    /// The limit's error, if the limit has ended the wait. No case has been done.
    ///
    /// # Panics
    ///
    /// The same as those of `wait`.
    #[track_caller]
    pub fn wait_limited<L: IntoLimit>(&mut self, limit: L) -> Result<R, L::Error> {
        let cases = std::mem::take(&mut self.cases);
        #[cfg(all(unix, not(sudog_loom)))]
        if std::mem::take(&mut self.futures) {
            return super::future::block_on(DynCases::new(cases), limit);
        }
        let chosen = limit.limited(|limit| {
            with_room(&cases, |refs, waiters, polls, locks| wait_select(refs, waiters, polls, locks, limit))
        })?;
        Ok(finish(cases, chosen))
    }

    /// Does a case that is ready. Returns `None` if no case is ready at this instant. The call removes all cases from
    /// the select.
    ///
    /// # Panics
    ///
    /// The same as those of `wait`.
    #[track_caller]
    pub fn try_now(&mut self) -> Option<R> {
        let cases = std::mem::take(&mut self.cases);
        if std::mem::take(&mut self.futures) {
            return pin!(SelectFuture::of(DynCases::new(cases))).try_now();
        }
        goroutine::safepoint();
        let chosen = with_room(&cases, |refs, _, polls, locks| try_select(refs, polls, locks))?;
        Some(finish(cases, chosen))
    }
}

/// The cases of a select with futures, and the room that the select needs for each case.
struct DynCases<'a, R> {
    cases: RefCell<Vec<Box<dyn DynCase<R> + 'a>>>,
    orders: RefCell<[Box<[u16]>; 2]>,
    waiters: Box<[WaiterRoom]>,
}

impl<'a, R> DynCases<'a, R> {
    fn new(cases: Vec<Box<dyn DynCase<R> + 'a>>) -> Self {
        let n = cases.len();
        let order = || vec![0; n].into_boxed_slice();
        let waiters = std::iter::repeat_with(WaiterRoom::new).take(n).collect();
        Self { cases: RefCell::new(cases), orders: RefCell::new([order(), order()]), waiters }
    }
}

impl<R> Cases for DynCases<'_, R> {
    type Output = R;

    const FUTURES: bool = true;

    fn with_refs<T>(&self, f: impl FnOnce(&[CaseRef<'_>]) -> T) -> T {
        let cases = self.cases.borrow();
        let refs: Vec<_> = cases.iter().map(|case| case.describe()).collect();
        f(&refs)
    }

    fn is_future(&self, index: usize) -> bool {
        self.cases.borrow()[index].is_future()
    }

    fn with_orders<T>(&self, f: impl FnOnce(&mut [u16], &mut [u16]) -> T) -> T {
        let [polls, locks] = &mut *self.orders.borrow_mut();
        f(polls, locks)
    }

    fn waiters(&self) -> &[WaiterRoom] {
        &self.waiters
    }

    unsafe fn poll_future(&self, index: usize, cx: &mut Context<'_>) -> bool {
        // SAFETY: the case is in a box, so it stays in place until it is finished or dropped.
        unsafe { self.cases.borrow()[index].poll_future(cx) }
    }

    #[track_caller]
    unsafe fn finish(&self, chosen: Chosen) -> R {
        self.cases.borrow().iter().for_each(|case| case.drop_future());
        finish(self.cases.take(), chosen)
    }
}

/// Calls `select` with the room that a select needs for each case. The room is on the stack, if there are few cases.
#[track_caller]
fn with_room<R, T>(
    cases: &[Box<dyn DynCase<R> + '_>],
    select: impl FnOnce(&[CaseRef<'_>], &[WaiterRoom], &mut [u16], &mut [u16]) -> T,
) -> T {
    const FEW: usize = 8;
    let n = cases.len();
    if n > FEW {
        let refs: Vec<_> = cases.iter().map(|case| case.describe()).collect();
        let waiters: Vec<_> = std::iter::repeat_with(WaiterRoom::new).take(n).collect();
        return select(&refs, &waiters, &mut vec![0; n], &mut vec![0; n]);
    }
    let mut refs = [CaseRef::NONE; FEW];
    for (case, room) in cases.iter().zip(&mut refs) {
        *room = case.describe();
    }
    let waiters = [const { WaiterRoom::new() }; FEW];
    select(&refs[..n], &waiters[..n], &mut [0; FEW][..n], &mut [0; FEW][..n])
}

#[track_caller]
fn finish<R>(mut cases: Vec<Box<dyn DynCase<R> + '_>>, chosen: Chosen) -> R {
    let case = cases.swap_remove(chosen.case);
    drop(cases);
    case.finish()
}

impl<R> Default for Select<'_, R> {
    fn default() -> Self {
        Self::new()
    }
}

impl<R> std::fmt::Debug for Select<'_, R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Select").field("cases", &self.cases.len()).finish_non_exhaustive()
    }
}
