//! The slow path of `lock`: from the first failure to the lock, or to the limit. `state.rs` has the protocol.
//!
//! | step | action | for a thread or goroutine | for an async task |
//! |---|---|---|---|
//! | 1 | [`contend`](GoMutex::contend): locks the mutex, registers as a waiter, or gives up at the limit | `lock_slow` | `LockFuture::poll` |
//! | 2 | sleeps on the semaphore, registered as a waiter | `sleep` | `S::Acquire` |
//! | 3 | [`after_wakeup`](GoMutex::after_wakeup): accepts the mutex; or is the designated waker, and goes back to 1 | `lock_slow` | `LockFuture::poll` |
//! | at any time | [`cancel`](GoMutex::cancel): gives up for good, and passes on the permit or the mutex that the contender has been given | | `LockFuture::drop` |

use std::mem;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::Duration;

use sudog_runtime::event::{self, Kind};
use sudog_runtime::sema::lock_counts::{SPIN_WINS, STARVATIONS};
use sudog_runtime::sema::{Cancel, WaitError, WaitLimit};
use sudog_runtime::shim::mark;
use sudog_runtime::{G, Instant, fatal, spin};

use super::contender::{Contender, Step, Strategy};
use super::go_mutex::GoMutex;
use super::policy::Policy;
use super::state::State;
use crate::now;
use crate::raw::{Order, Semaphore, Wake};

impl<S: Semaphore, P: Policy> GoMutex<S, P> {
    /// Locks the mutex unless a limit comes first. The limits are two arguments, so that the callers need no memory for them.
    #[cold]
    pub(super) fn lock_slow(&self, deadline: Option<Instant>, cancel: Option<&Cancel>) -> Result<(), WaitError> {
        if P::EVENTS {
            event::prepare();
        }
        let me = &mut Contender::current::<P>(WaitLimit { deadline, cancel });
        let locked = loop {
            match self.contend(me) {
                Step::Locked => break Ok(()),
                Step::GivesUp(why) => break Err(why),
                Step::Sleep(order) => {
                    let woken = self.sleep(me, order);
                    if woken.is_err() || self.after_wakeup(me) {
                        break woken;
                    }
                }
                Step::TooManyWaiters => G::yield_now(),
            }
        };
        if locked.is_err() {
            // Run a safepoint: a caller that polls must let an owner run that is a goroutine of the same worker.
            sudog_runtime::safepoint();
        }
        locked
    }

    /// Step 1: locks the mutex, gives up, or registers as a waiter. Each of these is a single compare-exchange, tried
    /// until the exchange succeeds.
    #[inline]
    pub(super) fn contend(&self, me: &mut Contender<'_>) -> Step {
        let mut state = self.state.load(Relaxed);
        loop {
            // Spin, or watch the mutex as its successor, as the strategy says.
            state = self.wait_awake(state, me);

            // The designated waker alone clears WOKEN.
            if me.designated && !state.is_woken() {
                fatal("sync: inconsistent mutex state");
            }

            // Lock the mutex if the mutex is free, or promised to this contender.
            if state.is_lockable_by(me.designated) {
                // A successor that had to claim the mutex designates the next waiter as it locks. If the successor's
                // unlock designated that waiter instead, the displaced owner, which is awake, would have the mutex back
                // during the system call.
                let designates_waiter = me.designated && state.is_starving() && state.has_waiters();
                let new = if designates_waiter {
                    state.lock_and_designate_waiter()
                } else if me.designated {
                    state.lock_as_designated()
                } else {
                    state.lock()
                };
                if !self.change(&mut state, new) {
                    continue;
                }
                self.report_lock(me, state);
                self.report_mode(state, new);
                if designates_waiter {
                    self.wake_designated(me);
                }
                return Step::Locked;
            }

            // Give up if the limit has come. Clear WOKEN as the designated waker, so that the owner's unlock wakes the
            // next waiter.
            if let Some(why) = me.patience.over() {
                let new = state.give_up(me.designated);
                if !self.change(&mut state, new) {
                    continue;
                }
                self.report_mode(state, new);
                return Step::GivesUp(why);
            }

            // Try again later if MAX_WAITERS are registered: the count has no room.
            if state.is_full() {
                return Step::TooManyWaiters;
            }

            // Register as a waiter, then sleep. Clear WOKEN as the designated waker. Set STARVING if this contender has
            // waited too long and the mutex is locked; but not beside another designated waker: that waker is on the
            // way, the waker's permit may not have been released yet, and the waker itself may claim the mutex.
            let may_starve = me.designated || !state.is_woken();
            let new = state.register(me.designated, me.starving && may_starve && state.is_locked());
            if !self.change(&mut state, new) {
                continue;
            }
            self.report_mode(state, new);
            return Step::Sleep(me.prepare_sleep::<P>());
        }
    }

