//! The places in which the readers of a [`ShardedRwMutex`](crate::rw_mutex::ShardedRwMutex) name the mutex that they read.
//! The protocol is in `rw_mutex/sharded.rs`.

use sudog_runtime::const_unless_model;
use sudog_runtime::shim::{AtomicU32, AtomicU64, Ordering::*, asymmetric};

use super::domain::READS_FOR_A_BIAS;

/// The number of threads with slots. Readers of further threads lock `inner`, which bounds what a write looks at.
pub(crate) const THREADS_WITH_SLOTS: usize = if cfg!(sudog_loom) { 4 } else { 256 };

/// The number of reads that a thread's goroutines can have at a time. A further read locks `inner`.
pub(crate) const READ_SLOTS: usize = if cfg!(sudog_loom) { 1 } else { 4 };

/// The name of a mutex that a reader has locked, or 0. Only the owner of the record writes a name here; any thread that ends
/// the read writes 0.
pub(crate) struct ReadSlot {
    name: AtomicU64,
    /// The number of reads here that executed locked instructions, since such a read last biased a mutex.
    unbiased_reads: AtomicU32,
}

impl ReadSlot {
    const_unless_model! {
        const fn new() -> ReadSlot {
            ReadSlot { name: AtomicU64::new(0), unbiased_reads: AtomicU32::new(0) }
        }
    }

    /// Acquire: a writer that sees the next name comes after a read that another thread has ended.
    #[inline(always)]
    fn is_free(&self) -> bool {
        self.name.load(Acquire) == 0
    }

    /// Writes a name, or 0, and executes the light fence. Release: comes after the reads under the name before.
    #[inline(always)]
    pub(crate) fn write_lightly(&self, name: u64) {
        self.name.store(name, Release);
        asymmetric::light();
    }

    /// Writes a name, or 0, by a locked instruction: before the next SeqCst load of this thread.
    #[inline(always)]
    pub(crate) fn write(&self, name: u64) {
        self.name.swap(name, SeqCst);
    }

    /// Returns the name, for the reader that has written the name.
    #[inline(always)]
    pub(crate) fn own_name(&self) -> u64 {
        self.name.load(Relaxed)
    }

    /// Returns the name, for a writer, or for a reader that looks for others. SeqCst: comes after the caller's previous step.
    /// SeqCst contains Acquire: comes after the reads under the name before.
    #[inline]
    pub(crate) fn name(&self) -> u64 {
        self.name.load(SeqCst)
    }

    /// Counts a read that executes locked instructions. Returns whether the mutex is to be biased.
    #[inline]
    pub(crate) fn counts_for_a_bias(&self) -> bool {
        let reads = self.unbiased_reads.load(Relaxed) + 1;
        let are_enough = reads == READS_FOR_A_BIAS;
        self.unbiased_reads.store(if are_enough { 0 } else { reads }, Relaxed);
        are_enough
    }
}

/// The slots of a thread, in cache lines that no other thread writes to, except to end a read.
#[repr(align(128))]
pub(crate) struct ReadSlots([ReadSlot; READ_SLOTS]);

impl ReadSlots {
    #[cfg(not(sudog_loom))]
    pub(super) const fn of_threads() -> [Self; THREADS_WITH_SLOTS] {
        [const { Self([const { ReadSlot::new() }; READ_SLOTS]) }; THREADS_WITH_SLOTS]
    }

    #[cfg(sudog_loom)]
    pub(super) fn of_threads() -> [Self; THREADS_WITH_SLOTS] {
        std::array::from_fn(|_| Self(std::array::from_fn(|_| ReadSlot::new())))
    }

    /// Returns the first slot, if it names no mutex. Only the owner of the record may call this.
    #[inline(always)]
    pub(super) fn first(&self) -> Option<&ReadSlot> {
        Some(&self.0[0]).filter(|slot| slot.is_free())
    }

    /// Returns a slot that names no mutex. Only the owner of the record may call this.
    pub(super) fn free(&self) -> Option<&ReadSlot> {
        self.0.iter().find(|slot| slot.is_free())
    }

    /// Returns whether a slot has a name that `is_named` accepts.
    #[inline]
    pub(super) fn any(&self, is_named: impl Fn(u64) -> bool) -> bool {
        self.0.iter().any(|slot| is_named(slot.name()))
    }
}
