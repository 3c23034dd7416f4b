//! An allocator that counts the allocations of each thread separately, so that allocations of other threads do not
//! show; and, for a test that has its process to itself, the bytes of all threads.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicIsize, Ordering::Relaxed};

struct Counting;

thread_local! {
    // These cells are const-initialised and have no destructor, so the first use allocates nothing and registers
    // nothing.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static LIVE: Cell<usize> = const { Cell::new(0) };
}

/// True if bytes are counted. Off by default, because a counter that all threads write to takes time.
static COUNTS_BYTES: AtomicBool = AtomicBool::new(false);
static BYTES: AtomicIsize = AtomicIsize::new(0);

fn count(bytes: usize) {
    ALLOCATIONS.set(ALLOCATIONS.get() + 1);
    LIVE.set(LIVE.get().wrapping_add(bytes));
    add_bytes(bytes as isize);
}

fn freed(bytes: usize) {
    LIVE.set(LIVE.get().wrapping_sub(bytes));
    add_bytes(-(bytes as isize));
}

fn add_bytes(bytes: isize) {
    if COUNTS_BYTES.load(Relaxed) {
        BYTES.fetch_add(bytes, Relaxed);
    }
}

/// The number of bytes that all threads have allocated since the first call, less the bytes freed since then.
pub fn bytes() -> isize {
    COUNTS_BYTES.store(true, Relaxed);
    BYTES.load(Relaxed)
}

// SAFETY: each method passes its call on to `System`, which keeps the contract of `GlobalAlloc`. Counting does not
// change the results.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller keeps the contract of `alloc`, which is the same for `System`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller keeps the contract of `alloc_zeroed`, which is the same for `System`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size);
        freed(layout.size());
        // SAFETY: the caller keeps the contract of `realloc`, and `at` came from `System`.
        unsafe { System.realloc(at, layout, size) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        freed(layout.size());
        // SAFETY: the caller keeps the contract of `dealloc`, and `at` came from `System`.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Runs `f`, and returns the number of allocations that `f` made on this thread, and the result of `f`.
pub fn allocations<T>(f: impl FnOnce() -> T) -> (u64, T) {
    let before = ALLOCATIONS.get();
    let result = f();
    (ALLOCATIONS.get() - before, result)
}

/// The number of bytes that this thread has allocated, less the bytes that this thread has freed, whichever thread
/// allocated those. Modulo 2^64: only a difference of two results has a meaning.
pub fn live_bytes() -> usize {
    LIVE.get()
}

/// Runs `f`, which must not allocate on this thread.
#[track_caller]
pub fn without_allocating<T>(f: impl FnOnce() -> T) -> T {
    let (allocations, result) = allocations(f);
    assert_eq!(allocations, 0, "allocations where there must be none");
    result
}
