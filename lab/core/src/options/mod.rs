//! Options that several commands have, and the parsers of their values.

mod duration;

pub use self::duration::{duration, some_time};

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use clap::builder::RangedI64ValueParser;

use crate::output::failure::Failure;
use crate::run::contenders::{Contenders, Kind};
use crate::run::sections::CriticalSections;
use crate::targets::compose::{self, items};
use crate::targets::locks::LockName;

/// Options that mutexbench, rwbench, semabench and stages have in common: the effort, and the workload.
#[derive(Args, Clone, Debug)]
pub struct EffortArgs {
    /// Seconds of a run [default: 1; capacitor 0.2]
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub seconds: Option<Duration>,

    /// Runs of each target with each number of contenders, taking turns
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = number::<1, MAX_RUNS>)]
    pub runs: usize,

    /// Steps of the shared generator in the critical section; of the contender's own, if several may be inside. A
    /// number for all contenders, or a number for each, over and over
    #[arg(long, value_name = "N,N", default_value_t = CriticalSections::all(DEFAULT_CS))]
    pub cs: CriticalSections,

    /// Steps of the contender's own generator outside the critical section [default: 0; semabench 1]
    #[arg(long, value_name = "N", value_parser = steps())]
    pub ncs: Option<u32>,

    #[command(flatten)]
    pub on: OnArgs,

    /// Time one wait in N, and all waits of two milliseconds and more; 0: time none, to see the cost of timing
    #[arg(long, value_name = "N", default_value_t = DEFAULT_SAMPLE, value_parser = steps())]
    pub sample: u32,

    /// Let contenders begin as the system starts them. By default contenders start together, where the target admits
    /// one at a time; in logged runs they always do
    #[arg(long)]
    pub ungathered: bool,

    /// Follow each run by a run in which every admission is logged: bypass, fairness in windows, dead time, handovers,
    /// sleeps
    #[arg(long)]
    pub metrics: bool,
}

/// Options for the kind of contenders, for the commands with contention.
#[derive(Args, Clone, Default, Debug)]
pub struct OnArgs {
    /// Contenders: threads or goroutines
    #[arg(long, value_name = "WHAT", default_value = "threads")]
    pub on: Kind,

    /// Number of workers that run the goroutines [default: the number of processors]
    #[arg(long, value_name = "N", value_parser = number::<1, MAX_WORKERS>)]
    pub workers: Option<usize>,
}

impl OnArgs {
    /// Returns the contenders that the options ask for.
    pub fn contenders(&self) -> Result<Contenders, Failure> {
        match self.on {
            Kind::Goroutines => Contenders::goroutines(self.workers).map_err(Failure::Usage),
            _ if self.workers.is_some() => {
                Err(Failure::Usage("only goroutines have workers: '--on goroutines'".into()))
            }
            Kind::Threads => Ok(Contenders::Threads),
            Kind::PinnedThreads if cfg!(target_os = "linux") && cfg!(not(sudog_sim)) => Ok(Contenders::PinnedThreads),
            Kind::PinnedThreads => {
                Err(Failure::Usage("threads can be pinned on Linux only, and on no simulated machine".into()))
            }
        }
    }
}

/// The default critical section: a step of the shared generator, as in Dice's papers.
pub const DEFAULT_CS: u32 = 1;
/// The default rate of timed waits, one in 512. The cost of timing is lost in the noise at this rate, even where the
/// contenders do nothing but lock.
pub const DEFAULT_SAMPLE: u32 = 512;

/// The largest number of threads: more than most machines can start.
pub const MAX_THREADS: usize = 4096;
/// The largest number of workers that the runtime can have.
pub const MAX_WORKERS: usize = 256;
pub const MAX_RUNS: usize = 10_000;
pub const MAX_STEPS: i64 = CriticalSections::MAX_STEPS as i64;
pub const SECONDS: RangeInclusive<f64> = 0.001..=3600.0;

/// A list of different values with commas in between. A separate type, as clap takes a `Vec` for an option that is
/// repeated.
#[derive(Clone, Debug)]
pub struct List<T>(pub Vec<T>);

pub fn list<T>(text: &str) -> Result<List<T>, String>
where
    T: FromStr<Err: Display> + Copy + Eq,
{
    let items = items(text);
    let values = items.iter().map(|item| item.parse().map_err(|e: T::Err| e.to_string()));
    let values: Vec<T> = values.collect::<Result<_, _>>()?;
    match (0..values.len()).find(|&n| values[..n].contains(&values[n])) {
        Some(repeated) => Err(format!("'{}' is there twice", items[repeated])),
        None => Ok(List(values)),
    }
}

pub fn numbers<const MIN: usize, const MAX: usize>(text: &str) -> Result<List<usize>, String> {
    let list = list::<usize>(text)?;
    list.0.iter().try_for_each(|&n| check(n, MIN..=MAX))?;
    Ok(list)
}

pub fn number<const MIN: usize, const MAX: usize>(text: &str) -> Result<usize, String> {
    let n = text.parse().map_err(|e: std::num::ParseIntError| e.to_string())?;
    check(n, MIN..=MAX)?;
    Ok(n)
}

pub fn steps() -> RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(0..=MAX_STEPS)
}

pub fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|e: std::num::ParseFloatError| e.to_string())?;
    check(seconds, SECONDS)?; // NaN is in no range
    Ok(Duration::from_secs_f64(seconds))
}

pub fn check<T: PartialOrd + Display>(value: T, range: RangeInclusive<T>) -> Result<(), String> {
    match range.contains(&value) {
        true => Ok(()),
        false => Err(format!("must be from {} to {}", range.start(), range.end())),
    }
}

/// Parses inner locks. Composed locks are refused, as these commands compose by themselves.
pub fn inner_locks(text: &str) -> Result<List<LockName>, String> {
    match items(text).into_iter().find(|item| item.contains(['(', ')'])) {
        Some(item) => Err(format!("'{item}' is composed; this command takes inner locks, as 'sudog'")),
        None => list(text),
    }
}

/// Parses a bypass limit that all capacitors can have.
pub fn limit(text: &str) -> Result<u32, String> {
    const MOST: usize = compose::name::MAX_WINDOW as usize;
    number::<1, MOST>(text).map(|limit| limit as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::targets::queues::QueueName;

    #[test]
    fn lists() {
        assert_eq!(numbers::<1, 9>("1, 2,9").unwrap().0, [1, 2, 9]);
        for bad in ["", "0", "10", "1,1", "1,,2", "x", "-1"] {
            assert!(numbers::<1, 9>(bad).is_err(), "{bad}");
        }
        assert_eq!(list::<LockName>("std,sudog").unwrap().0, [LockName::Std, LockName::Sudog]);
        assert_eq!(list::<LockName>("std,std").unwrap_err(), "'std' is there twice");
        assert_eq!(list::<QueueName>("treap,one-level").unwrap().0, [QueueName::Treap, QueueName::OneLevel]);
        let unknown = "unknown queue 'heap'; known: one-level, two-level, treap, treap-go";
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
