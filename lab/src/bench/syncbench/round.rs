//! The loop that all share: threads that divide a number of operations among themselves.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use crate::run::contenders::{Contenders, Gate};
use crate::run::rounds::{MAX_N, Portion, Rounds, grown};

/// How long a round took; it fails if the threads cannot be had.
pub type Timed = io::Result<Duration>;

/// So many operations, by so many threads.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    /// How many threads.
    pub threads: usize,
    /// How many operations, of all together.
    pub n: u64,
}

impl Round {
    /// Each thread does `body` with its number and its portion of the operations, and takes from it until it is empty.
    /// From when all are there until the last has ended; what `body` owns is dropped later.
    pub fn parallel(&self, body: impl Fn(usize, &mut Portion) + Send + Sync + 'static) -> Timed {
        // Few enough for all to end at about the same time, and enough that taking a grain costs nothing.
        let grain = (self.n / (64 * self.threads as u64)).clamp(1, 10_000);
        let (taken, n) = (Arc::new(AtomicU64::new(0)), self.n);
        each(self.threads, Box::new(move |me| body(me, &mut Portion::new(Arc::clone(&taken), grain, n))))
    }

    /// `threads` threads run `body`, each with its number.
    pub fn each(&self, threads: usize, body: impl Fn(usize) + Send + Sync + 'static) -> Timed {
        each(threads, Box::new(body))
    }
}

impl Rounds for &Round {
    type Out = Timed;

    fn operations(&self) -> u64 {
        self.n
    }

    fn divide(self, body: impl Fn(usize, &mut Portion) + Send + Sync + 'static) -> Timed {
        self.parallel(body)
    }
}

/// Nanoseconds an operation: of rounds of growing n, from `enough` on, the first that takes long enough, whose n is
/// `enough` the next time.
pub fn measure(
    threads: usize,
    enough: &mut u64,
    min_time: Duration,
    time: impl Fn(&Round) -> Timed,
) -> io::Result<f64> {
    loop {
        let round = Round { threads, n: *enough };
        let elapsed = time(&round)?;
        let n = u128::from(round.n);
        if elapsed >= min_time || n >= MAX_N {
            return Ok(elapsed.as_nanos() as f64 / round.n as f64);
        }
        *enough = grown(n, elapsed.as_nanos(), min_time.as_nanos()) as u64;
    }
}

/// [`Round::each`], compiled once: each thread calls `body` once, which has the measured loop in it.
fn each(threads: usize, body: Box<dyn Fn(usize) + Send + Sync>) -> Timed {
    let work = move |me, gate: &Gate| {
        if gate.wait() {
            body(me);
        }
        Instant::now()
    };
    let conduct = |gate: &Gate| {
        let start = Instant::now();
        gate.open(true);
        start
    };
    let (start, ends) = Contenders::Threads.fan_out(threads, work, conduct)?;
    Ok(ends.into_iter().max().map_or(Duration::ZERO, |end| end - start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn each_operation_is_done_once() {
        for (threads, n) in [(1, 1), (2, 1), (3, 10_000)] {
            let (done, seen) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(Vec::new())));
            let theirs = (Arc::clone(&done), Arc::clone(&seen));
            let body = move |me, portion: &mut Portion| {
                theirs.1.lock().unwrap().push(me);
                while portion.more() {
                    theirs.0.fetch_add(1, Relaxed);
                }
            };
            Round { threads, n }.parallel(body).unwrap();
            let mut seen = Arc::into_inner(seen).unwrap().into_inner().unwrap();
            seen.sort_unstable();
            assert_eq!((done.load(Relaxed), seen), (n, (0..threads).collect()));
        }
    }

    #[test]
    fn a_round_is_long_enough_and_the_next_run_knows() {
        let mut enough = 1;
        // A microsecond an operation.
        let ns = measure(1, &mut enough, Duration::from_millis(1), |round| Ok(Duration::from_micros(round.n))).unwrap();
        assert!(ns == 1000.0 && enough >= 1000, "{ns}, {enough}");
        let before = enough;
        measure(1, &mut enough, Duration::from_millis(1), |round| Ok(Duration::from_micros(round.n))).unwrap();
        assert_eq!(enough, before);
    }
}
