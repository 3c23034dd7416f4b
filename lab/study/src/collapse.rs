//! Go issue 33747 on simulated processors: the story of [`history`](super::history), without its staging.
//!
//! Here each contender can have a processor, so work outside the mutex is work, and not the sleep of a worker. The
//! contenders come as in the benchmark: a round takes 354 microseconds, a hundredth of which is under the
//! mutex. Once in starvation mode, the mutex stays in that mode if each waiter waits for a millisecond in any case: if
//! n contenders are queued, and a handover takes more than 1 ms / n.

use std::time::Duration;

use clap::Args;

use super::history::collapse::Cases;
use crate::options::{List, MAX_RUNS, MAX_THREADS, OnArgs, duration, number, numbers, seconds};
use crate::output::Output;
use crate::output::failure::Failure;
use crate::run::machine;
use crate::targets::policies::PolicyName;

#[derive(Args, Clone, Debug)]
#[command(allow_negative_numbers = true)]
pub struct CollapseArgs {
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

    #[command(flatten)]
    pub on: OnArgs,
}

/// Runs the policies of 1.9 and of 1.14, and the default, which goroutines and threads have in this project.
pub fn run(args: &CollapseArgs, output: Output) -> Result<(), Failure> {
    let cases = Cases {
        bench: "collapse",
        on: args.on.contenders()?,
        policies: &[PolicyName::Go1_9, PolicyName::Go1_14, PolicyName::Threads],
        cost: Duration::from_micros(354),
        stall: args.stall,
        contenders: &args.contenders.0,
        duration: args.seconds,
        runs: args.runs,
        work_outside: machine::work,
    };
    cases.tell(output)
}
