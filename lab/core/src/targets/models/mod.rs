//! Models of foreign locks: written after the algorithm of each, for the simulated machine, where the originals cannot
//! run (they sleep in the real kernel, and their accesses are no steps of the simulation). For study only.
//!
//! | model | algorithm | omissions |
//! |---|---|---|
//! | [`TasBackoff`] | a swap in a loop with exponential back-off; Anderson 1990 | |
//! | [`StdMutex`] | `std::sync::Mutex` on a futex, Rust 1.62 and later | poisoning |
//! | [`Anderson`] | the array lock of Anderson 1990 | boolean slots: see there |
//! | [`ParkingLot`] | `parking_lot::RawMutex` 0.12 | the table that grows; a bucket's lock is the system's |
//! | [`Cna`] | the compact NUMA-aware lock of Dice and Kogan, EuroSys 2019 | the packing of a node into two words |
//! | [`TwaLock`] | the ticket lock with a waiting array, Dice and Kogan, Euro-Par 2019; `TwaLock<Chains>`: over waiting chains | |
//! | [`TicketLines`] | the ticket lock, its words on two cache lines | |
//! | [`Hapax`] | the Hapax lock of Dice and Kogan, arXiv 2511.14608 | visible waiters |
//! | [`Fissile`] | the Fissile lock of Dice and Kogan, NETYS 2020 | |
//! | [`BarDavid`] | around any lock: the transformation of Bar-David, 1998 | |
//!
//! There may be patents on CNA, Fissile, Hapax and the TWA lock: see `NOTICE`.

mod anderson;
mod bar_david;
mod cna;
mod fissile;
mod hapax;
mod parking_lot;
mod std_mutex;
mod tas_backoff;
mod ticket_lines;
mod twa_lock;

pub use anderson::Anderson;
pub use bar_david::BarDavid;
pub use cna::Cna;
pub use fissile::Fissile;
pub use hapax::Hapax;
pub use parking_lot::ParkingLot;
pub use std_mutex::StdMutex;
pub use tas_backoff::TasBackoff;
pub use ticket_lines::TicketLines;
pub use twa_lock::{Chains, TwaLock};
