//! The time for which each contender has the lock: the measure of fairness when critical sections differ.
//!
//! If all contenders come equally often, the contender with the longest critical section has most of the lock. A
//! contender's lock opportunity is the time in which the contender could have been inside: the time in which the
//! contender was inside, and the time in which no contender was inside.
//!
//! Source: Patel et al., "Avoiding Scheduler Subversion using Scheduler-Cooperative Locks", EuroSys 2020.

use serde::Serialize;

use super::AdmissionHistory;
use crate::measure::metrics::jain;

/// The fairness by the time of holding.
#[derive(Clone, Copy, PartialEq, Serialize, Debug)]
pub struct Holds {
    /// Jain's index over the times that each contender was inside.
    pub hold_jain: f64,
    /// Jain's index over the contenders' lock opportunity times. `None` if several contenders may be inside at once.
    pub lot_jain: Option<f64>,
}

/// Returns both indices.
pub fn holds(history: &AdmissionHistory) -> Holds {
    let mut usage = vec![0; history.contenders];
    for admission in &history.admissions {
        usage[admission.contender as usize] += admission.release.saturating_sub(admission.entry);
    }
    let hold_jain = jain(&usage);
    let lot_jain = history.in_order.then(|| {
        let free = history.elapsed.saturating_sub(usage.iter().sum());
        jain(&usage.iter().map(|held| held + free).collect::<Vec<_>>())
    });
    Holds { hold_jain, lot_jain }
}

#[cfg(test)]
mod tests {
    use super::super::tests::history;
    use super::*;

    #[test]
    fn as_often_and_longer() {
        let mut history = history(2, &[(0, 0, 10, 20), (1, 0, 20, 50), (0, 21, 60, 70), (1, 51, 70, 100)]);
        // Held for 20 and 60, free for 20: opportunities of 40 and 80.
        let expected =
            Holds { hold_jain: 80_f64.powi(2) / (2.0 * 4000.0), lot_jain: Some(120_f64.powi(2) / (2.0 * 8000.0)) };
        assert_eq!(holds(&history), expected);
        history.in_order = false;
        assert_eq!(holds(&history), Holds { lot_jain: None, ..expected });
    }
}
