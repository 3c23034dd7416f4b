//! A run that is logged: the contenders, the target and the section are those of `driver.rs`, with a log instead of the
//! recorder of waits. The loop is compiled once for each section, and enters the target by a call through a pointer: a
//! few nanoseconds beside three readings of the clock.
//!
//! The times are those of the processors' counters. Dead time lies between a release and the next entry. The release is
//! read, and written to the log, before the call that lets the next contender in; the entry is read after the next
//! contender is in. So these times are in the order of the admissions, as far as the processors agree about the time.
//!
//! If the target lets in one contender at a time, the contenders come to a shut target, and the history begins when the
//! target opens. A logged run may be as short as its log, so otherwise the first contender would have all of the run,
//! or much of it, before the others have begun. A request that was made before the start counts from the start: a wait
//! before the start is not a wait for the lock. So the order in which the contenders came is unknown, and none of these
//! first requests counts as having bypassed another. Only the system's counts include the contenders' way to the
//! target: a sleep of each contender.
//!
//! A request is read before the call to enter. No other contender sees an effect of that call earlier than the reading:
//! on x86-64 neither a store nor a locked instruction takes effect before the reading ahead of it has retired; and the
//! system's clock is read by a call.

use std::io;
use std::sync::Arc;
use sudog_runtime::shim::system;
use sudog_runtime::shim::system::OnceLock;
use sudog_runtime::shim::system::atomic::{AtomicBool, Ordering};
use sudog_runtime::shim::system::thread;

use sudog_runtime::event::clock::{self, ticks};

use super::critical_section::{ContenderState, CriticalSection, steps};
use super::{AnyArena, Prepared, Run, gather};
use crate::measure::admissions::{Logged, Wakeups};
use crate::measure::log::{Entry, Log, Pool, merge};
use crate::measure::ticks::Ticks;
use crate::measure::wakeups::{SleepCounter, Sleeps};
use crate::run::contenders::Gate;
use crate::run::lockable::{Access, PerAccess};

/// The data that the contenders of a logged run share, besides the arena.
pub(super) struct LogOfRun {
    pub(super) pool: Pool,
    /// The time at which the contenders were told to stop, and true if the reason was a full log.
    stopped: OnceLock<(u64, bool)>,
}

/// The log and the counts that one contender of a logged run returns.
pub(super) struct LoggedTally {
    pub(super) log: Log,
    pub(super) reads: u64,
    pub(super) sleeps: Option<Sleeps>,
}

/// A target of any type, which keeps the guards of the contenders that are inside.
pub(super) trait KeepsGuards {
    /// Enters as contender `me`.
    fn enter(&self, me: usize, access: Access);

    /// Leaves.
    ///
    /// # Safety
    ///
    /// Contender `me` has entered on this thread, and has not left since.
    unsafe fn leave(&self, me: usize);
}

/// Runs the loop of one contender of a logged run. `section` is the target's own
/// [`Section`](crate::run::lockable::Lockable::Section).
pub(super) fn work<R: CriticalSection>(
    target: &dyn KeepsGuards,
    section: &R,
    stop: &AtomicBool,
    me: usize,
    run: &Run,
    gate: &Gate,
    log_of_run: &LogOfRun,
) -> LoggedTally {
    let pool = &log_of_run.pool;
    let workload = &run.workload;
    let cs = workload.cs.of(me);
    let mut contender = ContenderState::new(me, workload.seed);
    let (mut log, mut reads) = (pool.log(), 0);
    let mut running = gate.wait();
    let mut sleeps = SleepCounter::start(run.on.are_threads());
    while running {
        let access = R::access(&mut contender, workload);
        let request = ticks();
        target.enter(me, access);
        let entry = ticks();
        // Read the flag inside and nowhere else, as in a run without a log.
        running = !stop.load(Ordering::Relaxed);
        // SAFETY: this contender is inside until `leave` below, and `section` is the target's own.
        let seq = unsafe { section.visit(&mut contender, access, running, cs) };
        let release = ticks();
        match running {
            true => log.push(Entry { seq, request, entry, release }),
            false => log.end(request),
        }
        // SAFETY: this contender has entered above, on this thread: a goroutine does not change its thread.
        unsafe { target.leave(me) };
        reads += u64::from(running && access == Access::Read);
        sleeps.waited(entry.saturating_sub(request));
        if !log.make_room(pool) {
            // This contender sees the flag itself, inside on its next visit, before it could push another entry.
            log_of_run.stop(stop, true);
        }
        steps(&mut contender.random, workload.ncs);
    }
    LoggedTally { log, reads, sleeps: sleeps.counted() }
}

