//! The report page on contenders for locks or semaphores.

use super::summary::{Summaries, Summary};
use super::{semtable, uncontended};
use plotters::style::RGBColor;

use crate::output::Output;
use crate::output::failure::Failure;
use crate::output::report::{
    Curve, Curves, Page, ReportFile, TwoCurves, TwoScales, colours, definitions, deliver, facts, figures, legend, table,
};
use crate::output::table::Table;
use crate::output::units;
use crate::targets::floors::FloorName;
use crate::targets::target::Target;

/// The results for a report. A result that was not measured is empty, and has no section.
#[derive(Clone, Copy, Debug)]
pub struct Report<'a> {
    /// The results with contention.
    pub contended: &'a Summaries,
    /// All results in a single table.
    pub overview: Option<&'a Table>,
    /// The results without contention.
    pub uncontended: &'a [uncontended::UncontendedRecord],
    /// The results on the queue of the semaphore table.
    pub semtable: &'a [semtable::CaseRecord],
}

impl Report<'_> {
    /// Writes the page, and prints the path of the page.
    pub fn write(&self, file: ReportFile, output: Output) -> Result<(), Failure> {
        deliver(file, &page(self)?, output)
    }
}

/// A quantity to plot.
#[derive(Clone, Copy)]
pub struct Quantity {
    /// The text of the axis.
    pub axis: &'static str,
    /// Computes the quantity from a summary.
    pub of: fn(&Summary) -> f64,
    /// Formats a number on the axis.
    pub label: fn(f64) -> String,
    /// Makes the axis logarithmic: values that are not above zero cannot be shown then.
    pub logarithmic: bool,
}

/// The meanings of the columns of the tables.
const COLUMNS: [(&str, &str); 11] = [
    ("alone", "lock and unlock, or acquire and release, by one contender alone: the median over the rounds"),
    (
        "T",
        "how many contend, threads or goroutines, each in a loop; more of them than processors, or than \
         workers, is more than fits",
    ),
    ("throughput", "acquisitions per second, of all together. More is better"),
    (
        "min/max",
        "the acquisitions of the one that got the fewest over those of the one that got the most: 1 is even, 0 is one \
         that never got in. Over a short run a lock that is fair in the long run can look uneven",
    ),
    (
        "Jain",
        "Jain's index of fairness: the part of all that, sharing evenly, would make as uneven a whole. 1 is even, 1/T is \
         one that had everything",
    ),
    (
        "p50, p99, p99.9",
        "the wait from request to entry that half, 99 in 100, 999 in 1000 acquisitions do not exceed. Less is better. Of \
         short waits a random sample is timed; those of about two milliseconds and more are all counted. Each acquisition \
         counts as one: one that gets in a thousand times running waits a thousand times for nothing, and whoever \
         waits for it waits once. So read them together with the longest wait. None is shorter than it takes to read the \
         clock",
    ),
    ("max wait", "the longest wait that was seen; of the short ones, only those in the sample are"),
    ("longest run", "the most acquisitions in a row by one contender while others wanted the lock too"),
    (
        "max between",
        "the most acquisitions by others between two of one contender: how often it was overtaken, as long as all do \
         nothing but want the lock, and have processors",
    ),
    ("geometric mean", "of the ratios in the row"),
    (
        "queue + dequeue",
        "a waiter put into the queue of one bucket of the semaphore table, with n in it, and taken out again. A queue \
         that looks at every waiter would grow by 4 from n to 4n",
    ),
];

/// The meanings of the columns of semabench.
const OVERVIEW: [(&str, &str); 7] = [
    ("x floor", "alone, over two-rmws"),
    (FloorName::TwoRmws.name(), FloorName::TwoRmws.about()),
    (
        FloorName::Handover.name(),
        "a turn that is handed round: each contender sleeps until its turn comes, and has it once a round. What is first \
         come, first served, with more contenders than processors, cannot do better, but for those who are awake when \
         their turn comes",
    ),
    ("geomean", "of the throughputs with more than one contender"),
    ("FIFO", "waiters are served in order; a newcomer may come first"),
    (
        "max bypass waiting",
        "the most acquisitions by others between a request and its entry, of all waits of two milliseconds and more, and of \
         a sample of the others. First come, first served allows T - 1; more than that came while the contender was on its \
         way to its place in line and without a processor",
    ),
    (
        "overtaken",
        "of all acquisitions by others during waits, the part that is beyond T - 1 in one. First come, first served: nearly \
         0. One that has it n times running while all others wait: 1 - 1/n",
    ),
];

