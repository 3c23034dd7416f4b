//! Select in an async task.
//!
//! | stage | its waiters | on poll | on drop |
//! |---|---|---|---|
//! | `Apart` | are in no queue | locks all, polls the cases, queues: `Queued` | the values of sends are dropped |
//! | `Queued` | are in their queues, but those that a peer has taken | registers the waker; readied: leaves the queues, `Over` | leaves the queues; a receive that was given a value gives it back |
//! | `Over` | are in no queue | panics | nothing |

use std::cell::{Cell, UnsafeCell};
use std::fmt;
use std::future::Future;
use std::marker::PhantomPinned;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::case::{CaseList, CaseRef};
use super::order::Order;
use super::{Chosen, Selecting, Waiters, try_each, wake};
use crate::G;
use crate::chan::waiters::{Claim, Waiter};

/// Does the first of several sends and receives that can be done: what [`select_async!`](crate::select_async) awaits.
///
/// It may be dropped at any time, and has done nothing then: a value that it had just been given goes to the next
/// receiver. Once it has been polled it must be polled again when its waker is woken, or dropped.
#[must_use = "a future does nothing unless polled"]
pub struct SelectFuture<const N: usize, L: CaseList> {
    /// There until it is over.
    list: UnsafeCell<Option<L>>,
    stage: Cell<Stage>,
    g: G,
    claim: Claim,
    polls: UnsafeCell<[u16; N]>,
    locks: UnsafeCell<[u16; N]>,
    waiters: UnsafeCell<[MaybeUninit<Waiter>; N]>,
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
unsafe impl<const N: usize, L: CaseList + Send> Send for SelectFuture<N, L> {}
// SAFETY: nothing can be done with a shared reference to it.
unsafe impl<const N: usize, L: CaseList> Sync for SelectFuture<N, L> {}

impl<const N: usize, L: CaseList> SelectFuture<N, L> {
    #[doc(hidden)]
    pub fn new(list: L) -> Self {
        const { assert!(L::LEN == N && N <= super::MAX_CASES) };
        Self {
            list: UnsafeCell::new(Some(list)),
            stage: Cell::new(Stage::Apart),
            g: G::task(),
            claim: Claim::new(),
            polls: UnsafeCell::new([0; N]),
            locks: UnsafeCell::new([0; N]),
            waiters: UnsafeCell::new([const { MaybeUninit::uninit() }; N]),
            _pinned: PhantomPinned,
        }
    }

    fn waiters(&self) -> Waiters {
        Waiters(self.waiters.get().cast())
    }

    /// Its cases, each time the same.
    fn cases(&self) -> [CaseRef<'_>; N] {
        let mut cases = [CaseRef::NONE; N];
        // SAFETY: it is moved out when the future is over only, by its owner, which is the caller.
        unsafe { &*self.list.get() }.as_ref().expect("not over").describe(&mut cases);
        cases
    }

    /// # Safety
    ///
    /// It is `Queued(n)`.
    unsafe fn order(&self, n: usize) -> Order<'_> {
        // SAFETY: written as it was queued, and not since.
        unsafe { Order::stored(n, &*self.polls.get(), &*self.locks.get()) }
    }

    /// No waiter of it is in a queue.
    fn over(&self, chosen: Chosen) -> L::Output {
        self.stage.set(Stage::Over);
        // SAFETY: this is its owner, and nothing points to a case any more.
        let list = unsafe { (*self.list.get()).take() };
        list.expect("not over before").output(chosen)
    }

    /// It has been readied.
    ///
    /// # Safety
    ///
    /// So it is, and is `Queued(n)`.
    unsafe fn finish(&self, n: usize) -> L::Output {
        // SAFETY: queued with these; readied.
        let outcome = unsafe {
            let select = Selecting { cases: &self.cases(), order: self.order(n) };
            select.leave_all(self.waiters());
            select.outcome(self.waiters(), &self.claim)
        };
        match outcome {
            Ok(chosen) => self.over(chosen),
            Err(_) => unreachable!("it has no limit"),
        }
    }

