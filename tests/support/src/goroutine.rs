//! Helpers shared by the suites about goroutines.

use std::any::Any;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};
use std::thread::{self, ThreadId};

use sudog_runtime::goroutine::{gosched, set_max_procs, synctest};

use crate::Watchdog;

/// The workers of a test that sets the number of workers, or counts goroutines, and so must run alone. The drop
/// restores the number of workers.
pub struct Alone {
    /// The watchdog of the test.
    pub watchdog: Watchdog,
    /// The number of workers before the test.
    procs: usize,
    _turn: MutexGuard<'static, ()>,
}

/// Waits for the other tests that need the workers to themselves.
pub fn alone() -> Alone {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = crate::turn(&TURN);
    Alone { watchdog: Watchdog::new(), procs: sudog_runtime::goroutine::max_procs(), _turn: turn }
}

/// Calls [`alone`], and sets the number of workers to `procs`.
pub fn alone_with(procs: usize) -> Alone {
    let alone = alone();
    set_max_procs(procs);
    alone
}

impl Drop for Alone {
    fn drop(&mut self) {
        set_max_procs(self.procs);
    }
}

/// Runs `main` in a bubble, whose goroutines have one worker to themselves, which other tests do not touch. All
/// goroutines of the bubble must end.
pub fn one_worker<T: Send + 'static>(main: impl FnOnce() -> T + Send + 'static) -> T {
    synctest::test(main)
}

/// Waits for a state as a goroutine, and lets the other goroutines of its worker bring the state about.
pub fn until(state: impl Fn() -> bool) {
    fn wait(state: &dyn Fn() -> bool) {
        while !state() {
            gosched();
        }
    }
    wait(&state); // compiled once, not for each state
}

/// A value that counts its drops.
pub struct Dropped<'a>(pub &'a AtomicUsize);

impl Drop for Dropped<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Relaxed);
    }
}

/// The thread that runs the caller: the worker of a goroutine.
pub fn here() -> ThreadId {
    thread::current().id()
}

/// The text of a panic payload.
#[track_caller]
pub fn text(payload: &(dyn Any + Send)) -> &str {
    payload.downcast_ref::<String>().map_or_else(|| payload.downcast_ref::<&str>().expect("a text"), String::as_str)
}
