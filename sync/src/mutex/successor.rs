//! [`SpinStrategy::Successor`]: a single thread watches the mutex, and claims the mutex after a threshold. Ours, not
//! Go's.
//!
//! | step | the contender | until |
//! |---|---|---|
//! | 1 | becomes the successor (takes WOKEN), if there is neither a waiter nor a designated waker | at once |
//! | 2 | if another contender is the successor: spins, if this contender spins eagerly, and if no contender sleeps, or the mutex is mostly free, or the contender was away for long. Then sleeps | the mutex is free, or a few microseconds have passed |
//! | 3 | as the successor: watches the mutex, at growing intervals | the mutex is free, and the owner seems to have left it |
//! | 4 | after the threshold: claims the mutex (sets STARVING), and watches on | the mutex is free |
//! | 5 | after the grace period, too: stops watching, and sleeps at the head of the queue | the unlock hands the mutex over |

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use sudog_runtime::event::Kind;
use sudog_runtime::sema::lock_counts::STARVATIONS;
use sudog_runtime::shim::mark;
use sudog_runtime::shim::system;
use sudog_runtime::{Instant, spin};

use super::contender::Patience;
use super::contention_hint::{TurnsHint, note_waiting};
use super::go_mutex::GoMutex;
use super::policy::Policy;
#[cfg(doc)]
use super::policy::SpinStrategy;
use super::state::State;
use super::yielding::yield_as_successor;
use crate::raw::Semaphore;

/// The least number of pauses between two looks at the state word: each look takes the cache line of the word away from
/// the owner. (A pause is 25 ns on the machine of the measurement.)
const MIN_PAUSES: u32 = 8;
const MAX_PAUSES: u32 = 256;
/// The most pauses between two looks at which an eager contender still takes the mutex as soon as the mutex is free.
const MAX_EAGER_PAUSES: u32 = 64;

/// A contender that is the successor, or would be.
pub(super) struct Successor {
    /// The time for which the successor watches after its claim.
    grace: Duration,
    /// The advice from the thread's last turns; [`TurnsHint::NONE`] if the contender has slept in this wait. A contender
    /// that spins eagerly takes the mutex as soon as the mutex is free: nothing suggests that the owner would lock the
    /// mutex again at once.
    last_turns: TurnsHint,
    /// The time at which the contender began to watch.
    watch_start: Option<Instant>,
    /// The time at which the contender claimed the mutex.
    claimed_at: Option<Instant>,
}

impl Successor {
    pub(super) fn new(grace: Duration, last_turns: TurnsHint) -> Self {
        Self { grace, last_turns, watch_start: None, claimed_at: None }
    }

    pub(super) fn has_watched(&self) -> bool {
        self.watch_start.is_some()
    }

    pub(super) fn restart(&mut self) {
        note_waiting(system::now());
        *self = Self::new(self.grace, TurnsHint::NONE);
    }

    /// Returns whether the contender locks the free mutex without first waiting whether the owner locks again.
    fn locks_at_once(&self, pauses: u32) -> bool {
        self.claimed_at.is_some() || (self.last_turns.spins_eagerly() && pauses <= MAX_EAGER_PAUSES)
    }
}

impl<S: Semaphore, P: Policy> GoMutex<S, P> {
    /// Waits as the successor, or beside the successor. Returns the state to act on.
    pub(super) fn wait_as_successor(
        &self,
        state: State,
        successor: &mut Successor,
        patience: &Patience<'_>,
        designated: &mut bool,
    ) -> State {
        let state = if *designated { state } else { self.become_successor(state, designated) };
        let pauses = if successor.last_turns.spins_eagerly() { 1 } else { MIN_PAUSES };
        if *designated {
            self.watch(state, successor, patience, pauses)
        } else if successor.last_turns.spins_eagerly() {
            self.spin_beside_successor(state, successor, patience, pauses)
        } else {
            state
        }
    }

    /// Takes WOKEN, if the mutex has neither a waiter nor a designated waker.
    fn become_successor(&self, mut state: State, designated: &mut bool) -> State {
        while state.wants_successor() {
            match self.state.compare_exchange_weak(state, state.designate_self(), Relaxed, Relaxed) {
                Ok(_) => {
                    *designated = true;
                    return state.designate_self();
                }
                Err(now) => state = now,
            }
        }
        state
    }

    /// Spins for a few microseconds beside another contender, which is the successor. The successor may be a waiter
    /// that an unlock has woken, and that waits for a processor.
    fn spin_beside_successor(
        &self,
        mut state: State,
        successor: &Successor,
        patience: &Patience<'_>,
        mut pauses: u32,
    ) -> State {
        let (mut has_waited, mut beside_sleepers) = (false, successor.last_turns.spins_beside_sleepers());
        while pauses <= MAX_EAGER_PAUSES
            && patience.over().is_none()
            && state.is_locked_in_normal_mode()
            && (beside_sleepers || !state.has_waiters() || successor.last_turns.has_long_turns())
        {
            beside_sleepers |= state.has_waiters();
            if !has_waited {
                note_waiting(system::now());
                has_waited = true;
            }
            spin::do_spin(pauses);
            pauses *= 2;
            state = self.state.load(Relaxed);
        }
        state
    }

    /// Watches the mutex, as the successor, until the mutex is free or the time is over.
    fn watch(&self, mut state: State, successor: &mut Successor, patience: &Patience<'_>, mut pauses: u32) -> State {
        let watch_start = *successor.watch_start.get_or_insert_with(system::now);
        let mut now = watch_start;
        loop {
            // Lock the mutex if the mutex is free, and the owner is not about to lock again.
            if !state.is_locked() && (successor.locks_at_once(pauses) || self.stays_unlocked()) {
                return state;
            }

            // Pause, twice as long each time. Then yield, as the owner may be waiting for this processor.
            note_waiting(now);
            spin::do_spin(pauses);
            if pauses < MAX_PAUSES {
                pauses *= 2;
            } else if successor.claimed_at.is_none() {
                yield_as_successor(system::now());
            }
            now = system::now();
            state = self.state.load(Relaxed);

            // Stop watching at the limit.
            if patience.over().is_some() {
                return state;
            }
            match successor.claimed_at {
                // Claim the mutex after the threshold.
                None if now.saturating_duration_since(watch_start) >= patience.threshold => {
                    state = self.state.claim(Relaxed);
                    self.report_if(true, Kind::StarvingEnter);
                    STARVATIONS.add_if(true);
                    successor.claimed_at = Some(now);
                    pauses = MIN_PAUSES; // no other contender may lock now: do not leave the mutex idle
                }
                // Stop watching after the grace period: the owner holds the mutex for long.
                Some(claimed_at) if now.saturating_duration_since(claimed_at) >= successor.grace => {
                    mark("a successor stops watching");
                    return state;
                }
                _ => {}
            }
        }
    }

    /// Returns whether the mutex stays unlocked for longer than an owner that locks and unlocks in a loop would leave
    /// the mutex unlocked.
    fn stays_unlocked(&self) -> bool {
        const LOOKS: u32 = if cfg!(sudog_loom) { 1 } else { 8 };
        const PAUSES: u32 = 4;
        (0..LOOKS).all(|_| {
            spin::do_spin(PAUSES);
            !self.state.load(Relaxed).is_locked()
        })
    }
}
