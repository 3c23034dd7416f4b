//! The worker, and the queue, in which a new goroutine waits for its beginning.

use crate::goroutine::native::fibre::current;
use crate::goroutine::native::fibre::job::Work;
#[cfg(feature = "metrics")]
use crate::goroutine::native::metrics::schedtrace;
use crate::goroutine::native::sched::scheduler::Sched;
use crate::goroutine::native::sched::worker::Worker;
use crate::goroutine::native::{fork, together};

/// The choice of the worker that starts a goroutine, and so runs the goroutine to the end.
///
/// # Examples
///
/// Two goroutines that talk to each other a lot are better off on one worker. (For more than two:
/// [`together`](fn@crate::goroutine::together).)
///
/// ```
/// use std::thread::current;
/// use sudog::{Builder, Placement, run};
///
/// run(|| {
///     let neighbour = Builder::new().on(Placement::Here).spawn(|| current().id());
///     assert_eq!(neighbour.join().unwrap(), current().id());
/// });
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Placement {
    /// Any worker that has time; under [`together`](fn@crate::goroutine::together) the caller's worker.
    #[default]
    Any,
    /// The caller's worker. For a caller that is no goroutine: any worker.
    Here,
    /// The caller's worker, ahead of the caller: the goroutine begins at once, and the caller goes to the end of the
    /// worker's run queue. (If the caller's time slice is over, the goroutines in the run queue have their turn first.)
    /// For a caller that is no goroutine: any worker. Source: the order of a call in Skaller's *Communicating
    /// Sequential Processes in C++*.
    First,
    /// The worker with this number, from 0 to [`max_procs`](crate::goroutine::max_procs)` - 1`.
    Worker(usize),
}

/// The queue into which a new goroutine goes.
pub(super) enum Place {
    Any,
    /// The end of this worker's run queue.
    Here(&'static Worker),
    /// The front of this worker's run queue: the goroutine begins before the caller goes on.
    First(&'static Worker),
    /// The worker that [`Placement::Worker`] names.
    There(&'static Worker),
}

impl Place {
    /// Returns the place that `placement` means for the calling goroutine or thread.
    ///
    /// # Panics
    ///
    /// If `placement` names a worker that does not exist.
    #[cold]
    #[track_caller]
    pub(super) fn of(placement: Placement) -> Self {
        match (placement, current::worker()) {
            (Placement::Here, Some(worker)) => Self::Here(worker),
            (Placement::Any, Some(worker)) if together::is_here() => Self::Here(worker),
            (Placement::First, Some(worker)) => Self::First(worker),
            (Placement::Worker(index), _) => {
                let sched = sched();
                let worker = sched.start_up_to(index).then(|| sched.worker(index)).flatten();
                let Some(worker) = worker else {
                    panic!("no worker {index}: there are {}, numbered from 0", sched.procs());
                };
                Self::There(worker)
            }
            _ => Self::Any,
        }
    }
}

/// Returns the scheduler in which the caller starts goroutines and tasks: that of the calling worker; on other threads
/// that of the process. Where a thread starts them, the watcher gets the work that the scheduler does not hand in.
#[inline]
pub(super) fn sched() -> &'static Sched {
    current::worker().map_or_else(process, Worker::sched)
}

fn process() -> &'static Sched {
    #[cfg(feature = "metrics")]
    schedtrace::start();
    Sched::process()
}

#[cold]
pub(super) fn start_at(work: Work, place: Place) {
    fork::forbid_in_child();
    let sched = sched();
    sched.count_made();
    match place {
        Place::Any => sched.submit(work),
        // `start_on` gives the work a stack, and so binds the work to this worker.
        Place::Here(worker) => worker.start_on(work, false).together.set(together::is_here()),
        Place::First(worker) => {
            worker.start_on(work, true).together.set(together::is_here());
            current::give_way();
        }
        Place::There(worker) => Sched::place(worker, [work]),
    }
}
