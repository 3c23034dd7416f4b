//! Parker: blocks one thread, over a futex.

use super::{AtomicU32, Instant, Ordering, futex};

/// Neither `park` nor `unpark` has been called.
const EMPTY: u32 = 0;
/// The thread sleeps on the word, or is about to.
const PARKED: u32 = 1;
/// The thread was unparked, and sets the word back to EMPTY as it returns.
const READY: u32 = 2;

/// A parker: blocks one thread until one `unpark`.
pub struct Parker(AtomicU32);

impl Parker {
    pub const fn new() -> Self {
        Self(AtomicU32::new(EMPTY))
    }

    /// Returns whether `unpark` has been called, so that `park` will return at once.
    pub fn is_ready(&self) -> bool {
        self.0.load(Ordering::Relaxed) == READY // `park` has the Acquire
    }

    /// Blocks until `unpark` (returns true, and the parker can be used again) or until `deadline` (returns false).
    pub fn park(&self, deadline: Option<Instant>) -> bool {
        // The Acquire on failure pairs with the Release in `unpark`: the waiter sees the waker's earlier writes.
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
        // Relaxed is enough: the only `unpark` of this round has happened, so no other thread writes to the word.
        self.0.store(EMPTY, Ordering::Relaxed);
        true
    }

    /// Wakes the thread that parks here, or lets its next `park` return at once.
    ///
    /// # Safety
    /// `this` is alive, and a `park` has consumed each earlier `unpark` of `this`.
    pub unsafe fn unpark(this: *const Self) {
        // SAFETY: `this` is alive by the contract of this function, until the swap below lets the parker's thread
        // return.
        let word: *const AtomicU32 = unsafe { &raw const (*this).0 };
        // SAFETY: `word` is a field of `this`, which is alive until this swap; the swap is the last access to the
        // memory.
        let was = unsafe { (*word).swap(READY, Ordering::Release) };
        if was == PARKED {
            futex::wake(word, 1); // by address only: the parker may be freed
        }
    }
}
