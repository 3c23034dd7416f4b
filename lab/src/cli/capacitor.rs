//! The options of `capacitor` and of `bypass`.

use clap::Args;

use super::{EffortArgs, List, MAX_RUNS, MAX_THREADS, list, number, numbers};
use crate::compose::items;
use crate::compose::name::{MAX_WINDOW, sema};
use crate::locks::LockName;
use crate::semaphores::SemaphoreName;

/// Options of `capacitor`.
#[derive(Args, Clone, Debug)]
#[command(allow_negative_numbers = true)]
pub struct CapacitorArgs {
    /// Inner locks, by name [default: reciprocating,ticket,lifo,mcs,tts; with --tax and --sweep clh, too]
    #[arg(long, value_name = "A,B", value_parser = inner_locks)]
    pub locks: Option<List<LockName>>,

    /// Numbers of contenders, threads or goroutines [default: 1,2,4,8,16,32; with --sweep 16]
    #[arg(long, value_name = "N,N", value_parser = numbers::<1, MAX_THREADS>)]
    pub threads: Option<List<usize>>,

    /// The bypass limit
    #[arg(long, value_name = "N", default_value = "4", value_parser = limit)]
    pub b: u32,

    /// What platoons wait for; the tax is always that of the benaphore
    #[arg(long, value_name = "NAME", default_value = "benaphore", value_parser = sema)]
    pub sema: SemaphoreName,

    /// Only the tax: what a capacitor costs one contender alone
    #[arg(long, conflicts_with_all = NOT_OF_THE_TAX)]
    pub tax: bool,

    /// Only the sweep: bypass limits from 1 to 31
    #[arg(long, conflicts_with_all = NOT_OF_THE_SWEEP)]
    pub sweep: bool,

    /// Rounds of the tax, of about 20 ms for each lock, taking turns
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = number::<1, MAX_RUNS>)]
    pub rounds: usize,

    /// How much, and of what.
    #[command(flatten)]
    pub effort: EffortArgs,
}

/// What it does not read: nobody contends, for nothing but the lock, and the semaphore is always the same.
const NOT_OF_THE_TAX: [&str; 12] =
    ["sweep", "threads", "sema", "seconds", "runs", "cs", "ncs", "seed", "sample", "ungathered", "metrics", "window"];

/// What it does not read.
const NOT_OF_THE_SWEEP: [&str; 2] = ["b", "rounds"];

/// Options of `bypass`.
#[derive(Args, Clone, Debug)]
#[command(allow_negative_numbers = true)]
pub struct BypassArgs {
    /// Inner locks, by name [default: reciprocating,ticket,lifo,mcs,clh,tts]
    #[arg(long, value_name = "A,B", value_parser = inner_locks)]
    pub locks: Option<List<LockName>>,

    /// How many threads contend: more than the bypass limit, or nobody waits before the lock
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = number::<2, MAX_THREADS>)]
    pub threads: usize,

    /// The bypass limit
    #[arg(long, value_name = "N", default_value = "4", value_parser = limit)]
    pub b: u32,

    /// Acquisitions of each
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = number::<1, MAX_ACQUISITIONS>)]
    pub acquisitions: usize,

    /// Whether one arrival in a thousand is kept from the lock for a while, on its way from the capacitor
    #[arg(long, value_name = "on|off", default_value = "on", value_parser = on_or_off, action = clap::ArgAction::Set)]
    pub stall: bool,
}

/// The log of so many, and what is counted in it, are half a gigabyte.
const MAX_ACQUISITIONS: usize = 10_000_000;

/// Inner locks. These commands compose by themselves.
fn inner_locks(text: &str) -> Result<List<LockName>, String> {
    match items(text).into_iter().find(|item| item.contains(['(', ')'])) {
        Some(item) => Err(format!("'{item}' is composed; what is asked for here are inner locks, as 'go'")),
        None => list(text),
    }
}

/// One that all capacitors can have.
fn limit(text: &str) -> Result<u32, String> {
    const MOST: usize = MAX_WINDOW as usize;
    number::<1, MOST>(text).map(|limit| limit as u32)
}

fn on_or_off(text: &str) -> Result<bool, &'static str> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("it is 'on' or 'off'"),
    }
}
