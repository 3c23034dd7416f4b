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

use super::plan::{Plan, keeps_others_out};
use super::summary::Summaries;
use crate::cli::{CapacitorArgs, List};
use crate::compose::name::{Admit, Front, Recipe, Wait};
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
    figure::run(args, &locks(&FIGURE), report, output)?;
    output.text("")?;
    tax::run(args, &locks(UNBOXED), output)
}

/// Platoons before a lock.
fn platoon(inner: LockName, limit: u32, sema: SemaphoreName, admit: Admit) -> LockSpec {
    LockSpec::Composed(Recipe { inner, limit, front: Front::Platoon { sema }, admit }.into())
}

/// The window before a lock.
fn window(inner: LockName, limit: u32, admit: Admit) -> LockSpec {
    LockSpec::Composed(Recipe { inner, limit, front: Front::Window { wait: Wait::Park }, admit }.into())
}

/// What came of MutexBench.
struct Measured {
    plan: Plan,
    summaries: Summaries,
    /// What is to be said of the logged runs, if there were any.
    logged: Option<String>,
}

/// MutexBench on these, which take turns, with so many contenders unless it is said. They are made of inner locks.
fn mutexbench(
    bench: &'static str,
    args: &CapacitorArgs,
    inner: &[LockName],
    locks: Vec<LockSpec>,
    threads: &[usize],
    output: Output,
) -> Result<Measured, Failure> {
    let threads = args.threads.clone().unwrap_or_else(|| List(threads.to_vec()));
    let locks = List(locks);
    let on = args.effort.on.contenders()?;
    let may = |inner: &LockName| on.may_contend_for((*inner).into());
    if let Some(&inner) = inner.iter().find(|inner| !may(inner)) {
        let able: Vec<_> = LockName::ALL.iter().filter(|lock| may(lock)).map(|&lock| lock.into()).collect();
        return Err(keeps_others_out(inner.into(), "inner locks for goroutines, with '--locks'", &able));
    }
    let plan = Plan::new(bench, &locks.0, Some(&locks), &threads, &args.effort, 0)?;
    let progress: ProgressBar = output.progress(plan.bench, plan.total());
    let records = plan.measure(output, &progress)?;
    progress.finish_and_clear();
    let summaries = Summaries::new(&plan, &records);
    let logged = plan.logged_runs(summaries.kind(), &records);
    Ok(Measured { plan, summaries, logged })
}
