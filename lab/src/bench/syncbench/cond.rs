//! Conditions.

use sudog_sync::{Cond, Mutex};

use super::contestant::{Contestant, Role};
use super::round::{Round, Timed};

/// The one contestant, with this many waiters.
pub fn contestants(waiters: usize) -> Vec<Contestant> {
    vec![Contestant::new("sudog", Role::Ours, move |round| barrier(round, waiters))]
}

/// A barrier of `waiters` and one more, n times: the last to come wakes the others.
pub fn barrier(round: &Round, waiters: usize) -> Timed {
    let (arrived, changed, n) = (Mutex::new(0), Cond::new(), round.n);
    round.each(waiters + 1, move |_| {
        // No thread comes twice to one barrier, as it waits there. So all come n times, and none is left alone.
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
