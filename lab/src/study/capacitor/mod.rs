//! The study of capacitors: the paper's figure, with this project's window beside the paper's curves; the cost of a
//! capacitor alone; and the influence of the bypass limit.
//!
//! | | measured on | how |
//! |---|---|---|
//! | [`figure`] | compositions by name | MutexBench over the number of contenders |
//! | [`sweep`] | the same | MutexBench over the bypass limit |
//! | [`tax`] | exact types, no other jumps than those of the lock | a single contender |
//!
//! Source: Dave Dice, *Capacitors*, figure 1.

mod figure;
mod sweep;
mod tax;

use crate::options::{EffortArgs, List, MAX_RUNS, MAX_THREADS, inner_locks, limit, number, numbers};
use crate::targets::compose::name::sema;
use clap::Args;
use std::time::Duration;

use crate::bench::plan::{Plan, keeps_others_out};
use crate::output::Output;
use crate::output::failure::Failure;
use crate::targets::compose::name::{Admit, Front, Recipe, Wait};
use crate::targets::locks::LockName;
use crate::targets::semaphores::SemaphoreName;
use crate::targets::target::Target;

#[derive(Args, Clone, Debug)]
#[command(allow_negative_numbers = true)]
pub struct CapacitorArgs {
    /// Inner locks, by name [default: reciprocating,ticket,lifo,mcs,tts; with --tax and --sweep clh, too]
    #[arg(long, value_name = "A,B", value_parser = inner_locks)]
    pub locks: Option<List<LockName>>,

    /// Numbers of contenders, threads or goroutines [default: 1,2,4,8,16,32; with --sweep 16]
    #[arg(long, value_name = "N,N", value_parser = numbers::<1, MAX_THREADS>)]
    pub threads: Option<List<usize>>,

    /// The bypass limit
    #[arg(long, value_name = "N", default_value = "4", value_parser = limit)]
    pub b: u32,

    /// Semaphore of platoons; the tax is always that of the benaphore
    #[arg(long, value_name = "NAME", default_value = "benaphore", value_parser = sema)]
    pub sema: SemaphoreName,

    /// Only the tax: the cost of a capacitor for a single contender
    #[arg(long, conflicts_with_all = NOT_OF_THE_TAX)]
    pub tax: bool,

    /// Only the sweep: bypass limits from 1 to 31
    #[arg(long, conflicts_with_all = NOT_OF_THE_SWEEP)]
    pub sweep: bool,

    /// Rounds of the tax, of about 20 ms for each lock, taking turns
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = number::<1, MAX_RUNS>)]
    pub rounds: usize,

    #[command(flatten)]
    pub effort: EffortArgs,
}

/// The options that the tax does not read: there is a single contender, a single lock, and the semaphore is always the
/// same.
const NOT_OF_THE_TAX: [&str; 10] =
    ["sweep", "threads", "sema", "seconds", "runs", "cs", "ncs", "sample", "ungathered", "metrics"];

/// The options that the sweep does not read.
const NOT_OF_THE_SWEEP: [&str; 2] = ["b", "rounds"];

/// The locks of the paper's figure, in its order.
const FIGURE: [LockName; 5] = [LockName::Reciprocating, LockName::Ticket, LockName::Lifo, LockName::Mcs, LockName::Tts];

/// Measures and prints.
pub fn run(args: &CapacitorArgs, output: Output) -> Result<(), Failure> {
    let locks = |usual: &[LockName]| args.locks.as_ref().map_or_else(|| usual.to_vec(), |list| list.0.clone());
    if args.sweep {
        return sweep::run(args, &locks(LockName::INNER), output);
    }
    if args.tax {
        return tax::run(args, &locks(LockName::INNER), output);
    }
    figure::run(args, &locks(&FIGURE), output)?;
    output.text("")?;
    tax::run(args, &locks(LockName::INNER), output)
}

/// Returns platoons before a lock.
pub(in crate::study) fn platoon(inner: LockName, limit: u32, sema: SemaphoreName, admit: Admit) -> Target {
    Target::Composed(Recipe { inner, limit, front: Front::Platoon { sema }, admit }.into())
}

/// Returns the window before a lock.
pub(in crate::study) fn window(inner: LockName, limit: u32, wait: Wait, admit: Admit) -> Target {
    Target::Composed(Recipe { inner, limit, front: Front::Window { wait }, admit }.into())
}

/// The usual length of a run. The figure takes a minute and a half, and the sweep a minute, with runs of this length.
const RUN: Duration = Duration::from_millis(200);

/// Returns the plan of MutexBench on `locks`, which are made of the locks `inner`. The default numbers of contenders are
/// `threads`.
fn plan(
    bench: &'static str,
    args: &CapacitorArgs,
    inner: &[LockName],
    locks: Vec<Target>,
    threads: &[usize],
) -> Result<Plan, Failure> {
    let threads = args.threads.clone().unwrap_or_else(|| List(threads.to_vec()));
    let locks = List(locks);
    let on = args.effort.on.contenders()?;
    let may = |inner: &LockName| on.may_contend_for((*inner).into());
    if let Some(&inner) = inner.iter().find(|inner| !may(inner)) {
        let able: Vec<_> = LockName::ALL.iter().filter(|lock| may(lock)).map(|&lock| lock.into()).collect();
        return Err(keeps_others_out(inner.into(), "inner locks for goroutines, with '--locks'", &able));
    }
    let mut plan = Plan::new(bench, &locks.0, Some(&locks), &threads, &args.effort, 0)?;
    plan.workload.duration = args.effort.seconds.unwrap_or(RUN);
    Ok(plan)
}
