//! Go's runtime semaphore: sleep until a 32-bit counter, anywhere in memory, is above zero.
//!
//! A semaphore is just an [`AtomicU32`]; a semaphore needs no set-up and no space for a queue. A caller that finds the
//! counter at zero waits in a [`SemTable`], keyed by the counter's address. The functions of this module use a global
//! table of [`BUCKETS`] buckets, as Go does.
//!
//! ```text
//!   SemTable     Bucket (padded to its own cache lines)
//!   ┌─────┐     ┌────────────────────────────────────────────────────────────────────┐
//!   │  0  │     │ one word: the lock; nwait, how many wait here, read without the lock│
//!   │  1  │ ──▶ │ under it: a queue, by default a treap of addresses (binary tree,   │
//!   │ ... │     │        min-heap by a hash of the address)                           │
//!   │ 250 │     │                     ( A )                                           │
//!   └─────┘     │                    /     \        each node is the head of a ring:  │
//!               │                ( B )     ( C )    first waiter ⇄ second ⇄ ... ⇄     │
//!               └────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! # Contract
//!
//! * `semacquire` returns after taking one permit; `semrelease` adds a permit and wakes a waiter, if there is one.
//! * Waiters of one address are woken first in, first out, but for those that queue as [`Order::Lifo`], at the front. A
//!   waiter that loses its permit to a newcomer returns to the front, too. If two waiters that were woken together both
//!   lose, the last to return is the first. (In Go a waiter that loses queues as the `lifo` flag of its call says.)
//! * With [`Wake::Handoff`] the permit goes to the first waiter directly, and no newcomer can take that permit. (In Go a
//!   newcomer can steal the permit between the counter's increment and the bucket's lock. That window is closed here.)
//! * A wait that ends by a deadline or by a [`Cancel`] takes no permit and loses none: if a permit was granted at the
//!   same instant, the wait succeeds.
//! * Waiting allocates nothing: a waiter is a sudog on the waiter's own stack. (A worker's heap of deadlines, and the
//!   list of sleeping workers, grow when they exceed their largest size so far.) Waiters are woken while no bucket lock
//!   is held.
//!
//! The counter may be freed or moved when no call on it is under way; the table keeps no reference to the counter.
//!
//! Source: Go's `runtime/sema.go`, in the development tree of 1.28; the treap is CL 37103. Orderings:
//! `docs/orderings.md`.
//!
//! # Examples
//!
//! ```
//! use std::sync::atomic::AtomicU32;
//! use sudog::low_level::sema::{Wake, semacquire, semrelease};
//!
//! static DONE: AtomicU32 = AtomicU32::new(0);
//!
//! let worker = std::thread::spawn(|| semrelease(&DONE, Wake::Normal));
//! semacquire(&DONE); // waits for the worker
//! # worker.join().unwrap();
//! ```

mod acquire;
mod cancel;
#[cfg_attr(sudog_loom, allow(dead_code))] // used in a model by the model of this lock only
mod counted_lock;
mod future;
mod limit;
#[cfg(sudog_loom)]
mod model_lock;
// For the mutexes of this project.
#[doc(hidden)]
pub mod lock_counts;
pub(crate) mod mutex_wait;
mod notify_list;
pub mod queue;
pub(crate) mod sudog;
mod table;
pub mod testing;
mod wake_many;

pub use cancel::Cancel;
#[doc(hidden)]
pub use cancel::{CancelledWait, Registration};
pub use future::Acquire;
pub use limit::{IntoLimit, WaitError, WaitLimit};
pub use notify_list::{NotifyList, Ticket};
pub use table::{BUCKETS, SemTable};

#[cfg(not(sudog_loom))]
use counted_lock::{CountedLock, Guard};
#[cfg(sudog_loom)]
use model_lock::{CountedLock, Guard};
pub(crate) use sudog::{Sudog, SudogPtr, WaitOutcome};

use crate::AtomicU32;
use crate::profile::QueuedWait;
use table::sleep_at_once;

/// The end of the queue at which a waiter joins the other waiters of its address.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Order {
    /// The back: the usual place.
    #[default]
    Fifo,
    /// The front: for a waiter that has waited before and lost; Go's `lifo`.
    Lifo,
}

/// The way in which a release passes its permit on, if there is a waiter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Wake {
    /// Adds the permit to the counter and wakes the first waiter, which must still take the permit: a newcomer may be
    /// faster.
    #[default]
    Normal,
    /// Gives the permit to the first waiter, which owns the permit when it wakes up. If the releaser is a goroutine, it
    /// yields to other goroutines.
    Handoff,
    /// Gives the permit to the first waiter, as [`Wake::Handoff`] does, but the releaser goes on: a handoff as before
    /// Go 1.14.
    Grant,
}

