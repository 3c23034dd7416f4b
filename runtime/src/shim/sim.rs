//! The simulated machine: see the crate `sudog-sim`. Outside a simulation all of this is `std`'s.

pub use std::time::Instant;

pub use sudog_sim::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
pub use sudog_sim::stack as stacks;
pub use sudog_sim::thread::yield_now;
pub use sudog_sim::time::now;
pub use sudog_sim::{Cell, futex, pause, work};

use std::time::Duration;

/// A full fence.
#[track_caller]
pub fn full_fence() {
    fence(Ordering::SeqCst);
}

/// Processors of the simulated machine; one outside a simulation.
pub fn num_cpus() -> u32 {
    sudog_sim::processors().map_or(1, |n| n as u32)
}

/// The number of the processor that runs the calling thread; `None` outside a simulation.
pub fn processor() -> Option<u32> {
    sudog_sim::processor().map(|n| n as u32)
}

/// The processor time of a thread, which the machine does not tell.
pub struct ThreadClock;

impl ThreadClock {
    /// One that tells nothing.
    pub const fn new() -> Self {
        Self
    }

    /// It is the calling thread's from now on.
    pub fn start(&self) {}

    /// None: the machine does not say.
    pub fn time(&self) -> Option<Duration> {
        None
    }
}
