//! Select: the first of several sends and receives that can be done. Go's `selectgo`. With futures among the cases, and in
//! tasks: `future.rs`. With timers: `timed.rs`.
//!
//! | step | what |
//! |---|---|
//! | order | the cases that can be ready at all: shuffled, for the polling; by their channels' addresses, for the locks |
//! | try each | the first case, in the shuffled order, that can be done when its turn comes, is done, under its channel's lock alone. This is a send or a receive like any other; what it cannot tell is that no case is ready |
//! | lock | all channels, each once, in the order of their addresses: so two selects do not wait for each other |
//! | poll | the first case, in the shuffled order, that can be done, is done: unlock all, wake its peer, return |
//! | give up | without waiting, if there is a `default`: at this instant no case is ready, as all locks are held |
//! | queue | one waiter for each case, all with one [`Claim`] |
//! | park | unlock all, sleep |
//! | winner | whatever takes the claim: a peer of one case, the deadline, a cancel, the drop of a future. A peer does the case's send or receive under its channel's lock, and readies the G |
//! | leave | the waiters of the other cases are taken out, each under its channel's lock |
//!
//! A peer that finds a waiter whose claim is taken drops it from the queue and goes on to the next, as Go does. A select
//! does not meet itself: while it polls none of its own waiters is in a queue.
//!
//! A cancel is registered before the locks are taken. If a case is ready nevertheless, the claim is taken for it; should
//! the cancel have been faster, the select waits for its `ready`, and returns the case all the same.

pub mod case;
mod dynamic;
mod future;
mod macros;
mod order;
#[cfg(all(unix, not(sudog_loom)))]
pub(crate) mod timed;

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::pin::pin;

pub use dynamic::Select;
#[cfg(all(unix, not(sudog_loom)))]
pub use future::SelectUntil;
pub use future::{Cases, SelectFuture, StaticCases};
pub use order::MAX_CASES;

use self::case::{CaseList, CaseRef, Slot};
use self::order::Order;
use super::core::Core;
use super::error::GaveUp;
use super::limited::{Unreceived, Unsent};
use super::raw::{Dir, Peer};
use super::waiters::{Claim, Waiter};
use crate::sema::{Cancel, WaitError, WaitLimit};
use crate::shim::mark;
use crate::{G, Instant, ParkResult, goroutine};

/// The case that was done.
#[derive(Clone, Copy)]
pub struct Chosen {
    pub case: usize,
    /// It was done because its channel is closed: no value was received, or sent.
    pub closed: bool,
}

/// All that a select works on.
struct Selecting<'a, 's> {
    cases: &'s [CaseRef<'a>],
    order: Order<'s>,
}

/// Room for one waiter for each case. A pointer: while a waiter is in a queue others write to it.
#[derive(Clone, Copy)]
struct Waiters(*mut MaybeUninit<Waiter>);

impl Waiters {
    fn of(waiters: &mut [MaybeUninit<Waiter>]) -> Self {
        Self(waiters.as_mut_ptr())
    }

    /// # Safety
    ///
    /// The room is alive, has an `index`, and nothing uses what is there.
    unsafe fn make<'a>(self, index: usize, waiter: Waiter) -> &'a Waiter {
        // SAFETY: by the contract.
        unsafe { (*self.0.add(index)).write(waiter) }
    }

    /// # Safety
    ///
    /// The room is alive, and `make` has been called for this index.
    unsafe fn get<'a>(self, index: usize) -> &'a Waiter {
        // SAFETY: by the contract.
        unsafe { (*self.0.add(index)).assume_init_ref() }
    }
}

/// Polls once. Go's `select` with a `default`. The caller comes from a safepoint.
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
        select.lock_all();
        select.poll_and_unlock()
    });
    polled.map(Polled::wake)
}

/// What becomes of a single case, if a look at its channel tells.
#[inline(always)]
fn try_by_a_look(case: &CaseRef<'_>) -> Option<Option<Chosen>> {
    let state = case.channel?.raw().look();
    match case.dir {
        Dir::Send | Dir::Reserve => state.is_full_for_certain().then_some(None),
        Dir::Recv => {
            let closed = || state.is_at_its_end().then_some(Some(Chosen { case: 0, closed: true }));
            if state.is_empty_for_certain() { Some(None) } else { closed() }
        }
    }
}

