//! The cost of a capacitor for a single contender. The measured loops are in [`sudog_lab_study::capacitor_tax`].

use serde::Serialize;
use sudog_lab_study::capacitor_tax::{VARIANTS, Variant};

use crate::bench::uncontended::ROUND;
use crate::measure::metrics::median;
use crate::output::Output;
use crate::output::failure::Failure;
use crate::output::table::Table;
use crate::output::units;
use crate::run::contenders::Contenders;
use crate::study::capacitor::CapacitorArgs;
use crate::targets::compose::name::{Admit, Wait};
use crate::targets::locks::LockName;
use crate::targets::semaphores::SemaphoreName;
use crate::targets::target::Target;

/// Returns the name of the lock behind a capacitor.
fn spec(variant: Variant, inner: LockName, limit: u32) -> Target {
    match variant {
        Variant::Bare => Target::Lock(inner),
        Variant::Platoon => super::platoon(inner, limit, SemaphoreName::Benaphore, Admit::Always),
        Variant::PlatoonGated => super::platoon(inner, limit, SemaphoreName::Benaphore, Admit::Gated),
        Variant::Window => super::window(inner, limit, Wait::Park, Admit::Always),
        Variant::WindowGated => super::window(inner, limit, Wait::Park, Admit::Gated),
    }
}

/// The record of a lock.
#[derive(Serialize)]
struct TaxRecord {
    bench: &'static str,
    #[serde(flatten)]
    target: Target,
    inner: LockName,
    /// True if the types are those that a user would have; false if the inner lock is in a box.
    exact: bool,
    #[serde(flatten)]
    on: Contenders,
    rounds: usize,
    /// The nanoseconds of a pair of lock and unlock: the median over the rounds.
    ns: f64,
    ns_min: f64,
    /// The quotient of `ns` and the `ns` of the inner lock alone.
    ratio: f64,
}

/// Measures and prints.
pub fn run(args: &CapacitorArgs, locks: &[LockName], output: Output) -> Result<(), Failure> {
    let on = args.effort.on.contenders()?;
    let rounds = args.rounds * locks.len() * VARIANTS.len();
    output.estimate("capacitor: the tax", ROUND * rounds as u32);
    let progress = output.progress("capacitor: the tax", rounds);
    let mut times = vec![[const { Vec::new() }; VARIANTS.len()]; locks.len()];
    for _ in 0..args.rounds {
        for (&inner, times) in locks.iter().zip(&mut times) {
            for (variant, times) in VARIANTS.into_iter().zip(times) {
                let limit = args.b;
                times.push(on.alone(move || variant.pairs(inner, limit, ROUND)));
                progress.inc(1);
            }
        }
    }
    progress.finish_and_clear();

    let titles = VARIANTS.iter().flat_map(|variant| match variant {
        Variant::Bare => vec![variant.title()],
        _ => vec![variant.title(), "/ bare"],
    });
    let mut table = Table::new(1, ["lock"].into_iter().chain(titles));
    for (&inner, times) in locks.iter().zip(&times) {
        let [bare, ..] = times;
        let bare = median(bare.iter().copied());
        let mut row = vec![inner.name().to_owned()];
        for (variant, times) in VARIANTS.into_iter().zip(times) {
            let ns = median(times.iter().copied());
            row.push(units::time(ns));
            if variant != Variant::Bare {
                row.push(units::ratio(ns / bare));
            }
            output.record(&TaxRecord {
                bench: "capacitor-tax",
                target: spec(variant, inner, args.b),
                inner,
                exact: LockName::INNER.contains(&inner),
                on,
                rounds: args.rounds,
                ns,
                ns_min: times.iter().copied().fold(f64::INFINITY, f64::min),
                ratio: ns / bare,
            })?;
        }
        table.row(row);
    }
    output.text(format_args!(
        "The tax, alone on {on}: lock and unlock, medians of {} rounds of {ROUND:?}; B = {}\n\n{table}\n",
        args.rounds, args.b
    ))?;
    output.text(
        "platoon: all contenders go through platoons over the benaphore. window: all go through the sliding \
                 window.",
    )?;
    output.text("gate: a contender that finds no other contender bypasses the capacitor.")?;
    let boxed: Vec<_> =
        locks.iter().filter(|inner| !LockName::INNER.contains(inner)).map(|inner| inner.name()).collect();
    if boxed.is_empty() {
        Ok(())
    } else {
        output.text(format_args!("In a box, also without a capacitor: {}.", boxed.join(", ")))
    }
}
