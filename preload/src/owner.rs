//! Owners: a number for each thread.
//!
//! `pthread_self` of a thread that has ended is given to a later thread, which must not own what the ended thread has
//! locked. glibc's number of a thread (`gettid`) changes in a child of `fork`, whose thread keeps the locks that it holds.

use std::cell::Cell;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

/// Returns the number of the calling thread, which is not 0. A child of `fork` keeps the number of the thread that forked.
#[inline(always)]
pub fn me() -> usize {
    // SAFETY: the cell is alive for as long as the thread, and only the calling thread uses the cell.
    let number = unsafe { &*number() };
    match number.get() {
        0 => first(number),
        known => known,
    }
}

/// Gives the calling thread the next number.
#[cold]
fn first(number: &Cell<usize>) -> usize {
    static LAST: AtomicUsize = AtomicUsize::new(0);
    number.set(LAST.fetch_add(1, Relaxed) + 1);
    number.get()
}

// The cell of `number`. The compiler's thread-locals call `__tls_get_addr` in a library, which may allocate after the
// program has loaded further libraries, and the program's allocator may lock a mutex. So the cell is of the model
// "initial-exec", whose place in a thread's memory is known when the program starts.
#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(
    ".pushsection .tbss.sudog_preload_number, \"awT\", @nobits",
    ".globl sudog_preload_number",
    ".hidden sudog_preload_number",
    ".type sudog_preload_number, @object",
    ".size sudog_preload_number, 8",
    ".balign 8",
    "sudog_preload_number:",
    ".zero 8",
    ".popsection",
);

/// Returns the calling thread's cell, which has 0 at first.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn number() -> *const Cell<usize> {
    let number: *const Cell<usize>;
    // SAFETY: the word at `fs:0` is the address of the thread's memory, by the ABI, and the word in the global offset table
    // is the place of `sudog_preload_number` there. Nothing is written, and the address is the same during a thread.
    unsafe {
        std::arch::asm!(
            "mov {number}, qword ptr fs:0",
            "add {number}, qword ptr [rip + sudog_preload_number@GOTTPOFF]",
            number = out(reg) number,
            options(pure, nomem, nostack),
        );
    }
    number
}

/// Returns the calling thread's cell, which has 0 at first. Other processors' thread-locals (TLS descriptors) allocate
/// nothing in a library that is loaded at the start.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn number() -> *const Cell<usize> {
    std::thread_local! { static NUMBER: Cell<usize> = const { Cell::new(0) }; }
    NUMBER.with(std::ptr::from_ref)
}
