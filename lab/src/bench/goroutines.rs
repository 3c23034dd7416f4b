//! What goroutines cost: the bodies of `versus-go` without Go.

use super::versus_go::Extent;
use crate::options::{MAX_RUNS, number};
use clap::Args;
use serde::Serialize;

use super::versus_go::benches::Name;
use super::versus_go::child::{Limits, run_ours};
use super::versus_go::reading::{Reading, Unit};
use super::versus_go::records::{self, label, values};

use crate::measure::metrics::median;
use crate::measure::usage::Counts;
use crate::output::Output;
use crate::output::failure::Failure;
use crate::output::table::Table;
use crate::output::units;

/// Options of `goroutines`.
#[derive(Args, Clone, Debug)]
#[command(allow_negative_numbers = true)]
pub struct GoroutinesArgs {
    /// Runs of each
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = number::<1, MAX_RUNS>)]
    pub runs: usize,

    /// What is measured
    #[command(flatten)]
    pub extent: Extent,
}

/// What is measured, and what it is called here.
const BENCHES: [(&str, &str); 10] = [
    ("CreateGoroutines", "spawn"),
    ("CreateGoroutinesParallel", "spawn on all workers"),
    ("Switch", "switch"),
    ("PingPong", "ping-pong"),
    ("XPing", "ping-pong across workers"),
    ("Sleep100us", "sleep of 100 us"),
    ("DaisyChain", "daisy chain of 10,000"),
    ("ForkJoin", "fork-join of 10,000"),
    ("Million", "million"),
    ("MillionAsync", "million, stackless"),
];

/// What came of one quantity of one benchmark.
#[derive(Clone, Serialize, Debug)]
struct Record {
    bench: &'static str,
    name: Name,
    /// Nothing for the time of an operation.
    quantity: String,
    unit: Unit,
    workers: usize,
    runs: usize,
    /// How many goroutines a million are.
    count: usize,
    /// The median over the runs.
    value: f64,
    values: Vec<f64>,
}

fn records(bench: Name, workers: usize, count: usize, readings: &[Reading]) -> Vec<Record> {
    let quantities = readings.first().map(Reading::quantities).into_iter().flatten();
    let record = |(quantity, unit, _): (&str, Unit, f64)| {
        let values = values(readings, quantity);
        Record {
            bench: "goroutines",
            name: bench,
            quantity: quantity.to_owned(),
            unit,
            workers,
            runs: readings.len(),
            count,
            value: median(values.iter().copied()),
            values,
        }
    };
    quantities.map(record).collect()
}

/// Measures and prints.
pub fn run(args: &GoroutinesArgs, output: Output) -> Result<(), Failure> {
    let limits = Limits { min_time: args.extent.min_time, count: args.extent.count };
    let workers = &args.extent.workers.0;
    let progress = output.progress("goroutines", BENCHES.len() * workers.len());
    let counts = Counts::now();
    let columns = workers.iter().map(|&n| records::workers(n));
    let mut table = Table::new(1, [String::new()].into_iter().chain(columns));
    for (name, what) in BENCHES {
        let bench: Name = name.parse().expect("there is such a benchmark");
        let mut of_bench: Vec<Record> = Vec::new();
        for &workers in workers {
            if bench.runs_at(workers) {
                let readings: Result<Vec<_>, _> = (0..args.runs).map(|_| run_ours(bench, workers, &limits)).collect();
                let records = records(bench, workers, args.extent.count, &readings?);
                records.iter().try_for_each(|record| output.record(record))?;
                of_bench.extend(records);
            }
            progress.inc(1);
        }
        let mut quantities: Vec<&str> = Vec::new();
        for record in &of_bench {
            if !quantities.contains(&record.quantity.as_str()) {
                quantities.push(&record.quantity);
            }
        }
        for quantity in quantities {
            let cell = |workers: &usize| {
                let record = of_bench.iter().find(|r| r.workers == *workers && r.quantity == quantity);
                record.map_or_else(|| units::NOTHING.to_owned(), |r| r.unit.show(r.value))
            };
            table.row([label(what, quantity)].into_iter().chain(workers.iter().map(cell)));
        }
    }
    progress.finish_and_clear();
    output.text(format_args!(
        "goroutines: medians of {} runs of at least {:?}; a million are {}\n\n{table}\n",
        args.runs, args.extent.min_time, args.extent.count
    ))?;
    output.text(
        "million: all wait at one gate, which is then opened; a second time, with the memory warm; peak: memory.",
    )?;
    counts.warning().map_or(Ok(()), |warning| output.text(warning))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_known() {
        assert!(BENCHES.iter().all(|(name, _)| name.parse::<Name>().is_ok()));
    }
}
