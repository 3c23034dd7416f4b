//! A ring of events with one writer and any number of readers.
//!
//! ```text
//!    lost            stored             being written
//!   ┄┄┄┄┄┄┄┄│ done - N ... done - 1 │ begun - 1
//! ```
//!
//! | the writer, for event n | a reader |
//! |---|---|
//! | 1. `begun = n + 1` | 1. reads `done` |
//! | 2. release fence | 2. reads the slots of the last N events before `done` |
//! | 3. writes slot n mod N | 3. acquire fence |
//! | 4. `done = n + 1`, with release | 4. reads `begun`, and discards events before `begun - N` |
//!
//! All events that a reader keeps are consistent: if the reader has read a word of event n + N in the slot of event n,
//! the fences order `begun = n + N + 1` before the reader's step 4, and the reader discards event n. Step 4 of the
//! writer and step 1 of the reader ensure that the events which are read have been written.

use crate::shim::{AtomicU64, Ordering, fence};

/// The words of an event.
pub type Words = [u64; 4];

/// A ring of events with one writer: see the top of this file.
pub struct Ring {
    begun: AtomicU64,
    done: AtomicU64,
    slots: Box<[[AtomicU64; 4]]>,
}

/// The events that a call of [`Ring::read`] has found.
pub struct Part {
    pub events: Vec<Words>,
    /// The number of lost events, which are not in `events`.
    pub lost: u64,
}

impl Ring {
    /// Creates a ring for `capacity` events, which must be a power of two.
    pub fn new(capacity: usize) -> Self {
        assert!(capacity.is_power_of_two());
        Self { begun: AtomicU64::new(0), done: AtomicU64::new(0), slots: slots(capacity) }
    }

    /// Returns the number of events that the ring holds.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// Returns the number of events that have been written.
    pub fn written(&self) -> u64 {
        self.done.load(Ordering::Acquire)
    }

    /// Writes an event. Only one thread may call this at a time.
    #[inline]
    pub fn write(&self, words: Words) {
        let n = self.done.load(Ordering::Relaxed);
        self.begun.store(n + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        let slot = &self.slots[n as usize & (self.slots.len() - 1)];
        for (place, word) in slot.iter().zip(words) {
            place.store(word, Ordering::Relaxed);
        }
        self.done.store(n + 1, Ordering::Release);
    }

    /// Reads the events from number `from` on that are still stored.
    pub fn read(&self, from: u64) -> Part {
        let capacity = self.slots.len() as u64;
        let done = self.done.load(Ordering::Acquire);
        let oldest = from.max(done.saturating_sub(capacity)).min(done);
        let slot = |n| &self.slots[(n % capacity) as usize];
        let mut events: Vec<Words> =
            (oldest..done).map(|n| std::array::from_fn(|i| slot(n)[i].load(Ordering::Relaxed))).collect();
        fence(Ordering::Acquire);
        let overwritten = self.begun.load(Ordering::Relaxed).saturating_sub(capacity).clamp(oldest, done);
        events.drain(..(overwritten - oldest) as usize);
        Part { events, lost: overwritten.saturating_sub(from) }
    }
}

/// Returns slots whose memory the system provides when an event is first written there.
#[cfg(not(any(sudog_loom, sudog_sim)))]
fn slots(capacity: usize) -> Box<[[AtomicU64; 4]]> {
    // SAFETY: an `AtomicU64` of zero bytes is valid: the number 0.
    unsafe { Box::new_zeroed_slice(capacity).assume_init() }
}

#[cfg(any(sudog_loom, sudog_sim))]
fn slots(capacity: usize) -> Box<[[AtomicU64; 4]]> {
    (0..capacity).map(|_| [(); 4].map(|()| AtomicU64::new(0))).collect()
}

#[cfg(all(test, not(sudog_loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_are_dropped_and_counted() {
        let ring = Ring::new(4);
        for n in 0..10 {
            ring.write([n; 4]);
        }
        for (from, first, lost) in [(0, 6, 6), (5, 6, 1), (6, 6, 0), (8, 8, 0)] {
            let part = ring.read(from);
            assert_eq!(part.events, (first..10).map(|n| [n; 4]).collect::<Vec<_>>(), "from {from}");
            assert_eq!(part.lost, lost, "from {from}");
        }
        for from in [10, 12] {
            let part = ring.read(from);
            assert!(part.events.is_empty() && part.lost == 0, "nothing from {from} on");
        }
    }
}

