//! A deterministic machine: 1 to 128 simulated processors, on which the library's own code runs.
//!
//! Inside a simulation the program's threads are coroutines, its atomic accesses are steps of the machine, and its
//! clock is simulated. [`Machine::run`] runs the threads on processors whose memory and system have costs.
//!
//! The library is compiled against this machine by `RUSTFLAGS="--cfg sudog_sim"`.
#![cfg(target_os = "linux")]

mod arena;
pub mod atomic;
mod cell;
pub mod explore;
pub mod futex;
mod local;
mod machine;
pub mod stack;
pub mod sync;
pub mod thread;
pub mod time;

use std::panic::resume_unwind;
use std::time::Duration;

pub use crate::arena::Arena;
pub use crate::cell::Cell;
pub use crate::local::LocalKey;
use crate::machine::Mode;
pub use crate::machine::cache::Traffic;
pub use crate::machine::explored::{Choice, Decision};
pub use crate::machine::preset::{Details, Memory, PRESETS, Preset, System};
use crate::machine::timed::Timed;
pub use crate::machine::{
    Stopped, ThreadReport, Why, end_slice_extension, is_simulated, live_threads, random, request_slice_extension,
    socket, traffic, work,
};

/// Pauses once in a spin loop.
#[inline]
pub fn pause() {
    machine::pause();
}

/// Returns the number of processors of the simulated machine; `None` outside a simulation.
#[must_use]
pub fn processors() -> Option<usize> {
    machine::processors()
}

/// Returns the number of the processor that runs this simulated thread; `None` outside a simulation. If schedules are
/// explored, threads alternate between two processors.
#[must_use]
pub fn processor() -> Option<usize> {
    machine::processor()
}

/// Returns the number of this simulated thread.
#[must_use]
pub fn thread_id() -> usize {
    machine::thread_id()
}

/// A machine with costs.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The costs of memory and of the system.
    pub preset: Preset,
    /// The number of processors that are used.
    pub processors: usize,
    /// The seed that decides all random numbers.
    pub seed: u64,
    /// The simulated time after which the machine stops.
    pub limit: Duration,
}

impl Machine {
    /// The largest number of processors.
    pub const MOST: usize = 128;

    /// Creates a machine with all processors of this preset, which runs for a simulated minute at most.
    #[must_use]
    pub fn new(preset: &Preset) -> Self {
        Self { preset: preset.clone(), processors: preset.processors, seed: 0, limit: Duration::from_secs(60) }
    }

    /// Runs `main` as the first thread, until `main` returns. The other threads stop then.
    ///
    /// # Errors
    ///
    /// Fails if no thread can run, or if the time is up.
    ///
    /// # Panics
    ///
    /// Panics as `main` does; also inside another simulation, or with no processors, or with more than [`Self::MOST`].
    pub fn run<T: 'static>(&self, main: impl FnOnce() -> T + 'static) -> Result<T, Box<Stopped>> {
        assert!((1..=Self::MOST).contains(&self.processors), "1 to {} processors", Self::MOST);
        let mode = Mode::Timed(Box::new(Timed::new(&self.preset, self.processors, self.seed)));
        let limit = u64::try_from(self.limit.as_nanos()).unwrap_or(u64::MAX / 8);
        match machine::run(self.preset.clone(), mode, self.seed, limit, main).0 {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(payload)) => resume_unwind(payload),
            Err(stopped) => Err(Box::new(stopped)),
        }
    }
}
