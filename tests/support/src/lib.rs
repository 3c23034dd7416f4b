//! What the tests of several crates share: a wait for a state, and an end to waits that have none.
#![cfg(not(sudog_loom))]

pub mod counting;
#[cfg(unix)]
pub mod goroutine;
#[cfg(unix)]
pub mod kinds;

use std::env;
use std::io::Write;
use std::panic;
use std::process::Command;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, Once, TryLockError};
use std::thread;
use std::time::Duration;

/// Ends the process, naming the test, if the test has neither ended nor made progress for a long time: a lost wake-up
/// would leave it hanging without a word.
pub struct Watchdog {
    progress: Arc<AtomicU64>,
    _alive: Sender<()>,
}

thread_local! {
    /// That of the test which runs on this thread, for however many watchdogs.
    static PROGRESS: Arc<AtomicU64> = Arc::default();
}

impl Watchdog {
    const PATIENCE: Duration = Duration::from_secs(60);

    /// For the test that runs on this thread, until it is dropped.
    #[expect(clippy::new_without_default, reason = "a watchdog belongs to the calling thread")]
    pub fn new() -> Self {
        show_panics();
        let test = thread::current().name().unwrap_or("?").to_owned();
        let (alive, ended) = channel::<()>();
        let progress = PROGRESS.with(Arc::clone);
        let watched = progress.clone();
        let mut seen = watched.load(Relaxed);
        thread::spawn(move || {
            while ended.recv_timeout(Self::PATIENCE) == Err(RecvTimeoutError::Timeout) {
                let now = watched.load(Relaxed);
                if now == seen {
                    let patience = Self::PATIENCE;
                    sudog_runtime::fatal(&format!("{test}: no progress for {patience:?}"));
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

/// As [`Watchdog::pat`], by the thread of the test, in a check that has no watchdog at hand.
pub fn pat() {
    PROGRESS.with(|progress| progress.fetch_add(1, Relaxed));
}

/// Waits for a turn, among tests that take turns. Such a wait is no lack of progress.
pub fn turn(turns: &'static Mutex<()>) -> MutexGuard<'static, ()> {
    loop {
        match turns.try_lock() {
            Ok(turn) => return turn,
            Err(TryLockError::Poisoned(failed)) => return failed.into_inner(),
            Err(TryLockError::WouldBlock) => {
                pat();
                thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

/// Whether a readers-writer lock with this `Debug` keeps out all new readers, given that it keeps out those of the calling
/// thread: a writer closes the shards of a sharded lock one after another.
pub fn is_closed_everywhere(lock: &str) -> bool {
    const CLOSED: u32 = 1 << 31;
    let Some((_, shards)) = lock.split_once("shards: [") else { return true };
    let numbers = shards.split(']').next().unwrap().split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok());
    let shards: Vec<u32> = numbers.collect();
    assert!(!shards.is_empty(), "{lock}");
    shards.iter().all(|&shard| shard >= CLOSED)
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

/// The command that runs this program again, and of its tests only `test` in `module`, which is its `module_path!()`.
pub fn test_command(module: &str, test: &str) -> Command {
    let path = module.split_once("::").map_or(test.to_owned(), |(_, module)| format!("{module}::{test}"));
    let mut command = Command::new(env::current_exe().expect("the path of this program"));
    // What it prints is compared: without the stack that a fatal error shows to those that ask for backtraces.
    command.args(["--exact", &path, "--test-threads=1", "--nocapture"]).env("RUST_BACKTRACE", "0");
    command
}

/// Waits for a state; the watchdog barks if it never comes.
pub fn eventually(state: impl Fn() -> bool) {
    let mut polls = 0;
    while !state() {
        polls += 1;
        if polls < 100 {
            thread::yield_now();
        } else {
            thread::sleep(Duration::from_micros(50)); // leave the processor to the threads that bring it about
        }
    }
}

/// Counts calls.
#[derive(Clone, Default)]
pub struct Calls(pub Arc<AtomicUsize>);

impl Calls {
    /// A function that counts one call.
    pub fn call(&self) -> impl FnOnce() + Send + use<> {
        let calls = self.clone();
        move || _ = calls.0.fetch_add(1, SeqCst)
    }

    /// How many calls there have been.
    pub fn get(&self) -> usize {
        self.0.load(SeqCst)
    }
}