/// The global table, which the functions of this module use, as Go's do.
#[derive(Clone, Copy, Debug)]
pub enum Global {}

/// A type that identifies one global table.
///
/// # Safety
///
/// `table` returns the same table each time.
///
/// # Examples
///
/// A table with another queue in its buckets:
///
/// ```
/// use sudog::study::{BUCKETS, SemTable, Table};
/// use sudog::study::queue::OneLevelList;
///
/// enum OfGo18 {}
///
/// // SAFETY: a static.
/// unsafe impl Table for OfGo18 {
///     type Queue = OneLevelList;
///     fn table() -> &'static SemTable<BUCKETS, OneLevelList> {
///         static TABLE: SemTable<BUCKETS, OneLevelList> = SemTable::const_new();
///         &TABLE
///     }
/// }
/// ```
pub unsafe trait Table: Send + Sync + 'static {
    /// The type of queue in which each bucket keeps waiters.
    type Queue: queue::BucketQueue;

    /// Returns the table.
    fn table() -> &'static SemTable<BUCKETS, Self::Queue>;
}

// SAFETY: `table` returns the same static each time; in a model, the same static within an execution.
unsafe impl Table for Global {
    #[cfg(not(feature = "event"))]
    type Queue = queue::Treap;
    #[cfg(feature = "event")]
    type Queue = queue::Recorded<queue::Treap>;

    #[inline]
    #[cfg(not(sudog_loom))]
    fn table() -> &'static SemTable<BUCKETS, Self::Queue> {
        static TABLE: SemTable<BUCKETS, <Global as Table>::Queue> = SemTable::const_new();
        &TABLE
    }

    #[cfg(sudog_loom)]
    fn table() -> &'static SemTable<BUCKETS, Self::Queue> {
        loom::lazy_static! { static ref TABLE: SemTable<BUCKETS, <Global as Table>::Queue> = SemTable::const_new(); }
        &TABLE
    }
}

/// Takes a permit from the semaphore at `count`. Waits for a permit if there is none.
///
/// See the [module](self) for the contract and an example. Go: `sync.runtime_Semacquire`.
#[inline]
pub fn semacquire(count: &AtomicU32) {
    Global::table().acquire_for(count, Order::Fifo, QueuedWait::for_other());
}

/// Acquires as [`semacquire`] does, but joins the queue at the back or at the front. Go:
/// `internal/sync.runtime_SemacquireMutex`.
///
/// # Examples
///
/// ```
/// use std::sync::atomic::AtomicU32;
/// use sudog::low_level::sema::{Order, semacquire_mutex};
///
/// let permits = AtomicU32::new(1);
/// semacquire_mutex(&permits, Order::Lifo); // there is a permit: no wait
/// ```
#[inline]
pub fn semacquire_mutex(count: &AtomicU32, order: Order) {
    Global::table().acquire(count, order);
}

/// Acquires as [`semacquire_mutex`] does, but gives up at a limit: see [`IntoLimit`].
///
/// # Errors
///
/// The error says which limit came first. No permit has been taken then, and none is lost. A permit that is available
/// is taken although the deadline has passed, so with a deadline in the past this function tries once and never waits.
///
/// # Examples
///
/// ```
/// use std::sync::atomic::AtomicU32;
/// use std::time::{Duration, Instant};
/// use sudog::WaitError;
/// use sudog::low_level::sema::{Order, semacquire_limited};
///
/// let permits = AtomicU32::new(1);
/// assert_eq!(semacquire_limited(&permits, Order::Fifo, Instant::now()), Ok(()));
/// assert_eq!(semacquire_limited(&permits, Order::Fifo, Duration::from_millis(5)), Err(WaitError::TimedOut));
/// ```
#[inline]
pub fn semacquire_limited<L: IntoLimit>(count: &AtomicU32, order: Order, limit: L) -> Result<(), L::Error> {
    limit.limited(|limit| {
        Global::table().acquire_limited_for(count, order, limit, sleep_at_once, QueuedWait::for_other())
    })
}

/// Returns a future that acquires as [`semacquire`] does, for async tasks: tasks wait in the same queue as threads and
/// goroutines. Not in Go.
///
/// See [`Acquire`] for the effect of dropping the future.
///
/// # Examples
///
/// ```
/// use std::pin::pin;
/// use std::sync::atomic::AtomicU32;
/// use std::task::{Context, Poll, Waker};
/// use sudog::low_level::sema::{Wake, semacquire_async, semrelease};
///
/// let permits = AtomicU32::new(0);
/// let mut acquire = pin!(semacquire_async(&permits));
/// let mut cx = Context::from_waker(Waker::noop());
/// assert_eq!(acquire.as_mut().poll(&mut cx), Poll::Pending); // it is queued now
/// semrelease(&permits, Wake::Handoff);
/// assert_eq!(acquire.as_mut().poll(&mut cx), Poll::Ready(()));
/// # use std::future::Future;
/// ```
pub fn semacquire_async(count: &AtomicU32) -> Acquire<'_> {
    Global::table().acquire_async_for(count, Order::Fifo, QueuedWait::for_other())
}

