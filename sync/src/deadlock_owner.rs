//! The holders of a mutex or a readers-writer mutex, for the report of a deadlock and the search for cycles of waits,
//! and the lock's number in the check of the order of locks. In builds with debug assertions only.
//!
//! The noted ids are hints. A holder notes its id after locking, and withdraws the id before unlocking. Only reports
//! read the ids.
//!
//! | event | owner | readers |
//! |---|---|---|
//! | the caller has locked, or waits for readers as the announced writer | the caller | |
//! | the caller has locked for reading | | the caller takes a free place; without one the caller is not known. An async task takes no place |
//! | an unlock, or the announced writer gives up | none | |
//! | an unlock by a reader that has a place | | the reader leaves its place |
//! | an unlock by a caller without a place | | all leave: perhaps the caller unlocks for another reader, and it is not known for which |
//!
//! So a goroutine that is noted as a reader has read-locked, and no caller without a place has unlocked since.

#[cfg(all(debug_assertions, not(sudog_loom)))]
use std::sync::atomic::Ordering::Relaxed;

use sudog_runtime::lock_order::{Access, Acquisition, LockTag};
#[cfg(all(debug_assertions, not(sudog_loom)))]
use sudog_runtime::lock_order::{holder_id, reader_id};
use sudog_runtime::shim::system::atomic::AtomicU64;

/// The number of readers that a readers-writer mutex knows.
pub(crate) const READERS: usize = 8;

#[cfg(all(debug_assertions, not(sudog_loom)))]
pub(crate) struct DeadlockOwner<const N: usize = 0> {
    /// The number ([`holder_id`]) of the goroutine, thread or poll that owns the mutex, or that has announced itself as the
    /// writer; 0 if there is none.
    id: AtomicU64,
    /// The goroutines and threads that have locked for reading, once for each acquisition; 0 in a free place.
    readers: [AtomicU64; N],
    tag: LockTag,
}

#[cfg(all(debug_assertions, not(sudog_loom)))]
impl<const N: usize> DeadlockOwner<N> {
    #[allow(clippy::declare_interior_mutable_const)] // to be copied into place
    pub(crate) const NONE: Self =
        Self { id: AtomicU64::new(0), readers: [const { AtomicU64::new(0) }; N], tag: LockTag::NEW };

    fn set_id(&self) {
        self.id.store(holder_id(), Relaxed);
    }

    /// Notes that the owner is about to unlock.
    pub(crate) fn clear(&self) {
        self.clear_id();
        self.tag.unlocked();
    }

    fn clear_id(&self) {
        self.id.store(0, Relaxed);
    }

    /// Notes that the owner is about to become a reader.
    pub(crate) fn becomes_reader(&self) {
        self.add_reader();
        self.clear_id();
    }

    /// Notes that a reader is about to unlock.
    pub(crate) fn end_read(&self) {
        self.remove_reader();
        self.tag.unlocked();
    }

    fn add_reader(&self) {
        self.replace_reader(0, reader_id());
    }

    fn remove_reader(&self) {
        let caller = reader_id();
        if caller == 0 || !self.replace_reader(caller, 0) {
            self.readers.iter().for_each(|reader| reader.store(0, Relaxed));
        }
    }

    /// Replaces an id by another id, in one place. Returns false if no place has the id.
    fn replace_reader(&self, id: u64, new: u64) -> bool {
        self.readers.iter().any(|reader| reader.compare_exchange(id, new, Relaxed, Relaxed).is_ok())
    }

    fn owner(&self) -> &[AtomicU64] {
        std::slice::from_ref(&self.id)
    }

    fn readers(&self) -> &[AtomicU64] {
        &self.readers
    }

    fn tag(&self) -> &LockTag {
        &self.tag
    }
}

#[cfg(not(all(debug_assertions, not(sudog_loom))))]
pub(crate) struct DeadlockOwner<const N: usize = 0>;

#[cfg(not(all(debug_assertions, not(sudog_loom))))]
impl<const N: usize> DeadlockOwner<N> {
    pub(crate) const NONE: Self = Self;

    #[inline(always)]
    fn set_id(&self) {}

    #[inline(always)]
    pub(crate) fn clear(&self) {}

    #[inline(always)]
    fn clear_id(&self) {}

    #[inline(always)]
    pub(crate) fn becomes_reader(&self) {}

    #[inline(always)]
    pub(crate) fn end_read(&self) {}

