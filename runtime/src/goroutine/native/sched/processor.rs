//! The rule by which a searcher gives its processor to a worker that waits for that processor. A searcher is a worker
//! that looks for work.
//!
//! The system likes to run a woken thread on the processor of the waker. If the waker then searches for work, the woken
//! worker waits until the search ends: 50 us for each message. The search is in vain if only the woken worker can bring
//! new work. So each worker notes the processor on which the worker runs. If another worker is awake, and its note
//! names the searcher's processor, then that worker waits for this processor, because the searcher occupies it:
//!
//! | the searcher's last yield | the searcher |
//! |---|---|
//! | gave the processor to a worker, or to no thread | yields the processor |
//! | took more than [`LONG_YIELD`]: another program had the processor | sleeps instead, until [`PAUSE`] times that time has passed |
//!
//! The second row is there because a yield may cost milliseconds: Linux 6.18 takes the rest of the time slice from a
//! thread that yields. While another program has the searcher's processor, the searcher still counts as searching. So
//! new work that any worker may run wakes no other worker in that time. The same happens if the system takes the
//! processor away without a yield.
//!
//! Notes are hints. If a note is outdated, a searcher may yield although no thread waits: such a yield takes less than
//! a microsecond. Or the searcher does not yield although a worker waits, as if there were no such rule.

use std::cell::Cell;
use std::time::Duration;

use crate::Instant;
use crate::shim::system::atomic::{AtomicU32, Ordering};
use crate::shim::{self, system};

/// The time between two looks at the notes of other workers.
const LOOK: Duration = Duration::from_micros(1);
/// The number of other workers whose notes a look reads. The next look begins after these workers.
const OTHERS: usize = 8;
/// The time above which a yield counts as long: another program has had the processor.
const LONG_YIELD: Duration = Duration::from_micros(500);
/// The time after a long yield for which the worker does not yield again, as a multiple of the length of that yield. So
/// long yields take at most a sixteenth of the worker's time.
const PAUSE: u32 = 16;
/// The longest pause: a limit for the case that the process was stopped during a yield.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The number of a processor, noted by the worker that runs there and read by the others.
pub(crate) struct Note(AtomicU32);

impl Note {
    const NONE: u32 = u32::MAX;

    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(Self::NONE))
    }

    /// Notes the processor of the calling thread, and returns the number of that processor; `None` if the system does
    /// not say.
    pub(crate) fn take(&self) -> Option<u32> {
        let here = shim::processor()?;
        // As a rule the number is the same already: do not write to a line that others read.
        if self.0.load(Ordering::Relaxed) != here {
            self.0.store(here, Ordering::Relaxed);
        }
        Some(here)
    }

    fn is(&self, processor: u32) -> bool {
        self.0.load(Ordering::Relaxed) == processor
    }
}

/// The next step of a searcher after a look at the notes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Advice {
    /// No other worker wants the processor.
    Search,
    /// Another worker wants the processor: yield.
    Yield,
    /// Another worker wants the processor, and a yield may take long: sleep.
    Sleep,
}

/// A worker's memory of earlier looks and yields.
pub(crate) struct Courtesy {
    looked: Cell<Option<Instant>>,
    /// The number of notes that the looks have read so far: the next look begins there.
    read: Cell<usize>,
    /// The time until which the worker sleeps instead of yielding.
    pause: Cell<Option<Instant>>,
}

impl Courtesy {
    pub(crate) const fn new() -> Self {
        Self { looked: Cell::new(None), read: Cell::new(0), pause: Cell::new(None) }
    }

