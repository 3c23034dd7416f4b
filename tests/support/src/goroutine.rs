//! What the suites about goroutines share.

use std::any::Any;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};
use std::thread::{self, ThreadId};

use sudog_runtime::goroutine::{gosched, set_max_procs, synctest};

use crate::Watchdog;

/// A test that sets the number of workers, or counts goroutines, has the workers to itself; the number is restored at the
/// end.
pub struct Alone {
    /// The watchdog of the test.
    pub watchdog: Watchdog,
    /// The number of workers before.
    procs: usize,
    _turn: MutexGuard<'static, ()>,
}

/// Waits for the other tests that need the workers to themselves.
pub fn alone() -> Alone {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = crate::turn(&TURN);
    Alone { watchdog: Watchdog::new(), procs: sudog_runtime::goroutine::max_procs(), _turn: turn }
}

/// [`alone`], with so many workers.
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

/// Runs `main` with goroutines that have one worker to themselves, which other tests do not touch: those of a bubble. All
/// of them must end.
pub fn one_worker<T: Send + 'static>(main: impl FnOnce() -> T + Send + 'static) -> T {
    synctest::test(main)
}

/// Waits for a state as a goroutine, and lets the others of its worker bring it about.
pub fn until(state: impl Fn() -> bool) {
    while !state() {
        gosched();
    }
}

/// Counts its drops.
pub struct Dropped<'a>(pub &'a AtomicUsize);

impl Drop for Dropped<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Relaxed);
    }
}

/// The calling thread.
pub fn here() -> ThreadId {
    thread::current().id()
}

/// The text of a panic.
#[track_caller]
pub fn text(payload: &(dyn Any + Send)) -> &str {
    payload.downcast_ref::<String>().map_or_else(|| payload.downcast_ref::<&str>().expect("a text"), String::as_str)
}
