//! The commands that need goroutines.

use std::time::Duration;

use clap::Args;

use super::{List, MAX_RUNS, list, number, numbers, seconds};
use crate::bench::versus_go::benches::Name;

const MILLION: usize = 1_000_000;
const MAX_COUNT: usize = 100_000_000;
/// The runtime has no more.
const MAX_WORKERS: usize = 256;

/// How much is measured.
#[derive(Args, Clone, Debug)]
pub struct Extent {
    /// Numbers of workers: GOMAXPROCS for Go
    #[arg(long, value_name = "N,N", default_value = "1,2", value_parser = numbers::<1, MAX_WORKERS>)]
    pub workers: List<usize>,

    /// How long a run takes at least
    #[arg(long, value_name = "S", default_value = "0.2", value_parser = seconds)]
    pub min_time: Duration,

    /// How many goroutines Million makes
    #[arg(long, value_name = "N", default_value_t = MILLION, value_parser = number::<1, MAX_COUNT>)]
    pub count: usize,
}

/// Options of `goroutines`.
#[derive(Args, Clone, Debug)]
#[command(allow_negative_numbers = true)]
pub struct GoroutinesArgs {
    /// Runs of each
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = number::<1, MAX_RUNS>)]
    pub runs: usize,

    /// What is measured
    #[command(flatten)]
    pub extent: Extent,
}

/// Options of `versus-go`.
#[derive(Args, Clone, Debug)]
#[command(allow_negative_numbers = true)]
pub struct VersusGoArgs {
    /// Show the benchmarks that there are, and measure nothing
    #[arg(long)]
    pub list: bool,

    /// Benchmarks, by name [default: all]
    #[arg(long, value_name = "A,B", value_parser = list::<Name>)]
    pub bench: Option<List<Name>>,

    /// Runs of each benchmark with each number of workers, Go and sudog taking turns
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = number::<1, MAX_RUNS>)]
    pub runs: usize,

    /// What is measured
    #[command(flatten)]
    pub extent: Extent,
}

/// Options of `versus-go-child`.
#[derive(Args, Clone, Debug)]
pub struct ChildArgs {
    /// Which benchmark
    pub bench: Name,

    /// How many workers this process must have
    #[arg(long, value_name = "N", value_parser = number::<1, MAX_WORKERS>)]
    pub workers: usize,

    /// How long it takes at least
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub min_time: Duration,

    /// How many goroutines Million makes
    #[arg(long, value_name = "N", default_value_t = MILLION, value_parser = number::<1, MAX_COUNT>)]
    pub count: usize,
}
