//! The checks that every lock, readers-writer lock and semaphore must pass: a suite for each trait. The checks are
//! compiled once: they call backends through boxes.
//!
//! The tests of the workspace run the suites on real threads. `cargo sim explore --conformance` runs them under the
//! schedules of the simulated machine, where a check has fewer rounds.

pub mod locks;
pub mod rw_locks;
pub mod semaphores;

use std::time::{Duration, Instant};

use sudog_runtime::shim::system::{now, thread};

/// The name of a check, and the check. A check that takes long calls its argument now and then, for a watchdog.
pub type Check = (&'static str, Box<dyn Fn(fn())>);

/// Makes a list of checks of a backend, with their names.
macro_rules! checks {
    ($backend:expr; $($check:ident,)+) => {{
        let backend = $backend;
        vec![$((stringify!($check), Box::new(move |progress| $check(backend, progress)) as Box<dyn Fn(fn())>)),+]
    }};
}
use checks;

const fn real_or_simulated(real: u32, simulated: u32) -> u32 {
    if cfg!(sudog_sim) { simulated } else { real }
}

fn far() -> Instant {
    now() + Duration::from_secs(3600)
}

/// A scope of `std`, for threads that begin with boxed closures. `std`'s own functions would be compiled anew for each
/// closure, which means for each check of each backend.
#[derive(Clone, Copy)]
pub struct Scope<'scope, 'env>(&'scope thread::Scope<'scope, 'env>);

impl<'scope> Scope<'scope, '_> {
    /// Starts a thread.
    pub fn spawn<T: Send + 'scope>(self, f: impl FnOnce() -> T + Send + 'scope) -> thread::ScopedJoinHandle<'scope, T> {
        let f: Box<dyn FnOnce() -> T + Send + 'scope> = Box::new(f);
        self.0.spawn(f)
    }
}

/// Runs `f`, and waits for the threads that `f` has started.
pub fn scope<'env, T>(f: impl for<'scope> FnOnce(Scope<'scope, 'env>) -> T) -> T {
    fn run<'env>(f: &mut dyn for<'scope> FnMut(Scope<'scope, 'env>)) {
        thread::scope(|s| f(Scope(s)));
    }
    let (mut f, mut result) = (Some(f), None);
    run(&mut |s| {
        if let Some(f) = f.take() {
            result = Some(f(s));
        }
    });
    result.expect("the function has been called")
}

/// Waits until `state` returns true.
fn eventually(state: impl Fn() -> bool) {
    fn wait(state: &dyn Fn() -> bool) {
        while !state() {
            thread::sleep(Duration::from_micros(20));
        }
    }
    wait(&state); // compiled once, not for each state
}
