//! Spinning before a sleep. A sleep costs a thread two system calls, and delays the waiters behind that thread.
//!
//! Go does not spin for a readers-writer mutex. A goroutine here spins as for a mutex, and longer before a write.

use sudog_runtime::{G, spin};

/// The pauses before the second look of a reader that waits for a writer. The writer's next step needs the cache line
/// of the word that the reader looks at, so each look delays that step.
pub(super) const READER_PAUSES: u32 = 4;
/// The pauses before the second look of a writer that waits for readers, or for another writer.
pub(super) const WRITER_PAUSES: u32 = 1;

/// The number of looks of a thread, over some ten microseconds. The first looks are close together, as most critical
/// sections are short.
const THREAD_ROUNDS: u32 = if cfg!(sudog_loom) { 1 } else { 20 };

/// The pauses between two looks of a goroutine that is about to write: some microseconds. On a cache line that no other
/// processor takes away, a read or a short write takes a few nanoseconds; on a cache line that two processors contend
/// for, ten times as long.
const SELDOM_PAUSES: u32 = 10 * spin::PAUSES;

/// Spins while `must_wait` returns true, for a limited time. A thread pauses `first_pauses` times before its second
/// look, and about twice as often before each later look.
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

/// Calls `look` a few times, with long pauses in between, until `look` finds something. Does not wait if the worker of
/// the goroutine has others to run.
pub(super) fn look_seldom<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let mut round = 0;
    loop {
        if let found @ Some(_) = look() {
            return found;
        }
        // Begin with round 1: round 0 is allowed even if the worker has others to run.
        round += 1;
        if !spin::can_spin(round, spin::ROUNDS + 1) {
            return None;
        }
        spin::do_spin(SELDOM_PAUSES);
    }
}
