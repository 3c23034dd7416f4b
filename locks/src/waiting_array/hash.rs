//! Where in a waiting array the holder of a ticket waits: from the semaphore's address and the ticket to a bucket.
//!
//! | what the paper wants of it | how |
//! |---|---|
//! | consecutive tickets of one semaphore walk through all buckets | the ticket times an odd constant |
//! | … and lie on different cache lines | 17 buckets of 8 bytes are 136 bytes |
//! | two semaphores do not walk in step, colliding all the way | the address is mixed first: [`Mixed`]; [`Plain`] does not |
//!
//! A collision costs a futile wake-up, and is never wrong. The tables are one for each protocol and process, so a
//! semaphore in memory that processes share would not find its waiters.

/// A way to choose buckets.
///
/// # Examples
///
/// ```
/// use sudog_locks::waiting_array::{Mixed, TicketHash};
///
/// let bucket = |ticket| <Mixed>::bucket(0x1000, ticket) % <Mixed>::BUCKETS;
/// assert_ne!(bucket(1), bucket(2));
/// ```
pub trait TicketHash: Send + Sync + 'static {
    /// How many buckets it uses: a power of two, at most [`MAX_BUCKETS`].
    const BUCKETS: usize;

    /// The bucket of a ticket of the semaphore at this address; its lower bits count. Tickets go round, after 2^62.
    fn bucket(sema: usize, ticket: u64) -> usize;
}

/// The size of the tables. A model has two: the same bucket or another.
pub const MAX_BUCKETS: usize = if cfg!(sudog_loom) { 2 } else { 4096 };

const STRIDE: usize = 17;

/// Listing 2's: `address + 17 * ticket`. Semaphores that are 128 bytes apart then start in few different buckets.
#[derive(Clone, Copy, Debug)]
pub struct Plain<const BUCKETS: usize = 2048>;

/// The address mixed first, then as [`Plain`]: the default.
#[derive(Clone, Copy, Debug)]
pub struct Mixed<const BUCKETS: usize = 2048>;

/// As [`Mixed`], two consecutive tickets sharing a bucket: the second of them is woken early, in vain, and is on its
/// way when its turn comes.
#[derive(Clone, Copy, Debug)]
pub struct Paired<const BUCKETS: usize = 2048>;

/// As [`Mixed`], but it goes round one page of 512 buckets before it moves to the next: fewer pages in use at a time.
#[derive(Clone, Copy, Debug)]
pub struct Orbits<const BUCKETS: usize = 2048>;

impl<const BUCKETS: usize> TicketHash for Plain<BUCKETS> {
    const BUCKETS: usize = checked(BUCKETS);

    #[inline]
    fn bucket(sema: usize, ticket: u64) -> usize {
        sema.wrapping_add(walk(ticket))
    }
}

impl<const BUCKETS: usize> TicketHash for Mixed<BUCKETS> {
    const BUCKETS: usize = checked(BUCKETS);

    #[inline]
    fn bucket(sema: usize, ticket: u64) -> usize {
        fibonacci(sema, BUCKETS) + walk(ticket)
    }
}

impl<const BUCKETS: usize> TicketHash for Paired<BUCKETS> {
    const BUCKETS: usize = checked(BUCKETS);

    #[inline]
    fn bucket(sema: usize, ticket: u64) -> usize {
        fibonacci(sema, BUCKETS) + walk(ticket / 2)
    }
}

impl<const BUCKETS: usize> TicketHash for Orbits<BUCKETS> {
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

/// Fibonacci hashing: the topmost bits of the product with 2^64 over the golden ratio. `buckets` is a power of two.
#[inline]
pub(super) const fn fibonacci(address: usize, buckets: usize) -> usize {
    if cfg!(sudog_loom) {
        return address % buckets; // where memory lies must not change a model; all that is aligned is alike
    }
    let top = (address as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    ((top * buckets as u64) >> 32) as usize
}

#[cfg(all(test, not(sudog_loom)))]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// Buckets of consecutive tickets, and how many different ones there are.
    fn walk_of<H: TicketHash>(sema: usize, tickets: usize) -> usize {
        (0..tickets as u64).map(|t| H::bucket(sema, t) % H::BUCKETS).collect::<HashSet<_>>().len()
    }

    #[test]
    fn consecutive_tickets_walk_through_all_buckets_before_one_comes_again() {
        for sema in [0, 0x1000, 0x7fff_1238] {
            assert_eq!(walk_of::<Plain>(sema, 2048), 2048);
            assert_eq!(walk_of::<Mixed>(sema, 2048), 2048);
            assert_eq!(walk_of::<Mixed<64>>(sema, 64), 64);
            assert_eq!(walk_of::<Paired>(sema, 2 * 2048), 2048);
            assert_eq!(walk_of::<Orbits>(sema, 2048), 2048);
            let pages: HashSet<_> = (0..512).map(|t| Orbits::<2048>::bucket(sema, t) % 2048 / 512).collect();
            assert_eq!(pages.len(), 1, "one page at a time");
        }
    }

    #[test]
    fn semaphores_in_a_row_start_in_different_buckets_if_the_address_is_mixed() {
        let starts = |bucket: fn(usize, u64) -> usize| {
            (0..128).map(|n| bucket(0x10_0000 + 128 * n, 0) % 2048).collect::<HashSet<_>>().len()
        };
        assert_eq!(starts(Plain::<2048>::bucket), 16);
        assert!(starts(Mixed::<2048>::bucket) > 100);
    }
}
