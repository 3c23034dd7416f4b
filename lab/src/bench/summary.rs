//! Summaries of many runs: medians, ratios, and comparisons.

use std::fmt::Write as _;

use super::plan::{Plan, RunRecord};
use crate::measure::metrics::{geometric_mean, median};
use crate::measure::usage::{disturbance, others};
use crate::output::table::Table;
use crate::output::units;
use crate::run::contenders::Contenders;
use crate::run::driver::Admissions;
use crate::targets::compose::remark_on_price;
use crate::targets::locks::LockName;
#[cfg(target_os = "linux")]
use crate::targets::semaphores::SemaphoreName;
use crate::targets::target::Target;

/// The baselines for comparisons: the lock, and the semaphore, that most programs would use instead.
const BASELINES: &[Target] = &[
    Target::Lock(LockName::ParkingLot012),
    #[cfg(target_os = "linux")]
    Target::Semaphore(SemaphoreName::SemT),
];

/// The most lines that can be told apart in a plot.
const MOST_LINES: usize = 7;

/// The medians over the runs of a target with a number of contenders. A quantity that was not measured is NaN.
#[derive(Clone, Debug)]
pub struct Summary {
    /// The target that was contended for.
    pub target: Target,
    /// The number of contenders.
    pub threads: usize,
    /// Acquisitions per second.
    pub throughput: f64,
    /// Acquisitions per second in the worst run.
    pub worst_throughput: f64,
    /// The smallest share over the largest.
    pub min_max: f64,
    /// Jain's index.
    pub jain: f64,
    /// The median wait, in nanoseconds.
    pub p50: f64,
    /// The 99th percentile of the waits, in nanoseconds.
    pub p99: f64,
    /// The 99.9th percentile of the waits, in nanoseconds.
    pub p999: f64,
    /// The longest wait, in nanoseconds.
    pub max: f64,
    /// Consecutive admissions of one contender.
    pub longest_run: f64,
    /// Admissions of others between two admissions of one contender.
    pub max_bypass: f64,
    /// Admissions of others during a wait.
    pub max_bypass_waiting: f64,
    /// The part of the admissions during waits that is beyond an even round.
    pub overtaken: f64,
    /// Misses for each acquisition. Simulated machines only.
    pub misses: f64,
    /// Copies of cache lines that were lost, for each acquisition. Simulated machines only.
    pub invalidations: f64,
    /// The longest bypass in the logged runs.
    pub logged_bypass: f64,
}

/// The summaries of all targets with all numbers of contenders.
#[derive(Clone, Debug)]
pub struct Summaries {
    pub on: Contenders,
    /// The targets that were contended for, in the order in which the command line asked for them.
    pub targets: Vec<Target>,
    /// The numbers of contenders, in the order in which the command line asked for them.
    pub threads: Vec<usize>,
    /// The summaries, by number of contenders, then by target.
    pub all: Vec<Summary>,
    /// The number of processors that other processes used meanwhile, on average over the runs.
    pub other_cpus: Option<f64>,
}

impl Summary {
    /// Computes the medians over the runs of a target with a number of contenders.
    pub fn new(target: Target, threads: usize, records: &[RunRecord]) -> Self {
        let ours = || records.iter().filter(|r| r.target == target && r.threads == threads);
        let over = |of: fn(&RunRecord) -> f64| median(ours().map(of).filter(|x| !x.is_nan()));
        Self {
            target,
            threads,
            throughput: over(|r| r.throughput),
            worst_throughput: ours().map(|r| r.throughput).fold(f64::NAN, f64::min),
            min_max: over(|r| r.min_max),
            jain: over(|r| r.jain),
            p50: over(|r| number(r.wait_p50_ns)),
            p99: over(|r| number(r.wait_p99_ns)),
            p999: over(|r| number(r.wait_p999_ns)),
            max: over(|r| number(r.wait_max_ns)),
            longest_run: over(|r| of_order(r, |order| order.longest_run)),
            max_bypass: over(|r| of_order(r, |order| order.max_bypass)),
            max_bypass_waiting: over(|r| of_order(r, |order| order.max_bypass_waiting)),
            overtaken: over(|r| r.order.and_then(|order| order.overtaken).unwrap_or(f64::NAN)),
            misses: over(|r| r.misses.unwrap_or(f64::NAN)),
            invalidations: over(|r| r.invalidations.unwrap_or(f64::NAN)),
            logged_bypass: over(|r| number(r.metrics.as_ref().and_then(|m| Some(m.bypass.as_ref()?.max)))),
        }
    }
}

fn of_order(record: &RunRecord, of: fn(&Admissions) -> u64) -> f64 {
    number(record.order.as_ref().map(of))
}

fn number(measured: Option<u64>) -> f64 {
    measured.map_or(f64::NAN, |n| n as f64)
}

/// Returns a warning if several contenders never met.
pub fn solitude(on: Contenders, threads: &[usize]) -> Option<String> {
    const WARNING: &str = "With one worker goroutines do not contend: nothing interrupts the first goroutine, so the others run after \
         its end.";
    (on.have_one_worker() && threads.iter().any(|&n| n > 1)).then(|| WARNING.to_owned())
}

impl Summaries {
    /// Computes the summaries of all targets of the plan.
    pub fn new(plan: &Plan, records: &[RunRecord]) -> Self {
        let all = plan
            .threads
            .iter()
            .flat_map(|&threads| plan.targets.iter().map(move |&target| Summary::new(target, threads, records)))
            .collect();
        let other_cpus = others(records.iter().map(|r| r.other_cpus));
        Self { on: plan.on, targets: plan.targets.clone(), threads: plan.threads.clone(), all, other_cpus }
    }

