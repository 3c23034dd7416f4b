//! Go's concurrency for Rust: the runtime semaphore with its 251-bucket table of sudog treaps, and the mutex with
//! starvation mode; sound, and measured against the locks that people use today.
//!
//! ```
//! use std::time::Duration;
//! use sudog::prelude::*;
//!
//! static HITS: Mutex<u64> = Mutex::new(0);
//!
//! std::thread::scope(|s| {
//!     for _ in 0..4 {
//!         s.spawn(|| *HITS.lock() += 1);
//!     }
//! });
//! assert_eq!(HITS.try_lock_for(Duration::from_millis(1)).map(|hits| *hits), Some(4));
//! ```
//!
//! * [`sync`]: what programs lock with. [`sync::Mutex`] with its guard; [`sync::GoMutex`] bare; the traits and the
//!   semaphores beneath, to be exchanged by a type parameter.
//! * [`runtime`]: what those are made of. [`runtime::sema`] is Go's `semacquire` and `semrelease`; [`runtime::G`] is the
//!   thing that waits.
//! * [`guide`]: Go's names beside ours, and how to choose a backend and a policy.
//!
//! Features: `parking_lot_core` adds [`sync::semaphore`]`::ParkingLotSema`. Without it a user pays for `lock_api`,
//! `crossbeam-utils` and, on Linux, `libc`.

pub use sudog_runtime as runtime;
pub use sudog_sync as sync;

#[cfg(not(sudog_loom))]
#[doc = include_str!("../docs/guide.md")]
pub mod guide {}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// What most programs import.
#[cfg(not(sudog_loom))]
pub mod prelude {
    pub use sudog_sync::{GoMutex, Mutex, MutexGuard, MutexOver};
}
