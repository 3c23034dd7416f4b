//! The command line.

mod capacitor;
mod duration;
#[cfg(unix)]
mod goroutines;
mod history;
mod starvation;

use std::collections::HashSet;
use std::fmt::Display;
use std::hash::Hash;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::builder::RangedI64ValueParser;
use clap::{Args, Parser, Subcommand};

use crate::bench::collisions::{HashName, ProtocolName};
use crate::bench::plan::Logging;
use crate::bench::stages::StageName;
use crate::bench::syncbench::BenchName;
use crate::compose::{LockSpec, items};
use crate::contenders::{Contenders, Kind};
use crate::failure::Failure;
use crate::queues::QueueName;
use crate::rw_locks::RwLockName;
use crate::sections::CriticalSections;
use crate::semaphores::SemaphoreName;

pub use self::capacitor::{BypassArgs, CapacitorArgs};
#[cfg(unix)]
pub use self::goroutines::{ChildArgs, GoroutinesArgs, VersusGoArgs};
pub use self::history::{HistoryArgs, StoryName};
pub use self::starvation::StarvationArgs;

/// Compares locks and semaphores for throughput and for fairness. Without a command: compare.
#[derive(Parser, Debug)]
#[command(name = "sudog-lab", version)]
pub struct Cli {
    /// JSON lines on the standard output, and nothing else
    #[arg(long, global = true)]
    pub json: bool,

    /// Where to write the HTML report (compare, mutexbench, semabench, semtable, collide, capacitor and starvation)
    /// [compare: lab/report.html, starvation: lab/starvation.html in the target directory]
    #[arg(long, global = true, value_name = "PATH")]
    pub report: Option<PathBuf>,

    /// What to do.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// What to do.
#[derive(Subcommand, Clone, Debug)]
pub enum Command {
    /// Everything in about 25 seconds: one table and a report
    Compare(CompareArgs),
    /// Threads or goroutines that contend for one lock: throughput, fairness, waits
    Mutexbench(MutexbenchArgs),
    /// The same for one readers-writer lock: how many writes the readers stand
    Rwbench(RwbenchArgs),
    /// The same for one semaphore: the benchmark of the paper on waiting arrays, beside two floors
    Semabench(SemabenchArgs),
    /// What many semaphores do to each other in one waiting array: wake-ups in vain
    Collisions(CollisionsArgs),
    /// Two contended locks in one bucket of the semaphore table, with each of the queues that it can have
    Collide(CollideArgs),
    /// One thread or goroutine that locks and unlocks: nanoseconds
    Uncontended(UncontendedArgs),
    /// Locks in capacitors: throughput and fairness, bare and wrapped; and what it costs alone
    Capacitor(CapacitorArgs),
    /// How often one who waits is overtaken, counted by tickets, and whether that is within the bound
    Bypass(BypassArgs),
    /// Go's benchmarks of sync beside the best Rust peers: nanoseconds an operation
    Syncbench(SyncbenchArgs),
    /// MutexBench over the eight stages of the Go mutex: what each of them bought
    Stages(StagesArgs),
    /// Two stories of the Go mutex, with the policies that it had then: the hog, and the collapse
    History(HistoryArgs),
    /// Go's BenchmarkSemTable on the queue of the semaphore table; and what each of three queues is slow at
    Semtable(SemtableArgs),
    /// Starvation mode, seen: who waits, who overtakes, when the mutex is handed over
    Starvation(StarvationArgs),
    /// Goroutines: spawn, switch, ping-pong, daisy chain, fork-join, a million of them
    #[cfg(unix)]
    Goroutines(GoroutinesArgs),
    /// Go's own benchmarks on Go and here, alternately. Needs Go
    #[cfg(unix)]
    VersusGo(VersusGoArgs),
    /// One benchmark of versus-go in this process, which that command starts
    #[cfg(unix)]
    #[command(hide = true)]
    VersusGoChild(ChildArgs),
    /// The locks and semaphores, and what they can do
    List,
}

/// Options of `compare`.
#[derive(Args, Clone, Default, Debug)]
pub struct CompareArgs {
    /// A rehearsal of a few seconds: the figures are worth nothing
    #[arg(long)]
    pub quick: bool,

