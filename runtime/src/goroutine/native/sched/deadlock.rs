//! The proof that all goroutines are asleep for ever.
//!
//! Go's `checkdead` looks at Go's own threads alone, and gives up in programs with C code. Here any thread of the
//! process may hold a lock of this library, so the proof needs more facts: that no worker is awake, no timer is set, no
//! blocking call is under way, no work is queued, and that *every* thread of the process belongs to this library, or
//! waits in `run` for a main goroutine. The last fact is read from `/proc/self/task`; where there is no such directory,
//! nothing is proven, and nothing reported. A foreign thread that ends tells nobody, so the watcher looks again now and then.

use std::cell::Cell;
use std::collections::HashMap;

use crate::fatal::say;
use crate::goroutine::native::mains::MAINS;
use crate::goroutine::native::netpoll;
use crate::goroutine::native::sched::cycle;
use crate::goroutine::native::sched::dump;
use crate::goroutine::native::sched::dump::Wanted;
use crate::goroutine::native::sched::long_waits;
use crate::goroutine::native::sched::report;
use crate::goroutine::native::sched::report::GoroutineInfo;
use crate::goroutine::native::sched::scheduler::Sched;
use crate::goroutine::native::sched::sysmon::AtRest;
use crate::goroutine::native::sched::tasks;
use crate::goroutine::native::{alarm::alarms, blocking, switch_hooks};

/// Ends the process if nothing can ever wake the main goroutine of a `run`. Called by the watcher when all workers sleep.
pub(crate) fn look() -> AtRest {
    match prove(&Sched::all()) {
        Ok(report) => {
            say(&report.text());
            std::process::exit(2);
        }
        Err(at_rest) => at_rest,
    }
}

/// On the simulated machine, which sees itself that all threads sleep for ever, the watcher must not wake by the clock.
const LOOKS_AGAIN: AtRest = if cfg!(sudog_sim) { AtRest::Waits } else { AtRest::LooksAgain };

/// A deadlock that has been proven.
struct Report {
    goroutines: Vec<GoroutineInfo>,
    main_has_exited: bool,
}

/// Proves that nothing can ever wake the main goroutine of a `run`, or returns whether the watcher is to look again.
fn prove(scheds: &[&'static Sched]) -> Result<Report, AtRest> {
    // While a thread looks for cycles, the watcher ticks on. Such a thread counts until it is joined, so it may be counted and
    // have ended: prove nothing meanwhile.
    if MAINS.callers() == 0 || cycle::is_looking() {
        return Err(AtRest::Waits);
    }
    // A foreign thread that cancels an alarm does not rouse the watcher.
    if alarms::are_set() {
        return Err(LOOKS_AGAIN);
    }
    // A worker that has waited for an event rouses the watcher, and a foreign thread does not.
    if netpoll::is_awaited() {
        return Err(if netpoll::threads() == 0 { AtRest::Waits } else { LOOKS_AGAIN });
    }
    // A worker that is awake, or whose timer is due, rouses the watcher. A blocking call does so only by the worker that the
    // call wakes, perhaps before the call is counted off.
    let outside = scheds.iter().any(|sched| sched.idle.outside() > 0);
    let report = Cell::new(Err(if outside { LOOKS_AGAIN } else { AtRest::Waits }));
    while_all_rest(scheds, &|| {
        // No worker of any scheduler can be woken while this closure runs: to wake a worker takes the lock of the
        // worker's scheduler. So this closure may read the data that the workers own.
        let queued = |sched: &&Sched| sched.has_global_work() || sched.workers().any(|worker| worker.has_shared_work());
        report.set(Err(LOOKS_AGAIN));
        if netpoll::is_awaited() || scheds.iter().any(|sched| queued(&&**sched)) || !all_threads_are_ours(scheds) {
            return;
        }
        // Look again after the count of threads. An alarm may have been set since the first look. And a bubble may have
        // ended, with its thread, since `scheds` was made.
        if alarms::are_set() || !Sched::are_all(scheds) {
            return;
        }
        let mut goroutines: Vec<_> = scheds.iter().flat_map(|sched| report::goroutines(sched)).collect();
        goroutines.sort_unstable_by_key(|info| info.id);
        report.set(Ok(Report { goroutines, main_has_exited: MAINS.running() == 0 }));
    });
    report.into_inner()
}

impl Report {
    fn text(self) -> String {
        let mut goroutines = self.goroutines;
        if self.main_has_exited && goroutines.is_empty() {
            return "fatal error: no goroutines (main called runtime.Goexit) - deadlock!\n".to_owned();
        }
        // Workers can be woken again, and then only show the stacks of their goroutines.
        if switch_hooks::is_observed() {
            let mut stacks: HashMap<_, _> =
                dump::ask(Wanted::All).goroutines.into_iter().filter_map(|info| Some((info.id, info.stack?))).collect();
            goroutines.iter_mut().for_each(|info| info.stack = stacks.remove(&info.id));
        }
        let mut text = report::list(&goroutines, &[], true);
        tasks::all().iter().for_each(|task| text += &task.to_string());
        format!("fatal error: all goroutines are asleep - deadlock!\n\n{text}")
    }
}

/// Holds the locks of all schedulers, and runs `f` if all schedulers are at rest. Only this thread takes two of these
/// locks.
fn while_all_rest(scheds: &[&'static Sched], f: &dyn Fn()) {
    match scheds {
        [] => f(),
        [sched, others @ ..] => sched.idle.if_quiescent(|| while_all_rest(others, f)),
    }
}

/// Returns whether the process has no thread but workers, callers of `run`, the watcher, idle threads for blocking calls and
/// for alarms, the thread of the network poller, and threads that look for long waits.
fn all_threads_are_ours(scheds: &[&'static Sched]) -> bool {
    let workers: usize = scheds.iter().map(|sched| sched.workers().count()).sum();
    let ours = || {
        let idle = blocking::threads() + alarms::threads() + long_waits::sleeping_threads() + netpoll::threads();
        workers + MAINS.callers() + idle + 1
    };
    let before = ours();
    // The caller that sets the first alarm counts the thread for that alarm, and then starts the thread. Until the thread has
    // been started, the alarm is set.
    if alarms::are_set() {
        return false;
    }
    #[cfg(not(sudog_sim))]
    let tasks = std::fs::read_dir("/proc/self/task").map_or(usize::MAX, Iterator::count);
    #[cfg(sudog_sim)]
    let tasks = sudog_sim::live_threads();
    // A thread of ours that has begun or ended since may stand in the count for a foreign thread.
    tasks == before && before == ours()
}
