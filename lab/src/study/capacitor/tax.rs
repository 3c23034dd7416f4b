//! The cost of a capacitor for a single contender.
//!
//! A jump is a good part of a few nanoseconds, so the types are exact here: the compiled code is that which a user of
//! the library would have. An inner lock that is not in [`LockName::INNER`] is in a box, bare as well as wrapped.

use crossbeam_utils::CachePadded;
use serde::Serialize;
use sudog_locks::capacitor::{Always, ArriveDepart, Gated, Platoon, SlidingWindow, Wrapped};
use sudog_locks::spin_lock::{Clh, Lifo, Mcs, Reciprocating, TicketLock, Tts};
use sudog_locks::waiting_array::Benaphore;
use sudog_sync::RawLock;

use crate::bench::uncontended::ROUND;
use crate::measure::metrics::median;
use crate::output::Output;
use crate::output::failure::Failure;
use crate::output::table::Table;
use crate::output::units;
use crate::run::contenders::Contenders;
use crate::run::driver::pairs;
use crate::run::lockable::Locked;
use crate::study::capacitor::CapacitorArgs;
use crate::targets::compose::DynLock;
use crate::targets::compose::name::{Admit, Wait};
use crate::targets::locks::LockName;
use crate::targets::semaphores::SemaphoreName;
use crate::targets::target::Target;

/// The capacitor before the lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Variant {
    Bare,
    Platoon,
    PlatoonGated,
    Window,
    WindowGated,
}

const VARIANTS: [Variant; 5] =
    [Variant::Bare, Variant::Platoon, Variant::PlatoonGated, Variant::Window, Variant::WindowGated];

impl Variant {
    /// Returns the name of the lock with this capacitor.
    fn spec(self, inner: LockName, limit: u32) -> Target {
        match self {
            Self::Bare => Target::Lock(inner),
            Self::Platoon => super::platoon(inner, limit, SemaphoreName::Benaphore, Admit::Always),
            Self::PlatoonGated => super::platoon(inner, limit, SemaphoreName::Benaphore, Admit::Gated),
            Self::Window => super::window(inner, limit, Wait::Park, Admit::Always),
            Self::WindowGated => super::window(inner, limit, Wait::Park, Admit::Gated),
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Self::Bare => "bare",
            Self::Platoon => "platoon",
            Self::PlatoonGated => "platoon, gate",
            Self::Window => "window",
            Self::WindowGated => "window, gate",
        }
    }
}

/// Returns the nanoseconds of a pair of lock and unlock, of the lock of a name behind a capacitor.
fn round(inner: LockName, variant: Variant, limit: u32) -> f64 {
    match inner {
        LockName::Reciprocating => round_of(<Reciprocating>::new(), variant, limit),
        LockName::Ticket => round_of(<TicketLock>::new(), variant, limit),
        LockName::Lifo => round_of(<Lifo>::new(), variant, limit),
        LockName::Mcs => round_of(<Mcs>::new(), variant, limit),
        LockName::Clh => round_of(<Clh>::new(), variant, limit),
        LockName::Tts => round_of(<Tts>::new(), variant, limit),
        _ => round_of(DynLock::of(inner), variant, limit),
    }
}

fn round_of<L: RawLock + 'static>(inner: L, variant: Variant, limit: u32) -> f64 {
    fn of<L: RawLock + 'static>(lock: L) -> f64 {
        pairs(&*CachePadded::new(Locked(lock)), ROUND)
    }

    match variant {
        Variant::Bare => of(inner),
        Variant::Platoon => of(Wrapped::with(inner, Platoon::<Benaphore>::with_limit(limit), Always)),
        Variant::PlatoonGated => of(Wrapped::with(inner, Platoon::<Benaphore>::with_limit(limit), Gated)),
        Variant::Window => of(Wrapped::with(inner, SlidingWindow::new(limit), Always)),
        Variant::WindowGated => of(Wrapped::with(inner, SlidingWindow::new(limit), Gated)),
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
                times.push(on.alone(move || round(inner, variant, limit)));
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
                target: variant.spec(inner, args.b),
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
