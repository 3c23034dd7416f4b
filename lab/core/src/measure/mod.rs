//! Observations of a run: waits, wake-ups, admissions, the use of processors.

pub mod admissions;
pub mod growth;
pub mod log;
pub mod metrics;
pub mod mt;
pub mod ticks;
pub mod usage;
pub mod waits;
pub mod wakeups;