    /// Returns the summary of a target of the plan, with a number of contenders of the plan.
    pub fn get(&self, target: Target, threads: usize) -> &Summary {
        let found = self.all.iter().find(|s| s.target == target && s.threads == threads);
        found.expect("there is a summary of every target with every number")
    }

    /// Returns the summaries of a target, by number of contenders.
    pub fn of(&self, target: Target) -> impl Iterator<Item = &Summary> {
        self.all.iter().filter(move |s| s.target == target)
    }

    /// Returns whether a target is a variant of another one, and one of so many targets that its line would hide others.
    pub fn is_variant(&self, target: Target) -> bool {
        let is_variant = |target: Target| match target {
            Target::Lock(lock) => lock.name().contains('+') || lock.name().ends_with("_fair"),
            Target::Semaphore(semaphore) => semaphore.name().contains(['+', '-']),
            _ => false,
        };
        let rest = self.targets.iter().filter(|&&target| !is_variant(target)).count();
        is_variant(target) && rest > 1 && self.targets.len() > MOST_LINES
    }

    /// "lock" or "semaphore".
    pub fn kind(&self) -> &'static str {
        self.targets.iter().map(|target| target.kind()).find(|&kind| kind != "floor").unwrap_or("floor")
    }

    /// Returns the target that the others are compared with: the usual baseline, or else the first target. Floors are
    /// never the baseline.
    pub fn baseline(&self) -> Option<Target> {
        let not_floors = || self.targets.iter().copied().filter(|target| !matches!(target, Target::Floor(_)));
        not_floors().find(|target| BASELINES.contains(target)).or_else(|| not_floors().next())
    }

    /// Returns a table with all medians.
    pub fn table(&self) -> Table {
        const COLUMNS: [&str; 11] = [
            "T",
            "throughput",
            "worst run",
            "min/max",
            "Jain",
            "p50",
            "p99",
            "p99.9",
            "max wait",
            "longest run",
            "max between",
        ];
        let simulated = self.all.iter().any(|s| !s.misses.is_nan());
        let traffic: &[&str] = if simulated { &["misses", "invalidations"] } else { &[] };
        let columns = [self.kind()].into_iter().chain(COLUMNS).chain(traffic.iter().copied());
        let mut table = Table::new(1, columns);
        for s in self.all.iter().filter(|s| s.target.is_for(s.threads)) {
            let row = [
                s.target.name().to_owned(),
                s.threads.to_string(),
                units::rate(s.throughput),
                units::rate(s.worst_throughput),
                units::ratio(s.min_max),
                units::ratio(s.jain),
                units::time(s.p50),
                units::time(s.p99),
                units::time(s.p999),
                units::time(s.max),
                units::count(s.longest_run),
                units::count(s.max_bypass),
            ];
            let traffic = [s.misses, s.invalidations].map(|n| format!("{n:.1}"));
            table.row(row.into_iter().chain(traffic.into_iter().take(if simulated { 2 } else { 0 })));
        }
        table
    }

    /// Returns a title, and a table of the throughputs as ratios to the baseline's. Returns `None` if there is only one
    /// target.
    pub fn ratios(&self) -> Option<(String, Table)> {
        let baseline = self.baseline()?;
        if self.targets.len() == 1 {
            return None;
        }
        let columns = self.threads.iter().map(|t| format!("T={t}"));
        let mut table =
            Table::new(1, [self.kind().to_owned()].into_iter().chain(columns).chain(["geometric mean".to_owned()]));
        for &target in &self.targets {
            let ratio = |&threads| self.get(target, threads).throughput / self.get(baseline, threads).throughput;
            let ratios: Vec<f64> = self.threads.iter().map(ratio).collect();
            let mean = geometric_mean(ratios.iter().copied());
            let cells = ratios.into_iter().chain([mean]).map(units::ratio);
            table.row([target.name().to_owned()].into_iter().chain(cells));
        }
        Some((format!("Throughput, as a ratio to that of {}:", baseline.name()), table))
    }

    /// Returns further remarks on the runs.
    pub fn remarks(&self) -> impl Iterator<Item = String> {
        let price = remark_on_price(self.targets.iter().copied());
        let solitude = solitude(self.on, &self.threads);
        self.verdict().into_iter().chain(price).chain(solitude).chain(disturbance(self.other_cpus))
    }

    /// Returns the numbers of contenders, if any, at which a peer is better than `sudog` in both throughput and p99.9.
    /// Returns `None` unless `sudog` and a peer were measured.
    fn verdict(&self) -> Option<String> {
        const SUDOG: Target = Target::Lock(LockName::Sudog);
        let is_peer = |target: Target| matches!(target, Target::Lock(lock) if lock.is_peer());
        if !self.targets.contains(&SUDOG) || !self.targets.iter().any(|&target| is_peer(target)) {
            return None;
        }
        let mut text = "Better than sudog in both throughput and p99.9 wait:".to_owned();
        let mut nobody = true;
        for &threads in &self.threads {
            let sudog = self.get(SUDOG, threads);
            let better = |target: &&Target| {
                let peer = self.get(**target, threads);
                is_peer(**target) && peer.throughput > sudog.throughput && peer.p999 < sudog.p999
            };
            let names: Vec<_> = self.targets.iter().filter(better).map(|target| target.name()).collect();
            if !names.is_empty() {
                let _ = write!(text, " T={threads}: {};", names.join(", "));
                nobody = false;
            }
        }
        Some(if nobody { format!("{text} no peer at any T.") } else { text.trim_end_matches(';').to_owned() + "." })
    }
}
