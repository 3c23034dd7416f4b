//! Figure 1 of the paper, with the window beside the paper's curves: four curves for each inner lock.

use super::{plan, platoon, window};
use crate::bench::plan::Plan;
use crate::bench::summary::Summaries;
use crate::output::Output;
use crate::output::failure::Failure;
use crate::output::table::Table;
use crate::output::units;
use crate::study::capacitor::CapacitorArgs;
use crate::targets::compose::name::{Admit, Wait};
use crate::targets::locks::LockName;
use crate::targets::target::Target;

/// The part of the contenders that goes through the capacitor, drawn at random. The number is the paper's.
const THROUGH: f64 = 0.01;

const CONTENDERS: [usize; 6] = [1, 2, 4, 8, 16, 32];

/// A curve of each plot.
struct Variant {
    name: &'static str,
    about: &'static str,
    of: fn(&CapacitorArgs, LockName) -> Target,
}

const VARIANTS: [Variant; 4] = [
    Variant { name: "bare", about: "the inner lock alone", of: |_, inner| Target::Lock(inner) },
    Variant {
        name: "platoon",
        about: "in the paper's capacitor: all contenders go through platoons",
        of: |args, inner| platoon(inner, args.b, args.sema, Admit::Always),
    },
    Variant {
        name: "platoon, one in a hundred",
        about: "the same for one contender in a hundred, drawn at random; the others bypass the capacitor, so there is no bound",
        of: |args, inner| platoon(inner, args.b, args.sema, Admit::Fractional(THROUGH)),
    },
    Variant {
        name: "window, gate",
        about: "behind the sliding window and the gate",
        of: |args, inner| window(inner, args.b, Wait::Park, Admit::Gated),
    },
];

/// The locks of a plot: an inner lock, in each variant.
struct Family {
    inner: LockName,
    variants: [Target; VARIANTS.len()],
}

/// Measures and prints. The variants of a lock take turns, and are printed before the next lock is measured.
pub fn run(args: &CapacitorArgs, locks: &[LockName], output: Output) -> Result<(), Failure> {
    let family = |&inner| Family { inner, variants: VARIANTS.map(|variant| (variant.of)(args, inner)) };
    let families: Vec<Family> = locks.iter().map(family).collect();
    let specs = families.iter().flat_map(|family| family.variants).collect();
    let plan = plan("capacitor", args, locks, specs, &CONTENDERS)?;
    output.text(format_args!("{}; B = {}\n", plan.headline(), args.b))?;
    let progress = plan.progress(output, plan.total());
    let mut records = Vec::new();
    for family in &families {
        let inner = family.inner;
        let plan = Plan { targets: family.variants.to_vec(), ..plan.clone() };
        let measured = plan.measure(output, &progress)?;
        let table = table(family, &Summaries::new(&plan, &measured));
        progress.suspend(|| output.text(format_args!("{}: {}\n{table}\n", inner.name(), inner.about())))?;
        records.extend(measured);
    }
    progress.finish_and_clear();
    let summaries = Summaries::new(&plan, &records);
    plan.print_logged_runs(summaries.kind(), &records, output)?;
    for Variant { name, about, .. } in &VARIANTS {
        output.text(format_args!("{name}: {about}."))?;
    }
    summaries.remarks().try_for_each(|remark| output.text(remark))
}

/// Returns a table with a row for each number of contenders.
fn table(family: &Family, summaries: &Summaries) -> Table {
    let columns = VARIANTS.iter().flat_map(|variant| [variant.name, "min/max"]);
    let mut table = Table::new(0, ["T"].into_iter().chain(columns));
    for &threads in &summaries.threads {
        let cells = family.variants.iter().flat_map(|&variant| {
            let summary = summaries.get(variant, threads);
            [units::rate(summary.throughput), units::ratio(summary.min_max)]
        });
        table.row([threads.to_string()].into_iter().chain(cells));
    }
    table
}
