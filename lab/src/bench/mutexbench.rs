//! Threads, or goroutines, that contend for one lock.

use std::path::Path;

use indicatif::ProgressBar;
use serde::Serialize;

use super::summary::Summaries;
use crate::cli::{List, MutexbenchArgs};
use crate::contenders::Contenders;
use crate::driver::{Outcome, Run, Workload};
use crate::failure::Failure;
use crate::locks::{LockName, with_lock};
use crate::metrics::{gini, jain, min_max};
use crate::output::Output;
use crate::report::{Report, ReportFile};
use crate::waits::Waits;

/// Which runs to make.
#[derive(Clone, Debug)]
pub struct Plan {
    /// On which locks.
    pub locks: Vec<LockName>,
    /// With how many contenders.
    pub threads: Vec<usize>,
    /// How often each.
    pub runs: usize,
    /// What contends.
    pub on: Contenders,
    /// What the contenders of each do.
    pub workload: Workload,
}

/// What is written of a run.
#[derive(Clone, Serialize, Debug)]
pub struct Record {
    bench: &'static str,
    /// The lock.
    pub lock: LockName,
    #[serde(flatten)]
    on: Contenders,
    /// How many contended.
    pub threads: usize,
    run: usize,
    seconds: f64,
    acquisitions: u64,
    /// Acquisitions per second.
    pub throughput: f64,
    /// See [`min_max`].
    pub min_max: f64,
    /// See [`jain`].
    pub jain: f64,
    gini: f64,
    /// The wait that half of the acquisitions did not exceed. As the other waits, nothing if none was timed.
    pub wait_p50_ns: Option<u64>,
    /// The same for 99 in 100.
    pub wait_p99_ns: Option<u64>,
    /// The same for 999 in 1000.
    pub wait_p999_ns: Option<u64>,
    /// The longest wait that was timed; see [`WaitRecorder`](crate::waits::WaitRecorder) for which are.
    pub wait_max_ns: Option<u64>,
    sample_rate: f64,
    /// See [`Outcome::longest_run`].
    pub longest_run: u64,
    /// See [`Outcome::max_bypass`].
    pub max_bypass: u64,
    per_thread: Vec<u64>,
    cs: u32,
    ncs: u32,
    seed: u32,
    voluntary_switches: u64,
    involuntary_switches: u64,
    cpus: f64,
    /// See [`Usage::other_cpus`](crate::usage::Usage::other_cpus).
    pub other_cpus: Option<f64>,
}

/// The locks that were asked for; or else all for which these may contend.
pub fn locks(on: Contenders, asked: Option<&List<LockName>>) -> Result<Vec<LockName>, Failure> {
    let (able, unable): (Vec<_>, Vec<_>) = LockName::ALL.iter().partition(|&&lock| on.may_contend_for(lock));
    let Some(List(asked)) = asked else { return Ok(able) };
    match asked.iter().find(|lock| unable.contains(lock)) {
        None => Ok(asked.clone()),
        Some(lock) => {
            let able: Vec<_> = able.into_iter().map(LockName::name).collect();
            Err(Failure::Usage(format!(
                "who waits for {} blocks a thread, so the first goroutine of each worker would keep the others out to the \
                 end; locks for goroutines: {}",
                lock.name(),
                able.join(", ")
            )))
        }
    }
}

impl Plan {
    fn new(args: &MutexbenchArgs) -> Result<Self, Failure> {
        let on = args.on.contenders()?;
        Ok(Self {
            locks: locks(on, args.locks.as_ref())?,
            threads: args.threads.0.clone(),
            runs: args.runs,
            on,
            workload: Workload {
                duration: args.seconds,
                cs: args.cs,
                ncs: args.ncs,
                seed: args.seed,
                sample: args.sample,
            },
        })
    }

    /// What was measured, in one line.
    #[must_use]
    pub fn headline(&self) -> String {
        let Workload { duration, cs, ncs, seed, sample } = self.workload;
        let rate = if sample == 0 { "0".to_owned() } else { format!("1/{sample}") };
        format!(
            "mutexbench on {}: medians of {} runs of {duration:?}; critical section {cs} steps, non-critical {ncs}; seed \
             {seed}; sample_rate {rate}",
            self.on, self.runs
        )
    }

    fn record(&self, lock: LockName, threads: usize, run: usize, outcome: Outcome) -> Record {
        let Workload { cs, ncs, seed, sample, .. } = self.workload;
        let acquisitions = outcome.admissions.iter().sum();
        let seconds = outcome.elapsed.as_secs_f64();
        let wait = |of: fn(&Waits) -> u64| (sample > 0 && !outcome.waits.is_empty()).then(|| of(&outcome.waits));
        Record {
            bench: "mutexbench",
            lock,
            on: self.on,
            threads,
            run,
            seconds,
            acquisitions,
            throughput: acquisitions as f64 / seconds,
            min_max: min_max(&outcome.admissions),
            jain: jain(&outcome.admissions),
            gini: gini(&outcome.admissions),
            wait_p50_ns: wait(|waits| waits.value_at_quantile(0.5)),
            wait_p99_ns: wait(|waits| waits.value_at_quantile(0.99)),
            wait_p999_ns: wait(|waits| waits.value_at_quantile(0.999)),
            wait_max_ns: wait(Waits::max),
            sample_rate: if sample == 0 { 0.0 } else { f64::from(sample).recip() },
            longest_run: outcome.longest_run,
            max_bypass: outcome.max_bypass,
            per_thread: outcome.admissions,
            cs,
            ncs,
            seed,
            voluntary_switches: outcome.usage.voluntary_switches,
            involuntary_switches: outcome.usage.involuntary_switches,
            cpus: outcome.usage.cpus,
            other_cpus: outcome.usage.other_cpus,
        }
    }

    /// How many runs that makes.
    #[must_use]
    pub fn total(&self) -> usize {
        self.runs * self.threads.len() * self.locks.len()
    }

    /// Makes them. The locks take turns, so that whatever changes on the machine in the meantime befalls all alike.
    pub fn measure(&self, output: Output, progress: &ProgressBar) -> Result<Vec<Record>, Failure> {
        let mut records = Vec::with_capacity(self.total());
        for number in 1..=self.runs {
            for &threads in &self.threads {
                for &lock in &self.locks {
                    let outcome = with_lock(lock, Run { on: self.on, threads, workload: self.workload })
                        .map_err(|error| Failure::Run(format!("cannot start {threads} threads: {error}")))?;
                    let record = self.record(lock, threads, number, outcome);
                    output.record(&record)?;
                    records.push(record);
                    progress.inc(1);
                }
            }
        }
        Ok(records)
    }
}

/// Measures and prints; with a path, writes a report as well.
pub fn run(args: &MutexbenchArgs, report: Option<&Path>, output: Output) -> Result<(), Failure> {
    let plan = Plan::new(args)?;
    let report = report.map(ReportFile::create).transpose()?;
    let progress = output.progress("mutexbench", plan.total());
    let records = plan.measure(output, &progress)?;
    progress.finish_and_clear();
    let summaries = Summaries::new(&plan, &records);
    output.text(format_args!("{}\n\n{}\n", plan.headline(), summaries.table()))?;
    if let Some((title, ratios)) = summaries.ratios() {
        output.text(format_args!("{title}\n{ratios}\n"))?;
    }
    for remark in summaries.remarks() {
        output.text(remark)?;
    }
    match report {
        None => Ok(()),
        Some(file) => Report { uncontended: &[], mutexbench: &summaries, semtable: &[] }.write(file, output),
    }
}