    /// Ends the wait; the result, if a peer has been faster.
    #[cfg_attr(any(sudog_loom, not(unix)), allow(dead_code))]
    fn stop(&self) -> Option<L::Output> {
        let Stage::Queued(n) = self.stage.get() else { return None };
        if !self.claim.take(Claim::GIVEN_UP) {
            self.g.await_ready();
            // SAFETY: a peer has taken the claim, and has readied it.
            return Some(unsafe { self.finish(n) });
        }
        // SAFETY: queued with these.
        unsafe { Selecting { cases: &self.cases(), order: self.order(n) }.leave_all(self.waiters()) };
        self.stage.set(Stage::Over);
        None
    }
}

impl<const N: usize, L: CaseList> Future for SelectFuture<N, L> {
    type Output = L::Output;

    #[track_caller]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<L::Output> {
        let this = self.as_ref().get_ref();
        let n = match this.stage.get() {
            Stage::Apart => {
                let cases = this.cases();
                // SAFETY: nothing else uses them: it is `Apart`.
                let (polls, locks) = unsafe { (&mut *this.polls.get(), &mut *this.locks.get()) };
                let polls = Order::shuffle(&cases, polls);
                if let Some(chosen) = try_each(&cases, polls) {
                    return Poll::Ready(this.over(chosen));
                }
                let order = Order::new(&cases, polls, locks);
                let n = order.len();
                let select = Selecting { cases: &cases, order };
                select.lock_all();
                if let Some((chosen, peer)) = select.poll() {
                    select.unlock_all();
                    wake(peer);
                    return Poll::Ready(this.over(chosen));
                }
                // SAFETY: pinned by `poll`, and `drop` takes it out of the queues before its memory can be used for
                // something else, and waits for the `ready`; room for as many as the cases; `Apart`, so in no queue.
                unsafe { select.queue_all(this.waiters(), &raw const this.g, &raw const this.claim) };
                this.stage.set(Stage::Queued(n));
                select.unlock_all();
                n
            }
            Stage::Queued(n) => n,
            Stage::Over => panic!("a future was polled after it was ready"),
        };
        if !this.g.poll_ready(cx.waker()) {
            return Poll::Pending;
        }
        // SAFETY: queued and readied.
        Poll::Ready(unsafe { this.finish(n) })
    }
}

impl<const N: usize, L: CaseList> Drop for SelectFuture<N, L> {
    fn drop(&mut self) {
        if let Stage::Queued(n) = self.stage.get() {
            // SAFETY: queued with these, and not readied as far as it knows.
            unsafe {
                let select = Selecting { cases: &self.cases(), order: self.order(n) };
                select.give_up(self.waiters(), &self.g, &self.claim);
            }
        }
    }
}

impl<const N: usize, L: CaseList> fmt::Debug for SelectFuture<N, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("SelectFuture { .. }")
    }
}

#[cfg(all(unix, not(sudog_loom)))]
pub use until::SelectUntil;

#[cfg(all(unix, not(sudog_loom)))]
mod until {
    use super::{CaseList, Context, Future, Pin, Poll, SelectFuture, fmt};
    use crate::Instant;
    use crate::goroutine::{SleepAsync, sleep_async};
    use crate::sema::WaitError;

    /// [`SelectFuture`] that gives up at a deadline.
    #[must_use = "a future does nothing unless polled"]
    pub struct SelectUntil<const N: usize, L: CaseList> {
        select: SelectFuture<N, L>,
        /// `None`: further away than the clock can count.
        sleep: Option<SleepAsync>,
    }

    impl<const N: usize, L: CaseList> SelectFuture<N, L> {
        #[doc(hidden)]
        pub fn until(self, deadline: Option<Instant>) -> SelectUntil<N, L> {
            let left = |deadline: Instant| deadline.saturating_duration_since(Instant::now());
            SelectUntil { select: self, sleep: deadline.map(|deadline| sleep_async(left(deadline))) }
        }
    }

    impl<const N: usize, L: CaseList> Future for SelectUntil<N, L> {
        type Output = Result<L::Output, WaitError>;

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
                Some(Poll::Ready(_)) => Poll::Ready(select.stop().ok_or(WaitError::TimedOut)),
                _ => Poll::Pending,
            }
        }
    }

    impl<const N: usize, L: CaseList> fmt::Debug for SelectUntil<N, L> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.pad("SelectUntil { .. }")
        }
    }
}
