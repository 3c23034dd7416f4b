//! Linux's futex: sleep while a 32-bit word holds a value, and wake the threads that sleep on it.
//!
//! For locks that must not use the semaphore table. A wait blocks the operating-system thread, even if a goroutine runs
//! on that thread.

use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

/// The time that `SYS_futex` reads: two longs, or two 64-bit words on each ABI of x86-64. The C library's `timespec`
/// has wider fields on some 32-bit systems.
#[repr(C)]
struct Timeout {
    seconds: Word,
    nanoseconds: Word,
}

#[cfg(target_arch = "x86_64")]
type Word = i64;
#[cfg(not(target_arch = "x86_64"))]
type Word = libc::c_long;

impl From<Duration> for Timeout {
    /// Converts a time. A longer time than the kernel can represent becomes the longest time that the kernel can
    /// represent.
    fn from(time: Duration) -> Self {
        Self { seconds: time.as_secs().try_into().unwrap_or(Word::MAX), nanoseconds: time.subsec_nanos() as Word }
    }
}

/// Sleeps while `*word == expected`, until a [`wake`] or until `deadline`; may return spuriously.
///
/// Returns false if the deadline has passed, true in every other case; the caller must check the word again.
pub fn wait(word: &AtomicU32, expected: u32, deadline: Option<Instant>) -> bool {
    let left = match deadline.map(|d| d.checked_duration_since(Instant::now())) {
        Some(None) => return false,
        Some(Some(left)) => Some(Timeout::from(left)),
        None => None,
    };
    let timeout = left.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY:
    // - `word` is a live, aligned u32 for the whole call, by its reference;
    // - `timeout` is null or points to a `Timeout` that outlives the call.
    let failed = unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG, expected, timeout)
    } < 0;
    !(failed && std::io::Error::last_os_error().raw_os_error() == Some(libc::ETIMEDOUT))
}

/// Wakes up to `n` threads that sleep in [`wait`] on the word at this address.
///
/// The address is a key: the word is not read, and may have been freed or reused. A thread that sleeps on another word
/// at this address gets a spurious wake-up, which [`wait`] allows.
#[allow(clippy::not_unsafe_ptr_arg_deref)] // a key, not dereferenced
pub fn wake(word: *const AtomicU32, n: u32) {
    let n = i32::try_from(n).unwrap_or(i32::MAX);
    // SAFETY: FUTEX_WAKE on a private futex uses the address as a key only; an address that is not mapped gives EFAULT.
    unsafe { libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, n) };
}