/// Waits until a case can be done, or for the limit. Go's `select` without a `default`.
fn wait_select(
    cases: &[CaseRef<'_>],
    waiters: Waiters,
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
    select.lock_all();
    if let Some(polled) = select.poll() {
        select.unlock_all();
        return Ok(polled.wake());
    }
    let (g, claim) = (G::current(), Claim::new());
    // SAFETY: all is locked, and no case was ready; G and claim outlive the call.
    unsafe { select.wait(waiters, &g, &claim, limit.deadline) }
}

/// Does the first case that can be done when its turn comes. Locks one channel at a time, and none that cannot be ready.
#[inline]
fn try_each(cases: &[CaseRef<'_>], polls: &[u16]) -> Option<Polled> {
    // A single case needs one lock anyway.
    if polls.len() < 2 {
        return None;
    }
    polls.iter().find_map(|&index| try_one(cases, index))
}

/// Does the case, if that can be done, under its channel's lock alone.
#[inline]
fn try_one(cases: &[CaseRef<'_>], index: u16) -> Option<Polled> {
    let case = &cases[usize::from(index)];
    let raw = case.channel.expect("only what can be ready is polled").raw();
    let state = raw.glance();
    let fails = match case.dir {
        Dir::Send | Dir::Reserve => state.is_full_for_certain(),
        Dir::Recv => state.is_empty_for_certain(),
    };
    if fails {
        return None;
    }
    let mut locked = raw.lock();
    // SAFETY: as in `Selecting::poll`.
    let polled = unsafe { case.poll(&mut locked) };
    locked.unlock();
    let (closed, peer) = polled?;
    if !closed {
        // Before the waking, which may panic: the slot then drops what it has.
        // SAFETY: so it has been, just now.
        unsafe { case.moved() };
    }
    Some(Polled { chosen: Chosen { case: usize::from(index), closed }, peer })
}

/// A case that has been done, and the peer that is to be woken.
#[must_use = "the peer sleeps"]
struct Polled {
    chosen: Chosen,
    peer: Option<Peer>,
}

impl Polled {
    /// Wakes the peer, which may panic: the select is over before that. No lock is held.
    #[inline]
    fn wake(self) -> Chosen {
        if let Some(peer) = self.peer {
            // SAFETY: taken out by the poll, and woken once; not used after.
            unsafe { peer.wake() };
        }
        self.chosen
    }
}

impl Selecting<'_, '_> {
    fn lock_all(&self) {
        for raw in self.order.channels(self.cases) {
            raw.lock().keep();
        }
    }

    fn unlock_all(&self) {
        for raw in self.order.channels(self.cases) {
            raw.held().unlock();
        }
    }

    /// Does the first case that can be done. All channels are locked, and stay so.
    fn poll(&self) -> Option<Polled> {
        self.order.polls().find_map(|index| {
            let case = &self.cases[index];
            let mut locked = case.channel.expect("only what can be ready is polled").raw().held();
            // SAFETY: the lock is that of the case's channel; the caller keeps the slot, which has been moved to or from by
            // earlier cases only if they ended the poll.
            let polled = unsafe { case.poll(&mut locked) };
            locked.keep();
            let (closed, peer) = polled?;
            if !closed {
                // Before the waking, which may panic: the slot then drops what it has.
                // SAFETY: so it has been, just now.
                unsafe { case.moved() };
            }
            Some(Polled { chosen: Chosen { case: index, closed }, peer })
        })
    }

    fn poll_and_unlock(&self) -> Option<Polled> {
        let polled = self.poll();
        self.unlock_all();
        polled
    }

    /// All channels are locked, and stay so.
    ///
    /// # Safety
    ///
    /// - G, claim and waiters stay where they are, alive, until [`Selecting::leave_all`] has been called; and if the claim
    ///   was taken by a case or a cancel, until the G has been readied.
    /// - `waiters` are as many as the cases, and in no queue.
    unsafe fn queue_all(&self, waiters: Waiters, g: *const G, claim: *const Claim, is_task: bool) {
        for index in self.order.locks() {
            let case = &self.cases[index];
            // SAFETY: there is one for each case, and none is in a queue, by the contract.
            let waiter = unsafe { waiters.make(index, Waiter::of_case(g, case.slot, claim, index as u32, is_task)) };
            let mut locked = case.channel.expect("only what can be ready is queued").raw().held();
            // SAFETY: new; by the contract.
            unsafe { locked.enqueue(case.queue(is_task), waiter) };
            locked.keep();
        }
    }

    /// Takes out what is still in a queue. No peer touches a waiter or the claim after this, but the one that has taken the
    /// claim, until it has readied the G.
    ///
    /// # Safety
    ///
    /// `queue_all` has been called with these.
    unsafe fn leave_all(&self, waiters: Waiters) {
        for index in self.order.locks() {
            let case = &self.cases[index];
            // SAFETY: made by `queue_all`, and put into this queue.
            unsafe {
                let waiter = waiters.get(index);
                case.channel.expect("as in `queue_all`").raw().leave(waiter);
            }
        }
    }

    /// What the claim was taken by, of a G that has been readied and has left the queues: a case with its waiter, or a
    /// cancel.
    ///
    /// # Safety
    ///
    /// - `queue_all` has been called with these.
    /// - It is so.
    unsafe fn taken_by(&self, waiters: Waiters, claim: &Claim) -> Result<(usize, &Waiter), WaitError> {
        match claim.taken_by() {
            Claim::CANCELLED => Err(WaitError::Cancelled),
            // SAFETY: made by `queue_all`: only what was queued takes the claim with its number.
            case => Ok((case as usize, unsafe { waiters.get(case as usize) })),
        }
    }

    /// Queues, sleeps and leaves.
    ///
    /// # Safety
    ///
    /// - All channels are locked, and no case is ready. They are unlocked by this.
    /// - `waiters` are as many as the cases.
    /// - Nothing else has been told of this G but a cancel, with this claim.
    unsafe fn wait(
        &self,
        waiters: Waiters,
        g: &G,
        claim: &Claim,
        deadline: Option<Instant>,
    ) -> Result<Chosen, WaitError> {
        goroutine::note_wait(self.order.what(), std::ptr::null());
        // SAFETY: this frame is not left before `leave_all`, nor before the `ready` of what has taken the claim:
        // `park_queued_spinning` returns afterwards, and never unwinds.
        unsafe { self.queue_all(waiters, g, claim, false) };
        let leave = || claim.take(Claim::GIVEN_UP);
        if g.park_queued_spinning(deadline, || self.unlock_all(), leave) == ParkResult::TimedOut {
            // SAFETY: queued above.
            unsafe { self.leave_all(waiters) };
            return Err(WaitError::TimedOut);
        }
        // SAFETY: queued above; readied.
        unsafe {
            self.leave_all(waiters);
            let (case, waiter) = self.taken_by(waiters, claim)?;
            Ok(Chosen { case, closed: self.cases[case].settle(waiter) })
        }
    }

    #[cold]
    fn wait_cancellable(&self, waiters: Waiters, limit: &WaitLimit<'_>) -> Result<Chosen, WaitError> {
        let (g, claim) = (G::current(), Claim::new());
        // SAFETY: both outlive the entry, which is dropped before this frame is left; and nothing else readies this G but
        // what has taken this claim.
        let entry = pin!(limit.cancel.map(|cancel| unsafe { cancel.claim_registration(&claim, &g) }));
        if let Some(entry) = entry.as_ref().as_pin_ref()
            && !entry.enter()
        {
            return Err(WaitError::Cancelled);
        }
        self.lock_all();
        // Once more, under the locks: a waiter that has queued since the cancel is not to be served by this select.
        let is_cancelled = limit.cancel.is_some_and(Cancel::is_cancelled);
        let polled = if is_cancelled { Err(WaitError::Cancelled) } else { Ok(self.poll()) };
        if let Some(polled) = polled.transpose() {
            self.unlock_all();
            if is_cancelled {
                mark("a select finds under its locks that it is cancelled");
            }
            if !claim.take(Claim::AT_ONCE) {
                if !is_cancelled {
                    mark("a case is ready when the cancel comes");
                }
                g.await_ready(); // of the cancel
            }
            return polled.map(Polled::wake);
        }
        // SAFETY: locked; no case is ready; a cancel, with this claim.
        unsafe { self.wait(waiters, &g, &claim, limit.deadline) }
    }

    /// Gives up: leaves the queues. What a receive was given goes to the next receiver, and a place to the next sender.
    ///
    /// # Safety
    ///
    /// `queue_all` has been called with these, and the G has not returned from the wait.
    #[cold]
    unsafe fn give_up(&self, waiters: Waiters, g: &G, claim: &Claim) {
        if claim.take(Claim::GIVEN_UP) {
            mark("a select that gives up leaves its queues");
            // SAFETY: by the contract.
            return unsafe { self.leave_all(waiters) };
        }
        g.await_ready();
        // SAFETY: by the contract; readied.
        unsafe {
            self.leave_all(waiters);
            if let Ok((case, waiter)) = self.taken_by(waiters, claim) {
                self.cases[case].undo(waiter);
            }
        }
    }
}

/// The wait of a nil channel: for the limit, or for ever.
#[cold]
pub(super) fn nothing_comes(what: &'static str, limit: &WaitLimit<'_>) -> WaitError {
    let select = Selecting { cases: &[], order: Order::nothing(what) };
    let over = if limit.cancel.is_some() {
        select.wait_cancellable(Waiters::of(&mut []), limit)
    } else {
        // SAFETY: there is nothing to lock; nothing knows of this G.
        unsafe { select.wait(Waiters::of(&mut []), &G::current(), &Claim::new(), limit.deadline) }
    };
    match over {
        Ok(_) => unreachable!("there is no case"),
        Err(why) => why,
    }
}

/// A send that a cancel may end.
#[cold]
pub(super) fn send_cancellable<T>(core: &Core<T>, value: T, limit: &WaitLimit<'_>) -> Result<(), Unsent<T>> {
    let slot = Slot::new(value);
    let over = one_case(slot.case(Dir::Send, Some(core)), "chan send", limit);
    match (over, slot.take()) {
        (_, None) => Ok(()),
        (Ok(_), Some(value)) => Err(Unsent::Closed(value)),
        (Err(why), Some(value)) => Err(Unsent::GaveUp(GaveUp { value, why })),
    }
}

/// A receive that a cancel may end.
#[cold]
pub(super) fn recv_cancellable<T>(core: &Core<T>, limit: &WaitLimit<'_>) -> Result<T, Unreceived> {
    let slot = Slot::empty();
    let over = one_case(slot.case(Dir::Recv, Some(core)), "chan receive", limit);
    match (over, slot.take()) {
        (_, Some(value)) => Ok(value),
        (Ok(_), None) => Err(Unreceived::Closed),
        (Err(why), None) => Err(Unreceived::GaveUp(why)),
    }
}

fn one_case(case: CaseRef<'_>, what: &'static str, limit: &WaitLimit<'_>) -> Result<Chosen, WaitError> {
    goroutine::safepoint();
    let mut waiters = [MaybeUninit::uninit()];
    let select = Selecting { cases: &[case], order: Order::one(what) };
    select.wait_cancellable(Waiters::of(&mut waiters), limit)
}

/// The select of a macro: `N` cases in a list, on the stack. `N` is the list's length.
pub struct Static<const N: usize, L>(PhantomData<L>);

impl<const N: usize, L: CaseList> Static<N, L> {
    const FITS: () = assert!(L::LEN == N && N <= MAX_CASES);

    /// Waits for one of the cases.
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
            Ok(chosen) => list.output(chosen),
            Err(_) => unreachable!("no limit was set"),
        }
    }

    /// Waits for one of the cases, or for the limit.
    #[inline]
    #[track_caller]
    pub fn wait_limited(list: L, limit: &WaitLimit<'_>) -> Result<L::Output, WaitError> {
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
        let chosen = Self::choose(&list, limit)?;
        Ok(list.output(chosen))
    }

    /// Does one of the cases, all of which are channels.
    #[inline]
    fn choose(list: &L, limit: &WaitLimit<'_>) -> Result<Chosen, WaitError> {
        let () = Self::FITS;
        let (mut order, mut locks) = ([0; N], [0; N]);
        let mut waiters = [const { MaybeUninit::uninit() }; N];
        let mut cases = [CaseRef::NONE; N];
        list.describe(&mut cases);
        wait_select(&cases, Waiters::of(&mut waiters), &mut order, &mut locks, limit)
    }

    /// One of the cases, if one is ready.
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
                Some(over) => over.map(|chosen| list.output(chosen)),
                None => Self::try_apart(list),
            };
        }
        Self::try_with_locks(list)
    }

    /// Not inline: what is in memory here stays in registers in the caller, if a look is enough.
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
        Some(list.output(chosen))
    }
}
