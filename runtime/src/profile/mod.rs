//! Profiles of waits: which release of a lock made others wait, and which calls waited, each with its stack. (Feature
//! `profile`.)
//!
//! | profile | is enabled by | a wait is charged to | with the stack of |
//! |---|---|---|---|
//! | mutex | [`set_mutex_profile_fraction`] | the releases during it, each by its part | the release |
//! | block | [`set_block_profile_rate`] | itself | the call that waited |
//!
//! The mutex profile has the waits of threads, goroutines and async tasks for mutexes, readers-writer locks and semaphores over
//! Go's semaphore table, which is the default of all of them. The block profile has the waits of threads and goroutines in
//! whatever waits through [`G`](crate::G): these, channels, `select`, conditions, wait groups, sockets, `join`. Neither has
//! sleeps, nor waits of locks that spin or call the futex themselves; and the block profile has no tasks, as a task has no stack.
//!
//! The mutex profile is exact where Go's is not (golang/go#73760): if `n` waiters have waited since times whose sum is `sum`,
//! a release is charged `n * now - sum`, and their waits begin again at `now`. The wait of a waiter that gives up is charged to the
//! next release that wakes another; if all waiters give up, to none.
//!
//! Times are those of [`goroutine::now`](crate::goroutine::now): in a bubble of
//! [`synctest`](crate::goroutine::synctest) the bubble's, so a test can demand exact figures for locks that only the bubble uses.
//!
//! A profile that is off costs a load and a branch, which is predicted, where a caller is about to wait or finds a waiter;
//! a build without the feature nothing. A profile that is on reads the clock, takes a lock of its own, and walks the stack of
//! each event that is sampled; memory for new stacks comes from the system, not from the global allocator.
//!
//! Go: `runtime/mprof.go` (`SetMutexProfileFraction`, `SetBlockProfileRate`), `mutexevent` and `blockevent` in
//! `runtime/sema.go` (1.27).
//!
//! # Examples
//!
//! ```
//! use std::time::Duration;
//! use sudog::runtime::profile;
//! use sudog::sync::Mutex;
//! use sudog::{go, synctest, time};
//!
//! profile::set_mutex_profile_fraction(1);
//! synctest::test(|| {
//!     static M: Mutex<()> = Mutex::new(());
//!     let guard = M.lock();
//!     go(|| drop(M.lock()));
//!     time::sleep(Duration::from_secs(3)); // the goroutine waits meanwhile
//!     drop(guard); // is charged
//! });
//! profile::set_mutex_profile_fraction(0);
//!
//! let profile = profile::mutex();
//! assert_eq!(profile.delay(), Duration::from_secs(3));
//! let mut file = Vec::new();
//! profile.write_pprof(&mut file)?; // for `go tool pprof`
//! # Ok::<(), std::io::Error>(())
//! ```

mod blocks;
mod pprof;
mod releases;
mod sites;
mod system_box;
mod text;

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt;
use std::panic::resume_unwind;
use std::time::Duration;

use crate::goroutine::has_room;
use crate::shim::system::atomic::Ordering;
use crate::shim::system::thread;

pub(crate) use blocks::Blocked;
pub(crate) use releases::{QueuedWait, Released};
use sites::Charges;
use text::Symbols;

/// The bytes of stack that the lookup of names needs.
const ROOM: usize = 128 << 10;

/// Charges one of `fraction` releases that wake waiters, at random, with `fraction` times its part; 0 turns the mutex profile
/// off. Returns the fraction before. Go's `runtime.SetMutexProfileFraction`.
///
/// Charges stay when the profile is turned off. Waits that begin while the profile is off are not counted.
pub fn set_mutex_profile_fraction(fraction: u32) -> u32 {
    releases::FRACTION.swap(fraction, Ordering::Relaxed)
}

/// The fraction that [`set_mutex_profile_fraction`] has set.
#[must_use]
pub fn mutex_profile_fraction() -> u32 {
    releases::FRACTION.load(Ordering::Relaxed)
}

