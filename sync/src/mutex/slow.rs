//! The slow paths: what a contender does from its first failure to its lock, and what an unlock does that leaves
//! somebody waiting. `go_mutex.rs` has the state word and the protocol.
//!
//! | step | what | for a thread or goroutine | for an async task |
//! |---|---|---|---|
//! | 1 | [`contend`](GoMutex::contend): changes the word until it has the mutex, must sleep, or gives up | `lock_slow` | `LockFuture::poll` |
//! | 2 | sleeps on the semaphore, counted as a waiter | `sleep` | `S::Acquire` |
//! | 3 | [`rise`](GoMutex::rise): accepts the mutex, or has W, and goes back to 1 | `lock_slow` | `LockFuture::poll` |
//! | at any time | [`abandon`](GoMutex::abandon): gives up for good, and passes on what it has been given | unwound while it sleeps | `LockFuture::drop` |

use std::mem;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::Duration;

use sudog_runtime::event::{self, Kind};
use sudog_runtime::shim::mark;
use sudog_runtime::{G, Instant, fatal, spin};

use super::go_mutex::{GoMutex, LOCKED, MAX_WAITERS, STARVING, WAITER, WOKEN};
use super::hints;
use super::policy::{Policy, SpinStrategy};
use crate::raw::{Order, Semaphore, Wake};

/// A contender in the slow path.
pub(super) struct Contender {
    /// How it waits while it is awake.
    awake: SpinStrategy,
    /// How long is too long.
    pub(super) threshold: Duration,
    /// When to give up.
    deadline: Option<Instant>,
    /// It has W.
    pub(super) woken: bool,
    /// It is counted as a waiter, or has been taken off the count by the one who releases its permit.
    asleep: bool,
    /// It has waited too long, and will claim the mutex as it goes to sleep. (`SpinStrategy::Successor`: on one processor only;
    /// elsewhere it claims awake.)
    pub(super) starving: bool,
    /// When it first went to sleep.
    since: Option<Instant>,
    /// `SpinStrategy::Spin`: rounds since it last woke.
    rounds: u32,
    /// `SpinStrategy::Successor`: this thread has not lately kept a mutex from others, and has not slept in this wait: nothing
    /// suggests an owner who would lock again at once.
    pub(super) quick: bool,
    /// `SpinStrategy::Successor`: when it began to watch.
    pub(super) watching: Option<Instant>,
    /// `SpinStrategy::Successor`: when it claimed the mutex.
    pub(super) claimed: Option<Instant>,
}

/// What [`GoMutex::contend`] has come to.
pub(super) enum Step {
    /// It has the mutex.
    Locked,
    /// Out of time. If it had W, that is clear again, so the owner's unlock wakes the next.
    GaveUp,
    /// It is counted as a waiter, and must sleep.
    Sleep(Order),
    /// There is no room in the count. It must try again, later.
    Crowded,
}

impl Contender {
    /// The calling thread or goroutine.
    fn here<P: Policy>(deadline: Option<Instant>) -> Self {
        const {
            assert!(
                matches!(P::GOROUTINE_STRATEGY, SpinStrategy::Spin { .. }),
                "a goroutine that stood by would keep others from running"
            );
        }
        let me = if G::is_goroutine() {
            Self::new(P::GOROUTINE_STRATEGY, P::GOROUTINE_THRESHOLD)
        } else {
            let quick = matches!(P::STRATEGY, SpinStrategy::Successor { .. }) && hints::is_quick();
            Self { quick, ..Self::new(P::STRATEGY, P::THRESHOLD) }
        };
        Self { deadline, ..me }
    }

    /// An async task: its executor has others to poll.
    pub(super) fn task<P: Policy>() -> Self {
        Self::new(SpinStrategy::NONE, P::GOROUTINE_THRESHOLD)
    }

    fn new(awake: SpinStrategy, threshold: Duration) -> Self {
        Self {
            awake,
            threshold,
            deadline: None,
            woken: false,
            asleep: false,
            starving: threshold.is_zero() && matches!(awake, SpinStrategy::Spin { .. }),
            since: None,
            rounds: 0,
            quick: false,
            watching: None,
            claimed: None,
        }
    }

    fn stands_by(&self) -> bool {
        matches!(self.awake, SpinStrategy::Successor { .. })
    }

