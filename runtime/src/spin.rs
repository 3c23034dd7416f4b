//! Spinning before sleeping: Go's rule.
//!
//! Source: `sync_runtime_canSpin` and `sync_runtime_doSpin` of Go's `runtime/proc.go`. Go spins for at most 4 rounds
//! of 30 pauses, and only where spinning can help: on more than one processor, while another worker is neither idle nor
//! searching, and while the own run queue is empty. Only a scheduler knows the last two conditions: a goroutine checks
//! all three, a thread only the first. Threads are served better by another strategy, `policy::Threads` of
//! `sudog-sync`: see `docs/journal/mutexbench.md`.
//!
//! Unlike in Go, a goroutine spins for one round even if its worker has other goroutines to run. In Go, a readied
//! goroutine moves to the processor of the goroutine that readies it; contenders for a mutex soon run on the same
//! processor, in turn, and never meet. Here the goroutines stay on their workers, where a sleep and a wake-up by
//! another worker cost more than a short critical section. Thirty pauses are less than a microsecond.

use crate::shim::{num_cpus, pause};
use crate::{G, goroutine};

/// Go's `active_spin`: the largest number of rounds.
pub const ROUNDS: u32 = 4;

/// Go's `active_spin_cnt`: the number of pause instructions of a round.
pub const PAUSES: u32 = 30;

/// Returns whether round number `iter` (from 0) of spinning can help: `iter` is below `rounds`, and there is another
/// processor. For a goroutine also: another worker is running (neither asleep nor searching for work), and the caller's
/// worker has no other goroutine to run; in the first round the last condition does not matter.
#[inline]
#[must_use]
pub fn can_spin(iter: u32, rounds: u32) -> bool {
    iter < rounds && num_cpus() > 1 && goroutine::may_spin(iter)
}

/// Returns whether a processor may be idle: the caller is a thread, or a worker of the caller's scheduler sleeps. A
/// hint.
#[must_use]
pub fn is_processor_idle() -> bool {
    !G::is_goroutine() || goroutine::any_worker_sleeps()
}

/// Spins for a round: `pauses` pause instructions.
#[inline]
pub fn do_spin(pauses: u32) {
    // In a model, a scheduling point is as good as thirty.
    let pauses = if cfg!(sudog_loom) { pauses.min(1) } else { pauses };
    for _ in 0..pauses {
        pause();
    }
}

#[cfg(all(test, unix, not(sudog_loom)))]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
    use std::time::{Duration, Instant};

    use super::{ROUNDS, can_spin};
    use crate::goroutine::{go, run, set_max_procs};
    use crate::shim::num_cpus;

    const STARTED: u32 = 1;
    const END: u32 = 2;

    static OTHER: AtomicU32 = AtomicU32::new(0);

    /// A worker that has run a goroutine and sleeps again is no reason for the other worker's goroutine to spin any
    /// more.
    #[test]
    fn no_goroutine_spins_while_the_other_worker_is_idle() {
        run(|| {
            set_max_procs(2);
            go(|| {
                OTHER.store(STARTED, SeqCst);
                while OTHER.load(SeqCst) != END {
                    std::thread::yield_now();
                }
            });
            // Wait without giving way, so that the other worker runs the goroutine above.
            wait_until(|| OTHER.load(SeqCst) == STARTED);
            assert_eq!(can_spin(0, ROUNDS), num_cpus() > 1);
            OTHER.store(END, SeqCst);
            wait_until(|| !can_spin(0, ROUNDS));
        });
    }

    /// Polls without giving way. Panics if the state does not come.
    fn wait_until(state: impl Fn() -> bool) {
        let watchdog = Instant::now() + Duration::from_secs(30);
        while !state() {
            assert!(Instant::now() < watchdog, "no progress");
            std::thread::yield_now();
        }
    }
}
