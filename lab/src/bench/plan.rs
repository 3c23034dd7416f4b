//! Runs with contention: the plan of the runs, and the record of each run. For locks and for semaphores; rwbench writes
//! larger records of runs on readers-writer locks.

use crate::options::{EffortArgs, List};
use std::io;
use std::ops::Deref;
use std::time::Duration;

use indicatif::ProgressBar;
use serde::Serialize;

use super::logged;
use crate::measure::admissions::Metrics;

use crate::measure::metrics::{jain, min_max};
use crate::measure::waits::WaitHistogram;
use crate::output::Output;
use crate::output::failure::Failure;
use crate::run::contenders::Contenders;
use crate::run::driver::{Admissions, Outcome, Prepared, Run, Workload};
use crate::run::sections::CriticalSections;
use crate::targets::target::Target;

/// The runs to make.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The name of the command.
    pub bench: &'static str,
    /// The targets that are contended for.
    pub targets: Vec<Target>,
    /// The numbers of contenders.
    pub threads: Vec<usize>,
    /// The number of runs for each target and number of contenders.
    pub runs: usize,
    pub on: Contenders,
    /// The workload of each contender.
    pub workload: Workload,
    /// True if a logged run follows each run.
    pub logged: bool,
}

/// The part of the record of a run that all benches with contention have.
#[derive(Clone, Serialize, Debug)]
pub struct RunFacts {
    bench: &'static str,
    /// The target that was contended for.
    #[serde(flatten)]
    pub target: Target,
    #[serde(flatten)]
    on: Contenders,
    /// The number of contenders.
    pub threads: usize,
    run: usize,
    seconds: f64,
    /// Acquisitions per second, of readers and writers together.
    pub throughput: f64,
    /// See [`min_max`].
    pub min_max: f64,
    /// See [`jain`].
    pub jain: f64,
    sample_rate: f64,
    per_thread: Vec<u64>,
    cs: CriticalSections,
    ncs: u32,
    seed: u32,
    voluntary_switches: u64,
    involuntary_switches: u64,
    cpus: f64,
    /// See [`Usage::other_cpus`](crate::measure::usage::Usage::other_cpus).
    pub other_cpus: Option<f64>,
    #[cfg(sudog_sim)]
    #[serde(flatten)]
    machine: crate::run::machine::Simulated,
    /// The metrics of the logged run that followed this run, if there was a logged run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<Metrics>,
}

/// The record of a run on a lock or a semaphore.
#[derive(Clone, Serialize, Debug)]
pub struct RunRecord {
    #[serde(flatten)]
    facts: RunFacts,
    /// The acquisitions of all contenders.
    pub acquisitions: u64,
    /// The wait that half of the acquisitions did not exceed. Each wait of this record is `None` if no wait was timed.
    pub wait_p50_ns: Option<u64>,
    /// The wait that 99 in 100 acquisitions did not exceed.
    pub wait_p99_ns: Option<u64>,
    /// The wait that 999 in 1000 acquisitions did not exceed.
    pub wait_p999_ns: Option<u64>,
    /// The longest wait that was timed. [`WaitRecorder`](crate::measure::waits::WaitRecorder) says which waits are
    /// timed.
    pub wait_max_ns: Option<u64>,
    /// True if all contenders were waiting before the first was let in.
    gathered: bool,
    /// See [`Admissions`]. `None` if there was no order of admissions.
    #[serde(flatten)]
    pub order: Option<Admissions>,
    /// Accesses that another cache or memory served, for each acquisition. Simulated machines only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub misses: Option<f64>,
    /// Caches that lost a line, for each acquisition. Simulated machines only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub invalidations: Option<f64>,
    /// Accesses to a page that a TLB did not hold, for each acquisition. Simulated machines only.
    #[serde(skip_serializing_if = "Option::is_none")]
    tlb_misses: Option<f64>,
    /// Futex calls that found their bucket locked, for each acquisition. Simulated machines only.
    #[serde(skip_serializing_if = "Option::is_none")]
    futex_waits: Option<f64>,
}

impl Deref for RunRecord {
    type Target = RunFacts;

    fn deref(&self) -> &RunFacts {
        &self.facts
    }
}