    /// What contends.
    #[command(flatten)]
    pub on: OnArgs,
}

/// Options of `mutexbench`.
#[derive(Args, Clone, Debug)]
#[command(allow_negative_numbers = true)] // so that the complaint is about the number
pub struct MutexbenchArgs {
    /// Locks, by name, or composed: see 'list' [default: all but those for study: stages, old policies, small locks]
    #[arg(long, value_name = "A,B", value_parser = list::<LockSpec>)]
    pub locks: Option<List<LockSpec>>,

    /// Numbers of contenders, threads or goroutines
    #[arg(long, value_name = "N,N", default_value = "1,2,4,16,64", value_parser = numbers::<1, MAX_THREADS>)]
    pub threads: List<usize>,

    /// How much, and of what.
    #[command(flatten)]
    pub effort: EffortArgs,
}

/// Options of `rwbench`.
#[derive(Args, Clone, Debug)]
#[command(allow_negative_numbers = true)]
pub struct RwbenchArgs {
    /// Readers-writer locks, by name [default: all]
    #[arg(long, value_name = "A,B", value_parser = list::<RwLockName>)]
    pub locks: Option<List<RwLockName>>,

    /// Numbers of contenders, threads or goroutines
    #[arg(long, value_name = "N,N", default_value = "1,2,8", value_parser = numbers::<1, MAX_THREADS>)]
    pub threads: List<usize>,

    /// Of a thousand visits, how many are to write
    #[arg(long, value_name = "N,N", default_value = "0,1,10,100,500", value_parser = numbers::<0, 1000>)]
    pub writes: List<usize>,

    /// How much, and of what.
    #[command(flatten)]
    pub effort: EffortArgs,
}

/// Options of `semabench`.
#[derive(Args, Clone, Debug)]
#[command(allow_negative_numbers = true)]
pub struct SemabenchArgs {
    /// Semaphores, by name [default: all]
    #[arg(long, value_name = "A,B", value_parser = list::<SemaphoreName>)]
    pub semaphores: Option<List<SemaphoreName>>,

    /// Numbers of contenders, threads or goroutines
    #[arg(long, value_name = "N,N", default_value = "1,2,4,8,16,32,64", value_parser = numbers::<1, MAX_THREADS>)]
    pub threads: List<usize>,

    /// Permits. With more than one no generator is shared, and no order is counted
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = permits())]
    pub permits: u32,

    /// How much, and of what.
    #[command(flatten)]
    pub effort: EffortArgs,
}

/// What mutexbench, rwbench, semabench and stages have in common: how much is measured, and what is done.
#[derive(Args, Clone, Debug)]
pub struct EffortArgs {
    /// How long a run takes
    #[arg(long, value_name = "S", default_value = "1", value_parser = seconds)]
    pub seconds: Duration,

    /// Runs of each with each number of contenders, taking turns
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = number::<1, MAX_RUNS>)]
    pub runs: usize,

    /// Steps of the shared generator in the critical section; of the contender's own, if several may be in there. One
    /// number for all contenders, or one for each, over and over
    #[arg(long, value_name = "N,N", default_value_t = CriticalSections::all(DEFAULT_CS))]
    pub cs: CriticalSections,

    /// Steps of the contender's own generator outside it [default: 0; semabench 1]
    #[arg(long, value_name = "N", value_parser = steps())]
    pub ncs: Option<u32>,

    /// What the generators start from. What a lock draws itself, as fractional admission does, is not among it
    #[arg(long, value_name = "N", default_value_t = DEFAULT_SEED)]
    pub seed: u32,

    /// What contends.
    #[command(flatten)]
    pub on: OnArgs,

    /// One wait in N is timed, as well as each of two milliseconds and more; 0: none, to see what timing costs
    #[arg(long, value_name = "N", default_value_t = DEFAULT_SAMPLE, value_parser = steps())]
    pub sample: u32,

    /// Let contenders in as the system starts them. Else nobody is let in before all have come, where one is let in at a
    /// time; logged runs are always so
    #[arg(long)]
    pub ungathered: bool,

    /// After each run one more, in which every admission is logged: bypass, fairness in windows, dead time, handovers,
    /// sleeps
    #[arg(long)]
    pub metrics: bool,

    /// Admissions in a window of '--metrics' [default: 64 for each contender]
    #[arg(long, value_name = "N", value_parser = number::<1, MAX_WINDOW>)]
    pub window: Option<usize>,
}

