//! MutexBench, the benchmark of Dice's papers, for any lock; with one step of each generator it is semabench, that of
//! the paper on waiting arrays, for any semaphore; and with a draw before each visit it is rwbench, for any
//! readers-writer lock.
//!
//! T contenders, threads or goroutines, loop: go in, advance a generator that they share, go out, advance a generator
//! of their own. What they share lies on lines of its own, each thing alone, the lock among them, for all alike:
//!
//! ```text
//!   | target | admissions, shared generator | stop | tick |      each contender's own on its own stack
//! ```
//!
//! Through a target that lets in several there is no shared generator: see the table in `critical_section.rs`. What is a matter
//! of the section is known when the loop is compiled, so sections without readers do not pay for readers.
//!
//! A run that logs every admission has a loop of its own, in `logged.rs`, so this one does not pay for it either.

mod critical_section;
mod logged;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use sudog_runtime::shim::system;
use sudog_runtime::shim::system::atomic::{AtomicBool, Ordering};
use sudog_runtime::shim::system::thread;

use crossbeam_utils::CachePadded;

pub use self::critical_section::steps;
use self::critical_section::{ContenderState, CriticalSection, Exclusive, ReadersWriter, Shared};
use self::logged::{LogOfRun, LoggedTally};
use sudog_runtime::event::clock::ticks;

use crate::measure::log::Entry;
use crate::measure::ticks::Ticks;
use crate::measure::usage::{Counts, Usage};
use crate::measure::waits::{Bypasses, WaitHistogram, WaitRecorder, empty_waits_by_access};
use crate::measure::wakeups::{CallCounter, SleepCounter};
use crate::run::contenders::{Contenders, Gate};
use crate::run::sections::CriticalSections;
use crate::targets::lockable::{Access, Admits, Lockable, LockableJob, PerAccess};

/// What each contender does, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// How long.
    pub duration: Duration,
    /// How many a semaphore lets in at a time.
    pub permits: u32,
    /// Of a thousand visits to a readers-writer lock, so many are to write.
    pub writes: u32,
    /// Steps of the shared generator in the critical section; of the contender's own, if several are in there.
    pub cs: CriticalSections,
    /// Steps of the contender's own generator outside it.
    pub ncs: u32,
    /// What the generators start from.
    pub seed: u32,
    /// One short wait in so many is timed; 0: none.
    pub sample: u32,
    /// Contenders start together. Else the first contender has the target to itself for as long as the system takes to
    /// start the others, which is as much as a contender's share of a second, if they sleep. Only where the target admits
    /// one at a time. A logged run does so in any case: see [`Prepared::log`].
    pub gathered: bool,
}

/// One run to be made. As an [`LockableJob`] it makes the arena of that run.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// What contends.
    pub on: Contenders,
    /// How many of them.
    pub threads: usize,
    /// What they do.
    pub workload: Workload,
}

/// What came of a run.
#[derive(Debug)]
pub struct Outcome {
    /// From the start of all contenders to the moment they were told to stop.
    pub elapsed: Duration,
    /// Each contender's admissions in that time. One that was waiting at the stop is still admitted, and not counted.
    pub admissions: Vec<u64>,
    /// How many of them came to read. The rest wrote: all, where the target does not ask.
    pub reads: u64,
    /// How many of the writes of a readers-writer lock came just after another one of the same contender.
    pub writes_again: u64,
    /// From request to entry; see [`WaitRecorder`]. A wait cut short by the stop has the length it had reached by then.
    pub waits: PerAccess<WaitHistogram>,
    /// In what order they were admitted; nothing, if several could be in at a time.
    pub order: Option<Admissions>,
    /// Of all threads, and of others, over the whole run.
    pub usage: Usage,
}

