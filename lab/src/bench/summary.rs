//! What many runs come to: medians, ratios, and who beats whom.

use std::fmt::Write as _;

use super::mutexbench::{Plan, Record};
use crate::contenders::Contenders;
use crate::locks::LockName;
use crate::metrics::{geometric_mean, median};
use crate::table::Table;
use crate::units;
use crate::usage::disturbance;

/// What others are compared with: the lock that most programs would use instead.
const BASELINE: LockName = LockName::ParkingLot012;

/// The medians over the runs of one lock with one number of contenders. No timed wait: not a number.
#[derive(Clone, Debug)]
pub struct Summary {
    /// The lock.
    pub lock: LockName,
    /// How many contended.
    pub threads: usize,
    /// Acquisitions per second.
    pub throughput: f64,
    /// The smallest share over the largest.
    pub min_max: f64,
    /// Jain's index.
    pub jain: f64,
    /// Waits in nanoseconds.
    pub p50: f64,
    /// The same.
    pub p99: f64,
    /// The same.
    pub p999: f64,
    /// The same.
    pub max: f64,
    /// Consecutive admissions of one contender.
    pub longest_run: f64,
    /// Admissions of others between two of one contender.
    pub max_bypass: f64,
}

/// The summaries of all locks with all numbers of contenders.
#[derive(Clone, Debug)]
pub struct Summaries {
    /// What contended.
    pub on: Contenders,
    /// The locks, in the order in which they were asked for.
    pub locks: Vec<LockName>,
    /// The numbers of contenders, likewise.
    pub threads: Vec<usize>,
    /// By number of contenders, then by lock.
    pub all: Vec<Summary>,
    /// How many processors others used meanwhile, on average over the runs.
    pub other_cpus: Option<f64>,
}

impl Summary {
    fn new(lock: LockName, threads: usize, records: &[Record]) -> Self {
        let over = |of: fn(&Record) -> f64| {
            median(records.iter().filter(|r| r.lock == lock && r.threads == threads).map(of).filter(|x| !x.is_nan()))
        };
        Self {
            lock,
            threads,
            throughput: over(|r| r.throughput),
            min_max: over(|r| r.min_max),
            jain: over(|r| r.jain),
            p50: over(|r| nanoseconds(r.wait_p50_ns)),
            p99: over(|r| nanoseconds(r.wait_p99_ns)),
            p999: over(|r| nanoseconds(r.wait_p999_ns)),
            max: over(|r| nanoseconds(r.wait_max_ns)),
            longest_run: over(|r| r.longest_run as f64),
            max_bypass: over(|r| r.max_bypass as f64),
        }
    }
}

fn nanoseconds(wait: Option<u64>) -> f64 {
    wait.map_or(f64::NAN, |ns| ns as f64)
}

impl Summaries {
    /// Takes the medians.
    #[must_use]
    pub fn new(plan: &Plan, records: &[Record]) -> Self {
        let all = plan
            .threads
            .iter()
            .flat_map(|&threads| plan.locks.iter().map(move |&lock| Summary::new(lock, threads, records)))
            .collect();
        let others: Option<f64> = records.iter().map(|r| r.other_cpus).sum();
        let other_cpus = others.map(|sum| sum / records.len() as f64);
        Self { on: plan.on, locks: plan.locks.clone(), threads: plan.threads.clone(), all, other_cpus }
    }

    /// One of them. It was asked for, so it is there.
    #[must_use]
    pub fn get(&self, lock: LockName, threads: usize) -> &Summary {
        self.all.iter().find(|s| s.lock == lock && s.threads == threads).expect("every lock ran with every number")
    }

    /// All medians.
    #[must_use]
    pub fn table(&self) -> Table {
        let mut table = Table::new(
            1,
            [
                "lock",
                "T",
                "throughput",
                "min/max",
                "Jain",
                "p50",
                "p99",
                "p99.9",
                "max wait",
                "longest run",
                "max bypass",
            ],
        );
        for s in &self.all {
            table.row([
                s.lock.name().to_owned(),
                s.threads.to_string(),
                units::rate(s.throughput),
                units::ratio(s.min_max),
                units::ratio(s.jain),
                units::time(s.p50),
                units::time(s.p99),
                units::time(s.p999),
                units::time(s.max),
                units::count(s.longest_run),
                units::count(s.max_bypass),
            ]);
        }
        table
    }

    /// Throughput against the baseline's, with a title; nothing, if there is nothing to compare with it.
    #[must_use]
    pub fn ratios(&self) -> Option<(String, Table)> {
        let baseline = *self.locks.iter().find(|&&lock| lock == BASELINE).or(self.locks.first())?;
        if self.locks.len() == 1 {
            return None;
        }
        let columns = self.threads.iter().map(|t| format!("T={t}"));
        let mut table =
            Table::new(1, ["lock".to_owned()].into_iter().chain(columns).chain(["geometric mean".to_owned()]));
        for &lock in &self.locks {
            let ratio = |&threads| self.get(lock, threads).throughput / self.get(baseline, threads).throughput;
            let ratios: Vec<f64> = self.threads.iter().map(ratio).collect();
            let mean = geometric_mean(ratios.iter().copied());
            let cells = ratios.into_iter().chain([mean]).map(units::ratio);
            table.row([lock.name().to_owned()].into_iter().chain(cells));
        }
        Some((format!("Throughput, as a ratio to that of {}:", baseline.name()), table))
    }

    /// What else there is to say.
    pub fn remarks(&self) -> impl Iterator<Item = String> {
        self.verdict().into_iter().chain(self.solitude()).chain(disturbance(self.other_cpus))
    }

    /// A warning, if there were several who never met.
    fn solitude(&self) -> Option<String> {
        const WARNING: &str = "On one worker goroutines do not meet: nothing interrupts the first, so it has the lock to itself to the end.";
        (self.on.have_one_worker() && self.threads.iter().any(|&n| n > 1)).then(|| WARNING.to_owned())
    }

    /// Where, if anywhere, a peer is better than `go` in throughput and in p99.9 at once; nothing, if they did not
    /// meet.
    fn verdict(&self) -> Option<String> {
        if !self.locks.contains(&LockName::Go) || !self.locks.iter().any(|lock| lock.is_peer()) {
            return None;
        }
        let mut text = "Better than go in both throughput and p99.9 wait:".to_owned();
        let mut nobody = true;
        for &threads in &self.threads {
            let go = self.get(LockName::Go, threads);
            let better = |lock: &&LockName| {
                let peer = self.get(**lock, threads);
                lock.is_peer() && peer.throughput > go.throughput && peer.p999 < go.p999
            };
            let names: Vec<_> = self.locks.iter().filter(better).map(|lock| lock.name()).collect();
            if !names.is_empty() {
                let _ = write!(text, " T={threads}: {};", names.join(", "));
                nobody = false;
            }
        }
        Some(if nobody { format!("{text} no peer at any T.") } else { text.trim_end_matches(';').to_owned() + "." })
    }
}