/// Options of `collisions`.
#[derive(Args, Clone, Debug)]
#[command(allow_negative_numbers = true)]
pub struct CollisionsArgs {
    /// Numbers of pairs of threads, each of which hands a permit back and forth by two semaphores
    #[arg(long, value_name = "N,N", default_value = "1,4,16,64,256", value_parser = numbers::<1, MAX_PAIRS>)]
    pub ns: List<usize>,

    /// Hashes, by name and number of buckets [default: all]
    #[arg(long, value_name = "A,B", value_parser = list::<HashName>)]
    pub hashes: Option<List<HashName>>,

    /// How they wait, by name [default: all]
    #[arg(long, value_name = "A,B", value_parser = list::<ProtocolName>)]
    pub protocols: Option<List<ProtocolName>>,

    /// How long a run takes
    #[arg(long, value_name = "S", default_value = "0.1", value_parser = seconds)]
    pub seconds: Duration,

    /// Runs of each, taking turns
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = number::<1, MAX_RUNS>)]
    pub runs: usize,
}

/// Options of `collide`.
#[derive(Args, Clone, Debug)]
#[command(allow_negative_numbers = true)]
pub struct CollideArgs {
    /// Queues, by name [default: all]
    #[arg(long, value_name = "A,B", value_parser = list::<QueueName>)]
    pub queue: Option<List<QueueName>>,

    /// Numbers of those who lock A and B [default: 100,300,1000,3000,10000; of threads up to 1000]
    #[arg(long, value_name = "N,N", value_parser = numbers::<1, MAX_COLLIDING>)]
    pub ns: Option<List<usize>>,

    /// How often each of them does. In Go issue 17953: 10
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = number::<1, MAX_RUNS>)]
    pub rounds: usize,

    /// Hogs: those who lock B only. In Go issue 17953: 100
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = number::<1, MAX_THREADS>)]
    pub hogs: usize,

    /// Runs of each, taking turns
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = number::<1, MAX_RUNS>)]
    pub runs: usize,

    /// What contends: threads or goroutines
    #[arg(long, value_name = "WHAT", default_value = COLLIDING)]
    pub on: Kind,

    /// How many workers run the goroutines [default: as many as there are processors]
    #[arg(long, value_name = "N", value_parser = number::<1, MAX_WORKERS>)]
    pub workers: Option<usize>,
}

impl CollideArgs {
    /// What contends.
    #[must_use]
    pub fn on(&self) -> OnArgs {
        OnArgs { on: self.on, workers: self.workers }
    }
}

/// Options of `uncontended`.
#[derive(Args, Clone, Debug)]
#[command(allow_negative_numbers = true)]
pub struct UncontendedArgs {
    /// Locks, by name, or composed: see 'list' [default: all but those for study: stages, old policies, small locks]
    #[arg(long, value_name = "A,B", value_parser = list::<LockSpec>)]
    pub locks: Option<List<LockSpec>>,

    /// Rounds of about 20 ms for each lock, the locks taking turns
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = number::<1, MAX_RUNS>)]
    pub rounds: usize,

    /// What it runs on.
    #[command(flatten)]
    pub on: OnArgs,
}

/// Options of `syncbench`.
#[derive(Args, Clone, Debug)]
#[command(allow_negative_numbers = true)]
pub struct SyncbenchArgs {
    /// Benchmarks, by name [default: all]
    #[arg(long, value_name = "A,B", value_parser = list::<BenchName>)]
    pub benches: Option<List<BenchName>>,

    /// Numbers of threads that divide the operations among themselves
    #[arg(long, value_name = "N,N", default_value = "1,2", value_parser = numbers::<1, MAX_THREADS>)]
    pub threads: List<usize>,

    /// How long a run takes at least
    #[arg(long, value_name = "S", default_value = "0.1", value_parser = seconds)]
    pub min_time: Duration,

