//! Version 4: the word counts sleepers, so that an unlock knows whether to wake a sleeper.
//!
//! ```text
//!   31                                      1   0
//!  ┌─────────────────────────────────────────┬───┐
//!  │ waiters                                 │ L │
//!  └─────────────────────────────────────────┴───┘
//! ```
//!
//! | step | L locked | waiters | then |
//! |---|---|---|---|
//! | `lock`, L is clear | sets | | has the lock |
//! | `lock`, L is set, also after a spin | | + 1 | sleeps, and tries again |
//! | `unlock` | clears | | if there are no waiters: done |
//! | | as long as L is clear | - 1, if the count is above 0 | releases a permit |
//!
//! The sleepers are as many as `waiters` plus the permits released.
//!
//! Orderings: the step that sets LOCKED is an Acquire, and the step that clears LOCKED is a Release. All steps are RMWs
//! of the same word. So an owner that locks after others have changed the count still sees everything that the previous
//! owner did.
//!
//! Source: Version #4.

use std::fmt;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use sudog_runtime::{AtomicU32, spin};

use crate::raw::{Order, RawLock, Semaphore, Wake};
use crate::semaphore::RuntimeSema;

const LOCKED: u32 = 1;
const WAITER: u32 = 2;

/// A mutex that has a flag and a count in one word: no unlock calls the semaphore in vain.
///
/// At most 2^31 - 1 contenders can sleep.
///
/// # Examples
///
/// ```
/// use sudog::study::stages::V4;
/// use sudog::sync::MutexWith;
///
/// static NAMES: MutexWith<V4, Vec<&str>> = MutexWith::new(Vec::new());
/// NAMES.lock().push("count");
/// ```
pub struct V4<S = RuntimeSema> {
    state: AtomicU32,
    sema: S,
}

// SAFETY: the contender that sets LOCKED has the lock, by a compare-exchange from a state without LOCKED. The head of
// this file has the orderings.
unsafe impl<S: Semaphore> RawLock for V4<S> {
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
        let mut iter = 0;
        let mut old = self.state.load(Relaxed);
        loop {
            if old & LOCKED != 0 && spin::can_spin(iter, spin::ROUNDS) {
                spin::do_spin(spin::PAUSES);
                iter += 1;
                old = self.state.load(Relaxed);
                continue;
            }
            let mut new = old | LOCKED;
            if old & LOCKED != 0 {
                new += WAITER;
            }
            if let Err(now) = self.state.compare_exchange_weak(old, new, Acquire, Relaxed) {
                old = now;
                continue;
            }
            if old & LOCKED == 0 {
                return;
            }
            self.sema.acquire(Order::Fifo);
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
        // Wake a waiter, unless there is none, or unless a newcomer has barged in, whose unlock will wake a waiter.
        while old / WAITER != 0 && old & LOCKED == 0 {
            match self.state.compare_exchange_weak(old, old - WAITER, Relaxed, Relaxed) {
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
impl<S: crate::ConstSemaphore> crate::ConstRawLock for V4<S> {
    const INIT: Self = Self { state: AtomicU32::new(0), sema: S::INIT };
}

impl<S> fmt::Debug for V4<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.load(Relaxed);
        f.debug_struct("V4")
            .field("locked", &(state & LOCKED != 0))
            .field("waiters", &(state / WAITER))
            .finish_non_exhaustive()
    }
}
