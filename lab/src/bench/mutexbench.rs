//! The command `mutexbench`: threads or goroutines that contend for a lock.

use crate::options::{EffortArgs, List, MAX_THREADS, list, numbers};
use clap::Args;
use std::path::Path;

use super::plan::Plan;
use super::summary::Summaries;

use super::page::Report;
use crate::output::Output;
use crate::output::failure::Failure;
use crate::output::report::ReportFile;
use crate::targets::compose::LockSpec;
use crate::targets::locks::LockName;

/// Options of `mutexbench`.
#[derive(Args, Clone, Debug)]
#[command(allow_negative_numbers = true)] // so that the complaint is about the number
pub struct MutexbenchArgs {
    /// Locks, by name, or composed: see 'list' [default: all but those for study: stages, old policies, small locks]
    #[arg(long, value_name = "A,B", value_parser = list::<LockSpec>)]
    pub locks: Option<List<LockSpec>>,

    /// Numbers of contenders, threads or goroutines
    #[arg(long, value_name = "N,N", default_value = "1,2,4,16,64", value_parser = numbers::<1, MAX_THREADS>)]
    pub threads: List<usize>,

    /// Options that several commands have.
    #[command(flatten)]
    pub effort: EffortArgs,
}

/// Runs `mutexbench`: measures and prints; with a path, writes a report as well.
pub fn run(args: &MutexbenchArgs, report: Option<&Path>, output: Output) -> Result<(), Failure> {
    let usual: Vec<_> = LockName::usual().into_iter().map(LockSpec::Name).collect();
    let plan = Plan::new("mutexbench", &usual, args.locks.as_ref(), &args.threads, &args.effort, 0)?;
    let report = report.map(ReportFile::create).transpose()?;
    let progress = plan.progress(output);
    let records = plan.measure(output, &progress)?;
    progress.finish_and_clear();
    let summaries = Summaries::new(&plan, &records);
    output.text(format_args!("{}\n\n{}\n", plan.headline(), summaries.table()))?;
    if let Some((title, ratios)) = summaries.ratios() {
        output.text(format_args!("{title}\n{ratios}\n"))?;
    }
    if let Some(logged) = plan.logged_runs(summaries.kind(), &records) {
        output.text(format_args!("{logged}\n"))?;
    }
    for remark in summaries.remarks() {
        output.text(remark)?;
    }
    match report {
        None => Ok(()),
        Some(file) => {
            Report { contended: &summaries, overview: None, uncontended: &[], semtable: &[] }.write(file, output)
        }
    }
}
