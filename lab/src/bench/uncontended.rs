//! The command `uncontended`: a single thread or goroutine that locks and unlocks, or acquires and releases.

use crate::options::{List, MAX_RUNS, OnArgs, list, number};
use clap::Args;
use std::time::Duration;

use indicatif::ProgressBar;
use serde::Serialize;

use crate::measure::metrics::median;
use crate::output::Output;
use crate::output::failure::Failure;
use crate::output::table::Table;
use crate::output::units;
use crate::run::contenders::Contenders;
use crate::run::driver::{Run, Workload};
use crate::targets::compose::remark_on_price;
use crate::targets::locks::LockName;
use crate::targets::target::Target;

#[derive(Args, Clone, Debug)]
#[command(allow_negative_numbers = true)]
pub struct UncontendedArgs {
    /// Locks, by name, or composed: see 'list' [default: all but those for study: stages, old policies, small locks]
    #[arg(long, value_name = "A,B", value_parser = list::<Target>)]
    pub locks: Option<List<Target>>,

    /// Rounds of about 20 ms for each lock, the locks taking turns
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = number::<1, MAX_RUNS>)]
    pub rounds: usize,

    #[command(flatten)]
    pub on: OnArgs,
}

/// The time for which each target is measured in a round.
pub const ROUND: Duration = Duration::from_millis(20);

/// The locks that others are compared with: the usual locks, by their usual release.
pub const PEERS: [Target; 3] =
    [Target::Lock(LockName::Std), Target::Lock(LockName::ParkingLot012), Target::Lock(LockName::ParkingLot013)];

/// The result of a target.
#[derive(Clone, Serialize, Debug)]
pub struct UncontendedRecord {
    bench: &'static str,
    /// The target that was measured.
    #[serde(flatten)]
    pub target: Target,
    #[serde(flatten)]
    on: Contenders,
    rounds: usize,
    /// The nanoseconds of a pair of lock and unlock, or acquire and release: the median over the rounds.
    pub ns: f64,
    /// The best round.
    pub ns_min: f64,
    /// `ns` over the `ns` of the fastest reference; `None` if no reference was measured.
    pub ratio: Option<f64>,
}

/// Measures the targets, taking turns. The ratios are to the fastest of `references`.
pub fn measure(
    on: Contenders,
    targets: &[Target],
    references: &[Target],
    rounds: usize,
    output: Output,
    progress: &ProgressBar,
) -> Result<Vec<UncontendedRecord>, Failure> {
    let alone = Run { on, threads: 1, workload: Workload::USUAL };
    let mut times = vec![Vec::with_capacity(rounds); targets.len()];
    for _ in 0..rounds {
        for (&target, times) in targets.iter().zip(&mut times) {
            times.push(on.alone(move || alone.prepare(target).pairs(ROUND)));
            progress.inc(1);
        }
    }
    let medians: Vec<f64> = times.iter().map(|times| median(times.iter().copied())).collect();
    let fastest = targets
        .iter()
        .zip(&medians)
        .filter(|(target, _)| references.contains(target))
        .map(|(_, &ns)| ns)
        .reduce(f64::min);
    let mut records = Vec::with_capacity(targets.len());
    for ((&target, times), ns) in targets.iter().zip(&times).zip(medians) {
        let ns_min = times.iter().copied().fold(f64::INFINITY, f64::min);
        let ratio = fastest.map(|fastest| ns / fastest);
        let record = UncontendedRecord { bench: "uncontended", target, on, rounds, ns, ns_min, ratio };
        output.record(&record)?;
        records.push(record);
    }
    Ok(records)
}

/// Runs `uncontended`: measures and prints.
pub fn run(args: &UncontendedArgs, output: Output) -> Result<(), Failure> {
    let on = args.on.contenders()?;
    // Goroutines may use every lock here, as no contender waits.
    let locks: Vec<Target> = match &args.locks {
        None => LockName::usual().into_iter().map(Target::from).collect(),
        Some(List(locks)) => locks.clone(),
    };
    output.estimate("uncontended", ROUND * (args.rounds * locks.len()) as u32);
    let progress = output.progress("uncontended", args.rounds * locks.len());
    let records = measure(on, &locks, &PEERS, args.rounds, output, &progress)?;
    progress.finish_and_clear();
    let mut table = Table::new(1, ["lock", "lock + unlock", "best round", "ratio"]);
    for r in &records {
        let ratio = units::ratio(r.ratio.unwrap_or(f64::NAN));
        table.row([r.target.name(), &units::time(r.ns), &units::time(r.ns_min), &ratio]);
    }
    output.text(format_args!("uncontended on {on}: medians of {} rounds of {ROUND:?}\n\n{table}\n", args.rounds))?;
    output.text("ratio: to the fastest of std, parking_lot_0_12 and parking_lot_0_13.")?;
    remark_on_price(locks).map_or(Ok(()), |remark| output.text(remark))
}
