//! The loop that all contestants share: threads that divide a number of operations among themselves.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use crate::rounds::{MAX_N, Portion, Rounds, grown};
use crate::run::contenders::{Contenders, Gate};

/// The time that a round took; an error if the threads could not be started.
pub type Timed = io::Result<Duration>;

/// A number of operations, by a number of threads.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    pub threads: usize,
    /// The number of operations, of all threads together.
    pub n: u64,
}

impl Round {
    /// Runs `body` on each thread, with the thread's number and portion of the operations; `body` takes operations from
    /// the portion until the portion is empty. Returns the time from when all threads are ready until the last has
    /// ended. The values that `body` owns are dropped after that time.
    pub fn parallel(&self, body: impl Fn(usize, &mut Portion) + Send + Sync + 'static) -> Timed {
        // A grain is small enough for all threads to end at about the same time, and large enough that the cost of
        // taking a grain does not count.
        let grain = (self.n / (64 * self.threads as u64)).clamp(1, 10_000);
        let (taken, n) = (Arc::new(AtomicU64::new(0)), self.n);
        each(self.threads, Box::new(move |me| body(me, &mut Portion::new(Arc::clone(&taken), grain, n))))
    }

    /// Runs `body` on `threads` threads, with the number of the thread.
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

/// Returns the time per operation, in nanoseconds. Makes rounds with more and more operations, until a round takes at
/// least `min_time` or has [`MAX_N`] operations. The first round has `enough` operations, and the last round gives the
/// result. Stores the number of operations of the last round in `enough`, for the next call.
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

/// The body of [`Round::each`], compiled once: each thread calls `body` once, and the measured loop is in `body`.
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
