//! What a writer expects, from its thread's recent writes: does the mutex have other readers or writers? Only speed
//! depends on these hints.

use sudog_runtime::G;

use crate::thread_hints::{HINTS, MODEL};

/// Advice for a writer that is about to lock a readers-writer mutex.
pub(super) enum NextWrite {
    /// The writer is likely to meet neither readers nor writers.
    Alone,
    /// The writer is likely to meet readers or writers, and locks as a thread does.
    InTurn,
    /// The writer is likely to meet readers or writers, and locks as a goroutine does.
    LooksFirst,
}

/// The number of writes that must meet no other thread, after a write that has met another thread, before a write is
/// expected to meet none.
const WRITES_IN_TURN: u32 = 1024;
/// The flag in `writes_in_turn`. Set if a goroutine made the first write that met others since `writes_in_turn` was 0.
/// With the flag, a write need not check whether its caller is a goroutine.
const LOOKS_FIRST: u32 = 1 << 31;

#[inline(always)]
pub(super) fn next_write() -> NextWrite {
    if MODEL {
        return NextWrite::Alone;
    }
    match HINTS.with(|hint| hint.writes_in_turn.get()) {
        0 => NextWrite::Alone,
        left if left & LOOKS_FIRST == 0 => NextWrite::InTurn,
        _ => NextWrite::LooksFirst,
    }
}

/// Notes whether a writer has met readers or writers. `met_others` says whether the writer has really met others, not
/// whether the writer expected to.
#[inline(always)]
pub(super) fn note_write(met_others: bool) {
    if !MODEL {
        HINTS.with(|hint| {
            let old = hint.writes_in_turn.get();
            hint.writes_in_turn.set(if met_others || hint.contended.get() {
                let flag = if old != 0 { old & LOOKS_FIRST } else { flag_of_caller() };
                WRITES_IN_TURN | flag
            } else if old & !LOOKS_FIRST > 1 {
                old - 1
            } else {
                0
            });
        });
    }
}

#[cold]
fn flag_of_caller() -> u32 {
    if G::is_goroutine() { LOOKS_FIRST } else { 0 }
}

#[cfg(all(test, not(sudog_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_write_that_meets_others_makes_the_next_ones_wait_in_turn() {
        let next = || match next_write() {
            NextWrite::Alone => "alone",
            NextWrite::InTurn => "in turn",
            NextWrite::LooksFirst => "looks first",
        };
        let counts_down = |hint: &str| {
            note_write(true);
            for _ in 0..WRITES_IN_TURN {
                assert_eq!(next(), hint);
                note_write(false);
            }
            assert_eq!(next(), "alone");
            note_write(false);
            assert_eq!(next(), "alone");
        };
        counts_down("in turn");
        sudog_runtime::goroutine::run(move || counts_down("looks first"));
    }
}
