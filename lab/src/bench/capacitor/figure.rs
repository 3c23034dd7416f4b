//! Figure 1 of the paper, with the window beside it: four curves for each inner lock.

use plotters::style::RGBColor;

use super::{mutexbench, platoon, window};
use crate::bench::summary::{Summaries, Summary};
use crate::cli::CapacitorArgs;
use crate::compose::LockSpec;
use crate::compose::name::Admit;
use crate::failure::Failure;
use crate::locks::LockName;
use crate::output::Output;
use crate::report::{
    Page, ReportFile, TwoCurves, TwoScales, definitions, deliver, facts, figures, legend, table as html_table,
};
use crate::table::Table;
use crate::units;

/// The paper's, and a part that it leaves to chance.
const THROUGH: f64 = 0.01;

const CONTENDERS: [usize; 6] = [1, 2, 4, 8, 16, 32];

/// A curve of each plot: the paper's colours, and one for ours.
struct Variant {
    name: &'static str,
    about: &'static str,
    colour: RGBColor,
    of: fn(&CapacitorArgs, LockName) -> LockSpec,
}

const VARIANTS: [Variant; 4] = [
    Variant {
        name: "bare",
        about: "the inner lock alone",
        colour: RGBColor(0xe0, 0x3b, 0x3b),
        of: |_, inner| LockSpec::Name(inner),
    },
    Variant {
        name: "capacitor",
        about: "in the paper's capacitor: everybody goes through platoons",
        colour: RGBColor(0x1f, 0x86, 0xe0),
        of: |args, inner| platoon(inner, args.b, args.sema, Admit::Always),
    },
    Variant {
        name: "fractional",
        about: "the same for one in a hundred, drawn at random; the others go past it, and nobody is bounded",
        colour: RGBColor(0xd6, 0x4f, 0xa8),
        of: |args, inner| platoon(inner, args.b, args.sema, Admit::Fractional(THROUGH)),
    },
    Variant {
        name: "sliding",
        about: "behind the sliding window and the gate",
        colour: RGBColor(0x1d, 0x9a, 0x55),
        of: |args, inner| window(inner, args.b, Admit::Gated),
    },
];

/// Measures and prints.
pub fn run(args: &CapacitorArgs, locks: &[LockName], output: Output) -> Result<Summaries, Failure> {
    let specs = locks.iter().flat_map(|&inner| VARIANTS.iter().map(move |variant| (variant.of)(args, inner)));
    let (plan, summaries) = mutexbench("capacitor", args, specs.collect(), &CONTENDERS, output)?;
    output.text(format_args!("{}; B = {}\n", plan.headline(), args.b))?;
    for &inner in locks {
        output.text(format_args!("{}: {}\n{}\n", inner.name(), inner.about(), table(args, inner, &summaries)))?;
    }
    for Variant { name, about, .. } in &VARIANTS {
        output.text(format_args!("{name}: {about}."))?;
    }
    for remark in summaries.remarks() {
        output.text(remark)?;
    }
    Ok(summaries)
}

/// The medians of one curve.
fn curve<'a>(
    args: &CapacitorArgs,
    inner: LockName,
    variant: &Variant,
    summaries: &'a Summaries,
) -> impl Iterator<Item = &'a Summary> {
    let subject = (variant.of)(args, inner).into();
    summaries.threads.iter().map(move |&threads| summaries.get(subject, threads))
}

/// A row for each number of contenders.
fn table(args: &CapacitorArgs, inner: LockName, summaries: &Summaries) -> Table {
    let columns = VARIANTS.iter().flat_map(|variant| [variant.name, "min/max"]);
    let mut table = Table::new(0, ["T"].into_iter().chain(columns));
    for &threads in &summaries.threads {
        let cells = VARIANTS.iter().flat_map(|variant| {
            let summary = summaries.get((variant.of)(args, inner).into(), threads);
            [units::rate(summary.throughput), units::ratio(summary.min_max)]
        });
        table.row([threads.to_string()].into_iter().chain(cells));
    }
    table
}

/// Writes the page: a plot for each inner lock, and its figures below.
pub fn write(
    args: &CapacitorArgs,
    locks: &[LockName],
    summaries: &Summaries,
    file: ReportFile,
    output: Output,
) -> Result<(), Failure> {
    let mut page = Page::new(
        "Locks in capacitors",
        format!(
            "A capacitor bounds how often one who waits is overtaken, here {} times. Each plot is of one lock: its \
             throughput in solid lines, on the left, and how evenly it falls on the contenders in dotted ones, on the \
             right. Every figure is a median over runs in which those of one plot took turns.",
            args.b - 1
        ),
    );
    page.section("Where it was measured", facts(&summaries.on));
    page.section("The locks", legend(VARIANTS.iter().map(|variant| (variant.name, variant.about, variant.colour))));
    for &inner in locks {
        let curves = VARIANTS.iter().map(|variant| {
            let points = |of: fn(&Summary) -> f64| {
                curve(args, inner, variant, summaries)
                    .map(move |summary| (summary.threads as f64, of(summary)))
                    .collect()
            };
            TwoCurves { colour: variant.colour, left: points(|s| s.throughput), right: points(|s| s.min_max) }
        });
        let plot = TwoScales {
            x: "contenders",
            left: "acquisitions per second",
            label: units::rate,
            right: "min/max",
            curves: curves.collect(),
        };
        page.section(inner.name(), figures([(inner.about(), plot.svg()?)]));
        page.html(html_table(&table(args, inner, summaries)));
    }
    for remark in summaries.remarks() {
        page.paragraph(&remark);
    }
    let meanings = VARIANTS.iter().map(|variant| (variant.name, variant.about)).chain([
        ("T", "how many contend"),
        ("min/max", "the acquisitions of the one that got the fewest over those of the one that got the most"),
    ]);
    page.section("What the columns mean", definitions(meanings));
    deliver(file, &page.render(), output)
}
