//! Semaphores that share a bucket, computed without any threads: an evaluation of the hashes.

use serde::Serialize;
use sudog_locks::waiting_array::TicketHash;

use super::{HashJob, HashName, with_hash};

/// The distance of semaphores in an array of padded semaphores.
pub const SPACING: usize = 128;
/// The address of the first array. Any address will do: nothing is ever read there.
const BASE: usize = 0x10_0000;
/// The number of arrays, at different addresses, over which the result is averaged. The result is not averaged over
/// tickets, as it is the same for all tickets.
const ARRAYS: usize = 256;

/// The result for a hash and a number of waiters.
#[derive(Clone, Serialize, Debug)]
pub struct EntrainmentRecord {
    bench: &'static str,
    pub hash: HashName,
    /// The number of buckets of the hash.
    pub buckets: usize,
    /// The number of waiters, each of which waits for another semaphore, and all with tickets of the same number.
    pub waiters: usize,
    /// The part of the waiters that share their bucket with another waiter.
    pub shared: f64,
    /// The same part if each waiter were in a random bucket.
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

/// Computes the record of a hash and a number of waiters.
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
        // At a distance of 128 bytes there are 16 places in 2048 buckets, and one place in 64.
        assert_eq!(record(HashName::Plain2048, 16).shared, 0.0);
        assert_eq!(record(HashName::Plain2048, 32).shared, 1.0);
        assert_eq!(record(HashName::Plain64, 2).shared, 1.0);
        let mixed = record(HashName::Mixed2048, 32);
        assert!(mixed.shared < 2.0 * mixed.by_chance, "{mixed:?}");
    }

    /// All semaphores go through the buckets alike: so two that share a bucket at a ticket share a bucket at the next,
    /// mixed or not.
    #[test]
    fn who_meets_in_step_stays_together() {
        /// The number of tickets to check. No hash uses more of a ticket than the page and the place in the page, of
        /// 512.
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
