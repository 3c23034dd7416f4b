//! The contenders: threads, or goroutines. The benchmarks are written once, for both.
//!
//! | | threads | goroutines |
//! |---|---|---|
//! | run on | the processors that the system gives them | as many workers as were asked for |
//! | are spread | by the system | evenly, and for good: a goroutine stays on the worker that it began on |
//! | wait at the [`Gate`] | asleep: spinning contenders would keep others from reaching the gate | yielding to each other, so that all are ready when the gate opens |
//! | end | when they see the stop | likewise: nothing interrupts a goroutine |
//!
//! In both cases the caller, which keeps the time, is a thread and not a worker. So the system sees to it that the
//! caller runs, whatever the contenders do; the system does so for every thread, and for no goroutine.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use sudog_runtime::shim::num_cpus;
use sudog_runtime::shim::system::atomic::{AtomicUsize, Ordering};
use sudog_runtime::shim::system::thread;
use sudog_runtime::shim::system::{Mutex, OnceLock};

use clap::ValueEnum;
use serde::Serialize;
#[cfg(unix)]
use sudog_runtime::goroutine::{Builder, Placement, gosched, max_procs, set_max_procs};

use crate::run::pinned::Pinned;
use crate::targets::target::Target;

/// The kinds of contenders.
#[derive(Clone, Copy, PartialEq, Eq, Default, ValueEnum, Debug)]
pub enum Kind {
    /// Threads, which the system runs on any processor.
    #[default]
    Threads,
    /// Threads that keep their processors.
    PinnedThreads,
    /// Goroutines of one scheduler.
    Goroutines,
}

/// The kind of a run's contenders, and the number of workers of goroutines.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Debug)]
#[serde(tag = "on", rename_all = "kebab-case")]
pub enum Contenders {
    /// Threads of the operating system.
    Threads,
    /// Threads, each pinned to one processor. Contender n runs on processor n of the processors that the process may
    /// use, modulo their number.
    PinnedThreads,
    /// Goroutines, on workers.
    #[cfg(unix)]
    Goroutines {
        /// The number of workers. The whole process has this number, so contenders that run at the same time must have
        /// the same number.
        workers: usize,
    },
}

/// A gate at which contenders wait until all have arrived.
#[derive(Debug)]
pub struct Gate {
    contenders: Contenders,
    /// Unset until it is known whether all contenders could be started; then true if they could.
    open: OnceLock<bool>,
    arrived: AtomicUsize,
}

/// The function that a contender runs, with the contender's number.
type Body<T = ()> = dyn Fn(usize, &Gate) -> T + Send + Sync;

/// A function that waits for a contender to end.
type Join<T> = Box<dyn FnOnce() -> thread::Result<T>>;

impl Contenders {
    /// Returns goroutines on this number of workers; if `workers` is `None`, on the runtime's current number. Fails on
    /// systems without goroutines.
    pub fn goroutines(workers: Option<usize>) -> Result<Self, String> {
        #[cfg(unix)]
        return Ok(Self::Goroutines { workers: workers.unwrap_or_else(max_procs) });
        #[cfg(not(unix))]
        return Err(format!("there are no goroutines on {}, on {workers:?} workers or any", std::env::consts::OS));
    }

    /// Returns whether the contenders are threads, pinned or not.
    pub fn are_threads(self) -> bool {
        matches!(self, Self::Threads | Self::PinnedThreads)
    }

    /// Returns whether these contenders may contend for `target`.
    ///
    /// Goroutines may not contend for a target that blocks threads. No deadlock would result in these benchmarks, as no
    /// goroutine yields while it holds the lock. But no goroutine would yield at all: the first goroutine of each
    /// worker would run until the stop, and keep all others out. So the run would measure as many threads as there are
    /// workers, however many goroutines contend.
    pub fn may_contend_for(self, target: Target) -> bool {
        self.are_threads() || !target.blocks_threads()
    }

    /// Returns whether the contenders are goroutines of which only one runs at a time.
    pub fn have_one_worker(self) -> bool {
        match self {
            Self::Threads | Self::PinnedThreads => false,
            #[cfg(unix)]
            Self::Goroutines { workers } => workers == 1,
        }
    }

