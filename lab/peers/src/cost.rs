//! The cost of observing a program: what the profile, the check of waits, dumps and the flight recorder take, beside the
//! goals. Each measurement is a process of its own; a tool that is on and the same that is off take turns.
//!
//! The check of waits is there in builds with debug assertions only. So `cargo` builds this program once more, with debug
//! assertions in the runtime and in the locks, and not elsewhere.

use std::env;
use std::fmt::Write as _;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use serde::Serialize;
use serde_json::Value;
use sudog_runtime::chan::Chan;
use sudog_runtime::goroutine::{self, Builder, GoroutineState, Placement, dump, gosched};
use sudog_sync::Mutex;

use crate::measure::metrics::{geometric_mean, median};
use crate::options::{List, MAX_RUNS, list, number, numbers, seconds};
use crate::output::Output;
use crate::output::failure::Failure;
use crate::output::table::Table;
use crate::versus_go::benches::Name;
use crate::versus_go::child::{Limits, last_words, run_ours};

/// A tool whose cost is measured.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tool {
    /// The mutex profile, under MutexBench with eight threads
    MutexProfile,
    /// The check of waits: a goroutine that locks, with and without
    Waits,
    /// A dump of 100,000 goroutines
    Dump,
    /// The flight recorder, under the benchmarks of versus-go
    Recorder,
}

/// Options of `cost`.
#[derive(Args, Clone, Debug)]
pub struct CostArgs {
    /// Tools [default: all]
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    pub tools: Vec<Tool>,

    /// Runs of each measurement
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = number::<1, MAX_RUNS>)]
    pub runs: usize,

    /// Least length of a run
    #[arg(long, value_name = "S", default_value = "0.5", value_parser = seconds)]
    pub min_time: Duration,

    /// Benchmarks of versus-go, for the recorder [default: all]
    #[arg(long, value_name = "A,B", value_parser = list::<Name>)]
    pub bench: Option<List<Name>>,

    /// Numbers of workers, for the recorder
    #[arg(long, value_name = "N,N", default_value = "1,2", value_parser = numbers::<1, 256>)]
    pub workers: List<usize>,
}

/// Options of `cost-child`.
#[derive(Args, Clone, Debug)]
pub struct ChildArgs {
    /// The measurement
    tool: Tool,
}

/// The result of a measurement.
#[derive(Serialize, Debug)]
struct Figure {
    bench: &'static str,
    tool: &'static str,
    figure: String,
    unit: &'static str,
    value: f64,
    goal: f64,
    reached: bool,
}

/// Returns the figure of a quantity that has to be `goal` at least, or at most.
fn figure(tool: &'static str, figure: impl Into<String>, (value, unit): (f64, &'static str), goal: Goal) -> Figure {
    let (goal, reached) = match goal {
        Goal::AtLeast(goal) => (goal, value >= goal),
        Goal::AtMost(goal) => (goal, value <= goal),
    };
    Figure { bench: "cost", tool, figure: figure.into(), unit, value, goal, reached }
}

enum Goal {
    AtLeast(f64),
    AtMost(f64),
}

/// The goroutines that the dump has.
const MANY: usize = 100_000;

/// Runs `cost`: measures and prints.
pub fn run(args: &CostArgs, output: Output) -> Result<(), Failure> {
    let is_wanted = |tool| args.tools.is_empty() || args.tools.contains(&tool);
    let mut figures = Vec::new();
    if is_wanted(Tool::MutexProfile) {
        figures.extend(mutex_profile(args)?);
    }
    if is_wanted(Tool::Waits) {
        figures.extend(waits(args)?);
    }
    if is_wanted(Tool::Dump) {
        figures.extend(dumps(args)?);
    }
    if is_wanted(Tool::Recorder) {
        figures.extend(recorder(args)?);
    }
    let mut table = Table::new(2, ["tool", "figure", "value", "goal", ""]);
    for figure in &figures {
        output.record(figure)?;
        let [value, goal] = [figure.value, figure.goal].map(|of| format!("{of:.3} {}", figure.unit));
        table.row([figure.tool, &figure.figure, &value, &goal, if figure.reached { "" } else { "missed" }]);
    }
    output.text(table)
}

