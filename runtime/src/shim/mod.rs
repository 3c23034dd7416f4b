//! The one door to atomics, cells, locks, threads and clocks: `std`'s, or loom's under `--cfg sudog_loom`.
//!
//! The cfg is this project's own, so that a user who models *their* code with `--cfg loom` does not switch ours.

#[cfg(all(target_os = "linux", not(sudog_loom)))]
pub mod futex;
#[cfg(sudog_loom)]
mod loom;
#[cfg(not(sudog_loom))]
mod std;

#[cfg(sudog_loom)]
pub use self::loom::*;
#[cfg(not(sudog_loom))]
pub use self::std::*;
