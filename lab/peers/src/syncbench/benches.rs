//! The list of benchmarks.

use std::sync::LazyLock;

use serde::Serialize;
use sudog_sync::{Once, RawRwLock, WaitGroup};

use super::contestant::{Contestant, Role, over};
use super::map::{self, mixes};
use super::round::{Round, Timed};
use super::rw_mutex::RwRole;
use super::{cond, once, pool, rw_mutex, wait_group};
use crate::listed::listed;
use crate::rounds::WORK;
use crate::targets::rw_locks::{RwJob, RwLockName, with_rw_lock};

/// A family of benchmarks, which share a table.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Debug)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// Readers-writer locks.
    RwMutex,
    WaitGroup,
    /// Types that run a function once.
    Once,
    Pool,
    Map,
    /// Conditions.
    Cond,
}

impl Family {
    /// All families, in the order in which they are shown.
    pub const ALL: [Self; 6] = [Self::RwMutex, Self::WaitGroup, Self::Once, Self::Pool, Self::Map, Self::Cond];

    /// Returns the headline of the family's table.
    pub const fn headline(self) -> &'static str {
        match self {
            Self::RwMutex => {
                "RWMutex; floor: the Go mutex, for readers as well, which a readers-writer lock has to beat"
            }
            Self::WaitGroup => "WaitGroup; floor: two RMWs on one word",
            Self::Once => "Once; floor: an Acquire load",
            Self::Pool => "Pool; floor: two RMWs on one word",
            Self::Map => "Map: keys and values of 64 bits, one hash for all",
            Self::Cond => "Cond: T threads at a barrier; an operation is a barrier",
        }
    }
}

/// A benchmark.
#[derive(Debug)]
pub struct Bench {
    /// Go's name of the benchmark.
    pub name: &'static str,
    /// The family of the benchmark.
    pub family: Family,
    pub contestants: Vec<Contestant>,
    /// The number of threads of a benchmark that runs with a fixed number of threads.
    fixed_threads: Option<usize>,
}

impl Bench {
    fn new(family: Family, name: &'static str, contestants: Vec<Contestant>) -> Self {
        Self { name, family, contestants, fixed_threads: None }
    }

    /// Returns the numbers of threads to measure with, if `asked` are asked for.
    pub fn threads<'a>(&self, asked: &'a [usize]) -> impl Iterator<Item = usize> + use<'a> {
        let (fixed, asked) = match self.fixed_threads {
            Some(threads) => (Some(threads), &[][..]),
            None => (None, asked),
        };
        fixed.into_iter().chain(asked.iter().copied())
    }
}

static ALL: LazyLock<Vec<Bench>> =
    LazyLock::new(|| [rw_mutexes(), wait_groups(), onces(), pools(), maps(), conds()].into_iter().flatten().collect());

fn rw_mutexes() -> Vec<Bench> {
    let bench = |name, contestants| Bench::new(Family::RwMutex, name, contestants);
    vec![
        bench("RWMutexUncontended", over!(rw_mutexes, |L, round| rw_mutex::uncontended::<L>(round))),
        bench("RWMutexWrite100", over!(rw_mutexes, |L, round| rw_mutex::mixed::<L, _>(round, 100, 0))),
        bench("RWMutexWrite10", over!(rw_mutexes, |L, round| rw_mutex::mixed::<L, _>(round, 10, 0))),
        bench("RWMutexWorkWrite100", over!(rw_mutexes, |L, round| rw_mutex::mixed::<L, _>(round, 100, WORK))),
        bench("RWMutexWorkWrite10", over!(rw_mutexes, |L, round| rw_mutex::mixed::<L, _>(round, 10, WORK))),
    ]
}

fn wait_groups() -> Vec<Bench> {
    let bench = |name, contestants| Bench::new(Family::WaitGroup, name, contestants);
    let mut uncontended = over!(wait_groups, |G, round| wait_group::uncontended::<G>(round));
    // Crossbeam's wait group is consumed by `wait`, so no thread can wait again and again.
    uncontended.retain(|contestant| contestant.name != "crossbeam");
    vec![
        bench("WaitGroupUncontended", uncontended),
        bench("WaitGroupAddDone", over!(wait_groups, |G, round| wait_group::add_done::<G>(round))),
    ]
}

fn onces() -> Vec<Bench> {
    vec![Bench::new(Family::Once, "Once", over!(onces, |O, round| once::once::<O, _>(round)))]
}

fn pools() -> Vec<Bench> {
    let bench = |name, contestants| Bench::new(Family::Pool, name, contestants);
    vec![
        bench("Pool", over!(pools, |P, round| pool::pool::<P>(round))),
        bench("PoolOverflow", over!(pools, |P, round| pool::many::<P>(round, 100, 100))),
        bench("PoolStarvation", over!(pools, |P, round| pool::many::<P>(round, 67, 100))),
    ]
}

fn maps() -> Vec<Bench> {
    macro_rules! benches {
        ($($name:literal, $about:literal, $mix:ident($($n:expr),*);)+) => {
            vec![$(
                Bench::new(
                    Family::Map,
                    concat!("Map", $name),
                    over!(maps, |M, round| mixes::$mix::<M, _>(round $(, $n)*)),
                ),
            )+]
        };
    }
    mixes::all!(benches!())
}

fn conds() -> Vec<Bench> {
    let bench = |name, waiters| Bench {
        fixed_threads: Some(waiters + 1),
        ..Bench::new(Family::Cond, name, cond::contestants(waiters))
    };
    let all = [("Cond1", 1), ("Cond2", 2), ("Cond4", 4), ("Cond8", 8), ("Cond16", 16), ("Cond32", 32)];
    all.into_iter().map(|(name, waiters)| bench(name, waiters)).collect()
}

listed! {
    /// A benchmark, by name.
    BenchName of Bench, in ALL;
    format_args!("known: {}", ALL.iter().map(|bench| bench.name).collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_are_different_and_are_found() {
        let names: HashSet<_> = BenchName::all().map(|bench| bench.name).collect();
        assert_eq!(names.len(), ALL.len());
        assert!(BenchName::all().all(|bench| bench.name.parse() == Ok(bench)));
    }

    #[test]
    fn everybody_does_every_operation() {
        for bench in BenchName::all() {
            for threads in bench.threads(&[1, 3]) {
                for contestant in &bench.contestants {
                    let time = contestant.time(&Round { threads, n: 1000 }).unwrap();
                    assert!(!time.is_zero(), "{} {}", bench.name, contestant.name);
                }
            }
            assert!(bench.contestants.iter().any(|contestant| contestant.role == Role::Ours), "{}", bench.name);
        }
    }

    #[test]
    fn a_cond_has_its_own_number_of_threads() {
        let threads = |name: &str| name.parse::<BenchName>().unwrap().threads(&[1, 2]).collect::<Vec<_>>();
        assert_eq!((threads("Cond8"), threads("Once")), (vec![9], vec![1, 2]));
    }
}
