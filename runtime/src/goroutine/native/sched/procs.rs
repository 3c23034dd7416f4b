//! The default number of workers, for programs that do not set the number. The watcher reads the number anew each
//! second, and follows its changes ([`Follower`]), until the program sets a number.
//!
//! The number is as in Go 1.25 and later: a worker for each processor that this thread may run on, but no more workers
//! than the cgroup's quota of processor time allows; and two at least, whatever the quota, where there are two
//! processors.
//!
//! `std` reads the quota of cgroup v2 or v1, and takes the smallest quota of all groups from the process's own group up
//! to the root. Go looks at the own group only. `std` rounds a quota of 2.5 processors down, where Go rounds up.
//! Rounding down is right here: if there are more workers than the quota allows, the system stops all of them for a
//! part of each period, and a goroutine whose worker is stopped cannot go on elsewhere.
//!
//! `SUDOG_MAXPROCS` overrides all of that, as `GOMAXPROCS` does in Go. Go ignores a value that is no positive number;
//! in this runtime such a value is a fatal error.

use std::ffi::OsStr;
use std::fs::File;
use std::num::NonZeroUsize;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use crate::fatal;
use crate::shim::num_cpus;

const VARIABLE: &str = "SUDOG_MAXPROCS";

/// The time between two looks at the quota: as in Go 1.25.
const INTERVAL: Duration = Duration::from_secs(1);

/// Sees that the default number of workers has changed: the cgroup's quota, or the processors that the caller's thread may
/// run on.
///
/// A follower compares the number with its own last reading, and not with the present number of workers: the thread
/// that has started the workers may have other processors than the thread of the follower.
pub(super) struct Follower {
    /// The number at the last look, and the time of the next look. None before the first look.
    last: Option<(usize, Instant)>,
}

impl Follower {
    /// Returns a follower, unless the environment has set the number of workers.
    pub(super) fn new() -> Option<Self> {
        std::env::var_os(VARIABLE).is_none().then_some(Self { last: None })
    }

    /// Looks at the number, at most once in each interval. Returns the number if it has changed.
    pub(super) fn tick(&mut self, now: Instant) -> Option<usize> {
        self.tick_with(now, || {
            // If no descriptor is left, `available_parallelism` finds no quota. So try whether a file can be opened.
            let readable = File::open("/proc/self/cgroup").is_ok();
            readable.then(|| by_machine(available_parallelism().ok(), num_cpus()))
        })
    }

    /// Does as [`tick`](Self::tick) does, with a function that reads the number. If that fails, the number counts as
    /// unchanged.
    fn tick_with(&mut self, now: Instant, read: impl FnOnce() -> Option<usize>) -> Option<usize> {
        if self.last.is_some_and(|(_, next)| now < next) {
            return None;
        }
        let before = self.last.map(|(n, _)| n);
        let n = read().or(before)?;
        self.last = Some((n, now + INTERVAL));
        before.is_some_and(|before| before != n).then_some(n)
    }
}

/// Returns the number of workers to start. Reads files and allocates, so this is called once.
pub(crate) fn default_procs() -> usize {
    match std::env::var_os(VARIABLE) {
        Some(value) => parse(&value).unwrap_or_else(|| {
            fatal(&format!("{VARIABLE} is {value:?}: it must be a number of workers, 1 or more, or not be set"))
        }),
        None => by_machine(available_parallelism().ok(), num_cpus()),
    }
}

fn parse(value: &OsStr) -> Option<usize> {
    // Accept no sign: only a number that `parse` takes, with a digit in front.
    let value = value.to_str().filter(|value| value.starts_with(|c: char| c.is_ascii_digit()))?;
    value.parse().ok().map(NonZeroUsize::get)
}

/// Returns the number of workers. `parallelism` is `std`'s answer, which respects the quota; `cpus` is the number of
/// processors, whatever the quota.
fn by_machine(parallelism: Option<NonZeroUsize>, cpus: u32) -> usize {
    match parallelism.map_or(1, NonZeroUsize::get) {
        // The quota is below 2. With a single worker, a call that blocks that worker's thread would block all
        // goroutines.
        1 if cpus > 1 => 2,
        n => n,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::goroutine::native::sched::scheduler::Sched;
    use crate::goroutine::set_max_procs;

    #[test]
    fn a_positive_number_and_nothing_else() {
        for (text, number) in [("1", 1), ("16", 16), ("007", 7), ("4096", 4096)] {
            assert_eq!(parse(OsStr::new(text)), Some(number), "{text:?}");
        }
        for text in ["", "0", "00", "-1", "+1", " 1", "1 ", "1\n", "2.5", "0x2", "two", "99999999999999999999999"] {
            assert_eq!(parse(OsStr::new(text)), None, "{text:?}");
        }
        #[cfg(unix)]
        assert_eq!(parse(std::os::unix::ffi::OsStrExt::from_bytes(b"1\xff")), None);
    }

    #[test]
    fn two_at_least_where_there_are_two() {
        // std's answer (0: none), processors, workers
        for (parallelism, cpus, procs) in [(8, 8, 8), (3, 8, 3), (2, 8, 2), (1, 8, 2), (1, 2, 2), (1, 1, 1), (0, 1, 1)]
        {
            assert_eq!(by_machine(NonZeroUsize::new(parallelism), cpus), procs, "{parallelism} of {cpus}");
        }
        // There are more processors than the shim can count: the shim says 1.
        assert_eq!(by_machine(NonZeroUsize::new(2000), 1), 2000);
    }

    #[test]
    fn a_quota_that_changes() {
        let start = Instant::now();
        let mut follower = Follower { last: None };
        let mut tick = |millis, n: Option<Option<usize>>| {
            follower.tick_with(start + Duration::from_millis(millis), || n.expect("not more than once a second"))
        };
        // time, the number that is read (none: nothing is read; `Some(None)`: the read fails), the change
        assert_eq!(tick(0, Some(Some(8))), None);
        assert_eq!(tick(10, None), None);
        assert_eq!(tick(1_000, Some(Some(8))), None);
        assert_eq!(tick(2_001, Some(Some(4))), Some(4));
        assert_eq!(tick(3_000, None), None);
        assert_eq!(tick(3_001, Some(None)), None);
        assert_eq!(tick(4_001, Some(Some(4))), None);
        assert_eq!(tick(9_000, Some(Some(6))), Some(6));
    }

    #[test]
    fn a_number_that_the_program_sets_stays() {
        // All tests of this process set this number.
        set_max_procs(2);
        Sched::follow_quota(7);
        assert_eq!(Sched::process().procs(), 2);
    }

    #[test]
    fn there_is_always_one() {
        if std::env::var_os(VARIABLE).is_none() {
            assert!(default_procs() >= 1);
        }
    }
}
