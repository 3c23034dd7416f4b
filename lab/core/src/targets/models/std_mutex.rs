//! `std::sync::Mutex` on a futex: spins for a moment while no contender sleeps, then sleeps.
//!
//! | word | meaning |
//! |---|---|
//! | FREE | |
//! | HELD | held, no contender sleeps |
//! | CONTENDED | held, contenders may sleep |
//!
//! Source: the algorithm of Rust's `library/std/src/sys/sync/mutex/futex.rs`, after Drepper's *Futexes Are Tricky*.

use sudog_runtime::shim::AtomicU32;
use sudog_runtime::{futex, spin};
use sudog_sync::RawLock;

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

const FREE: u32 = 0;
const HELD: u32 = 1;
const CONTENDED: u32 = 2;

/// The number of looks that a contender takes before it sleeps.
const LOOKS: u32 = 100;

/// `std`'s mutex on a futex.
#[derive(Debug)]
pub struct StdMutex(AtomicU32);

impl StdMutex {
    #[cold]
    fn lock_slow(&self) {
        let mut word = self.spin();
        if word == FREE {
            match self.0.compare_exchange(FREE, HELD, Acquire, Relaxed) {
                Ok(_) => return,
                Err(now) => word = now,
            }
        }
        loop {
            // From here on others may sleep, so the unlock must wake a waiter.
            if word != CONTENDED && self.0.swap(CONTENDED, Acquire) == FREE {
                return;
            }
            futex::wait(&self.0, CONTENDED, None);
            word = self.spin();
        }
    }

    /// Looks until the lock is free or contended, but at most `LOOKS` times. Returns the last value of the word.
    fn spin(&self) -> u32 {
        for _ in 0..LOOKS {
            let word = self.0.load(Relaxed);
            if word != HELD {
                return word;
            }
            spin::do_spin(1);
        }
        HELD
    }
}

// SAFETY:
// - A contender has the lock if its step has changed the word from FREE, and no other contender's step can do so until
//   the unlock.
// - Release of the unlock and Acquire of that step order the actions of owners.
// - A forgotten guard leaves the lock locked.
unsafe impl RawLock for StdMutex {
    type Guard = ();

    const DEADLINES: bool = false;

    fn new() -> Self {
        Self(AtomicU32::new(FREE))
    }

    #[inline]
    fn lock(&self) {
        if self.try_lock().is_none() {
            self.lock_slow();
        }
    }

    #[inline]
    fn try_lock(&self) -> Option<()> {
        self.0.compare_exchange(FREE, HELD, Acquire, Relaxed).ok().map(|_| ())
    }

    #[inline]
    unsafe fn unlock(&self, (): ()) {
        if self.0.swap(FREE, Release) == CONTENDED {
            futex::wake(&self.0, 1);
        }
    }

    fn is_locked(&self) -> bool {
        self.0.load(Relaxed) != FREE
    }
}
