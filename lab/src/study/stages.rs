//! MutexBench over the eight stages of the Go mutex: the gain of each stage.

use crate::options::{EffortArgs, List, MAX_THREADS, list, numbers};
use clap::Args;
use std::sync::atomic::Ordering::Relaxed;
use sudog_runtime::shim::system::atomic::AtomicU64;

use crossbeam_utils::CachePadded;
use indicatif::ProgressBar;
use serde::Serialize;
use sudog_runtime::Instant;
use sudog_sync::mutex::stages::{V1, V2, V3, V4, V5, V6, V7, V8};
use sudog_sync::semaphore::RuntimeSema;
use sudog_sync::{Order, Semaphore, Wake};

use crate::bench::logged;
use crate::bench::plan::{Plan, RunRecord};

use crate::measure::metrics::median;
use crate::measure::usage::{disturbance, others};
use crate::output::Output;
use crate::output::failure::Failure;
use crate::output::table::Table;
use crate::output::units;
use crate::run::driver::Run;
use crate::targets::locks::{Job, LockName};
use crate::targets::registry::registry;
use crate::targets::target::Target;

#[derive(Args, Clone, Debug)]
#[command(allow_negative_numbers = true)]
pub struct StagesArgs {
    /// Stages, by name [default: v1 to v8]
    #[arg(long, value_name = "A,B", value_parser = list::<StageName>)]
    pub stages: Option<List<StageName>>,

    /// Numbers of contenders, threads or goroutines
    #[arg(long, value_name = "N,N", default_value = "1,2,4,16", value_parser = numbers::<1, MAX_THREADS>)]
    pub threads: List<usize>,

    #[command(flatten)]
    pub effort: EffortArgs,
}

registry! {
    /// The name of a stage.
    enum StageName;
    jobs Job;
    fn with_stage;
    unknown "stage";

    V1 = "v1": V1<Counted>, "a semaphore of one";
    V2 = "v2": V2<Counted>, "+ a locked flag: a free mutex is taken without the semaphore";
    V3 = "v3": V3<Counted>, "+ spinning before sleeping";
    V4 = "v4": V4<Counted>, "+ a count of waiters: an unlock without waiters is one step";
    V5 = "v5": V5<Counted>, "+ the woken bit: one waiter awake is enough";
    V6 = "v6": V6<Counted>, "+ LIFO: a waiter that was woken in vain goes back to the head of the queue";
    V7 = "v7": V7<Counted>, "+ starvation mode: after a millisecond a waiter is served next";
    V7Inlined = "v7-inlined": V7<Counted, true>, "v7, its fast paths apart, which can be inlined: for study";
    V8 = "v8": V8<Counted>, "+ fast and slow paths apart, and checks: sudog/go-1.14";
}

/// [`RuntimeSema`], with counts of the slow events: sleeps, and handoffs. The counts are global, so only one run may be
/// made at a time.
pub struct Counted(RuntimeSema);

/// The number of waits that ended by a wake-up: all that did not find a permit at once.
static WAKES: CachePadded<AtomicU64> = CachePadded::new(AtomicU64::new(0));
static HANDOFFS: CachePadded<AtomicU64> = CachePadded::new(AtomicU64::new(0));

// SAFETY: every call goes to the `RuntimeSema`, which keeps the promises of `Semaphore`.
unsafe impl Semaphore for Counted {
    const LIFO: bool = RuntimeSema::LIFO;
    const FIFO: bool = RuntimeSema::FIFO;
    const HANDOFF: bool = RuntimeSema::HANDOFF;
    const DEADLINES: bool = RuntimeSema::DEADLINES;

    fn new(permits: u32) -> Self {
        Self(RuntimeSema::new(permits))
    }

    #[inline]
    fn acquire(&self, order: Order) {
        if !self.0.try_acquire() {
            WAKES.fetch_add(1, Relaxed);
            self.0.acquire(order);
        }
    }

    #[inline]
    fn try_acquire(&self) -> bool {
        self.0.try_acquire()
    }

    #[inline]
    fn acquire_until(&self, order: Order, deadline: Instant) -> bool {
        self.0.acquire_until(order, deadline)
    }

    #[inline]
    fn release(&self, wake: Wake) {
        if wake != Wake::Normal {
            HANDOFFS.fetch_add(1, Relaxed);
        }
        self.0.release(wake);
    }
}

/// The record of a run: a stage, with so many contenders.
#[derive(Clone, Serialize, Debug)]
struct StageRecord {
    stage: StageName,
    #[serde(flatten)]
    record: RunRecord,
    /// The number of times that a contender slept until it was woken.
    wakes: u64,
    /// The number of times that an unlock gave the lock to a waiter.
    handoffs: u64,
    /// The number of times that the system switched threads.
    ctx_switches: u64,
}

impl StageName {
    /// The stages of the source.
    const USUAL: &[Self] = &[Self::V1, Self::V2, Self::V3, Self::V4, Self::V5, Self::V6, Self::V7, Self::V8];

