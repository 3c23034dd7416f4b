//! Select as a future: in an async task, and wherever a case is itself a future.
//!
//! | stage of a [`SelectFuture`] | its waiters | on poll | on drop |
//! |---|---|---|---|
//! | `Apart` | are in no queue | tries each case, futures too; locks all channels, polls the cases, queues: `Queued` | the values of sends are dropped |
//! | `Queued` | are in their queues, except those that a peer has taken | registers the waker. If readied: leaves the queues, `Over`. If not readied, and with futures: takes the claim, leaves the queues, `Apart`, and continues as in that stage | leaves the queues. If a receive has been given a value, gives back that value. If a send has been given a place, gives up that place |
//! | `Over` | are in no queue | panics | nothing |
//!
//! A case that is a future is polled only while no waiter of the select is queued. Otherwise the future could become
//! ready while a peer does another case, and the select could return only one of the two results. So if a select is
//! woken, but not by a peer, the select leaves the queues and polls its futures. If no case is ready then, the select
//! queues anew, and has lost its former places in the queues.
//!
//! No wake-up is lost: each future is polled after the waiters have left their queues and before they are queued again.
//! So a future that becomes ready later wakes the task. A peer that comes later finds a queued waiter, or has changed
//! the channel before the poll under the locks, which then sees that change.

use std::cell::{Cell, UnsafeCell};
use std::fmt;
use std::future::Future;
use std::marker::PhantomPinned;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use super::case::{CaseList, CaseRef};
use super::order::Order;
use super::{Chosen, Polled, Selecting, Waiters, try_each, try_one};
use crate::chan::raw::wake_all;
use crate::chan::waiters::{Claim, Waiter};
use crate::goroutine;
use crate::shim::mark;
use crate::{Coop, G};

/// The cases of a select that is a future, and the room that the select needs for each case.
pub trait Cases {
    /// The result of the chosen case.
    type Output;

    /// True if a case may be a future.
    const FUTURES: bool;

