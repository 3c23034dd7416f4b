//! Profiles of waits: which release of a lock made others wait, and which calls waited, each with its stack. (Feature
//! `profile`.)
//!
//! | profile | is enabled by | a wait is charged to | with the stack of |
//! |---|---|---|---|
//! | mutex | [`set_mutex_profile_fraction`] | the releases during it, each by its part | the release |
//! | block | [`set_block_profile_rate`] | itself | the call that waited |
//!
//! The mutex profile has all waits in Go's semaphore table: those for mutexes, readers-writer locks and semaphores, by
//! threads, goroutines and async tasks. The block profile has all waits of threads and goroutines in this project's primitives:
//! these, channels, `select`, conditions, wait groups, sockets, `join`. Sleeps are in neither; async tasks, which have no
//! stack, are not in the block profile.
//!
//! The mutex profile is exact where Go's is not (golang/go#73760): if `n` waiters have waited since times whose sum is `sum`,
//! a release is charged `n * now - sum`, and their waits begin again at `now`. So all charges together are all waits
//! together, up to their wake-ups. What a waiter has waited that gives up is charged to the next release that wakes a waiter.
//!
//! Times are those of [`goroutine::now`](crate::goroutine::now): in a bubble of
//! [`synctest`](crate::goroutine::synctest) the bubble's, so a test can demand exact figures.
//!
//! A profile that is off costs a load and a branch, which is predicted, where a caller is about to wait or finds a waiter;
//! a build without the feature nothing. A profile that is on reads the clock, takes a lock of its own, and walks the stack of
//! each event that is sampled.
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
mod text;

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use crate::shim::system::atomic::Ordering;

pub(crate) use blocks::blocks;
pub(crate) use releases::{QueuedWait, Released};
use sites::Charges;
use text::Symbols;

/// Charges one of `fraction` releases that wake waiters, at random, with `fraction` times its part; 0 turns the mutex profile
/// off. Returns the fraction before. Go's `runtime.SetMutexProfileFraction`.
///
/// What has been charged stays. Waits that begin before the profile is turned on are not counted.
pub fn set_mutex_profile_fraction(fraction: u32) -> u32 {
    releases::set_fraction(fraction)
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

/// Returns the mutex profile: all that has been charged since the process began.
#[must_use]
pub fn mutex() -> Profile {
    Profile::new("mutex", releases::SITES.all())
}

/// Returns the block profile: all that has been recorded since the process began.
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
    /// How many releases have been charged, or how many waits have been recorded; those that were not sampled are estimated.
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
