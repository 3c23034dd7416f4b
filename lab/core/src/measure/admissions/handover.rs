//! The time from a contender to the next: how long the lock is free while a contender wants the lock.
//!
//! ```text
//!   A   |== inside ==|release                     the lock is free from the beginning of A's release to B's entry
//!   B        |request ........... |== inside ==|  B waits from its request to its entry
//!                     <- dead  -->                and where both are so, time is dead
//! ```
//!
//! Dead time includes the instructions of release and entry, and the reading of the clock: with a single contender,
//! which never waits for another, dead time consists of these only. So compare dead time with the dead time of a single
//! contender.

use serde::Serialize;

use super::AdmissionHistory;
use crate::measure::metrics::quantile;

/// The use of the time, by the order of admissions.
#[derive(Clone, Copy, PartialEq, Serialize, Debug)]
pub struct Handover {
    /// The part of the time in which the lock was free and a contender wanted it.
    pub dead_time: f64,
    /// The median handover. A handover is the time from the beginning of a release to the next entry, of any contender,
    /// if another contender had made a request before that release. This field and the next two are `None` if there
    /// was no handover.
    pub handover_p50_ns: Option<u64>,
    /// The handover that 99 in 100 did not exceed.
    pub handover_p99_ns: Option<u64>,
    /// The longest handover.
    pub handover_max_ns: Option<u64>,
    /// The number of releases that began, by the clock, after the next entry. If there are any, the processors do not
    /// agree about the time, and results from times are only as reliable as their agreement.
    pub clock_conflicts: u64,
}

/// Returns the handovers of a history, or `None` if no time passed.
pub fn handover(history: &AdmissionHistory) -> Option<Handover> {
    let AdmissionHistory { admissions, elapsed, .. } = history;
    // The earliest request among the waits that are still to be admitted, or never will be.
    let mut earliest = history.pending.iter().map(|pending| pending.request).min().unwrap_or(u64::MAX);
    let (mut dead, mut handovers, mut clock_conflicts) = (0, Vec::new(), 0);
    let mut next_entry = *elapsed;
    for (n, admission) in admissions.iter().enumerate().rev() {
        dead += next_entry.saturating_sub(earliest.max(admission.release));
        let is_last = n + 1 == admissions.len();
        if !is_last && earliest < admission.release {
            handovers.push(next_entry.saturating_sub(admission.release));
        }
        clock_conflicts += u64::from(admission.release > next_entry);
        next_entry = admission.entry;
        earliest = earliest.min(admission.request);
    }
    dead += next_entry.saturating_sub(earliest);
    handovers.sort_unstable();
    let dead_time = (*elapsed > 0).then(|| dead as f64 / *elapsed as f64)?;
    Some(Handover {
        dead_time,
        handover_p50_ns: quantile(&handovers, 500),
        handover_p99_ns: quantile(&handovers, 990),
        handover_max_ns: handovers.last().copied(),
        clock_conflicts,
    })
}

#[cfg(test)]
mod tests {
    use super::super::Pending;
    use super::super::tests::history;
    use super::*;

    #[test]
    fn dead_is_what_is_free_and_wanted() {
        let turns = [
            (0, 10, 12, 20), // 2 dead: from the request of 0 to the entry of 0
            (1, 15, 23, 30), // 3 dead, as 1 has waited since 15: a handover of 3
            (0, 40, 41, 50), // free from 30, but wanted from 40 only: 1 dead, and no handover
            (1, 45, 57, 60), // 7 dead: a handover of 7
        ];
        let mut history = history(3, &turns);
        history.elapsed = 100;
        let expected = Handover {
            dead_time: 0.13,
            handover_p50_ns: Some(3),
            handover_p99_ns: Some(7),
            handover_max_ns: Some(7),
            clock_conflicts: 0,
        };
        assert_eq!(handover(&history), Some(expected));
        // A contender asks at 55 and does not get in: from 60 on all time is dead, in addition to the dead time before.
        history.pending.push(Pending { contender: 2, request: 55 });
        assert_eq!(handover(&history).unwrap().dead_time, 0.53);
        // Another request, at 35, when the lock is free: dead from 35 to 41.
        history.pending.push(Pending { contender: 2, request: 35 });
        let longer = handover(&history).unwrap();
        assert_eq!((longer.dead_time, longer.handover_max_ns), (0.58, Some(7)));
    }

    #[test]
    fn alone_there_is_no_handover() {
        let alone = handover(&history(1, &[(0, 0, 1, 5), (0, 7, 8, 10)])).unwrap();
        assert_eq!((alone.dead_time, alone.handover_max_ns), (0.2, None));
    }

    #[test]
    fn processors_that_do_not_agree_are_noticed() {
        let conflict = handover(&history(2, &[(0, 0, 1, 9), (1, 2, 8, 20)])).unwrap();
        assert_eq!((conflict.clock_conflicts, conflict.handover_max_ns), (1, Some(0)));
    }

    #[test]
    fn nobody_came() {
        assert_eq!(handover(&history(1, &[])), None);
        let mut nobody = history(1, &[]);
        nobody.elapsed = 10;
        assert_eq!(handover(&nobody).unwrap().dead_time, 0.0);
        nobody.pending.push(Pending { contender: 0, request: 4 });
        assert_eq!(handover(&nobody).unwrap().dead_time, 0.6);
    }
}
