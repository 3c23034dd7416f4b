//! The numbers of all workers at one moment.

use std::iter;
use std::time::Duration;

use crate::goroutine::native::blocking;
use crate::goroutine::native::metrics::histogram::Histogram;
use crate::goroutine::native::sched::scheduler::Sched;
use crate::goroutine::native::sched::worker::Worker;
use crate::sema::{lock_counts, mutex_wait};
use crate::shim::system::atomic::Ordering;

/// The numbers of the scheduler at about one moment: see [`metrics`].
///
/// [`values`](Self::values) has the numbers that Go has, by Go's names. With the feature `serde`, the numbers are
/// `Serialize`: times as those of `std`, the latencies as a list of buckets.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Metrics {
    /// The number of workers that may run goroutines at a time. Go: `/sched/gomaxprocs:threads`.
    pub max_procs: usize,
    /// The number of goroutines and async tasks that have been made and have not ended. The sum of `running`,
    /// `runnable`, `blocking` and `waiting`. Go: `/sched/goroutines:goroutines`.
    pub goroutines: usize,
    /// The number of goroutines and async tasks made since the process began. Go:
    /// `/sched/goroutines-created:goroutines`.
    pub goroutines_created: u64,
    /// The number of goroutines that run. Go: `/sched/goroutines/running:goroutines`.
    pub running: usize,
    /// The number of goroutines that could run, and wait for a worker. A goroutine that another worker, or a thread,
    /// has just readied or placed is counted in `waiting` until the goroutine's own worker has noticed. Go:
    /// `/sched/goroutines/runnable:goroutines`.
    pub runnable: usize,
    /// The number of goroutines whose call of [`blocking`](fn@crate::goroutine::blocking) or
    /// [`compute`](crate::goroutine::compute) runs on a thread. Go: `/sched/goroutines/not-in-go:goroutines`, which
    /// counts system calls and calls of C functions.
    pub blocking: usize,
    /// The number of goroutines and async tasks that wait for anything else: for a lock, a channel, a time, a socket.
    /// Go: `/sched/goroutines/waiting:goroutines`.
    pub waiting: usize,
    /// The number of threads of the scheduler: workers, and threads for blocking calls. The watcher and the threads for
    /// alarms are not counted. Go: `/sched/threads/total:threads`.
    pub threads: usize,
    /// The time that goroutines and threads have waited for mutexes, readers-writer locks and semaphores over Go's
    /// semaphore table, in waits that have ended. Go: `/sync/mutex/wait/total:seconds`.
    pub mutex_wait: Duration,
    /// The number of times that a contender has turned the starvation mode of a mutex on. Go has no such number.
    pub mutex_starvations: u64,
    /// The number of times that a contender has locked a mutex after spinning or watching, without a sleep. Go has no
    /// such number.
    pub mutex_spin_wins: u64,
    /// The latencies of readied goroutines: the times from the moment when a goroutine was readied to the moment when
    /// the goroutine ran. One in eight is measured, as in Go; a worker measures at most eight at the same time. The
    /// wait of a goroutine that has not begun is not measured. If another worker, or a thread, has readied the
    /// goroutine, the time until the goroutine's own worker noticed is not included. Go: `/sched/latencies:seconds`.
    pub latencies: Histogram,
    /// Each worker, by its index. Workers start when there is work for them.
    pub workers: Vec<WorkerMetrics>,
}

/// The numbers of a worker.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WorkerMetrics {
    /// True if the worker has no work: the worker looks for work, or sleeps.
    pub is_idle: bool,
    /// The number of goroutines and tasks that the worker has queued.
    pub run_queue: usize,
    /// The number of goroutines that have begun on the worker, and stay there until they end.
    pub goroutines: usize,
    /// The number of times that the worker has stolen work from other workers.
    pub steals: u64,
    /// The number of times that the worker has gone to sleep.
    pub sleeps: u64,
    /// The number of searches for work that ended without work, because the time of the search was over.
    pub vain_searches: u64,
    /// The number of times that the worker, while searching, has yielded the processor to another worker.
    pub yields: u64,
}

/// Returns the numbers of the scheduler. Takes no lock that is held for long, and stops no worker. So the numbers of
/// running workers may come from slightly different moments. Go's package `runtime/metrics`.
///
/// Goroutines in a bubble of [`synctest`](crate::goroutine::synctest) are not counted.
///
/// The feature costs four instructions for each switch. The clock is read twice for each wait for a lock, and twice for
/// one in eight of the goroutines that are readied. A contender of a mutex that has won by spinning writes to a count
/// that all mutexes share.
///
/// # Examples
///
/// ```
/// use sudog::runtime::metrics;
///
/// for (name, value) in metrics().values() {
///     println!("{name} {value}");
/// }
/// ```
#[must_use]
pub fn metrics() -> Metrics {
    of(Sched::process())
}

fn of(sched: &Sched) -> Metrics {
    let workers: Vec<_> = sched.workers().map(WorkerMetrics::of).collect();
    let busy = workers.iter().filter(|worker| !worker.is_idle).count();
    let queued = workers.iter().map(|worker| worker.run_queue).sum::<usize>() + sched.global_work();
    let goroutines = sched.live();
    // The numbers were read one after the other, so a sum may be too large. Each goroutine is counted once.
    let running = busy.min(goroutines);
    let runnable = queued.min(goroutines - running);
    let blocking = blocking::calls_that_run().min(goroutines - running - runnable);
    Metrics {
        max_procs: sched.procs(),
        goroutines,
        goroutines_created: sched.created(),
        running,
        runnable,
        blocking,
        waiting: goroutines - running - runnable - blocking,
        threads: workers.len() + blocking::threads(),
        mutex_wait: mutex_wait::waited(),
        mutex_starvations: lock_counts::STARVATIONS.get(),
        mutex_spin_wins: lock_counts::SPIN_WINS.get(),
        latencies: Histogram::sum(sched.workers().map(|worker| &worker.counters.latencies)),
        workers,
    }
}

impl WorkerMetrics {
    fn of(worker: &Worker) -> Self {
        let load = |count: &_| crate::shim::system::atomic::AtomicU64::load(count, Ordering::Relaxed);
        Self {
            is_idle: worker.looking.load(Ordering::Relaxed),
            run_queue: worker.own.run_queue.len() + worker.ring.len(),
            goroutines: worker.population.load(Ordering::Relaxed) as usize,
            steals: load(&worker.counters.steals),
            sleeps: load(&worker.counters.sleeps),
            vain_searches: load(&worker.vain_searches),
            yields: load(&worker.yields),
        }
    }
}

impl Metrics {
    /// Returns those numbers that Go's `runtime/metrics` has, too, with Go's names, which contain the units:
    /// goroutines, threads, seconds. For exporters. The latencies are not included: see [`Metrics::latencies`].
    pub fn values(&self) -> impl Iterator<Item = (&'static str, f64)> {
        let numbers = [
            ("/sched/gomaxprocs:threads", self.max_procs as f64),
            ("/sched/goroutines-created:goroutines", self.goroutines_created as f64),
            ("/sched/goroutines/not-in-go:goroutines", self.blocking as f64),
            ("/sched/goroutines/runnable:goroutines", self.runnable as f64),
            ("/sched/goroutines/running:goroutines", self.running as f64),
            ("/sched/goroutines/waiting:goroutines", self.waiting as f64),
            ("/sched/goroutines:goroutines", self.goroutines as f64),
            ("/sched/threads/total:threads", self.threads as f64),
        ];
        numbers.into_iter().chain(iter::once(("/sync/mutex/wait/total:seconds", self.mutex_wait.as_secs_f64())))
    }
}
