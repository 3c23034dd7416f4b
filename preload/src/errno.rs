//! `errno`, which pthread's functions must leave as it is.

/// Calls `f`, and restores `errno`.
#[inline]
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