    /// Runs `body` on `n` contenders, each with its number, and returns their results. Each contender must wait at the
    /// gate, once. When all have arrived, the caller runs `conduct`, which must open the gate and make the contenders
    /// end.
    ///
    /// Fails if `n` contenders cannot be started. The contenders that have started then pass the gate, where
    /// [`Gate::wait`] returns false.
    ///
    /// `body` is called once per contender, so the indirect call is outside all measured times.
    pub fn fan_out<T, R>(
        self,
        n: usize,
        body: impl Fn(usize, &Gate) -> T + Send + Sync + 'static,
        conduct: impl FnOnce(&Gate) -> R,
    ) -> io::Result<(R, Vec<T>)>
    where
        T: Send + 'static,
    {
        let (mut conduct, mut conducted) = (Some(conduct), None);
        let mut conduct = |gate: &Gate| conducted = conduct.take().map(|conduct| conduct(gate));
        let results = self.collect(n, Arc::new(body), &mut conduct)?;
        Ok((conducted.expect("all contenders have arrived, so `conduct` was called"), results))
    }

    /// Does the part of [`Self::fan_out`] that needs only the type of the results: this part is not compiled for each
    /// lock under measurement.
    fn collect<T: Send + 'static>(
        self,
        n: usize,
        body: Arc<Body<T>>,
        conduct: &mut dyn FnMut(&Gate),
    ) -> io::Result<Vec<T>> {
        let results: Arc<[Mutex<Option<T>>]> = (0..n).map(|_| Mutex::new(None)).collect();
        let theirs = Arc::clone(&results);
        let body = move |number: usize, gate: &Gate| {
            let result = body(number, gate);
            *theirs[number].lock().expect("storing a result does not panic") = Some(result);
        };
        self.run_all(n, Arc::new(body), conduct)?;
        let result = |slot: &Mutex<Option<T>>| slot.lock().expect("storing a result does not panic").take();
        Ok(results.iter().map(|slot| result(slot).expect("every contender has stored its result")).collect())
    }

    /// Does the part of [`Self::fan_out`] that needs no types.
    fn run_all(self, n: usize, body: Arc<Body>, conduct: &mut dyn FnMut(&Gate)) -> io::Result<()> {
        let gate = Arc::new(Gate { contenders: self, open: OnceLock::new(), arrived: AtomicUsize::new(0) });
        let mut contenders = Vec::with_capacity(n);
        let mut missing = None;
        for number in 0..n {
            let (body, gate) = (Arc::clone(&body), Arc::clone(&gate));
            match self.spawn(number, move || body(number, &gate)) {
                Ok(contender) => contenders.push(contender),
                Err(error) => {
                    missing = Some(error);
                    break;
                }
            }
        }
        let conducted = match missing {
            None => {
                gate.wait_for(n);
                conduct(&gate);
                Ok(())
            }
            Some(error) => {
                gate.open(false);
                Err(error)
            }
        };
        contenders.into_iter().for_each(|join| join().expect("a contender does not panic"));
        conducted
    }

    /// Runs `body` as the only contender: on this thread, or as a goroutine.
    pub fn alone<T: Send + 'static>(self, body: impl FnOnce() -> T + Send + 'static) -> T {
        match self {
            Self::Threads | Self::PinnedThreads => body(),
            #[cfg(unix)]
            Self::Goroutines { .. } => {
                let join = self.spawn(0, body).expect("a goroutine can always be had");
                join().expect("a contender does not panic")
            }
        }
    }

    /// Makes the calling contender sleep.
    pub fn sleep(self, time: Duration) {
        match self {
            Self::Threads | Self::PinnedThreads => thread::sleep(time),
            #[cfg(unix)]
            Self::Goroutines { .. } => sudog_runtime::goroutine::sleep(time),
        }
    }

    fn spawn<T: Send + 'static>(self, number: usize, body: impl FnOnce() -> T + Send + 'static) -> io::Result<Join<T>> {
        let name = format!("contender {number}");
        match self {
            Self::Threads | Self::PinnedThreads => {
                let processor = (self == Self::PinnedThreads).then(|| number % num_cpus() as usize);
                let handle = thread::Builder::new().name(name).spawn(move || {
                    let _pinned = processor.map(Pinned::to);
                    body()
                })?;
                Ok(Box::new(|| handle.join()))
            }
            #[cfg(unix)]
            Self::Goroutines { workers } => {
                set_max_procs(workers);
                // Place the goroutines: otherwise the first worker to look would start, and keep, more than its share.
                let place = Placement::Worker(number % workers);
                let handle = Builder::new().name(name).on(place).spawn(body);
                Ok(Box::new(|| handle.join()))
            }
        }
    }
}

