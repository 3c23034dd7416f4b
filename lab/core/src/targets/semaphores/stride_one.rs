//! A hash that puts consecutive tickets into adjacent buckets, for comparison: the paper asks for different cache lines.

use sudog_locks::waiting_array::{MixedHash, TicketHash};

/// A hash like `MixedHash` with a stride of 1 in place of 17: eight consecutive tickets share a cache line.
#[derive(Clone, Copy, Debug)]
pub struct StrideOneHash;

impl TicketHash for StrideOneHash {
    const BUCKETS: usize = <MixedHash>::BUCKETS;

    #[inline]
    fn bucket(sema: usize, ticket: u64) -> usize {
        <MixedHash>::bucket(sema, 0) + ticket as usize % Self::BUCKETS
    }
}
