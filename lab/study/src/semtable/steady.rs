//! The cases that are slow on some of the queues, with the same n waiters in the queue all the time: an operation
//! dequeues a waiter and queues the same waiter again, at the end of the waiters for the same address.
//!
//! | case | one operation | one-level | two-level | treap |
//! |---|---|---|---|---|
//! | `TwoLocks` | wakes the only waiter of B; n - 1 others came before, and wait for A: Go issue 17953 | n steps | 2 | 2 |
//! | `ManyLocks` | wakes any of n waiters, which wait for n locks | n / 2 | n / 2 | log n |
//!
//! The steps of `ManyLocks` are the expected ones. With two levels, a returning waiter walks past all addresses once
//! more, to find out that the waiter's own address is not among them. The waiters are queued in no order of memory, as
//! goroutines' stacks are in none; so a step is likely to miss the cache once there are many waiters.

use std::time::Duration;

use crate::measure::mt::Mt;
use indicatif::ProgressBar;
use sudog_runtime::sema::queue::BucketQueue;
use sudog_runtime::sema::testing::DetachedQueue;
use sudog_runtime::sema::{Order, Table};
use sudog_runtime::shim::system;

use super::{BASE, Case, CaseRecord, STRIDE};
use crate::measure::metrics::median;
use crate::output::Output;
use crate::output::failure::Failure;
use crate::output::table;
use crate::output::units;
use crate::targets::queues::{QueueJob, QueueName, with_queue};

/// The least time for which each queue is measured in a run.
const AT_LEAST: Duration = Duration::from_millis(10);

/// A batch of operations that takes this long is not made longer: the clock is read twice for each batch.
const BATCH: Duration = Duration::from_millis(1);

const SEED: u32 = 1;

/// A queue, of any kind, with the waiters in it.
trait Steady {
    /// Returns the nanoseconds of an operation, measured for at least a given time.
    fn time(&mut self, at_least: Duration) -> f64;
}

struct Queued<Q> {
    queue: DetachedQueue<Q>,
    case: Case,
    n: usize,
    random: Mt,
}

/// A job that creates and fills a queue.
#[derive(Clone, Copy)]
struct Fill {
    case: Case,
    n: usize,
}

impl Fill {
    fn fill<Q: BucketQueue>(self) -> Queued<Q> {
        let Self { case, n } = self;
        let mut queue = DetachedQueue::of((0..n).map(|waiter| address(case, n, waiter)));
        let mut random = Mt::new(SEED);
        // Keep the last waiter last: in `TwoLocks` the last waiter waits for B.
        let mut order: Vec<usize> = (0..n).collect();
        for left in (1..n).rev() {
            order.swap(left - 1, below(&mut random, left));
        }
        order.into_iter().for_each(|waiter| queue.queue_one(waiter, Order::Fifo));
        Queued { queue, case, n, random }
    }
}

impl QueueJob for Fill {
    type Out = Box<dyn Steady>;

    fn run<T: Table>(self) -> Self::Out {
        Box::new(self.fill::<T::Queue>())
    }
}

impl<Q: BucketQueue> Steady for Queued<Q> {
    fn time(&mut self, at_least: Duration) -> f64 {
        let (mut elapsed, mut operations, mut batch) = (Duration::ZERO, 0, 16);
        let mut chosen = Vec::new();
        while elapsed < at_least {
            chosen.clear();
            chosen.extend((0..batch).map(|_| self.choose()));
            let start = system::now();
            for &waiter in &chosen {
                self.operate(waiter);
            }
            let took = system::now().saturating_duration_since(start);
            elapsed += took;
            operations += batch;
            if took < BATCH {
                batch *= 2;
            }
        }
        elapsed.as_nanos() as f64 / operations as f64
    }
}

impl<Q: BucketQueue> Queued<Q> {
    #[inline]
    fn operate(&mut self, waiter: usize) {
        assert_eq!(self.queue.dequeue(address(self.case, self.n, waiter)), Some(waiter));
        self.queue.queue_one(waiter, Order::Fifo);
    }

    /// Chooses the waiter to be woken.
    fn choose(&mut self) -> usize {
        match self.case {
            Case::TwoLocks => self.n - 1,
            _ => below(&mut self.random, self.n),
        }
    }
}

#[inline]
fn address(case: Case, n: usize, waiter: usize) -> usize {
    match case {
        Case::TwoLocks => BASE + STRIDE * usize::from(waiter == n - 1),
        _ => BASE + STRIDE * waiter,
    }
}

fn below(random: &mut Mt, n: usize) -> usize {
    random.next_u32() as usize % n
}

/// Measures both cases with every number of waiters, the queues taking turns.
pub fn measure(
    queues: &[QueueName],
    ns: &[usize],
    runs: usize,
    output: Output,
    progress: &ProgressBar,
) -> Result<Vec<CaseRecord>, Failure> {
    let mut records = Vec::new();
    for case in Case::STEADY {
        for &n in ns {
            let mut filled: Vec<_> = queues.iter().map(|&queue| with_queue(queue, Fill { case, n })).collect();
            let mut times = vec![Vec::new(); queues.len()];
            for _ in 0..runs {
                for (queue, times) in filled.iter_mut().zip(&mut times) {
                    times.push(queue.time(AT_LEAST));
                    progress.inc(1);
                }
            }
            for (&queue, times) in queues.iter().zip(times) {
                let record = CaseRecord { bench: "semtable", case, queue, n, runs, ns_per_op: median(times) };
                output.record(&record)?;
                records.push(record);
            }
        }
    }
    Ok(records)
}

/// Returns the number of measurements.
pub fn steps(queues: &[QueueName], ns: &[usize], runs: usize) -> usize {
    Case::STEADY.len() * queues.len() * ns.len() * runs
}

pub fn table(records: &[CaseRecord]) -> table::Table {
    let mut table = table::Table::new(2, ["case", "queue", "n", "dequeue + queue"]);
    for r in records {
        table.row([r.case.name(), r.queue.name(), &r.n.to_string(), &units::time(r.ns_per_op)]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::targets::queues::bucket;

    #[test]
    fn the_addresses_collide() {
        for case in Case::STEADY {
            let mut addresses: Vec<_> = (0..1000).map(|waiter| address(case, 1000, waiter)).collect();
            assert!(addresses.iter().all(|&a| bucket(a) == bucket(BASE)), "{case:?}");
            addresses.dedup();
            assert_eq!(addresses.len(), if case == Case::TwoLocks { 2 } else { 1000 });
        }
    }

    #[test]
    fn everybody_comes_back() {
        struct Exercise(Fill);
        impl QueueJob for Exercise {
            type Out = ();

            fn run<T: Table>(self) {
                let Fill { case, n } = self.0;
                let mut queued = self.0.fill::<T::Queue>();
                for _ in 0..100 {
                    let waiter = queued.choose();
                    assert!(case != Case::TwoLocks || waiter == n - 1);
                    queued.operate(waiter); // panics if the operation wakes another waiter
                }
                let mut woken: Vec<_> =
                    (0..n).map(|waiter| queued.queue.dequeue(address(case, n, waiter)).unwrap()).collect();
                woken.sort_unstable();
                assert_eq!(woken, (0..n).collect::<Vec<_>>());
            }
        }
        for &queue in QueueName::ALL {
            for (case, n) in [(Case::TwoLocks, 2), (Case::TwoLocks, 9), (Case::ManyLocks, 2), (Case::ManyLocks, 9)] {
                with_queue(queue, Exercise(Fill { case, n }));
            }
        }
    }
}
