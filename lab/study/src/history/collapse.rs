//! Go issue 33747: many goroutines that need a mutex for a hundredth of their time.
//!
//! Once a waiter has waited for a millisecond, each unlock hands the mutex over. If the unlocking goroutine goes on to
//! its work outside, a waiter of the same processor runs when that work is done; all this time the mutex is the
//! waiter's, and no contender uses it. So waiters have always waited for more than a millisecond, and starvation mode
//! does not end: two goroutines are at work, however many processors there are. Since 1.14 the unlocking goroutine
//! yields, and the waiter has the rest of the goroutine's time slice.
//!
//! In the issue this begins at about 28 processors, where by chance enough goroutines meet at the mutex. On a machine
//! with two processors, two goroutines at work are all there can be. So this program stages the collapse:
//!
//! * *Processors are simulated.* Work outside is sleep, of the worker and not of the goroutine: the worker is taken, as
//!   a processor would be, and its goroutines wait. Work under the mutex is done.
//! * *Chance is helped.* At the start a contender holds the mutex for some milliseconds (as after a page fault, or if a
//!   thread loses its processor), so all contenders queue. The run measures whether they ever get out of the queue.
//!
//! Goroutines of this project stay on their workers, where Go's move to the processor of the goroutine that readies
//! them. So yielding helps only if the waiter is of the same worker: less than in Go. On threads no thread yields, and
//! no thread waits for another's work outside: there the policies are alike.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use sudog_runtime::shim::system;
use sudog_runtime::shim::system::atomic::{AtomicBool, AtomicU64};
use sudog_runtime::shim::system::thread;

use crossbeam_utils::CachePadded;
use serde::Serialize;
use sudog_sync::GoMutex;
use sudog_sync::mutex::policy::Policy;
use sudog_sync::semaphore::RuntimeSema;

use crate::measure::metrics::median;
use crate::output::Output;
use crate::output::failure::Failure;
use crate::output::table::Table;
use crate::output::units;
use crate::run::contenders::{Contenders, Gate};
use crate::targets::policies::{PolicyJob, PolicyName, with_policy};

/// The parameters of a run under one policy.
#[derive(Clone, Copy)]
pub struct Scene {
    pub on: Contenders,
    pub contenders: usize,
    pub duration: Duration,
    pub stall: Duration,
    pub inside: Duration,
    pub outside: Duration,
    /// A function that works outside the mutex for so long.
    pub work_outside: fn(Duration),
}

/// The result of a run.
pub struct Ending {
    pub elapsed: Duration,
    pub operations: u64,
    /// The waits of each contender.
    pub waits: Vec<Waits>,
    /// The part of the conductor's looks in which the mutex was in starvation mode.
    pub starving: f64,
}

/// The record of a run.
#[derive(Clone, Serialize, Debug)]
struct CollapseRecord {
    bench: &'static str,
    issue: u32,
    policy: PolicyName,
    #[serde(flatten)]
    on: Contenders,
    #[cfg(sudog_sim)]
    #[serde(flatten)]
    machine: crate::run::machine::Simulated,
    contenders: usize,
    run: usize,
    cost_ns: u128,
    stall_ns: u128,
    operations: u64,
    throughput: f64,
    /// The part of the time in which the mutex was in starvation mode.
    starving: f64,
    mean_wait_ns: f64,
    /// The part of the rounds that waited for more than a millisecond.
    long_waits: f64,
}

/// The waits of a contender, without the first wait, which the stall makes. Timed on simulated processors only.
#[derive(Default)]
pub struct Waits {
    pub rounds: u64,
    pub time: Duration,
    /// The number of waits of more than a millisecond, after which the mutex goes into starvation mode.
    pub long: u64,
}

impl Waits {
    fn add(&mut self, wait: Duration) {
        self.rounds += 1;
        self.time += wait;
        self.long += u64::from(wait > Duration::from_millis(1));
    }
}

impl PolicyJob for Scene {
    type Out = std::io::Result<Ending>;

    fn run<P: Policy + 'static>(self) -> Self::Out {
        let mutex = Arc::new(GoMutex::<RuntimeSema, P>::const_new());
        let over = Arc::new(AtomicBool::new(false));
        let counts: Arc<[CachePadded<AtomicU64>]> = (0..self.contenders).map(|_| CachePadded::default()).collect();
        let done = || counts.iter().map(|count| count.load(Relaxed)).sum::<u64>();
        let theirs = (Arc::clone(&mutex), Arc::clone(&over), Arc::clone(&counts));
        let body = move |number: usize, gate: &Gate| {
            let (mutex, over, counts) = &theirs;
            let (mut waits, mut is_first) = (Waits::default(), true);
            let running = gate.wait();
            while running && !over.load(Relaxed) {
                (self.work_outside)(self.outside);
                let requested = cfg!(sudog_sim).then(system::now);
                mutex.lock();
                let start = system::now();
                if let Some(requested) = requested.filter(|_| !std::mem::take(&mut is_first)) {
                    waits.add(start.saturating_duration_since(requested));
                }
                while system::now().saturating_duration_since(start) < self.inside {}
                mutex.unlock();
                counts[number].fetch_add(1, Relaxed); // on a separate line
            }
            waits
        };
        let conduct = |gate: &Gate| {
            mutex.lock();
            gate.open(true);
            thread::sleep(self.stall);
            mutex.unlock();
            let start = system::now();
            let before = done();
            let (mut looks, mut starving) = (0, 0);
            while system::now().saturating_duration_since(start) < self.duration {
                thread::sleep(Duration::from_millis(1));
                looks += 1;
                starving += u32::from(mutex.is_starving());
            }
            let (elapsed, operations) = (system::now().saturating_duration_since(start), done() - before);
            over.store(true, Relaxed);
            Ending { elapsed, operations, waits: Vec::new(), starving: f64::from(starving) / f64::from(looks.max(1)) }
        };
        let (ending, waits) = self.on.fan_out(self.contenders, body, conduct)?;
        Ok(Ending { waits, ..ending })
    }
}