/// Runs this program with these words, and returns the last line that the program prints, which is JSON.
fn child(words: &[&str]) -> Result<Value, Failure> {
    let program = env::current_exe().map_err(|error| Failure::Run(format!("where is this program? {error}")))?;
    read(Command::new(program).args(words))
}

fn read(command: &mut Command) -> Result<Value, Failure> {
    let output = command.output().map_err(|error| Failure::Run(format!("{command:?}: {error}")))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let value = text.lines().last().and_then(|line| serde_json::from_str(line).ok());
    value
        .filter(|_| output.status.success())
        .ok_or_else(|| Failure::Run(format!("{command:?}: {}", last_words(&output))))
}

/// Returns a number of a record.
fn field(record: &Value, name: &str) -> Result<f64, Failure> {
    record[name].as_f64().ok_or_else(|| Failure::Run(format!("no {name} in {record}")))
}

/// Measures several cases alternately. Returns the medians.
fn alternately<const N: usize>(runs: usize, run: impl Fn(usize) -> Result<f64, Failure>) -> Result<[f64; N], Failure> {
    let mut all = [const { Vec::new() }; N];
    for _ in 0..runs {
        for (case, values) in all.iter_mut().enumerate() {
            values.push(run(case)?);
        }
    }
    Ok(all.map(median))
}

fn mutex_profile(args: &CostArgs) -> Result<[Figure; 2], Failure> {
    let seconds = args.min_time.as_secs_f64().to_string();
    let throughput = |fraction: &str| {
        let bench = ["mutexbench", "--locks", "sudog", "--threads", "8", "--runs", "1", "--seconds", &seconds];
        field(&child(&[&["--json", "--mutex-profile", fraction], &bench[..]].concat())?, "throughput")
    };
    let [off, one, hundred] = alternately(args.runs, |case| throughput(["0", "1", "100"][case]))?;
    let part = |on, fraction, goal| figure("mutex-profile", fraction, (on / off, "of off"), Goal::AtLeast(goal));
    Ok([part(one, "MutexBench, T=8, fraction 1", 0.9), part(hundred, "MutexBench, T=8, fraction 100", 0.99)])
}

/// Measures a goroutine that locks a mutex that another one has, without and with the check, and with the reports that
/// builds with debug assertions make by default.
fn waits(args: &CostArgs) -> Result<[Figure; 2], Failure> {
    let checked = |stalls: &str| {
        let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["run", "--quiet", "--profile", "lab", "-p", "sudog-lab", "--features", "observe"]);
        for package in ["sudog-runtime", "sudog-sync"] {
            cargo.arg(format!("--config=profile.lab.package.{package}.debug-assertions=true"));
        }
        // A target of its own: the two builds would displace each other.
        cargo.args(["--target-dir", "target/checked", "--", "cost-child", "waits"]);
        read(cargo.env("SUDOG_STALLS", stalls).env("SUDOG_MAXPROCS", "1"))
    };
    checked("0")?; // builds the program
    let wait = |case| match case {
        0 => field(&child(&["cost-child", "waits"])?, "ns"),
        case => field(&checked(["", "0", "1"][case])?, "ns"),
    };
    let [off, on, reports] = alternately(args.runs, wait)?;
    let more = |on: f64, name| figure("waits", name, (on - off, "ns"), Goal::AtMost(200.0));
    Ok([more(on, "a wait for a mutex: notes for the check"), more(reports, "the same, and observed switches")])
}

fn dumps(args: &CostArgs) -> Result<[Figure; 2], Failure> {
    let records = (0..args.runs).map(|_| child(&["cost-child", "dump"])).collect::<Result<Vec<_>, _>>()?;
    let median_of = |name| -> Result<f64, Failure> {
        Ok(median(records.iter().map(|record| field(record, name)).collect::<Result<Vec<_>, _>>()?))
    };
    let name = format!("{MANY} goroutines that wait");
    let pause = "longest gap in the turns of a goroutine that runs meanwhile, on each worker";
    Ok([
        figure("dump", name, (median_of("seconds")?, "s"), Goal::AtMost(1.0)),
        figure("dump", pause, (median_of("gap")? * 1e3, "ms"), Goal::AtMost(10.0)),
    ])
}

