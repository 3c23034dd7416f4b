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

use std::cell::{Cell, Ref, RefCell};
use std::fmt;
use std::future::Future;
use std::marker::PhantomPinned;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use super::case::{CaseList, CaseRef};
use super::order::Order;
use super::{Chosen, Left, Polled, Queued, Selecting, Taken, WaiterRoom, try_each, try_one};
use crate::chan::raw::{Peer, wake_all};
use crate::chan::waiters::Claim;
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

    /// Calls `f` with the room for the two orders of the cases (`order.rs`): an element for each case in each order.
    fn with_orders<T>(&self, f: impl FnOnce(&mut [u16], &mut [u16]) -> T) -> T;

    /// Returns the room for the waiters: an element for each case.
    fn waiters(&self) -> &[WaiterRoom];

    /// Polls the future with this index. Returns whether the future is ready.
    ///
    /// # Safety
    ///
    /// This value is pinned.
    unsafe fn poll_future(&self, index: usize, cx: &mut Context<'_>) -> bool;

    /// Drops the futures in place, and takes the output of the chosen case. This is called once.
    ///
    /// # Safety
    ///
    /// No waiter of a case is in a queue, or taken and not readied.
    unsafe fn finish(&self, chosen: Chosen) -> Self::Output;
}

/// `N` cases in a list.
pub struct StaticCases<const N: usize, L> {
    /// The list. `None` once the select is over.
    list: RefCell<Option<L>>,
    orders: RefCell<[[u16; N]; 2]>,
    waiters: [WaiterRoom; N],
}

impl<const N: usize, L: CaseList> StaticCases<N, L> {
    pub(super) fn new(list: L) -> Self {
        const { assert!(L::LEN == N && N <= super::MAX_CASES) };
        Self {
            list: RefCell::new(Some(list)),
            orders: RefCell::new([[0; N]; 2]),
            waiters: [const { WaiterRoom::new() }; N],
        }
    }

    fn list(&self) -> Ref<'_, L> {
        Ref::map(self.list.borrow(), |list| list.as_ref().expect("not over"))
    }
}

impl<const N: usize, L: CaseList> Cases for StaticCases<N, L> {
    type Output = L::Output;

    const FUTURES: bool = L::FUTURES;

