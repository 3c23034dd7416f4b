//! Select as a future: in an async task, and wherever one of the cases is itself a future.
//!
//! | stage | its waiters | on poll | on drop |
//! |---|---|---|---|
//! | `Apart` | are in no queue | tries each case, futures too; locks all, polls the cases, queues: `Queued` | the values of sends are dropped |
//! | `Queued` | are in their queues, but those that a peer has taken | registers the waker; readied: leaves the queues, `Over`. Not readied, with futures: takes the claim, leaves the queues, `Apart`, and as there | leaves the queues; a receive that was given a value gives it back, a send that was given a place gives it up |
//! | `Over` | are in no queue | panics | nothing |
//!
//! A future is polled only while no waiter is queued: else the future could become ready while a peer does a case, and
//! only one of the two could be the select's. So a select that is woken by a future, or for nothing, queues anew if that
//! future is not ready after all; it has lost its places in the queues then.
//!
//! No wake-up is lost: each future is polled after the waiters have left their queues and before they are queued again,
//! so a future that becomes ready later wakes the task, and a peer that comes later finds a waiter, or a channel in the
//! state that the poll under the locks sees.

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

/// The cases of a select that is a future, and room for what it needs of each.
pub trait Cases {
    /// What the chosen case comes to.
    type Output;

    /// Whether a case may be a future.
    const FUTURES: bool;

