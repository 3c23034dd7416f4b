//! The trust in a simulated machine: its figures beside those of the real machine that it stands for.
//!
//! Both are files of JSON lines that `mutexbench` wrote, one on the real machine and one on a simulated machine:
//!
//! ```text
//! cargo lab --json mutexbench --locks sudog,mcs-spin --threads 1,2 > real.jsonl
//! cargo sim --machine two --json mutexbench --locks sudog,mcs-spin --threads 1,2 --seconds 0.02 > simulated.jsonl
//! cargo lab trust --real real.jsonl --simulated simulated.jsonl
//! ```

use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use serde_json::Value;

use crate::measure::metrics::{geometric_mean, median};
use crate::output::Output;
use crate::output::failure::Failure;
use crate::output::table::Table;
use crate::output::units;

#[derive(Args, Clone, Debug)]
pub struct TrustArgs {
    /// Output of mutexbench with '--json' on the real machine
    #[arg(long, value_name = "PATH")]
    pub real: PathBuf,

    /// Output of mutexbench with '--json' on the simulated machine
    #[arg(long, value_name = "PATH")]
    pub simulated: PathBuf,
}

/// The largest factor by which a simulated figure may be off and still be trusted.
const TOLERABLE: f64 = 1.5;
/// The factor between real figures below which they have no order: the next run may have another order.
const APART: f64 = 1.1;

/// The throughput of a lock with a number of contenders.
#[derive(Clone, PartialEq, Debug)]
struct Run {
    lock: String,
    threads: u64,
    throughput: f64,
}

/// Both figures of a lock with a number of contenders.
#[derive(Clone, Serialize, PartialEq, Debug)]
struct PairRecord {
    bench: &'static str,
    lock: String,
    threads: u64,
    real: f64,
    simulated: f64,
    /// The simulated figure over the real figure.
    ratio: f64,
    tolerable: bool,
}

/// Reads, compares, prints.
pub fn run(args: &TrustArgs, output: Output) -> Result<(), Failure> {
    let [real, simulated] = [&args.real, &args.simulated].map(|path| runs(path));
    let pairs = pairs(&real?, &simulated?);
    if pairs.is_empty() {
        return Err(Failure::Usage("the two files have no lock with the same number of contenders in common".into()));
    }
    pairs.iter().try_for_each(|pair| output.record(pair))?;
    let mut table = Table::new(1, ["lock", "T", "real", "simulated", "simulated / real", ""]);
    for pair in &pairs {
        table.row([
            pair.lock.clone(),
            pair.threads.to_string(),
            units::rate(pair.real),
            units::rate(pair.simulated),
            units::ratio(pair.ratio),
            if pair.tolerable { String::new() } else { format!("off by more than {TOLERABLE}") },
        ]);
    }
    output.text(format_args!("{table}\n"))?;
    let mut numbers: Vec<u64> = pairs.iter().map(|pair| pair.threads).collect();
    numbers.sort_unstable();
    numbers.dedup();
    for threads in numbers {
        let of: Vec<&PairRecord> = pairs.iter().filter(|pair| pair.threads == threads).collect();
        let tolerable = of.iter().filter(|pair| pair.tolerable).count();
        let mean = geometric_mean(of.iter().map(|pair| pair.ratio));
        let (same, ordered) = order(&of);
        output.text(format_args!(
            "T={threads}: {tolerable} of {} within a factor {TOLERABLE}, geometric mean of the ratios {}; of {ordered} \
             pairs of locks that are {APART} apart or more on the real machine, {same} are in the same order.",
            of.len(),
            units::ratio(mean)
        ))?;
    }
    Ok(())
}

fn runs(path: &Path) -> Result<Vec<Run>, Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::Usage(format!("cannot read {}: {error}", path.display())))?;
    text.lines()
        .enumerate()
        .map(|(n, line)| {
            parse(line).ok_or_else(|| Failure::Usage(format!("{}:{}: no record of mutexbench", path.display(), n + 1)))
        })
        .collect()
}

/// Parses a line as [`run`] does, for the fuzz target.
#[cfg(unix)]
pub fn parse_line(line: &str) {
    let _ = parse(line);
}

fn parse(line: &str) -> Option<Run> {
    let record: Value = serde_json::from_str(line).ok()?;
    let lock = record.get("lock")?.as_str()?.to_owned();
    Some(Run { lock, threads: record.get("threads")?.as_u64()?, throughput: record.get("throughput")?.as_f64()? })
}

/// Returns pairs of medians, by number of contenders, and then in the order of the real runs.
fn pairs(real: &[Run], simulated: &[Run]) -> Vec<PairRecord> {
    let of = |runs: &[Run], like: &Run| {
        let alike = runs.iter().filter(|run| run.lock == like.lock && run.threads == like.threads);
        median(alike.map(|run| run.throughput))
    };
    let mut pairs: Vec<PairRecord> = Vec::new();
    for run in real {
        if pairs.iter().any(|pair| pair.lock == run.lock && pair.threads == run.threads) {
            continue;
        }
        let [real, simulated] = [real, simulated].map(|runs| of(runs, run));
        let ratio = simulated / real;
        if ratio.is_finite() {
            let tolerable = (1.0 / TOLERABLE..=TOLERABLE).contains(&ratio);
            let lock = run.lock.clone();
            pairs.push(PairRecord { bench: "trust", lock, threads: run.threads, real, simulated, ratio, tolerable });
        }
    }
    pairs.sort_by_key(|pair| pair.threads); // stable
    pairs
}

/// Returns the number of pairs of figures whose simulated order is the real order, and the number of pairs that have an
/// order.
fn order(of: &[&PairRecord]) -> (usize, usize) {
    let (mut same, mut ordered) = (0, 0);
    for (n, one) in of.iter().enumerate() {
        for other in &of[n + 1..] {
            let [fast, slow] = if one.real > other.real { [one, other] } else { [other, one] };
            if fast.real >= APART * slow.real {
                ordered += 1;
                same += usize::from(fast.simulated > slow.simulated);
            }
        }
    }
    (same, ordered)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(lock: &str, throughput: f64) -> Run {
        Run { lock: lock.into(), threads: 2, throughput }
    }

    #[test]
    fn medians_are_compared() {
        let real = [run("a", 10.0), run("b", 30.0), run("a", 20.0), run("a", 1000.0), run("c", 5.0)];
        let simulated = [run("b", 60.0), run("a", 20.0)];
        let pairs = pairs(&real, &simulated);
        let found: Vec<_> = pairs.iter().map(|pair| (pair.lock.as_str(), pair.ratio, pair.tolerable)).collect();
        assert_eq!(found, [("a", 1.0, true), ("b", 2.0, false)], "c is in one file only");
    }

    #[test]
    fn close_ones_have_no_order() {
        let real = [run("a", 100.0), run("b", 105.0), run("c", 200.0)];
        let simulated = [run("a", 90.0), run("b", 80.0), run("c", 85.0)];
        let pairs = pairs(&real, &simulated);
        assert_eq!(order(&pairs.iter().collect::<Vec<_>>()), (1, 2), "c and a are in another order, c and b are not");
    }

    #[test]
    fn a_line_of_another_kind_is_refused() {
        assert_eq!(parse(r#"{"bench":"mutexbench","lock":"a","threads":2,"throughput":1.5}"#), Some(run("a", 1.5)));
        for bad in ["", "x", "{}", r#"{"semaphore":"a","threads":2,"throughput":1}"#] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
