//! Wait groups.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;
use sudog_sync::WaitGroup;

use super::round::{Round, Timed};

/// A wait group: a count of tasks.
pub trait Group: Send + Sync + 'static {
    /// Creates a group without tasks.
    fn new() -> Self;

    /// Adds a task, which ends at once.
    fn add_and_done(&self);

    /// Waits for all tasks. There are none.
    fn wait(&self);
}

impl Group for WaitGroup {
    fn new() -> Self {
        Self::new()
    }

    #[inline]
    fn add_and_done(&self) {
        self.add(1);
        self.done();
    }

    #[inline]
    fn wait(&self) {
        self.wait();
    }
}

/// `crossbeam_utils`' wait group: a clone stands for a task, and dropping the clone ends the task.
pub struct Crossbeam(crossbeam_utils::sync::WaitGroup);

impl Group for Crossbeam {
    fn new() -> Self {
        Self(crossbeam_utils::sync::WaitGroup::new())
    }

    #[inline]
    fn add_and_done(&self) {
        drop(self.0.clone());
    }

    fn wait(&self) {
        unreachable!("who waits for it gives it up, so it does not take part where somebody waits");
    }
}

/// The least work of a wait group.
pub struct TwoRmws(AtomicU64);

impl Group for TwoRmws {
    fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    #[inline]
    fn add_and_done(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
        self.0.fetch_sub(1, Ordering::Release);
    }

    #[inline]
    fn wait(&self) {
        black_box(self.0.load(Ordering::Acquire));
    }
}

/// Adds and ends a task, and waits, on a group that only this thread uses.
pub fn uncontended<G: Group>(round: &Round) -> Timed {
    round.parallel(|_, portion| {
        let group = CachePadded::new(G::new());
        let group: &G = black_box(&group);
        portion.each(|| {
            group.add_and_done();
            group.wait();
        });
    })
}

/// Adds and ends a task, on a group that all threads share.
pub fn add_done<G: Group>(round: &Round) -> Timed {
    let group = CachePadded::new(G::new());
    round.parallel(move |_, portion| portion.each(|| group.add_and_done()))
}