/// What there is to say about an order of admissions.
#[derive(Clone, Copy, Debug)]
pub struct Admissions {
    /// The longest run of admissions of one contender with no other's in between.
    pub longest_run: u64,
    /// The most admissions of others between two consecutive ones of one contender; between the start and its first,
    /// and between its last and the stop, too.
    ///
    /// That is an upper bound of how often one that waited was bypassed, as it may not have been waiting all the time:
    /// not in its non-critical section, nor while others had the processors.
    pub max_bypass: u64,
    /// The most admissions of others between a request and the entry, of the waits that are measured: see
    /// [`WaitRecorder`] for which are.
    ///
    /// First come, first served, there are at most T - 1; more only if the contender, between its request and its place
    /// in line, which are some nanoseconds apart, had to leave the processor to others.
    pub max_bypass_waiting: u64,
    /// Of all admissions of others between a request and the entry, the part that is beyond T - 1 in one wait,
    /// estimated by the waits that are measured. Nothing, if there were none.
    ///
    /// First come, first served, that is nearly 0. If each has the lock for n times running it is 1 - 1/n.
    pub overtaken: Option<f64>,
}

/// How long so many take to come to the target, and to go to sleep there.
fn gathering(contenders: usize) -> Duration {
    /// Enough for a hundred threads.
    const LEAST: Duration = Duration::from_millis(20);
    LEAST.max(LEAST * contenders as u32 / 100)
}

/// What the contenders of a run share.
struct Arena<E, R> {
    target: CachePadded<E>,
    section: CachePadded<R>,
    stop: CachePadded<AtomicBool>,
    ticks: Ticks,
}

/// An [`Arena`] of any target and any section. The code around the measured loops is compiled once, over this trait; the
/// loops themselves ([`Self::work`] and [`Self::work_logged`]) are compiled for each pair of types. Each of them is
/// called once per contender and run.
trait AnyArena: Send + Sync {
    /// The measured loop of one contender.
    fn work(&self, me: usize, run: &Run, gate: &Gate) -> Tally;

    /// The measured loop of one contender of a logged run.
    fn work_logged(&self, me: usize, run: &Run, gate: &Gate, log_of_run: &LogOfRun) -> LoggedTally;

    /// Whether the target lets in one at a time, and the caller of [`Self::shut`] too.
    fn can_be_shut(&self, permits: u32) -> bool;

    /// Enters as contender `me`, runs `inside`, and leaves.
    fn shut(&self, me: usize, inside: &mut dyn FnMut());

    /// See [`CriticalSection::admissions`].
    fn admissions(&self) -> u64;

    /// Tells the contenders to stop.
    fn stop(&self) -> &AtomicBool;

    /// The coarse clock of the run.
    fn ticks(&self) -> &Ticks;

    /// [`CriticalSection::IN_ORDER`].
    fn is_in_order(&self) -> bool;

    /// See [`CriticalSection::longest_run`].
    fn longest_run(&mut self, admissions: PerAccess<u64>) -> Option<u64>;
}

/// What one contender returns.
struct Tally {
    admissions: u64,
    reads: u64,
    writes_again: u64,
    max_bypass: u64,
    waits: PerAccess<WaitHistogram>,
    bypasses: Bypasses,
}

/// A run, and the arena that is made for it: what to do with it is up to the caller, once.
pub struct Prepared {
    run: Run,
    arena: Arc<dyn AnyArena>,
}

impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prepared").field("run", &self.run).finish_non_exhaustive()
    }
}

impl LockableJob for Run {
    type Out = Prepared;

    fn run<E: Lockable>(self, setup: &E::Setup) -> Prepared {
        // The section must suit the target: see `CriticalSection::visit`.
        let arena: Arc<dyn AnyArena> = match E::admits(self.workload.permits) {
            Admits::One => Arc::new(Arena::<E, Exclusive>::new(setup, &self)),
            Admits::Readers => Arc::new(Arena::<E, ReadersWriter>::new(setup, &self)),
            Admits::Several => Arc::new(Arena::<E, Shared>::new(setup, &self)),
        };
        Prepared { run: self, arena }
    }
}

impl Prepared {
    /// Makes the run. Fails if the contenders cannot be started.
    pub fn measure(self) -> io::Result<Outcome> {
        let Self { run, mut arena } = self;
        let theirs = Arc::clone(&arena);
        let work = move |me, gate: &Gate| theirs.work(me, &run, gate);
        let conduct = |gate: &Gate| (Counts::now(), conduct(&*arena, gate, &run));
        let ((counts, elapsed), tallies) = run.on.fan_out(run.threads, work, conduct)?;
        let usage = counts.usage_until_now();
        let arena = Arc::get_mut(&mut arena).expect("the contenders have ended");
        Ok(outcome(arena, elapsed, &tallies, usage))
    }
}

