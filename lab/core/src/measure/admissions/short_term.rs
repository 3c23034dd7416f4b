//! Fairness over short times: which contenders circulate, and how soon a contender is back.
//!
//! | | first come, first served, all always present | the last two to come, by turns | a single contender keeps the lock |
//! |---|---|---|---|
//! | LWSS, of contenders | all | 2 | 1 |
//! | MTTR, in admissions | as many as there are | 2 | 1 |

use serde::Serialize;

use super::AdmissionHistory;
use crate::measure::metrics::median;

/// The fairness over short times. Source: Dice, "Measuring short-term fairness for locks"; the size of the window is
/// from Dice's "Malthusian Locks".
#[derive(Clone, Copy, PartialEq, Serialize, Debug)]
pub struct ShortTerm {
    /// The size of the lock's working set: the number of contenders in a window of admissions, on average over disjoint
    /// windows. `None` if there is no whole window.
    pub lwss: Option<f64>,
    /// The number of admissions in such a window: 1000; or four for each contender, if that is more, as LWSS cannot
    /// exceed the size of the window.
    pub lwss_window: usize,
    /// The median time to reacquire: the number of admissions from an admission to the same contender's next; 1 if the
    /// very next admission is of the same contender. `None` if no contender came twice.
    pub mttr: Option<f64>,
    /// The longest run of admissions of one contender.
    pub longest_run: u64,
}

/// Computes the fairness over short times.
pub fn short_term(history: &AdmissionHistory) -> ShortTerm {
    const WINDOW: usize = 1000;
    const ROUNDS: usize = 4;
    let lwss_window = WINDOW.max(ROUNDS * history.contenders);
    let contenders: Vec<u32> = history.admissions.iter().map(|admission| admission.contender).collect();
    let runs = contenders.chunk_by(|a, b| a == b);
    let times = times_to_reacquire(&contenders, history.contenders);
    ShortTerm {
        lwss: lwss(&contenders, history.contenders, lwss_window),
        lwss_window,
        mttr: (!times.is_empty()).then(|| median(times)),
        longest_run: runs.map(<[u32]>::len).max().unwrap_or(0) as u64,
    }
}

fn lwss(contenders: &[u32], of: usize, window: usize) -> Option<f64> {
    let windows = contenders.chunks_exact(window);
    let count = windows.len();
    // The window in which each contender was last seen.
    let mut seen = vec![None; of];
    let mut distinct = 0_usize;
    for (n, window) in windows.enumerate() {
        let is_new = |&&contender: &&u32| seen[contender as usize].replace(n) != Some(n);
        distinct += window.iter().filter(is_new).count();
    }
    (count > 0).then(|| distinct as f64 / count as f64)
}

/// Returns the times to reacquire, for every admission but each contender's first.
fn times_to_reacquire(contenders: &[u32], of: usize) -> Vec<f64> {
    let mut last = vec![None; of];
    let since = |(n, &contender): (usize, &u32)| last[contender as usize].replace(n).map(|before| (n - before) as f64);
    contenders.iter().enumerate().filter_map(since).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::order;
    use super::*;

    #[test]
    fn round_and_round() {
        let rounds: Vec<u32> = (0..4000).map(|n| n % 8).collect();
        let expected = ShortTerm { lwss: Some(8.0), lwss_window: 1000, mttr: Some(8.0), longest_run: 1 };
        assert_eq!(short_term(&order(8, &rounds)), expected);
    }

    #[test]
    fn one_keeps_it() {
        let expected = ShortTerm { lwss: Some(1.0), lwss_window: 1000, mttr: Some(1.0), longest_run: 2500 };
        assert_eq!(short_term(&order(8, &[3; 2500])), expected);
    }

    #[test]
    fn by_hand() {
        let order = order(3, &[0, 0, 1, 2, 2, 2, 0]);
        // Times: 1 (0), 1, 1 (2), 5 (0).
        let expected = ShortTerm { lwss: None, lwss_window: 1000, mttr: Some(1.0), longest_run: 3 };
        assert_eq!(short_term(&order), expected);
        assert_eq!(lwss(&[0, 0, 1, 2, 2, 2, 0], 3, 3), Some(1.5), "two, one, and one left over");
        assert_eq!(times_to_reacquire(&[0, 0, 1, 2, 2, 2, 0], 3), [1.0, 1.0, 1.0, 5.0]);
    }

    #[test]
    fn many_contenders_need_a_larger_window() {
        assert_eq!(short_term(&order(300, &[])).lwss_window, 1200);
    }

    #[test]
    fn of_nothing_there_is_little() {
        let expected = ShortTerm { lwss: None, lwss_window: 1000, mttr: None, longest_run: 0 };
        assert_eq!(short_term(&order(2, &[])), expected);
        assert_eq!(short_term(&order(2, &[1])).longest_run, 1);
    }
}
