//! All goroutines are asleep: can it be proven?
//!
//! Go's `checkdead` looks at its own threads alone, and gives up in programs with C code. Here any thread of the process
//! may hold a lock of ours, so more must be known: that no worker is awake, no timer is set, no blocking call is under
//! way, no work is queued, and that *every* thread of the process is one of ours. The last is read from
//! `/proc/self/task`; where there is none, nothing is proven, and nothing reported.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::set::Set;
use super::{blocking, report, watcher};

/// How many `run` wait for their main goroutine.
static MAINS: AtomicUsize = AtomicUsize::new(0);
/// How many of those mains have ended by `goexit`.
static EXITED_MAINS: AtomicUsize = AtomicUsize::new(0);

pub(super) fn main_begins() {
    MAINS.fetch_add(1, Ordering::Relaxed);
}

pub(super) fn main_ends() {
    MAINS.fetch_sub(1, Ordering::Relaxed);
}

pub(super) fn main_exits() {
    EXITED_MAINS.fetch_add(1, Ordering::Relaxed);
}

/// Ends the process if nothing can ever wake the main goroutine.
pub(super) fn look(set: &'static Set) {
    if MAINS.load(Ordering::Relaxed) == 0 {
        return;
    }
    set.idle.if_at_rest(|| {
        // Nobody can be woken while this runs: to wake takes the lock that it runs under.
        let queued = set.has_global_work() || set.workers().any(|worker| worker.has_shared_work());
        if queued || watcher::has_timers() || !all_threads_are_ours(set) {
            return;
        }
        let no_main = EXITED_MAINS.load(Ordering::Relaxed) == MAINS.load(Ordering::Relaxed);
        let list = report::goroutines(set);
        report::say(&if no_main && list.is_empty() {
            "fatal error: no goroutines (main called runtime.Goexit) - deadlock!\n".to_owned()
        } else {
            format!("fatal error: all goroutines are asleep - deadlock!\n\n{list}")
        });
        std::process::exit(2);
    });
}

/// Whether the process has no thread but the workers of this set, the watcher, and the idle threads for blocking calls.
fn all_threads_are_ours(set: &Set) -> bool {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return false };
    tasks.count() == set.workers().count() + blocking::threads() + 1
}
