//! Channels beside their Rust peers: crossbeam's matrix of benchmarks.
//!
//! | on | ours | peers |
//! |---|---|---|
//! | threads | `Chan`, counted ends, ends of `csp` | crossbeam-channel, flume, kanal, std's `sync_channel` |
//! | tasks of tokio | all three, `_async` | tokio's `mpsc`, async-channel |
//! | goroutines | all three | none: the peers block a worker's thread |
//!
//! The library has no unbounded channels, so crossbeam's rows for unbounded channels are left out. A peer is left out
//! of a benchmark that needs an operation that the peer lacks: several receivers (std, tokio), select (kanal, std),
//! capacity 0 (tokio, async-channel), another capacity and select (csp).

mod blocking;
mod tasks;

use std::time::Duration;

use clap::Args;
use serde::Serialize;

use crate::measure::metrics::{geometric_mean, median, min_max, worst};
use crate::measure::usage::Counts;
use crate::options::{List, MAX_RUNS, MAX_THREADS, MAX_WORKERS, list, number, numbers};
use crate::output::Output;
use crate::output::failure::Failure;
use crate::output::table::Table;
use crate::output::units;
use crate::run::contenders::Contenders;
use crate::targets::registry::names;

names! {
    /// A channel.
    enum Peer;
    unknown "channel";
    Chan = "chan", "Go's channel";
    Ends = "ends", "the same by counted ends";
    Csp = "csp", "csp's channel";
    Crossbeam = "crossbeam", "crossbeam-channel";
    Flume = "flume", "flume";
    Kanal = "kanal", "kanal";
    Std = "std", "std's sync_channel";
    Tokio = "tokio", "tokio's mpsc";
    AsyncChannel = "async-channel", "async-channel";
}

names! {
    /// The kind of contenders that use the channels.
    enum On;
    unknown "kind";
    Threads = "threads", "threads";
    Tasks = "tasks", "tasks of tokio";
    Goroutines = "goroutines", "goroutines";
}

names! {
    /// A benchmark: the numbers of senders and of receivers.
    enum Pattern;
    unknown "benchmark";
    Seq = "seq", "one contender sends all, then receives all";
    Spsc = "spsc", "one sender, one receiver";
    Mpsc = "mpsc", "several senders, one receiver";
    Spmc = "spmc", "one sender, several receivers";
    Mpmc = "mpmc", "several senders, several receivers";
    SelectRx = "select_rx", "a receiver selects among the channels of several senders";
    SelectBoth = "select_both", "senders and receivers select among several channels";
}

impl Peer {
    const fn is_ours(self) -> bool {
        matches!(self, Self::Chan | Self::Ends | Self::Csp)
    }
}

#[derive(Args, Clone, Debug)]
#[command(allow_negative_numbers = true)]
pub struct ChanbenchArgs {
    /// Senders and receivers: threads, tasks or goroutines
    #[arg(long, value_name = "WHAT", default_value_t = On::Threads)]
    pub on: On,

    /// Benchmarks: seq, spsc, mpsc, spmc, mpmc, select_rx, select_both [default: all]
    #[arg(long, value_name = "A,B", value_parser = list::<Pattern>)]
    pub benches: Option<List<Pattern>>,

    /// Senders or receivers, where there are several
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = number::<1, MAX_THREADS>)]
    pub threads: usize,

    /// Values that are sent in a run, divided among the senders
    #[arg(long, value_name = "N", default_value_t = 200_000, value_parser = number::<1, 1_000_000_000>)]
    pub messages: usize,

    /// Runs of each channel, the channels taking turns
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = number::<1, MAX_RUNS>)]
    pub runs: usize,

    /// Numbers of workers that run the goroutines, or the tasks
    #[arg(long, value_name = "N,N", default_value = "1,2", value_parser = numbers::<1, MAX_WORKERS>)]
    pub workers: List<usize>,
}

/// A benchmark with a capacity.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    pattern: Pattern,
    capacity: usize,
    senders: usize,
    receivers: usize,
    /// The number of values that each sender sends.
    messages: usize,
}

/// The result of a run: the duration, and the number of values that each receiver has received.
pub type Run = (Duration, Vec<u64>);

#[derive(Serialize)]
struct ChanRecord {
    bench: &'static str,
    name: Pattern,
    capacity: usize,
    peer: Peer,
    on: On,
    workers: Option<usize>,
    senders: usize,
    receivers: usize,
    messages: usize,
    runs: usize,
    /// The time for each value: the median over the runs.
    ns: f64,
    ns_runs: Vec<f64>,
    /// The smallest share of a receiver over the largest: the median over the runs.
    min_max: f64,
    /// `ns` over the `ns` of the fastest peer.
    ratio: Option<f64>,
}