    /// Looks, once in [`LOOK`], whether another worker wants the caller's processor. `others` iterates, from the given
    /// index on, over the notes of all other workers, each with true if that worker is awake.
    pub(crate) fn look<'a, I>(&self, note: &Note, now: Instant, others: impl FnOnce(usize) -> I) -> Advice
    where
        I: Iterator<Item = (&'a Note, bool)>,
    {
        if self.looked.get().is_some_and(|looked| now.saturating_duration_since(looked) < LOOK) {
            return Advice::Search;
        }
        self.looked.set(Some(now));
        note.take().map_or(Advice::Search, |here| self.advise(here, now, others))
    }

    fn advise<'a, I>(&self, here: u32, now: Instant, others: impl FnOnce(usize) -> I) -> Advice
    where
        I: Iterator<Item = (&'a Note, bool)>,
    {
        let start = self.read.get();
        self.read.set(start.wrapping_add(OTHERS));
        if !others(start).take(OTHERS).any(|(note, is_awake)| is_awake && note.is(here)) {
            return Advice::Search;
        }
        if self.pause.get().is_some_and(|end| now < end) { Advice::Sleep } else { Advice::Yield }
    }

    /// Yields the processor, and returns the time after the yield.
    pub(crate) fn yield_processor(&self, now: Instant) -> Instant {
        system::thread::yield_now();
        let then = system::now();
        self.note_yield(now, then);
        then
    }

    fn note_yield(&self, from: Instant, to: Instant) {
        let away = to.saturating_duration_since(from);
        if away > LONG_YIELD {
            self.pause.set(Some(to + (away * PAUSE).min(LONGEST_PAUSE)));
        }
    }
}

#[cfg(all(test, not(sudog_sim)))]
mod tests {
    use super::*;

    const HERE: u32 = 3;

    fn on(processor: u32) -> Note {
        Note(AtomicU32::new(processor))
    }

    #[test]
    fn a_processor_is_wanted_by_workers_that_are_awake() {
        let advice = |others: &[(Note, bool)]| {
            let others = others.iter().map(|(note, is_awake)| (note, *is_awake));
            Courtesy::new().advise(HERE, system::now(), |_| others)
        };
        assert_eq!(advice(&[]), Advice::Search);
        assert_eq!(advice(&[(on(HERE), true)]), Advice::Yield);
        assert_eq!(advice(&[(on(HERE), false)]), Advice::Search, "asleep");
        assert_eq!(advice(&[(on(4), true), (Note::new(), true)]), Advice::Search, "elsewhere");
        assert_eq!(advice(&[(on(4), true), (on(HERE), false), (on(HERE), true)]), Advice::Yield);
    }

    #[test]
    fn a_long_yield_is_not_repeated_for_some_time() {
        let (courtesy, other, begun) = (Courtesy::new(), on(HERE), system::now());
        let advice = |now| courtesy.advise(HERE, now, |_| [(&other, true)].into_iter());
        courtesy.note_yield(begun, begun + LONG_YIELD);
        assert_eq!(advice(begun + LONG_YIELD), Advice::Yield, "the yield was short");
        let end = begun + 2 * LONG_YIELD;
        courtesy.note_yield(begun, end);
        for (later, expected) in [(0, Advice::Sleep), (PAUSE - 1, Advice::Sleep), (PAUSE, Advice::Yield)] {
            assert_eq!(advice(end + later * 2 * LONG_YIELD), expected, "{later}");
        }
        let end = begun + Duration::from_secs(3600);
        courtesy.note_yield(begun, end);
        assert_eq!(advice(end + LONGEST_PAUSE), Advice::Yield, "the process was stopped");
    }

    /// Tests that each look reads a few workers, and that the looks together read all.
    #[test]
    fn the_looks_go_around() {
        let (courtesy, workers) = (Courtesy::new(), 64);
        let mut read = vec![0; workers];
        for _ in 0..workers / OTHERS {
            let others = |start: usize| (start..start + workers).map(|i| i % workers);
            let elsewhere = on(HERE + 1);
            let advice = courtesy.advise(HERE, system::now(), |start| {
                others(start).inspect(|&i| read[i] += 1).map(|_| (&elsewhere, true))
            });
            assert_eq!(advice, Advice::Search);
        }
        assert_eq!(read, vec![1; workers]);
    }

    #[test]
    fn a_look_is_taken_once_in_a_while() {
        let (courtesy, note, begun) = (Courtesy::new(), Note::new(), system::now());
        let looks = Cell::new(0);
        let look = |now| {
            courtesy.look(&note, now, |_| {
                looks.set(looks.get() + 1);
                std::iter::empty()
            })
        };
        for (later, expected) in [(0, 1), (LOOK.as_nanos() as u64 - 1, 1), (LOOK.as_nanos() as u64, 2)] {
            look(begun + Duration::from_nanos(later));
            let expected = if shim::processor().is_some() { expected } else { 0 };
            assert_eq!(looks.get(), expected, "after {later} ns");
        }
    }
}