    /// The cases, the same each time for as long as this is not moved.
    fn with_refs<T>(&self, f: impl FnOnce(&[CaseRef<'_>]) -> T) -> T;

    /// Whether the case with this index is a future.
    fn is_future(&self, index: usize) -> bool;

    /// Room for two orders and the waiters, as many as the cases.
    fn room(&self) -> Room;

    /// Whether the future with this index is ready.
    ///
    /// # Safety
    ///
    /// This is pinned, and the caller is its owner.
    unsafe fn poll_future(&self, index: usize, cx: &mut Context<'_>) -> bool;

    /// Drops the futures where they are, and takes the output of the chosen case.
    ///
    /// # Safety
    ///
    /// The caller is the owner; nothing points to a case; this is called once.
    unsafe fn finish(&self, chosen: Chosen) -> Self::Output;
}

/// See [`Cases::room`].
pub struct Room {
    pub(super) polls: *mut [u16],
    pub(super) locks: *mut [u16],
    pub(super) waiters: *mut MaybeUninit<Waiter>,
}

/// `N` cases in a list.
pub struct StaticCases<const N: usize, L> {
    /// There until it is over.
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
        // SAFETY: it is moved out when the select is over only, by its owner, which is the caller.
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
        // SAFETY: by the contract; the list is pinned with this.
        unsafe { self.list().poll_future(index, cx) }
    }

    unsafe fn finish(&self, chosen: Chosen) -> L::Output {
        // SAFETY: by the contract.
        unsafe { self.list().drop_futures() };
        let output = self.list().output(chosen);
        // SAFETY: this is the list's owner, and nothing points to a case any more; what was pinned in it has been dropped.
        unsafe { *self.list.get() = None };
        output
    }
}

/// Does the first of several cases that can be done: what [`select_async!`](crate::select_async) awaits.
///
/// It may be dropped at any time, and has done nothing then, but that a receiver may have taken the value of a send without
/// a buffer: what [`RecvFuture`](crate::chan::RecvFuture) and [`SendFuture`](crate::chan::SendFuture) promise holds for its cases. Once it has been polled it must be
/// polled again when its waker is woken, or dropped.
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
    /// So many of its cases can be ready at all.
    Queued(usize),
    Over,
}

// SAFETY: what is in it is touched under the channels' locks while it is queued, by the peer that has taken the claim until
// it readies it, and else by the owner of the future. Its G is a task: not bound to a thread. Its cases are sent with it.
unsafe impl<const N: usize, L: CaseList + Send> Send for SelectFuture<StaticCases<N, L>> {}
// SAFETY: nothing can be done with a shared reference to it.
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

    /// # Safety
    ///
    /// It is `Queued(n)`, and the result is used before it is queued anew.
    unsafe fn with_queued<T>(&self, n: usize, f: impl FnOnce(Selecting<'_, '_>, Waiters) -> T) -> T {
        let Room { polls, locks, waiters } = self.cases.room();
        // SAFETY: written as it was queued, and not since, by the contract.
        let order = unsafe { Order::stored(n, &*polls, &*locks) };
        self.cases.with_refs(|cases| f(Selecting { cases, order }, Waiters(waiters)))
    }

    /// No waiter of it is in a queue.
    #[track_caller]
    fn over(&self, polled: Polled) -> C::Output {
        debug_assert!(self.stage.get() != Stage::Over);
        // Before the peer is woken, which may panic: a case is done once.
        self.stage.set(Stage::Over);
        let chosen = polled.wake();
        // SAFETY: this is its owner, no case is queued, and the stage says that this is the first time.
        unsafe { self.cases.finish(chosen) }
    }

    /// Does the case that a peer has chosen.
    ///
    /// # Safety
    ///
    /// It is `Queued(n)` and has been readied.
    #[track_caller]
    unsafe fn finish(&self, n: usize) -> C::Output {
        // SAFETY: queued with these; readied.
        let (chosen, peers) = unsafe {
            self.with_queued(n, |select, waiters| {
                select.leave_all(waiters);
                let Ok((case, waiter)) = select.taken_by(waiters, &self.claim) else { unreachable!("it has no limit") };
                let (closed, peers) = select.cases[case].settle_task(waiter);
                (Chosen { case, closed }, peers)
            })
        };
        // Before the peers are woken, as in `over`.
        self.stage.set(Stage::Over);
        // SAFETY: taken out just now, and not used after.
        unsafe { wake_all(peers) };
        // SAFETY: this is its owner, no case is queued, and the stage says that this is the first time.
        unsafe { self.cases.finish(chosen) }
    }

    /// Leaves the queues; the result, if a peer has been faster.
    #[track_caller]
    pub(super) fn leave(&self) -> Option<C::Output> {
        let Stage::Queued(n) = self.stage.get() else { return None };
        if !self.claim.take(Claim::GIVEN_UP) {
            self.g.await_ready();
            // SAFETY: a peer has taken the claim, and has readied it.
            return Some(unsafe { self.finish(n) });
        }
        // SAFETY: queued with these.
        unsafe { self.with_queued(n, |select, waiters| select.leave_all(waiters)) };
        // No peer has a pointer to the claim any more: it would have found it under a channel's lock.
        self.claim.reset();
        self.stage.set(Stage::Apart);
        None
    }

    /// Does the first case that can be done when its turn comes, channels and futures alike. It is `Apart`.
    ///
    /// # Safety
    ///
    /// This is pinned, and the caller is its owner.
    unsafe fn try_all(&self, cx: &mut Context<'_>) -> Option<Polled> {
        self.cases.with_refs(|refs| {
            // SAFETY: nothing else uses them: it is `Apart`.
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
                // SAFETY: by the contract.
                let is_ready = unsafe { self.cases.poll_future(case, cx) };
                is_ready.then_some(Polled { chosen: Chosen { case, closed: false }, peer: None })
            })
        })
    }

    /// Does a case if one is ready at this instant, under all locks. Futures are polled once each, before.
    #[cfg_attr(any(sudog_loom, not(unix)), allow(dead_code))]
    #[track_caller]
    pub(super) fn try_now(self: Pin<&mut Self>) -> Option<C::Output> {
        goroutine::safepoint();
        let this = self.as_ref().get_ref();
        // SAFETY: pinned; `self` is the owner's.
        let polled = goroutine::unconstrained(|| unsafe { this.try_all(&mut Context::from_waker(Waker::noop())) });
        let polled = polled.or_else(|| {
            this.cases.with_refs(|refs| {
                let Room { polls, locks, .. } = this.cases.room();
                // SAFETY: nothing else uses them: it is `Apart`.
                let (polls, locks) = unsafe { (&mut *polls, &mut *locks) };
                let select = Selecting { cases: refs, order: Order::new(refs, Order::shuffle(refs, polls), locks) };
                select.lock_all();
                select.poll_and_unlock()
            })
        });
        polled.map(|polled| this.over(polled))
    }

    /// Polls under all locks, and queues if no case is ready. It is `Apart`.
    ///
    /// # Safety
    ///
    /// This is pinned, and the caller is its owner.
    unsafe fn poll_or_queue(&self) -> Option<Polled> {
        self.cases.with_refs(|refs| {
            let Room { polls, locks, waiters } = self.cases.room();
            // SAFETY: nothing else uses them: it is `Apart`.
            let (polls, locks) = unsafe { (&mut *polls, &mut *locks) };
            let order = Order::new(refs, Order::shuffle(refs, polls), locks);
            let n = order.len();
            let select = Selecting { cases: refs, order };
            select.lock_all();
            if let Some(polled) = select.poll() {
                select.unlock_all();
                return Some(polled);
            }
            // SAFETY: pinned, and `drop` takes it out of the queues before its memory can be used for something else, and
            // waits for the `ready`; room for as many as the cases; `Apart`, so in no queue.
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
                // SAFETY: queued and readied.
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
        // SAFETY: pinned; `self` is the owner's.
        if let Some(polled) = unsafe { this.try_all(cx) } {
            return Poll::Ready(this.over(polled));
        }
        // SAFETY: as above.
        if let Some(polled) = unsafe { this.poll_or_queue() } {
            return Poll::Ready(this.over(polled));
        }
        let Stage::Queued(n) = this.stage.get() else { unreachable!("it has just been queued") };
        if !this.g.poll_ready(cx.waker()) {
            return Poll::Pending;
        }
        // SAFETY: queued and readied.
        Poll::Ready(unsafe { this.finish(n) })
    }
}

impl<C: Cases> Drop for SelectFuture<C> {
    fn drop(&mut self) {
        if let Stage::Queued(n) = self.stage.get() {
            // SAFETY: queued with these, and not readied as far as it knows.
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

    /// [`SelectFuture`] that gives up at a deadline.
    #[must_use = "a future does nothing unless polled"]
    pub struct SelectUntil<C: Cases> {
        select: SelectFuture<C>,
        /// `None`: further away than the clock can count.
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
            // SAFETY: both fields are pinned with it, and neither is moved.
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
