//! Memory at the same addresses in each process: programs hash addresses, and lines are cut from them.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr;

use crate::machine::region::{self, ARENA_SIZE};

/// An allocator for programs that simulate: what a simulation allocates lies in the region of its machine, at addresses
/// that depend on the simulation alone. Outside a simulation it is the system's.
///
/// Blocks are powers of two in size. A freed one is used again, in the simulation that made it; what is left at its end
/// stays where it is, as results may point to it.
///
/// # Examples
///
/// ```
/// #[global_allocator]
/// static ARENA: sudog_sim::Arena = sudog_sim::Arena;
///
/// let machine = sudog_sim::Machine::new(&sudog_sim::PRESETS[0]);
/// assert_eq!(machine.run(|| vec![1, 2, 3])?, [1, 2, 3]);
/// # Ok::<(), Box<sudog_sim::Stopped>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Arena;

const LEAST: u32 = 4;
const CLASSES: usize = 40;

/// The arena of the machine that runs on this thread of the process, or ran last.
struct Here {
    base: Cell<usize>,
    used: Cell<usize>,
    /// Freed blocks of each size, each with the address of the next in its first word.
    free: [Cell<usize>; CLASSES],
}

thread_local! {
    // Constant and without a destructor, so that the allocator may use it at any time.
    static HERE: Here = const {
        Here { base: Cell::new(0), used: Cell::new(0), free: [const { Cell::new(0) }; CLASSES] }
    };
}

/// A machine with this region begins on this thread.
pub(crate) fn begin(base: usize) {
    HERE.with(|here| {
        here.base.set(base);
        here.used.set(0);
        here.free.iter().for_each(|list| list.set(0));
    });
}

fn class(layout: Layout) -> usize {
    let size = layout.size().max(layout.align()).max(1 << LEAST).next_power_of_two();
    (size.trailing_zeros() - LEAST) as usize
}

// SAFETY:
// - a block is as large as its class, which is at least the size and the alignment of its layout, and lies at a multiple of
//   that; blocks do not overlap, as each is either cut from the unused rest or taken from the list of its class;
// - the state is this thread's, and nothing in here allocates or unwinds;
// - what the arena did not make goes to the system's allocator.
unsafe impl GlobalAlloc for Arena {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !crate::machine::is_simulated() {
            // SAFETY: the caller's contract.
            return unsafe { System.alloc(layout) };
        }
        let class = class(layout);
        HERE.with(|here| {
            let Some(list) = here.free.get(class) else { return ptr::null_mut() };
            let first = list.get();
            if first != 0 {
                // SAFETY: a freed block, whose first word `dealloc` has written.
                list.set(unsafe { ptr::with_exposed_provenance::<usize>(first).read() });
                return ptr::with_exposed_provenance_mut(first);
            }
            let size = 1_usize << (class as u32 + LEAST);
            let at = here.used.get().next_multiple_of(size);
            if at + size > ARENA_SIZE {
                return ptr::null_mut();
            }
            here.used.set(at + size);
            ptr::with_exposed_provenance_mut(here.base.get() + at)
        })
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if !region::is_arena(block.addr()) {
            // SAFETY: the caller's contract; not of an arena, so of the system's allocator.
            return unsafe { System.dealloc(block, layout) };
        }
        let class = class(layout);
        HERE.with(|here| {
            let base = here.base.get();
            if !(base..base + ARENA_SIZE).contains(&block.addr()) {
                return; // of another machine, which may be of another thread
            }
            if let Some(list) = here.free.get(class) {
                // SAFETY: the block is at least a word long, aligned, and its owner has given it up.
                unsafe { block.cast::<usize>().write(list.get()) };
                list.set(block.expose_provenance());
            }
        });
    }
}
