//! Go's final mutex.
//!
//! The state word, and with it the whole protocol:
//!
//! ```text
//!   31                              3   2   1   0
//!  ┌─────────────────────────────────┬───┬───┬───┐
//!  │ waiters                         │ S │ W │ L │
//!  └─────────────────────────────────┴───┴───┴───┘
//! ```
//!
//! | bit | set means | set by | cleared by |
//! |---|---|---|---|
//! | L locked | somebody owns the mutex | its owner-to-be | its owner's unlock |
//! | W woken | one contender is awake and will see to the mutex: unlocks wake nobody | an unlock, for the waiter that it wakes; a contender, for itself; an heir that had claimed leaves it set, for its successor | that contender, as it locks, sleeps or gives up |
//! | S starving | newcomers may not lock: the mutex is promised | the contender with W, when it has waited too long | the one to whom the promise is kept; one with W that gives up; the last to leave |
//! | waiters | how many sleep, or are about to | a contender, before it sleeps | normal mode: the unlock that wakes one; starvation mode: the woken one itself, or an heir, for its successor; and one that gives up |
//!
//! | unlock leaves | and the mutex goes |
//! |---|---|
//! | waiters, no W, no S | to anybody: one waiter is woken, with W set for it, and competes |
//! | W, no S | to anybody: the one with W is awake |
//! | S, no W | to the first in line: the semaphore hands it over (L stays clear; S alone keeps others out) |
//! | S and W | to the one with W, who is awake and watches. Under [`Awake::StandBy`] only |
//!
//! Invariants: at most one contender has W. Only the one with W sets S. S implies a waiter, or W. In normal mode,
//! those who sleep are as many as `waiters` plus the permits released; in starvation mode, as many as `waiters`, and a
//! permit is released if and only if L and W are clear.
//!
//! Source: Go 1.28's `internal/sync/mutex.go`; `Awake::StandBy`, deadlines and the closed steal window are ours. The
//! orderings are argued in `docs/orderings.md`: in short, everything is decided on one word, so coherence orders it;
//! `Acquire` on what takes the mutex and `Release` on what frees it order the data.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use sudog_runtime::{AtomicU32, G, Instant, fatal, spin};

use super::policy::{Awake, Policy, Threads};
use crate::raw::{Order, RawLock, Semaphore, Wake};
use crate::semaphore::RuntimeSema;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

const LOCKED: u32 = 1;
const WOKEN: u32 = 2;
const STARVING: u32 = 4;
const WAITER: u32 = 8;
const MAX_WAITERS: u32 = u32::MAX / WAITER;

/// The Go mutex, bare: `lock` and `unlock` as in Go, over the semaphore `S`, under the policy `P`.
///
/// Eight bytes with the default semaphore. It is not owned by a thread: another one may unlock it. It is not
/// reentrant. For a mutex with data and guards see [`Mutex`](crate::Mutex).
///
/// Locking it is fair in the long run and greedy in the short: normally a newcomer may overtake those who wait; once
/// somebody has waited longer than the policy's threshold, nobody may.
///
/// # Examples
///
/// ```
/// use sudog_sync::GoMutex;
///
/// static MU: GoMutex = GoMutex::new();
///
/// MU.lock();
/// assert!(!MU.try_lock());
/// MU.unlock();
/// ```
///
/// # Limits
///
/// At most 2^29 - 1 contenders can sleep on one mutex. One more finds no room in the count, and polls until there is:
/// the count never runs into the flags.
pub struct GoMutex<S = RuntimeSema, P = Threads> {
    state: AtomicU32,
    sema: S,
    policy: PhantomData<P>,
}

