//! Blocks one thread, over a futex.

use super::{AtomicU32, Instant, Ordering, futex};

/// Neither side has acted.
const EMPTY: u32 = 0;
/// The thread sleeps on the word, or is about to.
const PARKED: u32 = 1;
/// Unparked; the thread sets this back to EMPTY as it returns.
const READY: u32 = 2;

/// Blocks one thread until one `unpark`.
pub struct Parker(AtomicU32);

impl Parker {
    pub const fn new() -> Self {
        Self(AtomicU32::new(EMPTY))
    }

    /// Whether `unpark` has been called, and `park` will return at once.
    pub fn is_ready(&self) -> bool {
        self.0.load(Ordering::Relaxed) == READY // `park` has the Acquire
    }

    /// Blocks until `unpark` (true, and the parker can be used again) or until `deadline` (false).
    pub fn park(&self, deadline: Option<Instant>) -> bool {
        // Acquire on failure pairs with the Release in `unpark`: the waiter sees what the waker wrote.
        let seen = self.0.compare_exchange(EMPTY, PARKED, Ordering::Relaxed, Ordering::Acquire);
        if seen != Err(READY) {
            loop {
                let in_time = futex::wait(&self.0, PARKED, deadline);
                if self.0.load(Ordering::Acquire) == READY {
                    break;
                }
                if !in_time {
                    return false;
                }
            }
        }
        // Relaxed: the only `unpark` of this round has happened, so no other thread writes here.
        self.0.store(EMPTY, Ordering::Relaxed);
        true
    }

    /// # Safety
    /// `this` is alive, and each earlier `unpark` on it has been consumed by a `park`.
    pub unsafe fn unpark(this: *const Self) {
        // SAFETY: alive by the contract, until the swap below lets its thread return.
        let word: *const AtomicU32 = unsafe { &raw const (*this).0 };
        // SAFETY: as above; this is the last access to the memory.
        let was = unsafe { (*word).swap(READY, Ordering::Release) };
        if was == PARKED {
            futex::wake(word, 1); // by address only: the parker may be freed
        }
    }
}
