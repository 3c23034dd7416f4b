//! The text about logged runs: two tables, of the order and of the times, and the meanings of their columns.

use std::fmt::Write as _;

use crate::measure::admissions::Metrics;
use crate::measure::log;
use crate::measure::metrics::median;
use crate::output::Output;
use crate::output::failure::Failure;
use crate::output::table::Table;
use crate::output::units;

/// A column: the name, the quantity of a run, and the function that writes the median over the runs.
type Column = (&'static str, fn(&Metrics) -> Option<f64>, fn(f64) -> String);

const ORDER: &[Column] = &[
    ("logged", |m| Some(m.acquisitions as f64), units::count),
    ("bypass p99", |m| Some(m.bypass?.p99 as f64), units::count),
    ("bypass max", |m| Some(m.bypass?.max as f64), units::count),
    ("windows", |m| Some(m.windows?.windows as f64), units::count),
    ("min/max worst", |m| Some(m.windows?.min_max_worst), units::ratio),
    ("mid", |m| Some(m.windows?.min_max_median), units::ratio),
    ("LWSS", |m| m.short_term?.lwss, units::count),
    ("MTTR", |m| m.short_term?.mttr, units::count),
    ("longest run", |m| Some(m.short_term?.longest_run as f64), units::count),
];

const TIMES: &[Column] = &[
    ("dead", |m| Some(m.handover?.dead_time), units::ratio),
    ("handover p50", |m| ns(m.handover?.handover_p50_ns), units::time),
    ("p99", |m| ns(m.handover?.handover_p99_ns), units::time),
    ("max", |m| ns(m.handover?.handover_max_ns), units::time),
    ("wait p50", |m| ns(Some(m.waits?.p50_ns)), units::time),
    ("p99", |m| ns(Some(m.waits?.p99_ns)), units::time),
    ("p99.9", |m| ns(Some(m.waits?.p999_ns)), units::time),
    ("max", |m| ns(Some(m.waits?.max_ns)), units::time),
    ("Jain hold", |m| Some(m.holds.hold_jain), units::ratio),
    ("LOT", |m| m.holds.lot_jain, units::ratio),
    ("sleeps", |m| m.wakeups.sleeps_per_acquisition, fraction),
    ("futile", |m| m.wakeups.futile_wakeups_per_acquisition, fraction),
];

const ABOUT: &str = "\
logged: the admissions in a logged run. A logged run follows each run above, and is slower, as it reads the clock at each
step. In a logged run contenders start together, where the target admits one at a time; their first waits count from there.
bypass: the admissions of others that asked later and came first. An upper bound: a contender is queued a little after it
asks.
min/max: of the shares in a window of admissions (64 for each contender); the worst window, the median.
windows: the number of windows. The worst of many windows is worse than the worst of few.
LWSS: the different contenders in 1000 admissions (4 for each, if that is more), on average; first come, first served: T.
MTTR: the admissions from one of a contender to its next one, median; first come, first served: T.
longest run: the most admissions of one contender in a row.
dead: the part of the time in which the lock was free and a contender wanted it, with the clock and the lock's own steps.
handover: from the beginning of a release, while another contender waited, to the next entry. wait: from request to entry.
Jain hold: Jain's index of the times inside. LOT: of the lock opportunity times: inside, or while the lock was free.
sleeps, futile: per acquisition. futile: the sleeps after the first one in a wait, each after a wake-up in vain.
A lock in which a contender waits in two places, a capacitor and then the inner lock, may sleep twice without such a wake-up.";

fn ns(ns: Option<u64>) -> Option<f64> {
    ns.map(|ns| ns as f64)
}

/// Formats a fraction that may be small.
fn fraction(x: f64) -> String {
    if x.is_finite() { format!("{x:.4}") } else { units::NOTHING.into() }
}

/// Prints both tables, and the remarks on the runs, if there were logged runs. Each run comes with the labels of its cell,
/// which fill the first columns of the row.
pub fn print<'a>(
    labels: &[&str],
    runs: impl Iterator<Item = (Vec<String>, Option<&'a Metrics>)>,
    output: Output,
) -> Result<(), Failure> {
    text(labels, runs).map_or(Ok(()), |text| output.text(format_args!("{text}\n")))
}

/// The labels of a cell, and the logged runs of the cell.
type Row<'a> = (Vec<String>, Vec<&'a Metrics>);

