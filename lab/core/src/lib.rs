//! The parts of the laboratory that its commands share, and that the workspace's tests use: see the crate `sudog-lab`
//! for the folders.
//!
//! The measured loops are compiled in this crate, beside the commands, which are compiled at the same time.

#![allow(missing_docs)] // published nowhere; used by the laboratory and the workspace's tests only

pub mod conformance;
#[cfg(feature = "run")]
pub mod measure;
#[cfg(feature = "run")]
pub mod options;
#[cfg(feature = "run")]
pub mod output;
#[cfg(feature = "run")]
pub mod run;
pub mod targets;

pub use self::targets::{compose, locks, rw_locks, semaphores};
