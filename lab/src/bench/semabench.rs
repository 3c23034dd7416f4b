//! The benchmark of the paper on waiting arrays: contenders for a semaphore of one permit. A contender that has the
//! permit makes a step of a generator that all contenders share; a contender without the permit makes a step of a
//! generator of its own. Two floors are measured beside the semaphores.

use crate::options::{EffortArgs, List, MAX_THREADS, list, numbers};
use clap::Args;

use super::plan::Plan;
use super::summary::Summaries;
use super::uncontended;

use crate::measure::metrics::geometric_mean;
use crate::output::Output;
use crate::output::failure::Failure;
use crate::output::table::Table;
use crate::output::units;
use crate::targets::semaphores::SemaphoreName;
use crate::targets::target::{FloorName, Target};

#[derive(Args, Clone, Debug)]
#[command(allow_negative_numbers = true)]
pub struct SemabenchArgs {
    /// Semaphores, by name [default: all but those for study: 'twa' with other thresholds and hashes]
    #[arg(long, value_name = "A,B", value_parser = list::<SemaphoreName>)]
    pub semaphores: Option<List<SemaphoreName>>,

    /// Numbers of contenders, threads or goroutines
    #[arg(long, value_name = "N,N", default_value = "1,2,4,8,16,32,64", value_parser = numbers::<1, MAX_THREADS>)]
    pub threads: List<usize>,

    #[command(flatten)]
    pub effort: EffortArgs,
}

const TWO_RMWS: Target = Target::Floor(FloorName::TwoRmws);
const HANDOVER: Target = Target::Floor(FloorName::Handover);

/// The meanings of the columns of semabench.
const OVERVIEW: [(&str, &str); 7] = [
    ("x floor", "the time of acquire and release by one contender alone, over that of two-rmws"),
    (FloorName::TwoRmws.name(), FloorName::TwoRmws.about()),
    (
        FloorName::Handover.name(),
        "contenders pass a turn round: each contender sleeps until its turn comes. A semaphore that serves first \
         come, first served cannot be faster with more contenders than processors, except where a contender is awake \
         when its turn comes",
    ),
    ("geomean", "the geometric mean of the throughputs with more than one contender"),
    ("FIFO", "waiters are served in the order in which they came; a newcomer may overtake them"),
    (
        "max bypass waiting",
        "the most acquisitions of others during one wait: during all waits of two milliseconds and more, and a sample \
         of the others. With first come, first served there are at most T - 1, and more only while a contender has no \
         processor before its place in the queue is fixed",
    ),
    (
        "overtaken",
        "the part of the acquisitions of others during waits that is beyond T - 1 in a wait. Nearly 0 with first \
         come, first served; 1 - 1/n if contenders lock n times in a row while all others wait",
    ),
];

/// The measurements without contention for each run with contention.
const ROUNDS: usize = 3;

/// Runs `semabench`: measures and prints.
pub fn run(args: &SemabenchArgs, output: Output) -> Result<(), Failure> {
    let mut plan =
        Plan::new("semabench", &SemaphoreName::usual(), args.semaphores.as_ref(), &args.threads, &args.effort, 1)?;
    let rounds = ROUNDS * plan.runs;
    let alone: Vec<Target> = [TWO_RMWS].into_iter().chain(plan.targets.iter().copied()).collect();
    plan.targets.insert(0, HANDOVER);
    output.estimate(plan.bench, plan.time(plan.total()) + uncontended::ROUND * (rounds * alone.len()) as u32);
    let progress = output.progress(plan.bench, rounds * alone.len() + plan.total());
    let alone = uncontended::measure(plan.on, &alone, &[TWO_RMWS], rounds, output, &progress)?;
    let records = plan.measure(output, &progress)?;
    progress.finish_and_clear();

    let summaries = Summaries::new(&plan, &records);
    let overview = overview(&alone, &summaries);
    output.text(format_args!("{}\n\n{overview}\n", plan.headline()))?;
    plan.print_logged_runs(summaries.kind(), &records, output)?;
    let meanings = OVERVIEW.map(|(term, text)| format!("{term}: {text}."));
    for remark in meanings.into_iter().chain(summaries.remarks()) {
        output.text(remark)?;
    }
    Ok(())
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
