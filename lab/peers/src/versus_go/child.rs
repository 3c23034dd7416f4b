//! A benchmark in a separate process, so that each side starts afresh, and the memory of each side can be measured.

use std::env;
use std::io::{self, Write};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use sudog_runtime::event::Recorder;
use sudog_runtime::goroutine;

use super::benches::Name;
use super::bodies::round;
use super::reading::Reading;
use crate::output::failure::Failure;
#[cfg(not(sudog_sim))]
use crate::run::noise::noise;
use crate::versus_go::ChildArgs;

/// The command of such a process.
pub const COMMAND: &str = "versus-go-child";

/// Limits of a benchmark.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The least length of the round that counts.
    pub min_time: Duration,
    /// The number of goroutines in benchmarks of a million goroutines.
    pub count: usize,
    /// True if the flight recorder is on, for goroutines.
    pub records: bool,
}

/// Starts this program once more for a benchmark, with `workers` workers, and returns the reading.
pub fn run_ours(bench: Name, workers: usize, limits: &Limits) -> Result<Reading, Failure> {
    let program = env::current_exe().map_err(|error| Failure::Run(format!("where is this program? {error}")))?;
    let workers = workers.to_string();
    let mut command = Command::new(program);
    command.args([COMMAND, bench.name, "--workers", &workers]).env("SUDOG_MAXPROCS", &workers);
    command.arg(format!("--min-time={}", limits.min_time.as_secs_f64())).arg(format!("--count={}", limits.count));
    if limits.records {
        command.arg("--record");
    }
    #[cfg(not(sudog_sim))]
    noise().ask(&mut command);
    read(command, bench.name)
}

/// Runs the command, and reads the single line that the command prints.
pub fn read(mut command: Command, name: &str) -> Result<Reading, Failure> {
    let program = command.get_program().to_owned();
    let fail = |why: String| Failure::Run(format!("{}, {name}: {why}", program.display()));
    let output = command.stdin(Stdio::null()).output().map_err(|error| fail(error.to_string()))?;
    if !output.status.success() {
        return Err(fail(last_words(&output)));
    }
    let reading: Reading = String::from_utf8_lossy(&output.stdout).trim().parse().map_err(fail)?;
    match reading.name == name {
        true => Ok(reading),
        false => Err(fail(format!("it measured {}", reading.name))),
    }
}

/// Returns how a failed program ended, and the end of the program's error output.
pub fn last_words(output: &Output) -> String {
    const LINES: usize = 20;
    let text = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = text.lines().collect();
    format!("{}\n{}", output.status, lines[lines.len().saturating_sub(LINES)..].join("\n")).trim_end().to_owned()
}

/// Runs the benchmark, in the process of `versus-go-child`, and prints the reading.
pub fn be(args: &ChildArgs) -> Result<(), Failure> {
    if args.record {
        Recorder::new().goroutines().start();
    }
    let reading = goroutine::run(|| match goroutine::max_procs() {
        workers if workers == args.workers => Ok(round::measure(&args.bench, args.min_time, args.count)),
        workers => Err(Failure::Run(format!("{workers} workers instead of {}", args.workers))),
    })?;
    Ok(writeln!(io::stdout().lock(), "{reading}")?)
}
