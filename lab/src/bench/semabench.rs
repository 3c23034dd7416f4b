//! The benchmark of the paper on waiting arrays: contenders for a semaphore of one permit. A contender that has the
//! permit makes a step of a generator that all contenders share; a contender without the permit makes a step of a
//! generator of its own. Two [floors](crate::targets::floors) are measured beside the semaphores.

use crate::options::{EffortArgs, List, MAX_THREADS, list, numbers, permits};
use clap::Args;
use std::path::Path;
use sudog_runtime::shim::system::thread;

use super::plan::Plan;
use super::summary::Summaries;
use super::uncontended;

use super::page::Report;
use crate::measure::metrics::geometric_mean;
use crate::output::Output;
use crate::output::failure::Failure;
use crate::output::report::ReportFile;
use crate::output::table::Table;
use crate::output::units;
use crate::run::contenders::Contenders;
use crate::targets::floors::FloorName;
use crate::targets::semaphores::SemaphoreName;
use crate::targets::target::Target;

/// Options of `semabench`.
#[derive(Args, Clone, Debug)]
#[command(allow_negative_numbers = true)]
pub struct SemabenchArgs {
    /// Semaphores, by name [default: all but those for study: 'twa' with other thresholds and hashes]
    #[arg(long, value_name = "A,B", value_parser = list::<SemaphoreName>)]
    pub semaphores: Option<List<SemaphoreName>>,

    /// Numbers of contenders, threads or goroutines
    #[arg(long, value_name = "N,N", default_value = "1,2,4,8,16,32,64", value_parser = numbers::<1, MAX_THREADS>)]
    pub threads: List<usize>,

    /// Permits. With more than one no generator is shared, and no order is counted
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = permits())]
    pub permits: u32,

    /// Options that several commands have.
    #[command(flatten)]
    pub effort: EffortArgs,
}

const TWO_RMWS: Target = Target::Floor(FloorName::TwoRmws);
const HANDOVER: Target = Target::Floor(FloorName::Handover);

/// The measurements without contention for each run with contention.
const ROUNDS: usize = 3;

/// Runs `semabench`: measures and prints; with a path, writes a report as well.
pub fn run(args: &SemabenchArgs, report: Option<&Path>, output: Output) -> Result<(), Failure> {
    let mut plan =
        Plan::new("semabench", &SemaphoreName::usual(), args.semaphores.as_ref(), &args.threads, &args.effort, 1)?;
    plan.workload.permits = args.permits;
    let report = report.map(ReportFile::create).transpose()?;
    let rounds = ROUNDS * plan.runs;
    let alone: Vec<Target> = [TWO_RMWS].into_iter().chain(plan.targets.iter().copied()).collect();
    plan.targets.insert(0, HANDOVER);
    let progress = output.progress(plan.bench, rounds * alone.len() + plan.total());
    let alone = uncontended::measure(plan.on, &alone, &[TWO_RMWS], rounds, output, &progress)?;
    let records = plan.measure(output, &progress)?;
    progress.finish_and_clear();

    let summaries = Summaries::new(&plan, &records);
    let overview = overview(&alone, &summaries);
    output.text(format_args!("{}\n\n{overview}\n", plan.headline()))?;
    if let Some(logged) = plan.logged_runs(summaries.kind(), &records) {
        output.text(format_args!("{logged}\n"))?;
    }
    for remark in remarks(&plan).into_iter().chain(summaries.remarks()) {
        output.text(remark)?;
    }
    match report {
        None => Ok(()),
        Some(file) => Report { contended: &summaries, overview: Some(&overview), uncontended: &[], semtable: &[] }
            .write(file, output),
    }
}

