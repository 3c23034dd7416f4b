//! The report page on contenders for locks, and its plots.

use super::summary::{Summaries, Summary};
use super::uncontended;

use crate::output::Output;
use crate::output::failure::Failure;
use crate::output::report::{Line, Page, Plot, ReportFile, Style, definitions, deliver, facts, figures, legend, table};
use crate::output::table::Table;
use crate::output::units;
use crate::targets::target::Target;

/// A quantity to plot.
#[derive(Clone, Copy)]
pub struct Quantity {
    pub axis: &'static str,
    /// Computes the quantity from a summary.
    pub of: fn(&Summary) -> f64,
    /// Formats a number on the axis.
    pub label: fn(f64) -> String,
    /// Makes the axis logarithmic if the values differ much. Values that are not above zero cannot be shown then.
    pub logarithmic: bool,
}

/// The meanings of the columns of the tables.
const COLUMNS: [(&str, &str); 10] = [
    ("alone", "lock and unlock, or acquire and release, by one contender alone: the median over the rounds"),
    ("T", "the number of contenders, threads or goroutines, each of which locks and unlocks in a loop"),
    ("throughput", "acquisitions per second of all contenders together. High is good"),
    (
        "min/max",
        "the fewest acquisitions of a contender over the most acquisitions of a contender. 1: all had equally many; \
         0: a contender had none. In a short run a fair lock can look unfair",
    ),
    (
        "Jain",
        "Jain's index of fairness. 1: all contenders had equally many acquisitions; 1/T: a single contender had all \
         of them",
    ),
    (
        "p50, p99, p99.9",
        "the wait, from the call of lock to its return, that half, 99 in 100 and 999 in 1000 acquisitions do not \
         exceed. Low is good. All waits of two milliseconds and more are timed, and a random sample of the others. If \
         a contender locks a thousand times in a row while another waits, a thousand short waits and one long wait \
         are counted: so look at the longest wait, too. Reading the clock takes a part of each wait",
    ),
    ("max wait", "the longest wait that was timed. All waits of two milliseconds and more are timed"),
    ("longest run", "the most acquisitions of one contender in a row while others waited"),
    ("max between", "the most acquisitions of other contenders between two acquisitions of the same contender"),
    ("geometric mean", "the geometric mean of the ratios in the row"),
];

pub const THROUGHPUT: Quantity =
    Quantity { axis: "acquisitions per second", of: |s| s.throughput, label: units::rate, logarithmic: true };

/// The fewest acquisitions of a contender over the most.
pub const FAIRNESS: Quantity =
    Quantity { axis: "min/max", of: |s| s.min_max, label: |share| format!("{share:.1}"), logarithmic: false };

const PLOTS: [(&str, Quantity); 4] = [
    ("Throughput", THROUGHPUT),
    ("Fairness", FAIRNESS),
    ("Long waits", Quantity { axis: "p99.9 wait", of: |s| s.p999, label: units::time, logarithmic: true }),
    ("The longest wait", Quantity { axis: "max wait", of: |s| s.max, label: units::time, logarithmic: true }),
];

/// Writes the page of `compare`, and prints the path of the page.
pub fn write(
    summaries: &Summaries,
    alone: &[uncontended::UncontendedRecord],
    file: ReportFile,
    output: Output,
) -> Result<(), Failure> {
    let mut page = Page::new(
        "Locks compared",
        "A lock can be fast because one contender keeps it, and fair because each contender sleeps before it has the \
         lock. So read throughput and fairness together. In the plots of throughput and fairness high is good; in the \
         plots of waits low is good. Each figure is the median of several runs, in which the locks took turns.",
    );
    page.section("Where it was measured", facts(&summaries.on));
    contended(&mut page, summaries);
    page.section("Alone", table(&self::alone(alone)));
    page.section("What the columns mean", definitions(COLUMNS));
    deliver(file, &page.render(), output)
}

fn contended(page: &mut Page, summaries: &Summaries) {
    let lines = lines(summaries);
    page.section("Contended", legend(lines.iter().map(|&(target, style)| (target.name(), target.about(), style))));
    let plots = |lines: &[(Target, Style)]| {
        figures(PLOTS.map(|(title, quantity)| {
            let named = lines.iter().map(|&(target, style)| (target, target.name(), style));
            (title, plot(summaries, named, quantity))
        }))
    };
    let few: Vec<_> = lines.iter().copied().filter(|&(target, _)| !summaries.is_variant(target)).collect();
    if few.len() == lines.len() {
        page.html(plots(&lines));
    } else {
        page.html(format_args!(
            "<input type=\"checkbox\" class=\"switch\" id=\"switch\"><label for=\"switch\">all {} lines, also of \
             variants</label>\n{}{}",
            lines.len(),
            plots(&few).replace("class=\"plots\"", "class=\"plots few\""),
            plots(&lines).replace("class=\"plots\"", "class=\"plots all\"")
        ));
    }
    page.section("Contended, in figures", table(&summaries.table()));
    if let Some((title, ratios)) = summaries.ratios() {
        page.paragraph(&title);
        page.html(table(&ratios));
    }
    for remark in summaries.remarks() {
        page.paragraph(&remark);
    }
}

/// Returns the targets with their styles. The first styles, which differ most, are for those that are no variants.
fn lines(summaries: &Summaries) -> Vec<(Target, Style)> {
    let mut targets = summaries.targets.clone();
    targets.sort_by_key(|&target| summaries.is_variant(target));
    targets.into_iter().zip((0..).map(Style::nth)).collect()
}

fn alone(records: &[uncontended::UncontendedRecord]) -> Table {
    let mut table = Table::new(2, ["lock", "", "alone", "ratio to the fastest usual mutex"]);
    for r in records {
        let ratio = units::ratio(r.ratio.unwrap_or(f64::NAN));
        table.row([r.target.name(), r.target.about(), &units::time(r.ns), &ratio]);
    }
    table
}

/// Returns a plot with a line for each of these targets, with these names and styles.
pub fn plot<'a>(
    summaries: &Summaries,
    targets: impl Iterator<Item = (Target, &'a str, Style)>,
    quantity: Quantity,
) -> String {
    let Quantity { axis, of, label, logarithmic } = quantity;
    let line = |(target, name, style): (Target, &str, Style)| {
        let points = summaries.of(target).map(|s| (s.threads as f64, of(s))).collect();
        Line { name: name.to_owned(), style, points, right: Vec::new() }
    };
    Plot { x: "contenders", y: axis, label, logarithmic, right: None, lines: targets.map(line).collect() }.svg()
}

/// Plots throughput in solid lines, on the left axis, and min/max in dotted lines, on the right axis, for these targets
/// in these styles.
pub fn throughput_and_fairness(summaries: &Summaries, targets: impl Iterator<Item = (Target, Style)>) -> String {
    let line = |(target, style): (Target, Style)| {
        let points = |of: fn(&Summary) -> f64| summaries.of(target).map(|s| (s.threads as f64, of(s))).collect();
        Line { name: target.name().to_owned(), style, points: points(|s| s.throughput), right: points(|s| s.min_max) }
    };
    Plot {
        x: "contenders",
        y: THROUGHPUT.axis,
        label: units::rate,
        logarithmic: true,
        right: Some("min/max"),
        lines: targets.map(line).collect(),
    }
    .svg()
}
