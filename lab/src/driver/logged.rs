//! A run that is logged: the same contenders, entrance and room, and a log instead of the recorder of waits.
//!
//! The times are those of the processors' counters. Of the two that decide what is dead time, a release and the next
//! entry, the first is read before the release that lets the next one in, and written to the log before it; the second
//! after that entry. So they are in the order of the admissions as far as the processors agree about the time.
//!
//! Where one is let in at a time the contenders come to a shut entrance, and history begins when it opens. A run that is
//! logged may be as short as its log, so who is there first would else have all of it, or much of it, before the others
//! have begun. A request that was made before the start counts from the start: what a contender waited for before that is
//! not the lock. So nothing is known of the order in which they came, and none of those first ones has bypassed another.
//! Only what the system counts has their way to the entrance in it: a sleep of each.
//!
//! A request is read before the call. Others see nothing of the call earlier than that: on x86-64 neither a store nor a
//! locked instruction takes effect before the reading ahead of it has retired; the system's clock is read by a call.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Instant;

use sudog_runtime::event::clock::{self, ticks};

use super::room::{Alone, Reading, Room, Together, Visitor, steps};
use super::{Arena, Run};
use crate::admissions::{Logged, Wakeups};
use crate::contenders::{Contenders, Gate};
use crate::entrance::{Admits, ByErrand, Entrance, EntranceJob, Errand};
use crate::log::{Entry, Log, Pool, merge};
use crate::ticks::Ticks;
use crate::wakeups::{CallCounter, SleepCounter, Sleeps};

/// One run to be made, and logged. As an [`EntranceJob`] it makes that run. Its length is the most that it takes: it
/// ends when the log is full. All have come to the entrance before the first is let in, where that is one at a time,
/// whatever [`Workload::gathered`](super::Workload::gathered) says.
#[derive(Clone, Copy, Debug)]
pub struct LoggedRun(pub Run);

/// What the contenders of a logged run share.
struct LoggedArena<E, R> {
    arena: Arena<E, R>,
    pool: Pool,
    /// When they were told to stop, and whether because the log was full.
    stopped: OnceLock<(u64, bool)>,
}

/// What one contender of it brings home.
struct Tally {
    log: Log,
    reads: u64,
    sleeps: Option<Sleeps>,
    calls: Result<u64, String>,
}

impl EntranceJob for LoggedRun {
    /// Fails if the contenders cannot be had.
    type Out = io::Result<Logged>;

    fn run<E: Entrance>(self, setup: &E::Setup) -> io::Result<Logged> {
        match E::admits(self.0.workload.permits) {
            Admits::One => self.through::<E, Alone>(setup),
            Admits::Readers => self.through::<E, Reading>(setup),
            Admits::Several => self.through::<E, Together>(setup),
        }
    }
}

impl LoggedRun {
    fn through<E: Entrance, R: Room>(self, setup: &E::Setup) -> io::Result<Logged> {
        self.with_pool::<E, R>(setup, Pool::new(self.0.threads, self.0.workload.duration))
    }

    fn with_pool<E: Entrance, R: Room>(self, setup: &E::Setup, pool: Pool) -> io::Result<Logged> {
        let Self(run) = self;
        let before = clock::Reading::now();
        let arena = Arena::<E, R>::new(setup, run.threads, &run.workload);
        let arena = Arc::new(LoggedArena { arena, pool, stopped: OnceLock::new() });
        let theirs = Arc::clone(&arena);
        let work = move |me, gate: &Gate| theirs.work(me, &run, gate);
        let conduct = |gate: &Gate| arena.conduct(gate, &run);
        let ((start, (stop, log_full)), tallies) = run.on.fan_out(run.threads, work, conduct)?;
        let (mut logs, mut reads, mut sleeps, mut calls) = (Vec::new(), 0, Some(Sleeps::default()), Ok(0));
        for tally in tallies {
            logs.push(tally.log);
            reads += tally.reads;
            sleeps = sleeps.zip(tally.sleeps).map(|(sum, its)| sum.and(its));
            calls = calls.and_then(|sum| Ok(sum + tally.calls?));
        }
        let history = merge(logs, R::IN_ORDER, start, stop, &before.scale());
        let acquisitions = history.admissions.len() as u64;
        // The room looks whether somebody was inside who should not have been.
        let room = Arc::into_inner(arena).expect("the contenders have ended").arena.room.into_inner();
        room.longest_run(ByErrand { read: reads, write: acquisitions - reads });
        let each = |n: u64| (acquisitions > 0).then(|| n as f64 / acquisitions as f64);
        let wakeups = Wakeups {
            sleeps_per_acquisition: sleeps.and_then(|sleeps| each(sleeps.all)),
            futile_wakeups_per_acquisition: sleeps.and_then(|sleeps| each(sleeps.beyond_first)),
            syscalls_per_acquisition: calls.as_ref().ok().and_then(|&calls| each(calls)),
            why_no_syscalls: calls.err(),
        };
        Ok(Logged { history, log_full, wakeups })
    }
}

