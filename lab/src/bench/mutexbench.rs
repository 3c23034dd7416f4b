//! The command `mutexbench`: threads or goroutines that contend for a lock.

use crate::options::{EffortArgs, List, MAX_THREADS, list, numbers};
use clap::Args;

use super::plan::Plan;
use super::summary::Summaries;

use crate::output::Output;
use crate::output::failure::Failure;
use crate::targets::locks::LockName;
use crate::targets::target::Target;

#[derive(Args, Clone, Debug)]
#[command(allow_negative_numbers = true)] // so that the complaint is about the number
pub struct MutexbenchArgs {
    /// Locks, by name, or composed: see 'list' [default: all but those for study: stages, old policies, small locks]
    #[arg(long, value_name = "A,B", value_parser = list::<Target>)]
    pub locks: Option<List<Target>>,

    /// Numbers of contenders, threads or goroutines
    #[arg(long, value_name = "N,N", default_value = "1,2,4,16,64", value_parser = numbers::<1, MAX_THREADS>)]
    pub threads: List<usize>,

    #[command(flatten)]
    pub effort: EffortArgs,
}

/// Runs `mutexbench`: measures and prints.
pub fn run(args: &MutexbenchArgs, output: Output) -> Result<(), Failure> {
    let usual: Vec<_> = LockName::usual().into_iter().map(Target::Lock).collect();
    let plan = Plan::new("mutexbench", &usual, args.locks.as_ref(), &args.threads, &args.effort, 0)?;
    let progress = plan.progress(output, plan.total());
    let records = plan.measure(output, &progress)?;
    progress.finish_and_clear();
    let summaries = Summaries::new(&plan, &records);
    output.text(format_args!("{}\n\n{}\n", plan.headline(), summaries.table()))?;
    if let Some((title, ratios)) = summaries.ratios() {
        output.text(format_args!("{title}\n{ratios}\n"))?;
    }
    plan.print_logged_runs(summaries.kind(), &records, output)?;
    summaries.remarks().try_for_each(|remark| output.text(remark))
}
