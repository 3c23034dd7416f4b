//! The measured loops of contenders, for any lock, readers-writer lock or semaphore:
//!
//! - for a lock, MutexBench, the benchmark of Dice's papers;
//! - for a semaphore, with one step of each generator, semabench, the benchmark of the paper on waiting arrays;
//! - for a readers-writer lock, with a draw of the access before each visit, rwbench.
//!
//! T contenders, threads or goroutines, loop: go in, advance a generator that they share, go out, advance a generator
//! of their own. Each thing that the contenders share lies alone on cache lines of its own, the lock among them. The
//! layout is the same for all targets:
//!
//! ```text
//!   | target | admissions, shared generator | stop | tick |      each contender's own on its own stack
//! ```
//!
//! Inside a target that lets in several contenders there is no shared generator: see the table in
//! `critical_section.rs`. The properties of the section are known when the loop is compiled, so sections without
//! readers do not pay for readers.
//!
//! A run that logs every admission has a separate loop, in `logged.rs`, so the loop in this file does not pay for the
//! log.

mod critical_section;
mod logged;

use std::cell::UnsafeCell;
use std::fmt;
use std::hint::black_box;
use std::io;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::time::Duration;
use sudog_runtime::shim::system;
use sudog_runtime::shim::system::atomic::{AtomicBool, Ordering};
use sudog_runtime::shim::system::thread;

use crossbeam_utils::CachePadded;
use serde::Serialize;
use sudog_sync::{RawLock, RawRwLock, Semaphore};

use self::critical_section::ContenderState;
pub use self::critical_section::{CriticalSection, Exclusive, ReadersWriter, Shared, steps};
use self::logged::{KeepsGuards, LogOfRun, LoggedTally};
use crate::measure::ticks::Ticks;
use crate::measure::usage::{Counts, Usage};
use crate::measure::waits::{Bypasses, WaitHistogram, WaitRecorder, empty_waits_by_access};
use crate::options::{DEFAULT_CS, DEFAULT_SAMPLE};
use crate::run::contenders::{Contenders, Gate};
use crate::run::floors::{Handover, TwoRmws};
use crate::run::lockable::{Access, Lockable, Locked, PerAccess, Permitted, ReadWrite};
use crate::run::sections::CriticalSections;
use crate::targets::locks::{Job, with_lock};
use crate::targets::rw_locks::{RwJob, with_rw_lock};
use crate::targets::semaphores::{SemaphoreJob, with_semaphore};
use crate::targets::target::{FloorName, Target};

/// The work of each contender, and the length of the run.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// The length of the run.
    pub duration: Duration,
    /// The number of visits to a readers-writer lock, out of a thousand, that are to write.
    pub writes: u32,
    /// Steps of the shared generator in the critical section; steps of the contender's own generator, if the target
    /// admits several contenders at a time.
    pub cs: CriticalSections,
    /// Steps of the contender's own generator outside the critical section.
    pub ncs: u32,
    /// The seed of the generators.
    pub seed: u32,
    /// The sampling interval: a short wait in so many is timed. 0 times none.
    pub sample: u32,
    /// True if the contenders start together. Otherwise the first contender has the target to itself while the system
    /// starts the others, which takes as long as a contender's share of a second, if the contenders sleep. Has an
    /// effect only where the target admits one contender at a time. A logged run always starts the contenders together:
    /// see [`Prepared::log`].
    pub gathered: bool,
}

impl Workload {
    /// The workload that commands have by default: Dice's critical section, and no time outside.
    pub const USUAL: Self = Self {
        duration: Duration::from_secs(1),
        writes: 1000,
        cs: CriticalSections::all(DEFAULT_CS),
        ncs: 0,
        seed: 1, // any number is as good
        sample: DEFAULT_SAMPLE,
        gathered: true,
    };
}

/// The parameters of a run. As a job on a target of any type they make the arena of that run.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    pub on: Contenders,
    /// The number of contenders.
    pub threads: usize,
    /// The work of the contenders.
    pub workload: Workload,
}

