//! An allocator that counts the allocations of each thread separately, so that the other threads' do not show; and, for a
//! test that has its process for itself, the bytes of all threads.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicIsize, Ordering::Relaxed};

struct Counting;

thread_local! {
    // Const and without a destructor: the first use of it allocates nothing, and registers nothing.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static LIVE: Cell<usize> = const { Cell::new(0) };
}

/// Whether bytes are counted: a counter that all threads write to takes time.
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

/// How many more bytes are allocated, by all threads, than at the first call.
pub fn bytes() -> isize {
    COUNTS_BYTES.store(true, Relaxed);
    BYTES.load(Relaxed)
}

// SAFETY: each call goes to `System`, whose contract this allocator has; a count beside it changes nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's promises, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's promises, passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size);
        freed(layout.size());
        // SAFETY: the caller's promises, passed on.
        unsafe { System.realloc(at, layout, size) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        freed(layout.size());
        // SAFETY: the caller's promises, passed on.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Runs `f`, and says how often it has allocated on this thread.
pub fn allocations<T>(f: impl FnOnce() -> T) -> (u64, T) {
    let before = ALLOCATIONS.get();
    let result = f();
    (ALLOCATIONS.get() - before, result)
}

/// Bytes that this thread has allocated, less those that it has freed, whichever thread allocated them. Modulo 2^64: only a
/// difference of two results means something.
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
