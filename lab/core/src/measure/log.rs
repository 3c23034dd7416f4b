//! Logs of admissions: each contender writes to a log of its own, into chunks from a pool.
//!
//! The pool bounds all logs together, so the bound does not depend on which contenders get the admissions. All memory
//! is allocated, and touched, before the run; a contender goes to the pool once in [`CHUNK`] admissions, outside the
//! critical section.

use std::time::Duration;
use sudog_runtime::shim::system::Mutex;

use sudog_runtime::event::clock::Scale;

use crate::measure::admissions::{Admission, AdmissionHistory, Pending};

/// The log entry of an admission. Times are ticks of [`clock::ticks`](sudog_runtime::event::clock::ticks).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The number of admissions before this one, if admissions are counted.
    pub seq: u64,
    /// The time just before the call.
    pub request: u64,
    /// The time at the beginning of the critical section.
    pub entry: u64,
    /// The time at the end of the critical section.
    pub release: u64,
}

/// The log of a contender.
#[derive(Debug)]
pub struct Log {
    full: Vec<Vec<Entry>>,
    /// The chunk that is being filled. Has room for at least one more entry.
    open: Vec<Entry>,
    /// The time of the request after which the contender learned that the run is over.
    last_request: Option<u64>,
}

/// A pool of free chunks.
#[derive(Debug)]
pub struct Pool(Mutex<Vec<Vec<Entry>>>);

/// Entries in a chunk: 32 kB.
const CHUNK: usize = 1024;

/// The largest number of entries in the pool: 128 MB. A chunk for each contender comes in addition.
pub const MOST: usize = 1 << 22;

impl Pool {
    /// Creates a pool for `contenders` contenders, with room for a run of `duration`, but for at most [`MOST`] entries
    /// and a chunk for each contender.
    pub fn new(contenders: usize, duration: Duration) -> Self {
        /// The least time of an acquisition: three readings of the clock alone take more.
        const LEAST: Duration = Duration::from_nanos(20);
        let wanted = (duration.as_nanos() / LEAST.as_nanos()) as usize;
        let chunks = contenders + wanted.min(MOST).div_ceil(CHUNK);
        let chunk = |_| {
            // Write to the memory instead of only reserving memory: else the system would provide the memory page by
            // page, during the run.
            let untouched = Entry { seq: u64::MAX, request: 0, entry: 0, release: 0 };
            let mut chunk = vec![untouched; CHUNK];
            chunk.clear();
            chunk
        };
        Self(Mutex::new((0..chunks).map(chunk).collect()))
    }

    /// Returns a log with a first chunk.
    ///
    /// # Panics
    ///
    /// If there are more logs than contenders, and no chunk is left.
    pub fn log(&self) -> Log {
        Log { full: Vec::new(), open: self.take().expect("there is a chunk for each"), last_request: None }
    }

    fn take(&self) -> Option<Vec<Entry>> {
        self.0.lock().expect("nobody panics with it").pop()
    }
}

impl Log {
    /// Adds an entry. There must be room.
    #[inline]
    pub fn push(&mut self, entry: Entry) {
        debug_assert!(self.open.len() < CHUNK, "no room was made");
        self.open.push(entry);
    }

    /// Makes room for another entry. Returns false if the pool has no chunk left: then nothing may be pushed.
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

    /// Notes the time of the last request, which was in vain.
    pub fn end(&mut self, last_request: u64) {
        self.last_request = Some(last_request);
    }
}

/// Merges the logs of all contenders, which are in the order of the contenders' numbers, for a run from `start` to
/// `stop`. A request from before the start counts as made at the start.
///
/// # Panics
///
/// If there is an order, and an admission is missing in the order, or present twice.
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
    // No contender has this number, so this value marks places that have not been written.
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
