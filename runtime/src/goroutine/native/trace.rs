//! The steps of goroutines, as a trace records them: see [`steps`].
//!
//! All functions here are called where switches are observed. They take no lock, allocate nothing and call no user code.
//! ([`begins`] makes the thread's ring, if the thread has none.)
//!
//! A trace begins with [`start`], which asks each worker to [`mark`] the fibres that are suspended. From its next wait
//! on, a goroutine that has begun earlier is in the trace, too.

use crate::shim::system::atomic::{AtomicU32, Ordering};
use std::panic::Location;
use std::ptr;

use crate::ParkResult;
use crate::event::steps;
use crate::goroutine::native::fibre::job::Work;
use crate::goroutine::native::fibre::{Fibre, State, current};
use crate::goroutine::native::sched::scheduler::Sched;
use crate::goroutine::native::sched::worker::Worker;
use crate::goroutine::native::switch_hooks::{self, Leaving};

/// The number of traces that have begun. A worker compares the number with that of the last trace for which the worker
/// has marked its fibres.
static TRACES: AtomicU32 = AtomicU32::new(0);

/// Begins to trace. The recording is under way.
pub(crate) fn start() {
    switch_hooks::observe_trace(true);
    // Release: a worker that reads the number marks fibres, whose next switches then find the observer.
    TRACES.fetch_add(1, Ordering::Release);
    if let Some(fibre) = current::fibre() {
        fibre.observed.join();
        runs(fibre);
    }
    for worker in Sched::process().workers() {
        worker.asked.store(true, Ordering::Relaxed);
        worker.wake();
    }
}

/// Ends the trace.
pub(crate) fn stop() {
    switch_hooks::observe_trace(false);
}

/// Returns the number of rings that a trace needs for threads that cannot make a ring.
pub(crate) fn spare_rings() -> usize {
    /// Threads that are no workers, and wake goroutines.
    const OTHERS: usize = 8;
    Sched::process().procs() + OTHERS
}

/// Marks the suspended fibres of a worker, if a trace has begun since the last call. Called by the worker.
#[inline]
pub(crate) fn mark_once(worker: &'static Worker) {
    let traces = TRACES.load(Ordering::Acquire);
    if worker.own.traces.replace(traces) != traces {
        mark(worker);
    }
}

#[cold]
fn mark(worker: &'static Worker) {
    let is_suspended = |fibre: &&Fibre| matches!(fibre.state.get(), State::Parked | State::Queued);
    worker.fibres().filter(|fibre| is_suspended(fibre)).for_each(|fibre| fibre.observed.join());
}

/// Records that the caller starts a goroutine.
pub(crate) fn creates(work: &Work, place: &'static Location<'static>) {
    if switch_hooks::is_traced() {
        steps::creates(place, work.id());
    }
}

/// Records that a goroutine begins.
pub(crate) fn begins(work: &Work) {
    if switch_hooks::is_traced() {
        steps::begins(work.vtable(), work.id());
    }
}

/// Records the name of a goroutine that begins.
pub(crate) fn is_named(fibre: &Fibre) {
    let name = fibre.name.take();
    if let Some(name) = &name {
        steps::is_named(name);
    }
    fibre.name.set(name);
}

pub(super) fn runs(fibre: &Fibre) {
    steps::runs(ptr::from_ref(fibre.worker).addr(), fibre.worker.index);
}

pub(super) fn leaves(fibre: &Fibre, why: Leaving) {
    match (why, fibre.state.get()) {
        (Leaving::Ends, _) => steps::ends(),
        (Leaving::Waits, State::Parked) => steps::parks(fibre.wait.get().what()),
        (Leaving::Waits, _) => steps::yields(),
    }
}

pub(super) fn is_queued(fibre: &Fibre, why: ParkResult) {
    if fibre.has_work() {
        return; // the fibre is about to begin a goroutine, which has no number yet
    }
    match why {
        ParkResult::Unparked => is_readied(fibre),
        ParkResult::TimedOut => steps::expires(fibre.id.get()),
    }
}

/// Records that the caller readies the goroutine of a fibre, which is parked or about to park. The caller may be on
/// another thread, and so may read only what does not change while the goroutine waits.
#[cold]
pub(crate) fn is_readied(fibre: &Fibre) {
    let worker = match current::fibre() {
        Some(_) => 0,
        None => current::worker().map_or(0, |worker| ptr::from_ref(worker).addr()),
    };
    steps::readies(worker, fibre.id.get());
}

/// Records that a worker has nothing to run.
#[inline]
pub(crate) fn idles(worker: &Worker) {
    if switch_hooks::is_traced() {
        steps::idles(ptr::from_ref(worker).addr());
    }
}
