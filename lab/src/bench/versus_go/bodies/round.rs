//! How a benchmark is measured: as by Go's `testing`.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use sudog_runtime::goroutine::{go, max_procs};
use sudog_sync::WaitGroup;

use crate::bench::versus_go::benches::Bench;
use crate::bench::versus_go::reading::Reading;

/// What the body of a benchmark is given.
#[derive(Debug)]
pub struct Round {
    /// How many operations to make.
    pub n: usize,
    /// How many goroutines a benchmark with a million of them makes.
    pub count: usize,
    start: Instant,
    elapsed: Option<Duration>,
    extras: Vec<(String, f64)>,
    /// The round before, of which the grain is made.
    last: Option<(usize, Duration)>,
}

const MAX_N: u128 = 1_000_000_000;

/// Makes rounds of growing n until one takes long enough; that one counts.
#[must_use]
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

/// What n is next, after a round of `n` that took too little. The rule is testing's: a fifth more than should suffice,
/// at least one more and at most a hundred times as many as before.
fn grown(n: u128, ns: u128, min_ns: u128) -> u128 {
    let enough = min_ns * n / ns.max(1);
    (enough + enough / 5).min(100 * n).max(n + 1).min(MAX_N)
}

impl Round {
    /// From here on it counts.
    pub fn reset_timer(&mut self) {
        self.start = Instant::now();
    }

    /// What comes after does not count.
    pub fn stop_timer(&mut self) {
        self.elapsed = Some(self.start.elapsed());
    }

    /// What has counted.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.elapsed.unwrap_or_else(|| self.start.elapsed())
    }

    /// Another quantity; the end of its key says of what kind it is: `_ns`, `_bytes`, `_share`.
    pub fn extra(&mut self, key: &str, value: f64) {
        self.extras.push((key.to_owned(), value));
    }

    /// The operations of the round, divided among `parallelism` goroutines for each worker in grains of about 100 us.
    pub fn parallel(&self, parallelism: usize, body: impl Fn(&mut Portion) + Send + Sync + 'static) {
        let grain = self.last.map_or(1, |(n, time)| 100_000 * n as u128 / time.as_nanos().max(1)).clamp(1, 10_000);
        let (body, taken, done) = (Arc::new(body), Arc::new(AtomicU64::new(0)), Arc::new(WaitGroup::new()));
        for _ in 0..parallelism * max_procs() {
            let (body, taken, n) = (Arc::clone(&body), Arc::clone(&taken), self.n as u64);
            let goroutine_done = Arc::clone(&done);
            done.add(1);
            go(move || {
                body(&mut Portion { taken, grain: grain as u64, left: 0, n });
                goroutine_done.done();
            });
        }
        done.wait();
    }
}

/// A share of the operations of a round that several goroutines divide among themselves, in grains.
#[derive(Debug)]
pub struct Portion {
    taken: Arc<AtomicU64>,
    grain: u64,
    left: u64,
    n: u64,
}

impl Portion {
    /// Takes one operation, if one is left.
    #[inline]
    pub fn more(&mut self) -> bool {
        if self.left == 0 {
            let end = self.taken.fetch_add(self.grain, Relaxed) + self.grain;
            self.left = match end {
                _ if end <= self.n => self.grain,
                _ if end < self.n + self.grain => self.n + self.grain - end, // the last, smaller grain
                _ => return false,
            };
        }
        self.left -= 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_n_grows() {
        assert_eq!(grown(1000, 50_000, 100_000), 2400); // half the time: twice as many and a fifth
        assert_eq!(grown(1, 0, 1_000_000), 100);
        assert_eq!(grown(7, 99, 100), 8); // 7 * 100 / 99 is 7, and a fifth of that 1
        assert_eq!(grown(2, 99, 100), 3);
        assert_eq!(grown(900_000_000, 1, 2), MAX_N);
    }

    #[test]
    fn portions_add_up() {
        for (n, grain) in [(0, 1), (1, 1), (10, 3), (9, 3), (2, 100)] {
            let taken = Arc::new(AtomicU64::new(0));
            let mut portions = [0, 1].map(|_| Portion { taken: Arc::clone(&taken), grain, left: 0, n });
            let mut total = 0;
            loop {
                let now: u64 = portions.iter_mut().map(|p| u64::from(p.more())).sum();
                if now == 0 {
                    break;
                }
                total += now;
            }
            assert_eq!(total, n, "in grains of {grain}");
        }
    }
}
