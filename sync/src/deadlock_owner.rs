//! The owner of a mutex, or the writer of a readers-writer mutex, for the report of a deadlock, in debug builds only.
//!
//! The id is a hint: the owner writes the id after locking the mutex, and clears the id before unlocking. Only reports
//! read the id.

#[cfg(all(debug_assertions, not(sudog_loom)))]
use std::sync::atomic::Ordering::Relaxed;
use sudog_runtime::shim::system::atomic::AtomicU64;

/// The id of the goroutine that owns the mutex; 0 if the owner is a thread or an async task, or if there is no owner.
pub(crate) struct DeadlockOwner(#[cfg(all(debug_assertions, not(sudog_loom)))] AtomicU64);

#[cfg(all(debug_assertions, not(sudog_loom)))]
impl DeadlockOwner {
    #[allow(clippy::declare_interior_mutable_const)] // to be copied into place
    pub(crate) const NONE: Self = Self(AtomicU64::new(0));

    pub(crate) fn set(&self) {
        self.0.store(sudog_runtime::goroutine_id(), Relaxed);
    }

    pub(crate) fn clear(&self) {
        self.0.store(0, Relaxed);
    }

    fn address(&self) -> *const AtomicU64 {
        &raw const self.0
    }
}

#[cfg(not(all(debug_assertions, not(sudog_loom))))]
impl DeadlockOwner {
    pub(crate) const NONE: Self = Self();

    #[inline(always)]
    pub(crate) fn set(&self) {}

    #[inline(always)]
    pub(crate) fn clear(&self) {}

    fn address(&self) -> *const AtomicU64 {
        std::ptr::null()
    }
}

impl DeadlockOwner {
    /// Runs `wait`, in which the caller waits for this owner, and notes that wait, whose kind is `what`, for reports.
    pub(crate) fn while_waiting<T>(&self, what: &'static str, wait: impl FnOnce() -> T) -> T {
        /// Withdraws the note, even if a semaphore's waiting policy panics: the mutex may be gone by the time of the
        /// goroutine's next wait.
        struct WithdrawNote;
        impl Drop for WithdrawNote {
            fn drop(&mut self) {
                if cfg!(debug_assertions) {
                    // SAFETY: `note_wait` accepts a null pointer.
                    unsafe { sudog_runtime::note_wait("", std::ptr::null()) };
                }
            }
        }
        // SAFETY: the pointer is null, or points into the mutex, which the caller keeps alive until `WithdrawNote` has
        // replaced the note.
        unsafe { sudog_runtime::note_wait(what, self.address()) };
        let _withdraw = WithdrawNote;
        wait()
    }
}
