//! Profiles of waits: which release of a lock made others wait, and which calls waited, each with its stack. (Feature
//! `profile`.)
//!
//! | profile | is enabled by | a wait is charged to | with the stack of |
//! |---|---|---|---|
//! | mutex | [`set_mutex_profile_fraction`] | the releases that happen during the wait, each for its part of the wait | the releasing call |
//! | block | [`set_block_profile_rate`] | the call that waited | the call that waited |
//!
//! The mutex profile has the waits of threads, goroutines and async tasks for mutexes, readers-writer locks and
//! semaphores over Go's semaphore table, which is the default of all of them. The block profile has the waits of
//! threads and goroutines in all calls that wait through [`G`](crate::G): for these locks, channels, `select`,
//! conditions, wait groups, sockets, `join`. Neither profile has sleeps, or the waits of locks that spin or call the
//! futex themselves. The block profile has no waits of tasks, as a task has no stack.
//!
//! The mutex profile is exact where Go's is not (golang/go#73760): if `n` waiters have waited since times whose sum is
//! `sum`, a release is charged `n * now - sum`, and their waits begin again at `now`. The wait of a waiter that gives
//! up is charged to the next release that wakes another waiter; if all waiters give up, to no release.
//!
//! Times are those of [`goroutine::now`](crate::goroutine::now). In a bubble of
//! [`synctest`](crate::goroutine::synctest) this is the time of the bubble, so a test can demand exact figures for
//! locks that only the bubble uses.
//!
//! A profile that is off costs a load and a predicted branch each time a caller is about to wait or finds a waiter. In
//! a build without the feature, profiles cost nothing. A profile that is on reads the clock, takes a lock of its own,
//! and walks the stack of each event that is sampled; memory for new stacks comes from the system, not from the global
//! allocator.
//!
//! Go: `runtime/mprof.go` (`SetMutexProfileFraction`, `SetBlockProfileRate`), `mutexevent` and `blockevent` in
//! `runtime/sema.go` (1.27).
//!
//! # Examples
//!
//! ```standalone_crate
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

use crate::goroutine::{GoroutineInfo, has_room};
use crate::shim::system::atomic::Ordering;
use crate::shim::system::thread;

pub(crate) use blocks::Blocked;
pub(crate) use releases::{QueuedWait, Released};
use sites::Charges;
pub(crate) use sites::addresses;
use text::Symbols;

/// The bytes of stack that the lookup of names needs.
const ROOM: usize = 128 << 10;

/// Sets the fraction of the mutex profile. Of the releases that wake waiters, one in `fraction` is chosen at random,
/// and is charged `fraction` times its part of the waits; 0 turns the mutex profile off. Returns the previous fraction.
/// Go's `runtime.SetMutexProfileFraction`.
///
/// Charges stay when the profile is turned off. Waits that begin while the profile is off are not counted.
pub fn set_mutex_profile_fraction(fraction: u32) -> u32 {
    releases::FRACTION.swap(fraction, Ordering::Relaxed)
}

/// Returns the fraction that [`set_mutex_profile_fraction`] has set.
#[must_use]
pub fn mutex_profile_fraction() -> u32 {
    releases::FRACTION.load(Ordering::Relaxed)
}

/// Sets the rate of the block profile. All waits of `nanoseconds` or more are recorded. Of the shorter waits, one is
/// recorded for each `nanoseconds` of waiting, on average. 1 records all waits, 0 turns the block profile off. Go's
/// `runtime.SetBlockProfileRate`.
///
/// A shorter wait that is recorded counts also for the waits that are not recorded, so the sums are right on average.
pub fn set_block_profile_rate(nanoseconds: u64) {
    blocks::RATE.store(nanoseconds, Ordering::Relaxed);
}

/// Returns the rate that [`set_block_profile_rate`] has set.
#[must_use]
pub fn block_profile_rate() -> u64 {
    blocks::RATE.load(Ordering::Relaxed)
}

