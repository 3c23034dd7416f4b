//! Conditions.

use sudog_sync::{Cond, Mutex};

use super::contestant::{Contestant, Role};
use super::round::{Round, Timed};

/// Returns the only contestant, with this many waiters.
pub fn contestants(waiters: usize) -> Vec<Contestant> {
    vec![Contestant::new("sudog", Role::Ours, move |round| barrier(round, waiters))]
}

/// Passes `n` times through a barrier of `waiters` + 1 threads: the last thread to arrive wakes the others.
pub fn barrier(round: &Round, waiters: usize) -> Timed {
    let (arrived, changed, n) = (Mutex::new(0), Cond::new(), round.n);
    round.each(waiters + 1, move |_| {
        // Each thread waits at the barrier, so no thread arrives twice at the same barrier: all threads arrive `n`
        // times, and no thread waits alone at the end.
        for _ in 0..n {
            let mut arrived = arrived.lock();
            *arrived += 1;
            if *arrived == waiters + 1 {
                *arrived = 0;
                changed.broadcast();
            } else {
                changed.wait(&mut arrived);
            }
        }
    })
}
