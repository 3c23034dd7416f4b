//! Waiting and waking: the part of Go's runtime on which Go's `sync` package is built.
//!
//! * [`G`] is a thread, a goroutine or an async task that can wait. Every blocking operation of this crate waits
//!   through a `G`, so operating-system threads, goroutines and async tasks wait in the same queues.
//! * [`goroutine`] contains the goroutines.
//! * [`sema`] is Go's runtime semaphore: a bare 32-bit counter anywhere in memory, and a global table of 251 buckets. A
//!   caller that finds the counter at zero waits in the table, keyed by the counter's address.
//! * [`chan`] has channels and `select!`.
//! * [`event`] records what the locks do, if they are told to report it.
//! * [`spin`] is Go's rule for spinning before sleeping.
//! * [`fatal`](fn@fatal) ends the process as Go does when a lock is misused beyond repair.
//!
//! Waiting allocates nothing where `std`'s own locks do not allocate (at least on Linux): a waiter is a sudog on the
//! waiting thread's or goroutine's stack.
//!
//! Under `--cfg sudog_loom` the whole crate runs on [loom](https://docs.rs/loom)'s model of threads and memory.

// docs.rs shows which features and systems an item needs.
#![cfg_attr(docsrs, feature(doc_cfg), doc(auto_cfg(hide(sudog_loom, sudog_sim))))]

pub mod chan;
#[cfg(all(unix, not(sudog_loom)))]
mod check_lock;
pub mod event;
mod fatal;
mod g;
pub mod goroutine;
#[cfg(all(feature = "profile", unix, not(any(sudog_loom, sudog_sim))))]
pub mod profile;
#[cfg(not(all(feature = "profile", unix, not(any(sudog_loom, sudog_sim)))))]
#[path = "profile/off.rs"]
mod profile;
// For the crates of this project.
#[doc(hidden)]
mod list;
pub mod panics;
// For the crates of this project: the check of the order of locks.
#[cfg(all(debug_assertions, unix, not(any(sudog_loom, sudog_sim))))]
#[doc(hidden)]
pub mod lock_order;
#[cfg(not(all(debug_assertions, unix, not(any(sudog_loom, sudog_sim)))))]
#[doc(hidden)]
#[path = "lock_order/off.rs"]
pub mod lock_order;
pub mod sema;
// For the crates of this project: atomics, locks and fences, `std`'s or the model's.
#[doc(hidden)]
#[allow(clippy::new_without_default)] // one interface over two implementations
pub mod shim;
pub mod spin;
#[cfg(all(debug_assertions, unix, not(any(sudog_loom, sudog_sim))))]
mod unpolled;
#[cfg(not(all(debug_assertions, unix, not(any(sudog_loom, sudog_sim)))))]
#[path = "unpolled/off.rs"]
mod unpolled;

pub use fatal::fatal;
pub use g::{G, ParkResult};
#[cfg(all(target_os = "linux", not(sudog_loom)))]
pub use shim::futex;
pub use shim::{AtomicU32, AtomicU64, Instant};

/// Notes, for dumps and for the deadlock report, that the calling goroutine or thread is about to wait. `what` names the
/// kind of the wait.
#[doc(hidden)]
#[inline]
pub fn note_wait(what: &'static str) {
    goroutine::note_wait(what);
}

/// Does the same as [`note_wait`], and notes the object. All waits for the object note the same address.
#[doc(hidden)]
#[inline]
pub fn note_wait_at<T>(what: &'static str, object: &T) {
    goroutine::note_wait_for(what, std::ptr::from_ref(object).cast(), &[]);
}

/// Does the same as [`note_wait_at`] for an object that other goroutines hold: all of them must give up the object before
/// the wait ends. `holders` are their ids; an id of 0 means nothing.
///
/// # Safety
///
/// `holders` is empty; or `holders` is a part of `object`, which stays alive until the goroutine has called this function
/// or `note_wait` again.
#[doc(hidden)]
#[inline]
pub unsafe fn note_wait_for<T>(what: &'static str, object: &T, holders: &[shim::system::atomic::AtomicU64]) {
    goroutine::note_wait_for(what, std::ptr::from_ref(object).cast(), holders);
}

/// Notes, for dumps, what the calling async task waits for: the poll of a future returns `Pending`. In builds with debug
/// assertions.
#[doc(hidden)]
#[inline]
pub fn note_task_wait(what: &'static str) {
    if cfg!(debug_assertions) {
        goroutine::note_task_wait(what, std::ptr::null());
    }
}

/// Does the same as [`note_task_wait`], and notes the object, as [`note_wait_at`] does.
#[doc(hidden)]
#[inline]
pub fn note_task_wait_at<T>(what: &'static str, object: &T) {
    if cfg!(debug_assertions) {
        goroutine::note_task_wait(what, std::ptr::from_ref(object).cast());
    }
}

/// Returns the id of the calling goroutine; 0 for a thread.
#[doc(hidden)]
#[inline]
#[must_use]
pub fn goroutine_id() -> u64 {
    goroutine::id()
}

/// Makes a safepoint: a goroutine that has run for long yields here to other goroutines, if the enclosing call allows a
/// yield.
#[doc(hidden)]
#[inline]
pub fn safepoint() {
    goroutine::safepoint();
}

/// Returns whether the watcher has asked the worker of the calling goroutine for a [`safepoint`]. Cheaper than a
/// safepoint: for calls that are so frequent that a safepoint in each call would be too slow.
#[doc(hidden)]
#[inline]
#[must_use]
pub fn safepoint_is_asked_for() -> bool {
    goroutine::safepoint_is_asked_for()
}

#[doc(hidden)]
pub use goroutine::Coop;

/// The settings of a model, and the states that a model must reach.
#[cfg(sudog_loom)]
pub use shim::{model, reached};
