//! Counters of the scheduler, for a program that watches itself: see [`metrics`](fn@metrics). Feature `metrics`.
//!
//! | | stored in | written by |
//! |---|---|---|
//! | counts of a worker | [`counters::Counters`], a field of the worker | the worker's thread only, so no count needs a locked instruction |
//! | length of a run queue | [`counters::Length`], a field of the queue | the worker's thread only |
//! | starvations and successful spins of mutexes | [`lock_counts`](crate::sema::lock_counts) | each contender, on the slow path of `lock` |
//! | time waited for locks | [`mutex_wait`](crate::sema::mutex_wait) | each waiter, after the wait |
//!
//! Without the feature these types are empty, and their functions do nothing.

pub(super) mod counters;
#[cfg(feature = "metrics")]
mod histogram;
#[cfg(feature = "metrics")]
pub(super) mod schedtrace;
#[cfg(all(feature = "metrics", feature = "serde"))]
mod serde;
#[cfg(feature = "metrics")]
mod snapshot;

#[cfg(feature = "metrics")]
pub use histogram::Histogram;
#[cfg(feature = "metrics")]
pub use snapshot::{Metrics, WorkerMetrics, metrics};
