//! Which semaphores share a bucket, without any threads: an evaluation of the hashes.

use serde::Serialize;
use sudog_locks::waiting_array::TicketHash;

use super::{HashJob, HashName, with_hash};

/// Semaphores in an array of padded ones.
pub const SPACING: usize = 128;
/// Any address will do: nothing is ever read there.
const BASE: usize = 0x10_0000;
/// Arrays, at different addresses, over which is averaged. Over tickets it is not: it is the same for all.
const ARRAYS: usize = 256;

/// What came of one hash with one number of waiters.
#[derive(Clone, Serialize, Debug)]
pub struct EntrainmentRecord {
    bench: &'static str,
    /// The hash.
    pub hash: HashName,
    /// How many buckets it uses.
    pub buckets: usize,
    /// How many wait, each for a semaphore of its own, and all with tickets of the same number.
    pub waiters: usize,
    /// The part of the waiters that do not have their bucket to themselves.
    pub shared: f64,
    /// What it would be if each were in any bucket.
    pub by_chance: f64,
}

struct Shared(usize);

impl HashJob for Shared {
    type Out = (usize, f64);

    fn run<H: TicketHash>(self) -> (usize, f64) {
        let mut sharing = 0;
        for array in 0..ARRAYS {
            let base = BASE + array * SPACING * 1021;
            let mut waiters = vec![0; H::BUCKETS];
            (0..self.0).for_each(|n| waiters[H::bucket(base + n * SPACING, 0) % H::BUCKETS] += 1);
            sharing += waiters.into_iter().filter(|&waiters| waiters > 1).sum::<usize>();
        }
        (H::BUCKETS, sharing as f64 / (self.0 * ARRAYS) as f64)
    }
}

/// Computes it.
#[must_use]
pub fn record(hash: HashName, waiters: usize) -> EntrainmentRecord {
    let (buckets, shared) = with_hash(hash, Shared(waiters));
    let by_chance = 1.0 - (1.0 - 1.0 / buckets as f64).powi(waiters as i32 - 1);
    EntrainmentRecord { bench: "entrainment", hash, buckets, waiters, shared, by_chance }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_alone_and_too_many_are_not() {
        for &hash in HashName::ALL {
            assert_eq!(record(hash, 1).shared, 0.0, "{hash:?}");
            let record = record(hash, 65);
            assert!(record.shared > 0.0 || record.buckets > 64, "{hash:?}");
        }
    }

    #[test]
    fn addresses_that_are_not_mixed_collide_all_the_time() {
        // 128 bytes apart there are 16 places in 2048 buckets, and one in 64.
        assert_eq!(record(HashName::Plain2048, 16).shared, 0.0);
        assert_eq!(record(HashName::Plain2048, 32).shared, 1.0);
        assert_eq!(record(HashName::Plain64, 2).shared, 1.0);
        let mixed = record(HashName::Mixed2048, 32);
        assert!(mixed.shared < 2.0 * mixed.by_chance, "{mixed:?}");
    }

    /// All walk alike: so what is shared at one ticket is shared at the next, mixed or not.
    #[test]
    fn who_meets_in_step_stays_together() {
        /// No hash looks at more than the page and the place in it, of 512.
        const TICKETS: u64 = 2048;

        struct Pairs;
        impl HashJob for Pairs {
            type Out = Vec<Vec<(usize, usize)>>;
            fn run<H: TicketHash>(self) -> Self::Out {
                let bucket = |n: usize, ticket| H::bucket(BASE + n * SPACING, ticket) % H::BUCKETS;
                let pairs = || (0..64).flat_map(|a| (0..a).map(move |b| (a, b)));
                (0..TICKETS).map(|t| pairs().filter(|&(a, b)| bucket(a, t) == bucket(b, t)).collect()).collect()
            }
        }
        for &hash in HashName::ALL {
            let pairs = with_hash(hash, Pairs);
            assert!(pairs.windows(2).all(|next| next[0] == next[1]), "{hash:?}");
        }
    }
}