/// Records waits of `nanoseconds` or more, and of the shorter ones so many that a wait is recorded for each `nanoseconds` of
/// waiting on average; 1 records all, 0 turns the block profile off. Go's `runtime.SetBlockProfileRate`.
///
/// Shorter waits that are recorded count for those that are not: so the sums are right on average.
pub fn set_block_profile_rate(nanoseconds: u64) {
    blocks::RATE.store(nanoseconds, Ordering::Relaxed);
}

/// The rate that [`set_block_profile_rate`] has set.
#[must_use]
pub fn block_profile_rate() -> u64 {
    blocks::RATE.load(Ordering::Relaxed)
}

/// Returns the mutex profile: all charges since the process began.
///
/// Looks up the names of functions, which takes microseconds each, in debug builds a third of a millisecond.
#[must_use]
pub fn mutex() -> Profile {
    Profile::new("mutex", releases::SITES.all())
}

/// Returns the block profile: all recorded waits since the process began.
#[must_use]
pub fn block() -> Profile {
    Profile::new("block", blocks::SITES.all())
}

/// Waits by the stacks that they are charged to.
///
/// `Display` prints the stacks, the longest waits first.
#[derive(Clone, Debug)]
pub struct Profile {
    name: &'static str,
    records: Vec<Record>,
}

/// The waits that are charged to a stack.
#[derive(Clone, Debug)]
pub struct Record {
    count: f64,
    delay: Duration,
    /// Innermost first, without the runtime's own.
    frames: Vec<Frame>,
}

/// A function on a stack.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct Frame {
    /// The function's path, or its address if the binary has no symbols.
    pub function: String,
    /// The source file. Empty if the binary does not have the information.
    pub file: String,
    /// The line of the call, 1 and up. 0 if the binary does not have the information.
    pub line: u32,
}

impl Profile {
    fn new(name: &'static str, sites: impl Iterator<Item = (&'static [usize], Charges)>) -> Self {
        // Stacks that differ in the runtime's own frames only are the same.
        let mut by_stack = HashMap::<Vec<Frame>, Charges>::new();
        if !has_room(ROOM) {
            // A goroutine with a small stack: names are looked up on a thread.
            let sites: Vec<_> = sites.collect();
            let on_thread = || Self::new(name, sites.into_iter());
            return thread::scope(|s| s.spawn(on_thread).join()).unwrap_or_else(|panic| resume_unwind(panic));
        }
        let mut symbols = Symbols::default();
        for (addresses, Charges { count, delay }) in sites {
            let same = by_stack.entry(text::frames_of_the_user(addresses, &mut symbols)).or_default();
            same.count += count;
            same.delay = same.delay.saturating_add(delay);
        }
        let record = |(frames, Charges { count, delay })| Record { count, delay, frames };
        let mut records: Vec<Record> = by_stack.into_iter().map(record).collect();
        records.sort_by_key(|record| Reverse(record.delay));
        Self { name, records }
    }

    /// The records, the longest delays first.
    #[must_use]
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// The sum of all delays.
    #[must_use]
    pub fn delay(&self) -> Duration {
        self.records.iter().map(|record| record.delay).sum()
    }
}

impl Record {
    /// The number of releases that have been charged, or of waits that have been recorded; those that were not sampled are
    /// estimated.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count.round() as u64
    }

    /// The sum of the waits that are charged to this stack.
    #[must_use]
    pub fn delay(&self) -> Duration {
        self.delay
    }

    /// The stack, innermost first: from the call into this project to the goroutine's or the thread's first function.
    #[must_use]
    pub fn frames(&self) -> &[Frame] {
        &self.frames
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} profile: {:?} in all", self.name, self.delay())?;
        for record in &self.records {
            writeln!(f, "\n{:?}, {} times", record.delay, record.count())?;
            for frame in &record.frames {
                writeln!(f, "      {}", frame.function)?;
                if !frame.file.is_empty() {
                    writeln!(f, "          at {}:{}", frame.file, frame.line)?;
                }
            }
        }
        Ok(())
    }
}