/// Returns a future as [`semacquire_async`] does, which joins the queue at the back or at the front.
///
/// # Examples
///
/// ```
/// use std::sync::atomic::AtomicU32;
/// use sudog::low_level::sema::{Order, semacquire_mutex_async};
///
/// static PERMITS: AtomicU32 = AtomicU32::new(1);
///
/// async fn jump_the_queue() {
///     semacquire_mutex_async(&PERMITS, Order::Lifo).await;
/// }
/// # let _ = jump_the_queue();
/// ```
pub fn semacquire_mutex_async(count: &AtomicU32, order: Order) -> Acquire<'_> {
    Global::table().acquire_async(count, order)
}

/// Takes a permit if there is one. Never waits.
///
/// # Examples
///
/// ```
/// use std::sync::atomic::AtomicU32;
/// use sudog::low_level::sema::try_semacquire;
///
/// let permits = AtomicU32::new(1);
/// assert!(try_semacquire(&permits));
/// assert!(!try_semacquire(&permits));
/// ```
#[inline]
#[must_use = "false: there was no permit"]
pub fn try_semacquire(count: &AtomicU32) -> bool {
    table::take(count)
}

/// Gives a permit to the semaphore at `count`, and wakes the first waiter if there is one.
///
/// Go: `sync.runtime_Semrelease`. As in Go, a handoff by a goroutine yields: the waiter runs next if it belongs to the
/// same worker, and the releaser goes to the end of the run queue. A thread just goes on. Any other release is a
/// safepoint: a goroutine that has run for long yields at the end of the release, after the permit has been given.
///
/// A counter that would exceed `u32::MAX` ends the process ([`fatal`](fn@crate::fatal)).
///
/// # Examples
///
/// ```
/// use std::sync::atomic::{AtomicU32, Ordering};
/// use sudog::low_level::sema::{Wake, semrelease};
///
/// let permits = AtomicU32::new(0);
/// semrelease(&permits, Wake::Normal);
/// assert_eq!(permits.load(Ordering::Relaxed), 1); // there was no waiter
/// ```
#[inline]
pub fn semrelease(count: &AtomicU32, wake: Wake) {
    Global::table().release(count, wake);
}

/// Gives `n` permits at once and wakes as many waiters, at most 32 of them under one hold of the bucket's lock. A
/// counter that would exceed `u32::MAX` ends the process. A goroutine that has run for long yields at the end.
///
/// # Examples
///
/// ```
/// use std::sync::atomic::{AtomicU32, Ordering};
/// use sudog::low_level::sema::semrelease_many;
///
/// let permits = AtomicU32::new(0);
/// semrelease_many(&permits, 3);
/// assert_eq!(permits.load(Ordering::Relaxed), 3);
/// ```
#[inline]
pub fn semrelease_many(count: &AtomicU32, n: u32) {
    Global::table().release_many(count, n);
}

/// Gives a permit to each of the first `n` waiters, as a handoff does, but without yielding. If there are fewer than
/// `n` waiters, adds the remaining permits to the counter. For semaphores whose permits are meant for the present
/// waiters, such as a wait group's.
///
/// A counter that would exceed `u32::MAX` ends the process. Once the last permit has been given the counter is not used
/// any more: the acquirer of that permit may free it. A goroutine that has run for long yields at the end.
///
/// # Examples
///
/// ```
/// use std::sync::atomic::{AtomicU32, Ordering};
/// use sudog::low_level::sema::semgrant_many;
///
/// let permits = AtomicU32::new(0);
/// semgrant_many(&permits, 2);
/// assert_eq!(permits.load(Ordering::Relaxed), 2); // there was no waiter
/// ```
#[inline]
pub fn semgrant_many(count: &AtomicU32, n: u32) {
    Global::table().grant_many(count, n);
}

/// Returns the number of waiters of the semaphore at `count` at this moment. For tests and diagnostics: the answer may
/// be outdated when it is returned, and the call walks along the queue under the bucket's lock.
///
/// # Examples
///
/// ```
/// use std::sync::atomic::AtomicU32;
///
/// assert_eq!(sudog::low_level::sema::waiters(&AtomicU32::new(0)), 0);
/// ```
#[must_use]
pub fn waiters(count: &AtomicU32) -> usize {
    Global::table().waiters(count)
}