impl Prepared {
    /// Makes the run, and logs it. The duration of the workload is an upper bound: the run also ends when the log is
    /// full. If the target admits one contender at a time, the contenders start together, even if
    /// [`Workload::gathered`](super::Workload::gathered) is false. Fails if the contenders cannot be started.
    pub fn log(self) -> io::Result<Logged> {
        let pool = Pool::new(self.run.threads, self.run.workload.duration);
        self.log_into(pool)
    }

    fn log_into(self, pool: Pool) -> io::Result<Logged> {
        let Self { run, mut arena } = self;
        let before = clock::Reading::now();
        let log_of_run = Arc::new(LogOfRun { pool, stopped: OnceLock::new() });
        let (theirs, their_log) = (Arc::clone(&arena), Arc::clone(&log_of_run));
        let work = move |me, gate: &Gate| theirs.work_logged(me, &run, gate, &their_log);
        let conduct = |gate: &Gate| log_of_run.conduct(&*arena, gate, &run);
        let ((start, (stop, log_full)), tallies) = run.on.fan_out(run.threads, work, conduct)?;
        let (mut logs, mut reads, mut sleeps) = (Vec::new(), 0, Some(Sleeps::default()));
        for tally in tallies {
            logs.push(tally.log);
            reads += tally.reads;
            sleeps = sleeps.zip(tally.sleeps).map(|(sum, its)| sum.and(its));
        }
        let arena = Arc::get_mut(&mut arena).expect("the contenders have ended");
        let history = merge(logs, arena.is_in_order(), start, stop, &before.scale());
        let acquisitions = history.admissions.len() as u64;
        // Checks that no contender was inside against the rules of the target.
        arena.longest_run(PerAccess { read: reads, write: acquisitions - reads });
        let each = |n: u64| (acquisitions > 0).then(|| n as f64 / acquisitions as f64);
        let wakeups = Wakeups {
            sleeps_per_acquisition: sleeps.and_then(|sleeps| each(sleeps.all)),
            futile_wakeups_per_acquisition: sleeps.and_then(|sleeps| each(sleeps.beyond_first)),
        };
        Ok(Logged { history, log_full, wakeups })
    }
}

impl LogOfRun {
    /// Starts the contenders, and stops them, unless a contender has stopped them before. Returns the time of the
    /// start, which is when the first contender could go in, and the time and the reason of the stop.
    fn conduct(&self, arena: &dyn AnyArena, gate: &Gate, run: &Run) -> (u64, (u64, bool)) {
        let opened = ticks();
        let started = gather(arena, gate, run, || (ticks(), system::now()));
        let (start, clock) = started.unwrap_or_else(|| (opened, system::now()));
        while self.stopped.get().is_none() && system::now().saturating_duration_since(clock) < run.workload.duration {
            thread::sleep(Ticks::PERIOD);
        }
        (start, self.stop(arena.stop(), false))
    }