    /// Changes the state from `*state` to `new`. If that fails, `*state` is the state to look at next.
    #[inline(always)]
    fn change(&self, state: &mut State, new: State) -> bool {
        match self.state.compare_exchange_weak(*state, new, Acquire, Relaxed) {
            Ok(_) => true,
            Err(now) => {
                *state = now;
                false
            }
        }
    }

    /// Spins, or watches the mutex, before the contender sleeps. Returns the state to act on.
    #[inline(always)]
    fn wait_awake(&self, state: State, me: &mut Contender<'_>) -> State {
        match &mut me.strategy {
            Strategy::Spin(spinner) => self.spin(state, spinner, &mut me.designated),
            Strategy::Successor(_) if !spin::can_spin(0, 1) => {
                // There is one processor: while a contender watches, the owner does not run. So sleep, and claim the
                // mutex by going to sleep.
                me.starving |= me.patience.is_exhausted();
                state
            }
            Strategy::Successor(successor) => {
                self.wait_as_successor(state, successor, &me.patience, &mut me.designated)
            }
        }
    }

    /// Wakes the waiter that is the designated waker from now on. The caller is a successor that has locked the mutex,
    /// and has passed WOKEN to that waiter.
    fn wake_designated(&self, me: &mut Contender<'_>) {
        mark("a successor locks the mutex that it has claimed");
        me.designated = false;
        // The waker of an async task is user code. If that waker panics, no caller learns that the mutex is locked.
        let unlock = UnlockOnPanic(self);
        // Grant the permit to the first sleeper. The displaced owner is about to sleep on the same semaphore. If the
        // permit were left in the semaphore, the displaced owner would take that permit, and two contenders would take
        // turns while the others sleep.
        self.sema.release(Wake::Grant);
        mem::forget(unlock);
    }

    /// Step 2: sleeps until a permit comes. Returns the limit, if the limit has come first.
    fn sleep(&self, me: &Contender<'_>, order: Order) -> Result<(), WaitError> {
        if P::EVENTS && self.steals() {
            return Ok(());
        }
        let limit = &me.patience.limit;
        let woken = self.deadlock_owner.while_waiting("sync.Mutex.Lock", || {
            if limit.deadline.is_some() || limit.cancel.is_some() {
                return self.sema.acquire_limited(order, limit);
            }
            self.sema.acquire(order);
            Ok(())
        });
        if woken.is_err() && !self.unregister() { Ok(()) } else { woken }
    }

    /// Step 3: acts on the permit of the waiter. Returns true if the mutex has been handed over with the permit.
    #[inline]
    pub(super) fn after_wakeup(&self, me: &mut Contender<'_>) -> bool {
        me.wake_up();
        let state = self.state.load(Relaxed);
        if state.is_starving() {
            self.accept_handoff(state, me);
            return true;
        }
        // In normal mode the unlock, or the successor, that woke this waiter has set WOKEN for the waiter, and
        // unregistered the waiter.
        me.designated = true;
        false
    }

    /// Locks the mutex that has been handed to the waiter: LOCKED is clear, STARVING keeps others out, and the waiter
    /// is still registered.
    fn accept_handoff(&self, mut state: State, me: &Contender<'_>) {
        loop {
            if !state.is_handed_over() {
                fatal("sync: inconsistent mutex state");
            }
            // End starvation mode if this waiter is the last, or has not waited too long, as Go does; or if the policy
            // limits the mode to one handoff.
            let ends_starvation =
                state.waiters() == 1 || !me.starving || (P::ONE_HANDOFF_IF_IDLE && spin::is_processor_idle());
            // Other contenders can only register and unregister now. Acquire, as this step takes the mutex. The permit
            // has ordered this step already, so no model can detect a weaker ordering here.
            let new = state.accept_handoff(ends_starvation);
            match self.state.compare_exchange_weak(state, new, Acquire, Relaxed) {
                Ok(_) => {
                    mark("the mutex is handed over");
                    return self.report_if(ends_starvation, Kind::StarvingExit);
                }
                Err(now) => {
                    mark("a waiter unregisters while another accepts the mutex");
                    state = now;
                }
            }
        }
    }