    /// Returns the same lock under its name in the other benchmarks.
    const fn lock(self) -> LockName {
        match self {
            Self::V1 => LockName::V1,
            Self::V2 => LockName::V2,
            Self::V3 => LockName::V3,
            Self::V4 => LockName::V4,
            Self::V5 => LockName::V5,
            Self::V6 => LockName::V6,
            Self::V7 | Self::V7Inlined => LockName::V7,
            Self::V8 => LockName::SudogGo114,
        }
    }
}

/// Measures the stages in turns.
fn measure(
    plan: &Plan,
    stages: &[StageName],
    output: Output,
    progress: &ProgressBar,
) -> Result<Vec<StageRecord>, Failure> {
    let mut records = Vec::new();
    for number in 1..=plan.runs {
        for &threads in &plan.threads {
            for &stage in stages {
                let counts = || (WAKES.load(Relaxed), HANDOFFS.load(Relaxed));
                let before = counts();
                let run = Run { on: plan.on, threads, workload: plan.workload };
                let outcome = with_stage(stage, run).measure().map_err(|error| plan.cannot_start(threads, &error))?;
                let after = counts();
                let metrics = plan.metrics(threads, plan.workload, |run| with_stage(stage, run))?;
                let record = StageRecord {
                    stage,
                    wakes: after.0 - before.0,
                    handoffs: after.1 - before.1,
                    ctx_switches: outcome.usage.voluntary_switches + outcome.usage.involuntary_switches,
                    record: plan.record(Target::Lock(stage.lock()), threads, number, &outcome, metrics),
                };
                output.record(&record)?;
                records.push(record);
                progress.inc(1);
            }
        }
    }
    Ok(records)
}

/// Returns a table with a row for each stage and number of contenders: by number, then by stage.
fn table(plan: &Plan, stages: &[StageName], records: &[StageRecord]) -> Table {
    let header = ["stage", "T", "throughput", "/ stage before", "wakes", "handoffs", "switches"];
    let mut table = Table::new(1, header.into_iter().chain(["p99.9", "max wait", "min/max"]));
    for &threads in &plan.threads {
        let mut before = f64::NAN;
        for &stage in stages {
            let over = |of: fn(&StageRecord) -> f64| {
                median(records.iter().filter(|r| r.stage == stage && r.record.threads == threads).map(of))
            };
            let throughput = over(|r| r.record.throughput);
            let each = |of: fn(&StageRecord) -> f64| format!("{:.4}", over(of));
            table.row([
                stage.name().to_owned(),
                threads.to_string(),
                units::rate(throughput),
                units::ratio(throughput / before),
                each(|r| r.wakes as f64 / r.record.acquisitions as f64),
                each(|r| r.handoffs as f64 / r.record.acquisitions as f64),
                each(|r| r.ctx_switches as f64 / r.record.acquisitions as f64),
                units::time(over(|r| r.record.wait_p999_ns.map_or(f64::NAN, |ns| ns as f64))),
                units::time(over(|r| r.record.wait_max_ns.map_or(f64::NAN, |ns| ns as f64))),
                units::ratio(over(|r| r.record.min_max)),
            ]);
            before = throughput;
        }
    }
    table
}

/// Measures and prints.
pub fn run(args: &StagesArgs, output: Output) -> Result<(), Failure> {
    let plan = Plan::new("stages", LockName::ALL, None, &args.threads, &args.effort, 0)?;
    let stages = args.stages.as_ref().map_or(StageName::USUAL, |list| &list.0);
    let progress = plan.progress(output, plan.runs * plan.threads.len() * stages.len());
    let records = measure(&plan, stages, output, &progress)?;
    progress.finish_and_clear();
    output.text(format_args!("{}\n\n{}\n", plan.headline(), table(&plan, stages, &records)))?;
    let run = |r: &StageRecord| vec![r.stage.name().to_owned(), r.record.threads.to_string()];
    logged::print(&["stage", "T"], records.iter().map(|r| (run(r), r.record.metrics.as_ref())), output)?;
    output.text("wakes, handoffs, switches: per acquisition. wakes: the sleeps on the semaphore that have ended.")?;
    for &stage in stages {
        output.text(format_args!("{}: {}.", stage.name(), stage.about()))?;
    }
    disturbance(others(records.iter().map(|r| r.record.other_cpus))).map_or(Ok(()), |warning| output.text(warning))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_sleeps_is_counted() {
        let before = WAKES.load(Relaxed);
        let semaphore = Counted::new(1);
        semaphore.acquire(Order::Fifo);
        assert_eq!(WAKES.load(Relaxed), before, "there was a permit");
        std::thread::scope(|s| {
            let waiter = s.spawn(|| semaphore.acquire(Order::Fifo));
            while WAKES.load(Relaxed) == before {
                std::thread::yield_now();
            }
            semaphore.release(Wake::Handoff);
            waiter.join().unwrap();
        });
        assert!(HANDOFFS.load(Relaxed) > 0 && !semaphore.try_acquire());
    }
}
