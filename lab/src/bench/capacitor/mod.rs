//! What capacitors do to locks: the paper's figure, and what is ours beside it; what they cost alone; and how much
//! depends on the bypass limit.
//!
//! | | measured on | how |
//! |---|---|---|
//! | [`figure`] | compositions by name | MutexBench over the number of contenders |
//! | [`sweep`] | the same | MutexBench over the bypass limit |
//! | [`tax`] | exact types, no other jumps than those of the lock | one contender |
//!
//! Source: Dave Dice, *Capacitors*, figure 1.

mod figure;
mod sweep;
mod tax;

use std::path::Path;

use indicatif::ProgressBar;

use super::plan::Plan;
use super::summary::Summaries;
use crate::cli::{CapacitorArgs, List};
use crate::compose::name::{Admit, Front, Recipe};
use crate::compose::{LockSpec, UNBOXED};
use crate::failure::Failure;
use crate::locks::LockName;
use crate::output::Output;
use crate::report::ReportFile;
use crate::semaphores::SemaphoreName;

/// Those of the paper's figure, in its order.
const FIGURE: [LockName; 5] = [LockName::Reciprocating, LockName::Ticket, LockName::Lifo, LockName::Mcs, LockName::Tts];

/// Measures and prints; with a path, writes a report as well.
pub fn run(args: &CapacitorArgs, report: Option<&Path>, output: Output) -> Result<(), Failure> {
    let locks = |usual: &[LockName]| args.locks.as_ref().map_or_else(|| usual.to_vec(), |list| list.0.clone());
    if report.is_some() && (args.tax || args.sweep) {
        return Err(Failure::Usage("the report is of the figure: without '--tax' and '--sweep'".into()));
    }
    if args.sweep {
        return sweep::run(args, &locks(UNBOXED), output);
    }
    if args.tax {
        return tax::run(args, &locks(UNBOXED), output);
    }
    let report = report.map(ReportFile::create).transpose()?;
    let summaries = figure::run(args, &locks(&FIGURE), output)?;
    if let Some(file) = report {
        figure::write(args, &locks(&FIGURE), &summaries, file, output)?;
    }
    output.text("")?;
    tax::run(args, &locks(UNBOXED), output)
}

/// Platoons before a lock.
fn platoon(inner: LockName, limit: u32, sema: SemaphoreName, admit: Admit) -> LockSpec {
    LockSpec::Composed(Recipe { inner, limit, front: Front::Platoon { sema }, admit }.into())
}

/// The window before a lock.
fn window(inner: LockName, limit: u32, admit: Admit) -> LockSpec {
    LockSpec::Composed(Recipe { inner, limit, front: Front::Window, admit }.into())
}

/// MutexBench on these, which take turns, with so many contenders unless it is said.
fn mutexbench(
    bench: &'static str,
    args: &CapacitorArgs,
    locks: Vec<LockSpec>,
    threads: &[usize],
    output: Output,
) -> Result<(Plan, Summaries), Failure> {
    let threads = args.threads.clone().unwrap_or_else(|| List(threads.to_vec()));
    let locks = List(locks);
    if args.effort.metrics {
        return Err(Failure::Usage("'--metrics' is mutexbench's: it takes the same names of locks".into()));
    }
    let mut plan = Plan::new(bench, &locks.0, Some(&locks), &threads, &args.effort, 0)?;
    // Shares are what it is about, and at each handover somebody sleeps: see there.
    plan.workload.gathered = true;
    let progress: ProgressBar = output.progress(plan.bench, plan.total());
    let records = plan.measure(output, &progress)?;
    progress.finish_and_clear();
    let summaries = Summaries::new(&plan, &records);
    Ok((plan, summaries))
}
