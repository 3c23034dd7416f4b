//! A laboratory for locks and semaphores, and for the rest of `sync`: the same benches for all, for throughput and for
//! fairness.
//!
//! * [`locks`], [`rw_locks`] and [`semaphores`] are the registries: what is compared, by name. The adapters of the peers
//!   are [`RawLock`](sudog_sync::RawLock)s and [`RawRwLock`](sudog_sync::RawRwLock)s like ours, and of use outside the
//!   laboratory.
//! * [`compose`] makes locks of an inner lock and a capacitor, by name.
//! * [`driver`] is MutexBench, generic over the [`entrance`]: a lock, a readers-writer lock, a semaphore, or one of the
//!   [`floors`]; [`waits`] and [`metrics`] are how it measures.
//! * [`admissions`] is what a [`mod@log`] of all admissions tells: for `--metrics`; [`wakeups`] is what the system adds.
//! * [`rounds`] are how a number of operations is measured, for [`mod@bench::syncbench`] and for those beside Go's.
//! * [`queues`] are those that a bucket of the semaphore table can have, and [`growth`] is how they are judged.
//! * [`contenders`] are threads or goroutines.
//! * [`mod@bench`] has one module for each command.

pub mod admissions;
pub mod bench;
pub mod cli;
pub mod compose;
pub mod contenders;
pub mod driver;
pub mod entrance;
pub mod failure;
pub mod floors;
pub mod growth;
pub mod locks;
pub mod log;
pub mod metrics;
pub mod output;
pub mod pinned;
pub mod policies;
pub mod queues;
mod registry;
pub mod report;
pub mod rounds;
pub mod rw_locks;
pub mod sections;
pub mod semaphores;
pub mod subject;
pub mod table;
pub mod ticks;
pub mod units;
pub mod usage;
pub mod waits;
pub mod wakeups;
