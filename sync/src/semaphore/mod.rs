//! The semaphores. Each can be the backend of a mutex, and can also be used without a mutex.
//!
//! | semaphore | bytes | waiters stand in | LIFO | handoff | deadlines | blocks | async |
//! |---|--:|---|---|---|---|---|---|
//! | [`RuntimeSema`], [`TableSema`] | 4 | the global table of sudog treaps, or another table | yes | yes | in line | the G | yes |
//! | `ParkingLotSema` (feature `parking_lot_core`) | 4 | parking_lot_core's table | no | yes | in line | the thread | no |
//! | [`FutexSema`] (Linux) | 8 | the kernel's table | no | no | in line | the thread | no |
//! | `Benaphore` and others of the crate `sudog-locks` | 32, 24 | a waiting array | no | always | in line | the G | no |

#[cfg(target_os = "linux")]
mod futex;
#[cfg(all(feature = "parking_lot_core", not(sudog_loom)))]
mod parking_lot;
mod runtime;

#[cfg(target_os = "linux")]
pub use futex::FutexSema;
#[cfg(all(feature = "parking_lot_core", not(sudog_loom)))]
pub use parking_lot::ParkingLotSema;
pub use runtime::{RuntimeSema, TableSema};
