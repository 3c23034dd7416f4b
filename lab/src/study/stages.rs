//! MutexBench over the eight stages of the Go mutex: the gain of each stage.

use crate::options::{EffortArgs, List, MAX_THREADS, list, numbers};
use clap::Args;
use indicatif::ProgressBar;
use serde::Serialize;
use sudog_lab_study::counted_stages::{SlowEvents, StageName};

use crate::bench::logged;
use crate::bench::plan::{Plan, RunRecord};

use crate::measure::metrics::median;
use crate::measure::usage::{disturbance, others};
use crate::output::Output;
use crate::output::failure::Failure;
use crate::output::table::Table;
use crate::output::units;
use crate::run::driver::Run;
use crate::targets::locks::LockName;
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

/// The record of a run: a stage, with so many contenders.
#[derive(Clone, Serialize, Debug)]
struct StageRecord {
    stage: StageName,
    #[serde(flatten)]
    record: RunRecord,
    /// The sleeps of the run that have ended: see [`SlowEvents`].
    wakes: u64,
    /// The handoffs of the run.
    handoffs: u64,
    /// The number of times that the system switched threads.
    ctx_switches: u64,
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
                let before = SlowEvents::now();
                let run = Run { on: plan.on, threads, workload: plan.workload };
                let outcome = stage.prepare(run).measure().map_err(|error| plan.cannot_start(threads, &error))?;
                let after = SlowEvents::now();
                let metrics = plan.metrics(threads, plan.workload, |run| stage.prepare(run))?;
                let record = StageRecord {
                    stage,
                    wakes: after.wakes - before.wakes,
                    handoffs: after.handoffs - before.handoffs,
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