    /// Stops the contenders for good. Returns the time and the reason of the first stop.
    pub(super) fn stop(&self, stop: &AtomicBool, log_full: bool) -> (u64, bool) {
        let first = *self.stopped.get_or_init(|| (ticks(), log_full));
        // Relaxed, as the loads of the flag are: the flag publishes no other data, and the thread that sets it sees it.
        stop.store(true, Ordering::Relaxed);
        first
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::measure::admissions::Metrics;
    use crate::run::contenders::Contenders;
    use crate::run::driver::Workload;
    use crate::run::driver::tests::{WORKLOAD, kinds};
    use crate::targets::locks::LockName;
    use crate::targets::rw_locks::RwLockName;
    use crate::targets::semaphores::SemaphoreName;
    use crate::targets::target::{FloorName, Target};

    fn log(target: impl Into<Target>, on: Contenders, threads: usize) -> Logged {
        Run { on, threads, workload: WORKLOAD }.prepare(target.into()).log().unwrap()
    }

    #[test]
    fn of_each_contender_the_log_is_in_the_order_of_time() {
        for on in kinds() {
            for target in [Target::from(LockName::Sudog), SemaphoreName::Ticket.into(), RwLockName::Sudog.into()] {
                let Logged { history, .. } = log(target, on, 5);
                assert_eq!((history.contenders, history.in_order), (5, target.kind() != "rwlock"));
                for contender in 0..5 {
                    let own = history.admissions.iter().filter(|admission| admission.contender == contender);
                    let times: Vec<u64> = own.flat_map(|a| [a.request, a.entry, a.release]).collect();
                    assert!(times.is_sorted() && times.last().is_none_or(|&last| last <= history.elapsed));
                }
                assert!(history.pending.len() <= 5);
            }
        }
    }

    #[test]
    fn all_are_there_when_the_first_is_let_in() {
        // A contender that has no processor while the contenders gather comes late, so several runs are tried.
        const TIMES: usize = 100;
        for on in kinds() {
            for target in [Target::from(LockName::Lifo), SemaphoreName::Ticket.into()] {
                if !on.may_contend_for(target) {
                    continue;
                }
                let all_there = |_| {
                    let Logged { history, .. } = log(target, on, 3);
                    let first = |n| history.admissions.iter().find(|admission| admission.contender == n);
                    [0, 1, 2].map(first).into_iter().flatten().filter(|first| first.request == 0).count()
                        + history.pending.iter().filter(|pending| pending.request == 0).count()
                        == 3
                };
                assert!((0..TIMES).any(all_there), "{}", target.name());
            }
        }
    }

    #[test]
    fn a_lone_contender_is_never_bypassed() {
        for on in kinds() {
            let metrics = Metrics::new(log(LockName::Sudog, on, 1));
            assert!(metrics.bypass.is_none_or(|bypass| bypass.max == 0));
            assert_eq!(metrics.short_term.unwrap().longest_run, metrics.acquisitions);
            assert_eq!(metrics.handover.unwrap().handover_max_ns, None);
            assert_eq!((metrics.holds.hold_jain, metrics.holds.lot_jain), (1.0, Some(1.0)));
            let counted = on.are_threads() && cfg!(target_os = "linux") && metrics.acquisitions > 0;
            assert_eq!(metrics.wakeups.sleeps_per_acquisition.is_some(), counted);
        }
    }

    #[test]
    fn a_turn_goes_round_in_order() {
        for on in kinds() {
            let metrics = Metrics::new(log(Target::Floor(FloorName::Handover), on, 5));
            let order = metrics.short_term.unwrap();
            assert!(order.longest_run <= 1, "{order:?}");
            assert!(order.mttr.is_none_or(|time| time == 5.0) && order.lwss.is_none_or(|n| n == 5.0), "{order:?}");
            assert!(metrics.windows.is_none_or(|w| w.min_max_worst == 1.0), "{:?}", metrics.windows);
        }
    }

    #[test]
    fn several_inside_have_no_order() {
        for on in kinds() {
            let metrics = Metrics::new(log(Target::Floor(FloorName::TwoRmws), on, 5));
            assert!(metrics.bypass.is_none() && metrics.short_term.is_none() && metrics.holds.lot_jain.is_none());
        }
    }

    #[test]
    fn a_full_log_ends_the_run() {
        let workload = Workload { duration: Duration::from_secs(60), ..WORKLOAD };
        let run = Run { on: Contenders::Threads, threads: 3, workload };
        let pool = Pool::new(3, Duration::ZERO);
        let logged = run.prepare(LockName::Sudog.into()).log_into(pool).unwrap();
        assert!(logged.log_full);
        let of = |n| logged.history.admissions.iter().filter(|admission| admission.contender == n).count();
        assert!([0, 1, 2].map(of).contains(&1024), "one has filled its chunk");
    }
}
