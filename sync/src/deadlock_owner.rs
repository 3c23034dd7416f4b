//! The owner of a mutex, or the writer of a readers-writer mutex, for the report of a deadlock, and the lock's number in
//! the check of the order of locks. In builds with debug assertions only.
//!
//! The owner's id is a hint: the owner writes the id after locking the mutex, and clears the id before unlocking. Only
//! reports read the id.

#[cfg(all(debug_assertions, not(sudog_loom)))]
use std::sync::atomic::Ordering::Relaxed;

use sudog_runtime::lock_order::{Access, Acquisition, LockTag};
use sudog_runtime::shim::system::atomic::AtomicU64;

#[cfg(all(debug_assertions, not(sudog_loom)))]
pub(crate) struct DeadlockOwner {
    /// The id of the goroutine that owns the mutex; 0 if the owner is a thread or an async task, or if there is no owner.
    id: AtomicU64,
    tag: LockTag,
}

#[cfg(all(debug_assertions, not(sudog_loom)))]
impl DeadlockOwner {
    #[allow(clippy::declare_interior_mutable_const)] // to be copied into place
    pub(crate) const NONE: Self = Self { id: AtomicU64::new(0), tag: LockTag::NEW };

    fn set_id(&self) {
        self.id.store(sudog_runtime::goroutine_id(), Relaxed);
    }

    /// Notes that the owner is about to unlock.
    pub(crate) fn clear(&self) {
        self.clear_id();
        self.tag.unlocked();
    }

    /// Notes that the owner is about to become a reader.
    pub(crate) fn clear_id(&self) {
        self.id.store(0, Relaxed);
    }

    /// Notes that a reader is about to unlock.
    pub(crate) fn end_read(&self) {
        self.tag.unlocked();
    }

    fn address(&self) -> *const AtomicU64 {
        &raw const self.id
    }

    fn tag(&self) -> &LockTag {
        &self.tag
    }
}

#[cfg(not(all(debug_assertions, not(sudog_loom))))]
pub(crate) struct DeadlockOwner;

#[cfg(not(all(debug_assertions, not(sudog_loom))))]
impl DeadlockOwner {
    pub(crate) const NONE: Self = Self;

    #[inline(always)]
    fn set_id(&self) {}

    #[inline(always)]
    pub(crate) fn clear(&self) {}

    #[inline(always)]
    pub(crate) fn clear_id(&self) {}

    #[inline(always)]
    pub(crate) fn end_read(&self) {}

    fn address(&self) -> *const AtomicU64 {
        std::ptr::null()
    }

    #[inline(always)]
    fn tag(&self) -> &LockTag {
        &LockTag::NEW
    }
}

impl DeadlockOwner {
    /// Notes that the caller of the caller is about to lock, and waits until only an unlock ends the wait.
    #[inline(always)]
    #[cfg_attr(debug_assertions, track_caller)]
    pub(crate) fn locks(&self) -> Acquisition {
        self.tag().begin(Access::Write, true)
    }

    /// Notes that the caller of the caller is about to lock, if that is possible at once, or before a limit.
    #[inline(always)]
    #[cfg_attr(debug_assertions, track_caller)]
    pub(crate) fn tries(&self) -> Acquisition {
        self.tag().begin(Access::Write, false)
    }

    /// Notes that the caller has locked.
    #[inline(always)]
    pub(crate) fn set(&self, acquisition: Acquisition) {
        self.set_id();
        acquisition.done();
    }

    /// Notes that the caller of the caller is about to lock for reading.
    #[inline(always)]
    #[cfg_attr(debug_assertions, track_caller)]
    pub(crate) fn reads(&self) -> Acquisition {
        self.tag().begin(Access::Read, true)
    }

    /// Notes that the caller of the caller is about to lock for reading, if that is possible at once, or before a limit.
    #[inline(always)]
    #[cfg_attr(debug_assertions, track_caller)]
    pub(crate) fn tries_to_read(&self) -> Acquisition {
        self.tag().begin(Access::Read, false)
    }

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
