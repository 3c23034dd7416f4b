//! Locks, semaphores, queues and policies for study and comparison: no program needs them.
//!
//! * [`stages`]: the Go mutex in eight stages, from a bare semaphore to today's mutex;
//! * [`policy`]: policies of former versions of Go, strict fairness, and a policy that reports events;
//! * [`SemTable`] and [`Table`]: semaphore tables other than the global table, with the queues of [`queue`], and
//!   [`TableSema`] as their semaphore;
//! * `FutexSema` (Linux) and `ParkingLotSema` (feature `parking_lot_core`): semaphores over other tables than sudog's;
//! * [`FifoMutex`]: Go's mutex of 2008.
//!
//! This module needs no feature: what a program does not use is not in the program.

pub use sudog_runtime::sema::{BUCKETS, Global, SemTable, Table, queue};
pub use sudog_sync::mutex::{FifoMutex, stages};
#[cfg(target_os = "linux")]
pub use sudog_sync::semaphore::FutexSema;
#[cfg(all(feature = "parking_lot_core", not(sudog_loom)))]
pub use sudog_sync::semaphore::ParkingLotSema;
pub use sudog_sync::semaphore::TableSema;

pub mod policy {
    //! Policies of the mutex for study: Go's former policies, strict fairness, and a policy that reports events. The
    //! policies for use are in [`low_level::policy`](crate::low_level::policy).

    pub use sudog_sync::mutex::policy::{Fifo, Go1_8, Go1_9, Go1_14, Recorded};
}
