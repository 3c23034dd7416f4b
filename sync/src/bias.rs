//! When reads begin to execute light fences: see `hazard` and `rw_mutex/sharded.rs`.

use sudog_runtime::const_unless_model;
use sudog_runtime::shim::{AtomicU32, Ordering::Relaxed};

/// The number of unbiased reads after which the last of these reads biases its value, map or mutex. An unbiased read takes
/// 3 to 16 ns more than a biased read; a heavy fence takes 0.4 us, or 15 us and more beside other threads. A prime, so that
/// a loop over a few pointers does not bias the same pointer each time.
pub(crate) const READS_FOR_A_BIAS: u32 = match (cfg!(sudog_loom), cfg!(test)) {
    (true, _) => 1,
    (false, true) => 17,
    (false, false) => 10_007,
};

/// The number of unbiased reads of a thread, by a hazard pointer or in a slot, since a read biased what it had read.
pub(crate) struct UnbiasedReads(AtomicU32);

impl UnbiasedReads {
    const_unless_model! {
        pub(crate) const fn new() -> UnbiasedReads {
            UnbiasedReads(AtomicU32::new(0))
        }
    }

    /// Counts an unbiased read of the thread. Returns whether the read is to bias what it has read.
    #[inline]
    pub(crate) fn count(&self) -> bool {
        let reads = self.0.load(Relaxed) + 1;
        let are_enough = reads == READS_FOR_A_BIAS;
        self.0.store(if are_enough { 0 } else { reads }, Relaxed);
        are_enough
    }
}
