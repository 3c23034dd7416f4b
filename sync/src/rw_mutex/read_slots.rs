//! The slots of threads in which the readers of a [`ShardedRwMutex`](super::ShardedRwMutex) write the name of the mutex. The
//! protocol is in `sharded.rs`.

use sudog_runtime::const_unless_model;
use sudog_runtime::shim::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*, asymmetric, mark};

use crate::bias::UnbiasedReads;
#[cfg(sudog_loom)]
pub(super) use model_threads::{all_slots, first_slot, free_slot};
#[cfg(not(sudog_loom))]
pub(super) use threads::{all_slots, first_slot, free_slot};

/// The number of threads with slots. Readers of further threads lock `inner`, which bounds what a write looks at.
pub(super) const THREADS_WITH_SLOTS: usize = if cfg!(sudog_loom) { 4 } else { 256 };

/// The number of reads that a thread's goroutines can have at a time. A further read locks `inner`.
pub(super) const READ_SLOTS: usize = if cfg!(sudog_loom) { 1 } else { 4 };

/// The name of a mutex that a reader has locked, or 0. Only the thread that owns the slot writes a name here; the thread
/// that ends the read writes 0.
pub(super) struct ReadSlot {
    name: AtomicU64,
    pub(super) unbiased_reads: UnbiasedReads,
}

impl ReadSlot {
    const_unless_model! {
        const fn new() -> ReadSlot {
            ReadSlot { name: AtomicU64::new(0), unbiased_reads: UnbiasedReads::new() }
        }
    }

    /// Acquire: a writer that sees the next name comes after a read that another thread has ended.
    #[inline(always)]
    fn is_free(&self) -> bool {
        self.name.load(Acquire) == 0
    }

    /// Writes a name, or 0, and executes the light fence. Release: comes after the reads under the name before.
    #[inline(always)]
    pub(super) fn write_lightly(&self, name: u64) {
        self.name.store(name, Release);
        asymmetric::light();
    }

    /// Writes a name, or 0, by a locked instruction: before the next SeqCst load of this thread.
    #[inline(always)]
    pub(super) fn write(&self, name: u64) {
        self.name.swap(name, SeqCst);
    }

    /// Returns the name, for the reader that has written the name.
    #[inline(always)]
    pub(super) fn own_name(&self) -> u64 {
        self.name.load(Relaxed)
    }

    /// Returns the name, for a writer, or for a reader that looks for others. SeqCst: comes after the caller's previous step.
    /// SeqCst contains Acquire: comes after the reads under the name before.
    #[inline]
    pub(super) fn name(&self) -> u64 {
        self.name.load(SeqCst)
    }
}

/// The slots of a thread, in a cache line that no other thread writes to, except to end a read.
#[repr(align(128))]
struct ThreadSlots {
    slots: [ReadSlot; READ_SLOTS],
    /// Whether a thread owns the slots.
    owned: AtomicBool,
}

impl ThreadSlots {
    #[cfg(not(sudog_loom))]
    const fn new() -> Self {
        Self { slots: [const { ReadSlot::new() }; READ_SLOTS], owned: AtomicBool::new(false) }
    }

    #[cfg(sudog_loom)]
    fn new() -> Self {
        Self { slots: std::array::from_fn(|_| ReadSlot::new()), owned: AtomicBool::new(false) }
    }

    /// Returns the first slot, if it names no mutex. Only the owner may call this.
    #[inline(always)]
    fn first(&self) -> Option<&ReadSlot> {
        Some(&self.slots[0]).filter(|slot| slot.is_free())
    }

    /// Returns a slot that names no mutex. Only the owner may call this.
    fn free(&self) -> Option<&ReadSlot> {
        self.slots.iter().find(|slot| slot.is_free())
    }

    /// Makes the calling thread the owner, unless a thread owns the slots.
    fn acquire(&self) -> bool {
        // Look before: a locked instruction would take the line from the owner.
        !self.owned.load(Relaxed) && self.owned.compare_exchange(false, true, Acquire, Relaxed).is_ok()
    }

