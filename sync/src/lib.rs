//! Go's `sync` package for Rust, over any semaphore.
//!
//! * [`Mutex`] is the Go mutex with a guard; [`GoMutex`] is the same mutex bare, with Go's `lock` and `unlock`.
//! * [`RwMutex`] lets many read or one write; [`rw_mutex`] has Go's, a phase-fair one, and one whose readers scale.
//! * [`WaitGroup`] waits for tasks to end; [`Cond`] for a signal, under a mutex.
//! * [`Once`] does something once; [`OnceFunc`], [`OnceValue`] and [`OnceValues`] know what.
//! * [`Pool`] keeps free items, [`Map`] is a map for many, [`atomic`] has Go's typed atomics.
//! * [`context`] hands deadlines and cancellation down from call to call; [`x`] has what Go keeps in
//!   `golang.org/x/sync`: weighted semaphores, groups of fallible tasks, calls that are made once for many.
//! * Threads, goroutines and async tasks wait in the same lines: [`LockAsync`] is for the last of these.
//! * [`RawLock`] and [`Semaphore`] are what backends implement: any semaphore fits under the mutex, and any lock fits
//!   under [`MutexWith`], by one type parameter.
//! * [`semaphore`] holds the semaphores, [`mutex`] the mutex and its policies. The crate `sudog-locks` has more of both.
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

#[cfg(not(sudog_loom))]
mod api_lock;
#[cfg(not(sudog_loom))]
mod api_rw_lock;
#[cfg(not(sudog_loom))]
pub mod atomic;
#[cfg(not(sudog_loom))]
mod cond;
#[cfg(all(unix, not(sudog_loom)))]
pub mod context;
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
// Their models are alone in a build for loom.
#[cfg(all(test, sudog_loom))]
#[path = "context/handle_count.rs"]
mod handle_count;
#[cfg(all(test, sudog_loom))]
#[path = "signal/relay.rs"]
mod relay;
#[cfg(all(unix, feature = "signal", not(sudog_loom)))]
pub mod signal;
mod thread_index;
mod wait_group;
pub mod x;

// The clock of all deadlines: in a bubble of `synctest` it is the bubble's.
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

/// For `sudog-locks`.
#[doc(hidden)]
pub mod internal {
    pub use crate::raw::poll_until;
    pub use crate::thread_index::thread_index;
}
