//! The future that waits for a group.
//!
//! | stage | counted as a waiter | on poll | on drop |
//! |---|---|---|---|
//! | `Idle` | no | if no task is left: ready; otherwise counts itself as a waiter: `Waiting` | nothing |
//! | `Waiting` | yes, unless an `add` to 0 has taken the waiter off; then the permit is there or on its way | polls the permit | leaves the semaphore's queue, then takes itself off the count, or takes its permit |
//! | `Over` | no | panics | nothing |

use std::fmt;
use std::future::Future;
use std::marker::PhantomPinned;
use std::pin::Pin;
use std::sync::atomic::Ordering::Acquire;
use std::task::{Context, Poll, ready};

use sudog_runtime::Coop;
use sudog_runtime::sema::semacquire_async;

use super::WaitGroup;
use super::state::State;

/// A future that waits until the group has no task: made by [`WaitGroup::wait_async`].
///
/// The future may be dropped at any time: the group is then as if the future had not waited. The drop may have to wait
/// for an `add` that is under way on another thread. Once the future has been polled, the caller must poll again when
/// the waker is woken, or drop the future: a leaked future counts as a waiter for ever, also of any later semaphore at
/// the address of the group's semaphore. So a leaked future may keep a waiter of a later group or lock asleep.
#[must_use = "a future does nothing unless polled"]
pub struct WaitFuture<'a> {
    group: &'a WaitGroup,
    stage: Stage,
    /// The acquisition of the permit. `Some` in the stage `Waiting`. Pinned with the future.
    permit: Option<sudog_runtime::sema::Acquire<'a>>,
    coop: Coop,
    _pinned: PhantomPinned,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Idle,
    Waiting,
    Over,
}

impl WaitGroup {
    /// Returns a future that waits as [`WaitGroup::wait`] does, for a task or a [`select!`](sudog_runtime::select).
    ///
    /// # Panics
    ///
    /// The same as [`WaitGroup::wait`], when the future is polled.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[cfg(unix)] {
    /// use std::sync::Arc;
    /// use sudog::chan::{Chan, select};
    /// use sudog::sync::WaitGroup;
    ///
    /// let (group, quit) = (Arc::new(WaitGroup::new()), Chan::<()>::new(0));
    /// group.go(|| ());
    /// let all_done = select! {
    ///     future(group.wait_async()) => true,
    ///     recv(quit) => false,
    /// };
    /// assert!(all_done);
    /// # }
    /// ```
    pub fn wait_async(&self) -> WaitFuture<'_> {
        WaitFuture { group: self, stage: Stage::Idle, permit: None, coop: Coop::new(), _pinned: PhantomPinned }
    }
}

impl Future for WaitFuture<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        // SAFETY: `permit` is not moved: it is created in its final place, and dropped there.
        let this = unsafe { self.get_unchecked_mut() };
        ready!(this.coop.poll_proceed(cx));
        match this.stage {
            Stage::Idle => {
                let state = this.group.state.load(Acquire);
                if !state.has_tasks() || !this.group.count_waiter(state, State::add_waiter) {
                    this.stage = Stage::Over;
                    return Poll::Ready(());
                }
                this.stage = Stage::Waiting;
                this.permit = Some(semacquire_async(&this.group.permits));
            }
            Stage::Waiting => {}
            Stage::Over => panic!("a future was polled after it was ready"),
        }
        let permit = this.permit.as_mut().expect("there while it waits");
        // SAFETY: `permit` is pinned with the future, and dropped in its place.
        if unsafe { Pin::new_unchecked(permit) }.poll(cx).is_pending() {
            sudog_runtime::note_task_wait_at("sync.WaitGroup.Wait", this.group);
            return Poll::Pending;
        }
        this.stage = Stage::Over;
        this.permit = None;
        this.group.assert_over();
        Poll::Ready(())
    }
}

impl Drop for WaitFuture<'_> {
    fn drop(&mut self) {
        if self.stage == Stage::Waiting {
            // Leave the group even if the waker's destructor panics: `_leave` takes the waiter off the group in any
            // case.
            let _leave = LeaveAfter(self.group);
            // Leave the semaphore's queue first: a permit that this waiter has been given goes to the counter, where
            // `leave` finds the permit.
            self.permit = None;
        }
    }
}

struct LeaveAfter<'a>(&'a WaitGroup);

impl Drop for LeaveAfter<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

impl fmt::Debug for WaitFuture<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("WaitFuture { .. }")
    }
}
