//! The study of two contended locks in the same bucket of the semaphore table, with each of the queues that the bucket
//! can have: how the time grows with the number of waiters. The program is in `program.rs`.

mod program;

use crate::options::{List, MAX_RUNS, MAX_THREADS, MAX_WORKERS, OnArgs, list, number, numbers};
use crate::run::contenders::Kind;
use clap::Args;
use std::collections::HashMap;
use std::time::Duration;

use serde::Serialize;

use self::program::{Case, Outcome, Placement, Run};

use crate::measure::growth::{self, Point};
use crate::measure::metrics::median;
use crate::measure::usage::{disturbance, others};
use crate::output::Output;
use crate::output::failure::Failure;
use crate::output::table::Table;
use crate::output::units;
use crate::run::contenders::Contenders;
use crate::targets::queues::{QueueName, with_queue};

#[derive(Args, Clone, Debug)]
#[command(allow_negative_numbers = true)]
pub struct CollideArgs {
    /// Queues, by name [default: all]
    #[arg(long, value_name = "A,B", value_parser = list::<QueueName>)]
    pub queue: Option<List<QueueName>>,

    /// Locks in the bucket
    #[arg(long, value_name = "CASE", default_value = "two-locks")]
    pub case: Case,

    /// Numbers of contenders that lock A and B; with 'many-locks' of all contenders [default: 100,300,1000,3000,10000;
    /// of threads up to 1000]
    #[arg(long, value_name = "N,N", value_parser = numbers::<1, MAX_COLLIDING>)]
    pub ns: Option<List<usize>>,

    /// Rounds of each of these contenders. In Go issue 17953: 10
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = number::<1, MAX_RUNS>)]
    pub rounds: usize,

    /// Runs of each, taking turns
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = number::<1, MAX_RUNS>)]
    pub runs: usize,

    /// Contenders: threads or goroutines
    #[arg(long, value_name = "WHAT", default_value = COLLIDING)]
    pub on: Kind,

    /// Number of workers that run the goroutines [default: as many as there are processors]
    #[arg(long, value_name = "N", value_parser = number::<1, MAX_WORKERS>)]
    pub workers: Option<usize>,
}

impl CollideArgs {
    /// Returns the contenders.
    pub fn on(&self) -> OnArgs {
        OnArgs { on: self.on, workers: self.workers }
    }
}

/// The default kind of contenders: goroutines where there are any, as not enough threads can wait.
const COLLIDING: &str = if cfg!(unix) { "goroutines" } else { "threads" };
const MAX_COLLIDING: usize = 1 << 20;

/// The number of contenders that lock B only. In Go issue 17953 there are 100.
const HOGS: usize = 10;

/// The default numbers of goroutines that lock A.
const GOROUTINES: &[usize] = &[100, 300, 1000, 3000, 10_000];

/// The default numbers of threads that lock A. Ten times as many threads cannot be started everywhere, nor would they
/// make progress anywhere.
const THREADS: &[usize] = &[100, 300, 1000];

/// The time from which on a run is not repeated: chance has little influence on so long a time.
const LONG: Duration = Duration::from_secs(4);

/// The record of a run.
#[derive(Clone, Serialize, Debug)]
struct CollideRecord {
    bench: &'static str,
    case: Case,
    placement: Placement,
    queue: QueueName,
    #[serde(flatten)]
    on: Contenders,
    n: usize,
    rounds: usize,
    hogs: usize,
    run: usize,
    /// The time of the whole run.
    seconds: f64,
    /// The number of times that A and B were locked, except by hogs.
    locks: usize,
    ns_per_lock: f64,
    hog_locks: u64,
    in_line_of_a: f64,
    in_line_of_b: f64,
    cpus: f64,
    other_cpus: Option<f64>,
}

/// The measurements to be made.
struct Plan<'a> {
    on: Contenders,
    case: Case,
    queues: &'a [QueueName],
    ns: &'a [usize],
    rounds: usize,
    hogs: usize,
    runs: usize,
}

/// All results for one n, placement and queue.
struct Row {
    placement: Placement,
    queue: QueueName,
    n: usize,
    runs: usize,
    seconds: f64,
    ns_per_lock: f64,
    in_line: [f64; 2],
}

impl<'a> Plan<'a> {
    fn new(args: &'a CollideArgs) -> Result<Self, Failure> {
        let on = args.on().contenders()?;
        let usual = if on.are_threads() { THREADS } else { GOROUTINES };
        let plan = Self {
            on,
            case: args.case,
            queues: args.queue.as_ref().map_or(QueueName::ALL, |list| &list.0),
            ns: args.ns.as_ref().map_or(usual, |list| &list.0),
            rounds: args.rounds,
            hogs: if args.case == Case::TwoLocks { HOGS } else { 0 },
            runs: args.runs,
        };
        let threads = plan.ns.iter().max().map_or(0, |n| n + plan.hogs);
        if on.are_threads() && threads > MAX_THREADS {
            return Err(Failure::Usage(format!("{threads} threads, with the hogs: there can be {MAX_THREADS}")));
        }
        Ok(plan)
    }

