//! The measured loop of a single contender, which locks and unlocks, or acquires and releases.

use std::hint::black_box;
use std::time::Duration;

use crossbeam_utils::CachePadded;
use sudog_runtime::shim::system;

use crate::targets::lockable::{Access, Lockable, LockableJob};
use crate::targets::target::Target;

/// A job that returns the nanoseconds of a pair, measured for at least the given time.
pub struct Pairs(pub Duration);

impl Pairs {
    /// Does the job on a target. This function is not generic, so the measured loops are compiled once, in this crate.
    pub fn on(self, target: Target) -> f64 {
        target.with(self)
    }
}

impl LockableJob for Pairs {
    type Out = f64;

    fn run<E: Lockable>(self, setup: &E::Setup) -> f64 {
        /// The number of pairs between two readings of the clock: so many that the cost of a reading is lost among
        /// them.
        const BATCH: u32 = 10_000;

        let target = CachePadded::new(E::new(setup, 1));
        // Make the compiler assume that other threads know the target, as they would a target in a static.
        let target: &E = black_box(&target);
        let start = system::now();
        let mut pairs = 0_u64;
        loop {
            for _ in 0..BATCH {
                let guard = target.enter(0, Access::Write);
                // SAFETY: `guard` comes from `enter` of the same target and contender above, on this thread.
                unsafe { target.leave(0, guard) };
            }
            pairs += u64::from(BATCH);
            let elapsed = system::now().saturating_duration_since(start);
            if elapsed >= self.0 {
                return elapsed.as_nanos() as f64 / pairs as f64;
            }
        }
    }
}
