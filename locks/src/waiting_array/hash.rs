//! Hashes of a waiting array: from the address of a semaphore and a ticket to the bucket where the holder of the ticket
//! waits.
//!
//! | the paper's requirement | fulfilled by |
//! |---|---|
//! | consecutive tickets of one semaphore walk through all buckets | the ticket times an odd constant |
//! | … and lie on different cache lines | 17 buckets of 8 bytes are 136 bytes |
//! | two semaphores do not walk in step, colliding all the way | the address is mixed first: [`MixedHash`]; [`PlainHash`] does not mix |
//!
//! A collision costs a futile wake-up, and is never wrong. Each protocol has one table per process, so a semaphore in
//! memory that processes share would not find its waiters.
//!
//! A table has [`MAX_BUCKETS`] = 4096 buckets, as in the listings. The hashes use 2048 of these buckets by default,
//! because a walk then touches half the memory: 16 KiB of 8-byte buckets instead of 32 KiB, the first-level cache of
//! many processors. The number of collisions with 2048 buckets is in `docs/journal/hash-collisions.md`. Use
//! `MixedHash<4096>` for the size of the listings.

/// A hash from tickets to buckets.
///
/// # Examples
///
/// ```
/// use sudog::locks::waiting_array::{MixedHash, TicketHash};
///
/// let bucket = |ticket| <MixedHash>::bucket(0x1000, ticket) % <MixedHash>::BUCKETS;
/// assert_ne!(bucket(1), bucket(2));
/// ```
pub trait TicketHash: Send + Sync + 'static {
    /// The number of buckets that this hash uses: a power of two, at most [`MAX_BUCKETS`].
    const BUCKETS: usize;

    /// Returns the bucket of a ticket of the semaphore at this address. Callers use only the low bits of the result.
    /// Tickets wrap, after 2^62.
    fn bucket(sema: usize, ticket: u64) -> usize;
}

/// The size of the tables. A model has two buckets, so that two tickets may share a bucket or use different buckets.
pub const MAX_BUCKETS: usize = if cfg!(sudog_loom) { 2 } else { 4096 };

const STRIDE: usize = 17;

/// The hash of listing 2: `address + 17 * ticket`. Semaphores that are 128 bytes apart then start in few different
/// buckets.
#[derive(Clone, Copy, Debug)]
pub struct PlainHash<const BUCKETS: usize = 2048>;

/// The default hash: mixes the address first, then goes on as [`PlainHash`].
#[derive(Clone, Copy, Debug)]
pub struct MixedHash<const BUCKETS: usize = 2048>;

/// A hash like [`MixedHash`], but two consecutive tickets share a bucket: the waiter with the second ticket is woken
/// early, in vain, and is awake when its turn comes.
#[derive(Clone, Copy, Debug)]
pub struct PairedHash<const BUCKETS: usize = 2048>;

/// A hash like [`MixedHash`] that walks through one page of 512 buckets before the next page: fewer pages are in use at
/// a time.
#[derive(Clone, Copy, Debug)]
pub struct OrbitHash<const BUCKETS: usize = 2048>;

/// A hash like [`MixedHash`] that walks through the buckets in the order of a Gray code: two consecutive buckets differ
/// in a single bit of their numbers.
#[derive(Clone, Copy, Debug)]
pub struct GrayHash<const BUCKETS: usize = 2048>;

impl<const BUCKETS: usize> TicketHash for PlainHash<BUCKETS> {
    const BUCKETS: usize = checked(BUCKETS);

    #[inline]
    fn bucket(sema: usize, ticket: u64) -> usize {
        sema.wrapping_add(walk(ticket))
    }
}

impl<const BUCKETS: usize> TicketHash for MixedHash<BUCKETS> {
    const BUCKETS: usize = checked(BUCKETS);

    #[inline]
    fn bucket(sema: usize, ticket: u64) -> usize {
        fibonacci(sema, BUCKETS) + walk(ticket)
    }
}

impl<const BUCKETS: usize> TicketHash for PairedHash<BUCKETS> {
    const BUCKETS: usize = checked(BUCKETS);

