//! Stubs for builds without goroutines: on loom, and on systems other than Unix.

use crate::shim::system;
use crate::shim::system::atomic::AtomicU64;
use std::task::{Context, Poll};

use crate::{Instant, ParkResult};

/// The type of a goroutine. It has no values, as there are no goroutines here.
#[derive(Clone, Copy)]
pub(crate) enum FibreRef {}

impl FibreRef {
    pub(crate) fn park(self, _: Option<Instant>, _: impl FnOnce()) -> ParkResult {
        match self {}
    }

    pub(crate) fn await_ready(self) {
        match self {}
    }

    pub(crate) unsafe fn ready(self) {
        match self {}
    }

    pub(crate) unsafe fn is_here(self) -> bool {
        match self {}
    }
}

/// An empty batch: there is no goroutine to make ready.
pub(crate) struct ReadyBatch;

impl ReadyBatch {
    pub(crate) const fn new() -> Self {
        Self
    }

    pub(crate) unsafe fn ready(&mut self, goroutine: FibreRef) {
        match goroutine {}
    }

    pub(crate) fn hand_over(&mut self) {}
}

pub(crate) fn current() -> Option<FibreRef> {
    None
}

pub(crate) fn switchable() -> Option<FibreRef> {
    None
}

/// Returns the time.
pub fn now() -> Instant {
    system::now()
}

pub(crate) fn of_the_system(deadline: Instant) -> Instant {
    deadline
}

pub(crate) fn give_way() {}

pub(crate) fn yield_now() -> bool {
    false
}

pub(crate) fn safepoint() {}

pub(crate) fn safepoint_is_asked_for() -> bool {
    false
}

/// The counterpart of a future's share in a task's budget. No task has a budget here.
#[derive(Debug, Default)]
pub struct Coop;

impl Coop {
    /// Creates the `Coop` of a new future.
    #[must_use]
    pub const fn new() -> Self {
        Self
    }

    /// Returns `Ready`: the future may always go on.
    pub fn poll_proceed(&self, _: &Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }
}

/// Only calls `f`: no future is refused here.
pub(crate) fn unconstrained<T>(f: impl FnOnce() -> T) -> T {
    f()
}

/// Only calls `f`: there are no goroutines that could switch.
pub fn without_switching<T>(f: impl FnOnce() -> T) -> T {
    f()
}

pub(crate) fn may_spin(_iter: u32) -> bool {
    true
}

/// Returns false: in a model, where threads stand for goroutines, no worker counts as asleep.
pub(crate) fn any_worker_sleeps() -> bool {
    false
}

pub(crate) fn note_wait(_: &'static str) {}

pub(crate) fn note_task_wait(_: &'static str, _: *const ()) {}

pub(crate) fn note_wait_for(_: &'static str, _: *const (), _: *const [AtomicU64]) {}

/// Only calls `wait`.
pub(crate) fn in_place<T>(_has_deadline: bool, wait: impl FnOnce() -> T) -> T {
    wait()
}

pub(crate) fn id() -> u64 {
    0
}

/// Returns null, as there are no goroutines. In a model, returns the pointer that the calling thread has passed to
/// [`set_active_set`].
#[must_use]
pub fn active_set() -> *const () {
    #[cfg(sudog_loom)]
    let set = crate::shim::model::active_set();
    #[cfg(not(sudog_loom))]
    let set = std::ptr::null();
    set
}

/// Sets the [`active_set`] of the calling thread in a model. Elsewhere does nothing.
///
/// # Safety
///
/// `set` is null, or points to a set of `sudog-csp` that is alive until the thread calls this function again.
pub unsafe fn set_active_set(set: *const ()) {
    #[cfg(sudog_loom)]
    crate::shim::model::set_active_set(set);
    #[cfg(not(sudog_loom))]
    let _ = set;
}

/// Does nothing: no child is forked in a model.
pub fn forbid_in_child() {}
