//! Go issue 33747 on simulated processors: the story of [`history`](super::history), without its staging.
//!
//! Here each contender can have a processor, so work outside the mutex is work, and not the sleep of a worker. The
//! contenders come as in the issue's benchmark: a round takes 354 microseconds, a hundredth of which is under the
//! mutex. Once in starvation mode, the mutex stays in that mode if each waiter waits for a millisecond in any case: if
//! n contenders are queued, and a handover takes more than 1 ms / n.

use std::time::Duration;

use clap::Args;
use serde::Serialize;

use super::history::collapse::Scene;
use crate::measure::metrics::median;
use crate::options::{List, MAX_RUNS, MAX_THREADS, OnArgs, duration, number, numbers, seconds, some_time};
use crate::output::Output;
use crate::output::failure::Failure;
use crate::output::table::Table;
use crate::output::units;
use crate::run::contenders::Contenders;
use crate::run::machine;
use crate::targets::policies::{PolicyName, with_policy};

/// Options of `collapse`.
#[derive(Args, Clone, Debug)]
#[command(allow_negative_numbers = true)]
pub struct CollapseArgs {
    /// Time for which each contender works in a round
    #[arg(long, value_name = "TIME", default_value = "354us", value_parser = some_time)]
    pub cost: Duration,

    /// Part of the work that is under the mutex
    #[arg(long, value_name = "PART", default_value_t = 0.01, value_parser = super::history::part)]
    pub ratio: f64,

    /// Time for which a contender holds the mutex at the start
    #[arg(long, value_name = "TIME", default_value = "5ms", value_parser = duration)]
    pub stall: Duration,

    /// Numbers of contenders
    #[arg(long, value_name = "N,N", default_value = "1,2,4,8,16,20,24,28,32,36,40,50,60",
        value_parser = numbers::<1, MAX_THREADS>)]
    pub contenders: List<usize>,

    /// Length of a run
    #[arg(long, value_name = "S", default_value = "0.05", value_parser = seconds)]
    pub seconds: Duration,

    /// Runs of each case, taking turns
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = number::<1, MAX_RUNS>)]
    pub runs: usize,

    /// The contenders.
    #[command(flatten)]
    pub on: OnArgs,
}

/// The record of a run.
#[derive(Clone, Serialize, Debug)]
struct CollapseRecord {
    bench: &'static str,
    issue: u32,
    policy: PolicyName,
    #[serde(flatten)]
    on: Contenders,
    #[serde(flatten)]
    machine: machine::Simulated,
    contenders: usize,
    run: usize,
    cost_ns: u128,
    stall_ns: u128,
    ratio: f64,
    operations: u64,
    throughput: f64,
    /// The part of the time in which the mutex was in starvation mode.
    starving: f64,
    mean_wait_ns: f64,
    /// The part of the rounds that waited for more than a millisecond.
    long_waits: f64,
}

/// The compared policies: those of 1.9 and of 1.14, and the default, which goroutines and threads have in this project.
const COMPARED: [PolicyName; 3] = [PolicyName::Go1_9, PolicyName::Go1_14, PolicyName::Threads];

/// Runs the policies in turns.
pub fn run(args: &CollapseArgs, output: Output) -> Result<(), Failure> {
    let on = args.on.contenders()?;
    let (inside, outside) = (args.cost.mul_f64(args.ratio), args.cost.mul_f64(1.0 - args.ratio));
    let numbers = &args.contenders.0;
    let mut records = Vec::new();
    for run in 1..=args.runs {
        for &contenders in numbers {
            for policy in COMPARED {
                let scene = Scene {
                    on,
                    contenders,
                    duration: args.seconds,
                    stall: args.stall,
                    inside,
                    outside,
                    work_outside: machine::work,
                };
                let ending = with_policy(policy, scene)
                    .map_err(|error| Failure::Run(format!("cannot start {contenders} contenders: {error}")))?;
                let rounds = ending.waits.iter().map(|waits| waits.rounds).sum::<u64>() as f64;
                let waited: Duration = ending.waits.iter().map(|waits| waits.time).sum();
                let long = ending.waits.iter().map(|waits| waits.long).sum::<u64>() as f64;
                let record = CollapseRecord {
                    bench: "collapse",
                    issue: 33747,
                    policy,
                    on,
                    machine: machine::simulated(),
                    contenders,
                    run,
                    cost_ns: args.cost.as_nanos(),
                    stall_ns: args.stall.as_nanos(),
                    ratio: args.ratio,
                    operations: ending.operations,
                    throughput: ending.operations as f64 / ending.elapsed.as_secs_f64(),
                    starving: ending.starving,
                    mean_wait_ns: waited.as_nanos() as f64 / rounds,
                    long_waits: long / rounds,
                };
                output.record(&record)?;
                records.push(record);
            }
        }
    }
    let of = |policy: PolicyName, contenders: usize, of: fn(&CollapseRecord) -> f64| {
        median(records.iter().filter(|r| r.policy == policy && r.contenders == contenders).map(of))
    };
    let names = COMPARED.iter().map(|policy| policy.name().to_owned());
    let of_each = |what: &'static str| COMPARED.map(|policy| format!("{what} {}", policy.name()));
    let header = ["contenders".to_owned()]
        .into_iter()
        .chain(names)
        .chain(["go-1.14 / go-1.9".to_owned()])
        .chain(of_each("starving"))
        .chain(of_each("wait"))
        .chain(of_each("over 1 ms"));
    let mut table = Table::new(0, header);
    let mut worst = (f64::NAN, 0);
    for &n in numbers {
        let [old, new, _] = COMPARED.map(|policy| of(policy, n, |r| r.throughput));
        let ratio = new / old;
        if worst.0.is_nan() || ratio > worst.0 {
            worst = (ratio, n);
        }
        let rates = COMPARED.map(|policy| units::rate(of(policy, n, |r| r.throughput)));
        let starving = COMPARED.map(|policy| units::ratio(of(policy, n, |r| r.starving)));
        let waits = COMPARED.map(|policy| units::time(of(policy, n, |r| r.mean_wait_ns)));
        let long = COMPARED.map(|policy| units::ratio(of(policy, n, |r| r.long_waits)));
        let row = [n.to_string()].into_iter().chain(rates).chain([units::ratio(ratio)]);
        table.row(row.chain(starving).chain(waits).chain(long));
    }
    output.text(format_args!(
        "Go issue 33747 on {on}: each contender works for {:?}, {} of it under the mutex. At the start the mutex is \
         held for {:?}. From then on: the rounds of all contenders per second, the part of the time in which the \
         mutex is in starvation mode, the mean wait for the mutex, and the part of the waits that take more than a \
         millisecond; medians of {} runs of {:?}.\n\n{table}\n",
        args.cost, args.ratio, args.stall, args.runs, args.seconds
    ))?;
    output.text(format_args!(
        "With the yield at a handoff (1.14) there are at most {} times as many rounds as without (1.9), at {} \
         contenders.",
        units::ratio(worst.0),
        worst.1
    ))
}
