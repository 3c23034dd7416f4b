//! The command `tail`: the slowest hundredth of a service's answers while a goroutine of the service computes.
//!
//! | part | what runs | what is measured |
//! |---|---|---|
//! | sleepers | 100 goroutines that sleep for 1 ms, again and again, beside a goroutine that computes | how late they wake |
//! | connections | requests over TCP, of which some are heavy, due at random times | time from when a light request was due to the answer |
//!
//! Each side is a separate process. The clients are threads of this process.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{env, thread};

use clap::Args;
use serde::{Deserialize, Serialize};
use sudog_runtime::goroutine;

use super::netbench::{Running, raise_limit, say};
use super::versus_go::bodies::work::burn;
use super::versus_go::child::last_words;
use super::versus_go::go::{Go, Program};
use crate::measure::metrics::{median, quantile, worst};
use crate::options::{List, MAX_RUNS, list, number, numbers, seconds};
use crate::output::Output;
use crate::output::failure::Failure;
use crate::output::table::Table;
use crate::output::units;
use crate::run::noise::{end_with_input, noise};
use crate::targets::registry::names;

names! {
    /// A runtime, and the place where a computation runs in the runtime.
    enum Side;
    unknown "side";
    Sudog = "sudog", "Goroutines that compute where they are.";
    Compute = "compute", "Goroutines that compute inside of `compute`.";
    Tasks = "tasks", "Tasks of ours that sleep; a task computes. No connections.";
    Tokio = "tokio", "Tasks of tokio that compute where they are.";
    TokioBlocking = "tokio-blocking", "Tasks of tokio that compute inside of `spawn_blocking`.";
    Go = "go", "Go's goroutines. Needs Go.";
}

#[derive(Args, Clone, Debug)]
#[command(allow_negative_numbers = true)]
pub struct TailArgs {
    /// Sides
    #[arg(long, value_name = "A,B", default_value = "sudog,compute,tasks,tokio,tokio-blocking,go", value_parser = list::<Side>)]
    pub sides: List<Side>,

    /// Processors that a side may use
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = number::<1, 256>)]
    pub workers: usize,

    /// Connections
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = number::<1, 10_000>)]
    pub connections: usize,

    /// Milliseconds of computation in a heavy request
    #[arg(long, value_name = "MS,MS", default_value = "1,5,10,30", value_parser = numbers::<1, 1000>)]
    pub heavy: List<usize>,

    /// Seconds of a run
    #[arg(long, value_name = "S", default_value = "4", value_parser = seconds)]
    pub seconds: Duration,

    /// Runs of each side, in turns
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = number::<1, MAX_RUNS>)]
    pub runs: usize,
}

#[derive(Args, Clone, Debug)]
pub struct ChildArgs {
    /// The side
    pub side: Side,

    /// Number of workers
    #[arg(long, value_parser = number::<1, 256>)]
    pub workers: usize,

    /// Seconds in which sleepers are measured. Without this option the side serves connections
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub sleepers: Option<Duration>,
}

/// The percentage of the processors that all requests need.
const LOAD: f64 = 25.0;
/// The share of heavy requests.
const HEAVY_SHARE: f64 = 0.05;
/// The computation of the other requests.
const LIGHT: Duration = Duration::from_micros(20);
const SLEEPERS: usize = 100;
const SLEEP: Duration = Duration::from_millis(1);

/// The distribution of a set of times, in nanoseconds.
#[derive(Clone, Copy, Serialize, Deserialize, Debug)]
struct Percentiles {
    n: u64,
    p50: u64,
    p90: u64,
    p99: u64,
    p999: u64,
    max: u64,
}

impl Percentiles {
    fn of(mut times: Vec<u64>) -> Self {
        times.sort_unstable();
        let at = |per_mille| quantile(&times, per_mille).unwrap_or(0);
        Self { n: times.len() as u64, p50: at(500), p90: at(900), p99: at(990), p999: at(999), max: at(1000) }
    }
}

#[derive(Serialize)]
struct Record {
    bench: &'static str,
    side: Side,
    workers: usize,
    /// Milliseconds of a heavy request; `None` for sleepers.
    heavy_ms: Option<usize>,
    runs: Vec<Percentiles>,
}