/// A contender in the slow path.
#[derive(Default)]
struct Contender {
    /// When to give up.
    deadline: Option<Instant>,
    /// It has W.
    woken: bool,
    /// It has waited too long, and will claim the mutex as it goes to sleep. (`Awake::StandBy`: on one processor only;
    /// elsewhere it claims awake.)
    starving: bool,
    /// When it first went to sleep.
    since: Option<Instant>,
    /// `Awake::Spin`: rounds since it last woke.
    rounds: u32,
    /// `Awake::StandBy`: this thread has not lately kept a mutex from others, and has not slept in this wait: nothing
    /// suggests an owner who would lock again at once.
    quick: bool,
    /// `Awake::StandBy`: when it began to watch.
    watching: Option<Instant>,
    /// `Awake::StandBy`: when it claimed the mutex.
    claimed: Option<Instant>,
}

#[cfg(not(sudog_loom))]
impl GoMutex {
    /// An unlocked mutex over the default semaphore, under the default policy.
    #[must_use]
    pub const fn new() -> Self {
        Self::unlocked()
    }
}

#[cfg(not(sudog_loom))]
impl<S: crate::ConstSemaphore, P: Policy> GoMutex<S, P> {
    /// An unlocked mutex over any semaphore, under any policy.
    ///
    /// # Examples
    ///
    /// ```
    /// use sudog_sync::GoMutex;
    /// use sudog_sync::mutex::policy;
    /// use sudog_sync::semaphore::RuntimeSema;
    ///
    /// static MU: GoMutex<RuntimeSema, policy::Go> = GoMutex::unlocked();
    /// MU.lock();
    /// MU.unlock();
    /// ```
    #[must_use]
    pub const fn unlocked() -> Self {
        Self { state: AtomicU32::new(0), sema: S::EMPTY, policy: PhantomData }
    }
}

#[cfg(not(sudog_loom))]
impl<S: crate::ConstSemaphore, P: Policy> crate::ConstRawLock for GoMutex<S, P> {
    const UNLOCKED: Self = Self::unlocked();
}

impl<S: Semaphore, P: Policy> GoMutex<S, P> {
    /// Locks the mutex, waiting until it can. It is not reentrant: its owner would wait for itself.
    #[inline]
    pub fn lock(&self) {
        if !self.lock_fast() {
            self.lock_slow(None);
        }
    }

    /// Locks the mutex if it is neither locked nor promised to somebody who starves. As in Go, it may overtake waiters.
    ///
    /// # Examples
    ///
    /// ```
    /// let mu = sudog_sync::GoMutex::new();
    /// assert!(mu.try_lock());
    /// assert!(!mu.try_lock());
    /// # mu.unlock();
    /// ```
    #[inline]
    #[must_use]
    pub fn try_lock(&self) -> bool {
        let mut old = self.state.load(Relaxed);
        // A change elsewhere in the word is no reason to fail: unlike Go, we try again.
        while old & (LOCKED | STARVING) == 0 {
            match self.state.compare_exchange_weak(old, old | LOCKED, Acquire, Relaxed) {
                Ok(_) => return true,
                Err(now) => old = now,
            }
        }
        false
    }

    /// Locks the mutex unless `deadline` comes first; says whether it did. A deadline in the past makes it
    /// [`GoMutex::try_lock`], give or take a few microseconds of spinning.
    ///
    /// The deadline may be overrun by the time that an unlock takes which is under way at that moment and means us.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    ///
    /// let mu = sudog_sync::GoMutex::new();
    /// mu.lock();
    /// assert!(!mu.try_lock_until(Instant::now() + Duration::from_millis(1)));
    /// # mu.unlock();
    /// ```
    #[inline]
    #[must_use]
    pub fn try_lock_until(&self, deadline: Instant) -> bool {
        self.lock_fast() || self.lock_slow(Some(deadline))
    }

    /// [`GoMutex::try_lock_until`], from now. A timeout past the end of time waits for ever.
    #[cfg(not(sudog_loom))]
    #[must_use]
    pub fn try_lock_for(&self, timeout: Duration) -> bool {
        match Instant::now().checked_add(timeout) {
            Some(deadline) => self.try_lock_until(deadline),
            None => {
                self.lock(); // past the end of time
                true
            }
        }
    }

