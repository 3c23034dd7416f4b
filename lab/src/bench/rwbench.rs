//! The command `rwbench`: threads or goroutines that contend for a readers-writer lock. Each contender draws at random
//! whether to read or to write.
//!
//! Inside the lock, a reader looks at two words and a writer changes them: see `run/driver/critical_section.rs`.

use crate::options::{EffortArgs, List, MAX_THREADS, list, numbers};
use clap::Args;
use std::ops::Deref;

use serde::Serialize;

use super::logged;
use super::plan::{Plan, RunFacts};
use super::summary::solitude;
use crate::measure::admissions::Metrics;

use crate::measure::metrics::median;
use crate::measure::usage::{disturbance, others};
use crate::output::Output;
use crate::output::failure::Failure;
use crate::output::table::Table;
use crate::output::units;
use crate::run::driver::{Outcome, Workload};
use crate::targets::rw_locks::RwLockName;
use crate::targets::target::Target;

#[derive(Args, Clone, Debug)]
#[command(allow_negative_numbers = true)]
pub struct RwbenchArgs {
    /// Readers-writer locks, by name [default: all]
    #[arg(long, value_name = "A,B", value_parser = list::<RwLockName>)]
    pub locks: Option<List<RwLockName>>,

    /// Numbers of contenders, threads or goroutines
    #[arg(long, value_name = "N,N", default_value = "1,2,8", value_parser = numbers::<1, MAX_THREADS>)]
    pub threads: List<usize>,

    /// Writes in a thousand visits
    #[arg(long, value_name = "N,N", default_value = "0,1,10,100,500", value_parser = numbers::<0, 1000>)]
    pub writes: List<usize>,

    #[command(flatten)]
    pub effort: EffortArgs,
}

/// The record of a run.
#[derive(Clone, Serialize, Debug)]
struct RwRecord {
    #[serde(flatten)]
    facts: RunFacts,
    /// The number of writes in a thousand visits.
    writes_in_1000: usize,
    reads: u64,
    writes: u64,
    read_throughput: f64,
    write_throughput: f64,
    /// The share of writes that followed a write of the same contender.
    same_writer: Option<f64>,
    #[serde(flatten)]
    waits: WaitFields,
}

impl Deref for RwRecord {
    type Target = RunFacts;

    fn deref(&self) -> &RunFacts {
        &self.facts
    }
}

/// The waits of a run. A field is `None` if no wait was timed.
#[derive(Clone, Copy, Serialize, Debug)]
struct WaitFields {
    read_wait_p50_ns: Option<u64>,
    read_wait_p99_ns: Option<u64>,
    read_wait_p999_ns: Option<u64>,
    read_wait_max_ns: Option<u64>,
    write_wait_p50_ns: Option<u64>,
    write_wait_p99_ns: Option<u64>,
    write_wait_p999_ns: Option<u64>,
    write_wait_max_ns: Option<u64>,
}

/// The medians over the runs of a cell. A quantity that was not measured is not a number.
#[derive(Clone, Copy, Debug)]
struct Summary {
    throughput: f64,
    reads: f64,
    writes: f64,
    same_writer: f64,
    min_max: f64,
    read_waits: [f64; 3],
    write_waits: [f64; 3],
}

const NAME: &str = "rwbench";
fn record(
    plan: &Plan,
    target: Target,
    threads: usize,
    share: usize,
    run: usize,
    outcome: &Outcome,
    metrics: Option<Metrics>,
) -> RwRecord {
    let writes = outcome.admissions.iter().sum::<u64>() - outcome.reads;
    let per_second = |n: u64| n as f64 / outcome.elapsed.as_secs_f64();
    let [read_wait_p50_ns, read_wait_p99_ns, read_wait_p999_ns, read_wait_max_ns] = plan.quantiles(&outcome.waits.read);
    let [write_wait_p50_ns, write_wait_p99_ns, write_wait_p999_ns, write_wait_max_ns] =
        plan.quantiles(&outcome.waits.write);
    RwRecord {
        facts: plan.facts(target, threads, run, outcome, metrics),
        writes_in_1000: share,
        reads: outcome.reads,
        writes,
        read_throughput: per_second(outcome.reads),
        write_throughput: per_second(writes),
        same_writer: (writes > 0).then(|| outcome.writes_again as f64 / writes as f64),
        waits: WaitFields {
            read_wait_p50_ns,
            read_wait_p99_ns,
            read_wait_p999_ns,
            read_wait_max_ns,
            write_wait_p50_ns,
            write_wait_p99_ns,
            write_wait_p999_ns,
            write_wait_max_ns,
        },
    }
}

