//! Go's `BenchmarkSemTable`: the queue of one bucket of the semaphore table, with many waiters in it.
//!
//! The bucket is a function of the address, `(addr >> 3) % 251`, so two addresses share a bucket if they are a multiple
//! of
//! 251 * 8 = 2008 bytes apart. Go's benchmark steps by 251 elements of an array of 32-bit counters, which are 1004
//! bytes, half of that: the benchmark's two colliding addresses are 125 buckets apart, and its many addresses fall into two
//! buckets.
//!
//! Go's two cases queue all waiters, then dequeue them in that order: the waiter that is woken is the first of all.
//! `steady.rs` has two more cases, each of which is slow on some of the queues that Go had before. Those cases are
//! measured with `--queue`.

mod costs;
mod steady;
mod strides;

use crate::options::{List, MAX_RUNS, list, number, numbers};
use clap::Args;
use std::time::Duration;
use sudog_runtime::shim::system;

use indicatif::ProgressBar;
use serde::Serialize;
use sudog_runtime::sema::testing::DetachedQueue;
use sudog_runtime::sema::{BUCKETS, Order};

use crate::measure::growth::{self, Point};
use crate::measure::metrics::median;
use crate::output::Output;
use crate::output::failure::Failure;
use crate::output::table::Table;
use crate::output::units;
use crate::targets::queues::QueueName;
use crate::targets::registry::names;

#[derive(Args, Clone, Debug)]
#[command(allow_negative_numbers = true)]
pub struct SemtableArgs {
    /// Numbers of waiters [default: from 1000 to 64000, doubling; for the cases that '--queue' adds, to 16000]
    #[arg(long, value_name = "N,N", value_parser = numbers::<2, MAX_WAITERS>)]
    pub ns: Option<List<usize>>,

    /// Queues, by name, to be measured in two more cases, each slow on some queues, taking turns [default: none; Go's
    /// cases are measured on the treap]
    #[arg(long, value_name = "A,B", value_parser = list::<QueueName>)]
    pub queue: Option<List<QueueName>>,

    /// Repetitions of each measurement
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = number::<1, MAX_RUNS>)]
    pub runs: usize,

    /// Compute only, and measure nothing: the number of buckets of the table in which the locks of an array lie, by the
    /// distance between neighbours; beside tables of 256 buckets
    #[arg(long, conflicts_with_all = ["ns", "queue", "runs"])]
    pub strides: bool,

    /// Measure the price of the table's hash beside other hashes, of a release that takes its bucket's lock although
    /// there is no waiter, and of buckets that share cache lines
    #[arg(long, conflicts_with_all = ["ns", "queue", "strides"])]
    pub costs: bool,
}

const MAX_WAITERS: usize = 1 << 20;

/// The least distance of two addresses that share a bucket.
const STRIDE: usize = BUCKETS * 8;

/// The first address. Any value will do: no address is ever read.
const BASE: usize = 0x10_0000;

/// The default numbers of waiters.
const NS: &[usize] = &[1000, 2000, 4000, 8000, 16_000, 32_000, 64_000];

/// The default numbers of waiters in the steady cases. Filling a list of 64,000 addresses, each of them new, would take
/// a minute.
const STEADY_NS: &[usize] = &[1000, 2000, 4000, 8000, 16_000];

names! {
    /// A case: the addresses at which the waiters wait, and so which waiters collide.
    enum Case;
    unknown "case";
    OneAddrCollision = "OneAddrCollision", "Half of the waiters at one address, half at another.";
    ManyAddrCollision = "ManyAddrCollision", "Every waiter at a different address: a list of addresses is slow to be filled.";
    TwoLocks = "TwoLocks",
        "Steady: a single waiter at an address, all others at another address, and the others came first.";
    ManyLocks = "ManyLocks", "Steady: every waiter at a different address.";
}

/// The result of a case with a number of waiters.
#[derive(Clone, Serialize, Debug)]
pub struct CaseRecord {
    bench: &'static str,
    pub case: Case,
    pub queue: QueueName,
    /// The number of waiters.
    pub n: usize,
    runs: usize,
    /// The time of an operation in nanoseconds, the median over the runs. An operation queues a waiter and dequeues the
    /// waiter later; in the steady cases, an operation dequeues a waiter and queues the same waiter again.
    pub ns_per_op: f64,
}

impl Case {
    /// Go's cases.
    const GO: [Self; 2] = [Self::OneAddrCollision, Self::ManyAddrCollision];
    /// The cases of `steady.rs`.
    const STEADY: [Self; 2] = [Self::TwoLocks, Self::ManyLocks];

    /// Returns the addresses of the `n` waiters, in the order in which they are queued and dequeued. For Go's cases
    /// only.
    fn addresses(self, n: usize) -> Vec<usize> {
        let address = |waiter| match self {
            Self::OneAddrCollision => BASE + STRIDE * usize::from(waiter >= n / 2),
            _ => BASE + STRIDE * waiter,
        };
        (0..n).map(address).collect()
    }

