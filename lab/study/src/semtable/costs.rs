//! The price of three choices of the table: the hash; the count of a bucket's waiters, which spares releases the lock;
//! and the padding, which gives each bucket cache lines of its own.
//!
//! | operation | measured |
//! |---|---|
//! | `hash` | the bucket of an address, by each rule of `strides.rs` |
//! | `no-waiter` | an acquire and a release; the release finds the count of the bucket's waiters at 0 |
//! | `waiter-elsewhere` | the same while a thread waits at another address of the bucket: each release takes the lock, as all releases would without the count |
//! | `neighbours-padded` | the same by two threads at once, in neighbouring buckets |
//! | `neighbours-unpadded` | the same in a table without padding, where the two buckets share a line |

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_utils::CachePadded;
use serde::Serialize;
use sudog_runtime::AtomicU32;
use sudog_runtime::sema::queue::Treap;
use sudog_runtime::sema::{BUCKETS, Order, SemTable, Wake};
use sudog_runtime::shim::system::atomic::Ordering::Relaxed;
use sudog_runtime::shim::system::{self, thread};

use super::strides::RULES;
use super::{BASE, STRIDE};
use crate::measure::metrics::median;
use crate::output::Output;
use crate::output::failure::Failure;
use crate::output::table::Table;
use crate::output::units;
use crate::run::contenders::Contenders;

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

/// The number of threads in neighbouring buckets.
const NEIGHBOURS: usize = 2;

/// The distance of two semaphores in neighbouring buckets, in bytes.
const TO_NEIGHBOUR: usize = STRIDE + 8;

/// The number of buckets that share a cache line in a table without padding.
const IN_LINE: usize = align_of::<CachePadded<()>>() * BUCKETS / size_of::<SemTable<BUCKETS, Treap, ()>>();

/// The table and the semaphores of threads in neighbouring buckets.
struct Neighbours<A> {
    table: CachePadded<SemTable<BUCKETS, Treap, A>>,
    semaphores: Vec<AtomicU32>,
    /// The index of the first thread's semaphore.
    first: usize,
}

impl<A: Send + Sync + 'static> Neighbours<A> {
    fn new(table: SemTable<BUCKETS, Treap, A>) -> Arc<Self> {
        let semaphores: Vec<_> = (0..(2 * NEIGHBOURS + 1) * TO_NEIGHBOUR / 4).map(|_| AtomicU32::new(0)).collect();
        // Begin with a bucket that is the first of its cache line in a table without padding.
        let bucket = |at: usize| (std::ptr::from_ref(&semaphores[at]).addr() >> 3) % BUCKETS;
        let first = (0..).step_by(2).find(|&at| bucket(at) % IN_LINE == 0).expect("a bucket begins a line");
        Arc::new(Self { table: CachePadded::new(table), semaphores, first })
    }

    /// Returns a semaphore in the bucket of a thread: the thread's own, or that of the bucket's waiter.
    fn of(&self, thread: usize, waiter: bool) -> &AtomicU32 {
        let bytes = thread * TO_NEIGHBOUR + if waiter { NEIGHBOURS * STRIDE } else { 0 };
        &self.semaphores[self.first + bytes / 4]
    }

    /// Returns the nanoseconds of an acquire and a release, the mean of the threads, while a thread waits in each bucket:
    /// each release writes into its bucket.
    fn time(self: &Arc<Self>) -> f64 {
        let waiters: [_; NEIGHBOURS] = std::array::from_fn(|n| {
            let these = Arc::clone(self);
            thread::spawn(move || these.table.acquire(these.of(n, true), Order::Fifo))
        });
        while (0..NEIGHBOURS).any(|n| self.table.waiters(self.of(n, true)) == 0) {
            thread::yield_now();
        }
        let these = Arc::clone(self);
        let measured = Contenders::PinnedThreads.fan_out(
            NEIGHBOURS,
            move |n, gate| {
                let own = these.of(n, false);
                own.store(1, Relaxed);
                gate.wait();
                let ns = time(|_| {
                    these.table.acquire(own, Order::Fifo);
                    these.table.release(own, Wake::Normal);
                });
                own.store(0, Relaxed);
                ns
            },
            |gate| gate.open(true),
        );
        (0..NEIGHBOURS).for_each(|n| self.table.release(self.of(n, true), Wake::Normal));
        waiters.into_iter().for_each(|waiter| waiter.join().expect("the waiter does not panic"));
        let (_, times) = measured.expect("two threads can be started");
        times.iter().sum::<f64>() / NEIGHBOURS as f64
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
    let (padded, unpadded) = (Neighbours::new(SemTable::const_new()), Neighbours::new(SemTable::unpadded()));
    let (padded, unpadded): (Vec<_>, Vec<_>) = (0..runs).map(|_| (padded.time(), unpadded.time())).unzip();
    times.push(("neighbours-padded", None, median(padded)));
    times.push(("neighbours-unpadded", None, median(unpadded)));

    let mut table = Table::new(2, ["operation", "rule", "time"]);
    for (operation, rule, ns) in times {
        output.record(&CostRecord { bench: "semtable-costs", operation, rule, runs, ns })?;
        table.row([operation.to_owned(), rule.unwrap_or(units::NOTHING).to_owned(), units::time(ns)]);
    }
    output.text(format_args!("semtable: medians of {runs} runs\n\n{table}"))
}
