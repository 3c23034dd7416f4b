//! The machinery of runs: the contenders, and the loops that they execute.

#[cfg(any(target_os = "linux", sudog_sim))]
pub mod calibration;
pub mod contenders;
pub mod driver;
mod floors;
pub mod lockable;
#[cfg(sudog_sim)]
pub mod machine;
#[cfg(not(sudog_sim))]
pub mod noise;
pub mod pinned;
pub mod sections;