    /// Runs of each, those that are compared taking turns
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = number::<1, MAX_RUNS>)]
    pub runs: usize,
}

/// Options of `stages`.
#[derive(Args, Clone, Debug)]
#[command(allow_negative_numbers = true)]
pub struct StagesArgs {
    /// Stages, by name [default: all]
    #[arg(long, value_name = "A,B", value_parser = list::<StageName>)]
    pub stages: Option<List<StageName>>,

    /// Numbers of contenders, threads or goroutines
    #[arg(long, value_name = "N,N", default_value = "1,2,4,16", value_parser = numbers::<1, MAX_THREADS>)]
    pub threads: List<usize>,

    /// How much, and of what.
    #[command(flatten)]
    pub effort: EffortArgs,
}

/// Options of `semtable`.
#[derive(Args, Clone, Debug)]
#[command(allow_negative_numbers = true)]
pub struct SemtableArgs {
    /// Numbers of waiters [default: from 1000 to 64000, doubling; for the cases that '--queue' adds, to 16000]
    #[arg(long, value_name = "N,N", value_parser = numbers::<2, MAX_WAITERS>)]
    pub ns: Option<List<usize>>,

    /// Queues, by name, to be measured in two more cases, in which each shows what it is slow at, taking turns [default:
    /// none; Go's cases are measured on the treap]
    #[arg(long, value_name = "A,B", value_parser = list::<QueueName>)]
    pub queue: Option<List<QueueName>>,

    /// Repetitions of each
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = number::<1, MAX_RUNS>)]
    pub runs: usize,

    /// There is no choice, and it is refused, with the reason
    #[arg(long, hide = true)]
    pub on: Option<String>,
}

/// What contends, for the commands in which something does.
#[derive(Args, Clone, Default, Debug)]
pub struct OnArgs {
    /// What contends: threads or goroutines
    #[arg(long, value_name = "WHAT", default_value = "threads")]
    pub on: Kind,

    /// How many workers run the goroutines [default: as many as there are processors]
    #[arg(long, value_name = "N", value_parser = number::<1, MAX_WORKERS>)]
    pub workers: Option<usize>,
}

impl EffortArgs {
    /// Whether each run is to be followed by one that is logged, and how those are judged.
    pub fn logging(&self) -> Result<Option<Logging>, Failure> {
        match (self.metrics, self.window) {
            (true, window) => Ok(Some(Logging { window })),
            (false, None) => Ok(None),
            (false, Some(_)) => Err(Failure::Usage("only logged runs have windows: '--metrics'".into())),
        }
    }
}

impl OnArgs {
    /// What was asked for.
    pub fn contenders(&self) -> Result<Contenders, Failure> {
        match self.on {
            Kind::Goroutines => Contenders::goroutines(self.workers).map_err(Failure::Usage),
            Kind::Threads if self.workers.is_some() => {
                Err(Failure::Usage("only goroutines have workers: '--on goroutines'".into()))
            }
            Kind::Threads => Ok(Contenders::Threads),
        }
    }
}

/// One step of the shared generator, as in Dice's papers.
pub const DEFAULT_CS: u32 = 1;
/// Any number is as good.
pub const DEFAULT_SEED: u32 = 1;
/// Timing one in so many costs less than can be told from chance, even where the lock is all there is.
pub const DEFAULT_SAMPLE: u32 = 512;

/// More than can be had on most machines.
pub const MAX_THREADS: usize = 4096;
const MAX_PAIRS: usize = MAX_THREADS / 2;
const MAX_PERMITS: i64 = 1 << 30;
/// The runtime has no more.
const MAX_WORKERS: usize = 256;
const MAX_RUNS: usize = 10_000;
const MAX_STEPS: i64 = CriticalSections::MAX_STEPS as i64;
const MAX_WINDOW: usize = crate::log::MOST;
const MAX_WAITERS: usize = 1 << 20;
const MAX_COLLIDING: usize = 1 << 20;
/// Where there are any: of threads not enough can wait.
const COLLIDING: &str = if cfg!(unix) { "goroutines" } else { "threads" };
const SECONDS: RangeInclusive<f64> = 0.001..=3600.0;

