//! Two stories of the Go mutex, told again with the policies of that time.
//!
//! | story | problem | change in Go |
//! |---|---|---|
//! | [`hog`]: Go issue 13086 | a goroutine that holds the mutex for long and locks it again at once keeps others out for seconds | 1.9: starvation mode |
//! | [`collapse`]: Go issue 33747 | with starvation mode, many contenders can bring the mutex to a crawl that feeds itself | 1.14: the unlocking goroutine yields |

pub mod collapse;
mod hog;

use crate::measure::usage::Counts;
use crate::options::{List, MAX_RUNS, MAX_THREADS, OnArgs, duration, number, numbers, seconds, some_time};
use crate::output::Output;
use crate::output::failure::Failure;
use crate::run::contenders::Contenders;
use crate::targets::policies::PolicyName;
use clap::{Args, ValueEnum};
use std::time::Duration;
use sudog_runtime::shim::system::thread;

use self::collapse::Cases;

/// The number of simulated processors of the collapse: the effect is visible with so many.
const PROCESSORS: usize = 8;

/// A story of [`HistoryArgs`].
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
pub enum StoryName {
    /// Go issue 13086.
    Hog,
    /// Go issue 33747.
    Collapse,
}

#[derive(Args, Clone, Debug)]
#[command(allow_negative_numbers = true)]
pub struct HistoryArgs {
    /// A single story: hog (issue 13086) or collapse (issue 33747) [default: both]
    #[arg(long, value_name = "STORY")]
    pub story: Option<StoryName>,

    /// The hog: time after which the victim is given up
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = some_time)]
    pub limit: Duration,

    /// The collapse: time for which a contender holds the mutex at the start
    #[arg(long, value_name = "TIME", default_value = "5ms", value_parser = duration)]
    pub stall: Duration,

    /// The collapse: numbers of contenders
    #[arg(long, value_name = "N,N", default_value = "8,32,64,128,256", value_parser = numbers::<1, MAX_THREADS>)]
    pub contenders: List<usize>,

    /// The collapse: length of a run
    #[arg(long, value_name = "S", default_value = "0.3", value_parser = seconds)]
    pub seconds: Duration,

    /// Runs of each case, taking turns
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = number::<1, MAX_RUNS>)]
    pub runs: usize,

    #[command(flatten)]
    pub on: OnArgs,
}

/// Tells the stories that were asked for.
pub fn run(args: &HistoryArgs, output: Output) -> Result<(), Failure> {
    let on = args.on.contenders()?;
    let tells = |story| args.story.is_none_or(|only| only == story);
    if tells(StoryName::Collapse) && args.on.workers == Some(1) {
        return Err(Failure::Usage(
            "on one worker goroutines that only compute do not contend: nothing interrupts them".into(),
        ));
    }
    let counts = Counts::now();
    if tells(StoryName::Hog) {
        hog::tell(args, on, output)?;
    }
    if tells(StoryName::Collapse) {
        let cases = Cases {
            bench: "history",
            on: on_workers(args, on, PROCESSORS)?,
            policies: &[PolicyName::Go1_8, PolicyName::Go1_9, PolicyName::Go1_14, PolicyName::Threads],
            cost: Duration::from_millis(1),
            stall: args.stall,
            contenders: &args.contenders.0,
            duration: args.seconds,
            runs: args.runs,
            work_outside: thread::sleep,
        };
        cases.tell(output)?;
    }
    counts.warning().map_or(Ok(()), |warning| output.text(warning))
}

/// Returns goroutines on as many workers as were asked for, or by default on as many as the story needs. Threads stay
/// as they are.
fn on_workers(args: &HistoryArgs, on: Contenders, workers: usize) -> Result<Contenders, Failure> {
    match on {
        Contenders::Threads | Contenders::PinnedThreads => Ok(on),
        #[cfg(unix)]
        Contenders::Goroutines { .. } => {
            Contenders::goroutines(Some(args.on.workers.unwrap_or(workers))).map_err(Failure::Usage)
        }
    }
}