/// Opens the gate. Where the target lets in one at a time, the caller enters first, as one more contender, waits until
/// the others have come to the target, calls `start` and leaves; returns the result of `start`. Does not enter, and
/// returns nothing, if the target lets in several or no others, or if there is only one contender, which would only
/// learn to sleep.
fn gather<T>(arena: &dyn AnyArena, gate: &Gate, run: &Run, start: impl FnOnce() -> T) -> Option<T> {
    if run.threads == 1 || !arena.can_be_shut(run.workload.permits) {
        gate.open(true);
        return None;
    }
    let (mut start, mut started) = (Some(start), None);
    arena.shut(run.threads, &mut || {
        gate.open(true);
        thread::sleep(gathering(run.threads));
        started = start.take().map(|start| start());
    });
    started
}

/// Starts the contenders, keeps the clock, stops the contenders. Returns how long they ran.
fn conduct(arena: &dyn AnyArena, gate: &Gate, run: &Run) -> Duration {
    let Workload { duration, gathered, .. } = run.workload;
    let start = if gathered {
        gather(arena, gate, run, system::now)
    } else {
        gate.open(true);
        None
    };
    let start = start.unwrap_or_else(system::now);
    loop {
        thread::sleep(Ticks::PERIOD);
        let elapsed = system::now().saturating_duration_since(start);
        arena.ticks().advance(elapsed, || arena.admissions());
        if elapsed >= duration {
            // Release, after the last tick: a contender that sees the stop sees the clock as it stays.
            arena.stop().store(true, Ordering::Release);
            return elapsed;
        }
    }
}

fn outcome(arena: &mut dyn AnyArena, elapsed: Duration, tallies: &[Tally], usage: Usage) -> Outcome {
    let mut waits = empty_waits_by_access();
    for tally in tallies {
        waits.read += &tally.waits.read;
        waits.write += &tally.waits.write;
    }
    let admissions: Vec<u64> = tallies.iter().map(|t| t.admissions).collect();
    let bypasses = tallies.iter().map(|t| t.bypasses).fold(Bypasses::default(), Bypasses::and);
    let reads = tallies.iter().map(|t| t.reads).sum();
    let by_access = PerAccess { read: reads, write: admissions.iter().sum::<u64>() - reads };
    let order = arena.longest_run(by_access).map(|longest_run| Admissions {
        longest_run,
        max_bypass: tallies.iter().map(|t| t.max_bypass).max().unwrap_or(0),
        max_bypass_waiting: bypasses.max,
        overtaken: (bypasses.all > 0).then(|| bypasses.beyond as f64 / bypasses.all as f64),
    });
    let writes_again = tallies.iter().map(|t| t.writes_again).sum();
    Outcome { elapsed, admissions, reads, writes_again, waits, order, usage }
}

impl<E: Lockable, R: CriticalSection> Arena<E, R> {
    fn new(setup: &E::Setup, run: &Run) -> Self {
        let Run { threads, workload, .. } = run;
        Self {
            target: CachePadded::new(E::new(setup, *threads, workload.permits)),
            section: CachePadded::new(R::new(workload)),
            stop: CachePadded::new(AtomicBool::new(false)),
            ticks: Ticks::new(workload.duration + Ticks::PERIOD),
        }
    }
}

impl<E: Lockable, R: CriticalSection> AnyArena for Arena<E, R> {
    fn can_be_shut(&self, permits: u32) -> bool {
        E::TAKES_OTHERS && E::admits(permits) == Admits::One
    }

    fn shut(&self, me: usize, inside: &mut dyn FnMut()) {
        let guard = self.target.enter(me, Access::Write);
        inside();
        // SAFETY: entered above, by the same contender, on this thread.
        unsafe { self.target.leave(me, guard) };
    }

    fn admissions(&self) -> u64 {
        self.section.admissions()
    }

    fn stop(&self) -> &AtomicBool {
        &self.stop
    }

    fn ticks(&self) -> &Ticks {
        &self.ticks
    }

