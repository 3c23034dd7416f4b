//! Delays at random edges of the control flow. `run` beside this file builds the tests so that each edge of this
//! project's code, and of the generic code that it instantiates, calls [`__sanitizer_cov_trace_pc`], and links this.
//!
//! In a stress test, another thread rarely comes between two steps that are a few instructions apart: the scheduler would
//! have to take the processor away just there. Here each thread sleeps at random edges. Both the number of edges between
//! two sleeps and the length of a sleep vary over many orders of magnitude. So in each run other threads come between any
//! two steps a few times.
//!
//! This file is compiled on its own, without the calls at edges: the function would call itself.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The scales of the delays, of which a seed chooses one. In `(a, b, c)`, the number of edges between two delays is at
/// least 2^a and less than 2^b, and a delay takes less than 2^c us.
const SCALES: [(u32, u32, u32); 4] = [(4, 20, 14), (1, 22, 12), (1, 18, 9), (6, 24, 15)];

thread_local! {
    /// The number of edges to the next delay.
    static EDGES: Cell<u64> = const { Cell::new(0) };
    /// The state of the thread's random numbers. 0: no number has been drawn yet.
    static RANDOM: Cell<u64> = const { Cell::new(0) };
}

/// Called at each edge.
#[unsafe(no_mangle)]
pub extern "C" fn __sanitizer_cov_trace_pc() {
    match EDGES.get() {
        0 => delay(),
        edges => EDGES.set(edges - 1),
    }
}

#[cold]
#[inline(never)]
fn delay() {
    static THREADS: AtomicU64 = AtomicU64::new(0);
    let Some(seed) = seed() else { return EDGES.set(u64::MAX) };
    let (shortest, longest, slowest) = SCALES[seed as usize % SCALES.len()];
    if RANDOM.get() == 0 {
        let thread = THREADS.fetch_add(1, Relaxed) + 1;
        RANDOM.set((seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ thread.wrapping_mul(0xd1b5_4a32_d192_ed03) | 1);
    } else {
        sleep(of_any_magnitude(0, slowest));
    }
    EDGES.set(of_any_magnitude(shortest, longest));
}

/// Draws a number of at least 2^`from` and less than 2^`to`. Each order of magnitude is equally likely.
fn of_any_magnitude(from: u32, to: u32) -> u64 {
    let power = from + random() % (to - from);
    (1 << power) + u64::from(random()) % (1 << power)
}

/// xorshift64*
fn random() -> u32 {
    let mut x = RANDOM.get();
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    RANDOM.set(x);
    (x.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as u32
}

// ---- the C library: this object is linked by itself, and so cannot rely on `std` ------------------------------------

#[repr(C)]
struct Timespec {
    seconds: i64,
    nanoseconds: i64,
}

unsafe extern "C" {
    fn getenv(name: *const u8) -> *const u8;
    fn syscall(number: i64, ...) -> i64;
    fn sched_yield() -> i32;
    fn __errno_location() -> *mut i32;
}

/// Returns the seed that `SUDOG_DELAYS` sets, if any.
fn seed() -> Option<u64> {
    /// The seed + 1. 0: the variable has not been read yet. `u64::MAX`: there is no seed.
    static SEED: AtomicU64 = AtomicU64::new(0);
    if SEED.load(Relaxed) == 0 {
        // SAFETY: the name is a C string, and no thread changes the environment of these tests.
        let mut digit = unsafe { getenv(c"SUDOG_DELAYS".as_ptr().cast()) };
        let mut seed = if digit.is_null() { u64::MAX } else { 1 };
        // SAFETY: `digit` is not null, and not past the end of the string, which is 0 and no digit.
        while !digit.is_null() && unsafe { (*digit).is_ascii_digit() } {
            // SAFETY: `digit` points to a digit, so the end of the string is beyond this byte.
            unsafe {
                seed = (seed - 1).wrapping_mul(10).wrapping_add(u64::from(*digit - b'0')) % (1 << 32) + 1;
                digit = digit.add(1);
            }
        }
        SEED.store(seed, Relaxed);
    }
    Some(SEED.load(Relaxed)).filter(|&seed| seed != u64::MAX).map(|seed| seed - 1)
}

/// Sleeps by the system call itself: the C library's `nanosleep` is a cancellation point, and an edge is none.
fn sleep(us: u64) {
    /// The number of the call, on x86-64.
    const NANOSLEEP: i64 = 35;
    let time = Timespec { seconds: 0, nanoseconds: us as i64 * 1000 };
    // SAFETY: the time is below a second, and no caller asks for the rest; the error number is the thread's own, and the
    // code around the edge may be about to read it.
    unsafe {
        let error = *__errno_location();
        if us < 8 {
            sched_yield();
        } else {
            syscall(NANOSLEEP, &raw const time, std::ptr::null_mut::<Timespec>());
        }
        *__errno_location() = error;
    }
}
