//! The work of goroutines that do not wait, and the batons that goroutines wait for.

use std::hint::black_box;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use sudog_sync::WaitGroup;

use crate::rounds::steps;

/// Works for a time of the processor. The work is counted in steps, so time in which the goroutine does not run does
/// not count.
pub fn burn(time: Duration) {
    black_box(steps((steps_per_ns() * time.as_nanos() as f64) as u32, black_box(1)));
}

fn steps_per_ns() -> f64 {
    static STEPS_PER_NS: OnceLock<f64> = OnceLock::new();
    *STEPS_PER_NS.get_or_init(|| {
        const N: u32 = 20_000;
        let time = || {
            let start = Instant::now();
            black_box(steps(N, black_box(1)));
            start.elapsed().as_nanos() as f64
        };
        f64::from(N) / (0..50).map(|_| time()).fold(f64::INFINITY, f64::min)
    })
}

/// Reads the clock again and again, for a time.
pub fn spin(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {}
}

/// A baton that a goroutine gives to another: a semaphore without permits. The baton is made of a wait group, as a Go
/// program has nothing that is closer to the runtime's semaphore. (Of Go's time for a round trip, 310 ns, an unbuffered
/// channel would take 235.)
///
/// Only a single goroutine ever takes, so the `add` of `take` comes before the next `done`.
pub struct Baton(WaitGroup);

impl Baton {
    /// Creates a baton that has not been given.
    pub fn new() -> Self {
        let wg = WaitGroup::new();
        wg.add(1);
        Self(wg)
    }

    /// Gives the baton. The baton must not be given already.
    pub fn give(&self) {
        self.0.done();
    }

    /// Waits until the baton is given.
    pub fn take(&self) {
        self.0.wait();
        self.0.add(1);
    }
}

impl Default for Baton {
    fn default() -> Self {
        Self::new()
    }
}