/// The result of a run.
#[derive(Debug)]
pub struct Outcome {
    /// The time from the start of all contenders to the moment at which they were told to stop.
    pub elapsed: Duration,
    /// Each contender's admissions in that time. A contender that was waiting at the stop is still admitted, but that
    /// admission is not counted.
    pub admissions: Vec<u64>,
    /// The number of these admissions that were to read. The rest were to write; all were, if the target does not
    /// distinguish readers.
    pub reads: u64,
    /// The number of writes of a readers-writer lock that came just after another write of the same contender.
    pub writes_again: u64,
    /// The times from request to entry; see [`WaitRecorder`]. A wait that the stop cut short has the length that the
    /// wait had reached by then.
    pub waits: PerAccess<WaitHistogram>,
    /// Statistics of the order of admissions; `None` if several contenders could be inside at a time.
    pub order: Option<Admissions>,
    /// The resources that all threads of the process, and other processes, used over the whole run.
    pub usage: Usage,
}

/// Statistics of an order of admissions.
#[derive(Clone, Copy, Serialize, Debug)]
pub struct Admissions {
    /// The longest run of admissions of one contender with no other contender's admission in between.
    pub longest_run: u64,
    /// The most admissions of others between two consecutive admissions of one contender. The times between the start
    /// and the contender's first admission, and between the contender's last admission and the stop, count too.
    ///
    /// This number is an upper bound of how often a waiting contender was bypassed, as the contender may not have been
    /// waiting all the time: not in its non-critical section, nor while other contenders had the processors.
    pub max_bypass: u64,
    /// The most admissions of others between a request and the entry, of the waits that are measured: see
    /// [`WaitRecorder`] for which waits are.
    ///
    /// If the target serves first come, first served, this number is at most T - 1. The number is higher only if the
    /// contender had to leave the processor to others between its request and its place in the queue, which are some
    /// nanoseconds apart.
    pub max_bypass_waiting: u64,
    /// The part of all admissions of others between a request and the entry that is beyond T - 1 in one wait, estimated
    /// by the waits that are measured. `None` if there were no such admissions.
    ///
    /// If the target serves first come, first served, this part is nearly 0. If each contender has the lock for n times
    /// running, the part is 1 - 1/n.
    pub overtaken: Option<f64>,
}

/// Returns the time that so many contenders take to come to the target and to go to sleep there.
fn gathering(contenders: usize) -> Duration {
    /// Enough for a hundred threads.
    const LEAST: Duration = Duration::from_millis(20);
    LEAST.max(LEAST * contenders as u32 / 100)
}

/// A place for a guard, on cache lines of its own.
type Place<G> = CachePadded<UnsafeCell<MaybeUninit<G>>>;

/// The data that the contenders of a run share.
struct Arena<E: Lockable> {
    target: CachePadded<E>,
    section: CachePadded<E::Section>,
    stop: CachePadded<AtomicBool>,
    ticks: Ticks,
    /// The guards of the contenders that are inside, in a logged run.
    guards: Box<[Place<E::Guard>]>,
}

// SAFETY: a contender touches its own element of `guards` only, on its own thread, between its `enter` and its `leave`. The
// other fields can be shared.
unsafe impl<E: Lockable> Sync for Arena<E> {}
// SAFETY: no guard is in `guards` while the arena moves to another thread, as no contender is inside.
unsafe impl<E: Lockable> Send for Arena<E> {}

/// An [`Arena`] of any target. The code around the measured loops is compiled once, over this trait; the loops themselves
/// ([`Self::work`] and [`Self::pairs`]) are compiled for each type, the loop of a logged run for each section. Each loop is
/// called once per contender and run.
trait AnyArena: Send + Sync {
    /// Runs the measured loop of one contender.
    fn work(&self, me: usize, run: &Run, gate: &Gate) -> Tally;

    /// Runs the measured loop of one contender of a logged run.
    fn work_logged(&self, me: usize, run: &Run, gate: &Gate, log_of_run: &LogOfRun) -> LoggedTally;

    /// See [`pairs`].
    fn pairs(&self, at_least: Duration) -> f64;

    /// Returns whether the target lets in one contender at a time, and also lets in the caller of [`Self::shut`].
    fn can_be_shut(&self) -> bool;

    /// Enters as contender `me`, runs `inside`, and leaves.
    fn shut(&self, me: usize, inside: &mut dyn FnMut());

    /// Returns the number of admissions: see [`CriticalSection::admissions`].
    fn admissions(&self) -> u64;

    /// Returns the flag that tells the contenders to stop.
    fn stop(&self) -> &AtomicBool;

    /// Returns the coarse clock of the run.
    fn ticks(&self) -> &Ticks;