    fn is_in_order(&self) -> bool {
        R::IN_ORDER
    }

    fn longest_run(&mut self, admissions: PerAccess<u64>) -> Option<u64> {
        self.section.longest_run(admissions)
    }

    fn work(&self, me: usize, run: &Run, gate: &Gate) -> Tally {
        let workload = &run.workload;
        let others = run.threads as u64 - 1;
        let cs = workload.cs.of(me);
        let mut contender = ContenderState::new(me, workload.seed);
        let mut recorder = WaitRecorder::new(&self.ticks, workload.sample, contender.random.next_u32());
        if workload.gathered {
            recorder.leave_out_the_first();
        }
        let (mut admissions, mut reads, mut max_bypass, mut last_seq) = (0, 0, 0, 0);
        let mut running = gate.wait();
        while running {
            let access = R::access(&mut contender, workload);
            let request = recorder.request(|| self.section.admissions());
            let guard = self.target.enter(me, access);
            // Asked inside and nowhere else: so one that was waiting at the stop gets in once more, does nothing there,
            // and leaves.
            running = !self.stop.load(Ordering::Acquire);
            let wait = if running { recorder.entry(request) } else { recorder.cut_short(request) };
            // SAFETY: we are inside until we leave, and `run` has chosen the section for this target.
            let seq = unsafe { self.section.visit(&mut contender, access, running, cs) };
            // SAFETY: entered above, on this thread, which a goroutine does not change.
            unsafe { self.target.leave(me, guard) };
            // Both are 0, and no more is said of it, if they are not counted.
            max_bypass = max_bypass.max(seq.saturating_sub(last_seq));
            last_seq = seq + u64::from(running);
            admissions += u64::from(running);
            reads += u64::from(running && access == Access::Read);
            recorder.record(wait, access, seq, others);
            steps(&mut contender.random, workload.ncs);
        }
        let (waits, bypasses) = recorder.into_records();
        Tally { admissions, reads, writes_again: contender.writes_again, max_bypass, waits, bypasses }
    }