    /// Calls `f` with the cases, which are the same in each call as long as this value is not moved.
    fn with_refs<T>(&self, f: impl FnOnce(&[CaseRef<'_>]) -> T) -> T;

    /// Returns whether the case with this index is a future.
    fn is_future(&self, index: usize) -> bool;

    /// Returns the room for the two orders of the cases (`order.rs`) and for the waiters: an element for each case in
    /// each of the three.
    fn room(&self) -> Room;

    /// Polls the future with this index. Returns whether the future is ready.
    ///
    /// # Safety
    ///
    /// This value is pinned, and the caller is its owner.
    unsafe fn poll_future(&self, index: usize, cx: &mut Context<'_>) -> bool;

    /// Drops the futures in place, and takes the output of the chosen case.
    ///
    /// # Safety
    ///
    /// The caller is the owner of this value. Nothing points to a case. This is called once.
    unsafe fn finish(&self, chosen: Chosen) -> Self::Output;
}

/// The room for the orders and the waiters of a select: see [`Cases::room`].
pub struct Room {
    pub(super) polls: *mut [u16],
    pub(super) locks: *mut [u16],
    pub(super) waiters: *mut MaybeUninit<Waiter>,
}

/// `N` cases in a list.
pub struct StaticCases<const N: usize, L> {
    /// The list. `None` once the select is over.
    list: UnsafeCell<Option<L>>,
    polls: UnsafeCell<[u16; N]>,
    locks: UnsafeCell<[u16; N]>,
    waiters: UnsafeCell<[MaybeUninit<Waiter>; N]>,
}

impl<const N: usize, L: CaseList> StaticCases<N, L> {
    pub(super) fn new(list: L) -> Self {
        const { assert!(L::LEN == N && N <= super::MAX_CASES) };
        Self {
            list: UnsafeCell::new(Some(list)),
            polls: UnsafeCell::new([0; N]),
            locks: UnsafeCell::new([0; N]),
            waiters: UnsafeCell::new([const { MaybeUninit::uninit() }; N]),
        }
    }

    fn list(&self) -> &L {
        // SAFETY: the list is removed only when the select is over, by the owner of this value, which is the caller.
        unsafe { &*self.list.get() }.as_ref().expect("not over")
    }
}

impl<const N: usize, L: CaseList> Cases for StaticCases<N, L> {
    type Output = L::Output;

    const FUTURES: bool = L::FUTURES;

    fn with_refs<T>(&self, f: impl FnOnce(&[CaseRef<'_>]) -> T) -> T {
        let mut refs = [CaseRef::NONE; N];
        self.list().describe(&mut refs);
        f(&refs)
    }

    fn is_future(&self, index: usize) -> bool {
        L::is_future(index)
    }

    fn room(&self) -> Room {
        Room { polls: self.polls.get(), locks: self.locks.get(), waiters: self.waiters.get().cast() }
    }

    unsafe fn poll_future(&self, index: usize, cx: &mut Context<'_>) -> bool {
        // SAFETY: this value, and so the list in it, is pinned, and the caller is its owner, by the contract of this
        // function.
        unsafe { self.list().poll_future(index, cx) }
    }

    unsafe fn finish(&self, chosen: Chosen) -> L::Output {
        // SAFETY: the caller is the owner of this value, by the contract of this function.
        unsafe { self.list().drop_futures() };
        let output = self.list().output(chosen);
        // SAFETY: the caller is the owner of the list, and nothing points to a case, by the contract of this function.
        // The futures that were pinned in the list have been dropped.
        unsafe { *self.list.get() = None };
        output
    }
}

/// The future of a select, which does the first of several cases that can be done:
/// [`select_async!`](crate::select_async) awaits this future.
///
/// The future may be dropped at any time. A future that is dropped before it is ready has done no case, with one
/// exception: if a channel has no buffer, a receiver may have taken the value of a send. The promises of
/// [`RecvFuture`](crate::chan::RecvFuture) and [`SendFuture`](crate::chan::SendFuture) hold for its cases. A future
/// that has been polled must be polled again when its waker is woken, or be dropped.
#[must_use = "a future does nothing unless polled"]
pub struct SelectFuture<C: Cases> {
    cases: C,
    stage: Cell<Stage>,
    g: G,
    claim: Claim,
    coop: Coop,
    _pinned: PhantomPinned,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Apart,
    /// The waiters have been queued. The field is the number of cases that can be ready at all.
    Queued(usize),
    Over,
}

// SAFETY: the waiters and the claim are used under the channels' locks while the waiters are queued; by the peer that
// has taken the claim, until the peer readies the G; and otherwise by the owner of the future. The future's G is a
// task, which is not bound to a thread. The future's cases, which are `Send`, are sent with the future.
unsafe impl<const N: usize, L: CaseList + Send> Send for SelectFuture<StaticCases<N, L>> {}
// SAFETY: a shared reference to this future permits no operation.
unsafe impl<const N: usize, L: CaseList> Sync for SelectFuture<StaticCases<N, L>> {}

impl<const N: usize, L: CaseList> SelectFuture<StaticCases<N, L>> {
    #[doc(hidden)]
    pub fn new(list: L) -> Self {
        Self::of(StaticCases::new(list))
    }
}

impl<C: Cases> SelectFuture<C> {
    pub(super) fn of(cases: C) -> Self {
        let (stage, g, claim) = (Cell::new(Stage::Apart), G::task(), Claim::new());
        Self { cases, stage, g, claim, coop: Coop::new(), _pinned: PhantomPinned }
    }

    /// Calls `f` with the orders and the waiters of this select, which is queued.
    ///
    /// # Safety
    ///
    /// The stage is `Queued(n)`. The result is used only before the select is queued anew.
    unsafe fn with_queued<T>(&self, n: usize, f: impl FnOnce(Selecting<'_, '_>, Waiters) -> T) -> T {
        let Room { polls, locks, waiters } = self.cases.room();
        // SAFETY: the orders were written when the select was queued, and have not been written since, by the contract
        // of this function.
        let order = unsafe { Order::stored(n, &*polls, &*locks) };
        self.cases.with_refs(|cases| f(Selecting { cases, order }, Waiters(waiters)))
    }

    /// Ends the select: wakes the peer, and returns the result of the chosen case. None of the select's waiters is in a
    /// queue.
    #[track_caller]
    fn over(&self, polled: Polled) -> C::Output {
        debug_assert!(self.stage.get() != Stage::Over);
        // Set the stage before the peer is woken, which may panic: a case must be done only once.
        self.stage.set(Stage::Over);
        let chosen = polled.wake();
        // SAFETY: the caller is the owner of the cases. No case is queued, so nothing points to a case. The stage was
        // not `Over` before, so this is called once.
        unsafe { self.cases.finish(chosen) }
    }

    /// Finishes the case that a peer has chosen.
    ///
    /// # Safety
    ///
    /// The stage is `Queued(n)`, and the G has been readied.
    #[track_caller]
    unsafe fn finish(&self, n: usize) -> C::Output {
        // SAFETY: the stage is `Queued(n)`, and the G has been readied, by the contract of this function.
        let (chosen, peers) = unsafe {
            self.with_queued(n, |select, waiters| {
                select.leave_all(waiters);
                let Ok((case, waiter)) = select.taken_by(waiters, &self.claim) else { unreachable!("it has no limit") };
                let (closed, peers) = select.cases[case].settle_task(waiter);
                (Chosen { case, closed }, peers)
            })
        };
        // Set the stage before the peers are woken, which may panic: a case must be done only once.
        self.stage.set(Stage::Over);
        wake_all(peers);
        // SAFETY: the caller is the owner of the cases. No case is queued, so nothing points to a case. The stage was
        // not `Over` before, so this is called once.
        unsafe { self.cases.finish(chosen) }
    }

    /// Leaves the queues. If a peer has been faster, returns the result of the case that the peer has chosen.
    #[track_caller]
    pub(super) fn leave(&self) -> Option<C::Output> {
        let Stage::Queued(n) = self.stage.get() else { return None };
        if !self.claim.take(Claim::GIVEN_UP) {
            self.g.await_ready();
            // SAFETY: the stage is `Queued(n)`. A peer has taken the claim, and has readied the G.
            return Some(unsafe { self.finish(n) });
        }
        // SAFETY: the stage is `Queued(n)`, so `queue_all` has been called with these waiters.
        unsafe { self.with_queued(n, |select, waiters| select.leave_all(waiters)) };
        // No peer has a pointer to the claim any more: a peer finds the claim only through a queued waiter, under a
        // channel's lock.
        self.claim.reset();
        self.stage.set(Stage::Apart);
        None
    }

    /// Tries the cases in a shuffled order, channels and futures alike, and does the first case that can be done when
    /// its turn comes. The stage is `Apart`.
    ///
    /// # Safety
    ///
    /// This future is pinned, and the caller is its owner.
    unsafe fn try_all(&self, cx: &mut Context<'_>) -> Option<Polled> {
        self.cases.with_refs(|refs| {
            // SAFETY: nothing else uses the orders, because the stage is `Apart`.
            let polls = unsafe { &mut *self.cases.room().polls };
            if !C::FUTURES {
                return try_each(refs, Order::shuffle(refs, polls));
            }
            let wanted = |index: usize, case: &CaseRef<'_>| case.channel.is_some() || self.cases.is_future(index);
            Order::shuffle_those(refs, polls, wanted).iter().find_map(|&index| {
                let case = usize::from(index);
                if !self.cases.is_future(case) {
                    return try_one(refs, index);
                }
                // SAFETY: the cases are pinned with this future, and the caller is their owner, by the contract of this
                // function.
                let is_ready = unsafe { self.cases.poll_future(case, cx) };
                is_ready.then_some(Polled { chosen: Chosen { case, closed: false }, peer: None })
            })
        })
    }

    /// Does a case if a case is ready at this instant. First tries the cases one after another, and polls each future
    /// at most once. If no case is ready, tries the channels again, under all their locks together.
    #[cfg_attr(any(sudog_loom, not(unix)), allow(dead_code))]
    #[track_caller]
    pub(super) fn try_now(self: Pin<&mut Self>) -> Option<C::Output> {
        goroutine::safepoint();
        let this = self.as_ref().get_ref();
        // SAFETY: this future is pinned, and `self` belongs to its owner.
        let polled = goroutine::unconstrained(|| unsafe { this.try_all(&mut Context::from_waker(Waker::noop())) });
        let polled = polled.or_else(|| {
            this.cases.with_refs(|refs| {
                let Room { polls, locks, .. } = this.cases.room();
                // SAFETY: nothing else uses the orders, because the stage is `Apart`.
                let (polls, locks) = unsafe { (&mut *polls, &mut *locks) };
                let select = Selecting { cases: refs, order: Order::new(refs, Order::shuffle(refs, polls), locks) };
                select.lock_all();
                select.poll_and_unlock()
            })
        });
        polled.map(|polled| this.over(polled))
    }

    /// Polls the channels of all cases under all locks, and queues the waiters if no case is ready. The stage is
    /// `Apart`.
    ///
    /// # Safety
    ///
    /// This future is pinned, and the caller is its owner.
    unsafe fn poll_or_queue(&self) -> Option<Polled> {
        self.cases.with_refs(|refs| {
            let Room { polls, locks, waiters } = self.cases.room();
            // SAFETY: nothing else uses the orders, because the stage is `Apart`.
            let (polls, locks) = unsafe { (&mut *polls, &mut *locks) };
            let order = Order::new(refs, Order::shuffle(refs, polls), locks);
            let n = order.len();
            let select = Selecting { cases: refs, order };
            select.lock_all();
            if let Some(polled) = select.poll() {
                select.unlock_all();
                return Some(polled);
            }
            // SAFETY:
            // - This future is pinned, so its memory is not reused before `drop`. `drop` takes the waiters out of the
            //   queues. If a peer has taken the claim, `drop` waits until that peer has readied the G.
            // - `waiters` has room for each case.
            // - The stage is `Apart`, so no waiter is in a queue.
            unsafe { select.queue_all(Waiters(waiters), &raw const self.g, &raw const self.claim, true) };
            self.stage.set(Stage::Queued(n));
            select.unlock_all();
            None
        })
    }
}

impl<C: Cases> Future for SelectFuture<C> {
    type Output = C::Output;

    #[track_caller]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<C::Output> {
        let this = self.as_ref().get_ref();
        ready!(this.coop.poll_proceed(cx));
        if let Stage::Queued(n) = this.stage.get() {
            if this.g.poll_ready(cx.waker()) {
                // SAFETY: the stage is `Queued(n)`, and the G has been readied.
                return Poll::Ready(unsafe { this.finish(n) });
            }
            if !C::FUTURES {
                return Poll::Pending;
            }
            if let Some(output) = this.leave() {
                mark("a peer is faster than a future's wake-up");
                return Poll::Ready(output);
            }
            mark("a select queues anew");
        }
        assert!(this.stage.get() == Stage::Apart, "a future was polled after it was ready");
        // SAFETY: this future is pinned, and `self` belongs to its owner.
        if let Some(polled) = unsafe { this.try_all(cx) } {
            return Poll::Ready(this.over(polled));
        }
        // SAFETY: this future is pinned, and `self` belongs to its owner.
        if let Some(polled) = unsafe { this.poll_or_queue() } {
            return Poll::Ready(this.over(polled));
        }
        let Stage::Queued(n) = this.stage.get() else { unreachable!("it has just been queued") };
        if !this.g.poll_ready(cx.waker()) {
            return Poll::Pending;
        }
        // SAFETY: the stage is `Queued(n)`, and the G has been readied.
        Poll::Ready(unsafe { this.finish(n) })
    }
}

impl<C: Cases> Drop for SelectFuture<C> {
    fn drop(&mut self) {
        if let Stage::Queued(n) = self.stage.get() {
            // SAFETY: the stage is `Queued(n)`, so `queue_all` has been called with these waiters. The G has not
            // returned from the wait: no poll has seen a `ready`.
            unsafe { self.with_queued(n, |select, waiters| select.give_up(waiters, &self.g, &self.claim)) };
        }
    }
}

impl<C: Cases> fmt::Debug for SelectFuture<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("SelectFuture { .. }")
    }
}

/// Waits for the select on the calling goroutine or thread.
#[cfg(all(unix, not(sudog_loom)))]
#[track_caller]
pub(super) fn block_on<C: Cases>(
    cases: C,
    limit: &crate::sema::WaitLimit<'_>,
) -> Result<C::Output, crate::sema::WaitError> {
    let mut select = std::pin::pin!(SelectFuture::of(cases));
    let over = crate::goroutine::block_on_what("select", select.as_mut(), limit);
    // A peer may have done a case at the moment of the limit.
    over.or_else(|why| select.leave().ok_or(why))
}

#[cfg(all(unix, not(sudog_loom)))]
pub use until::SelectUntil;

#[cfg(all(unix, not(sudog_loom)))]
mod until {
    use super::{Cases, Context, Future, Pin, Poll, SelectFuture, fmt};
    use crate::Instant;
    use crate::goroutine::{SleepAsync, now, sleep_async};
    use crate::sema::WaitError;

    /// A [`SelectFuture`] that gives up at a deadline.
    #[must_use = "a future does nothing unless polled"]
    pub struct SelectUntil<C: Cases> {
        select: SelectFuture<C>,
        /// The sleep until the deadline. `None` if the clock cannot represent the deadline.
        sleep: Option<SleepAsync>,
    }

    impl<C: Cases> SelectFuture<C> {
        #[doc(hidden)]
        pub fn until(self, deadline: Option<Instant>) -> SelectUntil<C> {
            let left = |deadline: Instant| deadline.saturating_duration_since(now());
            SelectUntil { select: self, sleep: deadline.map(|deadline| sleep_async(left(deadline))) }
        }
    }

    impl<C: Cases> Future for SelectUntil<C> {
        type Output = Result<C::Output, WaitError>;

        fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
            // SAFETY: `select` and `sleep` are pinned together with `self`, and neither is moved.
            let (mut select, sleep) = unsafe {
                let this = self.get_unchecked_mut();
                (Pin::new_unchecked(&mut this.select), this.sleep.as_mut().map(|sleep| Pin::new_unchecked(sleep)))
            };
            if let Poll::Ready(output) = select.as_mut().poll(cx) {
                return Poll::Ready(Ok(output));
            }
            match sleep.map(|sleep| sleep.poll(cx)) {
                Some(Poll::Ready(_)) => Poll::Ready(select.leave().ok_or(WaitError::TimedOut)),
                _ => Poll::Pending,
            }
        }
    }

    impl<C: Cases> fmt::Debug for SelectUntil<C> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.pad("SelectUntil { .. }")
        }
    }
}
