//! Bypass: which contender came later and was first.
//!
//! The bypass of a wait is the number of admissions of others whose request came after the wait's request, and whose
//! entry came before the wait's entry. The request is the moment before the call. The place in line, the doorway, is
//! taken a little later: a contender that was overtaken in between has not been overtaken in line. So this module
//! computes an upper bound of the bypass by doorways; nearly all of the difference is contenders that had to leave the
//! processor in between. `cargo lab bypass` reports the bypass by doorways, of locks that have tickets.

use serde::Serialize;

use super::AdmissionHistory;
use crate::measure::metrics::quantile;

/// The bypass of all waits. A wait that the end cut short counts with the bypass that the wait had reached by then.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Debug)]
pub struct Bypass {
    /// The bypass that 99 in 100 waits did not exceed.
    pub p99: u64,
    /// The largest bypass.
    pub max: u64,
}

/// Returns the bypass of a history, or `None` if no contender waited.
pub fn bypass(history: &AdmissionHistory) -> Option<Bypass> {
    let mut all = bypasses(history);
    all.sort_unstable();
    Some(Bypass { p99: quantile(&all, 990)?, max: *all.last()? })
}

/// Returns the bypass of each admission, in the order of admissions; then of each wait that had not ended at the end.
///
/// Goes through the admissions in order, and puts the times of the requests into a counting tree. When an admission is
/// reached, the later requests in the tree are those that have overtaken the admission. Equal times have no order, and
/// do not count.
fn bypasses(history: &AdmissionHistory) -> Vec<u64> {
    let mut requests: Vec<u64> = history.admissions.iter().map(|admission| admission.request).collect();
    requests.sort_unstable();
    let not_after = |request: u64| requests.partition_point(|&other| other <= request);
    let mut admitted = Counts::new(requests.len());
    let mut overtaken_by = Vec::with_capacity(history.admissions.len() + history.pending.len());
    for (n, admission) in history.admissions.iter().enumerate() {
        let rank = not_after(admission.request);
        overtaken_by.push(n as u64 - admitted.below(rank));
        admitted.add(rank - 1);
    }
    let all = requests.len();
    overtaken_by.extend(history.pending.iter().map(|pending| (all - not_after(pending.request)) as u64));
    overtaken_by
}

/// The number of occurrences of each number, with sums over all smaller numbers: a Fenwick tree.
struct Counts(Box<[u32]>);

impl Counts {
    fn new(numbers: usize) -> Self {
        Self(vec![0; numbers + 1].into())
    }

    fn add(&mut self, number: usize) {
        let mut node = number + 1;
        while node < self.0.len() {
            self.0[node] += 1;
            node += node & node.wrapping_neg();
        }
    }

    fn below(&self, number: usize) -> u64 {
        let (mut node, mut sum) = (number, 0);
        while node > 0 {
            sum += u64::from(self.0[node]);
            node -= node & node.wrapping_neg();
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::history;
    use super::super::{Admission, Pending};
    use super::*;

    #[test]
    fn in_the_order_of_requests_nobody_is_bypassed() {
        let fifo = history(2, &[(0, 0, 5, 10), (1, 1, 10, 20), (0, 11, 20, 30)]);
        let expected = Bypass { p99: 0, max: 0 };
        assert_eq!(bypass(&fifo), Some(expected));
    }

    #[test]
    fn each_who_came_later_and_was_first_counts() {
        // 1 asks first, and gets in after four later requests of 0 and 2; another request of 0 came before that of 1.
        let turns = [(0, 0, 1, 5), (0, 6, 7, 8), (2, 7, 9, 10), (0, 9, 11, 12), (0, 13, 14, 15), (1, 2, 16, 20)];
        let mut history = history(4, &turns);
        assert_eq!(bypasses(&history), [0, 0, 0, 0, 0, 4]);
        history.pending.push(Pending { contender: 3, request: 8 });
        assert_eq!(bypasses(&history), [0, 0, 0, 0, 0, 4, 2]);
        let expected = Bypass { p99: 4, max: 4 };
        assert_eq!(bypass(&history), Some(expected));
    }

    #[test]
    fn of_nothing_there_is_nothing() {
        assert_eq!(bypass(&history(3, &[])), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Compares with the definition, word for word. There are few different times, so that ties occur.
        #[test]
        fn it_is_its_definition(
            turns in proptest::collection::vec((0_u32..4, 0_u64..40), 0..80),
            pending in proptest::collection::vec(0_u64..40, 0..4),
        ) {
            // A contender makes one request at a time, so its requests come in the order of its admissions.
            let mut latest = [0; 4];
            let turn = |(n, (contender, request)): (usize, (u32, u64))| {
                let latest = &mut latest[contender as usize];
                *latest = request.max(*latest);
                Admission { contender, request: *latest, entry: 100 + 2 * n as u64, release: 101 + 2 * n as u64 }
            };
            let admissions: Vec<Admission> = turns.into_iter().enumerate().map(turn).collect();
            let late = |(n, request)| Pending { contender: 4 + n as u32, request };
            let pending: Vec<Pending> = pending.into_iter().enumerate().map(late).collect();

            let mut expected = Vec::new();
            let waits = admissions.iter().map(|a| (a.contender, a.request, a.entry));
            for (contender, request, entry) in waits.chain(pending.iter().map(|p| (p.contender, p.request, u64::MAX))) {
                let passes = |b: &&Admission| b.contender != contender && b.request > request && b.entry < entry;
                expected.push(admissions.iter().filter(passes).count() as u64);
            }
            prop_assert_eq!(bypasses(&AdmissionHistory { admissions, pending, ..history(8, &[]) }), expected);
        }
    }
}
