//! The beginning and the end of a trace of goroutines.
//!
//! Workers and fibres record the [`steps`] themselves, where switches are observed. To record takes no lock, allocates
//! nothing and calls no user code. ([`steps::begins`] makes the thread's ring, if the thread has none.)
//!
//! [`start`] asks each worker to mark the fibres that are suspended. From its next wait on, a goroutine that has begun
//! before the trace is in the trace, too.

use crate::shim::system::atomic::Ordering;
use std::panic::Location;
use std::ptr;

use crate::event::steps;
use crate::goroutine::native::fibre::current;
use crate::goroutine::native::fibre::job::Work;
use crate::goroutine::native::sched::scheduler::Sched;
use crate::goroutine::native::sched::worker::Worker;
use crate::goroutine::native::switch_hooks;

/// Begins to trace. The recording is under way.
pub(crate) fn start() {
    switch_hooks::observe_trace(true);
    if let Some(fibre) = current::fibre() {
        fibre.observed.join();
        fibre.record_run();
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

/// Records that the caller starts a goroutine.
pub(crate) fn creates(work: &Work, place: &'static Location<'static>) {
    if switch_hooks::is_traced() {
        steps::creates(place, work.id());
    }
}

/// Records that a worker has nothing to run.
#[inline]
pub(crate) fn idles(worker: &Worker) {
    if switch_hooks::is_traced() {
        steps::idles(ptr::from_ref(worker).addr());
    }
}
