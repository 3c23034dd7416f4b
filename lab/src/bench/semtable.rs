//! Go's `BenchmarkSemTable`: the queue of one bucket of the semaphore table, with many waiters in it.
//!
//! The bucket is a function of the address, `(addr >> 3) % 251`, so two addresses share one if they are a multiple of
//! 251 * 8 = 2008 bytes apart. Go's benchmark steps by 251 elements of an array of 32-bit counters, which are 1004
//! bytes, half of that: its two colliding addresses are 125 buckets apart, and its many fall into two buckets.

use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use serde::Serialize;
use sudog_runtime::sema::detached::DetachedQueue;
use sudog_runtime::sema::{BUCKETS, Order};

use crate::cli::SemtableArgs;
use crate::failure::Failure;
use crate::metrics::median;
use crate::output::Output;
use crate::table::Table;
use crate::units;

/// The least distance of two addresses of one bucket.
const STRIDE: usize = BUCKETS * 8;

/// Any address will do: nothing is ever read there.
const BASE: usize = 0x10_0000;

/// Which waiters collide.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Debug)]
pub enum Case {
    /// Half of the waiters at one address, half at another: a list of waiters is slow at this.
    OneAddrCollision,
    /// Every waiter at an address of its own: a list of addresses is slow at this.
    ManyAddrCollision,
}

/// What came of one case with one number of waiters.
#[derive(Clone, Serialize, Debug)]
pub struct Record {
    bench: &'static str,
    /// The case.
    pub case: Case,
    /// How many waiters.
    pub n: usize,
    runs: usize,
    /// Of one operation, the median over the runs: a waiter is queued and, later, dequeued.
    pub ns_per_op: f64,
}

impl Case {
    const ALL: [Self; 2] = [Self::OneAddrCollision, Self::ManyAddrCollision];

    /// Where each of `n` waiters waits: the order in which they are queued, and in which they are dequeued.
    fn addresses(self, n: usize) -> Vec<usize> {
        let address = |waiter| match self {
            Self::OneAddrCollision => BASE + STRIDE * usize::from(waiter >= n / 2),
            Self::ManyAddrCollision => BASE + STRIDE * waiter,
        };
        (0..n).map(address).collect()
    }

    /// Nanoseconds of one operation, over a time.
    fn time(self, n: usize, at_least: Duration) -> f64 {
        let addresses = self.addresses(n);
        let mut queue = DetachedQueue::new(addresses.iter().copied());
        let start = Instant::now();
        let mut operations = 0;
        loop {
            queue.queue_all(Order::Fifo);
            for (waiter, &address) in addresses.iter().enumerate() {
                assert_eq!(queue.dequeue(address), Some(waiter));
            }
            operations += n;
            let elapsed = start.elapsed();
            if elapsed >= at_least {
                return elapsed.as_nanos() as f64 / operations as f64;
            }
        }
    }
}

/// Measures every case with every number of waiters.
pub fn measure(ns: &[usize], runs: usize, output: Output, progress: &ProgressBar) -> Result<Vec<Record>, Failure> {
    const AT_LEAST: Duration = Duration::from_millis(10);
    let mut records = Vec::new();
    for case in Case::ALL {
        for &n in ns {
            let times = (0..runs).map(|_| {
                progress.inc(1);
                case.time(n, AT_LEAST)
            });
            let record = Record { bench: "semtable", case, n, runs, ns_per_op: median(times) };
            output.record(&record)?;
            records.push(record);
        }
    }
    Ok(records)
}

/// How many measurements that is.
#[must_use]
pub fn steps(ns: &[usize], runs: usize) -> usize {
    Case::ALL.len() * ns.len() * runs
}

/// The factor by which the time of an operation grows from n to 4n, if both were measured.
fn growth_from(record: &Record, records: &[Record]) -> Option<f64> {
    let later = records.iter().find(|later| later.case == record.case && later.n == 4 * record.n)?;
    Some(later.ns_per_op / record.ns_per_op)
}

/// In one line: how each case grows at its largest n.
#[must_use]
pub fn growth(records: &[Record]) -> String {
    let mut text = "semtable, growth of an operation from n to 4n waiters:".to_owned();
    for case in Case::ALL {
        let last =
            records.iter().filter(|r| r.case == case).filter_map(|r| Some((r.n, growth_from(r, records)?))).next_back();
        if let Some((n, growth)) = last {
            text += &format!(" {case:?} {} (n = {n});", units::ratio(growth));
        }
    }
    text.trim_end_matches(';').to_owned() + "."
}

/// Nanoseconds, and the factor by which they grow from n to 4n.
#[must_use]
pub fn table(records: &[Record]) -> Table {
    let mut table = Table::new(1, ["case", "n", "queue + dequeue", "growth from n to 4n"]);
    for r in records {
        let growth = growth_from(r, records).unwrap_or(f64::NAN);
        table.row([format!("{:?}", r.case), r.n.to_string(), units::time(r.ns_per_op), units::ratio(growth)]);
    }
    table
}

/// Measures and prints.
pub fn run(args: &SemtableArgs, output: Output) -> Result<(), Failure> {
    if args.on.is_some() {
        return Err(Failure::Usage(
            "in semtable nothing contends, on threads or goroutines: its waiters do not run".into(),
        ));
    }
    let ns = &args.ns.0;
    let progress = output.progress("semtable", steps(ns, args.runs));
    let records = measure(ns, args.runs, output, &progress)?;
    progress.finish_and_clear();
    output.text(format_args!("semtable: medians of {} runs\n\n{}\n", args.runs, table(&records)))?;
    output.text("An operation is one waiter queued and dequeued. A queue that looked at every waiter would grow by 4.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_addresses_collide() {
        let bucket = |address: usize| (address >> 3) % BUCKETS;
        for case in Case::ALL {
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