/// The part of the work that is under the mutex.
const PART: f64 = 0.01;

/// The cases of a story, which take turns.
pub struct Cases<'a> {
    pub bench: &'static str,
    pub on: Contenders,
    pub policies: &'static [PolicyName],
    /// The time for which each contender works in a round.
    pub cost: Duration,
    pub stall: Duration,
    pub contenders: &'a [usize],
    pub duration: Duration,
    pub runs: usize,
    /// A function that works outside the mutex for so long.
    pub work_outside: fn(Duration),
}

impl Cases<'_> {
    fn run(&self, policy: PolicyName, contenders: usize, run: usize) -> Result<CollapseRecord, Failure> {
        let Self { on, duration, stall, work_outside, .. } = *self;
        let (inside, outside) = (self.cost.mul_f64(PART), self.cost.mul_f64(1.0 - PART));
        let ending = with_policy(policy, Scene { on, contenders, duration, stall, inside, outside, work_outside })
            .map_err(|error| Failure::Run(format!("cannot start {contenders} contenders: {error}")))?;
        let rounds = ending.waits.iter().map(|waits| waits.rounds).sum::<u64>() as f64;
        let waited: Duration = ending.waits.iter().map(|waits| waits.time).sum();
        let long = ending.waits.iter().map(|waits| waits.long).sum::<u64>() as f64;
        Ok(CollapseRecord {
            bench: self.bench,
            issue: 33747,
            policy,
            on,
            #[cfg(sudog_sim)]
            machine: crate::run::machine::simulated(),
            contenders,
            run,
            cost_ns: self.cost.as_nanos(),
            stall_ns: stall.as_nanos(),
            operations: ending.operations,
            throughput: ending.operations as f64 / ending.elapsed.as_secs_f64(),
            starving: ending.starving,
            mean_wait_ns: waited.as_nanos() as f64 / rounds,
            long_waits: long / rounds,
        })
    }

    /// Runs the policies in turns.
    pub fn tell(&self, output: Output) -> Result<(), Failure> {
        type Of = fn(&CollapseRecord) -> f64;
        type Column = (&'static str, fn(f64) -> String, Of);
        let &Self { on, policies, contenders: numbers, runs, .. } = self;
        let progress = output.progress("the collapse", runs * numbers.len() * policies.len());
        let mut records = Vec::new();
        for run in 1..=runs {
            for &contenders in numbers {
                for &policy in policies {
                    let record = self.run(policy, contenders, run)?;
                    output.record(&record)?;
                    records.push(record);
                    progress.inc(1);
                }
            }
        }
        progress.finish_and_clear();

        let of = |policy: PolicyName, contenders: usize, of: Of| {
            median(records.iter().filter(|r| r.policy == policy && r.contenders == contenders).map(of))
        };
        let mut columns: Vec<Column> = vec![("starving ", units::ratio, |r| r.starving)];
        if cfg!(sudog_sim) {
            columns.push(("wait ", units::time, |r| r.mean_wait_ns));
            columns.push(("over 1 ms ", units::ratio, |r| r.long_waits));
        }
        let named = |what: &str| policies.iter().map(|policy| format!("{what}{}", policy.name())).collect::<Vec<_>>();
        let mut header = [vec!["contenders".to_owned()], named(""), vec!["go-1.14 / go-1.9".to_owned()]].concat();
        columns.iter().for_each(|(what, ..)| header.extend(named(what)));
        let mut table = Table::new(0, header);
        let mut worst = (f64::NAN, 0);
        for &n in numbers {
            let rate = |policy| of(policy, n, |r| r.throughput);
            let ratio = rate(PolicyName::Go1_14) / rate(PolicyName::Go1_9);
            if worst.0.is_nan() || ratio > worst.0 {
                worst = (ratio, n);
            }
            let mut row = vec![n.to_string()];
            row.extend(policies.iter().map(|&policy| units::rate(rate(policy))));
            row.push(units::ratio(ratio));
            for (_, unit, what) in &columns {
                row.extend(policies.iter().map(|&policy| unit(of(policy, n, *what))));
            }
            table.row(row);
        }
        let waits = if cfg!(sudog_sim) {
            ", the mean wait for the mutex, and the part of the waits that take more than a millisecond"
        } else {
            ""
        };
        output.text(format_args!(
            "Go issue 33747 on {on}: each contender works for {:?}, {PART} of it under the mutex. At the start the mutex \
             is held for {:?}. From then on: the rounds of all contenders per second, the part of the time in which the \
             mutex is in starvation mode{waits}; medians of {runs} runs of {:?}.\n\n{table}\n",
            self.cost, self.stall, self.duration
        ))?;
        output.text(format_args!(
            "With the yield at a handoff (1.14) there are at most {} times as many rounds as without (1.9), at {} \
             contenders.",
            units::ratio(worst.0),
            worst.1
        ))
    }
}