impl Summary {
    fn new(records: &[RwRecord], target: Target, threads: usize, share: usize) -> Self {
        let of_cell = |r: &&RwRecord| r.target == target && r.threads == threads && r.writes_in_1000 == share;
        let ours: Vec<&RwRecord> = records.iter().filter(of_cell).collect();
        let over = |of: &dyn Fn(&RwRecord) -> f64| median(ours.iter().map(|r| of(r)).filter(|x| !x.is_nan()));
        let wait = |of: fn(&WaitFields) -> Option<u64>| over(&|r| of(&r.waits).map_or(f64::NAN, |ns| ns as f64));
        Self {
            throughput: over(&|r| r.throughput),
            reads: over(&|r| r.read_throughput),
            writes: over(&|r| r.write_throughput),
            same_writer: over(&|r| r.same_writer.unwrap_or(f64::NAN)),
            min_max: over(&|r| r.min_max),
            read_waits: [wait(|w| w.read_wait_p50_ns), wait(|w| w.read_wait_p999_ns), wait(|w| w.read_wait_max_ns)],
            write_waits: [wait(|w| w.write_wait_p50_ns), wait(|w| w.write_wait_p999_ns), wait(|w| w.write_wait_max_ns)],
        }
    }
}

/// Makes the runs. The locks take turns, so that changes on the machine in the meantime affect all locks alike.
fn measure(plan: &Plan, shares: &[usize], output: Output) -> Result<Vec<RwRecord>, Failure> {
    let progress = plan.progress(output, shares.len() * plan.total());
    let mut records = Vec::with_capacity(shares.len() * plan.total());
    for run in 1..=plan.runs {
        for &threads in &plan.threads {
            for &share in shares {
                let workload = Workload { writes: share as u32, ..plan.workload };
                for &target in &plan.targets {
                    let outcome = plan.make(target, threads, workload)?;
                    let metrics = plan.metrics(threads, workload, |run| run.prepare(target))?;
                    let record = record(plan, target, threads, share, run, &outcome, metrics);
                    output.record(&record)?;
                    records.push(record);
                    progress.inc(1);
                }
            }
        }
    }
    progress.finish_and_clear();
    Ok(records)
}

fn table(plan: &Plan, shares: &[usize], records: &[RwRecord]) -> Table {
    let words = ["lock", "T", "writes in 1000", "throughput", "reads", "writes", "same writer", "min/max"];
    let waits = ["read p50", "read p99.9", "read max", "write p50", "write p99.9", "write max"];
    let mut table = Table::new(1, words.into_iter().chain(waits));
    for &threads in &plan.threads {
        for &share in shares {
            for &target in &plan.targets {
                let s = Summary::new(records, target, threads, share);
                let words = [target.name().to_owned(), threads.to_string(), share.to_string()];
                let rates = [s.throughput, s.reads, s.writes].map(units::rate);
                let waits = s.read_waits.into_iter().chain(s.write_waits).map(units::time);
                table.row(
                    words.into_iter().chain(rates).chain([s.same_writer, s.min_max].map(units::ratio)).chain(waits),
                );
            }
        }
    }
    table
}

/// Runs `rwbench`: measures and prints.
pub fn run(args: &RwbenchArgs, output: Output) -> Result<(), Failure> {
    if args.effort.ungathered {
        return Err(Failure::Usage(
            "readers enter together, so contenders never start together here: '--ungathered' has no effect".into(),
        ));
    }
    let mut plan = Plan::new(NAME, RwLockName::ALL, args.locks.as_ref(), &args.threads, &args.effort, 0)?;
    plan.workload.gathered = false;
    let shares = &args.writes.0;
    let records = measure(&plan, shares, output)?;
    output.text(format_args!("{}\n\n{}\n", plan.headline(), table(&plan, shares, &records)))?;
    let run = |r: &RwRecord| [r.target.name().to_owned(), r.threads.to_string(), r.writes_in_1000.to_string()];
    let runs = records.iter().map(|r| (run(r).to_vec(), r.metrics.as_ref()));
    logged::print(&["lock", "T", "writes in 1000"], runs, output)?;
    output.text(
        "writes in 1000: the writes in 1000 visits, drawn at random. same writer: the part of the writes that follow a write of \
         the same contender; 1/T if all contenders are active. min/max: the fewest visits of a contender over the most visits \
         of a contender.\n\
         Waits: all of two milliseconds and more, and a sample of the others; those of readers and of writers apart.",
    )?;
    let disturbance = disturbance(others(records.iter().map(|r| r.other_cpus)));
    solitude(plan.on, &plan.threads).into_iter().chain(disturbance).try_for_each(|warning| output.text(warning))
}
