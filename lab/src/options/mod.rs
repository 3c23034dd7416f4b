//! Options that several commands have, and the parsers of their values.

mod duration;

pub use self::duration::{duration, some_time};

use std::collections::HashSet;
use std::fmt::Display;
use std::hash::Hash;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use clap::builder::RangedI64ValueParser;

use crate::output::failure::Failure;
use crate::run::contenders::{Contenders, Kind};
use crate::run::sections::CriticalSections;
use crate::targets::compose::items;

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

    /// Contenders begin as the system starts them. Else contenders start together, where the target admits one at a time;
    /// logged runs are always so
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

/// How logged runs are judged.
#[derive(Clone, Copy, Debug)]
pub struct Logging {
    /// Admissions in a window, if given.
    pub window: Option<usize>,
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

/// One step of the shared generator, as in Dice's papers.
pub const DEFAULT_CS: u32 = 1;
/// Any number is as good.
pub const DEFAULT_SEED: u32 = 1;
/// Timing one in so many costs less than can be told from chance, even where the lock is all there is.
pub const DEFAULT_SAMPLE: u32 = 512;

/// More than can be had on most machines.
pub const MAX_THREADS: usize = 4096;
pub const MAX_PERMITS: i64 = 1 << 30;
/// The runtime has no more.
pub const MAX_WORKERS: usize = 256;
pub const MAX_RUNS: usize = 10_000;
pub const MAX_STEPS: i64 = CriticalSections::MAX_STEPS as i64;
pub const MAX_WINDOW: usize = crate::measure::log::MOST;
pub const SECONDS: RangeInclusive<f64> = 0.001..=3600.0;

/// Different values with commas in between. A type of its own, as clap takes a `Vec` for an option that is repeated.
#[derive(Clone, Debug)]
pub struct List<T>(pub Vec<T>);

pub fn list<T>(text: &str) -> Result<List<T>, String>
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

pub fn permits() -> RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=MAX_PERMITS)
}

pub fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|e: std::num::ParseFloatError| e.to_string())?;
    check(seconds, SECONDS)?; // nothing that is not a number is in a range
    Ok(Duration::from_secs_f64(seconds))
}

pub fn check<T: PartialOrd + Display>(value: T, range: RangeInclusive<T>) -> Result<(), String> {
    match range.contains(&value) {
        true => Ok(()),
        false => Err(format!("must be from {} to {}", range.start(), range.end())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::targets::locks::LockName;
    use crate::targets::queues::QueueName;

    #[test]
    fn lists() {
        assert_eq!(numbers::<1, 9>("1, 2,9").unwrap().0, [1, 2, 9]);
        for bad in ["", "0", "10", "1,1", "1,,2", "x", "-1"] {
            assert!(numbers::<1, 9>(bad).is_err(), "{bad}");
        }
        assert_eq!(list::<LockName>("std,go").unwrap().0, [LockName::Std, LockName::Go]);
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
