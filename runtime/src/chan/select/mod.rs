//! Select: does the first of several sends and receives that can be done. Go's `selectgo`. Selects in tasks, and
//! selects with futures among the cases, are in `future.rs`. Selects with timers are in `timed.rs`.
//!
//! | step | description |
//! |---|---|
//! | order | take the cases that can be ready at all: shuffled, for the polling; ordered by their channels' addresses, for the locks |
//! | try each | do the first case, in the shuffled order, that can be done when its turn comes, under its channel's lock alone. This is a send or a receive like any other. This step cannot tell that no case is ready |
//! | lock | lock all channels, each once, in the order of their addresses: so two selects do not wait for each other |
//! | poll | do the first case, in the shuffled order, that can be done: unlock all channels, wake the peer of the case, return |
//! | give up | if there is a `default`, return without waiting: at this instant no case is ready, because all locks are held |
//! | queue | queue a waiter for each case, all with the same [`Claim`] |
//! | park | unlock all channels, and sleep |
//! | winner | the taker of the claim: a peer of a case, the deadline, a cancel, or the drop of a future. A peer does the send or receive of its case under the channel's lock, and readies the G |
//! | leave | take the waiters of the other cases out, each under its channel's lock |
//!
//! A peer that finds a waiter whose claim is taken drops that waiter from the queue, and goes on to the next waiter, as
//! Go does. A select does not meet itself: while a select polls, none of its own waiters is in a queue.
//!
//! A cancel is registered before the locks are taken. If a case is ready nevertheless, the select takes the claim for
//! that case. If the cancel has taken the claim first, the select waits for the `ready` of the cancel, and returns the
//! result of the case all the same.

pub mod case;
mod dynamic;
mod future;
mod macros;
mod order;
#[cfg(all(unix, not(sudog_loom)))]
pub(crate) mod timed;

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::pin::pin;

pub use dynamic::Select;
#[cfg(all(unix, not(sudog_loom)))]
pub use future::SelectUntil;
pub use future::{Cases, SelectFuture, StaticCases};
pub use order::MAX_CASES;

use self::case::{CaseList, CaseRef, Operation};
use self::order::Order;
use super::core::Done;
use super::raw::{Dir, Peer};
use super::waiters::{Claim, Waiter};
use crate::sema::{Cancel, IntoLimit, WaitError, WaitLimit};
use crate::shim::mark;
use crate::{G, Instant, ParkResult, goroutine};

/// The case that was done.
#[derive(Clone, Copy)]
pub struct Chosen {
    pub case: usize,
    /// True if the case was done because its channel is closed: no value was received, or sent.
    pub closed: bool,
}

/// The cases of a select, and their orders.
struct Selecting<'a, 's> {
    cases: &'s [CaseRef<'a>],
    order: Order<'s>,
}

/// The proof that the caller holds the locks of all channels of a select. The caller must call [`AllLocked::unlock`].
#[must_use = "the locks stay locked"]
struct AllLocked<'q, 'a, 's>(&'q Selecting<'a, 's>);

/// A select whose waiters have been queued.
struct Queued<'q, 'a, 's> {
    select: &'q Selecting<'a, 's>,
    waiters: &'q [WaiterRoom],
    g: &'q G,
    claim: &'q Claim,
}

/// The case whose waiter has taken the claim, and has been readied.
struct Taken<'q> {
    case: usize,
    operation: &'q dyn Operation,
    waiter: &'q Waiter,
}

/// The proof that the waiters of a select have left the queues, with the case that has taken the claim, if a case has.
struct Left<'q>(Option<Taken<'q>>);

/// The room for the waiter of a case. The field is a cell because peers write to the waiter while it is queued.
pub struct WaiterRoom(UnsafeCell<MaybeUninit<Waiter>>);

impl WaiterRoom {
    const fn new() -> Self {
        Self(UnsafeCell::new(MaybeUninit::uninit()))
    }
}