/// Returns a command that starts this program once more, as the process of `side`.
fn command_of(side: Side, args: &TailArgs) -> Result<Command, Failure> {
    let this = env::current_exe().map_err(|error| Failure::Run(format!("where is this program? {error}")))?;
    let mut command = Command::new(this);
    command.args(["tail-child", &side.to_string(), "--workers", &args.workers.to_string()]);
    command.env("SUDOG_MAXPROCS", args.workers.to_string());
    noise().ask(&mut command);
    Ok(command)
}

/// Starts a side. With the option for one processor, binds Go's side to that processor; our sides bind themselves.
fn bound<T>(side: Side, start: impl FnOnce() -> T) -> T {
    let _one_processor = if side == Side::Go { noise().bind_what_starts() } else { None };
    start()
}

fn sleepers(side: Side, args: &TailArgs, program: Option<&Program>) -> Result<Percentiles, Failure> {
    let mut command = match (side, program) {
        (Side::Go, Some(program)) => program.sleepers(args.workers, args.seconds),
        _ => {
            let mut command = command_of(side, args)?;
            command.arg(format!("--sleepers={}", args.seconds.as_secs_f64()));
            command
        }
    };
    let fail = |why: String| Failure::Run(format!("sleepers of {side}: {why}"));
    let output = bound(side, || command.stdin(Stdio::null()).output()).map_err(|error| fail(error.to_string()))?;
    if !output.status.success() {
        return Err(fail(last_words(&output)));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| fail(error.to_string()))
}

fn connections(side: Side, heavy: usize, args: &TailArgs, program: Option<&Program>) -> Result<Percentiles, Failure> {
    let command = match (side, program) {
        (Side::Go, Some(program)) => program.tail_server(args.workers),
        _ => command_of(side, args)?,
    };
    let server = bound(side, || Running::start(command))?;
    let _one_processor = noise().bind_what_starts();
    let times = load(&server, Duration::from_millis(heavy as u64), args);
    Ok(Percentiles::of(times.map_err(|error| Failure::Run(format!("connections of {side}: {error}")))?))
}

/// Marsaglia's xorshift.
struct Random(u64);

