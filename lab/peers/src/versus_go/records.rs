//! The results of the runs: records, means, a table.

use std::fmt;

use serde::Serialize;

use super::benches::{Group, Name};
use super::reading::{Reading, Unit};
use crate::measure::metrics::{geometric_mean, is_bistable, median, worst};
use crate::output::failure::Failure;
use crate::output::table::Table;
use crate::output::{Output, units};

/// The result for a quantity of a benchmark.
#[derive(Clone, Serialize, Debug)]
pub struct QuantityRecord {
    bench: &'static str,
    /// The benchmark.
    pub name: Name,
    /// The name of the quantity. Empty for the time of an operation.
    quantity: String,
    unit: Unit,
    group: Group,
    workers: usize,
    runs: usize,
    /// The median over Go's runs; `None` if Go has no side.
    go: Option<f64>,
    /// The median over this library's runs.
    sudog: f64,
    /// `sudog` / `go`: below 1, this library is faster, or needs less.
    ratio: Option<f64>,
    go_runs: Vec<f64>,
    sudog_runs: Vec<f64>,
}

/// The mean of the ratios of a group, or of all groups.
#[derive(Clone, Serialize, Debug)]
pub struct Mean {
    bench: &'static str,
    group: &'static str,
    workers: usize,
    benches: usize,
    geometric_mean: f64,
}

impl fmt::Display for Mean {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { group, benches, .. } = self;
        let (at, ratio) = (workers(self.workers), units::ratio(self.geometric_mean));
        write!(f, "{group}, {at}: geometric mean of {benches} ratios {ratio}")
    }
}

pub fn records(
    command: &'static str,
    bench: Name,
    workers: usize,
    go: &[Reading],
    ours: &[Reading],
) -> Vec<QuantityRecord> {
    let quantities = ours.first().map(Reading::quantities).into_iter().flatten();
    let record = |(quantity, unit, _): (&str, Unit, f64)| {
        let (go_runs, sudog_runs) = (values(go, quantity), values(ours, quantity));
        let (go, sudog) = (median(go_runs.iter().copied()), median(sudog_runs.iter().copied()));
        QuantityRecord {
            bench: command,
            name: bench,
            quantity: quantity.to_owned(),
            unit,
            group: bench.group,
            workers,
            runs: ours.len(),
            go: (!go_runs.is_empty()).then_some(go),
            sudog,
            ratio: (!go_runs.is_empty() && unit.is_cost()).then_some(sudog / go),
            go_runs,
            sudog_runs,
        }
    };
    quantities.map(record).collect()
}

fn values(readings: &[Reading], quantity: &str) -> Vec<f64> {
    let of = |reading: &Reading| reading.quantities().find(|(name, ..)| *name == quantity).map(|(.., value)| value);
    readings.iter().filter_map(of).collect()
}

/// Returns a readable name of a benchmark's quantity.
fn label(name: &str, quantity: &str) -> String {
    if quantity.is_empty() { name.to_owned() } else { format!("{name}: {}", quantity.replace('_', " ")) }
}

fn workers(n: usize) -> String {
    format!("{n} worker{}", if n == 1 { "" } else { "s" })
}

/// Returns the means of all groups that have a mean, with each number of workers; and of all groups together, if there
/// are several.
pub fn means(records: &[QuantityRecord], workers: &[usize]) -> Vec<Mean> {
    let mean = |group: Option<Group>, workers: usize| {
        let of = |r: &&QuantityRecord| {
            r.quantity.is_empty() && r.workers == workers && group.is_none_or(|group| r.group == group)
        };
        let rated: Vec<_> = records.iter().filter(of).filter(|r| r.ratio.is_some()).collect();
        let several = rated.iter().any(|r| r.group != rated[0].group);
        let benches = rated.len();
        (benches > 1 && (group.is_some() || several)).then(|| {
            let geometric_mean = geometric_mean(rated.iter().filter_map(|r| r.ratio));
            Mean { bench: "versus-go-mean", group: group.map_or("all", Group::name), workers, benches, geometric_mean }
        })
    };
    let groups = Group::ALL.iter().copied().map(Some).chain([None]);
    groups.flat_map(|group| workers.iter().map(move |&n| (group, n))).filter_map(|(group, n)| mean(group, n)).collect()
}

/// Prints the names of our series, of whole operations, whose runs fall into two modes.
pub fn say_bistable(records: &[QuantityRecord], output: Output) -> Result<(), Failure> {
    let names = bistable(records);
    if names.is_empty() {
        return Ok(());
    }
    output.text(format_args!("bistable, a run is more than twice away from the median: {}", names.join(", ")))
}

