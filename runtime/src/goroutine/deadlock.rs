//! All goroutines are asleep: can it be proven?
//!
//! Go's `checkdead` looks at its own threads alone, and gives up in programs with C code. Here any thread of the
//! process may hold a lock of ours, so more must be known: that no worker is awake, no timer is set, no blocking call
//! is under way, no work is queued, and that *every* thread of the process is one of ours. The last is read from
//! `/proc/self/task`; where there is none, nothing is proven, and nothing reported.

use super::set::{Set, main};
use super::{blocking, report, watcher};

/// Ends the process if nothing can ever wake the main goroutine of a `run`.
pub(super) fn look(sets: &[&'static Set]) {
    let waiting = sets.iter().filter(|set| set.main() != main::NONE).count();
    // With several `run`s, one may wake the other; to hold all their locks at a time is not worth it.
    if waiting != 1 || watcher::has_timers() || !sets.iter().all(|set| set.idle.is_at_rest()) {
        return;
    }
    let Some(set) = sets.iter().find(|set| set.main() != main::NONE) else { return };
    set.idle.if_at_rest(|| {
        // Nobody of this set can be woken while this runs: to wake takes the lock that it runs under. Of the others,
        // nobody was awake, nor would have been by the clock or from outside: so nobody could wake them.
        let queued = |set: &&Set| set.has_global_work() || set.workers().any(|worker| worker.has_shared_work());
        if sets.iter().any(|set| queued(&&**set)) || !all_threads_are_ours(sets) {
            return;
        }
        let list: String = sets.iter().map(|set| report::goroutines(set)).collect();
        report::say(&if set.main() == main::EXITED && list.is_empty() {
            "fatal error: no goroutines (main called runtime.Goexit) - deadlock!\n".to_owned()
        } else {
            format!("fatal error: all goroutines are asleep - deadlock!\n\n{list}")
        });
        std::process::exit(2);
    });
}

/// Whether the process has no thread but workers, the watcher, and the idle threads for blocking calls.
fn all_threads_are_ours(sets: &[&'static Set]) -> bool {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return false };
    let workers: usize = sets.iter().map(|set| set.workers().count()).sum();
    tasks.count() == workers + blocking::threads() + 1
}
