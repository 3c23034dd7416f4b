//! The memory of the Rust code in this library: an allocator of its own, over `mmap`.
//!
//! The program's `malloc` may be jemalloc, or another allocator whose mutexes are pthread's, and so this library's. A
//! lock that allocated there would wait for itself.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;

use dlmalloc::Dlmalloc;

use crate::spin::Spin;

/// The allocator, and the lock over it. [`crate::fork`] holds the lock during a fork.
pub(crate) struct Heap {
    pub(crate) lock: Spin,
    heap: UnsafeCell<Dlmalloc>,
}

// SAFETY: `heap` is used under `lock` only.
unsafe impl Sync for Heap {}

#[global_allocator]
pub(crate) static HEAP: Heap = Heap { lock: Spin::new(), heap: UnsafeCell::new(Dlmalloc::new()) };

impl Heap {
    fn with<T>(&self, f: impl FnOnce(&mut Dlmalloc) -> T) -> T {
        let held = crate::fork::is_forking();
        if !held {
            self.lock.lock();
        }
        // SAFETY: this thread holds `lock`, and `f`, a call of the allocator, does not call `with`.
        let result = f(unsafe { &mut *self.heap.get() });
        if !held {
            self.lock.unlock();
        }
        result
    }
}

// SAFETY: dlmalloc is an allocator, and each call has its heap to itself, under the lock.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the size is not zero and the alignment is a power of two, by the contract of `alloc`.
        self.with(|heap| unsafe { heap.malloc(layout.size(), layout.align()) })
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: `block` came from this heap with this layout, by the contract of `dealloc`.
        self.with(|heap| unsafe { heap.free(block, layout.size(), layout.align()) });
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the size is not zero and the alignment is a power of two, by the contract of `alloc_zeroed`.
        self.with(|heap| unsafe { heap.calloc(layout.size(), layout.align()) })
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: `block` came from this heap with this layout, and `size` is not zero, by the contract of `realloc`.
        self.with(|heap| unsafe { heap.realloc(block, layout.size(), layout.align(), size) })
    }
}
