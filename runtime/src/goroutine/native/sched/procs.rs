//! The default number of workers, for programs that do not set the number.
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
use std::num::NonZeroUsize;
use std::thread::available_parallelism;

use crate::fatal;
use crate::shim::num_cpus;

const VARIABLE: &str = "SUDOG_MAXPROCS";

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
    fn there_is_always_one() {
        if std::env::var_os(VARIABLE).is_none() {
            assert!(default_procs() >= 1);
        }
    }
}
