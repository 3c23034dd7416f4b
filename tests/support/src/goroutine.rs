//! What the suites about goroutines share.

use std::any::Any;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};
use std::thread::{self, ThreadId};

use sudog_runtime::goroutine::gosched;

use crate::Watchdog;

/// A test that sets the number of workers, or counts goroutines in the background, has them to itself.
pub struct Alone {
    /// The watchdog of the test.
    pub watchdog: Watchdog,
    _turn: MutexGuard<'static, ()>,
}

/// Waits for the other tests that need the workers to themselves.
pub fn alone() -> Alone {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = crate::turn(&TURN);
    Alone { watchdog: Watchdog::new(), _turn: turn }
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
