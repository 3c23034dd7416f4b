//! Waits, from request to entry: every wait, not a sample.

use serde::Serialize;

use super::AdmissionHistory;
use crate::measure::metrics::quantile;

/// The quantiles of all waits. A wait that the end cut short has the length that the wait had reached by then: else the
/// longest wait would be left out.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Debug)]
pub struct WaitQuantiles {
    /// The length that half of the waits did not exceed.
    pub p50_ns: u64,
    /// The length that 99 in 100 waits did not exceed.
    pub p99_ns: u64,
    /// The length that 999 in 1000 waits did not exceed.
    pub p999_ns: u64,
    /// The longest wait.
    pub max_ns: u64,
}

/// Returns the quantiles, or `None` if no contender waited.
pub fn waits(history: &AdmissionHistory) -> Option<WaitQuantiles> {
    let admitted = history.admissions.iter().map(|admission| admission.entry.saturating_sub(admission.request));
    let cut_short = history.pending.iter().map(|pending| history.elapsed.saturating_sub(pending.request));
    let mut all: Vec<u64> = admitted.chain(cut_short).collect();
    all.sort_unstable();
    let of = |per_mille| quantile(&all, per_mille);
    Some(WaitQuantiles { p50_ns: of(500)?, p99_ns: of(990)?, p999_ns: of(999)?, max_ns: of(1000)? })
}

#[cfg(test)]
mod tests {
    use super::super::Pending;
    use super::super::tests::history;
    use super::*;

    #[test]
    fn every_wait_counts() {
        let turns: Vec<_> = (0..1000).map(|n| (0, n * 2000, n * 2000 + n, n * 2000 + n + 1)).collect();
        let mut history = history(2, &turns);
        assert_eq!(waits(&history), Some(WaitQuantiles { p50_ns: 499, p99_ns: 989, p999_ns: 998, max_ns: 999 }));
        history.pending.push(Pending { contender: 1, request: 3 });
        assert_eq!(waits(&history).unwrap().max_ns, history.elapsed - 3);
    }

    #[test]
    fn nobody_waited() {
        assert_eq!(waits(&history(1, &[])), None);
    }
}
