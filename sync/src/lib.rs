//! Go's `sync` package for Rust, over any semaphore.
//!
//! * [`Mutex`] is the Go mutex with a guard. [`GoMutex`] is the same mutex without guard or value, with Go's `lock` and
//!   `unlock`.
//! * [`RwMutex`] admits many readers or a single writer. The module [`rw_mutex`] has Go's readers-writer mutex, a
//!   phase-fair mutex, and a mutex whose readers scale with the processors.
//! * [`WaitGroup`] waits for tasks to end; [`Cond`] lets the owner of a mutex wait for a signal.
//! * [`Once`] runs a function once. [`OnceFunc`], [`OnceValue`] and [`OnceValues`] also store that function.
//! * [`Pool`] keeps free items. [`Map`] is a map for concurrent use. [`atomic`] has Go's typed atomics.
//! * [`context`] passes deadlines and cancellation down from call to call. [`x`] has Go's `golang.org/x/sync`: weighted
//!   semaphores, groups of fallible tasks, and calls whose result many callers share.
//! * Threads, goroutines and async tasks wait in the same queues. [`LockAsync`] is for async tasks.
//! * Backends implement [`RawLock`] or [`Semaphore`]. The mutex takes any semaphore as a type parameter, and
//!   [`MutexWith`] takes any lock.
//! * [`semaphore`] holds the semaphores; [`mutex`] holds the mutex and its policies. The crate `sudog-locks` has more
//!   of both.
//!
//! # Examples
//!
//! ```
//! use sudog::sync::Mutex;
//!
//! static TOTAL: Mutex<u64> = Mutex::new(0);
//!
//! std::thread::scope(|s| {
//!     for n in 1..=4 {
//!         s.spawn(move || *TOTAL.lock() += n);
//!     }
//! });
//! assert_eq!(*TOTAL.lock(), 10);
//! ```

// docs.rs shows which features and systems an item needs.
#![cfg_attr(docsrs, feature(doc_cfg), doc(auto_cfg(hide(sudog_loom, sudog_sim))))]

#[cfg(not(sudog_loom))]
mod api_lock;
#[cfg(not(sudog_loom))]
mod api_rw_lock;
#[cfg(not(sudog_loom))]
pub mod atomic;
mod bias;
#[cfg(not(sudog_loom))]
mod cond;
#[cfg(all(unix, not(sudog_loom)))]
pub mod context;
mod deadlock_owner;
#[cfg(any(not(sudog_loom), test))]
mod hazard;
#[cfg(not(sudog_loom))]
#[cfg(feature = "lock_api_0_4")]
mod lock_api_0_4;
#[cfg(not(sudog_loom))]
mod lock_async;
mod locker;
mod map;
pub mod mutex;
mod once;
#[cfg(not(sudog_loom))]
pub mod pool;
mod raw;
mod raw_rw;
#[cfg(not(sudog_loom))]
mod rw_limited;
pub mod rw_mutex;
pub mod semaphore;
#[cfg(not(sudog_loom))]
mod shared_panic;
// A build for loom compiles only these two files of `context` and `signal`, for their models.
#[cfg(all(test, sudog_loom))]
#[path = "context/handle_count.rs"]
mod handle_count;
#[cfg(all(test, sudog_loom))]
#[path = "signal/relay.rs"]
mod relay;
#[cfg(all(unix, feature = "signal", not(sudog_loom)))]
pub mod signal;
mod thread_hints;
mod thread_index;
mod wait_group;
pub mod x;

// The clock of all deadlines. In a bubble of `synctest`, the clock shows the bubble's time.
pub(crate) use sudog_runtime::goroutine::now;

#[cfg(not(sudog_loom))]
pub use api_lock::{ApiLock, Mutex, MutexGuard, MutexWith, lock_api};
#[cfg(not(sudog_loom))]
pub use api_rw_lock::{ApiRwLock, RwMutex, RwMutexReadGuard, RwMutexWith, RwMutexWriteGuard};
#[cfg(not(sudog_loom))]
pub use cond::{Cond, CondGuard};
#[cfg(not(sudog_loom))]
pub use lock_async::{GuardFuture, LockAsync};
pub use locker::Locker;
pub use map::Map;
pub use mutex::GoMutex;
pub use once::Once;
#[cfg(not(sudog_loom))]
pub use once::{OnceFunc, OnceValue, OnceValues, once_func, once_value, once_values};
#[cfg(not(sudog_loom))]
pub use pool::Pool;
pub use raw::{
    AsyncRawLock, AsyncSemaphore, ConstPermits, ConstRawLock, ConstSemaphore, Order, RawLock, Semaphore, Wake,
};
pub use raw_rw::{ConstRawRwLock, RawRwLock};
#[cfg(not(sudog_loom))]
pub use rw_limited::RwLimited;
pub use rw_mutex::{GoRwMutex, RLocker};
#[cfg(not(sudog_loom))]
pub use shared_panic::SharedPanic;
pub use wait_group::{WaitFuture, WaitGroup};

/// Internals for `sudog-locks`.
#[doc(hidden)]
pub mod internal {
    pub use crate::raw::poll_until;
    pub use crate::thread_index::thread_index;
}
