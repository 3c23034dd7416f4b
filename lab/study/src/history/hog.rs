//! Go issue 13086: a hog, and a victim that wants the mutex now and then.
//!
//! The hog holds the mutex for 100 us, asleep, as in the issue and in Go's test (`TestMutexFairness`), and locks the
//! mutex again as soon as the hog has unlocked it. The victim waits for 100 us, then for the mutex. Until 1.8 an unlock
//! only woke the victim, which found the mutex locked again; since 1.9 the victim turns the mutex to starvation mode
//! when the victim has waited for a millisecond.
//!
//! In Go the victim is to run next on the processor of the hog, and does so when the hog sleeps again, under the mutex.
//! The same is true of goroutines of this project if both are on one worker, which is the default. Threads have a
//! processor each, where the system can be told so: otherwise a victim that is woken on the hog's processor takes the
//! processor from the hog in the middle of the hog's unlock, and finds the mutex free.
//!
//! A victim that does not get the mutex until the time is over has a wait of at least that time.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use sudog_runtime::shim::system;
use sudog_runtime::shim::system::atomic::AtomicBool;

use serde::Serialize;
use sudog_sync::mutex::policy::Policy;
use sudog_sync::semaphore::RuntimeSema;
use sudog_sync::{GoMutex, Order, Semaphore, Wake};

use super::on_workers;
use crate::history::HistoryArgs;
use crate::measure::metrics::median;
use crate::output::Output;
use crate::output::failure::Failure;
use crate::output::table::Table;
use crate::output::units;
use crate::run::contenders::{Contenders, Gate};
use crate::run::pinned::Pinned;
use crate::targets::policies::{PolicyJob, PolicyName, with_policy};

/// The policy that the others are compared with.
const SINCE: PolicyName = PolicyName::Go1_14;

/// The time for which the hog holds the mutex.
const HOLD: Duration = Duration::from_micros(100);

/// The number of times that the victim asks for the mutex.
const ROUNDS: usize = 50;

/// The parameters of a run under one policy.
#[derive(Clone, Copy)]
struct Scene {
    on: Contenders,
    limit: Duration,
}

/// The result of a run.
struct Ending {
    /// The victim's waits.
    waits: Vec<Duration>,
    /// True if the last wait was cut short.
    cut_short: bool,
    /// The number of times that the hog had the mutex.
    hogged: u64,
}

/// The record of a run.
#[derive(Clone, Serialize, Debug)]
struct HogRecord {
    bench: &'static str,
    story: &'static str,
    issue: u32,
    policy: PolicyName,
    #[serde(flatten)]
    on: Contenders,
    run: usize,
    hold_ns: u128,
    /// The number of times that the victim had the mutex.
    acquisitions: usize,
    /// The median of the victim's waits. If the victim did not get the mutex, the median is longer than this.
    wait_p50_ns: f64,
    wait_max_ns: f64,
    cut_short: bool,
    hogged: u64,
}

enum Role {
    Hog(u64),
    Victim { waits: Vec<Duration>, cut_short: bool },
}

struct Stage<P> {
    on: Contenders,
    mutex: GoMutex<RuntimeSema, P>,
    over: AtomicBool,
    /// A semaphore that has a permit when the victim is done.
    done: RuntimeSema,
}

impl PolicyJob for Scene {
    type Out = std::io::Result<Ending>;

    fn run<P: Policy + 'static>(self) -> Self::Out {
        let stage = Arc::new(Stage::<P> {
            on: self.on,
            mutex: GoMutex::const_new(),
            over: AtomicBool::new(false),
            done: RuntimeSema::new(0),
        });
        let theirs = Arc::clone(&stage);
        let body = move |number, gate: &Gate| {
            let running = gate.wait();
            let _pinned = (self.on.are_threads()).then(|| Pinned::to(number));
            if number == 0 { theirs.hog(running) } else { theirs.victim(running) }
        };
        let conduct = |gate: &Gate| {
            let until = system::now() + self.limit;
            gate.open(true);
            stage.done.acquire_until(Order::Fifo, until);
            stage.over.store(true, Relaxed);
        };
        let ((), roles) = self.on.fan_out(2, body, conduct)?;
        let mut ending = Ending { waits: Vec::new(), cut_short: false, hogged: 0 };
        for role in roles {
            match role {
                Role::Hog(times) => ending.hogged = times,
                Role::Victim { waits, cut_short } => (ending.waits, ending.cut_short) = (waits, cut_short),
            }
        }
        Ok(ending)
    }
}

