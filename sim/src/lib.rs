//! A deterministic machine: 1 to 128 simulated processors, on which the library's own code runs.
//!
//! A program's threads are coroutines here, its atomics steps of the machine, its clock simulated. [`Machine::run`] runs them
//! on processors whose memory and system have costs.
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
pub use crate::machine::preset::{Memory, PRESETS, Preset, System};
use crate::machine::timed::Timed;
pub use crate::machine::{Stopped, ThreadReport, Why, is_simulated, live_threads, random, socket, traffic, work};

/// One pause of a spin loop.
#[inline]
pub fn pause() {
    machine::pause();
}

/// Processors of the simulated machine, inside a simulation.
#[must_use]
pub fn processors() -> Option<usize> {
    machine::processors()
}

/// Returns the number of the processor that runs this simulated thread; `None` outside a simulation. If schedules are
/// explored, threads are of two processors in turn.
#[must_use]
pub fn processor() -> Option<usize> {
    machine::processor()
}

/// The number of this simulated thread.
#[must_use]
pub fn thread_id() -> usize {
    machine::thread_id()
}

/// A machine with costs.
#[derive(Clone, Debug)]
pub struct Machine {
    /// What things cost.
    pub preset: Preset,
    /// How many of its processors are used.
    pub processors: usize,
    /// Decides all random numbers.
    pub seed: u64,
    /// Simulated time after which it stops.
    pub limit: Duration,
}

impl Machine {
    /// The most processors.
    pub const MOST: usize = 128;

    /// All processors of this machine, for a simulated minute at most.
    #[must_use]
    pub fn new(preset: &Preset) -> Self {
        Self { preset: preset.clone(), processors: preset.processors, seed: 0, limit: Duration::from_secs(60) }
    }

    /// Runs `main` as the first thread, until it returns. Other threads are left where they are then.
    ///
    /// # Errors
    ///
    /// If no thread can run, or the time is up.
    ///
    /// # Panics
    ///
    /// As `main` does; also inside another simulation, or with more processors than [`Self::MOST`] or none.
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
