//! The command `goroutines`: the costs of goroutines, by the bodies of `versus-go` without Go.

use super::versus_go::Extent;
use crate::options::{List, MAX_RUNS, list, number};
use clap::Args;
use serde::Serialize;

use super::versus_go::benches::Name;
use super::versus_go::child::{Limits, run_ours};
use super::versus_go::reading::{Reading, Unit};
use super::versus_go::records::{self, label, values};

use crate::measure::metrics::{is_bistable, median, worst};
use crate::measure::usage::Counts;
use crate::output::Output;
use crate::output::failure::Failure;
use crate::output::table::Table;
use crate::output::units;

#[derive(Args, Clone, Debug)]
#[command(allow_negative_numbers = true)]
pub struct GoroutinesArgs {
    /// Benchmarks, by the names of 'versus-go --list' [default: all of this command]
    #[arg(long, value_name = "A,B", value_parser = list::<Name>)]
    pub bench: Option<List<Name>>,

    /// Runs of each benchmark
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = number::<1, MAX_RUNS>)]
    pub runs: usize,

    #[command(flatten)]
    pub extent: Extent,
}

/// The benchmarks of `versus-go` that are measured, each with a name for the table of this command.
const BENCHES: &[(&str, &str)] = &[
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
    ("MakeChanByte", "make chan byte"),
    ("MakeChanInt", "make chan int"),
    ("MakeChanPtr", "make chan ptr"),
    ("MakeChanStruct0", "make chan struct 0"),
    ("MakeChanStruct32", "make chan struct 32"),
    ("MakeChanStruct40", "make chan struct 40"),
    ("ChanNonblocking", "chan nonblocking"),
    ("SelectUncontended", "select uncontended"),
    ("SelectSyncContended", "select sync contended"),
    ("SelectAsyncContended", "select async contended"),
    ("SelectNonblock", "select nonblock"),
    ("ChanUncontended", "chan uncontended"),
    ("ChanContended", "chan contended"),
    ("ChanSync", "chan sync"),
    ("ChanSyncWork", "chan sync work"),
    ("ChanProdCons0", "chan prod cons 0"),
    ("ChanProdCons10", "chan prod cons 10"),
    ("ChanProdCons100", "chan prod cons 100"),
    ("ChanProdConsWork0", "chan prod cons work 0"),
    ("ChanProdConsWork10", "chan prod cons work 10"),
    ("ChanProdConsWork100", "chan prod cons work 100"),
    ("SelectProdCons", "select prod cons"),
    ("ReceiveDataFromClosedChan", "receive data from closed chan"),
    ("ChanCreation", "chan creation"),
    ("ChanSem", "chan sem"),
    ("ChanPopular", "chan popular"),
    ("ChanClosed", "chan closed"),
    ("Pool", "pool"),
    ("PoolSync", "pool sync"),
    ("Pipeline", "pipeline"),
    ("PipelineSync", "pipeline sync"),
    ("FanOutIn", "fan out in"),
    ("PubSub", "pub sub"),
    ("PubSubTogether", "pub sub, together"),
    ("Broadcast", "broadcast"),
    ("BroadcastTogether", "broadcast, together"),
    ("ActorRing", "actor ring"),
    ("ActorRingTogether", "actor ring, together"),
    ("OneServer", "one server"),
    ("OneServerTogether", "one server, together"),
    ("PrimeSieve", "prime sieve"),
    ("MillionChan", "million, on one channel"),
];

/// The result for a quantity of a benchmark.
#[derive(Clone, Serialize, Debug)]
struct QuantityRecord {
    bench: &'static str,
    name: Name,
    /// The name of the quantity. Empty for the time of an operation.
    quantity: String,
    unit: Unit,
    workers: usize,
    runs: usize,
    /// The number of goroutines in benchmarks of a million goroutines.
    count: usize,
    /// The median over the runs.
    value: f64,
    values: Vec<f64>,
}

fn records(bench: Name, workers: usize, count: usize, readings: &[Reading]) -> Vec<QuantityRecord> {
    let quantities = readings.first().map(Reading::quantities).into_iter().flatten();
    let record = |(quantity, unit, _): (&str, Unit, f64)| {
        let values = values(readings, quantity);
        QuantityRecord {
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

/// Runs `goroutines`: measures and prints.
pub fn run(args: &GoroutinesArgs, output: Output) -> Result<(), Failure> {
    let limits = Limits { min_time: args.extent.min_time, count: args.extent.count, records: false };
    let chosen = |name: &str| args.bench.as_ref().is_none_or(|list| list.0.iter().any(|bench| bench.name == name));
    let benches: Vec<_> = BENCHES.iter().filter(|(name, _)| chosen(name)).collect();
    let workers = &args.extent.workers.0;
    let progress = output.progress("goroutines", benches.len() * workers.len());
    let counts = Counts::now();
    let columns = workers.iter().flat_map(|&n| [records::workers(n), "worst run".into()]);
    let mut table = Table::new(1, [String::new()].into_iter().chain(columns));
    let mut bistable = Vec::new();
    for &(name, what) in benches {
        let bench: Name = name.parse().expect("there is such a benchmark");
        let mut of_bench: Vec<QuantityRecord> = Vec::new();
        for &workers in workers {
            if bench.runs_at(workers) {
                let readings: Result<Vec<_>, _> = (0..args.runs).map(|_| run_ours(bench, workers, &limits)).collect();
                let records = records(bench, workers, args.extent.count, &readings?);
                records.iter().try_for_each(|record| output.record(record))?;
                let unstable = records.iter().filter(|r| r.quantity.is_empty() && is_bistable(&r.values));
                bistable.extend(unstable.map(|r| format!("{what} ({})", records::workers(r.workers))));
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
            let cells = |workers: &usize| {
                let record = of_bench.iter().find(|r| r.workers == *workers && r.quantity == quantity);
                let show = |of: fn(&QuantityRecord) -> f64| {
                    record.map_or_else(|| units::NOTHING.to_owned(), |r| r.unit.show(of(r)))
                };
                [show(|r| r.value), show(|r| worst(&r.values))]
            };
            table.row([label(what, quantity)].into_iter().chain(workers.iter().flat_map(cells)));
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
    records::say_bistable(&bistable, output)?;
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
