//! Select with timers among its cases, by a goroutine or a thread. (In a task, and beside other futures, a timer is a
//! future: `future.rs`.)
//!
//! | step | description |
//! |---|---|
//! | look | try each channel and each timer, in a shuffled order, and do the first case that can be done |
//! | register | with each timer, and with the limit's cancel, by the same [`Claim`] |
//! | look again | at the times for which the timers are set: this look sees each earlier change, and a later change takes the claim |
//! | lock, poll, queue, park | as without timers (`mod.rs`), until the first of these times, or the limit |
//! | wake | if a peer has done a case, the select is over. If a time has come, or a timer has changed, begin anew |
//!
//! So the select itself sleeps until the time of a timer: no alarm is set. A select that begins anew has left its
//! queues.

use std::cell::Cell;
use std::pin::pin;

use super::case::{CaseList, CaseRef};
use super::order::Order;
use super::{Chosen, Polled, Selecting, Static, WaiterRoom, finish, try_one, try_select};
use crate::chan::waiters::Claim;
use crate::goroutine::{Times, now};
use crate::sema::{Cancel, IntoLimit, WaitError, WaitLimit};
use crate::{G, Instant, goroutine};

/// A case that is a timer.
#[derive(Clone, Copy)]
pub struct TimerRef<'a> {
    pub(in crate::chan) times: &'a Times,
    /// The cell that gets the received time.
    pub(in crate::chan) received: &'a Cell<Option<Instant>>,
}

/// The cases, by index: as cases of channels, and as timers.
#[derive(Clone, Copy)]
struct Timed<'a, 's> {
    cases: &'s [CaseRef<'a>],
    timers: &'s [Option<TimerRef<'a>>],
}

impl Timed<'_, '_> {
    /// Does the first case, in a shuffled order, that can be done when its turn comes.
    fn look(&self, polls: &mut [u16]) -> Option<Polled> {
        let wanted = |index: usize, case: &CaseRef<'_>| case.raw.is_some() || self.timers[index].is_some();
        Order::shuffle_those(self.cases, polls, wanted).iter().find_map(|&index| {
            let case = usize::from(index);
            let Some(timer) = self.timers[case] else { return try_one(self.cases, index) };
            timer.received.set(Some(timer.times.receive()?));
            Some(Polled { chosen: Chosen { case, closed: false }, peer: None })
        })
    }

    /// Waits until a case has been done, or until the limit. `what` names the wait in reports.
    fn wait(
        &self,
        waiters: &[WaiterRoom],
        polls: &mut [u16],
        locks: &mut [u16],
        limit: &WaitLimit<'_>,
        what: &'static str,
    ) -> Result<Chosen, WaitError> {
        goroutine::safepoint();
        loop {
            if let Some(polled) = self.look(polls) {
                return Ok(polled.wake());
            }
            let shuffled = Order::shuffle(self.cases, polls);
            let select = Selecting { cases: self.cases, order: Order::new(self.cases, shuffled, locks).called(what) };
            match self.wait_once(&select, waiters, limit) {
                Some(Ok(chosen)) => return Ok(chosen),
                Some(Err(WaitError::Cancelled)) if limit.cancel.is_some_and(Cancel::is_cancelled) => {
                    return Err(WaitError::Cancelled);
                }
                Some(Err(WaitError::TimedOut)) if limit.deadline.is_some_and(|deadline| deadline <= now()) => {
                    // Look again: a timer may be set for the same time.
                    return self.look(polls).map(Polled::wake).ok_or(WaitError::TimedOut);
                }
                // A time has come, or a timer has changed: begin anew.
                _ => {}
            }
        }
    }

