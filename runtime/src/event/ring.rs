//! A ring of events that one thread writes and anybody reads.
//!
//! ```text
//!    lost            here               being written
//!   ┄┄┄┄┄┄┄┄│ done - N ... done - 1 │ begun - 1
//! ```
//!
//! | the writer, for event n | a reader |
//! |---|---|
//! | 1. `begun = n + 1` | 1. reads `done` |
//! | 2. release fence | 2. reads the slots of the last N events before it |
//! | 3. writes slot n mod N | 3. acquire fence |
//! | 4. `done = n + 1`, with release | 4. reads `begun`, and discards events before `begun - N` |
//!
//! What a reader keeps is whole: if it has read a word of event n + N in the slot of event n, the fences order `begun =
//! n + N + 1` before its step 4, and it discards n. Step 4 of the writer and 1 of the reader are for the events that it
//! reads first: those are written.

use crate::shim::{AtomicU64, Ordering, fence};

/// What there is of an event.
pub type Words = [u64; 4];

/// See the top of this file.
pub struct Ring {
    begun: AtomicU64,
    done: AtomicU64,
    slots: Box<[[AtomicU64; 4]]>,
}

/// What a reader got.
pub struct Part {
    pub events: Vec<Words>,
    /// How many more there had been.
    pub lost: u64,
}

impl Ring {
    /// For so many, which is a power of two.
    pub fn new(capacity: usize) -> Self {
        assert!(capacity.is_power_of_two());
        let slot = |_| [(); 4].map(|()| AtomicU64::new(0));
        Self { begun: AtomicU64::new(0), done: AtomicU64::new(0), slots: (0..capacity).map(slot).collect() }
    }

    /// How many events have been written.
    pub fn written(&self) -> u64 {
        self.done.load(Ordering::Acquire)
    }

    /// Writes an event. To be called by one thread at a time.
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

    /// The events from number `from` on that are there still.
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
        assert!(ring.read(10).events.is_empty());
    }
}

#[cfg(all(test, sudog_loom))]
mod model {
    use super::*;
    use loom::sync::Arc;

    #[test]
    fn what_is_read_is_whole() {
        loom::model(|| {
            let ring = Arc::new(Ring::new(2));
            let theirs = ring.clone();
            let writer = loom::thread::spawn(move || (1..=4).for_each(|n| theirs.write([n; 4])));
            let part = ring.read(0);
            let all = part.lost + part.events.len() as u64;
            for (n, words) in part.events.iter().enumerate() {
                assert_eq!(*words, [part.lost + n as u64 + 1; 4]);
            }
            writer.join().unwrap();
            assert!(all <= 4);
            let part = ring.read(all);
            assert_eq!(all + part.lost + part.events.len() as u64, 4);
        });
    }
}
