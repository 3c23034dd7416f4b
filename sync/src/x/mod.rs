//! What Go keeps in `golang.org/x/sync`, and in `golang.org/x/time`.
//!
//! * [`Weighted`] is a semaphore whose permits are taken several at a time, strictly in turn.
//! * [`ErrGroup`] is a group of tasks that may fail: the first failure cancels the rest. Available on Unix.
//! * [`SingleFlight`] makes one call of many that want the same.
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