/// Different values with commas in between. A type of its own, as clap takes a `Vec` for an option that is repeated.
#[derive(Clone, Debug)]
pub struct List<T>(pub Vec<T>);

impl Cli {
    /// Parses the command line of this process. What was asked for is wrong in one line, or help, which ends the
    /// process.
    pub fn from_env() -> Result<Self, Failure> {
        let cli = Self::try_parse().map_err(|error| {
            if !error.use_stderr() {
                error.exit();
            }
            // What is wrong may be a list, one of its items on each line; behind a blank one is how it would be right.
            let text = error.render().to_string();
            let lines: Vec<_> = text.lines().take_while(|line| !line.is_empty()).map(str::trim).collect();
            Failure::Usage(lines.join(" ").trim_start_matches("error: ").to_owned())
        })?;
        let reports = matches!(
            &cli.command,
            None | Some(
                Command::Compare(_)
                    | Command::Mutexbench(_)
                    | Command::Semabench(_)
                    | Command::Semtable(_)
                    | Command::Collide(_)
                    | Command::Capacitor(_)
                    | Command::Starvation(_)
            )
        );
        match reports || cli.report.is_none() {
            true => Ok(cli),
            false => {
                let why =
                    "only compare, mutexbench, semabench, semtable, collide, capacitor and starvation write a report";
                Err(Failure::Usage(why.into()))
            }
        }
    }
}

fn list<T>(text: &str) -> Result<List<T>, String>
where
    T: FromStr<Err: Display> + Copy + Eq + Hash,
{
    let items = items(text);
    let values = items.iter().map(|item| item.parse().map_err(|e: T::Err| e.to_string()));
    let values: Vec<T> = values.collect::<Result<_, _>>()?;
    let mut seen = HashSet::new();
    match values.iter().position(|value| !seen.insert(*value)) {
        Some(repeated) => Err(format!("'{}' is there twice", items[repeated])),
        None => Ok(List(values)),
    }
}

fn numbers<const MIN: usize, const MAX: usize>(text: &str) -> Result<List<usize>, String> {
    let list = list::<usize>(text)?;
    list.0.iter().try_for_each(|&n| check(n, MIN..=MAX))?;
    Ok(list)
}

fn number<const MIN: usize, const MAX: usize>(text: &str) -> Result<usize, String> {
    let n = text.parse().map_err(|e: std::num::ParseIntError| e.to_string())?;
    check(n, MIN..=MAX)?;
    Ok(n)
}

fn steps() -> RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(0..=MAX_STEPS)
}

fn permits() -> RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=MAX_PERMITS)
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|e: std::num::ParseFloatError| e.to_string())?;
    check(seconds, SECONDS)?; // nothing that is not a number is in a range
    Ok(Duration::from_secs_f64(seconds))
}

fn check<T: PartialOrd + Display>(value: T, range: RangeInclusive<T>) -> Result<(), String> {
    match range.contains(&value) {
        true => Ok(()),
        false => Err(format!("must be from {} to {}", range.start(), range.end())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locks::LockName;

    #[test]
    fn the_definition_is_sound() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    #[test]
    fn lists() {
        assert_eq!(numbers::<1, 9>("1, 2,9").unwrap().0, [1, 2, 9]);
        for bad in ["", "0", "10", "1,1", "1,,2", "x", "-1"] {
            assert!(numbers::<1, 9>(bad).is_err(), "{bad}");
        }
        assert_eq!(list::<LockName>("std,go").unwrap().0, [LockName::Std, LockName::Go]);
        assert_eq!(list::<LockName>("std,std").unwrap_err(), "'std' is there twice");
        assert_eq!(list::<QueueName>("treap,one-level").unwrap().0, [QueueName::Treap, QueueName::OneLevel]);
        let unknown = "unknown queue 'heap'; known: one-level, two-level, treap";
        assert_eq!(list::<QueueName>("treap,heap").unwrap_err(), unknown);
    }

    #[test]
    fn no_absurd_times() {
        assert_eq!(seconds("0.25"), Ok(Duration::from_millis(250)));
        for bad in ["0", "-1", "NaN", "inf", "1e9", "1e-9", "soon"] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }
}
