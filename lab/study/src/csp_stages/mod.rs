//! The command `csp-stages`: the stages by which the source of csp comes to its channels (Skaller, chapters 3 to 6), each
//! in a file and timed; and fibres that hang on channels of csp.
//!
//! | stage | file | adds |
//! |---|---|---|
//! | 1 | `continuation.rs` | frames on the heap: a procedure, a function, a closure, and a driver |
//! | 2 | `round_robin.rs` | a queue of continuations, each of which runs a step in turn |
//! | 3 | `fibres.rs` | fibres, linked into a stack without allocation |
//! | 4 | `channels.rs` | channels: a fibre reads, writes and spawns by requests to its scheduler |
//! | 5 | `active_set.rs` | locks: several threads run the fibres of one set |
//! | csp | `csp/src` | goroutines and tasks as fibres, values of any type, reclamation: `hanging.rs` measures these |

mod active_set;
mod channels;
mod continuation;
mod fibres;
mod hanging;
mod round_robin;

use std::time::Instant;

use clap::Args;
use serde::Serialize;

use crate::measure::metrics::median;
use crate::options::{MAX_RUNS, number};
use crate::output::Output;
use crate::output::failure::Failure;
use crate::output::table::Table;
use crate::output::units;

/// Options of `csp-stages`.
#[derive(Args, Clone, Debug)]
#[command(allow_negative_numbers = true)]
pub struct CspStagesArgs {
    /// Steps of each stage: calls, or values
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = number::<100, 1_000_000_000>)]
    steps: usize,

    /// Runs of each stage, the stages taking turns
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = number::<1, MAX_RUNS>)]
    runs: usize,

    /// Fibres that hang at the end: futures, and tasks of the runtime; goroutines at most 100000
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = number::<1, 100_000_000>)]
    fibres: usize,
}

/// A stage in a form, and the number of its steps.
struct Stage {
    number: &'static str,
    name: &'static str,
    step: &'static str,
    steps: u64,
    /// Runs the stage. Returns the sum that the stage has computed.
    run: fn(u64) -> u64,
    argument: u64,
    sum: u64,
}

#[derive(Serialize)]
struct StageRecord {
    bench: &'static str,
    stage: &'static str,
    name: &'static str,
    steps: u64,
    runs: usize,
    /// The time of a step: the median over the runs.
    time_ns: f64,
}

#[derive(Serialize)]
struct HangRecord {
    bench: &'static str,
    name: &'static str,
    n: usize,
    /// The resident memory that a fibre takes.
    bytes: f64,
    /// The time of a fibre's way into the list.
    hang_ns: f64,
    /// The time of a fibre's reclamation when its future is dropped.
    drop_ns: Option<f64>,
    /// The time of a fibre's reclamation when the last writer's end is dropped.
    end_ns: f64,
}

fn stages(n: u64) -> Vec<Stage> {
    let sum = (1..=n).sum();
    let squares = (1..=n).map(|i| i.wrapping_mul(i)).fold(0, u64::wrapping_add);
    // A hundred programs, as in the source. A step is a call, or the return of a call.
    let calls = n / 100;
    let (all, steps) = (100 * (1..=calls).sum::<u64>(), 100 * (2 * calls + 1));
    let stage = |number, name, step, steps, run, argument, sum| Stage { number, name, step, steps, run, argument, sum };
    vec![
        stage("1", "call on the machine stack", "a call", n, continuation::machine_stack, n, sum),
        stage("1", "continuations by hand", "a call", n, continuation::by_hand, n, sum),
        stage("1", "futures in boxes", "a call", n, continuation::by_compiler, n, sum),
        stage("1", "futures in place", "a call", n, continuation::frame_kept, n, sum),
        stage("1", "function", "a call", n, continuation::function, n, squares),
        stage("1", "closure", "a call", n, continuation::closure, n, sum),
        stage("2", "round robin over a list", "a step", steps, round_robin::list, calls, all),
        stage("2", "round robin over an array", "a step", steps, round_robin::array, calls, all),
        stage("3", "stack of fibres", "a step", steps, fibres::run, calls, all),
        stage("4", "squares over channels", "a value", n, channels::squares, n, squares),
        stage("5", "squares by one thread", "a value", n, |n| active_set::squares(n, 1), n, squares),
        stage("5", "squares by two threads", "a value", n, |n| active_set::squares(n, 2), n, squares),
        stage("csp", "squares by goroutines", "a value", n, hanging::squares_of_goroutines, n, squares),
        stage("csp", "squares by tasks", "a value", n, hanging::squares_of_tasks, n, squares),
    ]
}

/// Runs `csp-stages`: measures and prints.
pub fn run(args: &CspStagesArgs, output: Output) -> Result<(), Failure> {
    let stages = stages(args.steps as u64 / 100 * 100);
    let mut times: Vec<Vec<f64>> = stages.iter().map(|_| Vec::new()).collect();
    for _ in 0..args.runs {
        for (stage, times) in stages.iter().zip(&mut times) {
            let begin = Instant::now();
            assert_eq!((stage.run)(stage.argument), stage.sum, "{}", stage.name);
            times.push(begin.elapsed().as_nanos() as f64 / stage.steps as f64);
        }
    }
    let mut table = Table::new(2, ["stage", "", "time", "of"]);
    for (Stage { number, name, step, steps, .. }, times) in stages.into_iter().zip(times) {
        let time_ns = median(times);
        output.record(&StageRecord { bench: "csp-stages", stage: number, name, steps, runs: args.runs, time_ns })?;
        table.row([number.into(), name.into(), units::time(time_ns), step.into()]);
    }
    output.text(format_args!("csp-stages: medians of {} runs\n\n{table}", args.runs))?;

    let mut table = Table::new(1, ["fibres that hang", "number", "bytes", "to hang", "to drop", "by the last end"]);
    for hang in [hanging::futures(args.fibres), hanging::tasks(args.fibres), hanging::goroutines(args.fibres)] {
        let drop_time = hang.drop_ns.map_or_else(|| "-".into(), units::time);
        let bytes = format!("{:.0}", hang.bytes);
        let (to_hang, by_end) = (units::time(hang.hang_ns), units::time(hang.end_ns));
        table.row([hang.name.into(), hang.n.to_string(), bytes, to_hang, drop_time, by_end]);
        output.record(&hang)?;
    }
    output.text(format_args!("each fibre, once\n\n{table}"))
}