impl Case {
    fn new(pattern: Pattern, capacity: usize, args: &ChanbenchArgs) -> Self {
        use Pattern::{Mpmc, Mpsc, SelectBoth, SelectRx, Seq, Spmc, Spsc};
        let (senders, receivers) = match pattern {
            Seq | Spsc => (1, 1),
            Mpsc | SelectRx => (args.threads, 1),
            Spmc => (1, args.threads),
            Mpmc | SelectBoth => (args.threads, args.threads),
        };
        Self { pattern, capacity, senders, receivers, messages: args.messages.div_ceil(senders) }
    }

    const fn total(&self) -> usize {
        self.messages * self.senders
    }
}

/// Returns the cases, with crossbeam's capacities: 0, 1, and the number of all values. `seq` runs only with the last,
/// as all values must fit.
fn cases(args: &ChanbenchArgs) -> impl Iterator<Item = Case> {
    let patterns = args.benches.as_ref().map_or_else(|| Pattern::ALL.to_vec(), |list| list.0.clone());
    patterns.into_iter().flat_map(move |pattern| {
        let all = Case::new(pattern, 0, args).total();
        let capacities = if pattern == Pattern::Seq { vec![all] } else { vec![0, 1, all] };
        capacities.into_iter().map(move |capacity| Case::new(pattern, capacity, args))
    })
}

/// Makes a run. Returns `None` if the peer cannot do the benchmark.
fn once(on: On, workers: usize, peer: Peer, case: Case) -> Result<Option<Run>, Failure> {
    match on {
        On::Tasks => tasks::run(peer, case, workers),
        On::Threads => blocking::run(peer, case, Contenders::Threads),
        On::Goroutines if !peer.is_ours() => Ok(None),
        On::Goroutines => blocking::run(peer, case, Contenders::goroutines(Some(workers)).map_err(Failure::Usage)?),
    }
}

/// Runs `chanbench`: measures and prints.
pub fn run(args: &ChanbenchArgs, output: Output) -> Result<(), Failure> {
    let workers = if args.on == On::Threads { vec![0] } else { args.workers.0.clone() };
    let progress = output.progress("chanbench", cases(args).count() * workers.len());
    let counts = Counts::now();
    for workers in workers {
        let header = ["benchmark", "capacity", "channel", "a value", "worst run", "throughput", "min/max", "ratio"];
        let mut table = Table::new(1, header);
        let mut ratios: Vec<(Peer, f64)> = Vec::new();
        for case in cases(args) {
            let mut results: Vec<(Peer, Vec<f64>, Vec<f64>)> = Peer::ALL.iter().map(|&p| (p, vec![], vec![])).collect();
            for _ in 0..args.runs {
                for (peer, times, fairness) in &mut results {
                    if let Some((time, received)) = once(args.on, workers, *peer, case)? {
                        times.push(time.as_nanos() as f64 / case.total() as f64);
                        fairness.push(min_max(&received));
                    }
                }
            }
            results.retain(|(_, times, _)| !times.is_empty());
            let of = |times: &[f64]| median(times.iter().copied());
            let fastest = results.iter().filter(|r| !r.0.is_ours()).map(|r| of(&r.1)).reduce(f64::min);
            for (peer, times, fairness) in results {
                let ns = of(&times);
                let ratio = fastest.map(|fastest| ns / fastest);
                ratios.extend(ratio.filter(|_| peer.is_ours()).map(|ratio| (peer, ratio)));
                let min_max = median(fairness);
                table.row([
                    case.pattern.to_string(),
                    case.capacity.to_string(),
                    peer.to_string(),
                    units::time(ns),
                    units::time(worst(&times)),
                    units::rate(1e9 / ns),
                    units::ratio(min_max),
                    units::ratio(ratio.unwrap_or(f64::NAN)),
                ]);
                output.record(&ChanRecord {
                    bench: "chanbench",
                    name: case.pattern,
                    capacity: case.capacity,
                    peer,
                    on: args.on,
                    workers: (workers > 0).then_some(workers),
                    senders: case.senders,
                    receivers: case.receivers,
                    messages: case.total(),
                    runs: args.runs,
                    ns,
                    ns_runs: times,
                    min_max,
                    ratio,
                })?;
            }
            progress.inc(1);
        }
        let at = if workers == 0 { String::new() } else { format!(", {workers} workers") };
        output.text(format_args!("chanbench on {}{at}: medians of {} runs\n\n{table}\n", args.on, args.runs))?;
        for peer in Peer::ALL.iter().filter(|peer| ratios.iter().any(|(of, _)| of == *peer)) {
            let own: Vec<_> = ratios.iter().filter(|(of, _)| of == peer).map(|r| r.1).collect();
            let n = own.len();
            output.text(format_args!("{peer}: geometric mean of {n} ratios {}", units::ratio(geometric_mean(own))))?;
        }
    }
    progress.finish_and_clear();
    output.text("ratio: to the fastest peer. min/max: the least over the largest share of one receiver.")?;
    counts.warning().map_or(Ok(()), |warning| output.text(warning))
}
