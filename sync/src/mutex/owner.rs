//! Who has the mutex: for the report of a deadlock, and in debug builds only.
//!
//! A hint: it is written after the mutex has been locked and before it is unlocked, and nothing but the report reads
//! it.

use std::sync::atomic::AtomicU64;
#[cfg(all(debug_assertions, not(sudog_loom)))]
use std::sync::atomic::Ordering::Relaxed;

/// The id of the goroutine that has the mutex; 0 for threads, async tasks and nobody.
pub(super) struct Owner(#[cfg(all(debug_assertions, not(sudog_loom)))] AtomicU64);

#[cfg(all(debug_assertions, not(sudog_loom)))]
impl Owner {
    #[allow(clippy::declare_interior_mutable_const)] // to be copied into place
    pub(super) const NOBODY: Self = Self(AtomicU64::new(0));

    pub(super) fn set(&self) {
        self.0.store(sudog_runtime::goroutine_id(), Relaxed);
    }

    pub(super) fn clear(&self) {
        self.0.store(0, Relaxed);
    }

    fn place(&self) -> *const AtomicU64 {
        &raw const self.0
    }
}

#[cfg(not(all(debug_assertions, not(sudog_loom))))]
impl Owner {
    pub(super) const NOBODY: Self = Self();

    #[inline(always)]
    pub(super) fn set(&self) {}

    #[inline(always)]
    pub(super) fn clear(&self) {}

    fn place(&self) -> *const AtomicU64 {
        std::ptr::null()
    }
}

impl Owner {
    /// Runs `wait`, by which the caller waits for this owner.
    pub(super) fn while_waiting<T>(&self, wait: impl FnOnce() -> T) -> T {
        /// The mutex may be gone by the time of the goroutine's next wait.
        struct Over;
        impl Drop for Over {
            fn drop(&mut self) {
                if cfg!(debug_assertions) {
                    // SAFETY: null.
                    unsafe { sudog_runtime::note_wait("", std::ptr::null()) };
                }
            }
        }
        // SAFETY: null, or a part of the mutex, which the caller keeps alive; and `Over` withdraws it.
        unsafe { sudog_runtime::note_wait("sync.Mutex.Lock", self.place()) };
        let _over = Over;
        wait()
    }
}