    #[inline]
    fn bucket(sema: usize, ticket: u64) -> usize {
        fibonacci(sema, BUCKETS) + walk(ticket / 2)
    }
}

impl<const BUCKETS: usize> TicketHash for OrbitHash<BUCKETS> {
    const BUCKETS: usize = checked(BUCKETS);

    #[inline]
    fn bucket(sema: usize, ticket: u64) -> usize {
        const PAGE: usize = 512;
        let start = fibonacci(sema, BUCKETS);
        let in_page = (start + walk(ticket)) % PAGE;
        let page = start / PAGE + (ticket / PAGE as u64) as usize % MAX_BUCKETS;
        in_page + page * PAGE
    }
}

impl<const BUCKETS: usize> TicketHash for GrayHash<BUCKETS> {
    const BUCKETS: usize = checked(BUCKETS);

    #[inline]
    fn bucket(sema: usize, ticket: u64) -> usize {
        // Reduce the ticket first: the code is a cycle of this length, and in a longer cycle two tickets would meet.
        let ticket = ticket % Self::BUCKETS as u64;
        fibonacci(sema, BUCKETS) ^ (ticket ^ ticket >> 1) as usize
    }
}

const fn checked(buckets: usize) -> usize {
    assert!(buckets.is_power_of_two(), "the number of buckets is a power of two");
    if cfg!(sudog_loom) && buckets > MAX_BUCKETS {
        return MAX_BUCKETS;
    }
    assert!(buckets <= MAX_BUCKETS, "the tables have 4096 buckets");
    buckets
}

#[inline]
fn walk(ticket: u64) -> usize {
    ticket as usize % MAX_BUCKETS * STRIDE
}

/// Fibonacci hashing: the top bits of the product with 2^64 over the golden ratio. `buckets` is a power of two.
#[inline]
pub(super) const fn fibonacci(address: usize, buckets: usize) -> usize {
    if cfg!(sudog_loom) {
        return address % buckets; // addresses must not change a model; all aligned addresses are alike
    }
    let top = (address as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    ((top * buckets as u64) >> 32) as usize
}

#[cfg(all(test, not(sudog_loom)))]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// Returns the number of different buckets of consecutive tickets.
    fn walk_of<H: TicketHash>(sema: usize, tickets: usize) -> usize {
        (0..tickets as u64).map(|t| H::bucket(sema, t) % H::BUCKETS).collect::<HashSet<_>>().len()
    }

    #[test]
    fn consecutive_tickets_walk_through_all_buckets_before_one_comes_again() {
        for sema in [0, 0x1000, 0x7fff_1238] {
            assert_eq!(walk_of::<PlainHash>(sema, 2048), 2048);
            assert_eq!(walk_of::<MixedHash>(sema, 2048), 2048);
            assert_eq!(walk_of::<MixedHash<64>>(sema, 64), 64);
            assert_eq!(walk_of::<PairedHash>(sema, 2 * 2048), 2048);
            assert_eq!(walk_of::<OrbitHash>(sema, 2048), 2048);
            assert_eq!(walk_of::<GrayHash>(sema, 2048), 2048);
            let gray = |ticket| GrayHash::<2048>::bucket(sema, ticket);
            assert!((0..4096).all(|ticket| (gray(ticket) ^ gray(ticket + 1)).is_power_of_two()), "one bit at a time");
            let pages: HashSet<_> = (0..512).map(|t| OrbitHash::<2048>::bucket(sema, t) % 2048 / 512).collect();
            assert_eq!(pages.len(), 1, "one page at a time");
        }
    }

    #[test]
    fn semaphores_in_a_row_start_in_different_buckets_if_the_address_is_mixed() {
        let starts = |bucket: fn(usize, u64) -> usize| {
            (0..128).map(|n| bucket(0x10_0000 + 128 * n, 0) % 2048).collect::<HashSet<_>>().len()
        };
        assert_eq!(starts(PlainHash::<2048>::bucket), 16);
        assert!(starts(MixedHash::<2048>::bucket) > 100);
    }
}
