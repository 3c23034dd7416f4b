//! Go issue 33747: many goroutines that need a mutex for a hundredth of their time.
//!
//! Once a waiter has waited for a millisecond, each unlock hands the mutex over. If the unlocking goroutine goes on to
//! its work outside, a waiter of the same processor runs when that work is done; all this time the mutex is the
//! waiter's, and no contender uses it. So waiters have always waited for more than a millisecond, and starvation mode
//! does not end: two goroutines are at work, however many processors there are. Since 1.14 the unlocking goroutine
//! yields, and the waiter has the rest of the goroutine's time slice.
//!
//! In the issue this begins at about 28 processors, where by chance enough goroutines meet at the mutex. On a machine
//! with two processors, two goroutines at work are all there can be. So this program stages the collapse:
//!
//! * *Processors are simulated.* Work outside is sleep, of the worker and not of the goroutine: the worker is taken, as
//!   a processor would be, and its goroutines wait. Work under the mutex is done.
//! * *Chance is helped.* At the start a contender holds the mutex for some milliseconds (as after a page fault, or if a
//!   thread loses its processor), so all contenders queue. The run measures whether they ever get out of the queue.
//!
//! Goroutines of this project stay on their workers, where Go's move to the processor of the goroutine that readies
//! them. So yielding helps only if the waiter is of the same worker: less than in Go. On threads no thread yields, and
//! no thread waits for another's work outside: there the policies are alike.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use sudog_runtime::shim::system;
use sudog_runtime::shim::system::atomic::{AtomicBool, AtomicU64};
use sudog_runtime::shim::system::thread;

use crossbeam_utils::CachePadded;
use serde::Serialize;
use sudog_sync::GoMutex;
use sudog_sync::mutex::policy::Policy;
use sudog_sync::semaphore::RuntimeSema;

use super::on_workers;
use crate::measure::metrics::median;
use crate::output::Output;
use crate::output::failure::Failure;
use crate::output::table::Table;
use crate::output::units;
use crate::run::contenders::{Contenders, Gate};
use crate::study::history::HistoryArgs;
use crate::targets::policies::{PolicyJob, PolicyName, with_policy};

/// The default number of simulated processors: the effect is visible with so many.
const PROCESSORS: usize = 8;

/// The parameters of a run under one policy.
#[derive(Clone, Copy)]
pub struct Scene {
    pub on: Contenders,
    pub contenders: usize,
    pub duration: Duration,
    pub stall: Duration,
    pub inside: Duration,
    pub outside: Duration,
    /// A function that works outside the mutex for so long.
    pub work_outside: fn(Duration),
}

/// The result of a run.
pub struct Ending {
    pub elapsed: Duration,
    pub operations: u64,
    /// The waits of each contender.
    #[cfg_attr(not(sudog_sim), expect(dead_code))]
    pub waits: Vec<Waits>,
    /// The part of the conductor's looks in which the mutex was in starvation mode.
    pub starving: f64,
}

/// The record of a run.
#[derive(Clone, Serialize, Debug)]
struct CollapseRecord {
    bench: &'static str,
    story: &'static str,
    issue: u32,
    policy: PolicyName,
    #[serde(flatten)]
    on: Contenders,
    contenders: usize,
    run: usize,
    cost_ns: u128,
    stall_ns: u128,
    ratio: f64,
    operations: u64,
    ns_per_op: f64,
    /// The part of the time in which the mutex was in starvation mode.
    starving: f64,
}

/// The waits of a contender, without the first wait, which the stall makes. Timed on simulated processors only.
#[derive(Default)]
pub struct Waits {
    pub rounds: u64,
    pub time: Duration,
    /// The number of waits of more than a millisecond, after which the mutex goes into starvation mode.
    pub long: u64,
}

impl Waits {
    fn add(&mut self, wait: Duration) {
        self.rounds += 1;
        self.time += wait;
        self.long += u64::from(wait > Duration::from_millis(1));
    }
}

impl PolicyJob for Scene {
    type Out = std::io::Result<Ending>;