    fn work_logged(&self, me: usize, run: &Run, gate: &Gate, log_of_run: &LogOfRun) -> LoggedTally {
        let Self { target, section, stop, .. } = self;
        let pool = &log_of_run.pool;
        let workload = &run.workload;
        let cs = workload.cs.of(me);
        let mut contender = ContenderState::new(me, workload.seed);
        let (mut log, mut reads) = (pool.log(), 0);
        let is_thread = run.on.are_threads();
        let calls = CallCounter::open(is_thread);
        let mut running = gate.wait();
        let calls = calls.map(CallCounter::start);
        let mut sleeps = SleepCounter::start(is_thread);
        while running {
            let access = R::access(&mut contender, workload);
            let request = ticks();
            let guard = target.enter(me, access);
            let entry = ticks();
            // Asked inside and nowhere else, as in a run without a log.
            running = !stop.load(Ordering::Relaxed);
            // SAFETY: we are inside until we leave, and `run` has chosen the section for this target.
            let seq = unsafe { section.visit(&mut contender, access, running, cs) };
            let release = ticks();
            match running {
                true => log.push(Entry { seq, request, entry, release }),
                false => log.end(request),
            }
            // SAFETY: entered above, on this thread, which a goroutine does not change.
            unsafe { target.leave(me, guard) };
            reads += u64::from(running && access == Access::Read);
            sleeps.waited(entry.saturating_sub(request));
            if !log.make_room(pool) {
                // Seen by ourselves, before anything else could be pushed.
                log_of_run.stop(stop, true);
            }
            steps(&mut contender.random, workload.ncs);
        }
        let calls = calls.and_then(|counter| counter.until_now()).map(|all| all.saturating_sub(sleeps.calls_made()));
        LoggedTally { log, reads, sleeps: sleeps.counted(), calls }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::contenders::TEST_WORKERS;
    use crate::targets::floors::FloorName;
    use crate::targets::locks::LockName;
    use crate::targets::rw_locks::RwLockName;
    use crate::targets::semaphores::SemaphoreName;
    use crate::targets::target::Target;

    const WORKLOAD: Workload = Workload {
        duration: Duration::from_millis(20),
        permits: 1,
        writes: 100,
        cs: CriticalSections::all(1),
        ncs: 3,
        seed: 1,
        sample: 8,
        gathered: false,
    };

    /// Threads, and goroutines on fewer workers than there are of them.
    fn kinds() -> impl Iterator<Item = Contenders> {
        [Ok(Contenders::Threads), Contenders::goroutines(Some(TEST_WORKERS))].into_iter().flatten()
    }

    fn run(target: impl Into<Target>, on: Contenders, threads: usize, permits: u32) -> Outcome {
        let workload = Workload { permits, ..WORKLOAD };
        target.into().with(Run { on, threads, workload }).measure().unwrap()
    }

    #[test]
    fn a_lone_contender_is_never_bypassed() {
        for on in kinds() {
            let outcome = run(LockName::Go, on, 1, 1);
            let order = outcome.order.unwrap();
            assert_eq!((order.max_bypass, order.max_bypass_waiting, order.overtaken), (0, 0, None));
            assert_eq!(order.longest_run, outcome.admissions[0]);
            assert!(outcome.elapsed >= WORKLOAD.duration);
        }
    }

    #[test]
    fn everything_admits_everybody_in_the_end() {
        let locks = LockName::ALL.iter().map(|&lock| Target::Lock(lock));
        let semaphores = SemaphoreName::ALL.iter().map(|&semaphore| Target::Semaphore(semaphore));
        for target in locks.chain(semaphores) {
            for on in kinds().filter(|on| on.may_contend_for(target)) {
                let outcome = run(target, on, 5, 1);
                assert_eq!((outcome.admissions.len(), outcome.reads, outcome.waits.read.len()), (5, 0, 0));
                let total: u64 = outcome.admissions.iter().sum();
                let order = outcome.order.unwrap();
                assert!(order.longest_run <= total && order.max_bypass <= total);
                assert!(order.max_bypass_waiting <= order.max_bypass, "{order:?}");
                assert!(order.overtaken.is_none_or(|part| (0.0..=1.0).contains(&part)));
            }
        }
    }

    #[test]
    fn readers_and_writers_are_told_apart() {
        for &rw_lock in RwLockName::ALL {
            for on in kinds().filter(|on| on.may_contend_for(rw_lock.into())) {
                let outcome = run(rw_lock, on, 5, 1);
                let total: u64 = outcome.admissions.iter().sum();
                assert!(outcome.order.is_none() && outcome.reads <= total);
                for (writes, reads) in [(0, total), (1000, 0)] {
                    let workload = Workload { writes, ..WORKLOAD };
                    let outcome = Target::from(rw_lock).with(Run { on, threads: 2, workload }).measure().unwrap();
                    let total: u64 = outcome.admissions.iter().sum();
                    assert_eq!(outcome.reads, if reads == 0 { 0 } else { total });
                    let waits = [outcome.waits.read, outcome.waits.write].map(|waits| waits.is_empty());
                    assert!(waits[usize::from(writes == 0)], "waits of those who did not come");
                }
            }
        }
    }

    #[test]
    fn a_turn_goes_round_in_order() {
        for on in kinds() {
            let outcome = run(Target::Floor(FloorName::Handover), on, 5, 1);
            let order = outcome.order.unwrap();
            assert!(order.max_bypass <= 4 && order.max_bypass_waiting <= 4 && order.longest_run <= 1, "{order:?}");
            assert!(order.overtaken.is_none_or(|part| part == 0.0), "{order:?}");
            let [most, least] = [outcome.admissions.iter().max(), outcome.admissions.iter().min()].map(Option::unwrap);
            assert!(most - least <= 1, "{:?}", outcome.admissions);
        }
    }

    #[test]
    fn more_contenders_take_longer_to_gather() {
        let ms = |contenders| gathering(contenders).as_millis();
        assert_eq!([1, 100, 200, 4096].map(ms), [20, 20, 40, 819]);
    }

    #[test]
    fn several_inside_have_no_order() {
        for on in kinds() {
            assert!(run(SemaphoreName::Benaphore, on, 5, 3).order.is_none());
        }
        assert!(run(LockName::Go, Contenders::Threads, 2, 3).order.is_some(), "a lock lets in one");
    }
}
