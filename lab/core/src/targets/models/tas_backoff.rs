//! Test-and-set with exponential back-off: a contender that fails waits twice as long as before, up to a bound.
//!
//! Source: T. E. Anderson, *The performance of spin lock alternatives for shared-memory multiprocessors*, 1990.

use sudog_runtime::shim::AtomicBool;
use sudog_runtime::spin;
use sudog_sync::RawLock;

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

const MAX_PAUSES: u32 = 1024;

/// Test-and-set with exponential back-off.
#[derive(Debug)]
pub struct TasBackoff(AtomicBool);

// SAFETY:
// - A contender has the lock if its step has changed the word from false to true, and no other contender's step can do
//   so until the unlock.
// - Release of the unlock and Acquire of that step order the actions of owners.
// - A forgotten guard leaves the lock locked.
unsafe impl RawLock for TasBackoff {
    type Guard = ();

    const DEADLINES: bool = false;

    fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    #[inline]
    fn lock(&self) {
        let mut pauses = 1;
        while self.0.swap(true, Acquire) {
            spin::do_spin(pauses);
            pauses = (2 * pauses).min(MAX_PAUSES);
        }
    }

    #[inline]
    fn try_lock(&self) -> Option<()> {
        (!self.0.swap(true, Acquire)).then_some(())
    }

    #[inline]
    unsafe fn unlock(&self, (): ()) {
        self.0.store(false, Release);
    }

    fn is_locked(&self) -> bool {
        self.0.load(Relaxed)
    }
}
