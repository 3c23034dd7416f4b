//! FutexLock: the lock of this library's own data. Such a lock must need no memory, no initialisation and no
//! thread-locals, and must call no function of pthread. The sections under the lock are some instructions long.
//!
//! | word | meaning |
//! |---|---|
//! | FREE | the lock is free |
//! | HELD | the lock is held, and no thread sleeps |
//! | SLEEPERS | the lock is held, and threads may sleep |
//!
//! | step | word | then |
//! |---|---|---|
//! | lock, at first | FREE → HELD | has the lock |
//! | lock, after some looks | swap for SLEEPERS | if the old word was FREE: has the lock; else sleeps, unless the word has changed |
//! | unlock | swap for FREE | if the old word was SLEEPERS: wakes a thread, which then writes SLEEPERS |
//!
//! A waiter sleeps and does not yield: `sched_yield` of a real-time thread never lets an owner of lower priority run.
//!
//! The unlock is the last access to the lock: the wake-up after the unlock is by address, where another object may be by
//! then.
//!
//! Source: Drepper, *Futexes Are Tricky*.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use sudog_runtime::shim::AtomicU32;
use sudog_runtime::{const_unless_model, spin};

use crate::futex;

const FREE: u32 = 0;
const HELD: u32 = 1;
const SLEEPERS: u32 = 2;

/// The number of times that a contender looks before it sleeps. A contender in a model sleeps at once.
const LOOKS: u32 = 100;

/// A lock whose waiters sleep. All bits zero: unlocked.
#[derive(Debug)]
#[repr(transparent)]
pub struct FutexLock(AtomicU32);

impl FutexLock {
    const_unless_model! {
        /// Returns an unlocked lock.
        pub const fn new() -> Self {
            Self(AtomicU32::new(FREE))
        }
    }

    /// Locks.
    #[inline]
    pub fn lock(&self) {
        if !self.try_lock() {
            self.lock_slow();
        }
    }

    fn try_lock(&self) -> bool {
        // Acquire, here and in `lock_slow`: pairs with the Release of the last unlock.
        self.0.compare_exchange(FREE, HELD, Acquire, Relaxed).is_ok()
    }

    #[cold]
    fn lock_slow(&self) {
        if cfg!(not(sudog_loom)) {
            for _ in 0..LOOKS {
                if self.0.load(Relaxed) == FREE && self.try_lock() {
                    return;
                }
                spin::do_spin(1);
            }
        }
        while self.0.swap(SLEEPERS, Acquire) != FREE {
            futex::wait(&self.0, SLEEPERS, None);
        }
    }

    /// Unlocks. The caller has locked, or is in a child of `fork` and ends what a thread of the parent has locked.
    #[inline]
    pub fn unlock(&self) {
        if self.0.swap(FREE, Release) == SLEEPERS {
            futex::wake(&raw const self.0, 1);
        }
    }
}
