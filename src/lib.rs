//! Go's concurrency for Rust: the runtime semaphore with its 251-bucket table of sudog treaps, the mutex with
//! starvation mode, and goroutines; sound, and measured against Go and the locks that people use today.
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
//! * `locks` (feature `locks`): spin locks, semaphores over a waiting array, and capacitors, which bound how often a waiter
//!   is overtaken.
//! * [`runtime`]: what those are made of. [`runtime::sema`] is Go's `semacquire` and `semrelease`; [`runtime::G`] is
//!   the thing that waits.
//! * [`runtime::goroutine`]: goroutines. [`go`](fn@go), [`run`], [`spawn`] and the rest of the short names are here
//!   too.
//! * [`context`]: deadlines and cancellation, handed down from call to call; Go's package of that name.
//! * [`guide`]: Go's names beside ours, and how to choose a backend and a policy.
//!
//! Features: `locks` (on by default) has `locks`, parts of which are covered by US patents: see NOTICE; `event` makes all
//! locks report what they do
//! ([`runtime::event`]); `parking_lot_core` adds [`sync::semaphore`]`::ParkingLotSema`. Without it a user pays
//! for `arc-swap`, `crossbeam-utils`, `lock_api`, `papaya` and, on Unix, `async-task`, `corosensei` and `libc`.

pub use sudog_runtime as runtime;
pub use sudog_sync as sync;

#[cfg(feature = "locks")]
pub use sudog_locks as locks;

#[cfg(all(unix, not(sudog_loom)))]
pub use sudog_runtime::goroutine::{
    ActiveSet, Builder, Goexit, JoinHandle, OnPanic, Outside, Placement, Ticker, Timer, after, after_func, block_on,
    blocking, go, go_async, goexit, gosched, max_procs, num_goroutine, on_goroutine, run, run_local, set_max_procs,
    sleep, sleep_async, spawn, spawn_async, without_switching,
};
#[cfg(all(unix, not(sudog_loom)))]
pub use sudog_runtime::{go, goroutine_local};
#[cfg(all(unix, not(sudog_loom)))]
pub use sudog_sync::context;

#[cfg(not(sudog_loom))]
#[doc = include_str!("../docs/guide.md")]
pub mod guide {}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(all(doctest, unix))]
#[doc = include_str!("../docs/goroutines.md")]
struct Goroutines;

#[cfg(all(doctest, feature = "locks"))]
#[doc = include_str!("../locks/docs/capacitor.md")]
struct Capacitors;

/// What most programs import.
#[cfg(not(sudog_loom))]
pub mod prelude {
    #[cfg(unix)]
    pub use sudog_runtime::go;
    #[cfg(unix)]
    pub use sudog_runtime::goroutine::{go, run, sleep, spawn};
    #[cfg(unix)]
    pub use sudog_sync::context::{self, Context};
    pub use sudog_sync::{Cond, GoMutex, LockAsync, Map, Mutex, MutexGuard, MutexOver, Once, Pool, RwMutex, WaitGroup};
}
