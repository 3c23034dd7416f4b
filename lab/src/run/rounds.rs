//! How a number of operations is measured, as by Go's `testing`: in rounds of growing n, which contenders divide among
//! themselves.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// A round has no more.
pub const MAX_N: u128 = 1_000_000_000;

/// What n is next, after a round of `n` that took too little. The rule is testing's: a fifth more than should suffice,
/// at least one more and at most a hundred times as many as before.
#[must_use]
pub fn grown(n: u128, ns: u128, min_ns: u128) -> u128 {
    let enough = min_ns * n / ns.max(1);
    (enough + enough / 5).min(100 * n).max(n + 1).min(MAX_N)
}

/// Steps of about 25 ns: as long as the hundred turns of Go's "work" benchmarks, which are an empty loop when compiled.
pub const WORK: u32 = 16;

/// Steps of xorshift, each of which depends on the one before: no compiler can shorten them.
#[inline(never)]
#[must_use]
pub fn steps(n: u32, mut x: u64) -> u64 {
    for _ in 0..n {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    x
}

/// A round of operations that contenders divide among themselves: threads in `syncbench`, goroutines in `versus-go`. A
/// benchmark of both is written once, for any.
pub trait Rounds: Sized {
    /// What comes of a round.
    type Out;

    /// How many operations it has.
    fn operations(&self) -> u64;

    /// Each contender does `body` with its number and its portion of the operations, and takes from it until it is empty.
    /// What comes before and after does not count.
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
    #[must_use]
    pub fn new(taken: Arc<AtomicU64>, grain: u64, n: u64) -> Self {
        Self { taken, grain, left: 0, n }
    }

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

    /// Takes all that it can get, and does each. The loop over a grain has nothing in it but the operation.
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
