//! Ranges of tickets that departed when they were too far from the window's base to have a bit (see `sliding.rs`).
//! Adjacent ranges are merged.
//!
//! Between two ranges there is a ticket that has not departed, or has departed with a bit; so there is at most one
//! range more than there are present tickets, however many tickets have been given up.

use std::collections::BTreeMap;

/// A map from the first ticket of each range to the ticket behind its last. The keys and values are full ticket
/// numbers, which do not wrap.
#[derive(Debug)]
pub(super) struct Overflow(BTreeMap<u64, u64>);

impl Overflow {
    pub(super) const NONE: Self = Self(BTreeMap::new());

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns the first ticket.
    pub(super) fn first(&self) -> Option<u64> {
        self.0.first_key_value().map(|(&first, _)| first)
    }

    /// Adds a ticket. Returns false, without a change, if the ticket is recorded already.
    pub(super) fn insert(&mut self, ticket: u64) -> bool {
        let first = match self.0.range(..=ticket).next_back() {
            Some((_, &end)) if end > ticket => return false,
            Some((&first, &end)) if end == ticket => first,
            _ => ticket,
        };
        let end = self.0.remove(&(ticket + 1)).unwrap_or(ticket + 1);
        self.0.insert(first, end);
        true
    }

    /// Removes the first ticket and the tickets that follow it without a gap, `most` at most; returns the number of
    /// removed tickets.
    pub(super) fn take_first(&mut self, most: u32) -> u32 {
        let Some((first, end)) = self.0.pop_first() else { return 0 };
        let taken = (end - first).min(u64::from(most));
        if first + taken < end {
            self.0.insert(first + taken, end);
        }
        taken as u32
    }
}

#[cfg(all(test, not(sudog_loom)))]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    impl Overflow {
        pub(in super::super) fn contains(&self, ticket: u64) -> bool {
            self.0.range(..=ticket).next_back().is_some_and(|(_, &end)| ticket < end)
        }
    }

    proptest! {
        #[test]
        fn a_set_in_few_words(steps in prop::collection::vec((0_u64..60, 0_u32..8), 0..200)) {
            let (mut overflow, mut naive) = (Overflow::NONE, BTreeSet::new());
            for (ticket, taken) in steps {
                if taken > 0 {
                    let first = naive.first().copied();
                    prop_assert_eq!(overflow.first(), first);
                    for n in 0..u64::from(overflow.take_first(taken)) {
                        prop_assert!(naive.remove(&(first.expect("one was taken") + n)));
                    }
                } else {
                    prop_assert_eq!(overflow.insert(ticket), naive.insert(ticket));
                }
                prop_assert!((0..62).all(|ticket| overflow.contains(ticket) == naive.contains(&ticket)));
                prop_assert_eq!(overflow.is_empty(), naive.is_empty());
                let ranges = naive.iter().filter(|&&n| n == 0 || !naive.contains(&(n - 1))).count();
                prop_assert_eq!(overflow.0.len(), ranges, "neighbours are one");
            }
        }
    }
}
