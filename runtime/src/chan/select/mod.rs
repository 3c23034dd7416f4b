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
    /// True if the case was done because its channel is closed: no value was received, or sent.
    pub closed: bool,
}

/// The cases of a select, and their orders.
struct Selecting<'a, 's> {
    cases: &'s [CaseRef<'a>],
    order: Order<'s>,
}

/// A pointer to the room for a waiter of each case. Not a reference, because peers write to a waiter while it is
/// queued.
#[derive(Clone, Copy)]
struct Waiters(*mut MaybeUninit<Waiter>);

impl Waiters {
    fn of(waiters: &mut [MaybeUninit<Waiter>]) -> Self {
        Self(waiters.as_mut_ptr())
    }

    /// # Safety
    ///
    /// The room is alive, `index` is in the room, and nothing uses the waiter at `index`.
    unsafe fn make<'a>(self, index: usize, waiter: Waiter) -> &'a Waiter {
        // SAFETY: the room is alive, contains `index`, and nothing uses the waiter there, by the contract of this
        // function.
        unsafe { (*self.0.add(index)).write(waiter) }
    }

    /// # Safety
    ///
    /// The room is alive, and `make` has been called for this index.
    unsafe fn get<'a>(self, index: usize) -> &'a Waiter {
        // SAFETY: the room is alive, and `make` has written the waiter at `index`, by the contract of this function.
        unsafe { (*self.0.add(index)).assume_init_ref() }
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
        select.lock_all();
        select.poll_and_unlock()
    });
    polled.map(Polled::wake)
}

/// Tries to decide a single case by a load of its channel's state. Returns `Some(None)` if the case is not ready, and
/// `None` if the load does not decide.
#[inline(always)]
fn try_by_a_look(case: &CaseRef<'_>) -> Option<Option<Chosen>> {
    let raw = case.channel?.raw();
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
    // SAFETY: all channels are locked, and no case was ready. `waiters` has room for each case. No waker knows of `g`,
    // and `g` and `claim` outlive the call.
    unsafe { select.wait(waiters, &g, &claim, limit.deadline) }
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
    let case = &cases[usize::from(index)];
    let raw = case.channel.expect("only what can be ready is polled").raw();
    let (state, capacity) = (raw.glance(), raw.capacity());
    let fails = match case.dir {
        Dir::Send | Dir::Reserve => state.is_full_for_certain(capacity),
        Dir::Recv => state.is_empty_for_certain(),
    };
    if fails {
        return None;
    }
    let mut locked = raw.lock();
    // SAFETY: `locked` is the lock of the case's channel. The caller keeps the slot alive. No earlier case has been
    // done: a case that is done ends the search.
    let polled = unsafe { case.poll(&mut locked) };
    locked.unlock();
    let (closed, peer) = polled?;
    if !closed {
        // Update the slot before the peer is woken, which may panic: the slot then drops its value.
        // SAFETY: the slot is alive, and `poll` has moved a value into or out of the slot.
        unsafe { case.moved() };
    }
    Some(Polled { chosen: Chosen { case: usize::from(index), closed }, peer })
}

/// A case that has been done, and the peer that must be woken.
#[must_use = "the peer sleeps"]
struct Polled {
    chosen: Chosen,
    peer: Option<Peer>,
}

impl Polled {
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

