//! MutexBench, the benchmark of Dice's papers, for any lock.
//!
//! T contenders, threads or goroutines, loop: acquire, advance a generator that they share, release, advance a
//! generator of their own. What they share lies on lines of its own, each thing alone, the lock among them, for all
//! locks alike:
//!
//! ```text
//!   | lock | admissions, shared generator | stop | tick |      each contender's own on its own stack
//! ```

use std::cell::UnsafeCell;
use std::hint::black_box;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use rand_mt::Mt;
use sudog_sync::RawLock;

use crate::contenders::{Contenders, Gate};
use crate::locks::Job;
use crate::ticks::Ticks;
use crate::usage::{Counts, Usage};
use crate::waits::{WaitRecorder, Waits, empty_waits};

/// What each contender does, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// How long.
    pub duration: Duration,
    /// Steps of the shared generator in the critical section.
    pub cs: u32,
    /// Steps of the contender's own generator outside it.
    pub ncs: u32,
    /// What the generators start from.
    pub seed: u32,
    /// One short wait in so many is timed; 0: none.
    pub sample: u32,
}

/// One run to be made. As a [`Job`] it makes that run.
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
    /// From request to entry; see [`WaitRecorder`]. A wait cut short by the stop has the length it had reached by then.
    pub waits: Waits,
    /// The longest run of admissions of one contender with nobody else's in between.
    pub longest_run: u64,
    /// The most admissions of others between two consecutive ones of one contender; between the start and its first,
    /// and between its last and the stop, too.
    ///
    /// Without a non-critical section, that is how often one that waited was bypassed. With one it is an upper bound,
    /// as it may not have been waiting all the time.
    pub max_bypass: u64,
    /// Of all threads, and of others, over the whole run.
    pub usage: Usage,
}

/// What the contenders of a run share.
struct Arena<L> {
    lock: CachePadded<L>,
    shared: CachePadded<UnsafeCell<Shared>>,
    stop: CachePadded<AtomicBool>,
    ticks: Ticks,
}

// SAFETY: `shared` is touched by the holder of `lock` only.
unsafe impl<L: RawLock> Sync for Arena<L> {}

/// What the lock protects.
struct Shared {
    /// Admissions so far.
    seq: u64,
    last_admitted: usize,
    current_run: u64,
    longest_run: u64,
    random: Mt,
}

impl Shared {
    #[inline]
    fn admit(&mut self, contender: usize) {
        self.seq += 1;
        if self.last_admitted == contender {
            self.current_run += 1;
        } else {
            self.last_admitted = contender;
            self.current_run = 1;
        }
        self.longest_run = self.longest_run.max(self.current_run);
    }
}

/// What one contender brings home.
struct Tally {
    admissions: u64,
    max_bypass: u64,
    waits: Waits,
}

impl Job for Run {
    /// Fails if the contenders cannot be had.
    type Out = io::Result<Outcome>;

    fn run<L: RawLock + 'static>(self) -> io::Result<Outcome> {
        let arena = Arc::new(Arena::<L>::new(&self.workload));
        let theirs = Arc::clone(&arena);
        let work = move |me, gate: &Gate| theirs.work(me, &self.workload, gate);
        let conduct = |gate: &Gate| (Counts::now(), arena.conduct(gate, self.workload.duration));
        let ((counts, elapsed), tallies) = self.on.fan_out(self.threads, work, conduct)?;
        let usage = counts.usage_until_now();
        let arena = Arc::into_inner(arena).expect("the contenders have ended");
        Ok(arena.outcome(elapsed, tallies, usage))
    }
}

impl<L: RawLock> Arena<L> {
    fn new(workload: &Workload) -> Self {
        let shared = Shared {
            seq: 0,
            last_admitted: usize::MAX,
            current_run: 0,
            longest_run: 0,
            random: Mt::new(workload.seed),
        };
        Self {
            lock: CachePadded::new(L::new()),
            shared: CachePadded::new(UnsafeCell::new(shared)),
            stop: CachePadded::new(AtomicBool::new(false)),
            ticks: Ticks::new(workload.duration + Ticks::PERIOD),
        }
    }

