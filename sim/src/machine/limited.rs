//! Caches and TLBs that hold a limited number of lines and pages, for the claims about these: see [`Details`].
//!
//! A core's cache has sets of eight lines; the TLB is a single set. A new line, or a new page, displaces the one that was
//! used longest ago. A displaced line is in no cache of the core any more, and a later access is served as if by memory.

use std::collections::VecDeque;

use super::preset::Details;

/// The number of lines in a set of a cache.
const WAYS: usize = 8;
const PAGE_BITS: u32 = 12;

#[derive(Debug)]
pub(crate) struct Limited {
    details: Details,
    /// The sets of each core's cache: the numbers of the lines, the line that was used last in front.
    sets: Vec<Vec<VecDeque<u32>>>,
    /// The pages in each core's TLB, the page that was used last in front.
    pages: Vec<VecDeque<usize>>,
}

impl Limited {
    pub(crate) fn new(details: Details) -> Self {
        Self { details, sets: Vec::new(), pages: Vec::new() }
    }

    pub(crate) fn is_limited(&self) -> bool {
        self.details.cache > 0 || self.details.tlb > 0
    }

    /// Puts a line into the cache of `core`. Returns the number of the line that is displaced: if possible, a line that
    /// the core has lost, and does not hold.
    pub(crate) fn hold_line(
        &mut self,
        core: usize,
        line: usize,
        number: u32,
        holds: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        if self.details.cache == 0 {
            return None;
        }
        let count = (self.details.cache / WAYS).max(1);
        let sets = at(&mut self.sets, core);
        sets.resize_with(count, VecDeque::new);
        let set = &mut sets[line % count];
        use_now(set, number);
        if set.len() <= WAYS {
            return None;
        }
        let lost = (1..set.len()).rev().find(|&place| !holds(set[place]));
        set.remove(lost.unwrap_or(WAYS))
    }

    /// Puts the page of an address into the TLB of `core`. Returns true if the TLB did not hold the page.
    pub(crate) fn hold_page(&mut self, core: usize, address: usize) -> bool {
        if self.details.tlb == 0 {
            return false;
        }
        let pages = at(&mut self.pages, core);
        let held = use_now(pages, address >> PAGE_BITS);
        pages.truncate(self.details.tlb);
        !held
    }
}

/// Returns the element of a core. Creates the elements up to that one, if they are not there.
fn at<T: Default>(all: &mut Vec<T>, core: usize) -> &mut T {
    if all.len() <= core {
        all.resize_with(core + 1, T::default);
    }
    &mut all[core]
}

/// Moves an item to the front. Returns whether the item was there.
fn use_now<T: PartialEq>(items: &mut VecDeque<T>, item: T) -> bool {
    let place = items.iter().position(|other| *other == item);
    if let Some(place) = place {
        items.remove(place);
    }
    items.push_front(item);
    place.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_that_is_full_displaces_the_line_that_was_used_longest_ago() {
        let mut limited = Limited::new(Details { cache: 16, ..Details::NONE });
        let mut hold = |line: usize, holds: fn(u32) -> bool| limited.hold_line(3, line, line as u32, holds);
        // The even lines are those of the first of two sets.
        assert!((0..8).all(|n| hold(2 * n, |_| true).is_none()));
        assert_eq!(hold(0, |_| true), None, "line 0 is there, and is used last");
        assert_eq!(hold(1, |_| true), None, "the other set is empty");
        assert_eq!(hold(16, |_| true), Some(2));
        assert_eq!(hold(18, |line| line != 8), Some(8), "the core has lost line 8");
    }

    #[test]
    fn a_tlb_misses_the_pages_that_it_does_not_hold() {
        let mut limited = Limited::new(Details { tlb: 2, ..Details::NONE });
        let mut misses = |page: usize| limited.hold_page(0, page << PAGE_BITS | 8);
        assert_eq!([0, 1, 0, 2, 0, 1].map(&mut misses), [true, true, false, true, false, true]);
    }
}