/// Returns the mutex profile: all charges since the process began.
///
/// This call looks up the names of functions. Each name takes microseconds, in debug builds a third of a millisecond.
#[must_use]
pub fn mutex() -> Profile {
    Profile::new("mutex", releases::SITES.all())
}

/// Returns the block profile: all recorded waits since the process began.
#[must_use]
pub fn block() -> Profile {
    Profile::new("block", blocks::SITES.all())
}

/// Returns goroutines as a profile: see [`Dump::profile`](crate::goroutine::Dump::profile).
pub(crate) fn of_goroutines(goroutines: &[GoroutineInfo]) -> Profile {
    let mut by_wait = HashMap::<_, Vec<_>>::new();
    for info in goroutines {
        // A goroutine without a stack has the closure that the goroutine runs in place of a stack.
        let closure = if info.addresses.is_empty() { info.started_as } else { "" };
        let wait = by_wait.entry((info.what(), closure)).or_default();
        wait.push((&*info.addresses, Charges { count: 1.0, delay: info.waited }));
    }
    let mut all = Profile { name: "goroutine", records: Vec::new() };
    for ((what, closure), stacks) in by_wait {
        let around = |record: Record| {
            let names = [what.as_str(), closure].into_iter().filter(|name| !name.is_empty());
            let around = names.map(|name| Frame { function: name.to_owned(), file: String::new(), line: 0 });
            Record { frames: around.chain(record.frames).collect(), ..record }
        };
        all.records.extend(Profile::new(all.name, stacks.into_iter()).records.into_iter().map(around));
    }
    all.sort();
    all
}

/// A profile: the waits, grouped by the stacks to which the waits are charged.
///
/// `Display` prints the stacks, the longest waits first.
#[derive(Clone, Debug)]
pub struct Profile {
    /// `mutex`, `block` or `goroutine`.
    name: &'static str,
    records: Vec<Record>,
}

/// The waits that are charged to a stack.
#[derive(Clone, Debug)]
pub struct Record {
    count: f64,
    delay: Duration,
    /// The functions on the stack, innermost first, without the runtime's own functions.
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
    fn new<'a>(name: &'static str, sites: impl Iterator<Item = (&'a [usize], Charges)>) -> Self {
        // Merge stacks that differ only in the runtime's own frames.
        let mut by_stack = HashMap::<Vec<Frame>, Charges>::new();
        if !has_room(ROOM) {
            // Look up the names on another thread, because this goroutine's stack is too small.
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
        let mut profile = Self { name, records: by_stack.into_iter().map(record).collect() };
        profile.sort();
        profile
    }

    fn sort(&mut self) {
        self.records.sort_by_key(|record| Reverse(record.delay));
    }

    /// Returns the records, the longest delays first.
    #[must_use]
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// Returns the sum of all delays.
    #[must_use]
    pub fn delay(&self) -> Duration {
        self.records.iter().map(|record| record.delay).sum()
    }
}

impl Record {
    /// Returns the number of releases (in the mutex profile), of waits (in the block profile), or of goroutines (in the
    /// profile of a dump) with this stack.
    /// Releases and waits that were not sampled are included by an estimate.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count.round() as u64
    }

    /// Returns the sum of the waits that are charged to this stack.
    #[must_use]
    pub fn delay(&self) -> Duration {
        self.delay
    }

    /// Returns the stack, innermost first: from the call into this project to the goroutine's or the thread's first
    /// function. In the profile of a dump, the innermost function is the kind of the wait.
    #[must_use]
    pub fn frames(&self) -> &[Frame] {
        &self.frames
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} profile: {:?} in all", self.name, self.delay())?;
        for record in &self.records {
            let counted = if self.name == "goroutine" { "goroutines" } else { "times" };
            writeln!(f, "\n{:?}, {} {counted}", record.delay, record.count())?;
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
