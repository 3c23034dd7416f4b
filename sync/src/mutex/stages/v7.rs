//! Version 7: starvation mode. Once a waiter has waited for more than a millisecond, newcomers barge in no more.
//!
//! ```text
//!   31                              3   2   1   0
//!  ┌─────────────────────────────────┬───┬───┬───┐
//!  │ waiters                         │ S │ W │ L │
//!  └─────────────────────────────────┴───┴───┴───┘
//! ```
//!
//! | bit | set by | cleared by |
//! |---|---|---|
//! | `LOCKED` (L) | the contender that locks the mutex, or is handed the mutex | the owner's unlock |
//! | `WOKEN` (W) | an unlock, for the waiter that is woken; a spinning contender, for itself, if others sleep | that contender, when it locks the mutex or sleeps |
//! | `STARVING` (S) | a contender with WOKEN that has waited for too long and finds the mutex locked, when it sleeps again | a waiter that is handed the mutex, and has not waited for too long or is the last |
//! | waiters | + 1: a contender that sleeps | - 1: the unlock that wakes a waiter; while S is set, the waiter that is handed the mutex |
//!
//! While STARVING is set, the mutex is promised to the first waiter. An unlock leaves LOCKED clear and hands over a
//! permit, which stands for the mutex; STARVING alone keeps others out. WOKEN is clear all the time: the contender that
//! set STARVING gave WOKEN up, and no contender spins.
//!
//! Orderings: the step that sets LOCKED is an Acquire, and the step that clears LOCKED is a Release. All steps are RMWs
//! of the same word. (A handoff comes with a permit, too, which orders the handoff by itself.) A woken waiter reads
//! STARVING with Relaxed: the unlock that woke the waiter has read STARVING before, and only the woken waiter can
//! change STARVING.
//!
//! Source: Version #7; Go commit 0556e26273 (2017), Go 1.9. The printed version has four slips, where this file has
//! Go's rule:
//!
//! | printed | here, and in Go | consequence of the slip |
//! |---|---|---|
//! | S is set if S is set already | if the mutex is locked | S is never set |
//! | a waiter is counted if L is set | if L or S is set | a contender that comes between an unlock and its handoff sleeps uncounted |
//! | `unlock` does not hand over | `unlock` hands over, as the text says | a newcomer to the semaphore may have the permit first |
//! | `unlock`, once S was clear, does not look at S again | `unlock` looks each time | `unlock` releases a second permit, and each of the two stands for the mutex |

use std::fmt;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use sudog_runtime::shim::mark;
use sudog_runtime::shim::system;
use sudog_runtime::{AtomicU32, Instant, spin};

use crate::mutex::policy::{Go, Policy};
use crate::raw::{Order, RawLock, Semaphore, Wake};
use crate::semaphore::RuntimeSema;

const LOCKED: u32 = 1;
const WOKEN: u32 = 2;
const STARVING: u32 = 4;
const WAITER: u32 = 8;

/// The mutex [`V6`](super::V6), except that no waiter waits for much longer than a millisecond while others come and
/// go.
///
/// At most 2^29 - 1 contenders can sleep.
///
/// # Examples
///
/// ```
/// use sudog::study::stages::V7;
/// use sudog::sync::MutexWith;
///
/// static NAMES: MutexWith<V7, Vec<&str>> = MutexWith::new(Vec::new());
/// NAMES.lock().push("starving");
/// ```
///
/// With `APART`, as in [`V8`](super::V8), the fast paths are apart from the slow ones, and can be inlined. For study.
pub struct V7<S = RuntimeSema, const APART: bool = false> {
    state: AtomicU32,
    sema: S,
}

// SAFETY: the contender that sets LOCKED has the lock: by a compare-exchange from a state without LOCKED and STARVING;
// or with the only permit, while STARVING keeps all others from setting LOCKED. The head of this file has the
// orderings.
unsafe impl<S: Semaphore, const APART: bool> RawLock for V7<S, APART> {
    type Guard = ();

    const DEADLINES: bool = false;

    fn new() -> Self {
        Self { state: AtomicU32::new(0), sema: S::new(0) }
    }

    #[inline]
    fn lock(&self) {
        if !APART || self.state.compare_exchange(0, LOCKED, Acquire, Relaxed).is_err() {
            self.lock_out_of_line();
        }
    }

