//! Main goroutines, for which callers of [`run`](fn@crate::goroutine::run) wait.

use crate::shim::system::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::ptr::NonNull;

use crate::goroutine::native::fibre::{current, job};
use crate::sema::{self, Wake};

/// The counts of main goroutines, for the deadlock report.
pub(crate) struct Mains {
    /// Number of main goroutines that have begun and not ended. The callers of `run` wait for them.
    pub(super) running: AtomicUsize,
    /// Number of main goroutines that have called `goexit`. The callers of `run` wait for ever.
    pub(super) exited: AtomicUsize,
}

pub(crate) static MAINS: Mains = Mains { running: AtomicUsize::new(0), exited: AtomicUsize::new(0) };

impl Mains {
    /// Number of threads that wait in `run` for a main goroutine that has begun. A thread that has not begun to wait,
    /// or has stopped waiting, is not counted, as that thread may run other code.
    pub(crate) fn callers(&self) -> usize {
        self.running() + self.exited()
    }

    pub(crate) fn running(&self) -> usize {
        self.running.load(Ordering::Relaxed)
    }

    pub(crate) fn exited(&self) -> usize {
        self.exited.load(Ordering::Relaxed)
    }
}

/// The stack size that the main thread of a process has as a rule: programs were written for that size.
const MAIN_STACK: usize = 8 << 20;

/// Adds the name and the stack size of a main goroutine, where the starter has set none.
pub(crate) fn as_main(mut details: Box<job::Details>) -> Box<job::Details> {
    details.name.get_or_insert_with(|| "main".into());
    details.stack_size.get_or_insert(MAIN_STACK);
    details
}

/// Lets the caller of [`run`](fn@crate::goroutine::run) go on. Called by the fibre of the main goroutine, which has
/// been counted off.
pub(crate) fn release_caller(done: NonNull<AtomicU32>) {
    // Subtract before the release: from the release on, the caller's thread does not wait any more.
    MAINS.running.fetch_sub(1, Ordering::Relaxed);
    // SAFETY: `done` is alive until the permit is there; from then on the release uses `done` as an address only.
    current::without_switching(|| sema::semrelease(unsafe { done.as_ref() }, Wake::Normal));
}
