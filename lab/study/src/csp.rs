//! The command `csp`: pairs of fibres that exchange values over channels, a pair on each worker. What does an active set
//! cost whose fibres are on several workers?

use clap::Args;
use serde::Serialize;
use sudog_csp::{make_channel, spawn_fibre_on};
use sudog_runtime::chan::Chan;
use sudog_runtime::goroutine::{Builder, JoinHandle, Placement};
use sudog_runtime::shim::now;

use crate::measure::metrics::median;
use crate::options::{List, MAX_RUNS, MAX_WORKERS, number, numbers};
use crate::output::Output;
use crate::output::failure::Failure;
use crate::output::table::Table;
use crate::output::units;
use crate::run::contenders::Contenders;
use crate::targets::registry::names;

/// Options of `csp`.
#[derive(Args, Clone, Debug)]
#[command(allow_negative_numbers = true)]
pub struct CspArgs {
    /// Numbers of workers, each of which runs a pair of fibres
    #[arg(long, value_name = "N,N", default_value = "1,2", value_parser = numbers::<1, MAX_WORKERS>)]
    workers: List<usize>,

    /// Values that each pair exchanges in a run
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = number::<1, 1_000_000_000>)]
    values: usize,

    /// Runs of each kind of pairs, the kinds taking turns
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = number::<1, MAX_RUNS>)]
    runs: usize,
}

names! {
    /// The sets to which the pairs belong, or another channel.
    enum Pairs;
    unknown "kind of pairs";
    OneSet = "one set", "All pairs in one active set.";
    SetEach = "a set each", "Each pair in an active set of its own.";
    NoSet = "no set", "Pairs outside of sets.";
    Chan = "chan", "Pairs on a channel of Go's kind.";
}

#[derive(Serialize)]
struct CspRecord {
    bench: &'static str,
    set: Pairs,
    workers: usize,
    values: usize,
    runs: usize,
    /// The time from a value of a pair to the next: the median over the runs.
    value_ns: f64,
}

/// Starts a pair on a worker, in the caller's set. The handle waits for the reader, which is the last to end.
fn pair(worker: usize, values: usize) -> JoinHandle<()> {
    spawn_fibre_on(Placement::Worker(worker), move || {
        let [mut output, mut input] = make_channel::<usize, 2>();
        drop(spawn_fibre_on(Placement::Here, move || {
            (0..values).for_each(|value| output.write(value).expect("the reader reads all values"));
        }));
        (0..values).for_each(|value| assert_eq!(input.read(), Ok(value)));
    })
}

fn pair_on_chan(worker: usize, values: usize) -> JoinHandle<()> {
    Builder::new().on(Placement::Worker(worker)).spawn(move || {
        let output = Chan::new(0);
        let input = output.clone();
        Builder::new().on(Placement::Here).go(move || (0..values).for_each(|value| output.send(value)));
        (0..values).for_each(|value| assert_eq!(input.recv(), Some(value)));
    })
}

fn join(pairs: impl Iterator<Item = JoinHandle<()>>) {
    let pairs: Vec<_> = pairs.collect();
    pairs.into_iter().for_each(|pair| pair.join().expect("a pair does not panic"));
}

/// Runs the pairs. Returns the time of a value in nanoseconds.
fn once(pairs: Pairs, workers: usize, values: usize) -> Result<f64, Failure> {
    let on = Contenders::goroutines(Some(workers)).map_err(Failure::Usage)?;
    let time = on.alone(move || {
        let begin = now();
        let all = move || 0..workers;
        match pairs {
            Pairs::OneSet => sudog_csp::run(move || join(all().map(|worker| pair(worker, values)))),
            Pairs::SetEach => join(all().map(|worker| {
                let own = move || sudog_csp::run(move || join(std::iter::once(pair(worker, values))));
                Builder::new().on(Placement::Worker(worker)).spawn(own)
            })),
            Pairs::NoSet => join(all().map(|worker| pair(worker, values))),
            Pairs::Chan => join(all().map(|worker| pair_on_chan(worker, values))),
        }
        now() - begin
    });
    Ok(time.as_nanos() as f64 / values as f64)
}

/// Runs `csp`: measures and prints.
pub fn run(args: &CspArgs, output: Output) -> Result<(), Failure> {
    let mut table = Table::new(1, ["workers"].into_iter().chain(Pairs::ALL.iter().map(|pairs| pairs.name())));
    for &workers in &args.workers.0 {
        let mut times = vec![Vec::new(); Pairs::ALL.len()];
        for _ in 0..args.runs {
            for (&pairs, times) in Pairs::ALL.iter().zip(&mut times) {
                times.push(once(pairs, workers, args.values)?);
            }
        }
        let mut row = vec![workers.to_string()];
        for (&pairs, times) in Pairs::ALL.iter().zip(times) {
            let value_ns = median(times);
            row.push(units::time(value_ns));
            output.record(&CspRecord {
                bench: "csp",
                set: pairs,
                workers,
                values: args.values,
                runs: args.runs,
                value_ns,
            })?;
        }
        table.row(row);
    }
    output.text(format_args!("csp: the time of a value in each pair, medians of {} runs\n\n{table}", args.runs))
}
