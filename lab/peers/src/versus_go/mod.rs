//! The command `versus-go`: Go's own benchmarks, on Go and on this library, alternately.
//!
//! Each measurement is a process: Go's program, built from `lab/peers/go`, or this program. The two take turns within a run,
//! so that changes on the machine in the meantime affect both alike.

pub mod benches;
pub mod bodies;
pub mod child;
pub mod go;
pub mod reading;
pub mod records;

use crate::options::{List, MAX_RUNS, list as items, number, numbers, seconds};
use clap::Args;
use std::env::consts::{ARCH, OS};
use std::time::Duration;

use serde::Serialize;

use self::benches::Name;
use self::child::{Limits, run_ours};
use self::go::{Go, Program};
use self::records::{QuantityRecord, means, records, say_bistable, table};

use crate::measure::usage::Counts;
use crate::output::failure::Failure;
use crate::output::table::Table;
use crate::output::units;
use crate::output::{Output, RUSTC};

const MILLION: usize = 1_000_000;
const MAX_COUNT: usize = 100_000_000;
/// The largest number of workers that the runtime can have.
const MAX_WORKERS: usize = 256;

/// The extent of the measurement.
#[derive(Args, Clone, Debug)]
pub struct Extent {
    /// Numbers of workers: GOMAXPROCS for Go
    #[arg(long, value_name = "N,N", default_value = "1,2", value_parser = numbers::<1, MAX_WORKERS>)]
    pub workers: List<usize>,

    /// Least length of a run
    #[arg(long, value_name = "S", default_value = "0.2", value_parser = seconds)]
    pub min_time: Duration,

    /// Goroutines that Million makes, and most contexts that WithTimeout400000 makes
    #[arg(long, value_name = "N", default_value_t = MILLION, value_parser = number::<1, MAX_COUNT>)]
    pub count: usize,
}

#[derive(Args, Clone, Debug)]
#[command(allow_negative_numbers = true)]
pub struct VersusGoArgs {
    /// Show the list of benchmarks, and measure nothing
    #[arg(long)]
    pub list: bool,

    /// Benchmarks, by name [default: all]
    #[arg(long, value_name = "A,B", value_parser = items::<Name>)]
    pub bench: Option<List<Name>>,

    /// Runs of each benchmark with each number of workers, Go and sudog taking turns
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = number::<1, MAX_RUNS>)]
    pub runs: usize,

    #[command(flatten)]
    pub extent: Extent,
}

#[derive(Args, Clone, Debug)]
pub struct ChildArgs {
    /// The benchmark
    pub bench: Name,

    /// Number of workers that this process must have
    #[arg(long, value_name = "N", value_parser = number::<1, MAX_WORKERS>)]
    pub workers: usize,

    /// Least length of the measurement
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub min_time: Duration,

    /// Goroutines that Million makes, and most contexts that WithTimeout400000 makes
    #[arg(long, value_name = "N", default_value_t = MILLION, value_parser = number::<1, MAX_COUNT>)]
    pub count: usize,

    /// Record the steps of all goroutines, as a flight recorder
    #[arg(long)]
    pub record: bool,
}

/// The record of the setup: the versions, and the options of the measurement.
#[derive(Serialize)]
struct Setup<'a> {
    bench: &'static str,
    go: &'a str,
    os: &'static str,
    arch: &'static str,
    rustc: &'static str,
    runs: usize,
    min_time: f64,
    count: usize,
    /// The benchmarks that are skipped, as Go's side could not be built for them.
    skipped: &'a [Name],
}

/// Benchmarks with the same Go side: Go's side runs only once for all of them.
type Team = Vec<Name>;

fn teams(benches: impl Iterator<Item = Name>) -> Vec<Team> {
    let mut teams: Vec<Team> = Vec::new();
    for bench in benches {
        match teams.iter_mut().find(|team| bench.go.is_some() && team[0].go == bench.go) {
            Some(team) => team.push(bench),
            None => teams.push(vec![bench]),
        }
    }
    teams
}

/// Returns a line on the benchmarks that are skipped because Go's side needs `golang.org/x/sync`, which is missing.
/// Returns `None` if none is skipped.
fn skipped(skipped: &[Name]) -> Option<String> {
    let names: Vec<_> = skipped.iter().map(|bench| bench.name).collect();
    (!names.is_empty()).then(|| format!("skipped: golang.org/x/sync not available: {}", names.join(", ")))
}