    /// Starts the contenders, keeps the clock, stops the contenders. Returns how long they ran.
    fn conduct(&self, gate: &Gate, duration: Duration) -> Duration {
        let start = Instant::now();
        gate.open(true);
        loop {
            thread::sleep(Ticks::PERIOD);
            let elapsed = start.elapsed();
            self.ticks.advance(elapsed);
            if elapsed >= duration {
                // Release, after the last tick: whoever sees the stop sees the clock as it stays.
                self.stop.store(true, Ordering::Release);
                return elapsed;
            }
        }
    }

    /// The life of a contender.
    fn work(&self, me: usize, workload: &Workload, gate: &Gate) -> Tally {
        let mut private = Mt::new(workload.seed.wrapping_add(me as u32 + 1));
        let mut recorder = WaitRecorder::new(&self.ticks, workload.sample, private.next_u32());
        let (mut admissions, mut max_bypass, mut last_seq) = (0, 0, 0);
        let mut running = gate.wait();
        while running {
            let request = recorder.request();
            let guard = self.lock.lock();
            // Asked under the lock and nowhere else: so one that was waiting at the stop gets in once more, does
            // nothing there, and leaves.
            running = !self.stop.load(Ordering::Acquire);
            let wait = if running { recorder.entry(request) } else { recorder.cut_short(request) };
            // SAFETY: we hold the lock until the reference is last used.
            let shared = unsafe { &mut *self.shared.get() };
            let bypass = shared.seq - last_seq;
            if running {
                shared.admit(me);
                last_seq = shared.seq;
                steps(&mut shared.random, workload.cs);
            }
            // SAFETY: acquired above, on this thread, which a goroutine does not change.
            unsafe { self.lock.unlock(guard) };
            max_bypass = max_bypass.max(bypass);
            admissions += u64::from(running);
            recorder.record(wait);
            steps(&mut private, workload.ncs);
        }
        Tally { admissions, max_bypass, waits: recorder.into_waits() }
    }

    fn outcome(self, elapsed: Duration, tallies: Vec<Tally>, usage: Usage) -> Outcome {
        let mut waits = empty_waits();
        for tally in &tallies {
            waits += &tally.waits;
        }
        let shared = self.shared.into_inner().into_inner();
        let admissions: Vec<u64> = tallies.iter().map(|t| t.admissions).collect();
        assert_eq!(admissions.iter().sum::<u64>(), shared.seq, "two were in the critical section at once");
        Outcome {
            elapsed,
            admissions,
            waits,
            longest_run: shared.longest_run,
            max_bypass: tallies.iter().map(|t| t.max_bypass).max().unwrap_or(0),
            usage,
        }
    }
}

#[inline]
fn steps(random: &mut Mt, n: u32) {
    for _ in 0..n {
        black_box(random.next_u32());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contenders::TEST_WORKERS;
    use crate::locks::{LockName, with_lock};

    const WORKLOAD: Workload = Workload { duration: Duration::from_millis(20), cs: 1, ncs: 3, seed: 1, sample: 8 };

    /// Threads, and goroutines on fewer workers than there are of them.
    fn kinds() -> impl Iterator<Item = Contenders> {
        [Ok(Contenders::Threads), Contenders::goroutines(Some(TEST_WORKERS))].into_iter().flatten()
    }

    #[test]
    fn a_lone_contender_is_never_bypassed() {
        for on in kinds() {
            let outcome = with_lock(LockName::Go, Run { on, threads: 1, workload: WORKLOAD }).unwrap();
            assert_eq!(outcome.max_bypass, 0);
            assert_eq!(outcome.longest_run, outcome.admissions[0]);
            assert!(outcome.elapsed >= WORKLOAD.duration);
        }
    }

    #[test]
    fn every_lock_admits_everybody_in_the_end() {
        for on in kinds() {
            for &name in LockName::ALL.iter().filter(|&&lock| on.may_contend_for(lock)) {
                let outcome = with_lock(name, Run { on, threads: 5, workload: WORKLOAD }).unwrap();
                assert_eq!(outcome.admissions.len(), 5);
                let total: u64 = outcome.admissions.iter().sum();
                assert!(outcome.longest_run <= total && outcome.max_bypass <= total);
            }
        }
    }
}