    /// Unlocks the mutex, whoever locked it.
    ///
    /// The next owner can run before this call returns, and this call still uses the mutex: it must not be freed until
    /// the call has returned. References and guards see to that, raw pointers do not. Under
    /// [`Threads`](super::policy::Threads) it may yield the processor.
    ///
    /// An unlocked mutex cannot be unlocked: that ends the process with Go's `fatal error: sync: unlock of unlocked
    /// mutex`, which nothing can recover from.
    #[inline]
    pub fn unlock(&self) {
        let new = self.state.fetch_sub(LOCKED, Release).wrapping_sub(LOCKED);
        if new != 0 {
            LATELY.with(|lately| lately.contended.set(true));
            if new & (LOCKED | WOKEN | STARVING) == WOKEN {
                give_way_at_times::<P>();
            } else {
                self.unlock_slow(new);
            }
        }
    }

    /// One compare-exchange, whether others wait or not: an owner who locks again while they sleep pays no more.
    ///
    /// Which one is a guess from this thread's last unlocks. To look at the word first would cost the uncontended path,
    /// as the load must wait for the unlock before it; to compare with 0 first, the contended one: `docs/performance.md`.
    #[inline(always)]
    fn lock_fast(&self) -> bool {
        let expect = |old| self.state.compare_exchange(old, old | LOCKED, Acquire, Relaxed).is_ok();
        LATELY.with(|lately| {
            // A model must not hang on what was before it.
            if !lately.contended.get() && !cfg!(sudog_loom) {
                return expect(0);
            }
            let old = self.state.load(Relaxed);
            lately.contended.set(old != 0);
            old & (LOCKED | STARVING) == 0 && expect(old)
        })
    }

