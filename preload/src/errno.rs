//! `errno`, which glibc's functions of mutexes, conditions and readers-writer locks leave as it is.

/// Calls `f`, and restores `errno`. This frame has no destructor: a cancellation may unwind the frame.
#[inline(always)]
pub fn keep<T>(f: impl FnOnce() -> T) -> T {
    // SAFETY: `__errno_location` has no precondition. The pointer is to the calling thread's `errno`, which is there for as long
    // as the thread.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        let result = f();
        *errno = before;
        result
    }
}
