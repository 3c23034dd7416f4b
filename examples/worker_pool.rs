//! Go's worker pool with a mutex and a `Cond`, ported line by line: workers wait for jobs, and end when the queue is closed.
//!
//! `cargo run --example worker_pool`

use std::collections::VecDeque;
use std::sync::Arc;

use sudog::prelude::*;

#[derive(Default)]
struct Jobs {
    queue: VecDeque<u64>,
    closed: bool,
    sum: u64,
}

struct Pool {
    jobs: Mutex<Jobs>,
    changed: Cond,
}

impl Pool {
    fn submit(&self, job: u64) {
        self.jobs.lock().queue.push_back(job);
        self.changed.signal();
    }

    fn close(&self) {
        self.jobs.lock().closed = true;
        self.changed.broadcast();
    }

    /// Waits for a job; `None` when the queue is closed and empty.
    fn next(&self) -> Option<u64> {
        let mut jobs = self.jobs.lock();
        while jobs.queue.is_empty() && !jobs.closed {
            self.changed.wait(&mut jobs);
        }
        jobs.queue.pop_front()
    }

    fn work(&self) {
        while let Some(job) = self.next() {
            let square = job * job;
            self.jobs.lock().sum += square;
        }
    }
}

fn main() {
    let pool = Arc::new(Pool { jobs: Mutex::default(), changed: Cond::new() });
    sudog::run(|| {
        let workers = Arc::new(WaitGroup::new());
        for _ in 0..4 {
            let pool = pool.clone();
            workers.go(move || pool.work());
        }
        (1..=1000).for_each(|job| pool.submit(job));
        pool.close();
        workers.wait();
    });
    let sum = pool.jobs.lock().sum;
    println!("the sum of the squares up to 1000 is {sum}");
    assert_eq!(sum, 333_833_500);
}
