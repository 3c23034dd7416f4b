//! Logs of admissions: each contender writes its own, into chunks that it takes from a pool.
//!
//! So there is one bound, on all logs together, and it does not matter which contenders get the admissions. Everything is
//! allocated, and touched, before the run; a contender goes to the pool once in [`CHUNK`] admissions, outside the
//! critical section.

use std::time::Duration;
use sudog_runtime::shim::system::Mutex;

use sudog_runtime::event::clock::Scale;

use crate::measure::admissions::{Admission, AdmissionHistory, Pending};

/// What is written of an admission. Times are ticks of [`clock::ticks`](sudog_runtime::event::clock::ticks).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// How many were admitted before, if that is counted.
    pub seq: u64,
    /// Just before the call.
    pub request: u64,
    /// First thing inside.
    pub entry: u64,
    /// Last thing inside.
    pub release: u64,
}

/// One contender's log.
#[derive(Debug)]
pub struct Log {
    full: Vec<Vec<Entry>>,
    /// Has room for one more, at least.
    open: Vec<Entry>,
    /// The request after which it was told that the run is over.
    last_request: Option<u64>,
}

/// Free chunks.
#[derive(Debug)]
pub struct Pool(Mutex<Vec<Vec<Entry>>>);

/// Entries in a chunk: 32 kB.
const CHUNK: usize = 1024;

/// Entries in all chunks: 128 MB. A chunk for each contender there is in any case.
pub const MOST: usize = 1 << 22;

impl Pool {
    /// For so many contenders, and for this much time, if there is room for it.
    #[must_use]
    pub fn new(contenders: usize, duration: Duration) -> Self {
        /// No acquisition takes less: three readings of the clock alone take more.
        const LEAST: Duration = Duration::from_nanos(20);
        let wanted = (duration.as_nanos() / LEAST.as_nanos()) as usize;
        let chunks = contenders + wanted.min(MOST).div_ceil(CHUNK);
        let chunk = |_| {
            // Written to, not only reserved: else the system would give the memory page by page, in the run.
            let untouched = Entry { seq: u64::MAX, request: 0, entry: 0, release: 0 };
            let mut chunk = vec![untouched; CHUNK];
            chunk.clear();
            chunk
        };
        Self(Mutex::new((0..chunks).map(chunk).collect()))
    }

    /// A log, with its first chunk.
    ///
    /// # Panics
    ///
    /// If there are more logs than contenders, and no chunk is left.
    #[must_use]
    pub fn log(&self) -> Log {
        Log { full: Vec::new(), open: self.take().expect("there is a chunk for each"), last_request: None }
    }

    fn take(&self) -> Option<Vec<Entry>> {
        self.0.lock().expect("nobody panics with it").pop()
    }
}

impl Log {
    /// One more. There must be room.
    #[inline]
    pub fn push(&mut self, entry: Entry) {
        debug_assert!(self.open.len() < CHUNK, "no room was made");
        self.open.push(entry);
    }

    /// Makes room for one more. Fails if there is none in the pool: nothing may be pushed then.
    #[inline]
    pub fn make_room(&mut self, pool: &Pool) -> bool {
        self.open.len() < CHUNK || self.next_chunk(pool)
    }

    #[cold]
    fn next_chunk(&mut self, pool: &Pool) -> bool {
        let Some(chunk) = pool.take() else { return false };
        self.full.push(std::mem::replace(&mut self.open, chunk));
        true
    }

    /// The last, which was made at this time, was in vain.
    pub fn end(&mut self, last_request: u64) {
        self.last_request = Some(last_request);
    }
}

