//! The command `goroutines`: the costs of goroutines, by the bodies of `versus-go` without Go.

use super::versus_go::Extent;
use crate::options::{List, MAX_RUNS, list, number};
use clap::Args;

use super::versus_go::benches::{Group, Name};
use super::versus_go::child::{Limits, run_ours};
use super::versus_go::records::{records, say_bistable, table};

use crate::measure::usage::Counts;
use crate::output::Output;
use crate::output::failure::Failure;

#[derive(Args, Clone, Debug)]
#[command(allow_negative_numbers = true)]
pub struct GoroutinesArgs {
    /// Benchmarks, by the names of 'versus-go --list' [default: those of channels, and the costs of starting and switching]
    #[arg(long, value_name = "A,B", value_parser = list::<Name>)]
    pub bench: Option<List<Name>>,

    /// Runs of each benchmark
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = number::<1, MAX_RUNS>)]
    pub runs: usize,

    #[command(flatten)]
    pub extent: Extent,
}

/// The benchmarks that are measured by default, besides those of channels.
const USUAL: [&str; 10] = [
    "CreateGoroutines",
    "CreateGoroutinesParallel",
    "Switch",
    "PingPong",
    "XPing",
    "Sleep100us",
    "DaisyChain",
    "ForkJoin",
    "Million",
    "MillionAsync",
];

/// Runs `goroutines`: measures and prints.
pub fn run(args: &GoroutinesArgs, output: Output) -> Result<(), Failure> {
    let Extent { workers, min_time, count } = &args.extent;
    let limits = Limits { min_time: *min_time, count: *count, records: false };
    let usual = || Name::all().filter(|bench| bench.group == Group::Chan || USUAL.contains(&bench.name)).collect();
    let benches: Vec<Name> = args.bench.as_ref().map_or_else(usual, |list| list.0.clone());
    let progress = output.progress("goroutines", benches.len() * workers.0.len());
    let counts = Counts::now();
    let mut all = Vec::new();
    for bench in benches {
        for &workers in workers.0.iter().filter(|&&workers| bench.runs_at(workers)) {
            let readings: Result<Vec<_>, _> = (0..args.runs).map(|_| run_ours(bench, workers, &limits)).collect();
            let records = records("goroutines", bench, workers, &[], &readings?);
            records.iter().try_for_each(|record| output.record(record))?;
            all.extend(records);
            progress.inc(1);
        }
    }
    progress.finish_and_clear();
    let table = table(&all, false);
    output.text(format_args!(
        "goroutines: medians of {} runs of at least {min_time:?}; a million are {count}\n\n{table}\n",
        args.runs
    ))?;
    output.text(
        "Million: all wait at one gate, which is then opened; a second time, with the memory warm; peak: memory.",
    )?;
    say_bistable(&all, output)?;
    counts.warning().map_or(Ok(()), |warning| output.text(warning))
}
