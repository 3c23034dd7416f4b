//! Ids of goroutines.

use crate::shim::system::atomic::{AtomicU64, Ordering};

/// The number of ids in a batch. Workers get ids in batches, as in Go.
const BATCH: u64 = 16;

/// Returns a batch of ids: the first id, and the first id after the batch.
#[cold]
pub(crate) fn more_ids() -> (u64, u64) {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let from = NEXT.fetch_add(BATCH, Ordering::Relaxed);
    (from, from + BATCH)
}
