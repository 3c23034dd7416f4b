//! Before a sleep, which costs a thread two system calls, and those behind it their time.
//!
//! Go does not spin for a readers-writer mutex; a goroutine here spins as for a mutex, and longer before it writes.

use sudog_runtime::{G, spin};

/// A reader waits for a writer, whose next step needs the cache line of the word that the reader looks at: each look delays
/// that step.
pub(super) const READER_PAUSES: u32 = 4;
/// A writer waits for readers, or for another writer.
pub(super) const WRITER_PAUSES: u32 = 1;

/// How often a thread looks: over some ten microseconds. The first looks are close together, as most critical sections
/// are short.
const THREAD_ROUNDS: u32 = if cfg!(sudog_loom) { 1 } else { 20 };

/// The pauses between two looks of a goroutine that is about to write: some microseconds. A read or a short write takes a
/// few nanoseconds on a cache line that no other processor takes away, and ten times that on one that two contend for.
const SELDOM_PAUSES: u32 = 10 * spin::PAUSES;

/// Spins for as long as it must wait, within reason. A thread pauses so many times before its second look, and twice as
/// often before each later one.
#[inline(always)]
pub(super) fn spin_while(first_pauses: u32, mut must_wait: impl FnMut() -> bool) {
    let goroutine = G::is_goroutine();
    let rounds = if goroutine { spin::ROUNDS } else { THREAD_ROUNDS };
    let mut round = 0;
    while spin::can_spin(round, rounds) && must_wait() {
        spin::do_spin(if goroutine { spin::PAUSES } else { spin::PAUSES.min(first_pauses << round.min(5)) });
        round += 1;
    }
}

/// Lets a goroutine look a few times, long pauses apart, and returns what it has found. Does not wait if the goroutine's
/// worker has others to run.
pub(super) fn look_seldom<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let mut round = 0;
    loop {
        if let found @ Some(_) = look() {
            return found;
        }
        // Round 0 is allowed even if the worker has others to run, so this begins with round 1.
        round += 1;
        if !spin::can_spin(round, spin::ROUNDS + 1) {
            return None;
        }
        spin::do_spin(SELDOM_PAUSES);
    }
}