/// Returns the targets that were asked for; by default, all targets for which contenders of this kind may contend.
pub fn choose<N: Into<Target> + Copy>(
    on: Contenders,
    all: &[N],
    asked: Option<&List<N>>,
) -> Result<Vec<Target>, Failure> {
    let all = all.iter().map(|&name| name.into());
    let able: Vec<Target> = all.filter(|&target| target.runs_here() && on.may_contend_for(target)).collect();
    let Some(List(asked)) = asked else { return Ok(able) };
    let asked: Vec<Target> = asked.iter().map(|&name| name.into()).collect();
    if let Some(foreign) = asked.iter().find(|target| !target.runs_here()) {
        return Err(Failure::Usage(format!(
            "{} is not a lock of this project, and runs on real machines only",
            foreign.name()
        )));
    }
    match asked.iter().find(|&&target| !on.may_contend_for(target)) {
        None => Ok(asked),
        Some(&target) => Err(keeps_others_out(target, &format!("{}s for goroutines", target.kind()), &able)),
    }
}

/// Returns a failure that says why goroutines may not contend for `target`, and names the targets for which they may,
/// if there are any.
pub fn keeps_others_out(target: Target, rest: &str, able: &[Target]) -> Failure {
    let able: Vec<_> = able.iter().map(|able| able.name()).collect();
    let rest = if able.is_empty() { String::new() } else { format!("; {rest}: {}", able.join(", ")) };
    Failure::Usage(format!(
        "a goroutine that waits for {} blocks the thread of its worker, so each worker would run its first goroutine \
         only{rest}",
        target.name()
    ))
}

impl Plan {
    /// Creates the plan that the command line asks for: the targets, the numbers of contenders, the effort. `ncs` is
    /// the default for the non-critical section.
    pub fn new<N: Into<Target> + Copy>(
        bench: &'static str,
        all: &[N],
        asked: Option<&List<N>>,
        threads: &List<usize>,
        effort: &EffortArgs,
        ncs: u32,
    ) -> Result<Self, Failure> {
        let on = effort.on.contenders()?;
        Ok(Self {
            bench,
            targets: choose(on, all, asked)?,
            threads: threads.0.clone(),
            runs: effort.runs,
            on,
            logged: effort.metrics,
            workload: Workload {
                duration: effort.seconds.unwrap_or(Workload::USUAL.duration),
                cs: effort.cs,
                ncs: effort.ncs.unwrap_or(ncs),
                sample: effort.sample,
                gathered: !effort.ungathered,
                ..Workload::USUAL
            },
        })
    }

    /// Returns a line on the measurement.
    pub fn headline(&self) -> String {
        let Workload { duration, cs, ncs, seed, sample, gathered, .. } = self.workload;
        let gathered = if gathered { "; contenders start together" } else { "" };
        let rate = if sample == 0 { "0".to_owned() } else { format!("1/{sample}") };
        let cs = match cs.is_one() {
            true => format!("{cs} steps"),
            false => format!("{cs} steps by contender"),
        };
        format!(
            "{} on {}: medians of {} runs of {duration:?}; critical section {cs}, non-critical {ncs}; seed \
             {seed}; sample_rate {rate}{gathered}",
            self.bench, self.on, self.runs
        )
    }

    /// Returns the part of the record of a run that all benches have.
    pub fn facts(
        &self,
        target: Target,
        threads: usize,
        run: usize,
        outcome: &Outcome,
        metrics: Option<Metrics>,
    ) -> RunFacts {
        let Workload { cs, ncs, seed, sample, .. } = self.workload;
        let seconds = outcome.elapsed.as_secs_f64();
        RunFacts {
            bench: self.bench,
            target,
            on: self.on,
            threads,
            run,
            seconds,
            throughput: outcome.admissions.iter().sum::<u64>() as f64 / seconds,
            min_max: min_max(&outcome.admissions),
            jain: jain(&outcome.admissions),
            sample_rate: if sample == 0 { 0.0 } else { f64::from(sample).recip() },
            per_thread: outcome.admissions.clone(),
            cs,
            ncs,
            seed,
            voluntary_switches: outcome.usage.voluntary_switches,
            involuntary_switches: outcome.usage.involuntary_switches,
            cpus: outcome.usage.cpus,
            other_cpus: outcome.usage.other_cpus,
            #[cfg(sudog_sim)]
            machine: crate::run::machine::simulated(),
            metrics,
        }
    }

    /// Returns the quantiles 0.5, 0.99 and 0.999 and the maximum of some waits; nothing if no wait was timed.
    pub fn quantiles(&self, waits: &WaitHistogram) -> [Option<u64>; 4] {
        let timed = self.workload.sample > 0 && !waits.is_empty();
        let quantiles = [0.5, 0.99, 0.999].map(|q| waits.value_at_quantile(q));
        let [p50, p99, p999] = quantiles;
        [p50, p99, p999, waits.max()].map(|wait| timed.then_some(wait))
    }