/// The logs of all contenders, by number, of a run from one time to another. What was requested before the start counts
/// from the start.
///
/// # Panics
///
/// If there is an order, and an admission of it is missing, or there twice.
#[must_use]
pub fn merge(logs: Vec<Log>, in_order: bool, start: u64, stop: u64, scale: &Scale) -> AdmissionHistory {
    let ns = |ticks: u64| scale.time(ticks).as_nanos() as u64;
    let origin = ns(start);
    let since = |ticks: u64| ns(ticks).saturating_sub(origin);
    let contenders = logs.len();
    let number = |n: usize| u32::try_from(n).expect("there are not so many contenders");
    let still = |(n, log): (usize, &Log)| {
        let request = log.last_request.filter(|&request| request < stop)?;
        Some(Pending { contender: number(n), request: since(request) })
    };
    let pending = logs.iter().enumerate().filter_map(still).collect();
    let total = logs.iter().map(|log| log.full.len() * CHUNK + log.open.len()).sum();
    // No contender has this number, so it tells where nothing has been written.
    let nobody = Admission { contender: u32::MAX, request: 0, entry: 0, release: 0 };
    let mut admissions = vec![nobody; total];
    let mut place = 0;
    for (n, log) in logs.into_iter().enumerate() {
        for entry in log.full.into_iter().chain([log.open]).flatten() {
            let slot = if in_order { entry.seq as usize } else { place };
            assert_eq!(admissions[slot], nobody, "two in one place of the order");
            admissions[slot] = Admission {
                contender: number(n),
                request: since(entry.request),
                entry: since(entry.entry),
                release: since(entry.release),
            };
            place += 1;
        }
    }
    let last = admissions.iter().map(|admission| admission.release).max().unwrap_or(0);
    AdmissionHistory { contenders, admissions, in_order, pending, elapsed: since(stop).max(last) }
}

#[cfg(test)]
mod tests {
    use sudog_runtime::event::clock::Reading;

    use super::*;

    fn entry(seq: u64) -> Entry {
        Entry { seq, request: 0, entry: 0, release: 0 }
    }

    #[test]
    fn the_order_is_that_of_the_room() {
        let pool = Pool::new(2, Duration::ZERO);
        let mut logs = [pool.log(), pool.log()];
        [0, 3].iter().for_each(|&seq| logs[1].push(entry(seq)));
        [1, 2].iter().for_each(|&seq| logs[0].push(entry(seq)));
        let start = Reading::now();
        logs[0].end(start.ticks());
        logs[1].end(u64::MAX);
        let history = merge(logs.into(), true, start.ticks(), start.ticks() + 1000, &start.scale());
        assert_eq!(history.admissions.iter().map(|a| a.contender).collect::<Vec<_>>(), [1, 0, 0, 1]);
        let pending = Pending { contender: 0, request: 0 };
        assert_eq!((history.contenders, history.pending), (2, vec![pending]), "the other asked after the stop");
    }

    #[test]
    fn what_was_requested_before_the_start_counts_from_there() {
        let pool = Pool::new(2, Duration::ZERO);
        let mut logs = [pool.log(), pool.log()];
        let start = Reading::now();
        let at = |n: i64| start.ticks().saturating_add_signed(n);
        logs[0].push(Entry { seq: 0, request: at(-9_000_000), entry: at(1_000_000), release: at(2_000_000) });
        logs[1].end(at(-5_000_000));
        let history = merge(logs.into(), true, start.ticks(), at(3_000_000), &start.scale());
        let [first, still] = [history.admissions[0].request, history.pending[0].request];
        assert_eq!((first, still, history.pending[0].contender), (0, 0, 1));
        assert!(0 < history.admissions[0].entry && history.admissions[0].entry < history.admissions[0].release);
    }

    #[test]
    #[should_panic(expected = "two in one place")]
    fn no_place_is_there_twice() {
        let pool = Pool::new(2, Duration::ZERO);
        let mut logs = [pool.log(), pool.log()];
        [0, 1].iter().for_each(|&seq| logs[0].push(entry(seq)));
        logs[1].push(entry(1));
        let start = Reading::now();
        let _ = merge(logs.into(), true, start.ticks(), start.ticks(), &start.scale());
    }

    #[test]
    fn a_full_pool_says_so_and_nothing_is_lost() {
        let pool = Pool::new(1, Duration::from_nanos(20 * CHUNK as u64));
        let mut log = pool.log();
        let mut written = 0;
        while log.make_room(&pool) {
            log.push(entry(written));
            written += 1;
        }
        assert_eq!(written as usize, 2 * CHUNK);
        let start = Reading::now();
        let history = merge(vec![log], true, start.ticks(), start.ticks(), &start.scale());
        assert_eq!(history.admissions.len(), 2 * CHUNK);
    }
}