    fn run<P: Policy + 'static>(self) -> Self::Out {
        let mutex = Arc::new(GoMutex::<RuntimeSema, P>::const_new());
        let over = Arc::new(AtomicBool::new(false));
        let counts: Arc<[CachePadded<AtomicU64>]> = (0..self.contenders).map(|_| CachePadded::default()).collect();
        let done = || counts.iter().map(|count| count.load(Relaxed)).sum::<u64>();
        let theirs = (Arc::clone(&mutex), Arc::clone(&over), Arc::clone(&counts));
        let body = move |number: usize, gate: &Gate| {
            let (mutex, over, counts) = &theirs;
            let (mut waits, mut is_first) = (Waits::default(), true);
            let running = gate.wait();
            while running && !over.load(Relaxed) {
                (self.work_outside)(self.outside);
                let requested = cfg!(sudog_sim).then(system::now);
                mutex.lock();
                let start = system::now();
                if let Some(requested) = requested.filter(|_| !std::mem::take(&mut is_first)) {
                    waits.add(start.saturating_duration_since(requested));
                }
                while system::now().saturating_duration_since(start) < self.inside {}
                mutex.unlock();
                counts[number].fetch_add(1, Relaxed); // on a separate line
            }
            waits
        };
        let conduct = |gate: &Gate| {
            mutex.lock();
            gate.open(true);
            thread::sleep(self.stall);
            mutex.unlock();
            let start = system::now();
            let before = done();
            let (mut looks, mut starving) = (0, 0);
            while system::now().saturating_duration_since(start) < self.duration {
                thread::sleep(Duration::from_millis(1));
                looks += 1;
                starving += u32::from(mutex.is_starving());
            }
            let (elapsed, operations) = (system::now().saturating_duration_since(start), done() - before);
            over.store(true, Relaxed);
            Ending { elapsed, operations, waits: Vec::new(), starving: f64::from(starving) / f64::from(looks.max(1)) }
        };
        let (ending, waits) = self.on.fan_out(self.contenders, body, conduct)?;
        Ok(Ending { waits, ..ending })
    }
}

/// Runs the policies in turns.
pub(super) fn tell(args: &HistoryArgs, on: Contenders, output: Output) -> Result<(), Failure> {
    const COMPARED: [PolicyName; 4] = [PolicyName::Go1_8, PolicyName::Go1_9, PolicyName::Go1_14, PolicyName::Threads];
    let (inside, outside) = (args.cost.mul_f64(args.ratio), args.cost.mul_f64(1.0 - args.ratio));
    let on = on_workers(args, on, PROCESSORS)?;
    let numbers = &args.contenders.0;
    let progress = output.progress("history: the collapse", args.runs * numbers.len() * COMPARED.len());
    let mut records = Vec::new();
    for run in 1..=args.runs {
        for &contenders in numbers {
            for policy in COMPARED {
                let scene = Scene {
                    on,
                    contenders,
                    duration: args.seconds,
                    stall: args.stall,
                    inside,
                    outside,
                    work_outside: thread::sleep,
                };
                let ending = with_policy(policy, scene)
                    .map_err(|error| Failure::Run(format!("cannot start {contenders} contenders: {error}")))?;
                let record = CollapseRecord {
                    bench: "history",
                    story: "collapse",
                    issue: 33747,
                    policy,
                    on,
                    contenders,
                    run,
                    cost_ns: args.cost.as_nanos(),
                    stall_ns: args.stall.as_nanos(),
                    ratio: args.ratio,
                    operations: ending.operations,
                    ns_per_op: ending.elapsed.as_nanos() as f64 / ending.operations as f64,
                    starving: ending.starving,
                };
                output.record(&record)?;
                records.push(record);
                progress.inc(1);
            }
        }
    }
    progress.finish_and_clear();

    let of = |policy: PolicyName, contenders: usize, of: fn(&CollapseRecord) -> f64| {
        median(records.iter().filter(|r| r.policy == policy && r.contenders == contenders).map(of))
    };
    let names = COMPARED.iter().map(|policy| policy.name().to_owned());
    let starving = COMPARED[1..].iter().map(|policy| format!("starving {}", policy.name()));
    let header =
        ["contenders".to_owned()].into_iter().chain(names).chain(["go-1.9 / go-1.14".to_owned()]).chain(starving);
    let mut table = Table::new(0, header);
    let mut worst = (f64::NAN, 0);
    for &n in numbers {
        let ratio = of(PolicyName::Go1_9, n, |r| r.ns_per_op) / of(PolicyName::Go1_14, n, |r| r.ns_per_op);
        if worst.0.is_nan() || ratio > worst.0 {
            worst = (ratio, n);
        }
        let times = COMPARED.map(|policy| units::time(of(policy, n, |r| r.ns_per_op)));
        let starving = COMPARED[1..].iter().map(|&policy| units::ratio(of(policy, n, |r| r.starving)));
        table.row([n.to_string()].into_iter().chain(times).chain([units::ratio(ratio)]).chain(starving));
    }
    output.text(format_args!(
        "Go issue 33747 on {on}: each contender works for {:?}, {} of it under the mutex. At the start the mutex is \
         held for {:?}. From then on: the time for each round of a contender, and the part of the time in which the \
         mutex is in starvation mode; medians of {} runs of {:?}.\n\n{table}\n",
        args.cost, args.ratio, args.stall, args.runs, args.seconds
    ))?;
    output.text(format_args!(
        "Without the yield at a handoff (1.9) a round takes at most {} times as long as with the yield (1.14), at {} \
         contenders.\n",
        units::ratio(worst.0),
        worst.1
    ))
}
