//! Packages of Go's `golang.org/x/sync` and `golang.org/x/time`.
//!
//! * [`Weighted`] is a semaphore. An acquirer may take several permits at a time; acquirers are served in the order in
//!   which they come.
//! * [`ErrGroup`] is a group of tasks that may fail: the first failure cancels the other tasks. Available on Unix.
//! * [`SingleFlight`] makes a single call for all callers that ask for the same key at the same time.
//! * `rate` limits how often events happen: Go's `x/time/rate`. Available on Unix.

#[cfg(all(unix, not(sudog_loom)))]
mod err_group;
#[cfg(all(unix, not(sudog_loom)))]
pub mod rate;
#[cfg(not(sudog_loom))]
mod single_flight;
mod weighted;

#[cfg(all(unix, not(sudog_loom)))]
pub use err_group::ErrGroup;
#[cfg(not(sudog_loom))]
pub use single_flight::{Flight, SingleFlight};
pub use weighted::{Held, Weighted};
