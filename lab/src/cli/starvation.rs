//! The options of `starvation`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::duration::{duration, some_time};
use super::{OnArgs, number, seconds};
use crate::policies::PolicyName;

/// More would not be seen in a picture.
const MAX_CONTENDERS: usize = 64;

/// Options of `starvation`.
#[derive(Args, Clone, Debug)]
#[command(allow_negative_numbers = true)]
pub struct StarvationArgs {
    /// What the mutex does: go-1.8, go-1.9, go-1.14, fifo, threads
    #[arg(long, value_name = "NAME", default_value = "go-1.14")]
    pub policy: PolicyName,

    /// How many have the mutex nearly always
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = number::<1, MAX_CONTENDERS>)]
    pub hogs: usize,

    /// How many want it now and then
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = number::<1, MAX_CONTENDERS>)]
    pub victims: usize,

    /// How long a hog holds the mutex
    #[arg(long, value_name = "TIME", default_value = "100us", value_parser = duration)]
    pub hold: Duration,

    /// How long a victim holds it
    #[arg(long, value_name = "TIME", default_value = "10us", value_parser = duration)]
    pub victim_hold: Duration,

    /// How long a hog is busy with something else before it wants the mutex again
    #[arg(long, value_name = "TIME", default_value = "0us", value_parser = duration)]
    pub pause: Duration,

    /// How long a victim sleeps before it wants it again
    #[arg(long, value_name = "TIME", default_value = "100us", value_parser = duration)]
    pub victim_pause: Duration,

    /// How long it takes
    #[arg(long, value_name = "S", default_value = "0.2", value_parser = seconds)]
    pub seconds: Duration,

    /// How much of it is drawn, from a little before starvation mode begins
    #[arg(long, value_name = "TIME", default_value = "5ms", value_parser = some_time)]
    pub window: Duration,

    /// Where to write the picture alone, besides the report
    #[arg(long, value_name = "PATH")]
    pub svg: Option<PathBuf>,

    /// What contends.
    #[command(flatten)]
    pub on: OnArgs,
}