    pub(super) fn has_waited(&self, threshold: Duration) -> bool {
        self.since.is_some_and(|since| Instant::now().saturating_duration_since(since) > threshold)
    }

    pub(super) fn out_of_time(&self) -> bool {
        self.deadline.is_some_and(|d| Instant::now() >= d)
    }

    /// It has been counted as a waiter. Where does it join the line?
    fn falls_asleep<P: Policy>(&mut self) -> Order {
        // At the head: who has been there before; and an heir, who was first in line while it watched.
        let first = P::LIFO && (self.since.is_some() || (self.stands_by() && self.woken));
        self.since.get_or_insert_with(Instant::now);
        (self.asleep, self.woken) = (true, false);
        if first { Order::Lifo } else { Order::Fifo }
    }

    /// It has a permit.
    fn wakes_up(&mut self) {
        self.asleep = false;
        (self.rounds, self.quick, self.watching, self.claimed) = (0, false, None, None);
        self.starving = !self.stands_by() && (self.starving || self.has_waited(self.threshold));
    }
}

impl<S: Semaphore, P: Policy> GoMutex<S, P> {
    /// False if the deadline came first.
    #[cold]
    #[track_caller]
    pub(super) fn lock_slow(&self, deadline: Option<Instant>) -> bool {
        crate::relock::wait(|| self.wait_for_lock(deadline))
    }

    fn wait_for_lock(&self, deadline: Option<Instant>) -> bool {
        // A goroutine that is unwound leaves its sleep by a panic.
        if P::EVENTS {
            event::prepare();
        }
        let mut abandoned = Abandoned { mutex: self, me: Contender::here::<P>(deadline) };
        let me = &mut abandoned.me;
        let locked = loop {
            match self.contend(me) {
                Step::Locked => break true,
                Step::GaveUp => break false,
                Step::Sleep(order) => {
                    if !self.sleep(me, order) {
                        break false;
                    }
                    if self.rise(me) {
                        break true;
                    }
                }
                Step::Crowded => G::yield_now(),
            }
        };
        mem::forget(abandoned);
        if !locked {
            sudog_runtime::safepoint(); // who polls must not keep the owner out, if it is a goroutine of the same worker
        }
        locked
    }

    /// Changes the word until that has come to something: one loop of compare-exchanges, with [`SpinStrategy`] before each.
    #[inline]
    pub(super) fn contend(&self, me: &mut Contender) -> Step {
        let mut old = self.state.load(Relaxed);
        loop {
            old = match me.awake {
                SpinStrategy::Spin { rounds, pauses } => self.spin(old, me, rounds, pauses),
                SpinStrategy::Successor { grace } => self.stand_by(old, me, grace),
            };
            // With W and S both set, the promise is to the one with W.
            let free = old & LOCKED == 0 && (old & STARVING == 0 || me.woken);
            // An heir that had to claim the mutex wakes the next one as it takes it. Were that left to its unlock, the
            // displaced owner, who is awake, would have the mutex back during the system call.
            let succeeded = free && me.woken && old & STARVING != 0 && old / WAITER != 0;
            let new = if succeeded {
                ((old | LOCKED) & !STARVING) - WAITER // and W passes to the next one
            } else if free {
                (old | LOCKED) & !if me.woken { WOKEN | STARVING } else { 0 }
            } else if me.out_of_time() {
                old & !if me.woken { WOKEN | STARVING } else { 0 }
            } else if old / WAITER == MAX_WAITERS {
                return Step::Crowded;
            } else {
                // Somebody else's W: an unlock has promised nothing yet, but its permit is on the way, and so is the one who
                // is awake. It may claim the mutex itself.
                let may_claim = me.woken || old & WOKEN == 0;
                let starving = if me.starving && may_claim && old & LOCKED != 0 { STARVING } else { 0 };
                ((old + WAITER) | starving) & !if me.woken { WOKEN } else { 0 }
            };
            if me.woken && old & WOKEN == 0 {
                fatal("sync: inconsistent mutex state");
            }
            if let Err(now) = self.state.compare_exchange_weak(old, new, Acquire, Relaxed) {
                old = now;
                continue;
            }
            if P::EVENTS || cfg!(sudog_loom) {
                self.report_step(me, old, new, free);
            }
            if succeeded {
                mark("an heir takes what it has claimed");
                me.woken = false;
                let locked = Locked(self);
                self.sema.release(Wake::Normal);
                mem::forget(locked);
            }
            return if free {
                Step::Locked
            } else if new / WAITER == old / WAITER {
                Step::GaveUp
            } else {
                Step::Sleep(me.falls_asleep::<P>())
            };
        }
    }