impl<E: Entrance, R: Room> LoggedArena<E, R> {
    /// Starts the contenders, and stops them, if they have not stopped by themselves. Returns when both were: the start is
    /// when the first could go in.
    fn conduct(&self, gate: &Gate, run: &Run) -> (u64, (u64, bool)) {
        let opened = ticks();
        let shut = self.arena.gather(gate, run);
        let (start, clock) = (if shut.is_some() { ticks() } else { opened }, Instant::now());
        drop(shut);
        while self.stopped.get().is_none() && clock.elapsed() < run.workload.duration {
            thread::sleep(Ticks::PERIOD);
        }
        (start, self.stop(false))
    }

    /// For good. Returns when, and why, it was first done.
    fn stop(&self, log_full: bool) -> (u64, bool) {
        let first = *self.stopped.get_or_init(|| (ticks(), log_full));
        // Relaxed, as the loads of it: it says nothing but itself, and who sets it sees it.
        self.arena.stop.store(true, Ordering::Relaxed);
        first
    }

    /// The life of a contender.
    fn work(&self, me: usize, run: &Run, gate: &Gate) -> Tally {
        let Arena { entrance, room, stop, .. } = &self.arena;
        let workload = &run.workload;
        let cs = workload.cs.of(me);
        let mut visitor = Visitor::new(me, workload.seed);
        let (mut log, mut reads) = (self.pool.log(), 0);
        let is_thread = run.on == Contenders::Threads;
        let calls = CallCounter::open(is_thread);
        let mut running = gate.wait();
        let calls = calls.map(CallCounter::start);
        let mut sleeps = SleepCounter::start(is_thread);
        while running {
            let errand = R::errand(&mut visitor, workload);
            let request = ticks();
            let pass = entrance.enter(me, errand);
            let entry = ticks();
            // Asked inside and nowhere else, as in a run without a log.
            running = !stop.load(Ordering::Relaxed);
            // SAFETY: we are inside until we leave, and `run` has chosen the room for this entrance.
            let seq = unsafe { room.visit(&mut visitor, errand, running, cs) };
            let release = ticks();
            match running {
                true => log.push(Entry { seq, request, entry, release }),
                false => log.end(request),
            }
            // SAFETY: entered above, on this thread, which a goroutine does not change.
            unsafe { entrance.leave(me, pass) };
            reads += u64::from(running && errand == Errand::Read);
            sleeps.waited(entry.saturating_sub(request));
            if !log.make_room(&self.pool) {
                // Seen by ourselves, before anything else could be pushed.
                self.stop(true);
            }
            steps(&mut visitor.random, workload.ncs);
        }
        let calls = calls.and_then(|counter| counter.until_now()).map(|all| all.saturating_sub(sleeps.calls_made()));
        Tally { log, reads, sleeps: sleeps.counted(), calls }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sudog_sync::GoMutex;
    use sudog_sync::semaphore::RuntimeSema;

    use super::*;
    use crate::admissions::Metrics;
    use crate::contenders::TEST_WORKERS;
    use crate::driver::Workload;
    use crate::entrance::Locked;
    use crate::floors::FloorName;
    use crate::locks::LockName;
    use crate::rw_locks::RwLockName;
    use crate::sections::CriticalSections;
    use crate::semaphores::SemaphoreName;
    use crate::subject::Subject;

    const WORKLOAD: Workload = Workload {
        duration: Duration::from_millis(20),
        permits: 1,
        writes: 100,
        cs: CriticalSections::all(1),
        ncs: 3,
        seed: 1,
        sample: 0,
        gathered: false,
    };

    fn kinds() -> impl Iterator<Item = Contenders> {
        [Ok(Contenders::Threads), Contenders::goroutines(Some(TEST_WORKERS))].into_iter().flatten()
    }

    fn log(subject: impl Into<Subject>, on: Contenders, threads: usize, permits: u32) -> Logged {
        let workload = Workload { permits, ..WORKLOAD };
        subject.into().with(LoggedRun(Run { on, threads, workload })).unwrap()
    }

    #[test]
    fn of_each_contender_the_log_is_in_the_order_of_time() {
        for on in kinds() {
            for subject in [Subject::from(LockName::Go), SemaphoreName::Ticket.into(), RwLockName::Go.into()] {
                let Logged { history, .. } = log(subject, on, 5, 1);
                assert_eq!((history.contenders, history.in_order), (5, subject.kind() != "rwlock"));
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
        // Whoever has no processor for as long as they gather is late: so, once in a while.
        const TIMES: usize = 100;
        for on in kinds() {
            for subject in [Subject::from(LockName::Lifo), SemaphoreName::Ticket.into()] {
                if !on.may_contend_for(subject) {
                    continue;
                }
                let all_there = |_| {
                    let Logged { history, .. } = log(subject, on, 3, 1);
                    let first = |n| history.admissions.iter().find(|admission| admission.contender == n);
                    [0, 1, 2].map(first).into_iter().flatten().filter(|first| first.request == 0).count()
                        + history.pending.iter().filter(|pending| pending.request == 0).count()
                        == 3
                };
                assert!((0..TIMES).any(all_there), "{}", subject.name());
            }
        }
    }

    #[test]
    fn a_lone_contender_is_never_bypassed() {
        for on in kinds() {
            let metrics = Metrics::new(log(LockName::Go, on, 1, 1), None);
            assert!(metrics.bypass.is_none_or(|bypass| bypass.max == 0));
            assert_eq!(metrics.short_term.unwrap().longest_run, metrics.acquisitions);
            assert_eq!(metrics.handover.unwrap().handover_max_ns, None);
            assert_eq!((metrics.holds.hold_jain, metrics.holds.lot_jain), (1.0, Some(1.0)));
            let is_thread = on == Contenders::Threads;
            let counted = is_thread && cfg!(target_os = "linux") && metrics.acquisitions > 0;
            assert_eq!(metrics.wakeups.sleeps_per_acquisition.is_some(), counted);
            assert!(is_thread || metrics.wakeups.syscalls_per_acquisition.is_none());
        }
    }

    #[test]
    fn a_turn_goes_round_in_order() {
        for on in kinds() {
            let metrics = Metrics::new(log(Subject::Floor(FloorName::Handover), on, 5, 1), Some(10));
            let order = metrics.short_term.unwrap();
            assert!(order.longest_run <= 1 && order.same_again.is_none_or(|part| part == 0.0), "{order:?}");
            assert!(order.mttr.is_none_or(|time| time == 5.0) && order.lwss.is_none_or(|n| n == 5.0), "{order:?}");
            let even = metrics.windows.is_none_or(|w| w.min_max_worst == 1.0 && w.jain_worst == 1.0);
            assert!(even, "{:?}", metrics.windows);
        }
    }

    #[test]
    fn several_inside_have_no_order() {
        for on in kinds() {
            let metrics = Metrics::new(log(SemaphoreName::Benaphore, on, 5, 3), None);
            assert!(metrics.bypass.is_none() && metrics.short_term.is_none() && metrics.holds.lot_jain.is_none());
        }
    }

    #[test]
    fn a_full_log_ends_the_run() {
        let workload = Workload { duration: Duration::from_secs(60), ..WORKLOAD };
        let run = LoggedRun(Run { on: Contenders::Threads, threads: 3, workload });
        let pool = Pool::new(3, Duration::ZERO);
        let logged = run.with_pool::<Locked<GoMutex<RuntimeSema>>, Alone>(&GoMutex::new, pool).unwrap();
        assert!(logged.log_full);
        let of = |n| logged.history.admissions.iter().filter(|admission| admission.contender == n).count();
        assert!([0, 1, 2].map(of).contains(&1024), "one has filled its chunk");
    }
}
