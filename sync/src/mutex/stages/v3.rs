//! Version 3: version 2, in which a contender that finds the mutex locked spins for a while before it sleeps.
//!
//! | word | 0 | 1 |
//! |---|---|---|
//! | `state` | unlocked | locked |
//! | `permit` | no permit is out | a permit is out: in the semaphore, on its way there, or taken by a contender that has not cleared `permit` yet |
//!
//! | step | `state` | `permit` | the semaphore |
//! |---|---|---|---|
//! | `lock` | swaps in 1, a few times over; has the lock if `state` was 0 | | else takes a permit, or waits for a permit |
//! | with a permit | | swaps in 0 | and back to `lock`, to spin anew |
//! | `unlock` | stores 0 | swaps in 1 | if `permit` was 0: releases a permit |
//!
//! The source leaves `unlock` out. `v2.rs` argues our `unlock`, which is correct however often `lock` looks before a
//! sleep.
//!
//! Orderings: the swap of `state`, which takes the mutex, is an Acquire. The store to `state`, which frees the mutex,
//! is a Release. The swaps of `permit` are AcqRel, so that a waiter that wakes sees the unlocks that released no
//! permit.
//!
//! Source: Version #3, but for `unlock`. Spinning came to Go in 2015 by commit edcad8639a, to a mutex that was
//! version 5 otherwise.

use std::fmt;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use sudog_runtime::{AtomicU32, spin};

use crate::raw::{Order, RawLock, Semaphore, Wake};
use crate::semaphore::RuntimeSema;

const UNLOCKED: u32 = 0;
const LOCKED: u32 = 1;

/// A mutex that has a flag, which a contender watches for a moment, and a semaphore for contenders that still find the
/// flag set.
///
/// [`spin`] has the rule: four rounds of thirty pause instructions, if another thread can run meanwhile.
///
/// # Examples
///
/// ```
/// use sudog::study::stages::V3;
/// use sudog::sync::MutexWith;
///
/// static NAMES: MutexWith<V3, Vec<&str>> = MutexWith::new(Vec::new());
/// NAMES.lock().push("spin");
/// ```
pub struct V3<S = RuntimeSema> {
    state: AtomicU32,
    permit: AtomicU32,
    sema: S,
}

impl<S> V3<S> {
    /// Frees the mutex, as in version 2: by a store, and in a loom model by a swap.
    #[inline]
    fn free(&self) {
        if cfg!(sudog_loom) {
            self.state.swap(UNLOCKED, Release);
        } else {
            self.state.store(UNLOCKED, Release);
        }
    }
}

// SAFETY: the contender that turns `state` from 0 to 1 has the lock. The head of this file has the orderings.
unsafe impl<S: Semaphore> RawLock for V3<S> {
    type Guard = ();

    const DEADLINES: bool = false;

    fn new() -> Self {
        Self { state: AtomicU32::new(UNLOCKED), permit: AtomicU32::new(0), sema: S::new(0) }
    }

    #[inline]
    fn lock(&self) {
        let mut iter = 0;
        while self.state.swap(LOCKED, Acquire) != UNLOCKED {
            if spin::can_spin(iter, spin::ROUNDS) {
                spin::do_spin(spin::PAUSES);
                iter += 1;
                continue;
            }
            self.sema.acquire(Order::Fifo);
            self.permit.swap(0, AcqRel);
            iter = 0;
        }
    }

    #[inline]
    fn try_lock(&self) -> Option<()> {
        (self.state.swap(LOCKED, Acquire) == UNLOCKED).then_some(())
    }

    #[inline]
    unsafe fn unlock(&self, (): ()) {
        self.free();
        if self.permit.swap(1, AcqRel) == 0 {
            self.sema.release(Wake::Normal);
        }
    }

    #[inline]
    fn is_locked(&self) -> bool {
        self.state.load(Relaxed) == LOCKED
    }
}

#[cfg(not(sudog_loom))]
impl<S: crate::ConstSemaphore> crate::ConstRawLock for V3<S> {
    const INIT: Self = Self { state: AtomicU32::new(UNLOCKED), permit: AtomicU32::new(0), sema: S::INIT };
}

impl<S> fmt::Debug for V3<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("V3").field("locked", &(self.state.load(Relaxed) == LOCKED)).finish_non_exhaustive()
    }
}