    /// Returns the record of a run.
    pub fn record(
        &self,
        target: Target,
        threads: usize,
        run: usize,
        outcome: &Outcome,
        metrics: Option<Metrics>,
    ) -> RunRecord {
        let acquisitions = outcome.admissions.iter().sum();
        let an_acquisition = |n: u64| n as f64 / acquisitions as f64;
        let traffic = outcome.usage.traffic;
        let [wait_p50_ns, wait_p99_ns, wait_p999_ns, wait_max_ns] = self.quantiles(&outcome.waits.write);
        RunRecord {
            facts: self.facts(target, threads, run, outcome, metrics),
            acquisitions,
            wait_p50_ns,
            wait_p99_ns,
            wait_p999_ns,
            wait_max_ns,
            // Contenders for a floor are not gathered: a turn goes round among the contenders only, so no other thread
            // can hold the floor shut.
            gathered: self.workload.gathered && !matches!(target, Target::Floor(_)),
            order: outcome.order,
            misses: traffic.map(|traffic| an_acquisition(traffic.misses)),
            invalidations: traffic.map(|traffic| an_acquisition(traffic.invalidations)),
            tlb_misses: traffic.map(|traffic| an_acquisition(traffic.tlb_misses)),
            futex_waits: traffic.map(|traffic| an_acquisition(traffic.futex_waits)),
        }
    }

    /// Prints the text about the logged runs, if there were any. `kind` is the word for the targets: lock, semaphore ..
    pub fn print_logged_runs<'a>(&self, kind: &str, records: &'a [RunRecord], output: Output) -> Result<(), Failure> {
        let run = |r: &'a RunRecord| (vec![r.target.name().to_owned(), r.threads.to_string()], r.metrics.as_ref());
        logged::print(&[kind, "T"], records.iter().map(run), output)
    }

    /// Returns the targets that run with this number of contenders.
    fn targets_for(&self, threads: usize) -> impl Iterator<Item = Target> {
        self.targets.iter().copied().filter(move |target| target.is_for(threads))
    }

    /// Returns the number of runs.
    pub fn total(&self) -> usize {
        self.runs * self.threads.iter().map(|&threads| self.targets_for(threads).count()).sum::<usize>()
    }

    /// Returns the time that so many runs take, with the logged runs that follow them.
    pub fn time(&self, runs: usize) -> Duration {
        self.workload.duration * runs as u32 * if self.logged { 2 } else { 1 }
    }

    /// Returns a progress bar for so many runs, and prints how long the runs take.
    pub fn progress(&self, output: Output, runs: usize) -> ProgressBar {
        output.estimate(self.bench, self.time(runs));
        output.progress(self.bench, runs)
    }

    /// Makes a run.
    pub fn make(&self, target: Target, threads: usize, workload: Workload) -> Result<Outcome, Failure> {
        Run { on: self.on, threads, workload }
            .prepare(target)
            .measure()
            .map_err(|error| self.cannot_start(threads, &error))
    }

    /// Makes the logged run that follows a run, in an arena that `prepare` makes. Returns `None` if runs are not
    /// logged.
    pub fn metrics(
        &self,
        threads: usize,
        workload: Workload,
        prepare: impl FnOnce(Run) -> Prepared,
    ) -> Result<Option<Metrics>, Failure> {
        if !self.logged {
            return Ok(None);
        }
        let logged = prepare(Run { on: self.on, threads, workload }).log();
        let logged = logged.map_err(|error| self.cannot_start(threads, &error))?;
        Ok(Some(Metrics::new(logged)))
    }

    /// Returns the failure that the contenders could not be started.
    pub fn cannot_start(&self, threads: usize, error: &io::Error) -> Failure {
        Failure::Run(format!("cannot start {threads} {}: {error}", self.on))
    }

    /// Makes all runs. The targets take turns, so that changes on the machine in the meantime affect all targets alike.
    pub fn measure(&self, output: Output, progress: &ProgressBar) -> Result<Vec<RunRecord>, Failure> {
        let mut records = Vec::with_capacity(self.total());
        for number in 1..=self.runs {
            for &threads in &self.threads {
                for target in self.targets_for(threads) {
                    let outcome = self.make(target, threads, self.workload)?;
                    let metrics = self.metrics(threads, self.workload, |run| run.prepare(target))?;
                    let record = self.record(target, threads, number, &outcome, metrics);
                    output.record(&record)?;
                    records.push(record);
                    progress.inc(1);
                }
            }
        }
        Ok(records)
    }
}
