//! Helpers shared by the tests of several crates: a wait for a state, and a watchdog that ends a wait that would last
//! for ever.
#![cfg(not(sudog_loom))]

pub mod counting;
#[cfg(unix)]
pub mod goroutine;
#[cfg(unix)]
pub mod kinds;
mod panics;

use std::env;
use std::panic;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, Once, TryLockError};
use std::thread;
use std::time::Duration;

/// Returns the paths of a certificate and of its key, in the format PEM: `localhost`, `other`, which is for `localhost`, too,
/// or `expired`. `certificates/make` has made these files.
#[must_use]
pub fn certificate(name: &str) -> [PathBuf; 2] {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("certificates");
    ["pem", "key"].map(|kind| folder.join(format!("{name}.{kind}")))
}

/// Ends the process, naming the test, if the test has neither ended nor made progress for a long time. Without a
/// watchdog, a lost wake-up would leave the test hanging without a message.
pub struct Watchdog {
    progress: Arc<AtomicU64>,
    _alive: Sender<()>,
}

thread_local! {
    /// The progress of the test that runs on this thread, shared by all watchdogs of the test.
    static PROGRESS: Arc<AtomicU64> = Arc::default();
}

impl Watchdog {
    const PATIENCE: Duration = Duration::from_secs(60);

    /// Starts a watchdog for the test that runs on this thread. The watchdog watches until it is dropped.
    #[expect(clippy::new_without_default, reason = "a watchdog belongs to the calling thread")]
    pub fn new() -> Self {
        note_panics();
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

    /// Reports that the test makes progress.
    pub fn pat(&self) {
        self.progress.fetch_add(1, Relaxed);
    }
}

/// Reports progress as [`Watchdog::pat`] does, on the test's thread, in a check that has no watchdog at hand.
pub fn pat() {
    PROGRESS.with(|progress| progress.fetch_add(1, Relaxed));
}

/// Waits for a turn, among tests that take turns. Such a wait counts as progress.
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

/// Notes each panic, expected or not, and prints the last ones when the process fails. The harness shows the panics of a
/// failed test's own thread only, and loses all that it has captured when the watchdog or a goroutine ends the process.
fn note_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        panics::print_at_failure();
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            panics::note(info.to_string());
            usual(info);
        }));
    });
}

/// Returns a command that runs this program again with only the test `test` of the module `module`, which is
/// `module_path!()` of that module.
pub fn test_command(module: &str, test: &str) -> Command {
    let path = module.split_once("::").map_or(test.to_owned(), |(_, module)| format!("{module}::{test}"));
    let mut command = Command::new(env::current_exe().expect("the path of this program"));
    // The child's output is compared, so exclude the stack that a fatal error prints if backtraces are asked for.
    command.args(["--exact", &path, "--test-threads=1", "--nocapture"]).env("RUST_BACKTRACE", "0");
    command
}

/// Runs a test again, alone in a child process, unless this is that process. Returns false in the child process, where the
/// environment has the variable `child`. Returns true here, when the child's test has passed.
#[track_caller]
pub fn started_child(module: &str, test: &str, child: &str) -> bool {
    if env::var_os(child).is_some() {
        return false;
    }
    let ended = test_command(module, test).env(child, "1").output().expect("a child process");
    let text = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success() && text.contains("1 passed"), "{text}{}", String::from_utf8_lossy(&ended.stderr));
    true
}

/// Waits for a state. If the state never comes, the watchdog ends the process.
pub fn eventually(state: impl Fn() -> bool) {
    fn wait(state: &dyn Fn() -> bool) {
        let mut polls = 0;
        while !state() {
            polls += 1;
            if polls < 100 {
                thread::yield_now();
            } else {
                thread::sleep(Duration::from_micros(50)); // leave the processor to those that bring the state about
            }
        }
    }
    wait(&state); // compiled once, not for each state
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

    /// The number of calls so far.
    pub fn get(&self) -> usize {
        self.0.load(SeqCst)
    }
}