#[cfg(all(test, sudog_loom))]
mod model {
    use super::*;
    use crate::shim::reached::{mark, must_reach};
    use loom::sync::Arc;

    const CAPACITY: u64 = 2;

    /// Checks and marks the events that the reader got, from `from` on. Each event is as it was written: the event's
    /// number, counted from 1, four times. Returns the number of events of which the reader knows now.
    fn read(ring: &Ring, from: u64) -> u64 {
        let part = ring.read(from);
        let got = part.events.len() as u64;
        let known = from + part.lost + got;
        for (words, n) in part.events.iter().zip(from + part.lost + 1..) {
            assert_eq!(*words, [n; 4], "torn, or another");
        }
        mark(if got > 0 { "the reader sees events" } else { "the reader sees none" });
        mark(if part.lost > 0 { "the reader loses events" } else { "the reader loses none" });
        if got > 0 && part.lost > 0 {
            mark("the reader sees events and loses some");
        }
        if got < CAPACITY.min(known - from) {
            mark("the reader meets the writer halfway, and discards events");
        }
        known
    }

    /// Runs a reader beside a writer. `before` events are stored when the reader begins; `beside` events are written
    /// concurrently.
    ///
    /// The reader is the spawned thread, because loom runs the main thread first, and remembers only the last access to
    /// an atomic. If the main thread were the reader, the writer's own load of `done` would hide the reader's load, and
    /// loom would explore no execution in which the reader's load comes later.
    fn beside_a_writer(before: u64, beside: u64, reads: u32, states: &[&'static str]) {
        must_reach(states, || {
            crate::model::explore(3, move || {
                let ring = Arc::new(Ring::new(CAPACITY as usize));
                (1..=before).for_each(|n| ring.write([n; 4]));
                let theirs = ring.clone();
                let reader = crate::model::thread::spawn(move || {
                    let mut known = 0;
                    for _ in 0..reads {
                        let now = read(&theirs, known);
                        assert!(known <= now && now <= before + beside);
                        known = now;
                    }
                    known
                });
                (before + 1..=before + beside).for_each(|n| ring.write([n; 4]));
                let known = reader.join().unwrap();
                let all = before + beside;
                assert_eq!(ring.written(), all);
                let rest = ring.read(known);
                assert_eq!(rest.lost, (all - known).saturating_sub(CAPACITY));
                assert_eq!(rest.events.len() as u64, (all - known).min(CAPACITY));
            });
        });
    }

    /// The reader begins with a full ring.
    #[test]
    fn what_is_read_is_whole() {
        let states = [
            "the reader sees events",
            "the reader sees none",
            "the reader loses events",
            "the reader loses none",
            "the reader sees events and loses some",
            "the reader meets the writer halfway, and discards events",
        ];
        beside_a_writer(2, 2, 1, &states);
    }

    /// The reader begins with an empty ring. The writer may write more than fits after the reader has read the number
    /// of events.
    #[test]
    fn what_is_read_has_been_written() {
        beside_a_writer(0, 3, 1, &["the reader sees events", "the reader sees none"]);
    }

    /// Nothing is read twice, and every lost event is counted.
    #[test]
    fn a_reader_goes_on_where_it_was() {
        let states = [
            "the reader sees events",
            "the reader sees none",
            "the reader loses events",
            "the reader meets the writer halfway, and discards events",
        ];
        beside_a_writer(1, 2, 2, &states);
    }
}