    /// Whether somebody holds the mutex at this moment.
    #[inline]
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.state.load(Relaxed) & LOCKED != 0
    }

    /// How many sleep on the mutex, or are about to, at this moment. For tests and the curious.
    #[must_use]
    pub fn waiters(&self) -> u32 {
        self.state.load(Relaxed) / WAITER
    }

    /// Whether the mutex is in starvation mode at this moment. For tests and the curious.
    #[must_use]
    pub fn is_starving(&self) -> bool {
        self.state.load(Relaxed) & STARVING != 0
    }

    // ---- slow paths ---------------------------------------------------------------------------------------------

    /// False if the deadline came first.
    #[cold]
    fn lock_slow(&self, deadline: Option<Instant>) -> bool {
        let mut me = Contender { deadline, quick: is_quick::<P>(), ..Contender::default() };
        let mut old = self.state.load(Relaxed);
        loop {
            old = match P::AWAKE {
                Awake::Spin { rounds, pauses } => self.spin(old, &mut me, rounds, pauses),
                Awake::StandBy { grace } => self.stand_by(old, &mut me, grace),
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
                G::yield_now();
                old = self.state.load(Relaxed);
                continue;
            } else {
                let starving = if me.starving && old & LOCKED != 0 { STARVING } else { 0 };
                ((old + WAITER) | starving) & !if me.woken { WOKEN } else { 0 }
            };
            if me.woken && old & WOKEN == 0 {
                fatal("sync: inconsistent mutex state");
            }
            if let Err(now) = self.state.compare_exchange_weak(old, new, Acquire, Relaxed) {
                old = now;
                continue;
            }
            if succeeded {
                self.sema.release(Wake::Normal);
            }
            if free {
                return true;
            }
            if new / WAITER == old / WAITER {
                return false; // out of time; if we had W it is clear again, so the owner's unlock wakes the next
            }
            if !self.sleep(&mut me) {
                return false;
            }
            old = self.state.load(Relaxed);
            if old & STARVING != 0 {
                self.accept(old, &me);
                return true;
            }
            // In normal mode whoever woke us, an unlock or an heir, has set W for us and taken us off the count.
            me.woken = true;
        }
    }

    /// Sleeps until a permit comes. False if the deadline came first.
    fn sleep(&self, me: &mut Contender) -> bool {
        let standing_by = matches!(P::AWAKE, Awake::StandBy { .. });
        // At the head of the line: who has been there before; and an heir, who was first in line while it watched.
        let first = me.since.is_some() || (standing_by && me.woken);
        let order = if first { Order::Lifo } else { Order::Fifo };
        me.since.get_or_insert_with(Instant::now);
        let woken = match me.deadline {
            None => {
                self.sema.acquire(order);
                true
            }
            Some(deadline) => self.sema.acquire_until(order, deadline),
        };
        if !woken && self.leave() {
            return false;
        }
        (me.rounds, me.quick, me.watching, me.claimed) = (0, false, None, None);
        me.starving = !standing_by && (me.starving || me.has_waited(P::THRESHOLD));
        true
    }

    /// The mutex was handed to us in starvation mode: L is clear, and we are still counted as a waiter.
    fn accept(&self, mut old: u32, me: &Contender) {
        loop {
            if old & (LOCKED | WOKEN) != 0 || old / WAITER == 0 {
                fatal("sync: inconsistent mutex state");
            }
            // Go stays in starvation mode while those it hands to have waited too long. An heir's claim is for one
            // handoff. Either way, it ends with the last waiter.
            let over = old / WAITER == 1 || !me.starving || matches!(P::AWAKE, Awake::StandBy { .. });
            let new = (old - WAITER + LOCKED) & !if over { STARVING } else { 0 };
            // Nobody else may set L or clear S now, but one that gives up may take itself off the count. Acquire, as it
            // takes the mutex; the permit has ordered it already, so no model can tell.
            match self.state.compare_exchange_weak(old, new, Acquire, Relaxed) {
                Ok(_) => return,
                Err(now) => old = now,
            }
        }
    }

    /// Out of time, and no longer in line, but still counted: takes itself off the count, unless an unlock or an heir has
    /// done so already and means us. Then it takes that one's permit instead, and returns false.
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
                Ok(_) => return true,
                Err(now) => old = now,
            }
        }
    }

    /// `new` is what the unlock has left in the word.
    #[cold]
    fn unlock_slow(&self, new: u32) {
        if new.wrapping_add(LOCKED) & LOCKED == 0 {
            fatal("sync: unlock of unlocked mutex");
        }
        if new & STARVING != 0 {
            // The one with W, if there is one, is awake and sees that L is clear.
            if new & WOKEN == 0 {
                self.sema.release(Wake::Handoff);
            }
            return;
        }
        let mut old = new;
        // Nobody to wake, or somebody else sees to it: a new owner, one who is awake, or an heir's claim.
        while old / WAITER != 0 && old & (LOCKED | WOKEN | STARVING) == 0 {
            match self.state.compare_exchange_weak(old, (old - WAITER) | WOKEN, Relaxed, Relaxed) {
                Ok(_) => return self.sema.release(Wake::Normal),
                Err(now) => old = now,
            }
        }
    }

    // ---- awake --------------------------------------------------------------------------------------------------

    /// [`Awake::Spin`]. Returns the state to act on.
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

    /// [`Awake::StandBy`]. Returns the state to act on.
    fn stand_by(&self, mut old: u32, me: &mut Contender, grace: Duration) -> u32 {
        /// Pauses between two looks at the word: each look takes its cache line away from the owner. (A pause is 25 ns
        /// on the machine that this was measured on.)
        const SHORTEST: u32 = 8;
        const LONGEST: u32 = 256;
        /// As long as there are no more than so many, a quick contender takes the mutex as soon as it is free.
        const QUICK: u32 = 64;

        if !spin::can_spin(0, 1) {
            // One processor: while we watch, the owner does not run. Who has waited long enough claims the mutex asleep.
            me.starving |= me.has_waited(P::THRESHOLD);
            return old;
        }
        // A newcomer may be the heir if nobody is in line.
        while !me.woken && old & (LOCKED | WOKEN | STARVING) == LOCKED && old / WAITER == 0 {
            match self.state.compare_exchange_weak(old, old | WOKEN, Relaxed, Relaxed) {
                Ok(_) => {
                    me.woken = true;
                    old |= WOKEN;
                }
                Err(now) => old = now,
            }
        }
        let mut pauses = if me.quick { 1 } else { SHORTEST };
        while !me.woken
            && me.quick
            && pauses <= QUICK
            && !me.out_of_time()
            && old & (LOCKED | STARVING) == LOCKED
            && old / WAITER == 0
        {
            spin::do_spin(pauses); // there is an heir, but nobody sleeps yet
            pauses *= 2;
            old = self.state.load(Relaxed);
        }
        if !me.woken {
            return old;
        }
        let watching = *me.watching.get_or_insert_with(Instant::now);
        loop {
            let at_once = me.claimed.is_some() || (me.quick && pauses <= QUICK);
            if old & LOCKED == 0 && (at_once || self.looks_abandoned()) {
                return old;
            }
            spin::do_spin(pauses);
            if pauses < LONGEST {
                pauses *= 2;
            } else if me.claimed.is_none() {
                G::yield_now(); // to the owner, if it has been waiting for this processor all the while
            }
            let now = Instant::now();
            old = self.state.load(Relaxed);
            if me.out_of_time() {
                return old;
            }
            match me.claimed {
                None if now.saturating_duration_since(watching) >= P::THRESHOLD => {
                    match self.state.compare_exchange(old, old | STARVING, Relaxed, Relaxed) {
                        Ok(_) => {
                            old |= STARVING;
                            me.claimed = Some(now);
                            pauses = SHORTEST; // the mutex is nobody else's now: do not leave it lying
                        }
                        Err(now) => old = now, // and try again at the next look
                    }
                }
                Some(claimed) if now.saturating_duration_since(claimed) >= grace => return old, // tired
                _ => {}
            }
        }
    }

    /// Whether the mutex stays unlocked for longer than an owner needs who locks and unlocks in a loop.
    fn looks_abandoned(&self) -> bool {
        const LOOKS: u32 = if cfg!(sudog_loom) { 1 } else { 8 };
        const PAUSES: u32 = 4;
        (0..LOOKS).all(|_| {
            spin::do_spin(PAUSES);
            self.state.load(Relaxed) & LOCKED == 0
        })
    }
}