/// Returns a table of all results. The floors come first.
fn overview(alone: &[uncontended::UncontendedRecord], summaries: &Summaries) -> Table {
    let most = summaries.threads.iter().copied().max().unwrap_or(1);
    let baseline = summaries.baseline();
    let baseline_mean = baseline.map_or(f64::NAN, |baseline| mean(summaries, baseline));
    let words = ["semaphore", "FIFO", "alone", "x floor"].map(str::to_owned);
    let throughputs = summaries.threads.iter().map(|t| format!("T={t}"));
    let over = format!("/ {}", baseline.map_or(units::NOTHING, Target::name));
    let order = ["min/max", "max bypass waiting", "overtaken"].map(|column| format!("{column} T={most}"));
    let header = words.into_iter().chain(throughputs).chain(["geomean".to_owned(), over]).chain(order);
    let mut table = Table::new(2, header);
    let contended = |target: Target| summaries.targets.contains(&target);
    for target in [TWO_RMWS].into_iter().chain(summaries.targets.iter().copied()) {
        let solo = alone.iter().find(|record| record.target == target);
        let (ns, ratio) = solo.map_or((f64::NAN, f64::NAN), |record| (record.ns, record.ratio.unwrap_or(f64::NAN)));
        let summary = |t: usize| contended(target).then(|| summaries.get(target, t));
        let of = |t: usize, of: fn(&super::summary::Summary) -> f64| summary(t).map_or(f64::NAN, of);
        let words = [target.name(), if target.is_fifo() { "yes" } else { "no" }].map(str::to_owned);
        let throughputs = summaries.threads.iter().map(|&t| units::rate(of(t, |s| s.throughput)));
        let mean = if contended(target) { mean(summaries, target) } else { f64::NAN };
        let row = words
            .into_iter()
            .chain([units::time(ns), units::ratio(ratio)])
            .chain(throughputs)
            .chain([units::rate(mean), units::ratio(mean / baseline_mean)])
            .chain([
                units::ratio(of(most, |s| s.min_max)),
                units::count(of(most, |s| s.max_bypass_waiting)),
                units::ratio(of(most, |s| s.overtaken)),
            ]);
        table.row(row);
    }
    table
}

/// Returns the geometric mean of the throughputs with more than one contender, or NaN if there are none.
fn mean(summaries: &Summaries, target: Target) -> f64 {
    let several = summaries.threads.iter().filter(|&&threads| threads > 1);
    geometric_mean(several.map(|&threads| summaries.get(target, threads).throughput))
}

/// Returns the meanings of the rows and columns.
fn remarks(plan: &Plan) -> Vec<String> {
    let permits = plan.workload.permits;
    let mut remarks =
        vec![
        format!("alone: the time of acquire and release, for a single contender. x floor: that time over the time of \
                 {}.", TWO_RMWS.name()),
        format!("{}: {}.", TWO_RMWS.name(), TWO_RMWS.about()),
        format!(
            "{}: {}. A semaphore that serves first come, first served cannot be faster with more contenders than the \
             {} that can run.",
            HANDOVER.name(),
            HANDOVER.about(),
            can_run(plan.on)
        ),
        "geomean: the geometric mean of the throughputs with T > 1. FIFO: waiters are served in order; a newcomer may \
         overtake them."
            .to_owned(),
    ];
    remarks.push(if permits == 1 {
        "max bypass waiting: the most acquisitions of others during one wait: all waits of two milliseconds and more, and a sample \
         of the others. With first come, first served there are at most T-1, and more only while a contender has no processor \
         before its place in the queue is fixed. overtaken: the part of the acquisitions of others during waits that is beyond \
         T-1 in a wait."
            .to_owned()
    } else {
        format!(
            "With {permits} permits several contenders are inside at once: each advances a generator of its own, and \
             the order of entries is not recorded."
        )
    });
    remarks
}

/// Returns the number of contenders that can run at a time.
fn can_run(on: Contenders) -> usize {
    match on {
        Contenders::Threads | Contenders::PinnedThreads => thread::available_parallelism().map_or(1, |n| n.get()),
        #[cfg(unix)]
        Contenders::Goroutines { workers } => workers,
    }
}