impl Random {
    /// Returns a random number from 0 up to, but not including, 1.
    fn next(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Sends requests, and returns the times of the light requests.
fn load(server: &Running, heavy: Duration, args: &TailArgs) -> io::Result<Vec<u64>> {
    let work = heavy.mul_f64(HEAVY_SHARE) + LIGHT.mul_f64(1.0 - HEAVY_SHARE);
    let mean = work.mul_f64(args.connections as f64 * 100.0 / (LOAD * args.workers as f64));
    let streams = (0..args.connections).map(|_| server.connect()).collect::<io::Result<Vec<_>>>()?;
    let all = Mutex::new(Vec::new());
    let begun = Instant::now();
    let client = |number: usize, mut stream: TcpStream| -> io::Result<()> {
        let mut random = Random(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(number as u64 + 1));
        let (mut due, mut times) = (begun, Vec::new());
        while due < begun + args.seconds {
            due += mean.mul_f64(-(1.0 - random.next()).ln());
            thread::sleep(due.saturating_duration_since(Instant::now()));
            let is_heavy = random.next() < HEAVY_SHARE;
            let work = if is_heavy { heavy } else { LIGHT };
            let mut request = (work.as_micros() as u32).to_le_bytes();
            stream.write_all(&request)?;
            stream.read_exact(&mut request)?;
            if !is_heavy {
                times.push(due.elapsed().as_nanos() as u64);
            }
        }
        all.lock().expect("no client panics").append(&mut times);
        Ok(())
    };
    thread::scope(|s| {
        let clients: Vec<_> =
            streams.into_iter().enumerate().map(|(n, stream)| s.spawn(move || client(n, stream))).collect();
        clients
            .into_iter()
            .try_for_each(|client| client.join().map_err(|_| io::Error::other("a client has panicked"))?)
    })?;
    Ok(all.into_inner().expect("no client has panicked"))
}

/// Runs `tail`: measures and prints.
pub fn run(args: &TailArgs, output: Output) -> Result<(), Failure> {
    raise_limit(2 * args.connections)?;
    let sides = &args.sides.0;
    let program = if sides.contains(&Side::Go) { Some(Go::find()?.build()?) } else { None };
    let program = program.as_ref();
    let serving: Vec<_> = sides.iter().copied().filter(|&side| side != Side::Tasks).collect();
    let progress = output.progress("tail", args.runs * (sides.len() + serving.len() * args.heavy.0.len()));
    let part = |title: String, heavy: Option<usize>, sides: &[Side]| -> Result<(), Failure> {
        let mut results = vec![Vec::new(); sides.len()];
        for _ in 0..args.runs {
            for (&side, results) in sides.iter().zip(&mut results) {
                results.push(match heavy {
                    None => sleepers(side, args, program)?,
                    Some(heavy) => connections(side, heavy, args, program)?,
                });
                progress.inc(1);
            }
        }
        let mut table = Table::new(1, ["side", "n", "p50", "p90", "p99", "p99.9", "longest"]);
        for (&side, runs) in sides.iter().zip(results) {
            let middle = |of: fn(&Percentiles) -> u64| median(runs.iter().map(|run| of(run) as f64));
            let longest = worst(&runs.iter().map(|run| run.max as f64).collect::<Vec<_>>());
            let times = [middle(|r| r.p50), middle(|r| r.p90), middle(|r| r.p99), middle(|r| r.p999), longest];
            let n = format!("{:.0}", middle(|r| r.n));
            table.row([side.to_string(), n].into_iter().chain(times.map(units::time)));
            output.record(&Record { bench: "tail", side, workers: args.workers, heavy_ms: heavy, runs })?;
        }
        output.text(format_args!("{title}\n\n{table}\n"))
    };
    part(format!("How late {SLEEPERS} sleepers of {SLEEP:?} wake, beside one that computes"), None, sides)?;
    for &heavy in &args.heavy.0 {
        let share = HEAVY_SHARE * 100.0;
        let connections = args.connections;
        let title =
            format!("Light requests on {connections} connections; {share} % compute for {heavy} ms; load {LOAD} %");
        part(title, Some(heavy), &serving)?;
    }
    progress.finish_and_clear();
    output.text(format_args!(
        "tail: {} workers; medians of {} runs of {:?}, and the longest of all",
        args.workers, args.runs, args.seconds
    ))
}

// ---- sides ----------------------------------------------------------------------------------------------------------

/// Runs one side, in the process of `tail-child`.
pub fn be(args: &ChildArgs) -> Result<(), Failure> {
    burn(Duration::from_micros(1)); // calibrates
    if let Some(time) = args.sleepers {
        let late = match args.side {
            Side::Sudog | Side::Compute => sleep_as_goroutines(args.side == Side::Compute, time),
            Side::Tasks => sleep_as_our_tasks(time),
            Side::Tokio | Side::TokioBlocking => sleep_on_tokio(args.side == Side::TokioBlocking, args.workers, time)?,
            Side::Go => return Err(Failure::Usage("Go's side is Go's".into())),
        };
        return Output { json: true }.record(&Percentiles::of(late));
    }
    if matches!(args.side, Side::Tasks | Side::Go) {
        return Err(Failure::Usage("this side serves no connections here".into()));
    }
    raise_limit(10_000).ok();
    end_with_input();
    match args.side {
        Side::Sudog | Side::Compute => serve_by_goroutines(args.side == Side::Compute),
        Side::Tokio | Side::TokioBlocking => serve_on_tokio(args.side == Side::TokioBlocking, args.workers),
        Side::Tasks | Side::Go => unreachable!("refused above"),
    }
    .map_err(|error| Failure::Run(error.to_string()))
}

fn late(due: Instant) -> u64 {
    due.elapsed().as_nanos() as u64
}

/// Computes for the given time, and makes no call into a runtime.
fn hog(time: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        burn(Duration::from_micros(100));
    }
}

fn sleep_as_goroutines(compute: bool, time: Duration) -> Vec<u64> {
    let (all, over) = (Mutex::new(Vec::new()), AtomicBool::new(false));
    goroutine::run(|| {
        goroutine::scope(|s| {
            for _ in 0..SLEEPERS {
                s.go(|| {
                    let mut times = Vec::new();
                    while !over.load(Ordering::Relaxed) {
                        let due = Instant::now() + SLEEP;
                        goroutine::sleep(SLEEP);
                        times.push(late(due));
                    }
                    all.lock().expect("no sleeper panics").append(&mut times);
                });
            }
            goroutine::sleep(20 * SLEEP);
            if compute {
                goroutine::compute(|| hog(time))
            } else {
                hog(time)
            }
            over.store(true, Ordering::Relaxed);
        });
    });
    all.into_inner().expect("no sleeper has panicked")
}

static OVER: AtomicBool = AtomicBool::new(false);

fn sleep_as_our_tasks(time: Duration) -> Vec<u64> {
    let tasks: Vec<_> = (0..SLEEPERS)
        .map(|_| {
            goroutine::spawn_async(async {
                let mut times = Vec::new();
                while !OVER.load(Ordering::Relaxed) {
                    let due = Instant::now() + SLEEP;
                    goroutine::sleep_async(SLEEP).await;
                    times.push(late(due));
                }
                times
            })
        })
        .collect();
    thread::sleep(20 * SLEEP);
    let hog = goroutine::spawn_async(async move { hog(time) });
    hog.join().expect("a loop does not panic");
    OVER.store(true, Ordering::Relaxed);
    tasks.into_iter().flat_map(|task| task.join().expect("no sleeper panics")).collect()
}

fn tokio_runtime(workers: usize) -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(workers).enable_all().build()
}

