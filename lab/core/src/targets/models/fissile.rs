//! The Fissile lock: test-and-set, whose contenders queue at an inner lock as soon as they do not get it at once.
//!
//! | step | by | action |
//! |---|---|---|
//! | fast path | newcomer | tries to set `held`, once, unless `impatient` |
//! | queue | newcomer that failed | locks the inner lock |
//! | stand by | owner of the inner lock | tries to set `held` until it succeeds; after `PATIENCE` tries sets `impatient`, which stops newcomers |
//! | leave the queue | the same, as the owner of the lock | clears `impatient`, then unlocks the inner lock |
//!
//! So at most one queued contender watches `held`, and newcomers overtake a contender only while that contender is patient.
//! `impatient` is advice: each newcomer that has read an old value overtakes once.
//!
//! Source: D. Dice and A. Kogan, *Fissile locks*, NETYS 2020. The inner lock is CNA, as there.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crossbeam_utils::CachePadded;
use sudog_runtime::shim::{AtomicBool, mark};
use sudog_runtime::spin;
use sudog_sync::RawLock;

use super::Cna;

/// The number of failed tries after which the first of the queue is impatient. In a model each try lets the owner run.
const PATIENCE: u32 = if cfg!(sudog_loom) { 1 } else { 50 };

/// The Fissile lock.
#[derive(Debug)]
pub struct Fissile {
    held: CachePadded<AtomicBool>,
    impatient: CachePadded<AtomicBool>,
    inner: Cna,
}

impl Fissile {
    fn take(&self) -> bool {
        !self.held.load(Relaxed) && !self.held.swap(true, Acquire)
    }

    #[cold]
    fn lock_slow(&self) {
        let guard = self.inner.lock();
        let mut tries = 0;
        while !self.take() {
            tries += 1;
            if tries == PATIENCE {
                mark("the first of the queue is impatient");
                self.impatient.store(true, Relaxed);
            }
            spin::do_spin(1);
        }
        if tries >= PATIENCE {
            self.impatient.store(false, Relaxed);
        }
        // SAFETY: `guard` came from the inner lock above, on this thread.
        unsafe { self.inner.unlock(guard) };
    }
}

// SAFETY:
// - A contender has the lock if its step has changed `held` from false to true, and no other contender's step can do so
//   until the unlock.
// - Release of the unlock and Acquire of that step order the actions of owners.
// - A forgotten guard leaves the lock locked.
unsafe impl RawLock for Fissile {
    type Guard = ();

    const DEADLINES: bool = false;

    fn new() -> Self {
        let word = || CachePadded::new(AtomicBool::new(false));
        Self { held: word(), impatient: word(), inner: Cna::new() }
    }

    #[inline]
    fn lock(&self) {
        let impatient = self.impatient.load(Relaxed);
        if impatient {
            mark("a newcomer does not overtake an impatient waiter");
        }
        if impatient || !self.take() {
            self.lock_slow();
        }
    }

    #[inline]
    fn try_lock(&self) -> Option<()> {
        self.take().then_some(())
    }

    /// Frees the lock. A store is enough. Loom needs a swap instead: loom does not know that a store cannot come between
    /// a failed swap and the value that the swap has read.
    #[inline]
    unsafe fn unlock(&self, (): ()) {
        if cfg!(sudog_loom) {
            self.held.swap(false, Release);
        } else {
            self.held.store(false, Release);
        }
    }

    fn is_locked(&self) -> bool {
        self.held.load(Relaxed)
    }
}