impl Gate {
    /// Waits until all contenders have arrived. Returns false if some of them could not be started.
    pub fn wait(&self) -> bool {
        self.arrived.fetch_add(1, Ordering::Relaxed);
        match self.contenders {
            Contenders::Threads | Contenders::PinnedThreads => *self.open.wait(),
            #[cfg(unix)]
            Contenders::Goroutines { .. } => loop {
                if let Some(&all) = self.open.get() {
                    return all;
                }
                gosched();
            },
        }
    }

    /// Lets the contenders pass. `all` is false if some contenders could not be started: then the contenders that pass
    /// must end. Called once.
    pub fn open(&self, all: bool) {
        self.open.set(all).expect("the gate is opened once");
    }

    fn wait_for(&self, n: usize) {
        while self.arrived.load(Ordering::Relaxed) < n {
            thread::yield_now();
        }
    }
}

/// Formats the kind and the number of workers, as in "on threads", "on goroutines (2 workers)".
impl fmt::Display for Contenders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Threads => f.write_str("threads"),
            Self::PinnedThreads => f.write_str("pinned threads"),
            #[cfg(unix)]
            Self::Goroutines { workers: 1 } => f.write_str("goroutines (1 worker)"),
            #[cfg(unix)]
            Self::Goroutines { workers } => write!(f, "goroutines ({workers} workers)"),
        }
    }
}

/// The number of workers in tests. All tests use the same number, as the number is the process's and tests run in
/// parallel.
#[cfg(test)]
pub(crate) const TEST_WORKERS: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::targets::locks::LockName;

    #[test]
    fn threads_bring_home_what_they_have() {
        let (conducted, brought) = Contenders::Threads
            .fan_out(5, |number, gate| (number, gate.wait()), |gate| gate.open(true))
            .expect("five threads can be had");
        assert_eq!(conducted, ());
        assert_eq!(brought, [0, 1, 2, 3, 4].map(|number| (number, true)));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn pinned_threads_stay_on_a_processor_each() {
        let home = |_, gate: &Gate| {
            assert!(gate.wait());
            let before = nix::sched::sched_getcpu().expect("Linux tells");
            (0..10).for_each(|_| thread::yield_now());
            (before, nix::sched::sched_getcpu().expect("Linux tells"))
        };
        let processors = num_cpus() as usize;
        let ((), homes) = Contenders::PinnedThreads
            .fan_out(2 * processors, home, |gate| gate.open(true))
            .expect("a few threads can be had");
        assert!(homes.iter().all(|(before, after)| before == after), "{homes:?}");
        assert!((0..processors).all(|number| homes[number] == homes[number + processors]), "{homes:?}");
        let mut first: Vec<_> = homes[..processors].to_vec();
        first.sort_unstable();
        first.dedup();
        assert_eq!(first.len(), processors, "{homes:?}");
    }

    #[test]
    #[cfg(unix)]
    fn goroutines_are_spread_over_the_workers() {
        use std::collections::HashSet;
        use sudog_runtime::goroutine::on_goroutine;

        const WORKERS: usize = TEST_WORKERS;
        let home = |_, gate: &Gate| {
            let before = (on_goroutine(), thread::current().id());
            assert!(gate.wait());
            (before, (on_goroutine(), thread::current().id()))
        };
        let goroutines = Contenders::goroutines(Some(WORKERS)).unwrap();
        let (caller, homes) = goroutines
            .fan_out(10, home, |gate| {
                gate.open(true);
                (on_goroutine(), thread::current().id())
            })
            .unwrap();
        assert_eq!(caller, (false, thread::current().id()));
        assert!(homes.iter().all(|(before, after)| before == after && before.0));
        let threads: Vec<_> = homes.iter().map(|((_, thread), _)| *thread).collect();
        assert_eq!(threads.iter().collect::<HashSet<_>>().len(), WORKERS);
        assert!((WORKERS..10).all(|number| threads[number] == threads[number - WORKERS]));
        assert!(goroutines.alone(on_goroutine));
    }

    #[test]
    fn a_thread_may_contend_for_anything() {
        assert!(LockName::ALL.iter().all(|&lock| Contenders::Threads.may_contend_for(lock.into())));
    }
}