    #[inline(always)]
    fn add_reader(&self) {}

    fn owner(&self) -> &[AtomicU64] {
        &[]
    }

    fn readers(&self) -> &[AtomicU64] {
        &[]
    }

    #[inline(always)]
    fn tag(&self) -> &LockTag {
        &LockTag::NEW
    }
}

impl<const N: usize> DeadlockOwner<N> {
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

    /// Notes that the caller has locked for reading.
    #[inline(always)]
    pub(crate) fn set_reader(&self, acquisition: Acquisition) {
        self.add_reader();
        acquisition.done();
    }

    /// Runs `wait`, in which the caller waits for this owner, and notes that wait, whose kind is `what`, for reports.
    pub(crate) fn while_waiting<T>(&self, what: &'static str, wait: impl FnOnce() -> T) -> T {
        self.noted(what, self.owner(), wait)
    }

    /// Runs `wait`, in which the caller, the announced writer, waits for readers, and notes that wait, whose kind is
    /// `what`, for reports. Notes the caller as the owner: readers that come now wait for the caller.
    pub(crate) fn while_draining<T, E>(&self, what: &'static str, wait: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        self.set_id();
        self.noted(what, self.readers(), wait).inspect_err(|_| self.clear_id())
    }

    /// Runs `wait`, in which the caller waits for the goroutines with the ids `holders`, a part of `self`, and notes that
    /// wait, whose kind is `what`, for reports.
    fn noted<T>(&self, what: &'static str, holders: &[AtomicU64], wait: impl FnOnce() -> T) -> T {
        /// Withdraws the note, even if a semaphore's waiting policy panics: the mutex may be gone by the time of the
        /// goroutine's next wait.
        struct WithdrawNote;
        impl Drop for WithdrawNote {
            fn drop(&mut self) {
                if cfg!(debug_assertions) {
                    sudog_runtime::note_wait("");
                }
            }
        }
        if holders.is_empty() {
            sudog_runtime::note_wait(what); // the address would cost two instructions more
        } else {
            // SAFETY: `holders` is a part of `self`, which is borrowed until this function ends. By then `WithdrawNote` has
            // replaced the note.
            unsafe { sudog_runtime::note_wait_for(what, self, holders) };
        }
        let _withdraw = WithdrawNote;
        wait()
    }

    /// Notes a wait for the lock whose holders are not known.
    pub(crate) fn note_wait(&self, what: &'static str) {
        sudog_runtime::note_wait_at(what, self);
    }

    /// Notes, for dumps, that the calling async task waits for the lock.
    pub(crate) fn note_task_wait(&self, what: &'static str) {
        sudog_runtime::note_task_wait_at(what, self);
    }
}

#[cfg(all(test, debug_assertions, unix, not(any(sudog_loom, sudog_sim))))]
mod tests {
    use super::*;

    fn readers(owner: &DeadlockOwner<READERS>) -> Vec<u64> {
        owner.readers.iter().map(|reader| reader.load(Relaxed)).filter(|&reader| reader != 0).collect()
    }

    #[test]
    fn readers_leave_their_places() {
        let owner = DeadlockOwner::<READERS>::NONE;
        let here = holder_id();
        owner.add_reader();
        owner.add_reader();
        assert_eq!(readers(&owner), [here, here]);
        owner.remove_reader();
        assert_eq!(readers(&owner), [here]);
        std::thread::scope(|s| {
            s.spawn(|| {
                owner.add_reader();
                assert_eq!(readers(&owner), [holder_id(), here]);
                owner.remove_reader();
                assert_eq!(readers(&owner), [here]);
            });
        });
        owner.remove_reader();
        assert!(readers(&owner).is_empty());
    }

    #[test]
    fn an_unlock_for_another_reader_forgets_all() {
        let owner = DeadlockOwner::<READERS>::NONE;
        owner.add_reader();
        owner.add_reader();
        std::thread::scope(|s| _ = s.spawn(|| owner.remove_reader()));
        assert!(readers(&owner).is_empty());
    }

    #[test]
    fn further_readers_have_no_place() {
        let owner = DeadlockOwner::<READERS>::NONE;
        (0..READERS).for_each(|_| owner.add_reader());
        std::thread::scope(|s| _ = s.spawn(|| owner.add_reader()));
        assert_eq!(readers(&owner), [holder_id(); READERS]);
    }
}
