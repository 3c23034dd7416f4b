//! Linux's futex.

use std::panic::Location;
use std::time::Instant;

use crate::atomic::AtomicU32;
use crate::machine;
use crate::time::ns_of;

/// Sleeps while `*word == expected`, until a [`wake`] or until `deadline`; may return spuriously.
///
/// Returns false if the deadline has passed.
#[track_caller]
pub fn wait(word: &AtomicU32, expected: u32, deadline: Option<Instant>) -> bool {
    let raw = word.as_ptr();
    // SAFETY: `raw` points to `word`, which is live; no other thread of the process writes to `word` inside a
    // simulation.
    let unchanged = || unsafe { raw.read_volatile() } == expected;
    machine::wait(raw.addr(), unchanged, deadline.map(ns_of), Location::caller())
}

/// Wakes up to `n` threads that sleep in [`wait`] on the word at this address. The address is only a key: the word is
/// not accessed.
pub fn wake(word: *const AtomicU32, n: u32) {
    if machine::is_simulated() {
        machine::wake(word.addr(), n);
    }
}
