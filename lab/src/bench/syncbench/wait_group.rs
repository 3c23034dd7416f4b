//! Wait groups.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;
use sudog_sync::WaitGroup;

use super::contestant::Role;
use super::round::{Round, Timed};
use crate::targets::registry::registry;

/// What counts tasks.
pub trait Group: Send + Sync + 'static {
    /// One for no tasks.
    fn new() -> Self;

    /// One task more, and it has ended.
    fn add_and_done(&self);

    /// Waits for all tasks, of which there are none.
    fn wait(&self);
}

registry! {
    /// The name of a wait group.
    enum WaitGroupName;
    /// Something to do with a wait group, whichever it is.
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
    /// What it is in the comparison.
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

/// `crossbeam_utils`' wait group: a clone is a task, and its end the end of the task.
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

/// What a wait group must do at least.
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

/// Each thread has one of its own: one task, and a wait.
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

/// One for all: one task each.
pub fn add_done<G: Group>(round: &Round) -> Timed {
    let group = CachePadded::new(G::new());
    round.parallel(move |_, portion| portion.each(|| group.add_and_done()))
}