    /// Sleeps until a permit comes. False if the deadline came first.
    fn sleep(&self, me: &mut Contender, order: Order) -> bool {
        if P::EVENTS && self.steals() {
            return true;
        }
        let woken = self.owner.while_waiting(|| match me.deadline {
            None => {
                self.sema.acquire(order);
                true
            }
            Some(deadline) => self.sema.acquire_until(order, deadline),
        });
        woken || !self.leave()
    }

    /// Has a permit. Whether the mutex has been handed over with it.
    #[inline]
    pub(super) fn rise(&self, me: &mut Contender) -> bool {
        me.wakes_up();
        let old = self.state.load(Relaxed);
        if old & STARVING != 0 {
            self.accept(old, me);
            return true;
        }
        // In normal mode whoever woke us, an unlock or an heir, has set W for us and taken us off the count.
        me.woken = true;
        false
    }

    /// The mutex was handed to us in starvation mode: L is clear, and we are still counted as a waiter.
    fn accept(&self, mut old: u32, me: &Contender) {
        loop {
            if old & (LOCKED | WOKEN) != 0 || old / WAITER == 0 {
                fatal("sync: inconsistent mutex state");
            }
            // Go stays in starvation mode while those it hands to have waited too long. An heir's claim is for one
            // handoff. Either way, it ends with the last waiter.
            let over = old / WAITER == 1 || !me.starving || me.stands_by();
            let new = (old - WAITER + LOCKED) & !if over { STARVING } else { 0 };
            // Nobody else may set L or clear S now, but one that gives up may take itself off the count. Acquire, as it
            // takes the mutex; the permit has ordered it already, so no model can tell.
            match self.state.compare_exchange_weak(old, new, Acquire, Relaxed) {
                Ok(_) => {
                    mark("the mutex is handed over");
                    return self.report_if(over, Kind::StarvingExit);
                }
                Err(now) => {
                    mark("another gives up while the mutex is accepted");
                    old = now;
                }
            }
        }
    }

    /// Out of time, and no longer in line, but still counted: takes itself off the count, unless an unlock or an heir
    /// has done so already and means us. Then it takes that one's permit instead, and returns false.
    #[cold]
    fn leave(&self) -> bool {
        let mut old = self.state.load(Relaxed);
        loop {
            // Each of those who sleep is counted, or has a permit under way to it. If we are the only one left, and
            // there is a permit, it is ours.
            let mine = match old & STARVING {
                0 => old / WAITER == 0,
                _ => old / WAITER == 1 && old & (LOCKED | WOKEN) == 0,
            };
            if mine {
                mark("who gives up has to take a permit");
                // The releaser is between its step on the word and its step on the semaphore; or a newcomer has counted
                // itself since and taken the permit, and its place in the count is ours to leave. Asleep, in case the
                // releaser needs our processor.
                if self.sema.acquire_until(Order::Lifo, Instant::now() + Duration::from_millis(1)) {
                    return false;
                }
                G::yield_now();
                old = self.state.load(Relaxed);
                continue;
            }
            let nobody_left = (old - WAITER) / WAITER == 0 && old & WOKEN == 0;
            let new = (old - WAITER) & !if nobody_left { STARVING } else { 0 };
            match self.state.compare_exchange_weak(old, new, Relaxed, Relaxed) {
                Ok(_) => {
                    mark("who gives up leaves");
                    self.report_if(nobody_left && old & STARVING != 0, Kind::StarvingExit);
                    return true;
                }
                Err(now) => old = now,
            }
        }
    }

    /// The contender gives up, wherever it is, but no longer stands in the semaphore's line. What it has been given
    /// goes to whoever is next: as if it were out of time, or else as if it had the mutex and unlocked it.
    #[cold]
    pub(super) fn abandon(&self, me: &mut Contender) {
        if me.asleep && self.leave() {
            return;
        }
        let handed_over = me.asleep && self.rise(me);
        mark(if handed_over { "who is dropped has the mutex" } else { "who is dropped is awake" });
        if !handed_over {
            (me.awake, me.deadline) = (SpinStrategy::NONE, Some(Instant::now()));
            match self.contend(me) {
                Step::Locked => {}
                Step::GaveUp => return,
                Step::Sleep(_) | Step::Crowded => unreachable!("it is out of time"),
            }
        }
        self.unlock();
    }

