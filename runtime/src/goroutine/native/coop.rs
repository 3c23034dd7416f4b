//! The safepoint of a task: the place where a future of this project gives the worker back although the future could go
//! on.
//!
//! A task has the time slice that a goroutine has. Each future of this project asks [`Coop::poll_proceed`] before it
//! does anything. When the slice is over, and other work waits for the worker, the future wakes its task and returns
//! `Pending`. The future has done nothing then, so nothing can be lost.
//!
//! | budget of the poll | set by | a future that asks |
//! |---|---|---|
//! | `Unlimited` | goroutines, between two polls; [`unconstrained`] | goes on |
//! | `Open` | the start of a task's poll, and each poll of a `block_on` | goes on, or, at the end of the slice, makes the budget `Spent` |
//! | `Spent` | a future that has asked at the end of the slice | is refused, but never twice in a row |
//!
//! `Spent` lasts until the poll of the *task* returns: otherwise, of two futures in a `select`, the second would be
//! ready in the place of the first, and the task would go on. No future is refused twice in a row. So if one future of
//! a `select` uses up each slice, a timeout or a cancel in the same `select` is still seen at the second poll. And an
//! executor of another crate, which runs inside of the poll and polls again at once, goes on.
//!
//! `poll_proceed` is tokio's name (`tokio::task::coop`). Tokio counts operations, 128 a poll; here futures look at the
//! slice as goroutines do, at every 64th operation.

use std::ptr;
use std::task::{Context, Poll};

use crate::goroutine::native::fibre::{Budget, Fibre, current};
use crate::shim::system::atomic::{AtomicBool, Ordering::Relaxed};

/// A future's part in the budget of the task that polls it.
#[derive(Debug, Default)]
pub struct Coop {
    /// True if the future was refused when it last asked. Used by the poller of the future only; atomic, so that
    /// futures are `Sync`.
    was_refused: AtomicBool,
}

impl Coop {
    /// Creates the `Coop` of a new future.
    #[must_use]
    pub const fn new() -> Self {
        Self { was_refused: AtomicBool::new(false) }
    }

    /// Asks whether the future may go on. If this returns `Pending`, the task has been woken, and the future must
    /// return `Pending` now, before it does anything.
    ///
    /// Call this first in each `poll`. Outside of a task and of a `block_on` of this runtime, the future may always go
    /// on.
    #[inline(always)]
    pub fn poll_proceed(&self, cx: &Context<'_>) -> Poll<()> {
        let Some(fibre) = current::fibre() else { return Poll::Ready(()) };
        match fibre.budget.get() {
            Budget::Unlimited => Poll::Ready(()),
            Budget::Open if !fibre.worker.count_call() => Poll::Ready(()),
            Budget::Open | Budget::Spent => self.ask(fibre, cx),
        }
    }

    #[cold]
    #[inline(never)]
    fn ask(&self, fibre: &Fibre, cx: &Context<'_>) -> Poll<()> {
        let asked = fibre.worker.is_asked();
        let is_spent = fibre.budget.get() == Budget::Spent || fibre.worker.ask_clock();
        // `was_refused` may still be set from an earlier slice, if the future then went on without a call of this
        // function. In that case the future goes on once more.
        if !is_spent || self.was_refused.load(Relaxed) {
            self.was_refused.store(false, Relaxed);
            return Poll::Ready(());
        }
        if asked {
            fibre.worker.ask_again();
        }
        // Set the budget before the waking, which may be user code.
        fibre.budget.set(Budget::Spent);
        self.was_refused.store(true, Relaxed);
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

/// A budget that the calling goroutine has until this value is dropped. The drop restores the former budget.
///
/// A foreign coroutine may take this value to another goroutine, or keep the value until the goroutine has ended. Then the
/// value does nothing.
pub(crate) struct Scope {
    /// The address of the goroutine's fibre. None: the caller is a thread.
    fibre: Option<*const Fibre>,
    around: Budget,
    budget: Budget,
}

impl Scope {
    fn enter(budget: Budget) -> Self {
        let fibre = current::fibre();
        let around = fibre.map_or(Budget::Unlimited, |fibre| fibre.budget.replace(budget));
        Self { fibre: fibre.map(ptr::from_ref), around, budget }
    }

    /// Returns the budget of a `block_on`: unlimited where the caller may not switch, as nothing else could run at the
    /// end of the slice.
    pub(crate) fn of_block_on() -> Self {
        Self::enter(if current::switchable().is_some() { Budget::Open } else { Budget::Unlimited })
    }

    /// Opens the budget anew, for the next poll.
    pub(crate) fn renew(&self) {
        if let Some(fibre) = self.here() {
            fibre.budget.set(self.budget);
        }
    }

    /// Returns whether a future has been refused, and so woken, since the budget was opened.
    pub(crate) fn is_spent(&self) -> bool {
        self.here().is_some_and(|fibre| fibre.budget.get() == Budget::Spent)
    }

    /// Returns the running fibre, if that is the fibre of this value.
    fn here(&self) -> Option<&'static Fibre> {
        current::fibre().filter(|&running| self.fibre.is_some_and(|fibre| ptr::eq(running, fibre)))
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        if let Some(fibre) = self.here() {
            fibre.budget.set(self.around);
        }
    }
}

/// Calls `f`, which polls futures that must not be refused.
pub(crate) fn unconstrained<T>(f: impl FnOnce() -> T) -> T {
    let _scope = Scope::enter(Budget::Unlimited);
    f()
}
