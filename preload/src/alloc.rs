//! The memory of the Rust code in this library: an allocator of its own, over `mmap`.
//!
//! The program's `malloc` may be jemalloc, or another allocator whose mutexes are pthread's, and so this library's. A
//! lock that allocated there would wait for itself.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;

use dlmalloc::Dlmalloc;

use crate::fork;
use crate::futex_lock::FutexLock;

/// The allocator, and the lock over it. A child of `fork` begins with an empty heap: see [`crate::fork`].
pub(crate) struct Heap {
    lock: FutexLock,
    heap: UnsafeCell<Dlmalloc>,
}

// SAFETY: `heap` is used under `lock` only.
unsafe impl Sync for Heap {}

#[global_allocator]
pub(crate) static HEAP: Heap = Heap { lock: FutexLock::new(), heap: UnsafeCell::new(Dlmalloc::new()) };

/// The size of the generation that follows each block.
const MARK: usize = size_of::<u32>();

impl Heap {
    /// Begins an empty heap, in a child of `fork` whose threads do not use the heap yet. The old heap is leaked.
    pub(crate) fn forget(&self) {
        // SAFETY: no thread of this process uses the heap: see `fork::begin`.
        unsafe { self.heap.get().write(Dlmalloc::new()) };
        self.lock.unlock();
    }

    /// Calls `f` with the heap and the generation of this process.
    fn with<T>(&self, f: impl FnOnce(&mut Dlmalloc, u32) -> T) -> T {
        let generation = fork::generation();
        self.lock.lock();
        // SAFETY: this thread holds `lock`, and `f`, a call of the allocator, does not call `with`.
        let result = f(unsafe { &mut *self.heap.get() }, generation);
        self.lock.unlock();
        result
    }
}

// SAFETY: dlmalloc is an allocator, and each call has its heap to itself, under the lock. The generation follows the
// layout's bytes, in a block that is larger by `MARK`.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let size = layout.size();
        // SAFETY: the size is not zero and the alignment is a power of two, by the contract of `alloc`. A block that is
        // not null has `size + MARK` bytes. A size is at most `isize::MAX`, so the sum does not overflow.
        self.with(|heap, generation| unsafe {
            let block = heap.malloc(size + MARK, layout.align());
            if !block.is_null() {
                block.add(size).cast::<u32>().write_unaligned(generation);
            }
            block
        })
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let size = layout.size();
        // SAFETY: `block` came from `alloc` with this layout, by the contract of `dealloc`, so the generation follows,
        // and the block is of this heap if the generation is this process's.
        self.with(|heap, generation| unsafe {
            if block.add(size).cast::<u32>().read_unaligned() == generation {
                heap.free(block, size + MARK, layout.align());
            }
        });
    }
}
