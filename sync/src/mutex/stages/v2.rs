//! Version 2: a word in front of the semaphore, which says whether the mutex is locked.
//!
//! | word | 0 | 1 |
//! |---|---|---|
//! | `state` | unlocked | locked |
//! | `permit` | no permit is out | a permit is out: in the semaphore, on its way there, or taken by a contender that has not cleared `permit` yet |
//!
//! | step | `state` | `permit` | the semaphore |
//! |---|---|---|---|
//! | `lock` | swaps in 1; has the lock if `state` was 0 | | else takes a permit, or waits for a permit |
//! | with a permit | | swaps in 0 | and back to `lock` |
//! | `unlock` | stores 0 | swaps in 1 | if `permit` was 0: releases a permit |
//!
//! The source leaves `unlock` out. An unlock may not release a permit each time, as not each `lock` takes a permit. The
//! second word is ours, and keeps the semaphore at one permit at most.
//!
//! No wake-up is lost. An unlock and a contender that has taken a permit both swap `permit`, with AcqRel. If the
//! unlock's swap comes first, the contender sees the mutex as the unlock left it, or in the hands of a later owner,
//! which will unlock. If the contender's swap comes first, the unlock finds 0, and releases a permit. So whenever a
//! waiter sleeps, the mutex is locked, or a permit is out, and the contender that takes that permit will look at the
//! mutex.
//!
//! Orderings: the swap of `state`, which takes the mutex, is an Acquire. The store to `state`, which frees the mutex,
//! is a Release.
//!
//! Source: Version #2, but for `unlock`.

use std::fmt;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use sudog_runtime::AtomicU32;

use crate::raw::{Order, RawLock, Semaphore, Wake};
use crate::semaphore::RuntimeSema;

const UNLOCKED: u32 = 0;
const LOCKED: u32 = 1;

/// A mutex that has a flag, and a semaphore for contenders that find the flag set.
///
/// A newcomer may *barge in*: take the mutex before a waiter that has just been woken. That waiter sleeps again.
///
/// # Examples
///
/// ```
/// use sudog::study::stages::V2;
/// use sudog::sync::MutexWith;
///
/// static NAMES: MutexWith<V2, Vec<&str>> = MutexWith::new(Vec::new());
/// NAMES.lock().push("flag");
/// ```
pub struct V2<S = RuntimeSema> {
    state: AtomicU32,
    permit: AtomicU32,
    sema: S,
}

impl<S> V2<S> {
    /// Frees the mutex. A store is enough. Loom needs a swap instead: loom does not know that a store cannot come
    /// between a failed swap and the value that the swap has read.
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
unsafe impl<S: Semaphore> RawLock for V2<S> {
    type Guard = ();

    const DEADLINES: bool = false;

    fn new() -> Self {
        Self { state: AtomicU32::new(UNLOCKED), permit: AtomicU32::new(0), sema: S::new(0) }
    }

    #[inline]
    fn lock(&self) {
        while self.state.swap(LOCKED, Acquire) != UNLOCKED {
            self.sema.acquire(Order::Fifo);
            self.permit.swap(0, AcqRel);
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
impl<S: crate::ConstSemaphore> crate::ConstRawLock for V2<S> {
    const INIT: Self = Self { state: AtomicU32::new(UNLOCKED), permit: AtomicU32::new(0), sema: S::INIT };
}

impl<S> fmt::Debug for V2<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("V2").field("locked", &(self.state.load(Relaxed) == LOCKED)).finish_non_exhaustive()
    }
}