fn sleep_on_tokio(blocking: bool, workers: usize, time: Duration) -> Result<Vec<u64>, Failure> {
    let runtime = tokio_runtime(workers).map_err(|error| Failure::Run(error.to_string()))?;
    Ok(runtime.block_on(async {
        let mut tasks = Vec::new();
        for _ in 0..SLEEPERS {
            tasks.push(tokio::spawn(async {
                let mut times = Vec::new();
                while !OVER.load(Ordering::Relaxed) {
                    let due = Instant::now() + SLEEP;
                    tokio::time::sleep(SLEEP).await;
                    times.push(late(due));
                }
                times
            }));
        }
        tokio::time::sleep(20 * SLEEP).await;
        let computed = if blocking {
            tokio::task::spawn_blocking(move || hog(time)).await
        } else {
            tokio::spawn(async move { hog(time) }).await
        };
        computed.expect("a loop does not panic");
        OVER.store(true, Ordering::Relaxed);
        let mut all = Vec::new();
        for task in tasks {
            all.append(&mut task.await.expect("no sleeper panics"));
        }
        all
    }))
}

/// Returns the time for which a request asks.
fn work(request: [u8; 4]) -> Duration {
    Duration::from_micros(u32::from_le_bytes(request).into())
}

fn serve_by_goroutines(compute: bool) -> io::Result<()> {
    goroutine::run(|| {
        let listener = sudog_net::TcpListener::bind("127.0.0.1:0")?;
        say(listener.local_addr()?.port())?;
        for stream in listener.incoming() {
            let mut stream = stream?;
            goroutine::go(move || {
                let mut request = [0; 4];
                while stream.read_exact(&mut request).is_ok() {
                    let time = work(request);
                    if compute && time > LIGHT {
                        goroutine::compute(|| burn(time))
                    } else {
                        burn(time)
                    }
                    if stream.write_all(&request).is_err() {
                        return;
                    }
                }
            });
        }
        Ok(())
    })
}

fn serve_on_tokio(blocking: bool, workers: usize) -> io::Result<()> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    tokio_runtime(workers)?.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        say(listener.local_addr()?.port())?;
        loop {
            let (mut stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            tokio::spawn(async move {
                let mut request = [0; 4];
                while stream.read_exact(&mut request).await.is_ok() {
                    let time = work(request);
                    if blocking && time > LIGHT {
                        tokio::task::spawn_blocking(move || burn(time)).await.expect("a loop does not panic");
                    } else {
                        burn(time);
                    }
                    if stream.write_all(&request).await.is_err() {
                        return;
                    }
                }
            });
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles() {
        let all = Percentiles::of((1..=1000).rev().collect());
        assert_eq!((all.n, all.p50, all.p90, all.p99, all.p999, all.max), (1000, 500, 900, 990, 999, 1000));
        assert_eq!(Percentiles::of(Vec::new()).max, 0);
    }
}
