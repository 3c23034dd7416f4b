//! Wait groups.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;
use sudog_sync::WaitGroup;

use super::contestant::Role;
use super::round::{Round, Timed};
use crate::targets::registry::registry;

/// A wait group: a count of tasks.
pub trait Group: Send + Sync + 'static {
    /// Creates a group without tasks.
    fn new() -> Self;

    /// Adds a task, which ends at once.
    fn add_and_done(&self);

    /// Waits for all tasks. There are none.
    fn wait(&self);
}

registry! {
    /// The name of a wait group.
    enum WaitGroupName;
    /// A job for any wait group.
    trait WaitGroupJob over Group;
    fn with_wait_group;
    unknown "wait group";

    Sudog = "sudog": WaitGroup,
        "Go's WaitGroup";
    Crossbeam = "crossbeam": Crossbeam,
        "crossbeam-utils' WaitGroup: a count under a mutex";
    TwoRmws = "two-rmws": TwoRmws,
        "two RMWs on one word, and a load of it to wait";
}

impl WaitGroupName {
    /// Returns the role in the comparison.
    #[must_use]
    pub const fn role(self) -> Role {
        match self {
            Self::Sudog => Role::Ours,
            Self::Crossbeam => Role::Peer,
            Self::TwoRmws => Role::Floor,
        }
    }
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
