//! The timers of a worker: a heap in which each node has four children, the soonest timer is first, and any item can be
//! removed.
//!
//! ```text
//!  entries:  0 │ 1  2  3  4 │ 5 .. 8 │ 9 .. 12 │ ...       the children of i are 4i + 1 ..= 4i + 4
//! ```
//!
//! Each item knows its position, so that a wait which ends before its deadline can remove the timer in O(log n). With
//! four children, as in Go, the heap is half as deep as with two, and the four are neighbours in memory.
//!
//! Only a heap that has grown larger than ever before allocates.

use crate::{Instant, fatal};

/// The position of an item that is in no heap.
pub(crate) const NONE: u32 = u32::MAX;

/// A handle of an item that remembers its position in the heap. An item is in at most one heap.
pub(crate) trait HeapItem: Copy {
    fn set_position(self, position: u32);

    /// Returns the position that was set last; [`NONE`] in the beginning.
    fn position(self) -> u32;
}

/// A heap of timers: see the top of this file. Items that are due at the same time come out in the order in which they
/// were put in.
pub(crate) struct TimerHeap<T: HeapItem> {
    entries: Vec<Entry<T>>,
    /// The number of items that have ever been put in.
    inserted: u64,
}

#[derive(Clone, Copy)]
struct Entry<T> {
    when: Instant,
    seq: u64,
    item: T,
}

impl<T> Entry<T> {
    fn is_before(&self, other: &Self) -> bool {
        (self.when, self.seq) < (other.when, other.seq)
    }
}

impl<T: HeapItem> TimerHeap<T> {
    pub(crate) const fn new() -> Self {
        Self { entries: Vec::new(), inserted: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the time at which the first item is due.
    #[inline]
    pub(crate) fn next(&self) -> Option<Instant> {
        self.entries.first().map(|entry| entry.when)
    }

    /// Puts in an item that is in no heap.
    pub(crate) fn insert(&mut self, when: Instant, item: T) {
        debug_assert_eq!(item.position(), NONE, "in a heap already");
        if self.entries.len() >= NONE as usize {
            fatal("too many timers");
        }
        let entry = Entry { when, seq: self.inserted, item };
        self.inserted += 1;
        self.entries.push(entry);
        self.sift_up(self.entries.len() - 1, entry);
    }

    /// Removes an item. Returns false if the item is in no heap, because the item has been removed before.
    pub(crate) fn remove(&mut self, item: T) -> bool {
        let position = item.position();
        if position != NONE {
            self.remove_at(position as usize);
        }
        position != NONE
    }

    /// Removes and returns the first item, if that item is due at `now`.
    #[inline]
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<T> {
        if self.next()? > now {
            return None;
        }
        let item = self.entries[0].item;
        self.remove_at(0);
        Some(item)
    }

    fn remove_at(&mut self, at: usize) {
        let gone = self.entries.swap_remove(at).item;
        debug_assert_eq!(gone.position() as usize, at, "in another heap");
        gone.set_position(NONE);
        // The entry that was last is now at `at`. That entry comes from another branch, so it may belong further up, or
        // down.
        if let Some(&moved) = self.entries.get(at) {
            if at > 0 && moved.is_before(&self.entries[parent(at)]) {
                self.sift_up(at, moved);
            } else {
                self.sift_down(at, moved);
            }
        }
    }

    /// Moves `entry` to its place on the way from `at` to the root.
    fn sift_up(&mut self, mut at: usize, entry: Entry<T>) {
        while at > 0 && entry.is_before(&self.entries[parent(at)]) {
            self.put(at, self.entries[parent(at)]);
            at = parent(at);
        }
        self.put(at, entry);
    }

    /// Moves `entry` to its place on the way from `at` to the leaves.
    fn sift_down(&mut self, mut at: usize, entry: Entry<T>) {
        loop {
            let children = (4 * at + 1).min(self.len())..(4 * at + 5).min(self.len());
            let soonest = children.reduce(|a, b| if self.entries[b].is_before(&self.entries[a]) { b } else { a });
            match soonest {
                Some(child) if self.entries[child].is_before(&entry) => {
                    self.put(at, self.entries[child]);
                    at = child;
                }
                _ => return self.put(at, entry),
            }
        }
    }

    #[inline]
    fn put(&mut self, at: usize, entry: Entry<T>) {
        entry.item.set_position(at as u32);
        self.entries[at] = entry;
    }
}

fn parent(at: usize) -> usize {
    (at - 1) / 4
}

#[cfg(all(test, not(sudog_loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::sample::Index;
    use std::cell::Cell;
    use std::collections::BTreeMap;
    use std::time::Duration;

    #[derive(Clone, Copy)]
    struct Item<'a>(&'a [Cell<u32>], usize);

    impl HeapItem for Item<'_> {
        fn set_position(self, position: u32) {
            self.0[self.1].set(position);
        }

        fn position(self) -> u32 {
            self.0[self.1].get()
        }
    }

    #[derive(Clone, Debug)]
    enum Op {
        /// Inserts an item that is out, at this time.
        Insert(u64),
        /// Removes an item, which may or may not be in the heap.
        Remove(Index),
        Pop(u64),
    }

    /// The times. Few enough that many items are due at once.
    const TIMES: std::ops::Range<u64> = 0..20;

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            4 => TIMES.prop_map(Op::Insert),
            1 => any::<Index>().prop_map(Op::Remove),
            2 => TIMES.prop_map(Op::Pop),
        ]
    }

    fn check(heap: &TimerHeap<Item<'_>>, places: &[Cell<u32>]) {
        for (at, entry) in heap.entries.iter().enumerate() {
            assert_eq!(entry.item.position() as usize, at);
            assert!(at == 0 || heap.entries[parent(at)].is_before(entry), "{at} is before its parent");
        }
        assert_eq!(places.iter().filter(|place| place.get() != NONE).count(), heap.len());
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_heap_is_a_sorted_map(ops in prop::collection::vec(op(), 0..400)) {
            let epoch = Instant::now();
            let at = |time| epoch + Duration::from_nanos(time);
            let places = vec![Cell::new(NONE); 100];
            let item = |n| Item(&places, n);
            // The model: a map by time and order of insertion.
            let (mut heap, mut model) = (TimerHeap::new(), BTreeMap::new());
            for (seq, op) in ops.into_iter().enumerate() {
                match op {
                    Op::Insert(time) => {
                        if let Some(out) = (0..places.len()).find(|&n| places[n].get() == NONE) {
                            heap.insert(at(time), item(out));
                            model.insert((time, seq), out);
                        }
                    }
                    Op::Remove(which) => {
                        let n = which.index(places.len());
                        let before = model.len();
                        model.retain(|_, &mut other| other != n);
                        assert_eq!(heap.remove(item(n)), model.len() < before);
                        assert_eq!(places[n].get(), NONE);
                    }
                    Op::Pop(now) => {
                        let due = model.first_entry().filter(|first| first.key().0 <= now).map(|first| first.remove());
                        assert_eq!(heap.pop_due(at(now)).map(|item| item.1), due);
                    }
                }
                assert_eq!(heap.len(), model.len());
                assert_eq!(heap.next(), model.keys().next().map(|&(time, _)| at(time)));
                check(&heap, &places);
            }
            // Pop the rest, all due: in order of time, then of insertion.
            let rest = std::iter::from_fn(|| heap.pop_due(at(TIMES.end))).map(|item| item.1);
            assert!(rest.eq(model.into_values()));
            check(&heap, &places);
        }
    }
}
