//! The one door to atomics, cells, locks, threads and clocks: `std`'s, or loom's under `--cfg sudog_loom`.
//!
//! The cfg is this project's own, so that a user who models *their* code with `--cfg loom` does not switch ours.

#[cfg(all(target_os = "linux", not(sudog_loom)))]
pub mod futex;
#[cfg(sudog_loom)]
mod loom;
#[cfg(sudog_loom)]
pub mod reached;
#[cfg(sudog_loom)]
mod sc;
#[cfg(not(sudog_loom))]
mod std;

#[cfg(sudog_loom)]
pub use self::loom::*;
#[cfg(not(sudog_loom))]
pub use self::std::*;

/// For a model, a state that it may have to reach: see `reached.rs`. On the real machine, nothing.
#[cfg(not(sudog_loom))]
#[inline(always)]
pub fn mark(_state: &'static str) {}

#[cfg(sudog_loom)]
pub use reached::mark;