    /// Gives the slots back. Another thread may have to end the read of a slot: the next owner uses the other slots until then.
    #[cfg(not(sudog_loom))]
    fn give_back(&self) {
        self.owned.store(false, Release); // the next owner sees the slots as they are
    }
}

/// The slots of all threads.
pub(super) struct Slots {
    threads: [ThreadSlots; THREADS_WITH_SLOTS],
    /// The number of elements of `threads`, from the first on, that have had an owner.
    used: AtomicUsize,
}

impl Slots {
    #[cfg(not(sudog_loom))]
    const fn new() -> Self {
        Self { threads: [const { ThreadSlots::new() }; THREADS_WITH_SLOTS], used: AtomicUsize::new(0) }
    }

    #[cfg(sudog_loom)]
    fn new() -> Self {
        Self { threads: std::array::from_fn(|_| ThreadSlots::new()), used: AtomicUsize::new(0) }
    }

    /// Returns slots that the calling thread owns from now on. None if too many threads have slots.
    #[cold]
    fn acquire(&self) -> Option<&ThreadSlots> {
        let index = self.threads.iter().position(ThreadSlots::acquire)?;
        // SeqCst: before the first name, so that a writer that would see the name sees the number.
        if self.used.fetch_max(index + 1, SeqCst) > index {
            mark("slots are used again");
        }
        Some(&self.threads[index])
    }

    /// Returns whether a slot has a name that `is_named` accepts.
    pub(super) fn is_read(&self, is_named: impl Fn(u64) -> bool) -> bool {
        let used = self.used.load(SeqCst); // comes after the caller's previous step
        self.threads[..used].iter().any(|thread| thread.slots.iter().any(|slot| is_named(slot.name())))
    }
}

/// The slots of this process's threads.
#[cfg(not(sudog_loom))]
mod threads {
    use std::cell::Cell;

    use sudog_runtime::shim::system;

    use super::{ReadSlot, Slots, ThreadSlots};

    static SLOTS: Slots = Slots::new();

    system::thread_local! {
        // `OWN` has no destructor, so that a read costs no look at the state of a thread-local.
        /// The thread's slots, if `OWNER` has slots.
        static OWN: Cell<Option<&'static ThreadSlots>> = const { Cell::new(None) };
        static OWNER: Owner = Owner::new();
    }

    /// Owns the thread's slots, if there were slots left.
    struct Owner(Option<&'static ThreadSlots>);

    impl Owner {
        fn new() -> Self {
            let slots = SLOTS.acquire();
            OWN.with(|own| own.set(slots));
            Self(slots)
        }
    }

    impl Drop for Owner {
        fn drop(&mut self) {
            OWN.with(|own| own.set(None));
            if let Some(slots) = self.0 {
                slots.give_back();
            }
        }
    }

    /// Returns the slots of this process.
    pub(in super::super) fn all_slots() -> &'static Slots {
        &SLOTS
    }

    /// Returns the first slot of the calling thread, if the thread has slots, and the slot is free.
    #[inline(always)]
    pub(in super::super) fn first_slot() -> Option<&'static ReadSlot> {
        OWN.with(Cell::get)?.first()
    }

    /// Returns a free slot of the calling thread. None if the thread has no free slot, or ends.
    pub(in super::super) fn free_slot() -> Option<&'static ReadSlot> {
        OWN.with(Cell::get).or_else(|| OWNER.try_with(|owner| owner.0).ok()?)?.free()
    }
}

/// The slots of a model's threads. A thread keeps its slots until the model ends.
#[cfg(sudog_loom)]
mod model_threads {
    use super::{ReadSlot, Slots, ThreadSlots};

    loom::lazy_static! {
        static ref SLOTS: Slots = Slots::new();
    }

    loom::thread_local! {
        static OWN: Option<&'static ThreadSlots> = all_slots().acquire();
    }

    pub(in super::super) fn all_slots() -> &'static Slots {
        &SLOTS
    }

    pub(in super::super) fn first_slot() -> Option<&'static ReadSlot> {
        OWN.with(|own| *own)?.first()
    }

    pub(in super::super) fn free_slot() -> Option<&'static ReadSlot> {
        OWN.with(|own| *own)?.free()
    }
}