    /// Returns the nanoseconds of an operation, measured for at least a given time. For Go's cases only.
    fn time(self, n: usize, at_least: Duration) -> f64 {
        let addresses = self.addresses(n);
        let mut queue = DetachedQueue::new(addresses.iter().copied());
        let start = system::now();
        let mut operations = 0;
        loop {
            queue.queue_all(Order::Fifo);
            for (waiter, &address) in addresses.iter().enumerate() {
                assert_eq!(queue.dequeue(address), Some(waiter));
            }
            operations += n;
            let elapsed = system::now().saturating_duration_since(start);
            if elapsed >= at_least {
                return elapsed.as_nanos() as f64 / operations as f64;
            }
        }
    }
}

/// Measures Go's cases with every number of waiters, on the treap.
fn measure(ns: &[usize], runs: usize, output: Output, progress: &ProgressBar) -> Result<Vec<CaseRecord>, Failure> {
    const AT_LEAST: Duration = Duration::from_millis(10);
    let mut records = Vec::new();
    for case in Case::GO {
        for &n in ns {
            let times = (0..runs).map(|_| {
                progress.inc(1);
                case.time(n, AT_LEAST)
            });
            let record =
                CaseRecord { bench: "semtable", case, queue: QueueName::Treap, n, runs, ns_per_op: median(times) };
            output.record(&record)?;
            records.push(record);
        }
    }
    Ok(records)
}

/// Returns the number of measurements of Go's cases.
fn steps(ns: &[usize], runs: usize) -> usize {
    Case::GO.len() * ns.len() * runs
}

/// Returns the factor by which the time of an operation grows from n to 4n, if both were measured.
fn growth_from(record: &CaseRecord, records: &[CaseRecord]) -> Option<f64> {
    let later = records.iter().find(|later| later.case == record.case && later.n == 4 * record.n)?;
    Some(later.ns_per_op / record.ns_per_op)
}

/// Returns a table of the times, and of the factors by which they grow from n to 4n.
fn table(records: &[CaseRecord]) -> Table {
    let mut table = Table::new(1, ["case", "n", "queue + dequeue", "growth from n to 4n"]);
    for r in records {
        let growth = growth_from(r, records).unwrap_or(f64::NAN);
        table.row([format!("{:?}", r.case), r.n.to_string(), units::time(r.ns_per_op), units::ratio(growth)]);
    }
    table
}

fn points(records: &[CaseRecord]) -> Vec<Point> {
    records.iter().map(|r| Point { case: r.case.name(), queue: r.queue, n: r.n, ns: r.ns_per_op }).collect()
}

/// Runs `semtable`: measures and prints.
pub fn run(args: &SemtableArgs, output: Output) -> Result<(), Failure> {
    if args.strides {
        return strides::run(output);
    }
    if args.costs {
        return costs::run(args.runs, output);
    }
    let [ns, steady_ns] = [NS, STEADY_NS].map(|usual| args.ns.as_ref().map_or(usual, |list| &list.0));
    let queues = args.queue.as_ref().map(|List(queues)| &queues[..]);
    let with_go = queues.is_none_or(|queues| queues.contains(&QueueName::Treap));
    let of_go = if with_go { steps(ns, args.runs) } else { 0 };
    let of_steady = queues.map_or(0, |queues| steady::steps(queues, steady_ns, args.runs));
    let progress = output.progress("semtable", of_go + of_steady);
    let go = if with_go { measure(ns, args.runs, output, &progress)? } else { Vec::new() };
    let steady = queues.map(|queues| steady::measure(queues, steady_ns, args.runs, output, &progress)).transpose()?;
    progress.finish_and_clear();

    output.text(format_args!("semtable: medians of {} runs", args.runs))?;
    if with_go {
        output.text(format_args!("\nGo's cases, on the treap:\n{}\n\n{GO_REMARK}", table(&go)))?;
    }
    if let Some(steady) = &steady {
        let growths = growth::growths("semtable-growth", &points(steady));
        growths.iter().try_for_each(|growth| output.record(growth))?;
        output.text(format_args!("\nn waiters all the time:\n{}\n", steady::table(steady)))?;
        output.text(format_args!("{}\n\n{STEADY_REMARK}", growth::table(&growths)))?;
    }
    Ok(())
}

const GO_REMARK: &str = "An operation puts a waiter into the queue and takes it out. The time of a queue that looks at each waiter grows \
     by a factor of 4.";

const STEADY_REMARK: &str = "An operation takes a waiter out of the queue and puts it back. TwoLocks: the only waiter \
                             for B, behind n - 1 waiters for A. ManyLocks: any of n waiters, each of which waits for \
                             another lock. If the time grows as n^p, p is the growth exponent.";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::targets::queues::bucket;

    #[test]
    fn the_addresses_collide() {
        for case in Case::GO {
            let addresses = case.addresses(1000);
            assert!(addresses.iter().all(|&a| bucket(a) == bucket(BASE)), "{case:?}");
        }
        assert_ne!(bucket(BASE + 1004), bucket(BASE));
    }

    #[test]
    fn how_many_addresses() {
        for (case, distinct) in [(Case::OneAddrCollision, 2), (Case::ManyAddrCollision, 10)] {
            let mut addresses = case.addresses(10);
            addresses.dedup();
            assert_eq!(addresses.len(), distinct, "{case:?}");
        }
    }
}
