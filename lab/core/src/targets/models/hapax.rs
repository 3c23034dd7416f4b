//! The Hapax lock: each acquisition has a number that is never used again. A contender exchanges its number for the number
//! of its predecessor, and waits until the predecessor's number is the last that has departed. No thread reads memory of
//! another thread.
//!
//! | step | by | action |
//! |---|---|---|
//! | arrive | contender | `before = arrived.swap(mine)`; has the lock if `departed` is `before` |
//! | wait | contender | reads the slot of `before`, then `departed`; while `departed` is not `before`, waits for the slot to change |
//! | depart | owner | `departed = mine`; then exchanges `mine` for the content of the slot of `mine` |
//!
//! No change of a slot is missed, with Release for the exchange of a slot and Acquire for its load. A contender loads a
//! number that the slot had before `before`: then the slot changes once more, as no number comes twice. Or the contender
//! loads `before` or a later number, which continues the release sequence of `before`, since each change of a slot is an
//! RMW: then the contender sees the departure.
//!
//! A thread draws numbers in blocks from a counter that all locks share, as the paper proposes. A collision of two locks
//! in a slot costs a look at `departed`. The paper has a second form, in which waiters are visible; that form is not here.
//!
//! Source: D. Dice and A. Kogan, *Hapax locks: value-based mutual exclusion*, arXiv 2511.14608, 2025, from its abstract
//! and summaries.

use std::cell::Cell;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crossbeam_utils::CachePadded;
use sudog_runtime::shim::AtomicU64;
use sudog_runtime::spin;
use sudog_sync::RawLock;

/// The number of slots of the array.
const SLOTS: usize = if cfg!(sudog_loom) { 1 } else { 4096 };

/// How many numbers a thread draws at a time.
const BLOCK: u64 = 1 << 16;

#[cfg(not(sudog_loom))]
static ARRAY: [AtomicU64; SLOTS] = [const { AtomicU64::new(0) }; SLOTS];

/// The number of blocks that threads have drawn. The first block, which has the number 0 of a new lock, belongs to no thread.
#[cfg(not(sudog_loom))]
static BLOCKS: CachePadded<AtomicU64> = CachePadded::new(AtomicU64::new(1));

#[cfg(not(sudog_loom))]
sudog_runtime::shim::system::thread_local! {
    /// The next number of this thread; a multiple of `BLOCK` if the thread needs another block.
    static NEXT: Cell<u64> = const { Cell::new(0) };
}

#[cfg(sudog_loom)]
loom::lazy_static! {
    static ref ARRAY: [AtomicU64; SLOTS] = [AtomicU64::new(0)];
    static ref BLOCKS: AtomicU64 = AtomicU64::new(1);
}
#[cfg(sudog_loom)]
loom::thread_local! { static NEXT: Cell<u64> = Cell::new(0); }

/// Returns a number that no other call returns.
fn number() -> u64 {
    NEXT.with(|next| {
        let mut number = next.get();
        if number.is_multiple_of(BLOCK) {
            number = BLOCKS.fetch_add(1, Relaxed) * BLOCK;
            // The block's first number stays unused, so that the next number is no multiple.
            number += 1;
        }
        next.set(number + 1);
        number
    })
}

/// Returns the slot of a number: successive numbers of a thread are on different lines.
#[cfg_attr(sudog_loom, expect(clippy::modulo_one, reason = "a model has a single slot"))]
fn slot(number: u64) -> &'static AtomicU64 {
    // The low bits number the acquisitions of a thread, the others the blocks.
    let mixed = number.wrapping_mul(17) ^ (number / BLOCK).wrapping_mul(0x9E37_79B9);
    &ARRAY[mixed as usize % SLOTS]
}

/// The Hapax lock.
#[derive(Debug)]
pub struct Hapax {
    arrived: CachePadded<AtomicU64>,
    departed: CachePadded<AtomicU64>,
}

impl Hapax {
    #[cold]
    fn wait(&self, before: u64) {
        let slot = slot(before);
        loop {
            let seen = slot.load(Acquire);
            if self.departed.load(Acquire) == before {
                return;
            }
            while slot.load(Relaxed) == seen {
                spin::do_spin(1);
            }
        }
    }
}

// SAFETY:
// - A contender has the lock if `departed` is the number of its predecessor. No two contenders have the same predecessor, as
//   each exchanged its own number for that of the predecessor, and only the owner with a number makes that number depart.
// - `departed` is written with Release and read with Acquire, which orders the actions of owners.
// - A forgotten guard leaves the lock locked.
unsafe impl RawLock for Hapax {
    /// The number of the acquisition.
    type Guard = u64;

    const DEADLINES: bool = false;

    fn new() -> Self {
        Self { arrived: CachePadded::new(AtomicU64::new(0)), departed: CachePadded::new(AtomicU64::new(0)) }
    }

    #[inline]
    fn lock(&self) -> u64 {
        let mine = number();
        // Relaxed: the place in the queue passes on no data. `departed` does.
        let before = self.arrived.swap(mine, Relaxed);
        if self.departed.load(Acquire) != before {
            self.wait(before);
        }
        mine
    }

    #[inline]
    fn try_lock(&self) -> Option<u64> {
        let last = self.departed.load(Acquire);
        if self.arrived.load(Relaxed) != last {
            return None;
        }
        // `last` never comes again. So if the exchange succeeds, no contender has arrived since `last` departed.
        let mine = number();
        self.arrived.compare_exchange(last, mine, Relaxed, Relaxed).is_ok().then_some(mine)
    }

    #[inline]
    unsafe fn unlock(&self, mine: u64) {
        self.departed.store(mine, Release);
        slot(mine).swap(mine, Release);
    }

    fn is_locked(&self) -> bool {
        self.arrived.load(Relaxed) != self.departed.load(Relaxed)
    }
}
