//! Spinning before sleeping: Go's rule.
//!
//! Source: `sync_runtime_canSpin` and `sync_runtime_doSpin` of Go's `runtime/proc.go`. Go spins for at most 4 rounds of
//! 30 pauses, and only where spinning can help: on more than one processor, while another processor runs goroutines and
//! the own run queue is empty. The last two are facts about a scheduler: a goroutine knows all three, a thread only the
//! first. Threads have their own way of waiting, `policy::Threads` of `sudog-sync`: see `docs/performance.md`.
//!
//! Different from Go: a goroutine spins for one round even if its worker has others to run. In Go, a goroutine that is
//! readied moves to the processor of its waker; goroutines that contend for one mutex soon share one processor, run in
//! turn, and never contend. Here they stay on their workers: to sleep, and to be readied by another worker, costs more
//! than a short critical section. Thirty pauses take less than a microsecond.

use crate::goroutine;
use crate::shim::{num_cpus, pause};

/// Go's `active_spin`: the largest number of rounds.
pub const ROUNDS: u32 = 4;

/// Go's `active_spin_cnt`: the number of pause instructions of a round.
pub const PAUSES: u32 = 30;

/// True if round number `iter` (from 0) is worth spinning: `iter` is below `rounds`, and the owner of the lock can run
/// meanwhile: on another processor; for a goroutine, on another worker, while its own worker has nothing else to run. A
/// goroutine's first round is worth it whatever its worker has to run.
#[inline]
#[must_use]
pub fn can_spin(iter: u32, rounds: u32) -> bool {
    iter < rounds && num_cpus() > 1 && goroutine::may_spin(iter)
}

/// One round: `pauses` pause instructions.
#[inline]
pub fn do_spin(pauses: u32) {
    // For a model, one scheduling point is as good as thirty.
    let pauses = if cfg!(sudog_loom) { pauses.min(1) } else { pauses };
    for _ in 0..pauses {
        pause();
    }
}
