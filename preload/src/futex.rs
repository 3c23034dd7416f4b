//! Linux's futex, without a change of `errno`: glibc's functions, which this library replaces, do not change it.

use std::sync::atomic::AtomicU32;
use std::time::Instant;

use sudog_runtime::futex;

use crate::errno;

/// Sleeps as [`futex::wait`] does.
pub fn wait(word: &AtomicU32, expected: u32, deadline: Option<Instant>) -> bool {
    errno::keep(|| futex::wait(word, expected, deadline))
}

/// Wakes as [`futex::wake`] does.
pub fn wake(word: *const AtomicU32, n: u32) {
    errno::keep(|| futex::wake(word, n));
}