impl<P: Policy> Stage<P> {
    fn hog(&self, running: bool) -> Role {
        let mut times = 0;
        while running && !self.over.load(Relaxed) {
            self.mutex.lock();
            self.on.sleep(HOLD);
            self.mutex.unlock();
            times += 1;
        }
        Role::Hog(times)
    }

    fn victim(&self, running: bool) -> Role {
        let (mut waits, mut cut_short) = (Vec::new(), false);
        while running && !cut_short && waits.len() < ROUNDS {
            self.on.sleep(Duration::from_micros(100));
            let start = system::now();
            self.mutex.lock();
            waits.push(system::now().saturating_duration_since(start));
            cut_short = self.over.load(Relaxed);
            self.mutex.unlock();
        }
        self.done.release(Wake::Normal);
        Role::Victim { waits, cut_short }
    }
}

impl HogRecord {
    fn new(scene: Scene, policy: PolicyName, run: usize, ending: &Ending) -> Self {
        let waits = || ending.waits.iter().map(|wait| wait.as_nanos() as f64);
        Self {
            bench: "history",
            story: "hog",
            issue: 13086,
            policy,
            on: scene.on,
            run,
            hold_ns: HOLD.as_nanos(),
            acquisitions: ending.waits.len() - usize::from(ending.cut_short),
            wait_p50_ns: median(waits()),
            wait_max_ns: waits().fold(f64::NAN, f64::max),
            cut_short: ending.cut_short,
            hogged: ending.hogged,
        }
    }
}

/// Runs the policies in turns.
pub(super) fn tell(args: &HistoryArgs, on: Contenders, output: Output) -> Result<(), Failure> {
    let on = on_workers(args, on, 1)?;
    let scene = Scene { on, limit: args.limit };
    let progress = output.progress("history: the hog", args.runs * PolicyName::ALL.len());
    let mut records = Vec::new();
    for run in 1..=args.runs {
        for &policy in PolicyName::ALL {
            let ending = with_policy(policy, scene)
                .map_err(|error| Failure::Run(format!("cannot start two contenders: {error}")))?;
            let record = HogRecord::new(scene, policy, run, &ending);
            output.record(&record)?;
            records.push(record);
            progress.inc(1);
        }
    }
    progress.finish_and_clear();

    let of = |policy: PolicyName, of: fn(&HogRecord) -> f64| {
        median(records.iter().filter(|record| record.policy == policy).map(of))
    };
    let mut table =
        Table::new(2, ["policy", "", "median wait", "/ go-1.14", "longest wait", "victim's share", "its turns of 50"]);
    for &policy in PolicyName::ALL {
        let wait = of(policy, |r| r.wait_p50_ns);
        let at_least = records.iter().any(|r| r.policy == policy && r.cut_short);
        let mark = if at_least { ">= " } else { "" };
        table.row([
            policy.name().to_owned(),
            policy.about().to_owned(),
            format!("{mark}{}", units::time(wait)),
            format!("{mark}{}", units::ratio(wait / of(SINCE, |r| r.wait_p50_ns))),
            format!("{mark}{}", units::time(of(policy, |r| r.wait_max_ns))),
            format!("{:.4}", of(policy, |r| r.acquisitions as f64 / (r.acquisitions as f64 + r.hogged as f64))),
            units::count(of(policy, |r| r.acquisitions as f64)),
        ]);
    }
    output.text(format_args!(
        "Go issue 13086 on {on}: a hog holds the mutex for {:?} and locks it again at once; a victim asks for it after \
         each 100µs, {ROUNDS} times or for {:?}. Medians of {} runs.\n\n{table}\n",
        HOLD, args.limit, args.runs
    ))?;
    let ratio = of(PolicyName::Go1_8, |r| r.wait_p50_ns) / of(SINCE, |r| r.wait_p50_ns);
    let or_longer =
        if records.iter().any(|r| r.policy == PolicyName::Go1_8 && r.cut_short) { " or longer" } else { "" };
    output.text(format_args!(
        "Before starvation mode the victim waited {ratio:.0} times as long{or_longer} as it does since 1.14.\n"
    ))
}