/// Measures a team with a number of workers, Go and this library taking turns.
fn measure(
    team: &[Name],
    program: &Program,
    workers: usize,
    runs: usize,
    limits: &Limits,
) -> Result<Vec<QuantityRecord>, Failure> {
    let mut go = Vec::with_capacity(runs);
    let mut ours = vec![Vec::with_capacity(runs); team.len()];
    for _ in 0..runs {
        if let Some(name) = team[0].go {
            go.push(program.run(name, workers, limits)?);
        }
        for (&bench, ours) in team.iter().zip(&mut ours) {
            ours.push(run_ours(bench, workers, limits)?);
        }
    }
    Ok(team.iter().zip(&ours).flat_map(|(&bench, ours)| records("versus-go", bench, workers, &go, ours)).collect())
}

/// Prints the list of benchmarks.
fn list(output: Output) -> Result<(), Failure> {
    let mut table = Table::new(5, ["bench", "group", "workers", "Go's side", "an operation"]);
    for bench in Name::all() {
        let go = bench.go.unwrap_or(units::NOTHING);
        table.row([bench.name, bench.group.name(), &bench.workers(), go, bench.about]);
        output.record(&*bench)?;
    }
    output.text(table)
}

/// Runs `versus-go`: measures and prints.
pub fn run(args: &VersusGoArgs, output: Output) -> Result<(), Failure> {
    if args.list {
        return list(output);
    }
    let chosen = args.bench.as_ref().map_or_else(|| Name::all().collect(), |list| list.0.clone());
    let is_idle = |bench: &&Name| !args.extent.workers.0.iter().any(|&workers| bench.runs_at(workers));
    // Some benchmarks do not run with every number of workers; but a benchmark that the user names must run.
    if let (Some(idle), Some(_)) = (chosen.iter().find(is_idle), &args.bench) {
        return Err(Failure::Usage(format!("{} needs workers: {}", idle.name, idle.workers())));
    }
    let go = Go::find()?;
    let program = go.build()?;
    let (skip, chosen): (Vec<_>, Vec<_>) = chosen.into_iter().partition(|bench| bench.x_sync && !program.has_x_sync);
    let limits = Limits { min_time: args.extent.min_time, count: args.extent.count, records: false };
    output.record(&Setup {
        bench: "versus-go-setup",
        go: &go.version,
        os: OS,
        arch: ARCH,
        rustc: RUSTC,
        runs: args.runs,
        min_time: args.extent.min_time.as_secs_f64(),
        count: args.extent.count,
        skipped: &skip,
    })?;
    let teams = teams(chosen.into_iter());
    let progress = output.progress("versus-go", teams.len() * args.extent.workers.0.len());
    let counts = Counts::now();
    let mut all = Vec::new();
    for team in &teams {
        for &workers in &args.extent.workers.0 {
            let able: Team = team.iter().copied().filter(|bench| bench.runs_at(workers)).collect();
            let records = match able.is_empty() {
                true => Vec::new(),
                false => measure(&able, &program, workers, args.runs, &limits)?,
            };
            records.iter().try_for_each(|record| output.record(record))?;
            all.extend(records);
            progress.inc(1);
        }
    }
    progress.finish_and_clear();
    all.sort_by_key(|record| Name::all().position(|name| name == record.name)); // put the teams' benchmarks back into the order of the list
    output.text(format_args!(
        "versus-go: medians of {} runs of at least {:?}; {} on {OS}/{ARCH}; a million are {}\n\n{}\n",
        args.runs,
        args.extent.min_time,
        go.version,
        args.extent.count,
        table(&all, true)
    ))?;
    output.text("ratio: sudog to Go; below 1, sudog is faster or needs less.")?;
    say_bistable(&all, output)?;
    skipped(&skip).map_or(Ok(()), |line| output.text(line))?;
    for mean in means(&all, &args.extent.workers.0) {
        output.record(&mean)?;
        output.text(mean)?;
    }
    counts.warning().map_or(Ok(()), |warning| output.text(warning))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_skipped_is_named() {
        assert_eq!(skipped(&[]), None);
        let names = ["ErrGroupGo", "SingleFlightDo"].map(|name| name.parse().unwrap());
        let line = "skipped: golang.org/x/sync not available: ErrGroupGo, SingleFlightDo";
        assert_eq!(skipped(&names).as_deref(), Some(line));
    }

    #[test]
    fn one_go_side_one_team() {
        let benches = ["Imbalance", "Handoff", "ImbalanceAsync", "Mutex"].map(|name| name.parse::<Name>().unwrap());
        let [imbalance, handoff, imbalance_async, mutex] = benches;
        assert_eq!(teams(benches.into_iter()), [vec![imbalance, imbalance_async], vec![handoff], vec![mutex]]);
    }
}