    /// Unregisters a waiter whose limit has come, and that has left the semaphore's queue. Returns true if the waiter
    /// has been unregistered. Returns false if the waiter has a permit: an unlock, or a successor, had picked this
    /// waiter.
    #[cold]
    fn unregister(&self) -> bool {
        let mut state = self.state.load(Relaxed);
        loop {
            // Take the permit if no other contender sleeps: the permit can only be for this waiter.
            if state.owes_permit_to_last_sleeper() {
                mark("a waiter that gives up must take a permit");
                // The releaser is between its step on the state and its step on the semaphore. Sleep meanwhile, as the
                // releaser may need this processor. If a newcomer has registered and taken the permit, unregister in
                // the newcomer's place.
                let now = now();
                let soon = now.checked_add(Duration::from_millis(1)).unwrap_or(now); // in a bubble, no later time may exist
                if self.sema.acquire_until(Order::Lifo, soon) {
                    return false;
                }
                G::yield_now();
                state = self.state.load(Relaxed);
                continue;
            }

            // Unregister. The last waiter ends starvation mode.
            let new = state.unregister();
            match self.state.compare_exchange_weak(state, new, Relaxed, Relaxed) {
                Ok(_) => {
                    mark("a waiter that gives up unregisters");
                    self.report_if(state.is_starving() && !new.is_starving(), Kind::StarvingExit);
                    return true;
                }
                Err(now) => state = now,
            }
        }
    }

    /// Gives up at any point of the slow path. The contender must have left the semaphore's queue. If the contender has
    /// the mutex, unlocks the mutex; otherwise ends the wait as at a limit. So a permit, or the mutex, that the
    /// contender has been given goes to the next contender.
    #[cold]
    pub(super) fn cancel(&self, me: &mut Contender<'_>) {
        if me.registered && self.unregister() {
            return;
        }
        if me.registered && self.after_wakeup(me) {
            mark("a cancelled contender has the mutex");
            return self.unlock();
        }
        mark("a cancelled contender is awake");
        me.time_out();
        match self.contend(me) {
            Step::Locked => self.unlock(),
            Step::GivesUp(_) => {}
            Step::Sleep(_) | Step::TooManyWaiters => unreachable!("it is out of time"),
        }
    }
}

/// A guard that unlocks the mutex if the wake-up of the next waiter panics. Used by a successor that has just locked
/// the mutex: see `wake_designated`.
struct UnlockOnPanic<'a, S: Semaphore, P: Policy>(&'a GoMutex<S, P>);

impl<S: Semaphore, P: Policy> Drop for UnlockOnPanic<'_, S, P> {
    #[cold]
    fn drop(&mut self) {
        self.0.unlock();
    }
}

// ---- events ---------------------------------------------------------------------------------------------------------

impl<S: Semaphore, P: Policy> GoMutex<S, P> {
    /// Records an event of the kind `kind`, if `happened` is true. The event has the semaphore's address, as the
    /// semaphore's own events have.
    #[inline(always)]
    pub(super) fn report_if(&self, happened: bool, kind: Kind) {
        if happened {
            mark(kind.name());
        }
        if P::EVENTS && happened {
            event::record(kind, std::ptr::from_ref(&self.sema).addr(), 0);
        }
    }

    /// Reports that [`GoMutex::contend`] has locked the mutex, which was in the state `old`.
    fn report_lock(&self, me: &Contender<'_>, old: State) {
        if me.patience.first_slept_at.is_none() {
            let has_waited = me.strategy.has_waited();
            self.report_if(has_waited, Kind::SpinWin);
            SPIN_WINS.add_if(has_waited);
            self.report_if(!has_waited && old.has_waiters(), Kind::Barge);
        }
    }

    /// Reports that [`GoMutex::contend`] has turned starvation mode on or off, if it has.
    fn report_mode(&self, old: State, new: State) {
        self.report_if(!old.is_starving() && new.is_starving(), Kind::StarvingEnter);
        STARVATIONS.add_if(!old.is_starving() && new.is_starving());
        self.report_if(old.is_starving() && !new.is_starving(), Kind::StarvingExit);
    }

    /// Takes a permit that is meant for another contender, and returns true, if two conditions hold: the contender is
    /// about to sleep in starvation mode, and the semaphore would let the contender take that permit. Taking the permit
    /// here lets the caller record the theft.
    fn steals(&self) -> bool {
        let state = self.state.load(Relaxed);
        let cannot_hand_over = !S::HANDOFF || P::HANDOFF == Wake::Normal;
        let steals = cannot_hand_over && state.is_starving() && state.waiters() > 1 && self.sema.try_acquire();
        self.report_if(steals, Kind::StolenToken);
        steals
    }
}
