//! Fairness in windows: how evenly the admissions fell on the contenders in each stretch of the order. A whole run can
//! be even while no part of the run is even.

use serde::Serialize;

use super::AdmissionHistory;
use crate::measure::metrics::{median, min_max};

/// The fairness in disjoint windows of equally many admissions. The admissions after the last whole window are in no
/// window.
#[derive(Clone, Copy, PartialEq, Serialize, Debug)]
pub struct Windows {
    /// The number of admissions in each window.
    pub admissions: usize,
    pub windows: usize,
    /// The smallest share over the largest, in the window where this ratio is lowest.
    pub min_max_worst: f64,
    /// The median over the windows of the smallest share over the largest.
    pub min_max_median: f64,
}

/// The number of rounds of all contenders in a window: so many that chance alone leaves the shares nearly even.
const ROUNDS: usize = 64;

/// Computes the fairness in windows of 64 admissions for each contender. Returns `None` if there is no whole window.
pub fn windows(history: &AdmissionHistory) -> Option<Windows> {
    windows_of(history, ROUNDS * history.contenders)
}

fn windows_of(history: &AdmissionHistory, admissions: usize) -> Option<Windows> {
    let mut shares = vec![0; history.contenders];
    let mut min_maxes = Vec::new();
    for window in history.admissions.chunks_exact(admissions) {
        shares.fill(0);
        window.iter().for_each(|admission| shares[admission.contender as usize] += 1);
        min_maxes.push(min_max(&shares));
    }
    Some(Windows {
        admissions,
        windows: min_maxes.len(),
        min_max_worst: min_maxes.iter().copied().min_by(f64::total_cmp)?,
        min_max_median: median(min_maxes),
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::order;
    use super::*;

    #[test]
    fn even_as_a_whole_and_in_no_part() {
        let history = order(2, &[0, 0, 0, 0, 1, 1, 1, 1, 0, 1, 0, 1, 0]);
        let expected = Windows { admissions: 4, windows: 3, min_max_worst: 0.0, min_max_median: 0.0 };
        assert_eq!(windows_of(&history, 4), Some(expected));
        let whole = windows_of(&history, 12).unwrap();
        assert_eq!((whole.windows, whole.min_max_worst), (1, 1.0));
    }

    #[test]
    fn the_worst_is_not_the_middle() {
        let uneven = windows_of(&order(2, &[0, 1, 0, 0, 1, 0]), 2).unwrap();
        assert_eq!((uneven.min_max_worst, uneven.min_max_median), (0.0, 1.0));
    }

    #[test]
    fn a_window_of_its_own_accord() {
        assert_eq!(windows(&order(2, &[0; 127])), None);
        assert_eq!(windows(&order(2, &[0; 128])).unwrap().admissions, 128);
    }
}
