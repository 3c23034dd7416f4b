//! The options of `history`.

use std::str::FromStr;
use std::time::Duration;

use clap::Args;

use super::duration::{duration, some_time};
use super::{List, MAX_RUNS, MAX_THREADS, OnArgs, check, number, numbers, seconds};

/// A story of [`HistoryArgs`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StoryName {
    /// Go issue 13086.
    Hog,
    /// Go issue 33747.
    Collapse,
}

impl FromStr for StoryName {
    type Err = &'static str;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name {
            "hog" => Ok(Self::Hog),
            "collapse" => Ok(Self::Collapse),
            _ => Err("the stories are 'hog' and 'collapse'"),
        }
    }
}

/// Options of `history`.
#[derive(Args, Clone, Debug)]
#[command(allow_negative_numbers = true)]
pub struct HistoryArgs {
    /// One story: hog (issue 13086) or collapse (issue 33747) [default: both]
    #[arg(long, value_name = "STORY")]
    pub story: Option<StoryName>,

    /// The hog: for how long it holds the mutex
    #[arg(long, value_name = "TIME", default_value = "100us", value_parser = some_time)]
    pub hold: Duration,

    /// The hog: when its victim is given up
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = some_time)]
    pub limit: Duration,

    /// The collapse: how long each works in a round
    #[arg(long, value_name = "TIME", default_value = "1ms", value_parser = some_time)]
    pub cost: Duration,

    /// The collapse: the part of it that is under the mutex
    #[arg(long, value_name = "PART", default_value_t = 0.01, value_parser = part)]
    pub ratio: f64,

    /// The collapse: how long somebody holds the mutex at the start
    #[arg(long, value_name = "TIME", default_value = "5ms", value_parser = duration)]
    pub stall: Duration,

    /// The collapse: numbers of contenders
    #[arg(long, value_name = "N,N", default_value = "8,32,64,128,256", value_parser = numbers::<1, MAX_THREADS>)]
    pub contenders: List<usize>,

    /// The collapse: how long a run takes
    #[arg(long, value_name = "S", default_value = "0.3", value_parser = seconds)]
    pub seconds: Duration,

    /// Runs of each, taking turns
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = number::<1, MAX_RUNS>)]
    pub runs: usize,

    /// What contends.
    #[command(flatten)]
    pub on: OnArgs,
}

fn part(text: &str) -> Result<f64, String> {
    let part: f64 = text.parse().map_err(|e: std::num::ParseFloatError| e.to_string())?;
    check(part, 0.0..=1.0)?;
    Ok(part)
}
