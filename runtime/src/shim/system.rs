//! The types that sleep in the operating system, threads and the clock: `std`'s, or the simulated machine's under
//! `--cfg sudog_sim`. Models use `std`'s, too.

#[cfg(not(sudog_sim))]
pub use std::{
    sync::{Condvar, Mutex, MutexGuard, OnceLock, atomic},
    thread, thread_local,
};
#[cfg(sudog_sim)]
pub use sudog_sim::{
    atomic,
    sync::{Condvar, Mutex, MutexGuard, OnceLock},
    thread, thread_local,
};

pub use super::now;
