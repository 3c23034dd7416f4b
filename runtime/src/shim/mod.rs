//! The only module through which this crate uses atomics, cells, locks, threads and clocks: `std`'s, loom's under
//! `--cfg sudog_loom`, or the simulated machine's under `--cfg sudog_sim`.
//!
//! The cfgs are this project's own, so a user's `--cfg loom`, for models of the user's code, does not affect this
//! project.

pub mod asymmetric;
#[cfg(all(target_os = "linux", not(any(sudog_loom, sudog_sim))))]
pub mod futex;
#[cfg(sudog_loom)]
mod loom;
#[cfg(not(sudog_loom))]
mod mutex;
#[cfg(any(sudog_sim, all(target_os = "linux", not(sudog_loom))))]
mod parker;
#[cfg(sudog_loom)]
pub mod reached;
#[cfg(sudog_loom)]
mod sc;
#[cfg(sudog_sim)]
mod sim;
#[cfg(not(any(sudog_loom, sudog_sim)))]
mod std;
pub mod system;

#[cfg(sudog_loom)]
pub use self::loom::*;
#[cfg(not(sudog_loom))]
pub use self::mutex::{Mutex, MutexGuard};
#[cfg(any(sudog_sim, all(target_os = "linux", not(sudog_loom))))]
pub use self::parker::Parker;
#[cfg(sudog_sim)]
pub use self::sim::*;
#[cfg(not(any(sudog_loom, sudog_sim)))]
pub use self::std::*;

/// Marks a state for a model: see `reached.rs`. On the real machine this function does nothing.
#[cfg(not(sudog_loom))]
#[inline(always)]
pub fn mark(_state: &'static str) {}

#[cfg(sudog_loom)]
pub use reached::mark;

/// Makes functions that are `const`, except in a model: loom's atomics and cells have no `const` constructor.
#[doc(hidden)]
#[macro_export]
macro_rules! const_unless_model {
    ($($(#[$attribute:meta])* $vis:vis const fn $name:ident($($arg:ident: $Arg:ty),*) -> $Result:ty $body:block)+) => {$(
        #[cfg(not(sudog_loom))]
        $(#[$attribute])*
        $vis const fn $name($($arg: $Arg),*) -> $Result $body

        #[cfg(sudog_loom)]
        $(#[$attribute])*
        $vis fn $name($($arg: $Arg),*) -> $Result $body
    )+};
}