fn bistable(records: &[QuantityRecord]) -> Vec<String> {
    let unstable = records.iter().filter(|r| r.quantity.is_empty() && is_bistable(&r.sudog_runs));
    unstable.map(|r| format!("{} ({})", r.name.name, workers(r.workers))).collect()
}

/// Returns a table of medians and worst runs, of both sides or of ours.
pub fn table(records: &[QuantityRecord], has_go: bool) -> Table {
    let header: &[&str] = match has_go {
        true => &["bench", "workers", "sudog", "worst run", "Go", "worst run", "ratio"],
        false => &["bench", "workers", "sudog", "worst run"],
    };
    let mut table = Table::new(1, header.iter().copied());
    for r in records {
        let show = |value: Option<f64>| value.map_or_else(|| units::NOTHING.to_owned(), |value| r.unit.show(value));
        let row = [
            label(r.name.name, &r.quantity),
            r.workers.to_string(),
            show(Some(r.sudog)),
            show(Some(worst(&r.sudog_runs))),
            show(r.go),
            show(r.go.map(|_| worst(&r.go_runs))),
            units::ratio(r.ratio.unwrap_or(f64::NAN)),
        ];
        table.row(row.into_iter().take(header.len()));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readings(lines: &[&str]) -> Vec<Reading> {
        lines.iter().map(|line| line.parse().unwrap()).collect()
    }

    fn some(bench: &str, workers: usize, go: &[&str], ours: &[&str]) -> Vec<QuantityRecord> {
        records("versus-go", bench.parse().unwrap(), workers, &readings(go), &readings(ours))
    }

    #[test]
    fn medians_and_their_ratio() {
        let go = ["PingPongHog 10 hog_share=0.5", "PingPongHog 30 hog_share=0.7", "PingPongHog 20 hog_share=0.6"];
        let ours = ["PingPongHog 7 hog_share=0.1", "PingPongHog 5 hog_share=0.3", "PingPongHog 4 hog_share=0.2"];
        let records = some("PingPongHog", 2, &go, &ours);
        assert_eq!(records.len(), 2);
        assert_eq!((records[0].go, records[0].sudog, records[0].ratio), (Some(20.0), 5.0, Some(0.25)));
        assert_eq!((records[1].go, records[1].sudog, records[1].ratio), (Some(0.6), 0.2, None));
        let table = table(&records, true).to_string();
        let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[1], ["PingPongHog", "2", "5", "ns", "7", "ns", "20", "ns", "30", "ns", "0.250"]);
        assert_eq!(rows[2], ["PingPongHog:", "hog", "share", "2", "0.200", "0.300", "0.600", "0.700", "-"]);
        assert!(bistable(&records).is_empty());
        let two_modes = some("XPing", 2, &[], &["XPing 2", "XPing 2", "XPing 100"]);
        assert_eq!(bistable(&two_modes), ["XPing (2 workers)"]);
    }

    #[test]
    fn without_go_there_is_no_ratio() {
        let records = some("Handoff", 1, &[], &["Handoff 100 waiter_share=1"]);
        assert!(records.iter().all(|r| r.go.is_none() && r.ratio.is_none() && r.go_runs.is_empty()));
    }

    #[test]
    fn a_mean_is_of_one_group_at_one_number_of_workers() {
        let all = [
            some("Mutex", 1, &["Mutex 1"], &["Mutex 2"]),
            some("MutexWork", 1, &["MutexWork 1"], &["MutexWork 8"]),
            some("Mutex", 2, &["Mutex 1"], &["Mutex 100"]),
            some("Imbalance", 1, &["Imbalance 1"], &["Imbalance 100"]),
            some("Million", 1, &["Million 1 first_ns=1"], &["Million 4 first_ns=1000"]),
        ];
        let means = means(&all.concat(), &[1, 2]);
        let of = |mean: &Mean| (mean.group, mean.workers, mean.benches);
        assert_eq!(means.iter().map(of).collect::<Vec<_>>(), [("sync", 1, 2), ("load", 1, 2), ("all", 1, 4)]);
        assert!((means[0].geometric_mean - 4.0).abs() < 1e-9 && (means[1].geometric_mean - 20.0).abs() < 1e-9);
        assert!((means[2].geometric_mean - 80.0_f64.sqrt()).abs() < 1e-9);
        assert_eq!(means[0].to_string(), "sync, 1 worker: geometric mean of 2 ratios 4.000");
    }
}
