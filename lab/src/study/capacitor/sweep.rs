//! The sweep of the bypass limit, from 1 to the most that a window can have: of platoons, and of the window.

use super::{plan, platoon, window};
use crate::bench::summary::Summaries;
use crate::output::Output;
use crate::output::failure::Failure;
use crate::output::table::Table;
use crate::output::units;
use crate::study::capacitor::CapacitorArgs;
use crate::targets::compose::name::{Admit, Wait};
use crate::targets::locks::LockName;
use crate::targets::target::Target;

const LIMITS: [u32; 10] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 31];

/// The front ends of the sweep. No contender passes a gate, as the sweep is about the limit.
const FRONTS: [fn(&CapacitorArgs, LockName, u32) -> Target; 2] = [
    |args, inner, limit| platoon(inner, limit, args.sema, Admit::Always),
    |_, inner, limit| window(inner, limit, Wait::Park, Admit::Always),
];

/// Measures and prints.
pub fn run(args: &CapacitorArgs, locks: &[LockName], output: Output) -> Result<(), Failure> {
    let of = |inner| LIMITS.map(|limit| FRONTS.map(|front| front(args, inner, limit)));
    let all: Vec<_> = locks.iter().map(|&inner| of(inner)).collect();
    let specs = all.iter().flatten().flatten().copied().collect();
    let plan = plan("capacitor-sweep", args, locks, specs, &[16])?;
    output.text(format_args!("{}\n", plan.headline()))?;
    let progress = plan.progress(output, plan.total());
    let records = plan.measure(output, &progress)?;
    progress.finish_and_clear();
    let summaries = Summaries::new(&plan, &records);
    for (inner, by_limit) in locks.iter().zip(&all) {
        for &threads in &summaries.threads {
            let columns = ["platoon", "min/max", "p99.9", "window", "min/max", "p99.9"];
            let mut table = Table::new(0, ["B"].into_iter().chain(columns));
            for (limit, fronts) in LIMITS.iter().zip(by_limit) {
                let cells = fronts.iter().flat_map(|&front| {
                    let summary = summaries.get(front, threads);
                    [units::rate(summary.throughput), units::ratio(summary.min_max), units::time(summary.p999)]
                });
                table.row([limit.to_string()].into_iter().chain(cells));
            }
            output.text(format_args!("{}, T={threads}: {}\n{table}\n", inner.name(), inner.about()))?;
        }
    }
    plan.print_logged_runs(summaries.kind(), &records, output)?;
    output.text("min/max: the smallest share over the largest. p99.9: the wait that 999 in 1000 do not exceed.")?;
    summaries.remarks().try_for_each(|remark| output.text(remark))
}