    #[inline]
    fn try_lock(&self) -> Option<()> {
        let lock = |old| (old & (LOCKED | STARVING) == 0).then_some(old | LOCKED);
        self.state.fetch_update(Acquire, Relaxed, lock).is_ok().then_some(())
    }

    #[inline]
    unsafe fn unlock(&self, (): ()) {
        if APART {
            let old = self.state.fetch_sub(LOCKED, Release) - LOCKED;
            if old != 0 {
                self.unlock_slow(old);
            }
        } else {
            self.unlock_out_of_line();
        }
    }

    #[inline]
    fn is_locked(&self) -> bool {
        self.state.load(Relaxed) & LOCKED != 0
    }
}

impl<S: Semaphore, const APART: bool> V7<S, APART> {
    #[inline(never)]
    fn lock_out_of_line(&self) {
        if !APART && self.state.compare_exchange(0, LOCKED, Acquire, Relaxed).is_ok() {
            return;
        }
        let mut wait_start: Option<Instant> = None;
        let mut starving = false; // this contender has waited for too long
        let mut awoke = false; // this contender has WOKEN
        let mut iter = 0;
        let mut old = self.state.load(Relaxed);
        loop {
            if old & (LOCKED | STARVING) == LOCKED && spin::can_spin(iter, spin::ROUNDS) {
                if !awoke && old & WOKEN == 0 && old / WAITER != 0 {
                    awoke = self.state.compare_exchange(old, old | WOKEN, Relaxed, Relaxed).is_ok();
                }
                spin::do_spin(spin::PAUSES);
                iter += 1;
                old = self.state.load(Relaxed);
                continue;
            }
            let mut new = old;
            if old & STARVING == 0 {
                new |= LOCKED;
            }
            if old & (LOCKED | STARVING) != 0 {
                new += WAITER;
            }
            if starving && old & LOCKED != 0 {
                new |= STARVING;
            }
            if awoke {
                new &= !WOKEN;
            }
            if let Err(now) = self.state.compare_exchange_weak(old, new, Acquire, Relaxed) {
                old = now;
                continue;
            }
            if old & (LOCKED | STARVING) == 0 {
                return;
            }
            if old & (LOCKED | STARVING) == STARVING {
                mark("another comes while the mutex is promised");
            }
            let order = if wait_start.is_some() { Order::Lifo } else { Order::Fifo };
            let since = *wait_start.get_or_insert_with(system::now);
            self.sema.acquire(order);
            starving = starving || system::now().saturating_duration_since(since) > Go::THRESHOLD;
            old = self.state.load(Relaxed);
            if old & STARVING != 0 {
                mark("the mutex is handed over");
                // This contender has the mutex. Contenders that come meanwhile only add to the waiters.
                let over = !starving || old / WAITER == 1;
                let change = WAITER - LOCKED + if over { STARVING } else { 0 };
                self.state.fetch_sub(change, Acquire);
                return;
            }
            awoke = true;
            iter = 0;
        }
    }

    #[inline(never)]
    fn unlock_out_of_line(&self) {
        self.unlock_slow(self.state.fetch_sub(LOCKED, Release) - LOCKED);
    }

    /// Wakes a waiter, or hands the mutex over. `old` is the state that the unlock has left.
    fn unlock_slow(&self, mut old: u32) {
        if old & STARVING != 0 {
            return self.sema.release(Wake::Handoff);
        }
        // Wake a waiter, unless there is none, or unless a contender has barged in, is awake, or has been promised the
        // mutex: that contender will look at the word, or its unlock will.
        while old / WAITER != 0 && old & (LOCKED | WOKEN | STARVING) == 0 {
            match self.state.compare_exchange_weak(old, (old - WAITER) | WOKEN, Relaxed, Relaxed) {
                Ok(_) => return self.sema.release(Wake::Normal),
                Err(now) => old = now,
            }
        }
    }
}

#[cfg(not(sudog_loom))]
impl<S: crate::ConstSemaphore, const APART: bool> crate::ConstRawLock for V7<S, APART> {
    const INIT: Self = Self { state: AtomicU32::new(0), sema: S::INIT };
}

impl<S, const APART: bool> fmt::Debug for V7<S, APART> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.load(Relaxed);
        f.debug_struct("V7")
            .field("locked", &(state & LOCKED != 0))
            .field("woken", &(state & WOKEN != 0))
            .field("starving", &(state & STARVING != 0))
            .field("waiters", &(state / WAITER))
            .finish_non_exhaustive()
    }
}
