//! Figure 1 of the paper, with the window beside the paper's curves: four curves for each inner lock.

use plotters::style::RGBColor;

use super::{Measured, mutexbench, platoon, window};
use crate::bench::page;
use crate::bench::summary::Summaries;
use crate::output::Output;
use crate::output::failure::Failure;
use crate::output::report::{Page, ReportFile, definitions, deliver, facts, figures, legend, table as html_table};
use crate::output::table::Table;
use crate::output::units;
use crate::study::capacitor::CapacitorArgs;
use crate::targets::compose::LockSpec;
use crate::targets::compose::name::{Admit, Wait};
use crate::targets::locks::LockName;

/// The part of the contenders that goes through the capacitor, drawn at random. The number is the paper's.
const THROUGH: f64 = 0.01;

const CONTENDERS: [usize; 6] = [1, 2, 4, 8, 16, 32];

/// A curve of each plot. The colours are the paper's, and another for the window.
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
        name: "platoon",
        about: "in the paper's capacitor: everybody goes through platoons",
        colour: RGBColor(0x1f, 0x86, 0xe0),
        of: |args, inner| platoon(inner, args.b, args.sema, Admit::Always),
    },
    Variant {
        name: "platoon, one in a hundred",
        about: "the same for one in a hundred, drawn at random; the others go past it, and nobody is bounded",
        colour: RGBColor(0xd6, 0x4f, 0xa8),
        of: |args, inner| platoon(inner, args.b, args.sema, Admit::Fractional(THROUGH)),
    },
    Variant {
        name: "window, gate",
        about: "behind the sliding window and the gate",
        colour: RGBColor(0x1d, 0x9a, 0x55),
        of: |args, inner| window(inner, args.b, Wait::Park, Admit::Gated),
    },
];

/// The locks of a plot: an inner lock, in each variant.
struct Family {
    inner: LockName,
    variants: [LockSpec; VARIANTS.len()],
}

/// Measures and prints; with a file, also writes a report.
pub fn run(args: &CapacitorArgs, locks: &[LockName], file: Option<ReportFile>, output: Output) -> Result<(), Failure> {
    let family = |&inner| Family { inner, variants: VARIANTS.map(|variant| (variant.of)(args, inner)) };
    let families: Vec<Family> = locks.iter().map(family).collect();
    let specs = families.iter().flat_map(|family| family.variants).collect();
    let Measured { plan, summaries, logged } = mutexbench("capacitor", args, locks, specs, &CONTENDERS, output)?;
    output.text(format_args!("{}; B = {}\n", plan.headline(), args.b))?;
    for family in &families {
        let inner = family.inner;
        output.text(format_args!("{}: {}\n{}\n", inner.name(), inner.about(), table(family, &summaries)))?;
    }
    if let Some(logged) = logged {
        output.text(format_args!("{logged}\n"))?;
    }
    for Variant { name, about, .. } in &VARIANTS {
        output.text(format_args!("{name}: {about}."))?;
    }
    for remark in summaries.remarks() {
        output.text(remark)?;
    }
    match file {
        None => Ok(()),
        Some(file) => write(args, &families, &summaries, file, output),
    }
}

/// Returns a table with a row for each number of contenders.
fn table(family: &Family, summaries: &Summaries) -> Table {
    let columns = VARIANTS.iter().flat_map(|variant| [variant.name, "min/max"]);
    let mut table = Table::new(0, ["T"].into_iter().chain(columns));
    for &threads in &summaries.threads {
        let cells = family.variants.iter().flat_map(|&variant| {
            let summary = summaries.get(variant.into(), threads);
            [units::rate(summary.throughput), units::ratio(summary.min_max)]
        });
        table.row([threads.to_string()].into_iter().chain(cells));
    }
    table
}

/// Writes the page: a plot for each inner lock, and the plot's figures below.
fn write(
    args: &CapacitorArgs,
    families: &[Family],
    summaries: &Summaries,
    file: ReportFile,
    output: Output,
) -> Result<(), Failure> {
    let mut html = Page::new(
        "Locks in capacitors",
        format!(
            "A capacitor bounds how often one who waits is overtaken, here {} times. Each plot is of one lock: its \
             throughput in solid lines, on the left, and how evenly it falls on the contenders in dotted ones, on the \
             right. Every figure is a median over runs in which those of one plot took turns.",
            args.b - 1
        ),
    );
    html.section("Where it was measured", facts(&summaries.on));
    html.section("The locks", legend(VARIANTS.iter().map(|variant| (variant.name, variant.about, variant.colour))));
    for family in families {
        let inner = family.inner;
        let curves = family.variants.map(Into::into).into_iter().zip(VARIANTS.iter().map(|variant| variant.colour));
        let plot = page::throughput_and_fairness(summaries, curves)?;
        html.section(inner.name(), figures([(inner.about(), plot)]));
        html.html(html_table(&table(family, summaries)));
    }
    for remark in summaries.remarks() {
        html.paragraph(&remark);
    }
    let meanings = VARIANTS.iter().map(|variant| (variant.name, variant.about)).chain([
        ("T", "how many contend"),
        ("min/max", "the acquisitions of the one that got the fewest over those of the one that got the most"),
    ]);
    html.section("What the columns mean", definitions(meanings));
    deliver(file, &html.render(), output)
}