    /// Does the steps `register` to `park` once (see the head of this file). Returns `None` if the time of a timer has
    /// come before the wait.
    fn wait_once(
        &self,
        select: &Selecting<'_, '_>,
        waiters: &[WaiterRoom],
        limit: &WaitLimit<'_>,
    ) -> Option<Result<Chosen, WaitError>> {
        let (g, claim) = (G::current(), Claim::new());
        let cancels = limit.cancel.into_iter().chain(self.timers.iter().flatten().map(|timer| timer.times.changed()));
        with_registered(cancels, &claim, &g, &mut || {
            let due = self.timers.iter().flatten().filter_map(|timer| timer.times.due()).min();
            let at_once = if limit.cancel.is_some_and(Cancel::is_cancelled) {
                Some(Err(WaitError::Cancelled))
            } else if due.is_some_and(|due| due <= now()) {
                None
            } else {
                let locked = select.lock_all();
                let Some(polled) = locked.poll() else {
                    let deadline = limit.deadline.into_iter().chain(due).min();
                    // SAFETY: the cancels that know of this G take this claim. Nothing else uses `waiters`.
                    return Some(unsafe { locked.wait(waiters, &g, &claim, deadline) });
                };
                locked.unlock();
                Some(Ok(polled))
            };
            if !claim.take(Claim::AT_ONCE) {
                g.await_ready(); // wait for the `ready` of the cancel or the changed timer
            }
            at_once.map(|polled| polled.map(Polled::wake))
        })
    }
}

/// Runs `f` while the claim is registered with all of `cancels`.
fn with_registered<'c, R>(
    mut cancels: impl Iterator<Item = &'c Cancel> + Clone,
    claim: &Claim,
    g: &G,
    f: &mut dyn FnMut() -> R,
) -> R {
    let Some(cancel) = cancels.next() else { return f() };
    // SAFETY: `claim` and `g` outlive the entry. The taker of the claim readies the G, once, and nothing else readies
    // the G: the callers guarantee that, and wait for that `ready`.
    let entry = pin!(unsafe { cancel.claim_registration(claim, g) });
    // Ignore the result: `f` sees a cancel that has come already.
    entry.as_ref().enter();
    with_registered(cancels, claim, g, f)
}

/// Waits for a timer. `what` names the wait in reports.
pub(crate) fn recv(times: &Times, what: &'static str) -> Instant {
    let received = Cell::new(None);
    let timed = Timed { cases: &[CaseRef::NONE], timers: &[Some(TimerRef { times, received: &received })] };
    let limit = WaitLimit::default();
    match timed.wait(&[WaiterRoom::new()], &mut [0], &mut [0], &limit, what) {
        Ok(_) => received.take().expect("the one case was chosen"),
        Err(_) => unreachable!("no limit was set"),
    }
}

impl<const N: usize, L: CaseList> Static<N, L> {
    /// Waits for cases among which are timers: see [`Static::wait_limited`].
    #[track_caller]
    pub(super) fn wait_timed<I: IntoLimit>(list: L, limit: I) -> Result<L::Output, I::Error> {
        let (mut polls, mut locks) = ([0; N], [0; N]);
        let waiters = [const { WaiterRoom::new() }; N];
        let (mut cases, mut timers) = ([CaseRef::NONE; N], [None; N]);
        list.describe(&mut cases);
        list.timers(&mut timers);
        let timed = Timed { cases: &cases, timers: &timers };
        let wait = |limit: &WaitLimit<'_>| timed.wait(&waiters, &mut polls, &mut locks, limit, "select");
        let chosen = limit.limited(wait)?;
        Ok(finish(list, chosen))
    }

    /// Does a case that is ready, where timers are among the cases: see [`Static::try_now`]. The caller comes from a
    /// safepoint.
    #[track_caller]
    pub(super) fn try_timed(list: L) -> Option<L::Output> {
        let (mut polls, mut locks) = ([0; N], [0; N]);
        let (mut cases, mut timers) = ([CaseRef::NONE; N], [None; N]);
        list.describe(&mut cases);
        list.timers(&mut timers);
        let polled = Timed { cases: &cases, timers: &timers }.look(&mut polls).map(Polled::wake);
        let chosen = polled.or_else(|| try_select(&cases, &mut polls, &mut locks))?;
        Some(finish(list, chosen))
    }
}