    /// Does the first case that can be done. All channels are locked, and stay locked.
    fn poll(&self) -> Option<Polled> {
        self.order.polls().find_map(|index| {
            let case = &self.cases[index];
            let mut locked = case.channel.expect("only what can be ready is polled").raw().held();
            // SAFETY: `locked` is the lock of the case's channel. The caller keeps the slot alive. No earlier case has
            // been done: a case that is done ends the poll.
            let polled = unsafe { case.poll(&mut locked) };
            locked.keep();
            let (closed, peer) = polled?;
            if !closed {
                // Update the slot before the peer is woken, which may panic: the slot then drops its value.
                // SAFETY: the slot is alive, and `poll` has moved a value into or out of the slot.
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

    /// Queues a waiter for each case. All channels are locked, and stay locked.
    ///
    /// # Safety
    ///
    /// - The G, the claim and the waiters stay alive and in place until [`Selecting::leave_all`] has been called; and,
    ///   if a case or a cancel has taken the claim, until the G has been readied.
    /// - `waiters` has room for each case, and none of these waiters is in a queue.
    unsafe fn queue_all(&self, waiters: Waiters, g: *const G, claim: *const Claim, is_task: bool) {
        for index in self.order.locks() {
            let case = &self.cases[index];
            // SAFETY: the room has a waiter for each case, and none of these waiters is in a queue, by the contract of
            // this function.
            let waiter = unsafe { waiters.make(index, Waiter::of_case(g, case.slot, claim, index as u32, is_task)) };
            let mut locked = case.channel.expect("only what can be ready is queued").raw().held();
            // SAFETY: `waiter` is new, so no queue contains it. The waiter, its G and its claim stay alive and in place
            // until `leave_all` and the `ready` of the claim's taker, by the contract of this function.
            unsafe { locked.enqueue(case.queue(is_task), waiter) };
            locked.keep();
        }
    }

    /// Takes out all waiters that are still in a queue. After this, only the taker of the claim touches a waiter or the
    /// claim, until it has readied the G.
    ///
    /// # Safety
    ///
    /// `queue_all` has been called with these waiters.
    unsafe fn leave_all(&self, waiters: Waiters) {
        for index in self.order.locks() {
            let case = &self.cases[index];
            // SAFETY: `queue_all` has made the waiter, and has put the waiter into a queue of this channel.
            unsafe {
                let waiter = waiters.get(index);
                case.channel.expect("as in `queue_all`").raw().leave(waiter);
            }
        }
    }

    /// Returns the taker of the claim: a case with its waiter, or a cancel as an error. The G has been readied, and its
    /// waiters have left the queues.
    ///
    /// # Safety
    ///
    /// - `queue_all` has been called with these waiters.
    /// - The G has been readied, and `leave_all` has been called.
    unsafe fn taken_by(&self, waiters: Waiters, claim: &Claim) -> Result<(usize, &Waiter), WaitError> {
        match claim.taken_by() {
            Claim::CANCELLED => Err(WaitError::Cancelled),
            // SAFETY: `queue_all` has made the waiter of this case, because only a queued waiter takes the claim with
            // its number.
            case => Ok((case as usize, unsafe { waiters.get(case as usize) })),
        }
    }

    /// Queues the waiters, sleeps until the claim is taken, and takes the waiters out of the queues.
    ///
    /// # Safety
    ///
    /// - All channels are locked, and no case is ready. This call unlocks the channels.
    /// - `waiters` has room for each case.
    /// - No waker knows of this G, except cancels that take this claim.
    unsafe fn wait(
        &self,
        waiters: Waiters,
        g: &G,
        claim: &Claim,
        deadline: Option<Instant>,
    ) -> Result<Chosen, WaitError> {
        goroutine::note_wait(self.order.what(), std::ptr::null());
        // SAFETY: this frame stays until `leave_all`, and until the `ready` of the claim's taker:
        // `park_queued_spinning` returns only afterwards, and never unwinds.
        unsafe { self.queue_all(waiters, g, claim, false) };
        let leave = || claim.take(Claim::GIVEN_UP);
        if g.park_queued_spinning(deadline, || self.unlock_all(), leave) == ParkResult::TimedOut {
            // SAFETY: the waiters were queued above.
            unsafe { self.leave_all(waiters) };
            return Err(WaitError::TimedOut);
        }
        // SAFETY: the waiters were queued above, and the G has been readied.
        unsafe {
            self.leave_all(waiters);
            let (case, waiter) = self.taken_by(waiters, claim)?;
            Ok(Chosen { case, closed: self.cases[case].settle(waiter) })
        }
    }

    #[cold]
    fn wait_cancellable(&self, waiters: Waiters, limit: &WaitLimit<'_>) -> Result<Chosen, WaitError> {
        let (g, claim) = (G::current(), Claim::new());
        // SAFETY: `claim` and `g` outlive the entry, which is dropped before this frame ends. Only the taker of this
        // claim readies this G, and this function waits for that `ready`.
        let entry = pin!(limit.cancel.map(|cancel| unsafe { cancel.claim_registration(&claim, &g) }));
        if let Some(entry) = entry.as_ref().as_pin_ref()
            && !entry.enter()
        {
            return Err(WaitError::Cancelled);
        }
        self.lock_all();
        // Check again under the locks: this select must not serve a waiter that has queued since the cancel.
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
                g.await_ready(); // wait for the `ready` of the cancel
            }
            return polled.map(Polled::wake);
        }
        // SAFETY: all channels are locked, and no case is ready. `waiters` has room for each case. The cancel, if there
        // is one, takes this claim before it readies this G; no other waker knows of this G.
        unsafe { self.wait(waiters, &g, &claim, limit.deadline) }
    }

    /// Gives up: takes the waiters out of their queues. If a receive has been given a value, that value goes to the
    /// next receiver. If a send has been given a place, that place goes to the next sender.
    ///
    /// # Safety
    ///
    /// `queue_all` has been called with these waiters, and the G has not returned from the wait.
    #[cold]
    unsafe fn give_up(&self, waiters: Waiters, g: &G, claim: &Claim) {
        if claim.take(Claim::GIVEN_UP) {
            mark("a select that gives up leaves its queues");
            // SAFETY: `queue_all` has been called with these waiters, by the contract of this function.
            return unsafe { self.leave_all(waiters) };
        }
        g.await_ready();
        // SAFETY: `queue_all` has been called with these waiters, by the contract of this function, and the G has been
        // readied.
        unsafe {
            self.leave_all(waiters);
            if let Ok((case, waiter)) = self.taken_by(waiters, claim) {
                self.cases[case].undo(waiter);
            }
        }
    }
}

/// Waits on a nil channel: until the limit, or for ever without a limit.
#[cold]
pub(super) fn nothing_comes(what: &'static str, limit: &WaitLimit<'_>) -> WaitError {
    let select = Selecting { cases: &[], order: Order::nothing(what) };
    let over = if limit.cancel.is_some() {
        select.wait_cancellable(Waiters::of(&mut []), limit)
    } else {
        // SAFETY: there is no channel to lock, and no case. No waker knows of this G.
        unsafe { select.wait(Waiters::of(&mut []), &G::current(), &Claim::new(), limit.deadline) }
    };
    match over {
        Ok(_) => unreachable!("there is no case"),
        Err(why) => why,
    }
}

/// Sends a value, with a limit that may contain a cancel.
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

/// Receives a value, with a limit that may contain a cancel.
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
            Ok(chosen) => list.output(chosen),
            Err(_) => unreachable!("no limit was set"),
        }
    }

    /// Waits until a case has been done, or until the limit.
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

    /// Waits until a case has been done, or until the limit. All cases are channels.
    #[inline]
    fn choose(list: &L, limit: &WaitLimit<'_>) -> Result<Chosen, WaitError> {
        let () = Self::FITS;
        let (mut order, mut locks) = ([0; N], [0; N]);
        let mut waiters = [const { MaybeUninit::uninit() }; N];
        let mut cases = [CaseRef::NONE; N];
        list.describe(&mut cases);
        wait_select(&cases, Waiters::of(&mut waiters), &mut order, &mut locks, limit)
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
                Some(over) => over.map(|chosen| list.output(chosen)),
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
        Some(list.output(chosen))
    }
}
