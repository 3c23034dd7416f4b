//! One benchmark in a process of its own: so that each side starts afresh, and its memory is its own.

use std::env;
use std::io::{self, Write};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use sudog_runtime::goroutine;

use super::benches::Name;
use super::bodies::round;
use super::reading::Reading;
use crate::bench::versus_go::ChildArgs;
use crate::output::failure::Failure;
#[cfg(not(sudog_sim))]
use crate::run::noise::noise;

/// The command that is one of these processes.
pub const COMMAND: &str = "versus-go-child";

/// How much of everything.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How long the round that counts takes at least.
    pub min_time: Duration,
    /// How many goroutines a million are.
    pub count: usize,
}

/// Starts this program once more for one benchmark, with so many workers.
pub fn run_ours(bench: Name, workers: usize, limits: &Limits) -> Result<Reading, Failure> {
    let program = env::current_exe().map_err(|error| Failure::Run(format!("where is this program? {error}")))?;
    let workers = workers.to_string();
    let mut command = Command::new(program);
    command.args([COMMAND, bench.name, "--workers", &workers]).env("SUDOG_MAXPROCS", &workers);
    command.arg(format!("--min-time={}", limits.min_time.as_secs_f64())).arg(format!("--count={}", limits.count));
    #[cfg(not(sudog_sim))]
    noise().ask(&mut command);
    read(command, bench.name)
}

/// Runs it and reads its one line.
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

/// How a program ended that failed, and the end of what it said.
pub fn last_words(output: &Output) -> String {
    const LINES: usize = 20;
    let text = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = text.lines().collect();
    format!("{}\n{}", output.status, lines[lines.len().saturating_sub(LINES)..].join("\n")).trim_end().to_owned()
}

/// Is such a process.
pub fn be(args: &ChildArgs) -> Result<(), Failure> {
    let reading = goroutine::run(|| match goroutine::max_procs() {
        workers if workers == args.workers => Ok(round::measure(&args.bench, args.min_time, args.count)),
        workers => Err(Failure::Run(format!("{workers} workers instead of {}", args.workers))),
    })?;
    Ok(writeln!(io::stdout().lock(), "{reading}")?)
}
