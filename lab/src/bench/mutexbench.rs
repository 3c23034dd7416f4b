//! Threads, or goroutines, that contend for one lock.

use std::path::Path;

use super::plan::Plan;
use super::summary::Summaries;
use crate::cli::MutexbenchArgs;
use crate::compose::LockSpec;
use crate::failure::Failure;
use crate::locks::LockName;
use crate::output::Output;
use crate::report::{Report, ReportFile};

/// Measures and prints; with a path, writes a report as well.
pub fn run(args: &MutexbenchArgs, report: Option<&Path>, output: Output) -> Result<(), Failure> {
    let usual: Vec<_> = LockName::usual().into_iter().map(LockSpec::Name).collect();
    let plan = Plan::new("mutexbench", &usual, args.locks.as_ref(), &args.threads, &args.effort, 0)?;
    let report = report.map(ReportFile::create).transpose()?;
    let progress = output.progress(plan.bench, plan.total());
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
