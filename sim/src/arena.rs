//! Memory at the same addresses in each process: programs hash addresses, and lines are cut from them.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::mem::ManuallyDrop;
use std::panic::Location;
use std::ptr;

use crate::machine::ThreadId;
use crate::machine::region::{self, ARENA_SIZE};

/// An allocator for programs that simulate: what a simulation allocates lies in the region of its machine, at addresses
/// that depend on the simulation alone. Outside a simulation it is the system's.
///
/// Blocks are powers of two in size. A freed one is used again, in the simulation that made it; what is left at its end
/// stays where it is, as results may point to it.
///
/// If schedules are explored, a freed block is poisoned and put into quarantine: an atomic access to it fails the execution.
/// It is used again when 65,536 others, or others of 64 MiB, have been freed since.
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

/// What fills a freed block in quarantine: as an address it is none of the process, as a length absurd.
const POISON: u8 = 0xd5;
/// So many bytes of a block are poisoned at most: a block may be large, and never have been touched.
const POISONED: usize = 1 << 20;
/// What quarantine holds at most.
const MOST_BLOCKS: usize = 1 << 16;
const MOST_BYTES: usize = 1 << 26;

/// A freed block in quarantine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Freed {
    pub(crate) begin: usize,
    /// As it was asked for: what is above that, up to the end of its class, belongs to no block.
    pub(crate) size: usize,
    class: usize,
    /// Which thread freed it, and when. None: no thread of the simulation.
    pub(crate) by: Option<Step>,
}

/// Which thread runs, its latest step, and when that was, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) thread: ThreadId,
    pub(crate) place: &'static Location<'static>,
    pub(crate) at: u64,
}

/// Freed blocks that are not used again yet.
#[derive(Default)]
struct Quarantine {
    /// By their addresses.
    blocks: BTreeMap<usize, Freed>,
    /// In the order of their ends.
    order: VecDeque<usize>,
    bytes: usize,
}

impl Quarantine {
    const fn new() -> Self {
        Self { blocks: BTreeMap::new(), order: VecDeque::new(), bytes: 0 }
    }

    fn put(&mut self, block: Freed) {
        self.bytes += size_of_class(block.class);
        self.order.push_back(block.begin);
        self.blocks.insert(block.begin, block);
    }

    /// One that may be used again.
    fn take(&mut self) -> Option<Freed> {
        if self.bytes <= MOST_BYTES && self.order.len() <= MOST_BLOCKS {
            return None;
        }
        let block = self.blocks.remove(&self.order.pop_front()?)?;
        self.bytes -= size_of_class(block.class);
        Some(block)
    }
}

/// The arena of the machine that runs on this thread of the process, or ran last.
struct Here {
    base: Cell<usize>,
    used: Cell<usize>,
    /// Freed blocks of each size, each with the address of the next in its first word.
    free: [Cell<usize>; CLASSES],
    /// Freed blocks go to quarantine first.
    keeps: Cell<bool>,
    /// The machine allocates for itself.
    outside: Cell<bool>,
    step: Cell<Option<Step>>,
    /// Without a destructor: what it holds at the end of its thread stays.
    quarantine: ManuallyDrop<RefCell<Quarantine>>,
}

thread_local! {
    // Constant and without a destructor, so that the allocator may use it at any time.
    static HERE: Here = const {
        Here {
            base: Cell::new(0),
            used: Cell::new(0),
            free: [const { Cell::new(0) }; CLASSES],
            keeps: Cell::new(false),
            outside: Cell::new(false),
            step: Cell::new(None),
            quarantine: ManuallyDrop::new(RefCell::new(Quarantine::new())),
        }
    };
}

/// A machine with this region begins on this thread. With `keeps` freed blocks go to quarantine.
pub(crate) fn begin(base: usize, keeps: bool) {
    HERE.with(|here| {
        here.base.set(base);
        here.used.set(0);
        here.free.iter().for_each(|list| list.set(0));
        here.keeps.set(keeps);
        here.step.set(None);
        drop(here.quarantine.take());
    });
}

/// What `f` allocates is the system's: what a machine writes down for itself takes no memory of its program, and does not
/// move it.
pub(crate) fn outside<R>(f: impl FnOnce() -> R) -> R {
    struct Back(bool);
    impl Drop for Back {
        fn drop(&mut self) {
            HERE.with(|here| here.outside.set(self.0));
        }
    }
    let _back = Back(HERE.with(|here| here.outside.replace(true)));
    f()
}

/// The thread that runs has made this step, or goes on after it. For what is freed from now on.
pub(crate) fn step(step: Step) {
    HERE.with(|here| here.step.set(Some(step)));
}

/// Whether freed blocks go to quarantine: schedules are explored, if a machine runs.
#[inline]
pub(crate) fn keeps() -> bool {
    HERE.with(|here| here.keeps.get())
}

/// The freed block in which this address lies.
pub(crate) fn freed(address: usize) -> Option<Freed> {
    HERE.with(|here| {
        let quarantine = here.quarantine.borrow();
        let (_, block) = quarantine.blocks.range(..=address).next_back()?;
        (address - block.begin < block.size).then_some(*block)
    })
}

fn size_of_class(class: usize) -> usize {
    1 << (class as u32 + LEAST)
}

impl Here {
    /// # Safety
    ///
    /// A block of this class, which its owner has given up.
    unsafe fn put(&self, block: usize, class: usize) {
        let Some(list) = self.free.get(class) else { return };
        // SAFETY: the block is at least a word long and aligned, and no other code uses it.
        unsafe { ptr::with_exposed_provenance_mut::<usize>(block).write(list.get()) };
        list.set(block);
    }

    /// # Safety
    ///
    /// A block of this layout, which its owner has given up.
    unsafe fn keep(&self, block: *mut u8, layout: Layout) {
        // SAFETY: so many bytes at most are the block's.
        unsafe { block.write_bytes(POISON, layout.size().min(POISONED)) };
        let begin = block.expose_provenance();
        let freed = Freed { begin, size: layout.size(), class: class(layout), by: self.step.get() };
        outside(|| {
            let mut quarantine = self.quarantine.borrow_mut();
            quarantine.put(freed);
            while let Some(block) = quarantine.take() {
                // SAFETY: it came by this function, and is in quarantine no more.
                unsafe { self.put(block.begin, block.class) };
            }
        });
    }
}

fn class(layout: Layout) -> usize {
    let size = layout.size().max(layout.align()).max(1 << LEAST).next_power_of_two();
    (size.trailing_zeros() - LEAST) as usize
}

// SAFETY:
// - a block is as large as its class, which is at least the size and the alignment of its layout, and lies at a multiple of
//   that; blocks do not overlap, as each is either cut from the unused rest or taken from the list of its class;
// - the state is this thread's, nothing in here unwinds, and what quarantine allocates comes from the system's allocator;
// - what the arena did not make goes to the system's allocator.
unsafe impl GlobalAlloc for Arena {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !crate::machine::is_simulated() || HERE.with(|here| here.outside.get()) {
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
            let size = size_of_class(class);
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
        HERE.with(|here| {
            let base = here.base.get();
            if !(base..base + ARENA_SIZE).contains(&block.addr()) {
                return; // of another machine, which may be of another thread
            }
            if here.keeps.get() {
                // SAFETY: made for this layout, and given up, by the caller's contract.
                unsafe { here.keep(block, layout) };
            } else {
                // SAFETY: made for a layout of this class, and given up, by the caller's contract.
                unsafe { here.put(block.expose_provenance(), class(layout)) };
            }
        });
    }
}