fn recorder(args: &CostArgs) -> Result<Vec<Figure>, Failure> {
    let benches = args.bench.as_ref().map_or_else(|| Name::all().collect(), |list| list.0.clone());
    let mut figures = Vec::new();
    for &workers in &args.workers.0 {
        let mut ratios = Vec::new();
        let mut worst = (f64::INFINITY, "");
        for &bench in benches.iter().filter(|bench| bench.runs_at(workers)) {
            let time = |case| {
                let limits = Limits { min_time: args.min_time, count: MANY, records: case == 1 };
                Ok(run_ours(bench, workers, &limits)?.ns)
            };
            let [off, on] = alternately(args.runs, time)?;
            ratios.push(off / on);
            worst = if off / on < worst.0 { (off / on, bench.name) } else { worst };
        }
        if ratios.is_empty() {
            continue;
        }
        let mut name = format!("versus-go, {workers} workers, mean of {}", ratios.len());
        _ = write!(name, "; least: {} {:.2}", worst.1, worst.0);
        figures.push(figure("recorder", name, (geometric_mean(ratios), "of off"), Goal::AtLeast(0.95)));
    }
    Ok(figures)
}

/// Measures in this process, and prints a record.
pub fn be(args: &ChildArgs) -> Result<(), Failure> {
    let record = match args.tool {
        Tool::Waits => serde_json::json!({ "ns": goroutine::run(time_of_wait) }),
        Tool::Dump => goroutine::run(dump_of_many),
        Tool::MutexProfile | Tool::Recorder => return Err(Failure::Usage("a measurement of other commands".into())),
    };
    Output { json: true }.record(&record)
}

/// Returns the nanoseconds of a wait for a mutex, with the lock, the unlock and the switches around the wait: two
/// goroutines of one worker take turns, and each lock of either finds the mutex locked.
fn time_of_wait() -> f64 {
    const WAITS: u32 = 100_000;
    let mutex = Arc::new(Mutex::new(()));
    let take_turns = |mutex: Arc<Mutex<()>>| {
        move || {
            for _ in 0..WAITS / 2 {
                let guard = mutex.lock();
                gosched(); // the other goroutine waits for the mutex
                drop(guard);
                gosched(); // the other goroutine has the mutex
            }
        }
    };
    let begun = Instant::now();
    let both = [(); 2].map(|()| Builder::new().on(Placement::Worker(0)).spawn(take_turns(mutex.clone())));
    both.into_iter().for_each(|one| _ = one.join());
    begun.elapsed().as_nanos() as f64 / f64::from(WAITS)
}

/// Makes a dump of many goroutines. Returns the time of the dump, and the longest time between two turns of a goroutine
/// that yields all the time, on any worker.
fn dump_of_many() -> Value {
    let never = Chan::<()>::new(0);
    for _ in 0..MANY {
        let never = never.clone();
        goroutine::go(move || _ = never.recv());
    }
    let are_waiting = || dump().goroutines.iter().filter(|info| info.state == GoroutineState::Waiting).count() >= MANY;
    while !are_waiting() {
        gosched();
    }
    let (gap, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let yielders: Vec<_> = (0..goroutine::max_procs())
        .map(|worker| {
            let (gap, is_over) = (gap.clone(), is_over.clone());
            Builder::new().on(Placement::Worker(worker)).spawn(move || {
                let mut last = Instant::now();
                while !is_over.load(Relaxed) {
                    gosched();
                    let now = Instant::now();
                    gap.fetch_max((now - last).as_nanos() as u64, Relaxed);
                    last = now;
                }
            })
        })
        .collect();
    goroutine::sleep(Duration::from_millis(20));
    gap.store(0, Relaxed);
    let begun = Instant::now();
    let count = dump().goroutines.len();
    let seconds = begun.elapsed().as_secs_f64();
    is_over.store(true, Relaxed);
    yielders.into_iter().for_each(|yielder| _ = yielder.join());
    never.close();
    serde_json::json!({ "seconds": seconds, "gap": gap.load(Relaxed) as f64 / 1e9, "goroutines": count })
}
