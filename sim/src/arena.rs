//! Memory at the same addresses in each process: programs hash addresses, and addresses decide the cache lines.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::mem::ManuallyDrop;
use std::panic::Location;
use std::ptr;

use crate::machine::ThreadId;
use crate::machine::region::{self, ARENA_SIZE};

/// An allocator for programs that run simulations: memory that a simulation allocates lies in the region of its
/// machine, at addresses that depend on the simulation alone. Outside a simulation the allocator is the system's.
///
/// Blocks are powers of two in size. A freed block is used again, in the simulation that made it. Blocks that have not
/// been freed at the end of a simulation stay allocated, as results may point to them.
///
/// If schedules are explored, a freed block is poisoned and put into quarantine: an atomic access to it fails the
/// execution. The block is used again when 65,536 other blocks, or other blocks of 64 MiB in all, have been freed
/// since.
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

/// The byte that fills a freed block in quarantine: a word of these bytes is no address of the process, and an absurd
/// length.
const POISON: u8 = 0xd5;
/// The largest number of bytes of a block that are poisoned: a block may be large, and never have been touched.
const POISONED: usize = 1 << 20;
/// The largest number of blocks in quarantine.
const MOST_BLOCKS: usize = 1 << 16;
/// The largest number of bytes in quarantine.
const MOST_BYTES: usize = 1 << 26;

/// A freed block in quarantine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Freed {
    pub(crate) begin: usize,
    /// The size that the program asked for. The bytes above, up to the end of the size class, belong to no block.
    pub(crate) size: usize,
    class: usize,
    /// The step that freed the block; None if no thread of the simulation freed it.
    pub(crate) by: Option<Step>,
}

/// The thread that runs, its latest step, and the time of that step in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) thread: ThreadId,
    pub(crate) place: &'static Location<'static>,
    pub(crate) at: u64,
}

/// Freed blocks that are not used again yet.
#[derive(Default)]
struct Quarantine {
    /// The blocks, by their addresses.
    blocks: BTreeMap<usize, Freed>,
    /// The addresses of the blocks, in the order in which the blocks were freed.
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

    /// Takes out the oldest block if quarantine is full: that block may be used again.
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
    /// The first freed block of each size class, or 0. The first word of a freed block is the address of the next.
    free: [Cell<usize>; CLASSES],
    /// True if freed blocks go to quarantine first.
    keeps: Cell<bool>,
    /// True while the machine allocates for itself.
    outside: Cell<bool>,
    step: Cell<Option<Step>>,
    /// Quarantine, without a destructor: blocks in quarantine at the end of the thread stay there.
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

/// Prepares the arena for a machine with this region, which begins on this thread. With `keeps`, freed blocks go to
/// quarantine.
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

/// Calls `f`, whose allocations come from the system's allocator. So the machine's own records take no memory of the
/// program, and do not move the program's blocks.
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

/// Records that the running thread has made this step, or goes on after it. Blocks freed from now on count as freed
/// after this step.
pub(crate) fn step(step: Step) {
    HERE.with(|here| here.step.set(Some(step)));
}

/// Returns whether freed blocks go to quarantine. If a machine runs, true means that schedules are explored.
#[inline]
pub(crate) fn keeps() -> bool {
    HERE.with(|here| here.keeps.get())
}

/// Returns the freed block in which this address lies.
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
    /// Puts a block into the list of free blocks of its class.
    ///
    /// # Safety
    ///
    /// `block` is a block of this class, and its owner has given it up.
    unsafe fn put(&self, block: usize, class: usize) {
        let Some(list) = self.free.get(class) else { return };
        // SAFETY: `block` is at least a word long and aligned to a word, and no other code uses it, by the contract of
        // this function.
        unsafe { ptr::with_exposed_provenance_mut::<usize>(block).write(list.get()) };
        list.set(block);
    }

    /// Poisons a freed block, and puts the block into quarantine.
    ///
    /// # Safety
    ///
    /// `block` is a block of this layout, and its owner has given it up.
    unsafe fn keep(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the block has `layout.size()` bytes, and no other code uses them, by the contract of this function.
        unsafe { block.write_bytes(POISON, layout.size().min(POISONED)) };
        let begin = block.expose_provenance();
        let freed = Freed { begin, size: layout.size(), class: class(layout), by: self.step.get() };
        outside(|| {
            let mut quarantine = self.quarantine.borrow_mut();
            quarantine.put(freed);
            while let Some(block) = quarantine.take() {
                // SAFETY: `block` was put into quarantine by this function, with its class, and has just left
                // quarantine.
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
// - a block is as large as its class, which is at least the size and the alignment of its layout, and lies at a
//   multiple of that; blocks do not overlap, as each is either cut from the unused rest or taken from the list of its
//   class;
// - the state belongs to this thread, no code of the allocator unwinds, and quarantine allocates from the system's
//   allocator;
// - blocks that the arena did not make go to the system's allocator.
unsafe impl GlobalAlloc for Arena {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !crate::machine::is_simulated() || HERE.with(|here| here.outside.get()) {
            // SAFETY: `layout` meets the contract of `GlobalAlloc::alloc`, which the caller keeps.
            return unsafe { System.alloc(layout) };
        }
        let class = class(layout);
        HERE.with(|here| {
            let Some(list) = here.free.get(class) else { return ptr::null_mut() };
            let first = list.get();
            if first != 0 {
                // SAFETY: `first` is a freed block of this class, whose first word `put` has written.
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
            // SAFETY: the caller keeps the contract of `GlobalAlloc::dealloc`; the block is in no arena, so it came
            // from the system's allocator.
            return unsafe { System.dealloc(block, layout) };
        }
        HERE.with(|here| {
            let base = here.base.get();
            if !(base..base + ARENA_SIZE).contains(&block.addr()) {
                return; // a block of another machine, perhaps of another thread
            }
            if here.keeps.get() {
                // SAFETY: the block was allocated with this layout, and its owner gives it up, by the contract of
                // `GlobalAlloc::dealloc`.
                unsafe { here.keep(block, layout) };
            } else {
                // SAFETY: the block was allocated with a layout of this class, and its owner gives it up, by the
                // contract of `GlobalAlloc::dealloc`.
                unsafe { here.put(block.expose_provenance(), class(layout)) };
            }
        });
    }
}
