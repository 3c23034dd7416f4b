//! Go's `sync` package for Rust, over any semaphore.
//!
//! * [`Mutex`] is the Go mutex with a guard; [`GoMutex`] is the same mutex bare, with Go's `lock` and `unlock`.
//! * [`WaitGroup`] waits for tasks to end; [`Cond`] for a signal, under a mutex.
//! * Threads, goroutines and async tasks wait in the same lines: [`LockAsync`] is for the last of these.
//! * [`RawLock`] and [`Semaphore`] are what backends implement: any semaphore fits under the mutex, and any lock fits
//!   under [`MutexOver`], by one type parameter.
//! * [`semaphore`] holds the semaphores, [`mutex`] the mutex and its policies.
//!
//! # Examples
//!
//! ```
//! use sudog_sync::Mutex;
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
mod cond;
#[cfg(not(sudog_loom))]
mod lock_async;
mod locker;
pub mod mutex;
mod raw;
mod raw_rw;
pub mod rw_mutex;
pub mod semaphore;
mod thread_index;
mod wait_group;

#[cfg(not(sudog_loom))]
pub use api_lock::{ApiLock, Mutex, MutexGuard, MutexOver, lock_api};
#[cfg(not(sudog_loom))]
pub use api_rw_lock::{ApiRwLock, RwMutex, RwMutexOver, RwMutexReadGuard, RwMutexWriteGuard};
#[cfg(not(sudog_loom))]
pub use cond::{Cond, CondGuard};
#[cfg(not(sudog_loom))]
pub use lock_async::{GuardFuture, LockAsync};
pub use locker::Locker;
pub use mutex::GoMutex;
pub use raw::{AsyncRawLock, AsyncSemaphore, ConstRawLock, ConstSemaphore, Order, RawLock, Semaphore, Wake};
pub use raw_rw::{ConstRawRwLock, RawRwLock};
pub use rw_mutex::{GoRwMutex, RLocker};
pub use wait_group::WaitGroup;