/// Polls without waiting. Go's `select` with a `default`. The caller has just made a safepoint.
#[inline]
fn try_select(cases: &[CaseRef<'_>], order: &mut [u16], locks: &mut [u16]) -> Option<Chosen> {
    if let [case] = cases
        && let Some(over) = try_by_a_look(case)
    {
        return over;
    }
    let polls = Order::shuffle(cases, order);
    let polled = try_each(cases, polls).or_else(|| {
        let select = Selecting { cases, order: Order::new(cases, polls, locks) };
        select.lock_all().poll_and_unlock()
    });
    polled.map(Polled::wake)
}

/// Tries to decide a single case by a load of its channel's state. Returns `Some(None)` if the case is not ready, and
/// `None` if the load does not decide.
#[inline(always)]
fn try_by_a_look(case: &CaseRef<'_>) -> Option<Option<Chosen>> {
    let raw = case.raw?;
    let state = raw.look();
    match case.dir {
        Dir::Send | Dir::Reserve => state.is_full_for_certain(raw.capacity()).then_some(None),
        Dir::Recv => {
            let closed = || state.is_at_its_end().then_some(Some(Chosen { case: 0, closed: true }));
            if state.is_empty_for_certain() { Some(None) } else { closed() }
        }
    }
}

/// Waits until a case can be done, and does that case; or gives up at the limit. Go's `select` without a `default`.
fn wait_select(
    cases: &[CaseRef<'_>],
    waiters: &[WaiterRoom],
    order: &mut [u16],
    locks: &mut [u16],
    limit: &WaitLimit<'_>,
) -> Result<Chosen, WaitError> {
    goroutine::safepoint();
    let polls = Order::shuffle(cases, order);
    if limit.cancel.is_some() {
        let select = Selecting { cases, order: Order::new(cases, polls, locks) };
        return select.wait_cancellable(waiters, limit);
    }
    if let Some(polled) = try_each(cases, polls) {
        return Ok(polled.wake());
    }
    let select = Selecting { cases, order: Order::new(cases, polls, locks) };
    let locked = select.lock_all();
    if let Some(polled) = locked.poll() {
        locked.unlock();
        return Ok(polled.wake());
    }
    let (g, claim) = (G::current(), Claim::new());
    // SAFETY: no waker knows of `g`, and nothing else uses `waiters` and `claim`.
    unsafe { locked.wait(waiters, &g, &claim, limit.deadline) }
}

/// Does the first case that can be done when its turn comes. Locks one channel at a time, and locks no channel that
/// cannot be ready.
#[inline]
fn try_each(cases: &[CaseRef<'_>], polls: &[u16]) -> Option<Polled> {
    // Skip this step for a single case, which needs a single lock anyway.
    if polls.len() < 2 {
        return None;
    }
    polls.iter().find_map(|&index| try_one(cases, index))
}

/// Does the case, if it can be done, under the lock of its channel alone.
#[inline]
fn try_one(cases: &[CaseRef<'_>], index: u16) -> Option<Polled> {
    let index = usize::from(index);
    let case = &cases[index];
    let (operation, raw) = case.operation();
    let state = raw.glance();
    let fails = match case.dir {
        Dir::Send | Dir::Reserve => state.is_full_for_certain(raw.capacity()),
        Dir::Recv => state.is_empty_for_certain(),
    };
    if fails {
        return None;
    }
    let (locked, done) = operation.poll(raw.lock());
    locked.unlock();
    done.map(|done| Polled::new(index, done))
}

/// A case that has been done, and the peer that must be woken.
#[must_use = "the peer sleeps"]
struct Polled {
    chosen: Chosen,
    peer: Option<Peer>,
}

impl Polled {
    #[inline]
    fn new(case: usize, done: Done) -> Self {
        Self { chosen: Chosen { case, closed: done.closed }, peer: done.peer }
    }

    /// Wakes the peer, and returns the chosen case. The wake-up may run user code that panics: by then the select is
    /// over, and no lock is held.
    #[inline]
    fn wake(self) -> Chosen {
        if let Some(peer) = self.peer {
            peer.wake();
        }
        self.chosen
    }
}

impl<'a, 's> Selecting<'a, 's> {
    fn lock_all(&self) -> AllLocked<'_, 'a, 's> {
        for raw in self.order.channels(self.cases) {
            raw.lock().keep();
        }
        AllLocked(self)
    }

    #[cold]
    fn wait_cancellable(&self, waiters: &[WaiterRoom], limit: &WaitLimit<'_>) -> Result<Chosen, WaitError> {
        let (g, claim) = (G::current(), Claim::new());
        // SAFETY: `claim` and `g` outlive the entry, which is dropped before this frame ends. Only the taker of this
        // claim readies this G, and this function waits for that `ready`.
        let entry = pin!(limit.cancel.map(|cancel| unsafe { cancel.claim_registration(&claim, &g) }));
        if let Some(entry) = entry.as_ref().as_pin_ref()
            && !entry.enter()
        {
            return Err(WaitError::Cancelled);
        }
        let locked = self.lock_all();
        // Check again under the locks: this select must not serve a waiter that has queued since the cancel.
        let is_cancelled = limit.cancel.is_some_and(Cancel::is_cancelled);
        let polled = if is_cancelled { Err(WaitError::Cancelled) } else { Ok(locked.poll()) };
        if let Some(polled) = polled.transpose() {
            locked.unlock();
            if is_cancelled {
                mark("a select finds under its locks that it is cancelled");
            }
            if !claim.take(Claim::AT_ONCE) {
                if !is_cancelled {
                    mark("a case is ready when the cancel comes");
                }
                g.await_ready(); // wait for the `ready` of the cancel
            }
            return polled.map(Polled::wake);
        }
        // SAFETY: the cancel, if there is one, takes this claim before it readies this G; no other waker knows of this
        // G. Nothing else uses `waiters`.
        unsafe { locked.wait(waiters, &g, &claim, limit.deadline) }
    }
}

impl<'q, 'a, 's> AllLocked<'q, 'a, 's> {
    fn unlock(self) {
        for raw in self.0.order.channels(self.0.cases) {
            // SAFETY: this is the proof that the channel is locked, and ends here. No other proof exists outside of the
            // methods of this type.
            unsafe { raw.held() }.unlock();
        }
    }

    /// Does the first case that can be done.
    fn poll(&self) -> Option<Polled> {
        self.0.order.polls().find_map(|index| {
            let (operation, raw) = self.0.cases[index].operation();
            // SAFETY: this is the proof that the channel is locked. No other proof exists outside of the methods of this
            // type.
            let (locked, done) = operation.poll(unsafe { raw.held() });
            locked.keep();
            // The slot is up to date before the peer is woken, which may panic.
            done.map(|done| Polled::new(index, done))
        })
    }

    fn poll_and_unlock(self) -> Option<Polled> {
        let polled = self.poll();
        self.unlock();
        polled
    }

    /// Queues a waiter for each case.
    ///
    /// # Safety
    ///
    /// - The G, the claim, the waiters and the cases stay alive and in place until the result has left the queues (see
    ///   [`Queued`]); and, if a case or a cancel has taken the claim, until the G has been readied. Nothing else uses the
    ///   claim and the waiters.
    /// - The claim is free, or has been taken by a cancel that readies this G. No other waker knows of this G.
    unsafe fn queue(&self, waiters: &'q [WaiterRoom], g: &'q G, claim: &'q Claim, is_task: bool) -> Queued<'q, 'a, 's> {
        for index in self.0.order.locks() {
            let (operation, raw) = self.0.cases[index].operation();
            let (dir, slot) = operation.lend(is_task);
            let waiter = Waiter::of_case(g, slot, claim, index as u32, is_task);
            // SAFETY: nothing else uses the waiters, by the contract of this function.
            let waiter = unsafe { (*waiters[index].0.get()).write(waiter) };
            // SAFETY: this is the proof that the channel is locked. No other proof exists outside of the methods of this
            // type.
            let mut locked = unsafe { raw.held() };
            // SAFETY: `waiter` is new, so no queue contains it. The waiter, its G, its claim and its slot, which is part of
            // a case, stay in place until the waiter is out of the queue, or readied, by the contract of this function.
            // `lend` returns the slot that this queue needs. All waiters of the G that are queued have this claim.
            unsafe { locked.enqueue(dir, waiter) };
            locked.keep();
        }
        Queued { select: self.0, waiters, g, claim }
    }

    /// Queues the waiters, sleeps until the claim is taken, and takes the waiters out of the queues. No case was ready.
    ///
    /// # Safety
    ///
    /// - The claim is free, or has been taken by a cancel that readies this G. No other waker knows of this G.
    /// - Nothing else uses the claim and the waiters.
    unsafe fn wait(
        self,
        waiters: &[WaiterRoom],
        g: &G,
        claim: &Claim,
        deadline: Option<Instant>,
    ) -> Result<Chosen, WaitError> {
        goroutine::note_wait(self.0.order.what());
        // SAFETY: this frame, and what it borrows, stays until the waiters have left the queues, and until the `ready` of
        // the claim's taker: `park_queued_spinning` returns only afterwards, and never unwinds. The rest is the contract
        // of this function.
        let queued = unsafe { AllLocked(self.0).queue(waiters, g, claim, false) };
        let leave = || claim.take(Claim::GIVEN_UP);
        let parked = g.park_queued_spinning(deadline, || self.unlock(), leave);
        // SAFETY: `leave` has taken the claim, or the taker of the claim has readied the G.
        match unsafe { queued.leave_all() }.0 {
            Some(taken) => {
                // A thread or a goroutine sends to no place, so there are no peers to wake.
                let (chosen, _) = taken.settle();
                Ok(chosen)
            }
            None if parked == ParkResult::TimedOut => Err(WaitError::TimedOut),
            None => Err(WaitError::Cancelled),
        }
    }
}

impl<'q, 'a, 's> Queued<'q, 'a, 's> {
    /// Returns the select that [`AllLocked::queue`] has returned before.
    ///
    /// # Safety
    ///
    /// `AllLocked::queue` has been called with these arguments, for a select with the same cases and orders. Since then,
    /// the waiters have not left the queues (see the other methods).
    unsafe fn again(select: &'q Selecting<'a, 's>, waiters: &'q [WaiterRoom], g: &'q G, claim: &'q Claim) -> Self {
        Self { select, waiters, g, claim }
    }

    /// Takes out all waiters that are still in a queue. Returns the case that has taken the claim, or `None` if something
    /// else has taken the claim. After this, nothing uses the waiters, the claim and the G.
    ///
    /// # Safety
    ///
    /// The caller has taken the claim, or the taker of the claim has readied the G.
    unsafe fn leave_all(self) -> Left<'q> {
        let taken_by = self.claim.taken_by() as usize;
        let mut taken = None;
        for case in self.select.order.locks() {
            let (operation, raw) = self.select.cases[case].operation();
            // SAFETY: `AllLocked::queue` has made the waiters of all cases of this order, and a waiter is changed only
            // through its cells.
            let waiter = unsafe { (*self.waiters[case].0.get()).assume_init_ref() };
            // SAFETY: `AllLocked::queue` has put the waiter into a queue of this channel.
            unsafe { raw.entry(waiter) }.leave();
            if case == taken_by {
                taken = Some(Taken { case, operation, waiter });
            } else {
                // SAFETY: the waiter is in no queue, and something else has taken its claim.
                unsafe { operation.end_loan() };
            }
        }
        Left(taken)
    }

    /// Leaves the queues, if nothing has taken the claim; then the claim is free again. Otherwise waits for the `ready`,
    /// and returns the case that has taken the claim.
    fn give_up(self) -> Left<'q> {
        let claim = self.claim;
        let first = claim.take(Claim::GIVEN_UP);
        if !first {
            self.g.await_ready();
        }
        // SAFETY: this call has taken the claim, or the taker of the claim has readied the G.
        let left = unsafe { self.leave_all() };
        if first {
            // SAFETY: the waiters of this claim have left the queues. A peer finds the claim only through a queued
            // waiter, under a channel's lock.
            unsafe { claim.reset() };
        }
        left
    }
}

impl Taken<'_> {
    /// Finishes the case. Returns the peers that the caller must wake.
    fn settle(self) -> (Chosen, [Option<Peer>; 2]) {
        let case = self.case;
        let (closed, peers) = self.end(false);
        (Chosen { case, closed }, peers)
    }

    /// Undoes the step of the peer, as far as possible.
    fn undo(self) {
        self.end(true);
    }

    fn end(self, gives_up: bool) -> (bool, [Option<Peer>; 2]) {
        // SAFETY: this is the waiter of the case. A peer has taken the waiter and has readied the G, and this consumes
        // the `Taken`, which is the only one.
        unsafe { self.operation.settle(self.waiter, gives_up) }
    }
}

/// Waits on a nil channel: until the limit, or for ever without a limit.
#[cold]
pub(super) fn nothing_comes(what: &'static str, limit: &WaitLimit<'_>) -> WaitError {
    let select = Selecting { cases: &[], order: Order::nothing(what) };
    match select.wait_cancellable(&[], limit) {
        Ok(_) => unreachable!("there is no case"),
        Err(why) => why,
    }
}

/// Waits for a single case. `what` names the wait in reports.
#[cold]
pub(super) fn wait_one(case: CaseRef<'_>, what: &'static str, limit: &WaitLimit<'_>) -> Result<Chosen, WaitError> {
    goroutine::safepoint();
    let select = Selecting { cases: &[case], order: Order::one(what) };
    select.wait_cancellable(&[WaiterRoom::new()], limit)
}

/// Takes the output of the chosen case, and drops the list. The output is a variable while the list is dropped: a destructor
/// of a value that is not sent may panic, and unwinding drops variables, but not a result.
#[inline]
#[track_caller]
fn finish<L: CaseList>(list: L, chosen: Chosen) -> L::Output {
    let output = list.output(chosen);
    drop(list);
    output
}

/// The select that `select!` makes: a list of `N` cases on the stack.
pub struct Static<const N: usize, L>(PhantomData<L>);

impl<const N: usize, L: CaseList> Static<N, L> {
    const FITS: () = assert!(L::LEN == N && N <= MAX_CASES);

    /// Waits until a case has been done.
    #[inline]
    #[track_caller]
    pub fn wait(list: L) -> L::Output {
        if L::FUTURES {
            return match Self::wait_limited(list, &WaitLimit::default()) {
                Ok(output) => output,
                Err(_) => unreachable!("no limit was set"),
            };
        }
        match Self::choose(&list, &WaitLimit::default()) {
            Ok(chosen) => finish(list, chosen),
            Err(_) => unreachable!("no limit was set"),
        }
    }

    /// Waits until a case has been done, or until the limit.
    #[inline]
    #[track_caller]
    pub fn wait_limited<I: IntoLimit>(list: L, limit: I) -> Result<L::Output, I::Error> {
        if L::FUTURES {
            #[cfg(all(unix, not(sudog_loom)))]
            return if L::WAKERS {
                future::block_on(StaticCases::<N, L>::new(list), limit)
            } else {
                Self::wait_timed(list, limit)
            };
            #[cfg(any(sudog_loom, not(unix)))]
            const {
                assert!(!L::FUTURES, "a select waits for a future on Unix only; `select_async!` does everywhere")
            };
        }
        let chosen = limit.limited(|limit| Self::choose(&list, limit))?;
        Ok(finish(list, chosen))
    }

    /// Waits until a case has been done, or until the limit. All cases are channels.
    #[inline]
    fn choose(list: &L, limit: &WaitLimit<'_>) -> Result<Chosen, WaitError> {
        let () = Self::FITS;
        let (mut order, mut locks) = ([0; N], [0; N]);
        let waiters = [const { WaiterRoom::new() }; N];
        let mut cases = [CaseRef::NONE; N];
        list.describe(&mut cases);
        wait_select(&cases, &waiters, &mut order, &mut locks, limit)
    }

    /// Does a case, if a case is ready.
    #[inline]
    #[track_caller]
    pub fn try_now(list: L) -> Option<L::Output> {
        let () = Self::FITS;
        if L::WAKERS {
            return pin!(SelectFuture::<StaticCases<N, L>>::new(list)).try_now();
        }
        goroutine::safepoint();
        #[cfg(all(unix, not(sudog_loom)))]
        if L::FUTURES {
            return Self::try_timed(list);
        }
        if N == 1 {
            let mut case = [CaseRef::NONE; N];
            list.describe(&mut case);
            return match try_by_a_look(&case[0]) {
                Some(over) => over.map(|chosen| finish(list, chosen)),
                None => Self::try_apart(list),
            };
        }
        Self::try_with_locks(list)
    }

    /// Calls `try_with_locks`. This function is not inlined, so that its caller can keep values in registers as long as
    /// `try_by_a_look` decides.
    #[inline(never)]
    #[track_caller]
    fn try_apart(list: L) -> Option<L::Output> {
        Self::try_with_locks(list)
    }

    #[inline]
    #[track_caller]
    fn try_with_locks(list: L) -> Option<L::Output> {
        let (mut order, mut locks) = ([0; N], [0; N]);
        let mut cases = [CaseRef::NONE; N];
        list.describe(&mut cases);
        let chosen = try_select(&cases, &mut order, &mut locks)?;
        Some(finish(list, chosen))
    }
}