/// What this thread has lately seen of mutexes, whichever they were. Hints: nothing but speed hangs on them.
struct Lately {
    /// An unlock left somebody waiting, and no lock has found its mutex free of others since.
    contended: Cell<bool>,
    /// How many unlocks left somebody waiting awake, since it last had to wait itself. Under `Awake::StandBy` only.
    kept: Cell<u32>,
}

thread_local! {
    static LATELY: Lately = const { Lately { contended: Cell::new(false), kept: Cell::new(0) } };
}

/// An owner has unlocked a mutex that somebody awake is waiting for, and may be about to lock it again. Once in a few
/// thousand times it lets its processor run somebody else: the one who waits may have been put there behind it, and the
/// scheduler would leave it there for milliseconds.
#[inline(always)]
fn give_way_at_times<P: Policy>() {
    const TIMES: u32 = 8192;
    // A model must not hang on how often it ran before.
    if let (Awake::StandBy { .. }, false) = (P::AWAKE, cfg!(sudog_loom)) {
        LATELY.with(|lately| {
            lately.kept.set(lately.kept.get().wrapping_add(1));
            if lately.kept.get() % TIMES == 0 {
                give_way();
            }
        });
    }
}

/// Whether this thread, which must wait now, has *not* kept a mutex from somebody for many turns since it last waited.
/// Those who do so meet others who do. Starts the count anew.
fn is_quick<P: Policy>() -> bool {
    const TURNS: u32 = 64;
    // A model must not hang on what was before it.
    matches!(P::AWAKE, Awake::StandBy { .. })
        && !cfg!(sudog_loom)
        && LATELY.with(|lately| lately.kept.replace(0)) < TURNS
}

#[cold]
fn give_way() {
    G::yield_now();
}

impl Contender {
    fn has_waited(&self, threshold: Duration) -> bool {
        self.since.is_some_and(|since| Instant::now().saturating_duration_since(since) > threshold)
    }