    fn with_refs<T>(&self, f: impl FnOnce(&[CaseRef<'_>]) -> T) -> T {
        let list = self.list();
        let mut refs = [CaseRef::NONE; N];
        list.describe(&mut refs);
        f(&refs)
    }

    fn is_future(&self, index: usize) -> bool {
        L::is_future(index)
    }

    fn with_orders<T>(&self, f: impl FnOnce(&mut [u16], &mut [u16]) -> T) -> T {
        let [polls, locks] = &mut *self.orders.borrow_mut();
        f(polls, locks)
    }

    fn waiters(&self) -> &[WaiterRoom] {
        &self.waiters
    }

    unsafe fn poll_future(&self, index: usize, cx: &mut Context<'_>) -> bool {
        // SAFETY: this value, and so the list in it, is pinned, by the contract of this function.
        unsafe { self.list().poll_future(index, cx) }
    }

    unsafe fn finish(&self, chosen: Chosen) -> L::Output {
        self.list().drop_futures();
        let output = self.list().output(chosen);
        // Drop the list in place.
        *self.list.borrow_mut() = None;
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

/// A case that has been done, and the peers that must be woken.
type Settled = (Chosen, [Option<Peer>; 2]);

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

    /// Takes the waiters out of their queues by `leave`, and then calls `f` with the case that has taken the claim. The
    /// stage is `Apart` then. Returns `None` if the stage was not `Queued`.
    fn leave_by<T>(
        &self,
        leave: impl for<'q> FnOnce(Queued<'q, '_, '_>) -> Left<'q>,
        f: impl FnOnce(Option<Taken<'_>>) -> T,
    ) -> Option<T> {
        let Stage::Queued(n) = self.stage.get() else { return None };
        self.cases.with_refs(|cases| {
            self.cases.with_orders(|polls, locks| {
                let select = Selecting { cases, order: Order::stored(n, polls, locks) };
                // SAFETY: the stage is `Queued`, so these waiters have been queued for these cases, in this order, with
                // this G and this claim.
                let queued = unsafe { Queued::again(&select, self.cases.waiters(), &self.g, &self.claim) };
                let Left(taken) = leave(queued);
                self.stage.set(Stage::Apart);
                Some(f(taken))
            })
        })
    }

    /// Ends the select: wakes the peers, and returns the result of the chosen case.
    ///
    /// # Panics
    ///
    /// Panics if the waiters are queued, or the select is over.
    #[track_caller]
    fn over(&self, chosen: Chosen, peers: [Option<Peer>; 2]) -> C::Output {
        assert!(self.stage.get() == Stage::Apart, "a select ends once, when its waiters have left the queues");
        // Set the stage before the peers are woken, which may panic: a case must be done only once.
        self.stage.set(Stage::Over);
        wake_all(peers);
        // SAFETY: the stage was `Apart`, so no waiter is in a queue, or taken and not readied.
        unsafe { self.cases.finish(chosen) }
    }

    /// Leaves the queues. If a peer has been faster, returns the result of the case that the peer has chosen.
    #[cfg(all(unix, not(sudog_loom)))]
    #[track_caller]
    pub(super) fn leave(&self) -> Option<C::Output> {
        let (chosen, peers) = self.leave_or_settle()?;
        Some(self.over(chosen, peers))
    }

    /// Leaves the queues. If a peer has been faster, finishes the case that the peer has chosen.
    fn leave_or_settle(&self) -> Option<Settled> {
        self.leave_by(|queued| queued.give_up(), |taken| taken.map(Taken::settle))?
    }

    /// Finishes the case that a peer has chosen, if the G has been readied. If this returns `None`, the waker will be
    /// woken. The stage is `Queued`.
    fn poll_ready(&self, waker: &Waker) -> Option<Settled> {
        if !self.g.poll_ready(waker) {
            crate::note_task_wait("select");
            return None;
        }
        // SAFETY: the G has been readied, by the taker of the claim.
        let settled = self.leave_by(|queued| unsafe { queued.leave_all() }, |taken| taken.map(Taken::settle));
        Some(settled.flatten().expect("a case has taken the claim"))
    }

    /// Does a case, or queues the waiters and registers the waker.
    fn poll_cases(self: Pin<&Self>, cx: &mut Context<'_>) -> Option<Settled> {
        if let Stage::Queued(_) = self.stage.get() {
            let settled = self.poll_ready(cx.waker());
            if settled.is_some() || !C::FUTURES {
                return settled;
            }
            let settled = self.leave_or_settle();
            if settled.is_some() {
                mark("a peer is faster than a future's wake-up");
                return settled;
            }
            mark("a select queues anew");
        }
        assert!(self.stage.get() == Stage::Apart, "a future was polled after it was ready");
        match self.try_all(cx).or_else(|| self.poll_or_queue()) {
            Some(polled) => Some((polled.chosen, [polled.peer, None])),
            None => self.poll_ready(cx.waker()),
        }
    }

    /// Tries the cases in a shuffled order, channels and futures alike, and does the first case that can be done when
    /// its turn comes. The stage is `Apart`.
    fn try_all(self: Pin<&Self>, cx: &mut Context<'_>) -> Option<Polled> {
        let this = self.get_ref();
        this.cases.with_refs(|refs| {
            this.cases.with_orders(|polls, _| {
                if !C::FUTURES {
                    return try_each(refs, Order::shuffle(refs, polls));
                }
                let is_future = |index| this.cases.is_future(index);
                let wanted = |index, case: &CaseRef<'_>| case.raw.is_some() || is_future(index);
                Order::shuffle_those(refs, polls, wanted).iter().find_map(|&index| {
                    let case = usize::from(index);
                    if !is_future(case) {
                        return try_one(refs, index);
                    }
                    // SAFETY: the cases are pinned with this future.
                    let is_ready = unsafe { this.cases.poll_future(case, cx) };
                    is_ready.then_some(Polled { chosen: Chosen { case, closed: false }, peer: None })
                })
            })
        })
    }

    /// Does a case if a case is ready at this instant. First tries the cases one after another, and polls each future
    /// at most once. If no case is ready, tries the channels again, under all their locks together.
    #[cfg_attr(any(sudog_loom, not(unix)), allow(dead_code))]
    #[track_caller]
    pub(super) fn try_now(self: Pin<&mut Self>) -> Option<C::Output> {
        goroutine::safepoint();
        let pinned = self.as_ref();
        let this = pinned.get_ref();
        let polled = goroutine::unconstrained(|| pinned.try_all(&mut Context::from_waker(Waker::noop())));
        let polled = polled.or_else(|| {
            this.cases.with_refs(|refs| {
                this.cases.with_orders(|polls, locks| {
                    let order = Order::new(refs, Order::shuffle(refs, polls), locks);
                    Selecting { cases: refs, order }.lock_all().poll_and_unlock()
                })
            })
        });
        polled.map(|polled| this.over(polled.chosen, [polled.peer, None]))
    }

    /// Polls the channels of all cases under all locks, and queues the waiters if no case is ready. The stage is
    /// `Apart`.
    fn poll_or_queue(self: Pin<&Self>) -> Option<Polled> {
        let this = self.get_ref();
        this.cases.with_refs(|refs| {
            this.cases.with_orders(|polls, locks| {
                let order = Order::new(refs, Order::shuffle(refs, polls), locks);
                let n = order.len();
                let select = Selecting { cases: refs, order };
                let locked = select.lock_all();
                let polled = locked.poll();
                if polled.is_none() {
                    // SAFETY:
                    // - This future is pinned, so its memory is not reused before `drop`. `drop` takes the waiters out of
                    //   the queues. If a peer has taken the claim, `drop` waits until that peer has readied the G.
                    // - The stage is `Apart`, so nothing uses the claim, which is free, and the waiters.
                    // - No other waker knows of the G.
                    unsafe { locked.queue(this.cases.waiters(), &this.g, &this.claim, true) };
                    this.stage.set(Stage::Queued(n));
                }
                locked.unlock();
                polled
            })
        })
    }
}

impl<C: Cases> Future for SelectFuture<C> {
    type Output = C::Output;

    #[track_caller]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<C::Output> {
        let this = self.as_ref();
        ready!(this.coop.poll_proceed(cx));
        // Convert the result once, at the end: without optimisation, each conversion has room for the result.
        let Some((chosen, peers)) = this.poll_cases(cx) else { return Poll::Pending };
        Poll::Ready(this.over(chosen, peers))
    }
}

impl<C: Cases> Drop for SelectFuture<C> {
    fn drop(&mut self) {
        let settle = |taken: Option<Taken<'_>>| match taken {
            Some(taken) => taken.undo(),
            None => mark("a select that gives up leaves its queues"),
        };
        self.leave_by(|queued| queued.give_up(), settle);
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
pub(super) fn block_on<C: Cases, L: crate::sema::IntoLimit>(cases: C, limit: L) -> Result<C::Output, L::Error> {
    let mut select = std::pin::pin!(SelectFuture::of(cases));
    let over = limit.limited(|limit| crate::goroutine::block_on_what("select", select.as_mut(), limit));
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
