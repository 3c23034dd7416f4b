//! `cargo sim explore`: the library's own code under thousands of schedules.
//!
//! Each program of [`programs`], or each check of [`conformance`](sudog_lab_core::conformance) on each lock and semaphore, runs once
//! for each seed: see [`sudog_sim::explore`].

mod programs;
mod suite;

use std::borrow::Cow;
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use sudog_sim::explore::{Explore, Schedule, read_schedule, write_schedule};

use crate::output::Output;
use crate::output::failure::Failure;

#[derive(Args, Clone, Debug)]
pub struct ExploreArgs {
    /// Programs, by name, or by a part of their names if none has this name [default: all]
    #[arg(long, value_name = "NAME")]
    pub test: Vec<String>,

    /// The conformance suite instead: programs NAME:CHECK for each lock and semaphore of the laboratory
    #[arg(long)]
    pub conformance: bool,

    /// Seeds for each program
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    pub seeds: u64,

    /// A schedule to replay, as a failure prints it; of one program
    #[arg(long, value_name = "SCHEDULE")]
    pub replay: Option<String>,

    /// File to which the timeline of a failure is written, for chrome://tracing or Perfetto
    #[arg(long, value_name = "PATH")]
    pub timeline: Option<PathBuf>,
}

#[derive(Serialize)]
struct Record<'a> {
    bench: &'a str,
    program: &'a str,
    seeds: u64,
    failure: Option<String>,
    seed: Option<u64>,
    schedule: Option<String>,
}

struct Program {
    name: Cow<'static, str>,
    body: Box<dyn Fn()>,
}

/// Explores, and prints. This process has one thread.
pub fn run(args: &ExploreArgs, output: Output) -> Result<(), Failure> {
    let all = if args.conformance { suite::programs() } else { programs::programs() };
    let is_name = |test: &String| all.iter().any(|program| program.name == **test);
    let names =
        |test: &String, program: &Program| program.name == **test || !is_name(test) && program.name.contains(test);
    let wanted = |program: &&Program| args.test.is_empty() || args.test.iter().any(|test| names(test, program));
    let programs: Vec<_> = all.iter().filter(wanted).collect();
    if let Some(test) = args.test.iter().find(|test| !all.iter().any(|program| names(test, program))) {
        let known: Vec<_> = all.iter().map(|program| &*program.name).collect();
        return Err(Failure::Usage(format!("no program '{test}'; known: {}", known.join(", "))));
    }
    // Waiters that spin make many decisions while a preempted owner makes none.
    let most = if args.conformance { 3_000_000 } else { Explore::default().most };
    let explore = Explore { schedule: Schedule::Mixed, most, ..Explore::default() };
    if let Some(schedule) = &args.replay {
        let schedule = read_schedule(schedule).ok_or_else(|| {
            let form = "'DECISION:CHOICE,...', decisions ascending, each choice one of runN, wakeN, jumpN, timer";
            Failure::Usage(format!("'{schedule}' is no schedule: {form}"))
        })?;
        let [program] = programs[..] else {
            return Err(Failure::Usage("a schedule is of one program: say which, by --test".into()));
        };
        let Some(failure) = explore.replay(&schedule, &program.body) else {
            return output.text(format_args!("{}: it does not fail", program.name));
        };
        timeline(args, &failure)?;
        return Err(Failure::Run(format!("{}: {failure}", program.name)));
    }
    let mut failed = 0;
    for program in programs {
        let found = explore.check(0..args.seeds, &program.body);
        output.record(&Record {
            bench: "explore",
            program: &program.name,
            seeds: args.seeds,
            failure: found.as_ref().err().map(|failure| failure.what.clone()),
            seed: found.as_ref().err().map(|failure| failure.seed),
            schedule: found.as_ref().err().map(|failure| write_schedule(&failure.schedule)),
        })?;
        match found {
            Ok(seeds) => output.text(format_args!("{:24} {seeds} seeds", program.name))?,
            Err(failure) => {
                failed += 1;
                output.text(format_args!("{:24} FAILED\n{failure}", program.name))?;
                timeline(args, &failure)?;
            }
        }
    }
    if failed > 0 { Err(Failure::Run(format!("{failed} programs failed"))) } else { Ok(()) }
}

fn timeline(args: &ExploreArgs, failure: &sudog_sim::explore::Failure) -> Result<(), Failure> {
    let Some(path) = &args.timeline else { return Ok(()) };
    std::fs::write(path, failure.timeline()).map_err(|error| Failure::Run(format!("{}: {error}", path.display())))
}
