//! Summaries of many runs: medians, and ratios to the best peer and to the floor.

use std::fmt;

use serde::Serialize;

use super::NAME;
use super::benches::{BenchName, Family};
use super::contestant::Role;
use crate::measure::metrics::{geometric_mean, median};
use crate::output::table::Table;
use crate::output::units;

/// The runs of a benchmark with a number of threads.
#[derive(Debug)]
pub struct Cell {
    pub bench: BenchName,
    pub threads: usize,
    /// Nanoseconds an operation, of each contestant in each run.
    pub times: Vec<Vec<f64>>,
    pub other_cpus: Option<f64>,
}

#[derive(Clone, Serialize, Debug)]
pub struct ContestantRecord {
    bench: &'static str,
    /// The benchmark.
    pub name: BenchName,
    /// The family of the benchmark.
    pub family: Family,
    pub contestant: &'static str,
    /// The role of the contestant in the comparison.
    pub role: Role,
    pub threads: usize,
    runs: usize,
    /// Nanoseconds an operation, of all threads together: the median over the runs.
    pub ns: f64,
    /// The best run.
    pub ns_min: f64,
    /// `ns` over the `ns` of the fastest peer; `None` if there is no peer.
    pub peer_ratio: Option<f64>,
    /// `ns` over the `ns` of the floor; `None` if there is no floor.
    pub floor_ratio: Option<f64>,
    /// The number of processors that other processes used meanwhile.
    pub other_cpus: Option<f64>,
}

/// The geometric mean over the benchmarks of a family that have a peer.
#[derive(Clone, Serialize, Debug)]
pub struct Mean {
    bench: &'static str,
    family: Family,
    contestant: &'static str,
    threads: usize,
    benches: usize,
    peer_ratio: f64,
}

impl Cell {
    pub fn records(&self) -> Vec<ContestantRecord> {
        let medians: Vec<f64> = self.times.iter().map(|times| median(times.iter().copied())).collect();
        let contestants = &self.bench.contestants;
        let fastest = |role: Role| {
            let those = contestants.iter().zip(&medians).filter(|(contestant, _)| contestant.role == role);
            those.map(|(_, &ns)| ns).reduce(f64::min)
        };
        let (peer, floor) = (fastest(Role::Peer), fastest(Role::Floor));
        let record =
            |((contestant, times), &ns): ((&super::contestant::Contestant, &Vec<f64>), &f64)| ContestantRecord {
                bench: NAME,
                name: self.bench,
                family: self.bench.family,
                contestant: contestant.name,
                role: contestant.role,
                threads: self.threads,
                runs: times.len(),
                ns,
                ns_min: times.iter().copied().fold(f64::INFINITY, f64::min),
                peer_ratio: peer.map(|peer| ns / peer),
                floor_ratio: floor.map(|floor| ns / floor),
                other_cpus: self.other_cpus,
            };
        contestants.iter().zip(&self.times).zip(&medians).map(record).collect()
    }
}

/// Returns the contestants of some records, each of them once: ours first, then peers, then floors, and otherwise in
/// the order in which they first appear.
fn contestants<'a>(records: impl Iterator<Item = &'a ContestantRecord>) -> Vec<(&'static str, Role)> {
    let mut all = Vec::new();
    for record in records {
        let contestant = (record.contestant, record.role);
        if !all.contains(&contestant) {
            all.push(contestant);
        }
    }
    all.sort_by_key(|&(_, role)| role as u8);
    all
}

type RatioOf = fn(&ContestantRecord) -> Option<f64>;

/// Returns a table for each family, with a line for each benchmark and number of threads.
pub fn tables(records: &[ContestantRecord]) -> impl Iterator<Item = (Family, Table)> {
    Family::ALL.into_iter().filter_map(|family| {
        let of_family = || records.iter().filter(move |record| record.family == family);
        of_family().next()?;
        let contestants = contestants(of_family());
        let ours = || contestants.iter().filter(|(_, role)| *role == Role::Ours).map(|&(name, _)| name);
        let has = |ratio: RatioOf| of_family().any(|record| ratio(record).is_some());
        let ratios: [(&str, RatioOf); 2] = [("x", |r| r.peer_ratio), ("/floor", |r| r.floor_ratio)];
        let ratios: Vec<_> = ratios.into_iter().filter(|&(_, ratio)| has(ratio)).collect();
        let names = contestants.iter().map(|(name, _)| (*name).to_owned());
        let columns = ratios.iter().flat_map(|(what, _)| ours().map(move |name| format!("{name} {what}")));
        let mut table = Table::new(1, ["bench", "T"].map(str::to_owned).into_iter().chain(names).chain(columns));
        let mut lines: Vec<_> = of_family().map(|record| (record.name, record.threads)).collect();
        lines.dedup();
        for (bench, threads) in lines {
            let find = |contestant: &str| {
                let ours =
                    |r: &&ContestantRecord| r.name == bench && r.threads == threads && r.contestant == contestant;
                of_family().find(ours)
            };
            let times = contestants.iter().map(|(name, _)| units::time(find(name).map_or(f64::NAN, |r| r.ns)));
            let ratios = ratios.iter().flat_map(|&(_, ratio)| {
                ours().map(move |name| units::ratio(find(name).and_then(ratio).unwrap_or(f64::NAN)))
            });
            table.row([bench.name.to_owned(), threads.to_string()].into_iter().chain(times).chain(ratios));
        }
        Some((family, table))
    })
}

/// Returns the means of each of our contestants, by family and number of threads.
pub fn means(records: &[ContestantRecord]) -> Vec<Mean> {
    let mut means: Vec<Mean> = Vec::new();
    for first in records.iter().filter(|record| record.role == Role::Ours) {
        let alike = |r: &&ContestantRecord| {
            (r.family, r.contestant, r.threads) == (first.family, first.contestant, first.threads)
        };
        let ratios: Vec<f64> = records.iter().filter(alike).filter_map(|record| record.peer_ratio).collect();
        let known = |mean: &Mean| {
            (mean.family, mean.contestant, mean.threads) == (first.family, first.contestant, first.threads)
        };
        if ratios.is_empty() || means.iter().any(known) {
            continue;
        }
        means.push(Mean {
            bench: "syncbench-mean",
            family: first.family,
            contestant: first.contestant,
            threads: first.threads,
            benches: ratios.len(),
            peer_ratio: geometric_mean(ratios.iter().copied()),
        });
    }
    means
}

impl fmt::Display for Mean {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { family, contestant, threads, benches, peer_ratio, .. } = self;
        let ratio = units::ratio(*peer_ratio);
        write!(
            f,
            "{family:?}, {contestant} with T={threads}: {ratio} times the fastest peer, the geometric mean of {benches}."
        )
    }
}
