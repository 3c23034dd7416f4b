//! What every lock, readers-writer lock and semaphore must do: one suite for each trait.
//!
//! The tests of the workspace run it on real threads, `cargo sim explore --conformance` under the schedules of the simulated
//! machine, where a check has fewer rounds.

pub mod locks;
pub mod rw_locks;
pub mod semaphores;

use std::time::{Duration, Instant};

use sudog_runtime::shim::system::{now, thread};

/// A check by name. It calls its argument now and then if it takes long: for a watchdog.
pub type Check = (&'static str, fn(fn()));

/// Checks by their names.
macro_rules! checks {
    ($Backend:ident: $($check:ident,)+) => { [$((stringify!($check), $check::<$Backend>)),+] };
}
use checks;

const fn real_or_simulated(real: u32, simulated: u32) -> u32 {
    if cfg!(sudog_sim) { simulated } else { real }
}

fn far() -> Instant {
    now() + Duration::from_secs(3600)
}

/// Waits for a state.
fn eventually(state: impl Fn() -> bool) {
    while !state() {
        thread::sleep(Duration::from_micros(20));
    }
}