    /// Returns [`CriticalSection::IN_ORDER`].
    fn is_in_order(&self) -> bool;

    /// Returns the longest run of admissions: see [`CriticalSection::longest_run`].
    fn longest_run(&mut self, admissions: PerAccess<u64>) -> Option<u64>;
}

/// The counts that one contender returns.
struct Tally {
    admissions: u64,
    reads: u64,
    writes_again: u64,
    max_bypass: u64,
    waits: PerAccess<WaitHistogram>,
    bypasses: Bypasses,
}

/// A run and the arena that is made for this run. The caller makes the run once, by either method.
pub struct Prepared {
    run: Run,
    arena: Arc<dyn AnyArena>,
}

impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prepared").field("run", &self.run).finish_non_exhaustive()
    }
}

impl Run {
    /// Makes the arena of this run on a target. This function is not generic, so the measured loops are compiled once,
    /// in this crate.
    pub fn prepare(self, target: Target) -> Prepared {
        match target {
            Target::Lock(name) => with_lock(name, self),
            Target::RwLock(name) => with_rw_lock(name, self),
            Target::Semaphore(name) => with_semaphore(name, self),
            Target::Composed(composition) => self.on(Locked(composition.make())),
            Target::Floor(FloorName::TwoRmws) => self.on(TwoRmws::new()),
            Target::Floor(FloorName::Handover) => self.on(Handover::new(self.threads)),
        }
    }

    fn on<E: Lockable>(self, target: E) -> Prepared {
        let arena = Arena {
            target: CachePadded::new(target),
            section: CachePadded::new(E::Section::new(&self.workload)),
            stop: CachePadded::new(AtomicBool::new(false)),
            ticks: Ticks::new(self.workload.duration + Ticks::PERIOD),
            guards: (0..self.threads).map(|_| CachePadded::new(UnsafeCell::new(MaybeUninit::uninit()))).collect(),
        };
        Prepared { run: self, arena: Arc::new(arena) }
    }
}

impl Job for Run {
    type Out = Prepared;

    fn run<L: RawLock + 'static>(self) -> Prepared {
        self.on(Locked(L::new()))
    }
}

impl RwJob for Run {
    type Out = Prepared;

    fn run<L: RawRwLock + 'static>(self) -> Prepared {
        self.on(ReadWrite(L::new()))
    }
}

impl SemaphoreJob for Run {
    type Out = Prepared;

    fn run<S: Semaphore + 'static>(self) -> Prepared {
        self.on(Permitted::<S>::default())
    }
}

/// Returns the nanoseconds of a pair of lock and unlock, or acquire and release, by a single contender, measured for at
/// least the given time.
pub fn pairs<E: Lockable>(target: &E, at_least: Duration) -> f64 {
    /// The number of pairs between two readings of the clock: so many that the cost of a reading is lost among them.
    const BATCH: u32 = 10_000;

    // Make the compiler assume that other threads know the target, as they would a target in a static.
    let target = black_box(target);
    let start = system::now();
    let mut pairs = 0_u64;
    loop {
        for _ in 0..BATCH {
            let guard = target.enter(0, Access::Write);
            // SAFETY: `guard` comes from `enter` of the same target and contender above, on this thread.
            unsafe { target.leave(0, guard) };
        }
        pairs += u64::from(BATCH);
        let elapsed = system::now().saturating_duration_since(start);
        if elapsed >= at_least {
            return elapsed.as_nanos() as f64 / pairs as f64;
        }
    }
}

