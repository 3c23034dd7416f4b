//! What all suites need: to wait for a state, and an end to waits that have none.
#![allow(dead_code)] // compiled into each suite, and none needs all of it

use std::io::Write;
use std::panic;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Once};
use std::thread;
use std::time::Duration;

/// Ends the process, naming the test, if the test has neither ended nor made progress for a long time: a lost wake-up
/// would leave it hanging without a word.
pub struct Watchdog {
    progress: Arc<AtomicU64>,
    _alive: Sender<()>,
}

impl Watchdog {
    const PATIENCE: Duration = Duration::from_secs(60);

    /// For the test that runs on this thread, until it is dropped.
    pub fn new() -> Self {
        show_panics();
        let test = thread::current().name().unwrap_or("?").to_owned();
        let (alive, ended) = channel::<()>();
        let progress = Arc::new(AtomicU64::new(0));
        let watched = progress.clone();
        thread::spawn(move || {
            let mut seen = 0;
            while ended.recv_timeout(Self::PATIENCE) == Err(RecvTimeoutError::Timeout) {
                let now = watched.load(Relaxed);
                if now == seen {
                    let patience = Self::PATIENCE;
                    sudog::runtime::fatal(&format!("{test}: no progress for {patience:?}"));
                }
                seen = now;
            }
        });
        Self { progress, _alive: alive }
    }

    /// The test is still getting somewhere.
    pub fn pat(&self) {
        self.progress.fetch_add(1, Relaxed);
    }
}

/// A test whose thread panics may leave others waiting for it; what the harness has captured is lost when the watchdog
/// then ends the process. So the message goes to the standard error that it does not capture, too.
fn show_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let _ = writeln!(std::io::stderr(), "{info}");
            usual(info);
        }));
    });
}

/// Waits for a state; the watchdog barks if it never comes.
pub fn eventually(state: impl Fn() -> bool) {
    let mut polls = 0;
    while !state() {
        polls += 1;
        if polls < 100 {
            thread::yield_now();
        } else {
            thread::sleep(Duration::from_micros(50)); // leave the processor to those who bring it about
        }
    }
}

/// Counts calls.
#[derive(Clone, Default)]
pub struct Calls(pub Arc<AtomicUsize>);

impl Calls {
    pub fn call(&self) -> impl FnOnce() + Send + use<> {
        let calls = self.clone();
        move || _ = calls.0.fetch_add(1, SeqCst)
    }

    pub fn get(&self) -> usize {
        self.0.load(SeqCst)
    }
}
