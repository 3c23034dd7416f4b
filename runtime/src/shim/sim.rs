//! The simulated machine: see the crate `sudog-sim`. Outside a simulation all of this behaves as `std`.

pub use std::time::Instant;

pub use sudog_sim::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
pub use sudog_sim::stack as stacks;
pub use sudog_sim::thread::yield_now;
pub use sudog_sim::time::now;
pub use sudog_sim::{Cell, futex, pause, work};

use std::time::Duration;

/// Executes a full fence.
#[track_caller]
pub fn full_fence() {
    fence(Ordering::SeqCst);
}

/// Returns the number of processors of the simulated machine; 1 outside a simulation.
pub fn num_cpus() -> u32 {
    sudog_sim::processors().map_or(1, |n| n as u32)
}

/// Returns the number of the processor that runs the calling thread; `None` outside a simulation.
pub fn processor() -> Option<u32> {
    sudog_sim::processor().map(|n| n as u32)
}

/// The processor time of a thread, which a simulated machine does not report.
pub struct ThreadClock;

impl ThreadClock {
    /// Creates a clock that reports no time.
    pub const fn new() -> Self {
        Self
    }

    /// Assigns the clock to the calling thread.
    pub fn start(&self) {}

    /// Returns None: the simulated machine does not report the time.
    pub fn time(&self) -> Option<Duration> {
        None
    }
}