impl Prepared {
    /// Returns the nanoseconds of a pair of the calling thread or goroutine, instead of making the run: see [`pairs`].
    pub fn pairs(self, at_least: Duration) -> f64 {
        self.arena.pairs(at_least)
    }

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

/// Opens the gate. If the target lets in one contender at a time, the caller first enters the target as one more
/// contender, waits until the contenders have come to the target, calls `start` and leaves; returns the result of
/// `start`. The caller does not enter, and `None` is returned, if the target lets in several contenders or does not let
/// in the caller, or if there is only one contender, which would only learn to sleep.
fn gather<T>(arena: &dyn AnyArena, gate: &Gate, run: &Run, start: impl FnOnce() -> T) -> Option<T> {
    if run.threads == 1 || !arena.can_be_shut() {
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

/// Starts the contenders, keeps the clock, stops the contenders. Returns the time for which the contenders ran.
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
            // Release, after the last tick: a contender that sees the stop also sees the clock's last value.
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

impl<E: Lockable> KeepsGuards for Arena<E> {
    fn enter(&self, me: usize, access: Access) {
        let guard = self.target.enter(me, access);
        // SAFETY: only contender `me` touches this element, and this call is on the contender's thread.
        unsafe { (*self.guards[me].get()).write(guard) };
    }

    unsafe fn leave(&self, me: usize) {
        // SAFETY: the caller's `enter` has written the guard, and no `leave` has read it since. The guard goes back to its
        // target, by the same contender, on the same thread.
        unsafe {
            let guard = (*self.guards[me].get()).assume_init_read();
            self.target.leave(me, guard);
        }
    }
}

impl<E: Lockable> AnyArena for Arena<E> {
    fn pairs(&self, at_least: Duration) -> f64 {
        pairs::<E>(&self.target, at_least)
    }

    fn can_be_shut(&self) -> bool {
        E::TAKES_OTHERS && E::Section::IN_ORDER
    }

    fn shut(&self, me: usize, inside: &mut dyn FnMut()) {
        let guard = self.target.enter(me, Access::Write);
        inside();
        // SAFETY: `guard` came from the `enter` above, by the same contender `me`, on this thread, and has not been
        // given to `leave` before.
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
        E::Section::IN_ORDER
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
            let access = E::Section::access(&mut contender, workload);
            let request = recorder.request(|| self.section.admissions());
            let guard = self.target.enter(me, access);
            // Read the flag inside and nowhere else: a contender that was waiting at the stop gets in once more, does
            // nothing inside, and leaves.
            running = !self.stop.load(Ordering::Acquire);
            let wait = if running { recorder.entry(request) } else { recorder.cut_short(request) };
            // SAFETY: this contender is inside until `leave` below, and `section` is the target's own `Section`.
            let seq = unsafe { self.section.visit(&mut contender, access, running, cs) };
            // SAFETY: `guard` came from the `enter` above, by the same contender, on this thread: a goroutine does not
            // change its thread.
            unsafe { self.target.leave(me, guard) };
            // If admissions are not counted, both numbers are 0, and `outcome` does not use `max_bypass`.
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
        logged::work(self, &*self.section, &self.stop, me, run, gate, log_of_run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::contenders::TEST_WORKERS;
    use crate::targets::locks::LockName;
    use crate::targets::rw_locks::RwLockName;
    use crate::targets::semaphores::SemaphoreName;

    pub(super) const WORKLOAD: Workload = Workload {
        duration: Duration::from_millis(20),
        writes: 100,
        ncs: 3,
        sample: 8,
        gathered: false,
        ..Workload::USUAL
    };

    /// Returns threads, and goroutines on fewer workers than there are goroutines.
    pub(super) fn kinds() -> impl Iterator<Item = Contenders> {
        [Ok(Contenders::Threads), Contenders::goroutines(Some(TEST_WORKERS))].into_iter().flatten()
    }

    fn run(target: impl Into<Target>, on: Contenders, threads: usize) -> Outcome {
        Run { on, threads, workload: WORKLOAD }.prepare(target.into()).measure().unwrap()
    }

    #[test]
    fn a_lone_contender_is_never_bypassed() {
        for on in kinds() {
            let outcome = run(LockName::Sudog, on, 1);
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
                let outcome = run(target, on, 5);
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
                let outcome = run(rw_lock, on, 5);
                let total: u64 = outcome.admissions.iter().sum();
                assert!(outcome.order.is_none() && outcome.reads <= total);
                for writes in [0, 1000] {
                    let workload = Workload { writes, ..WORKLOAD };
                    let outcome = Run { on, threads: 2, workload }.prepare(rw_lock.into()).measure().unwrap();
                    let total: u64 = outcome.admissions.iter().sum();
                    assert_eq!(outcome.reads, if writes == 0 { total } else { 0 });
                    let waits = [outcome.waits.read, outcome.waits.write].map(|waits| waits.is_empty());
                    assert!(waits[usize::from(writes == 0)], "waits of those who did not come");
                }
            }
        }
    }

    #[test]
    fn a_turn_goes_round_in_order() {
        for on in kinds() {
            let outcome = run(Target::Floor(FloorName::Handover), on, 5);
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
            assert!(run(Target::Floor(FloorName::TwoRmws), on, 5).order.is_none());
        }
    }
}