    /// `new` is what the unlock has left in the word.
    #[cold]
    pub(super) fn unlock_slow(&self, new: u32) {
        if new.wrapping_add(LOCKED) & LOCKED == 0 {
            fatal("sync: unlock of unlocked mutex");
        }
        if new & STARVING != 0 {
            // The one with W, if there is one, is awake and sees that L is clear.
            if new & WOKEN == 0 {
                self.sema.release(P::HANDOFF);
            }
            return;
        }
        let mut old = new;
        // Nobody to wake, or somebody else sees to it: a new owner, one who is awake, or an heir's claim.
        while old / WAITER != 0 && old & (LOCKED | WOKEN | STARVING) == 0 {
            match self.state.compare_exchange_weak(old, (old - WAITER) | WOKEN, Relaxed, Relaxed) {
                Ok(_) => {
                    mark("an unlock wakes a waiter");
                    return self.sema.release(Wake::Normal);
                }
                Err(now) => old = now,
            }
        }
    }

    /// [`SpinStrategy::Spin`]. Returns the state to act on.
    fn spin(&self, mut old: u32, me: &mut Contender, rounds: u32, pauses: u32) -> u32 {
        while old & (LOCKED | STARVING) == LOCKED && spin::can_spin(me.rounds, rounds) {
            // Tell the owner's unlock that it need not wake anybody: we are awake.
            if !me.woken && old & WOKEN == 0 && old / WAITER != 0 {
                me.woken = self.state.compare_exchange(old, old | WOKEN, Relaxed, Relaxed).is_ok();
            }
            spin::do_spin(pauses);
            me.rounds += 1;
            old = self.state.load(Relaxed);
        }
        old
    }
}

// ---- events ---------------------------------------------------------------------------------------------------------

impl<S: Semaphore, P: Policy> GoMutex<S, P> {
    /// The semaphore's address, so that what it reports itself is known to be of the same mutex.
    #[inline(always)]
    pub(super) fn report_if(&self, happened: bool, kind: Kind) {
        if happened {
            mark(kind.name());
        }
        if P::EVENTS && happened {
            event::record(kind, std::ptr::from_ref(&self.sema).addr(), 0);
        }
    }

    /// What a step of [`GoMutex::contend`] is to others.
    fn report_step(&self, me: &Contender, old: u32, new: u32, free: bool) {
        if free && me.since.is_none() {
            let has_spun = me.rounds > 0 || me.watching.is_some();
            self.report_if(has_spun, Kind::SpinWin);
            self.report_if(!has_spun && old / WAITER != 0, Kind::Barge);
        }
        self.report_if(new & STARVING > old & STARVING, Kind::StarvingEnter);
        self.report_if(old & STARVING > new & STARVING, Kind::StarvingExit);
    }

    /// Whether we, who are about to sleep in starvation mode, can take at once what is meant for others: so we do, as the
    /// semaphore would have, too.
    fn steals(&self) -> bool {
        let state = self.state.load(Relaxed);
        let cannot_hand_over = !S::HANDOFF || P::HANDOFF == Wake::Normal;
        let steals = cannot_hand_over && state & STARVING != 0 && state / WAITER > 1 && self.sema.try_acquire();
        self.report_if(steals, Kind::StolenToken);
        steals
    }
}

/// An heir that has the mutex, and is about to wake its successor: if that is an async task, by a waker, which may
/// panic.
struct Locked<'a, S: Semaphore, P: Policy>(&'a GoMutex<S, P>);

impl<S: Semaphore, P: Policy> Drop for Locked<'_, S, P> {
    #[cold]
    fn drop(&mut self) {
        self.0.unlock();
    }
}

/// A contender whose goroutine is being unwound.
struct Abandoned<'a, S: Semaphore, P: Policy> {
    mutex: &'a GoMutex<S, P>,
    me: Contender,
}

impl<S: Semaphore, P: Policy> Drop for Abandoned<'_, S, P> {
    #[cold]
    fn drop(&mut self) {
        self.mutex.abandon(&mut self.me);
    }
}