    fn out_of_time(&self) -> bool {
        self.deadline.is_some_and(|d| Instant::now() >= d)
    }
}

// SAFETY: L is set by one contender at a time: by a compare-exchange from a state without it, or by `accept`, for which
// the semaphore grants one permit while S keeps everybody else from setting it. `docs/orderings.md` has the rest.
unsafe impl<S: Semaphore, P: Policy> RawLock for GoMutex<S, P> {
    /// Nothing to remember, and any thread may unlock, as in Go.
    type Guard = ();

    const DEADLINES: bool = S::DEADLINES;

    fn new() -> Self {
        Self { state: AtomicU32::new(0), sema: S::new(0), policy: PhantomData }
    }

    #[inline]
    fn lock(&self) {
        Self::lock(self);
    }

    #[inline]
    fn try_lock(&self) -> Option<()> {
        Self::try_lock(self).then_some(())
    }

    #[inline]
    fn try_lock_until(&self, deadline: Instant) -> Option<()> {
        Self::try_lock_until(self, deadline).then_some(())
    }

    #[inline]
    unsafe fn unlock(&self, (): ()) {
        Self::unlock(self);
    }

    #[inline]
    fn is_locked(&self) -> bool {
        Self::is_locked(self)
    }
}

#[cfg(not(sudog_loom))]
impl<S: crate::ConstSemaphore, P: Policy> Default for GoMutex<S, P> {
    fn default() -> Self {
        Self::unlocked()
    }
}

impl<S, P> fmt::Debug for GoMutex<S, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.load(Relaxed);
        f.debug_struct("GoMutex")
            .field("locked", &(state & LOCKED != 0))
            .field("woken", &(state & WOKEN != 0))
            .field("starving", &(state & STARVING != 0))
            .field("waiters", &(state / WAITER))
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(sudog_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_crowd_does_not_run_into_the_flags() {
        fn check<P: Policy>() {
            let mu = GoMutex::<RuntimeSema, P>::unlocked();
            let full = LOCKED | (MAX_WAITERS * WAITER);
            mu.state.store(full, Relaxed);
            assert!(!mu.try_lock_for(Duration::from_millis(5)));
            assert_eq!(mu.state.load(Relaxed), full, "one more than can be counted must not be counted");
            std::thread::scope(|s| {
                let patient = s.spawn(|| mu.lock());
                mu.state.fetch_sub(full, Relaxed); // everybody is gone; if `patient` has W already, it keeps it
                patient.join().unwrap();
            });
            assert!(mu.is_locked());
        }
        check::<Threads>();
        check::<super::super::policy::Go>();
    }
}

#[cfg(all(test, sudog_loom))]
mod model {
    use super::super::policy::Go;
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    /// One accepts what is handed to it while another gives up. To get there by itself a model would need more
    /// preemptions than it can explore, so S is put in where a starving waiter might have set it.
    #[test]
    fn one_accepts_while_another_gives_up() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(|| {
            sudog_runtime::model::set_clock(2_000_000); // everybody has waited too long
            let mu: Arc<GoMutex<RuntimeSema, Go>> = Arc::new(RawLock::new());
            mu.lock();
            let turn = |deadline: Option<Instant>| {
                let mu = mu.clone();
                thread::spawn(move || {
                    if deadline.is_none_or(|d| mu.try_lock_until(d)) {
                        if deadline.is_none() {
                            mu.lock();
                        }
                        mu.unlock();
                    }
                })
            };
            let patient = turn(None);
            let hasty = turn(Some(Instant::now() + Duration::from_secs(1)));
            thread::yield_now();
            let both = LOCKED + 2 * WAITER;
            if mu.state.compare_exchange(both, both | STARVING, Relaxed, Relaxed).is_err() {
                loom::skip_branch(); // the two have not come that far, which other models explore
            }
            mu.unlock();
            patient.join().unwrap();
            hasty.join().unwrap();
            assert_eq!(mu.state.load(Relaxed), 0);
        });
    }
}
