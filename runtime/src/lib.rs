//! Who waits, and how it is woken: the part of Go's runtime that its `sync` package stands on.
//!
//! * [`G`] is the thing that waits. Everything here that blocks does it through a `G`, so that whatever a `G` may be
//!   stands in the same queues: operating-system threads, goroutines, async tasks.
//! * [`goroutine`] has the goroutines.
//! * [`sema`] is Go's runtime semaphore: a bare 32-bit counter anywhere in memory, and a global table of 251 buckets
//!   where those who found the counter at zero wait by its address.
//! * [`chan`] has channels and `select!`.
//! * [`event`] is what the locks report of themselves, if they are told to.
//! * [`spin`] is Go's rule for spinning before going to sleep.
//! * [`fatal`](fn@fatal) ends the process as Go does when a lock is misused beyond repair.
//!
//! No wait allocates for itself, where `std`'s own locks do not (on Linux, at least): a waiter is a sudog on its
//! own stack.
//!
//! Under `--cfg sudog_loom` the whole crate runs on [loom](https://docs.rs/loom)'s model of threads and memory.

pub mod chan;
pub mod event;
mod fatal;
mod g;
pub mod goroutine;
// For the crates of this project.
#[doc(hidden)]
pub mod panics;
pub mod sema;
// For the crates of this project: the atomics, locks and fences that are `std`'s, or the model's.
#[doc(hidden)]
#[allow(clippy::new_without_default)] // one interface over two machines, no more
pub mod shim;
pub mod spin;

pub use fatal::fatal;
pub use g::{G, ParkResult};
#[cfg(all(target_os = "linux", not(sudog_loom)))]
pub use shim::futex;
pub use shim::{AtomicU32, AtomicU64, Instant};

/// For the deadlock report: what the calling goroutine, if it is one, is about to wait for, and where to find the id of
/// the goroutine that holds it.
///
/// # Safety
///
/// `holder` is null, or is alive until the goroutine has called this again.
#[doc(hidden)]
#[inline]
pub unsafe fn note_wait(what: &'static str, holder: *const std::sync::atomic::AtomicU64) {
    goroutine::note_wait(what, holder);
}

/// The id of the calling goroutine; 0 for a thread.
#[doc(hidden)]
#[inline]
#[must_use]
pub fn goroutine_id() -> u64 {
    goroutine::id()
}

/// Where a goroutine that has run for long gives way to others, if the call that it is inside of allows it.
#[doc(hidden)]
#[inline]
pub fn safepoint() {
    goroutine::safepoint();
}

/// What a model may do to the world it runs in, and what it must reach there.
#[cfg(sudog_loom)]
pub use shim::{model, reached};
