//! The measurement of a number of operations, as by Go's `testing`: in rounds of growing n, whose operations the
//! contenders divide among themselves.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// The most operations of a round.
pub const MAX_N: u128 = 1_000_000_000;

/// Returns the next n, after a round of `n` operations that took too little time. The rule is that of `testing`: a
/// fifth more than should suffice, but at least n + 1 and at most 100 n.
pub fn grown(n: u128, ns: u128, min_ns: u128) -> u128 {
    let enough = min_ns * n / ns.max(1);
    (enough + enough / 5).min(100 * n).max(n + 1).min(MAX_N)
}

/// The number of steps that take about 25 ns: as long as the hundred turns of Go's "work" benchmarks, which are an
/// empty loop when compiled.
pub const WORK: u32 = 16;

/// Does `n` steps of xorshift. Each step depends on the step before, so no compiler can shorten them.
#[inline(never)]
pub fn steps(n: u32, mut x: u64) -> u64 {
    for _ in 0..n {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    x
}

/// A round of operations that contenders divide among themselves: threads in `syncbench`, goroutines in `versus-go`. A
/// benchmark that both use is written once, for any implementation of this trait.
pub trait Rounds: Sized {
    /// The result of a round.
    type Out;

    /// The number of operations of the round.
    fn operations(&self) -> u64;

    /// Runs `body` on each contender, with the contender's number and its portion of the operations, from which `body`
    /// takes until the portion is empty. The time before and after does not count.
    fn divide(self, body: impl Fn(usize, &mut Portion) + Send + Sync + 'static) -> Self::Out;
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
    /// A share of `n` operations, of which `taken` have been taken.
    pub fn new(taken: Arc<AtomicU64>, grain: u64, n: u64) -> Self {
        Self { taken, grain, left: 0, n }
    }

    /// Takes an operation. Returns false if none is left.
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

    /// Takes operations until none is left, and does each. The loop over a grain contains only the operation.
    #[inline]
    pub fn each(&mut self, mut operation: impl FnMut()) {
        while self.more() {
            operation();
            for _ in 0..mem::take(&mut self.left) {
                operation();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_n_grows() {
        assert_eq!(grown(1000, 50_000, 100_000), 2400); // half the time: twice as many, and a fifth more
        assert_eq!(grown(1, 0, 1_000_000), 100);
        assert_eq!(grown(7, 99, 100), 8); // 7 * 100 / 99 is 7, and a fifth of 7 is 1
        assert_eq!(grown(2, 99, 100), 3);
        assert_eq!(grown(900_000_000, 1, 2), MAX_N);
    }

    #[test]
    fn portions_add_up() {
        for (n, grain) in [(0, 1), (1, 1), (10, 3), (9, 3), (2, 100)] {
            let taken = Arc::new(AtomicU64::new(0));
            let mut portions = [0, 1].map(|_| Portion::new(Arc::clone(&taken), grain, n));
            let mut total = 0;
            loop {
                let now: u64 = portions.iter_mut().map(|p| u64::from(p.more())).sum();
                if now == 0 {
                    break;
                }
                total += now;
            }
            assert_eq!(total, n, "in grains of {grain}");
            let mut total = 0;
            Portion::new(Arc::default(), grain, n).each(|| total += 1);
            assert_eq!(total, n, "in grains of {grain}");
        }
    }
}
