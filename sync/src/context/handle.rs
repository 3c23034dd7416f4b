//! A handle of a context with an end of its own.
//!
//! ```text
//!   Handle ─┐ counted by `handles`
//!   Handle ─┴─ one reference ──▶ Done ◀── the parent's followers, the alarm, `after_func`
//!                                 │ as long as there are handles
//!                                 ▼
//!                           the parent's Handle
//! ```
//!
//! The end may be needed when no handle is left, and must not keep the parent then: its parent's followers refer to it.
//! So handles are counted apart. All of them together have one reference to the [`Done`], and keep its parent; the last
//! to go takes the parent out, and gives the reference up.

use std::cell::UnsafeCell;
use std::mem::{self, ManuallyDrop};
use std::ptr;
use std::sync::Arc;
use std::time::Instant;

use sudog_runtime::shim::system::OnceLock;

use super::done::{Channel, Done};
use super::handle_count::HandleCount;
use super::{Cause, Context, background};

/// See the top of this file.
pub(super) struct Handle(ManuallyDrop<Arc<Done>>);

/// What a context with an end of its own adds to its parent, beside that end.
pub(super) struct Derived {
    handles: HandleCount,
    /// Belongs to the handles: read by way of one, written by the last.
    parent: UnsafeCell<Context>,
    /// The channel that is closed at the end, if it has been asked for. Belongs to the handles, as `parent` does.
    channel: UnsafeCell<OnceLock<Channel>>,
    deadline: Option<Instant>,
    /// The deadline is its own, not its parent's.
    is_deadline_own: bool,
}

// SAFETY: `parent`, a `Context`, and `channel` are `Send` and `Sync`. They are read by way of a handle and written by way of
// the last, when none is left that could read; `HandleCount` orders the reads before.
unsafe impl Sync for Derived {}

impl Derived {
    /// The channel, or room for it.
    ///
    /// # Safety
    ///
    /// The caller has, or borrows from, a handle of the context for as long as it uses the result.
    #[inline]
    pub(super) unsafe fn channel(&self) -> &OnceLock<Channel> {
        // SAFETY: the last handle alone writes, and by the contract a handle is left.
        unsafe { &*self.channel.get() }
    }
}

impl Handle {
    /// Of a context that has its parent's deadline.
    pub(super) fn new(parent: &Context) -> Self {
        Self::derive(parent, parent.deadline(), false, None)
    }

    /// Of a context with a deadline of its own, and the cause of its end then.
    pub(super) fn with_deadline(parent: &Context, deadline: Instant, overdue: Option<Cause>) -> Self {
        Self::derive(parent, Some(deadline), true, overdue)
    }

    fn derive(parent: &Context, deadline: Option<Instant>, is_deadline_own: bool, overdue: Option<Cause>) -> Self {
        let handles = HandleCount::one();
        let (parent_cell, channel) = (UnsafeCell::new(parent.clone()), UnsafeCell::new(OnceLock::new()));
        let derived = Derived { handles, parent: parent_cell, channel, deadline, is_deadline_own };
        Self(ManuallyDrop::new(Done::new(parent.governor(), derived, overdue)))
    }

    /// What ends the context.
    #[inline]
    pub(super) fn done(&self) -> &Arc<Done> {
        &self.0
    }

    #[inline]
    pub(super) fn parent(&self) -> &Context {
        // SAFETY: this handle is counted as long as the reference lives, so that none goes as the last and writes.
        unsafe { &*self.0.derived.parent.get() }
    }

    /// The context's, be it its own or inherited.
    #[inline]
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.0.derived.deadline
    }

    pub(super) fn is_deadline_own(&self) -> bool {
        self.0.derived.is_deadline_own
    }

    /// Drops the handle, and returns the parent if this was the last handle.
    pub(super) fn drop_and_take_parent(self) -> Option<Context> {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: once, as `self` is gone.
        unsafe { this.remove() }
    }

    /// # Safety
    ///
    /// Once, and the handle is not used any more.
    #[inline]
    unsafe fn remove(&mut self) -> Option<Context> {
        if !self.0.derived.handles.remove() {
            return None;
        }
        // SAFETY: the last handle writes, and alone: see `Derived`.
        let parent = mem::replace(unsafe { &mut *self.0.derived.parent.get() }, background());
        // SAFETY: as for the parent. Clones of the channel may be left: they do not need what the handles keep.
        let channel = unsafe { &mut *self.0.derived.channel.get() }.take();
        // SAFETY: the reference that the handles have together is given up by the last, and by that once.
        let done = unsafe { ManuallyDrop::take(&mut self.0) };
        // A parent and an alarm would refer to it too: one that is referred to from here alone has nothing to leave.
        // It stays so: no handle of the context is left to give others out. (A child may look at it for a moment.)
        if Arc::strong_count(&done) > 1 {
            done.release();
        }
        // Functions that will never run are dropped here. If that panics, unwinding drops the channel and the parent.
        drop(done);
        // If no clone is left, this takes the context out of its parent.
        drop(channel);
        Some(parent)
    }
}

impl Clone for Handle {
    #[inline]
    fn clone(&self) -> Self {
        self.0.derived.handles.add();
        // SAFETY: a second copy of a reference that only the last handle drops, and this one is counted.
        Self(unsafe { ptr::read(&self.0) })
    }
}

impl Drop for Handle {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: once, as it is being dropped.
        if let Some(parent) = unsafe { self.remove() } {
            parent.drop_line();
        }
    }
}