fn text<'a>(labels: &[&str], cells: impl Iterator<Item = (Vec<String>, Option<&'a Metrics>)>) -> Option<String> {
    let mut rows: Vec<Row<'a>> = Vec::new();
    for (labels, metrics) in cells.filter_map(|(labels, metrics)| Some((labels, metrics?))) {
        match rows.iter_mut().find(|(of, _)| *of == labels) {
            Some((_, runs)) => runs.push(metrics),
            None => rows.push((labels, vec![metrics])),
        }
    }
    let runs: Vec<&Metrics> = rows.iter().flat_map(|(_, runs)| runs.iter().copied()).collect();
    runs.first()?;
    let mut text = format!("{}\n\n{}\n\n{ABOUT}", table(labels, &rows, ORDER), table(labels, &rows, TIMES));
    let mut remark = |line: std::fmt::Arguments<'_>| {
        let _ = write!(text, "\n{line}");
    };
    if runs.iter().any(|m| m.short_term.is_none()) {
        remark(format_args!(
            "Where several contenders may be inside at once, there is no order of admissions, and the metrics that need an \
             order are missing."
        ));
    }
    let full = runs.iter().filter(|m| m.log_full).count();
    if full > 0 {
        remark(format_args!(
            "{full} of {} logged runs ended early, because the log was full: the log holds {} admissions.",
            runs.len(),
            units::count(log::MOST as f64)
        ));
    }
    let conflicts: u64 = runs.iter().filter_map(|m| m.handover).map(|handover| handover.clock_conflicts).sum();
    if conflicts > 0 {
        remark(format_args!(
            "The clocks of the processors disagree: {conflicts} entries have an earlier time than the release before \
             them."
        ));
    }
    Some(text)
}

/// Returns a table with the medians over the runs of each row.
fn table(labels: &[&str], rows: &[Row<'_>], columns: &[Column]) -> Table {
    let mut table = Table::new(1, labels.iter().copied().chain(columns.iter().map(|&(name, ..)| name)));
    for (labels, runs) in rows {
        let cell = |&(_, of, write): &Column| write(median(runs.iter().filter_map(|m| of(m))));
        table.row(labels.iter().cloned().chain(columns.iter().map(cell)));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::admissions::{Admission, AdmissionHistory, Logged, Wakeups};

    fn metrics(in_order: bool, log_full: bool) -> Metrics {
        let turn = |(contender, at)| Admission { contender, request: at, entry: at + 1, release: at + 2 };
        let admissions = [(0, 0), (1, 10)].map(turn).to_vec();
        let history = AdmissionHistory { contenders: 2, admissions, in_order, pending: Vec::new(), elapsed: 20 };
        Metrics::new(Logged { history, log_full, wakeups: Wakeups::default() })
    }

    fn printed(runs: &[(&str, Option<&Metrics>)]) -> Option<String> {
        text(&["lock", "T"], runs.iter().map(|&(lock, metrics)| (vec![lock.into(), "2".into()], metrics)))
    }

    #[test]
    fn a_row_has_what_there_is() {
        let [ordered, unordered] = [metrics(true, false), metrics(false, true)];
        let text = printed(&[("x", Some(&ordered)), ("y", None)]).unwrap();
        let line = text.lines().nth(1).unwrap();
        let cells: Vec<_> = line.split_whitespace().collect();
        assert_eq!(cells, ["x", "2", "2", "0", "0", "-", "-", "-", "-", "-", "1"]);
        assert!(!text.contains("several contenders may be inside") && !text.contains("log was full"), "{text}");

        let text = printed(&[("x", Some(&ordered)), ("y", Some(&unordered))]).unwrap();
        assert!(
            text.contains("several contenders may be inside") && text.contains("1 of 2 logged runs ended"),
            "{text}"
        );
        let cells: Vec<_> = text.lines().nth(2).unwrap().split_whitespace().collect();
        assert_eq!(cells, ["y", "2", "2", "-", "-", "-", "-", "-", "-", "-", "-"]);
    }

    #[test]
    fn without_logged_runs_nothing_is_said() {
        assert_eq!(printed(&[("x", None)]), None);
    }
}
