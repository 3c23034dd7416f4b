//! Main goroutines, for which callers of [`run`](fn@crate::goroutine::run) wait.

use crate::shim::system::atomic::{AtomicUsize, Ordering};

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

    /// Counts off a main goroutine that has ended, before its caller goes on: from then on the caller's thread does not
    /// wait any more.
    pub(super) fn count_off(&self) {
        self.running.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn running(&self) -> usize {
        self.running.load(Ordering::Relaxed)
    }

    pub(crate) fn exited(&self) -> usize {
        self.exited.load(Ordering::Relaxed)
    }
}