    fn measure(&self, output: Output) -> Result<Vec<CollideRecord>, Failure> {
        let steps = self.runs * self.ns.len() * Placement::ALL.len() * self.queues.len();
        let progress = output.progress("collide", steps);
        let mut records: Vec<CollideRecord> = Vec::new();
        let mut long = HashMap::new();
        for run in 1..=self.runs {
            for &n in self.ns {
                for &placement in Placement::ALL {
                    for &queue in self.queues {
                        progress.inc(1);
                        let is_long = long.entry((n, placement.name(), queue)).or_insert(false);
                        if *is_long {
                            continue;
                        }
                        let Self { on, case, rounds, hogs, .. } = *self;
                        let outcome = with_queue(queue, Run { on, case, placement, n, rounds, hogs })
                            .map_err(|error| Failure::Run(format!("cannot start {} {on}: {error}", n + hogs)))?;
                        *is_long = outcome.elapsed >= LONG;
                        let record = self.record((placement, queue, n), run, &outcome);
                        output.record(&record)?;
                        records.push(record);
                    }
                }
            }
        }
        progress.finish_and_clear();
        Ok(records)
    }

    fn record(
        &self,
        (placement, queue, n): (Placement, QueueName, usize),
        run: usize,
        outcome: &Outcome,
    ) -> CollideRecord {
        let each = if self.case == Case::TwoLocks { 2 } else { 1 };
        let (seconds, locks) = (outcome.elapsed.as_secs_f64(), each * n * self.rounds);
        CollideRecord {
            bench: "collide",
            case: self.case,
            placement,
            queue,
            on: self.on,
            n,
            rounds: self.rounds,
            hogs: self.hogs,
            run,
            seconds,
            locks,
            ns_per_lock: seconds * 1e9 / locks as f64,
            hog_locks: outcome.hog_locks,
            in_line_of_a: outcome.in_line_of_a,
            in_line_of_b: outcome.in_line_of_b,
            cpus: outcome.usage.cpus,
            other_cpus: outcome.usage.other_cpus,
        }
    }

    fn rows(&self, records: &[CollideRecord]) -> Vec<Row> {
        let mut rows = Vec::new();
        for &placement in Placement::ALL {
            for &queue in self.queues {
                for &n in self.ns {
                    let ours = || records.iter().filter(|r| r.placement == placement && r.queue == queue && r.n == n);
                    rows.push(Row {
                        placement,
                        queue,
                        n,
                        runs: ours().count(),
                        seconds: median(ours().map(|r| r.seconds)),
                        ns_per_lock: median(ours().map(|r| r.ns_per_lock)),
                        in_line: [median(ours().map(|r| r.in_line_of_a)), median(ours().map(|r| r.in_line_of_b))],
                    });
                }
            }
        }
        rows
    }

    const fn remarks(&self) -> &'static [&'static str] {
        match self.case {
            Case::TwoLocks => &REMARKS,
            Case::ManyLocks => &MANY_REMARKS,
        }
    }

    fn headline(&self) -> String {
        let Self { on, rounds, hogs, runs, .. } = self;
        let times = if *rounds == 1 { "once".to_owned() } else { format!("{rounds} times") };
        if self.case == Case::ManyLocks {
            return format!(
                "collide on {on}: medians of {runs} runs. n/2 locks, and two contenders for each lock. Each \
                 contender, {times}: lock; yield, 1 to 8 times; unlock. The mutexes are in starvation mode from the \
                 start."
            );
        }
        format!(
            "collide on {on}: medians of {runs} runs. n contenders, each {times}: lock A; lock B; unlock B; unlock A. \
             And {hogs} hogs, until the contenders are done: lock B; yield; unlock B. (Other than in Go issue 17953: \
             hogs yield while they have B, because nothing interrupts a goroutine; the mutexes are in starvation mode \
             from the start; and all contenders wait when the clock starts.)"
        )
    }
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::new(
        2,
        ["placement", "queue", "n", "runs", "total time", "a lock operation", "in line of A", "in line of B"],
    );
    for r in rows {
        let words = [r.placement.name(), r.queue.name()].map(str::to_owned);
        let numbers = [r.n.to_string(), r.runs.to_string(), units::time(r.seconds * 1e9), units::time(r.ns_per_lock)];
        table.row(words.into_iter().chain(numbers).chain(r.in_line.map(units::count)));
    }
    table
}

/// Measures and prints.
pub fn run(args: &CollideArgs, output: Output) -> Result<(), Failure> {
    let plan = Plan::new(args)?;
    let records = plan.measure(output)?;
    let rows = plan.rows(&records);
    let point = |r: &Row| Point { case: r.placement.name(), queue: r.queue, n: r.n, ns: r.seconds * 1e9 };
    let points: Vec<_> = rows.iter().map(point).collect();
    let growths = growth::growths("collide-growth", &points);
    growths.iter().try_for_each(|growth| output.record(growth))?;

    output.text(format_args!("{}\n\n{}\n", plan.headline(), table(&rows)))?;
    output.text(format_args!("The total time grows as n to the:\n{}\n", growth::table(&growths)))?;
    plan.remarks().iter().try_for_each(|remark| output.text(remark))?;
    disturbance(others(records.iter().map(|r| r.other_cpus))).map_or(Ok(()), |remark| output.text(remark))
}

const MANY_REMARKS: [&str; 2] = [
    "colliding: all locks are in one bucket. apart: the locks are side by side in memory, in as many buckets as \
     possible: a control.",
    "In line of A: the number of waiters for a lock at its unlock. A run of 4 s and more is not repeated.",
];

const REMARKS: [&str; 3] = [
    "colliding: A and B are in one bucket. apart: in two buckets, each of which has the waiters of one lock: a \
     control.",
    "A lock operation: the total time over the number of locks of A and B, without those of the hogs.",
    "In line: the number of waiters, on average over the rounds. A run of 4 s and more is not repeated.",
];
