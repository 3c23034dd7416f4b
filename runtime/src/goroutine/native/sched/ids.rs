//! Ids of goroutines.

use crate::shim::system::atomic::{AtomicU64, Ordering};

/// Ids are dealt to workers in batches, as Go's are.
const BATCH: u64 = 16;

/// A batch of ids: from, to.
#[cold]
pub(crate) fn more_ids() -> (u64, u64) {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let from = NEXT.fetch_add(BATCH, Ordering::Relaxed);
    (from, from + BATCH)
}
