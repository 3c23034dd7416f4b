//! The measurement of a benchmark, in the manner of Go's `testing`.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use sudog_runtime::goroutine::{go, max_procs};
use sudog_sync::WaitGroup;

use crate::rounds::{MAX_N, Portion, Rounds, grown};
use crate::versus_go::benches::Bench;
use crate::versus_go::reading::Reading;

/// The argument of the body of a benchmark.
#[derive(Debug)]
pub struct Round {
    /// The number of operations to make.
    pub n: usize,
    /// The number of goroutines that a benchmark with a million of them makes.
    pub count: usize,
    start: Instant,
    elapsed: Option<Duration>,
    extras: Vec<(String, f64)>,
    /// The operations and the time of the previous round, from which the grain is computed.
    last: Option<(usize, Duration)>,
}

/// Makes rounds of growing n until a round takes long enough. That round counts.
pub fn measure(bench: &Bench, min_time: Duration, count: usize) -> Reading {
    let mut round = Round { n: 1, count, start: Instant::now(), elapsed: None, extras: Vec::new(), last: None };
    loop {
        round.elapsed = None;
        round.extras.clear();
        round.reset_timer();
        (bench.body)(&mut round);
        if round.elapsed.is_none() {
            round.stop_timer();
        }
        let elapsed = round.elapsed();
        let n = round.n as u128;
        if bench.once || elapsed >= min_time || n >= MAX_N {
            let ns = elapsed.as_nanos() as f64 / round.n as f64;
            return Reading { name: bench.name.to_owned(), ns, extras: round.extras };
        }
        round.last = Some((round.n, elapsed));
        round.n = grown(n, elapsed.as_nanos(), min_time.as_nanos()) as usize;
    }
}

impl Round {
    /// Restarts the timer: the time before does not count.
    pub fn reset_timer(&mut self) {
        self.start = Instant::now();
    }

    /// Stops the timer: the time after does not count.
    pub fn stop_timer(&mut self) {
        self.elapsed = Some(self.start.elapsed());
    }

    /// Returns the time that has counted.
    pub fn elapsed(&self) -> Duration {
        self.elapsed.unwrap_or_else(|| self.start.elapsed())
    }

    /// Reports another quantity. The end of the key says the unit: `_ns`, `_bytes`, `_share`.
    pub fn extra(&mut self, key: &str, value: f64) {
        self.extras.push((key.to_owned(), value));
    }

    /// Divides the operations of the round among `parallelism` goroutines for each worker, in grains of about 100 us.
    pub fn parallel(&self, parallelism: usize, body: impl Fn(&mut Portion) + Send + Sync + 'static) {
        self.among(parallelism, move |_, portion| body(portion));
    }

    /// Does the same, and gives each goroutine a number. Returns `body`, for the caller to drop with the values that
    /// `body` owns.
    fn among<B: Fn(usize, &mut Portion) + Send + Sync + 'static>(&self, parallelism: usize, body: B) -> Arc<B> {
        let grain = self.last.map_or(1, |(n, time)| 100_000 * n as u128 / time.as_nanos().max(1)).clamp(1, 10_000);
        let (body, taken, done) = (Arc::new(body), Arc::new(AtomicU64::new(0)), Arc::new(WaitGroup::new()));
        for me in 0..parallelism * max_procs() {
            let (body, taken, n) = (Arc::clone(&body), Arc::clone(&taken), self.n as u64);
            let goroutine_done = Arc::clone(&done);
            done.add(1);
            go(move || {
                body(me, &mut Portion::new(taken, grain as u64, n));
                drop(body);
                goroutine_done.done();
            });
        }
        done.wait();
        body
    }
}

/// Divides the operations among a goroutine for each worker.
impl Rounds for &mut Round {
    type Out = ();

    fn operations(&self) -> u64 {
        self.n as u64
    }

    fn divide(self, body: impl Fn(usize, &mut Portion) + Send + Sync + 'static) {
        self.reset_timer();
        let body = self.among(1, body);
        self.stop_timer();
        drop(body);
    }
}
