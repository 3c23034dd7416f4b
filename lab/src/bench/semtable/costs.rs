//! The price of two choices of the table: the hash, and the count of a bucket's waiters, which spares releases the lock.
//!
//! | operation | measured |
//! |---|---|
//! | `hash` | the bucket of an address, by each rule of `strides.rs` |
//! | `no-waiter` | an acquire and a release; the release finds the count of the bucket's waiters at 0 |
//! | `waiter-elsewhere` | the same while a thread waits at another address of the bucket: each release takes the lock, as all releases would without the count |

use std::hint::black_box;
use std::time::Duration;

use serde::Serialize;
use sudog_runtime::AtomicU32;
use sudog_runtime::sema::{Order, SemTable, Wake};
use sudog_runtime::shim::system::{self, thread};

use super::BASE;
use super::strides::RULES;
use crate::measure::metrics::median;
use crate::output::Output;
use crate::output::failure::Failure;
use crate::output::table::Table;
use crate::output::units;

/// The least time for which each operation is measured in a run.
const AT_LEAST: Duration = Duration::from_millis(10);

/// The number of operations between two readings of the clock.
const BATCH: usize = 1000;

/// The result of an operation.
#[derive(Serialize, Debug)]
struct CostRecord {
    bench: &'static str,
    operation: &'static str,
    /// The rule of the hash, if the operation is one.
    rule: Option<&'static str>,
    runs: usize,
    /// The median time over the runs.
    ns: f64,
}

/// Returns the nanoseconds of an operation, which is called with 0, 1, 2, ..
fn time(operation: impl Fn(usize)) -> f64 {
    let start = system::now();
    let mut done = 0;
    loop {
        (done..done + BATCH).for_each(&operation);
        done += BATCH;
        let elapsed = system::now().saturating_duration_since(start);
        if elapsed >= AT_LEAST {
            return elapsed.as_nanos() as f64 / done as f64;
        }
    }
}

/// Runs `semtable --costs`: measures and prints.
pub fn run(runs: usize, output: Output) -> Result<(), Failure> {
    static TABLE: SemTable<1> = SemTable::new();
    static OWN: AtomicU32 = AtomicU32::new(1);
    static OTHER: AtomicU32 = AtomicU32::new(0);
    let pair = |_| {
        TABLE.acquire(&OWN, Order::Fifo);
        TABLE.release(&OWN, Wake::Normal);
    };
    let measure = |operation: &dyn Fn(usize)| median((0..runs).map(|_| time(operation)));
    let mut times: Vec<(&str, Option<&str>, f64)> = Vec::new();
    for (rule, bucket) in RULES {
        let hash = |n| {
            black_box(bucket(black_box(BASE + 8 * n)));
        };
        times.push(("hash", Some(rule), measure(&hash)));
    }
    times.push(("no-waiter", None, measure(&pair)));
    let waiter = thread::spawn(|| TABLE.acquire(&OTHER, Order::Fifo));
    while TABLE.waiters(&OTHER) == 0 {
        thread::yield_now();
    }
    times.push(("waiter-elsewhere", None, measure(&pair)));
    TABLE.release(&OTHER, Wake::Normal);
    waiter.join().expect("the waiter does not panic");

    let mut table = Table::new(2, ["operation", "rule", "time"]);
    for (operation, rule, ns) in times {
        output.record(&CostRecord { bench: "semtable-costs", operation, rule, runs, ns })?;
        table.row([operation.to_owned(), rule.unwrap_or(units::NOTHING).to_owned(), units::time(ns)]);
    }
    output.text(format_args!("semtable: medians of {runs} runs\n\n{table}"))
}
