//! Spin: the lock of this library's own data. It must need no memory, no initialisation and no thread-locals, and its
//! sections are some instructions long.

use std::hint::spin_loop;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// A spin lock whose waiters yield their processors. All bits zero: unlocked.
#[derive(Debug)]
#[repr(transparent)]
pub struct Spin(AtomicU32);

impl Spin {
    /// Returns an unlocked lock.
    pub const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Locks.
    #[inline]
    pub fn lock(&self) {
        // Acquire pairs with the Release of the last unlock.
        while self.0.swap(1, Acquire) != 0 {
            let mut looks = 0;
            while self.0.load(Relaxed) != 0 {
                looks += 1;
                if looks < 100 {
                    spin_loop();
                } else {
                    // SAFETY: `sched_yield` has no precondition.
                    unsafe { libc::sched_yield() };
                }
            }
        }
    }

    /// Unlocks. The caller has locked.
    #[inline]
    pub fn unlock(&self) {
        self.0.store(0, Release);
    }
}
