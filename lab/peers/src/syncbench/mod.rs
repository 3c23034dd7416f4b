//! The command `syncbench`: Go's benchmarks of `sync`, on this library and on the best peers, which take turns.
//!
//! The benchmarks are `Bench`es (`benches.rs`), in a table with a line for each. The members of a family are
//! its `Contestant`s. Each family has a trait, in the file of the family's name, so each benchmark is written only once:
//!
//! | family | an operation of | ours | peers |
//! |---|---|---|---|
//! | [`rw_mutex`] | [`RawRwLock`](sudog_sync::RawRwLock) | all of [`RwLockName`](crate::targets::rw_locks::RwLockName) that are | the others |
//! | [`wait_group`] | [`Group`](wait_group::Group) | `WaitGroup` | crossbeam's, except in benchmarks of waits |
//! | [`once`] | [`RunOnce`](once::RunOnce) | `Once` | `std`'s, `parking_lot`'s |
//! | [`pool`] | [`ItemPool`](pool::ItemPool) | `Pool` | a `Vec` in a mutex, `opool` |
//! | [`map`] | [`ConcurrentMap`](map::ConcurrentMap) | `Map` | `papaya`, `dashmap`, `scc`, a `HashMap` in a `RwLock` |
//! | [`cond`] | | `Cond` | |
//!
//! Source: Go's `sync/*_test.go`, in the development tree of 1.28, written anew. The names are Go's.

mod benches;
pub mod cond;
mod contestant;
pub mod map;
pub mod once;
pub mod pool;
mod round;
pub mod rw_mutex;
mod summary;
pub mod wait_group;

pub use benches::BenchName;

use crate::options::{List, MAX_RUNS, MAX_THREADS, list, number, numbers, seconds};
use clap::Args;
use indicatif::ProgressBar;
use std::time::Duration;

use self::summary::{Cell, means, tables};

use crate::measure::usage::{Counts, disturbance, others};
use crate::output::Output;
use crate::output::failure::Failure;

#[derive(Args, Clone, Debug)]
#[command(allow_negative_numbers = true)]
pub struct SyncbenchArgs {
    /// Benchmarks, by name [default: all]
    #[arg(long, value_name = "A,B", value_parser = list::<BenchName>)]
    pub benches: Option<List<BenchName>>,

    /// Numbers of threads that divide the operations among themselves
    #[arg(long, value_name = "N,N", default_value = "1,2", value_parser = numbers::<1, MAX_THREADS>)]
    pub threads: List<usize>,

    /// Least length of a run
    #[arg(long, value_name = "S", default_value = "0.1", value_parser = seconds)]
    pub min_time: Duration,

    /// Runs of each contestant, the contestants taking turns
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = number::<1, MAX_RUNS>)]
    pub runs: usize,
}

const NAME: &str = "syncbench";

/// Measures a benchmark with a number of threads. The contestants take turns, so that changes on the machine in the
/// meantime affect all contestants alike.
fn measure(bench: BenchName, threads: usize, args: &SyncbenchArgs, progress: &ProgressBar) -> Result<Cell, Failure> {
    let contestants = &bench.contestants;
    let mut times = vec![Vec::with_capacity(args.runs); contestants.len()];
    // Begin each run with the number of operations that took long enough the last time.
    let mut enough = vec![1; contestants.len()];
    let counts = Counts::now();
    for _ in 0..args.runs {
        for ((contestant, times), enough) in contestants.iter().zip(&mut times).zip(&mut enough) {
            let ns = round::measure(threads, enough, args.min_time, |round| contestant.time(round))
                .map_err(|error| Failure::Run(format!("cannot start {threads} threads: {error}")))?;
            times.push(ns);
            progress.inc(1);
        }
    }
    let other_cpus = counts.usage_until_now().other_cpus;
    Ok(Cell { bench, threads, times, other_cpus })
}

/// Runs `syncbench`: measures and prints.
pub fn run(args: &SyncbenchArgs, output: Output) -> Result<(), Failure> {
    let benches = args.benches.as_ref().map_or_else(|| BenchName::all().collect(), |list| list.0.clone());
    let cells: Vec<_> =
        benches.iter().flat_map(|&bench| bench.threads(&args.threads.0).map(move |t| (bench, t))).collect();
    let steps = args.runs * cells.iter().map(|(bench, _)| bench.contestants.len()).sum::<usize>();
    let progress = output.progress(NAME, steps);
    let mut records = Vec::new();
    for (bench, threads) in cells {
        let cell = measure(bench, threads, args, &progress)?;
        let new = cell.records();
        new.iter().try_for_each(|record| output.record(record))?;
        records.extend(new);
    }
    progress.finish_and_clear();
    output.text(format_args!(
        "syncbench: nanoseconds an operation, of all threads together; medians of {} runs of at least {:?}\n",
        args.runs, args.min_time
    ))?;
    tables(&records).try_for_each(|(family, table)| output.text(format_args!("{}\n{table}\n", family.headline())))?;
    output.text(
        "x: ours over the fastest peer; below 1, ours is faster. /floor: over what no implementation can beat.",
    )?;
    for mean in means(&records) {
        output.record(&mean)?;
        output.text(mean)?;
    }
    disturbance(others(records.iter().map(|r| r.other_cpus))).map_or(Ok(()), |warning| output.text(warning))
}