const PLOTS: [(&str, Quantity); 3] = [
    (
        "Throughput",
        Quantity { axis: "acquisitions per second", of: |s| s.throughput, label: units::rate, logarithmic: true },
    ),
    (
        "Fairness",
        Quantity { axis: "min/max", of: |s| s.min_max, label: |share| format!("{share:.1}"), logarithmic: false },
    ),
    ("Long waits", Quantity { axis: "p99.9 wait", of: |s| s.p999, label: units::time, logarithmic: true }),
];

/// Returns the whole page.
pub fn page(report: &Report<'_>) -> Result<String, Failure> {
    let kind = report.contended.kind();
    let mut page = Page::new(
        format!("{}s compared", capitalised(kind)),
        format!(
            "A {kind} that is fast because one contender keeps it is of no use to the others, and one that is fair because \
             it is handed from sleeper to sleeper is of no use at all. So read throughput and fairness together: in \
             the first plot high is good, in the second high is good, in the third low is good. Every figure is a median \
             over runs in which the {kind}s took turns."
        ),
    );
    page.section("Where it was measured", facts(&report.contended.on));
    contended(&mut page, report)?;
    if let Some(overview) = report.overview {
        page.section("All in one table", table(overview));
    }
    if !report.uncontended.is_empty() {
        page.section("Alone", table(&alone(report)));
    }
    if !report.semtable.is_empty() {
        page.section("The queue of the semaphore table", table(&semtable::table(report.semtable)));
    }
    let of_overview = report.overview.map(|_| OVERVIEW);
    let columns = COLUMNS.into_iter().chain(of_overview.into_iter().flatten());
    page.section("What the columns mean", definitions(columns));
    Ok(page.render())
}

fn contended(page: &mut Page, report: &Report<'_>) -> Result<(), Failure> {
    let summaries = report.contended;
    let targets = summaries.targets.iter().zip(colours(&summaries.targets));
    page.section("Contended", legend(targets.map(|(target, colour)| (target.name(), target.about(), colour))));
    let plots: Result<Vec<_>, Failure> =
        PLOTS.into_iter().map(|(title, quantity)| Ok((title, plot(summaries, quantity)?))).collect();
    page.html(figures(plots?));
    page.section("Contended, in figures", table(&summaries.table()));
    if let Some((title, ratios)) = summaries.ratios() {
        page.paragraph(&title);
        page.html(table(&ratios));
    }
    for remark in summaries.remarks() {
        page.paragraph(&remark);
    }
    Ok(())
}

fn alone(report: &Report<'_>) -> Table {
    let mut table = Table::new(2, ["lock", "", "alone", "ratio to the fastest usual mutex"]);
    for r in report.uncontended {
        let ratio = units::ratio(r.ratio.unwrap_or(f64::NAN));
        table.row([r.target.name(), r.target.about(), &units::time(r.ns), &ratio]);
    }
    table
}

/// Returns the word with a capital letter.
fn capitalised(word: &str) -> String {
    let (first, rest) = word.split_at(word.len().min(1));
    first.to_uppercase() + rest
}

/// Returns a plot with a curve for each target.
pub fn plot(summaries: &Summaries, quantity: Quantity) -> Result<String, Failure> {
    curves(summaries, summaries.targets.iter().copied().zip(colours(&summaries.targets)), quantity)
}

/// Returns a plot with a curve for each of these targets, in these colours.
pub fn curves(
    summaries: &Summaries,
    targets: impl Iterator<Item = (Target, RGBColor)>,
    quantity: Quantity,
) -> Result<String, Failure> {
    let curve = |(target, colour)| {
        let ours = summaries.all.iter().filter(|s| s.target == target);
        Curve { colour, points: ours.map(|s| (s.threads as f64, (quantity.of)(s))).collect() }
    };
    Curves {
        x: "contenders",
        base: 2.0,
        y: quantity.axis,
        label: quantity.label,
        logarithmic: quantity.logarithmic,
        curves: targets.map(curve).collect(),
    }
    .svg()
}

/// Plots throughput in solid lines, on the left axis, and min/max in dotted lines, on the right axis, for these targets
/// in these colours.
pub fn throughput_and_fairness(
    summaries: &Summaries,
    targets: impl Iterator<Item = (Target, RGBColor)>,
) -> Result<String, Failure> {
    let curves = targets.map(|(target, colour)| {
        let medians = || summaries.threads.iter().map(|&threads| summaries.get(target, threads));
        let points = |of: fn(&Summary) -> f64| medians().map(|s| (s.threads as f64, of(s))).collect();
        TwoCurves { colour, left: points(|s| s.throughput), right: points(|s| s.min_max) }
    });
    TwoScales {
        x: "contenders",
        left: "acquisitions per second",
        label: units::rate,
        right: "min/max",
        curves: curves.collect(),
    }
    .svg()
}
