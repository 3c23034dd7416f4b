//! Version 5: the word says whether a contender is awake to lock the mutex, so that unlocks wake one waiter at a time.
//!
//! ```text
//!   31                                  2   1   0
//!  ┌─────────────────────────────────────┬───┬───┐
//!  │ waiters                             │ W │ L │
//!  └─────────────────────────────────────┴───┴───┘
//! ```
//!
//! | bit | set by | cleared by |
//! |---|---|---|
//! | `LOCKED` (L) | the contender that locks the mutex | the owner's unlock |
//! | `WOKEN` (W) | an unlock, for the waiter that is woken; a spinning contender, for itself, if others sleep | that contender, when it locks the mutex or sleeps |
//! | waiters | + 1: a contender that sleeps | - 1: the unlock that wakes a waiter |
//!
//! At most one contender has WOKEN, because WOKEN is set only in steps from states without WOKEN. An unlock that finds
//! WOKEN set wakes no waiter: the contender that has WOKEN is awake and will look after this unlock, as the next step
//! of that contender on the word comes later.
//!
//! Orderings: the step that sets LOCKED is an Acquire, and the step that clears LOCKED is a Release. All steps are RMWs
//! of the same word.
//!
//! Source: Version #5. Go commit dd2074c82a (2011), and with the spinning edcad8639a (2015): Go's mutex from 1.5 to
//! 1.8.

use std::fmt;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use sudog_runtime::{AtomicU32, spin};

use crate::raw::{Order, RawLock, Semaphore, Wake};
use crate::semaphore::RuntimeSema;

const LOCKED: u32 = 1;
const WOKEN: u32 = 2;
const WAITER: u32 = 4;

/// A mutex that has a flag, a count, and a bit by which unlocks know that a contender is awake.
///
/// At most 2^30 - 1 contenders can sleep.
///
/// # Examples
///
/// ```
/// use sudog::study::stages::V5;
/// use sudog::sync::MutexWith;
///
/// static NAMES: MutexWith<V5, Vec<&str>> = MutexWith::new(Vec::new());
/// NAMES.lock().push("woken");
/// ```
pub struct V5<S = RuntimeSema> {
    state: AtomicU32,
    sema: S,
}

// SAFETY: the contender that sets LOCKED has the lock, by a compare-exchange from a state without LOCKED. The head of
// this file has the orderings.
unsafe impl<S: Semaphore> RawLock for V5<S> {
    type Guard = ();

    const DEADLINES: bool = false;

    fn new() -> Self {
        Self { state: AtomicU32::new(0), sema: S::new(0) }
    }

    #[inline(never)]
    fn lock(&self) {
        if self.state.compare_exchange(0, LOCKED, Acquire, Relaxed).is_ok() {
            return;
        }
        let mut awoke = false; // this contender has WOKEN
        let mut iter = 0;
        let mut old = self.state.load(Relaxed);
        loop {
            if old & LOCKED != 0 && spin::can_spin(iter, spin::ROUNDS) {
                if !awoke && old & WOKEN == 0 && old / WAITER != 0 {
                    awoke = self.state.compare_exchange(old, old | WOKEN, Relaxed, Relaxed).is_ok();
                }
                spin::do_spin(spin::PAUSES);
                iter += 1;
                old = self.state.load(Relaxed);
                continue;
            }
            let mut new = old | LOCKED;
            if old & LOCKED != 0 {
                new += WAITER;
            }
            if awoke {
                new &= !WOKEN;
            }
            if let Err(now) = self.state.compare_exchange_weak(old, new, Acquire, Relaxed) {
                old = now;
                continue;
            }
            if old & LOCKED == 0 {
                return;
            }
            self.sema.acquire(Order::Fifo);
            awoke = true;
            iter = 0;
            old = self.state.load(Relaxed);
        }
    }

    #[inline]
    fn try_lock(&self) -> Option<()> {
        let lock = |old| (old & LOCKED == 0).then_some(old | LOCKED);
        self.state.fetch_update(Acquire, Relaxed, lock).is_ok().then_some(())
    }

    #[inline(never)]
    unsafe fn unlock(&self, (): ()) {
        let mut old = self.state.fetch_sub(LOCKED, Release) - LOCKED;
        // Wake a waiter, unless there is none, or unless a contender has barged in or is awake: that contender will
        // look at the word, or its unlock will.
        while old / WAITER != 0 && old & (LOCKED | WOKEN) == 0 {
            match self.state.compare_exchange_weak(old, (old - WAITER) | WOKEN, Relaxed, Relaxed) {
                Ok(_) => return self.sema.release(Wake::Normal),
                Err(now) => old = now,
            }
        }
    }

    #[inline]
    fn is_locked(&self) -> bool {
        self.state.load(Relaxed) & LOCKED != 0
    }
}

#[cfg(not(sudog_loom))]
impl<S: crate::ConstSemaphore> crate::ConstRawLock for V5<S> {
    const INIT: Self = Self { state: AtomicU32::new(0), sema: S::INIT };
}

impl<S> fmt::Debug for V5<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.load(Relaxed);
        f.debug_struct("V5")
            .field("locked", &(state & LOCKED != 0))
            .field("woken", &(state & WOKEN != 0))
            .field("waiters", &(state / WAITER))
            .finish_non_exhaustive()
    }
}
