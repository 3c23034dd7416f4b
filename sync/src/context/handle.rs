//! A handle of a context that has a [`Done`] of its own.
//!
//! ```text
//!   Handle ─┐ counted by `handles`
//!   Handle ─┴─ one reference ──▶ Done ◀── the parent's followers, the alarm, `after_func`
//!                                 │ as long as there are handles
//!                                 ▼
//!                           the parent's Handle
//! ```
//!
//! The `Done` may be needed when no handle is left, because the parent's followers refer to the `Done`. Without
//! handles, the `Done` must not keep the parent alive. So handles are counted separately. All handles together have a
//! single reference to the [`Done`], and keep the parent alive. The last handle takes the parent out of the `Done`, and
//! gives the reference up.

use std::cell::UnsafeCell;
use std::mem::{self, ManuallyDrop};
use std::ptr;
use std::sync::Arc;
use std::time::Instant;

use sudog_runtime::shim::system::OnceLock;

use super::done::{Channel, Done};
use super::handle_count::HandleCount;
use super::{Cause, Context, background};

/// A handle of a context that has a `Done` of its own: see the top of this file.
pub(super) struct Handle(ManuallyDrop<Arc<Done>>);

/// The parent of a context that has a `Done` of its own, and the data that the context adds to its parent, besides the
/// state in the `Done`.
pub(super) struct Derived {
    handles: HandleCount,
    /// Accessed through a handle; written only by the last handle.
    kept: UnsafeCell<Kept>,
    deadline: Option<Instant>,
    /// True if the deadline is the context's own, not inherited from the parent.
    is_deadline_own: bool,
}

/// The part of a context that only its handles keep. The last handle takes the content.
struct Kept {
    parent: Context,
    /// The channel that is closed when the context ends, if a caller has asked for the channel.
    channel: OnceLock<Channel>,
}

// SAFETY: `Kept`, a `Context` and a channel, is `Send` and `Sync`. `kept` is read through a handle, and written through the
// last handle, when no other handle is left that could read. `HandleCount` orders the reads before the writes.
unsafe impl Sync for Derived {}

impl Derived {
    /// Returns the cell with the channel. The cell is empty if no caller has asked for a channel.
    ///
    /// # Safety
    ///
    /// For as long as the caller uses the result, the caller has a handle of the context, or borrows from a handle.
    #[inline]
    pub(super) unsafe fn channel(&self) -> &OnceLock<Channel> {
        // SAFETY: only the last handle writes `kept`, as it is dropped. By the contract of this function, a handle exists for
        // as long as the result is used.
        unsafe { &(*self.kept.get()).channel }
    }
}

impl Handle {
    /// Creates the first handle of a context that has its parent's deadline.
    pub(super) fn new(parent: &Context) -> Self {
        Self::derive(parent, parent.deadline(), false, None)
    }

    /// Creates the first handle of a context with a deadline of its own; `overdue` is the cause of the end at that
    /// deadline.
    pub(super) fn with_deadline(parent: &Context, deadline: Instant, overdue: Option<Cause>) -> Self {
        Self::derive(parent, Some(deadline), true, overdue)
    }

    fn derive(parent: &Context, deadline: Option<Instant>, is_deadline_own: bool, overdue: Option<Cause>) -> Self {
        let handles = HandleCount::one();
        let kept = UnsafeCell::new(Kept { parent: parent.clone(), channel: OnceLock::new() });
        let derived = Derived { handles, kept, deadline, is_deadline_own };
        Self(ManuallyDrop::new(Done::new(parent.governor(), derived, overdue)))
    }

    /// Returns the `Done` of the context.
    #[inline]
    pub(super) fn done(&self) -> &Arc<Done> {
        &self.0
    }

    #[inline]
    pub(super) fn parent(&self) -> &Context {
        // SAFETY: this handle is counted for as long as the returned reference lives. So no other handle is the last
        // handle meanwhile, and only the last handle writes `kept`.
        unsafe { &(*self.0.derived.kept.get()).parent }
    }

    /// Returns the context's deadline, own or inherited.
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
        // SAFETY: `remove` is called once, because this function consumes `self`, and `ManuallyDrop` prevents the
        // drop.
        unsafe { this.remove() }
    }

    /// Counts this handle off. For the last handle, drops what the handles keep, and returns the parent.
    ///
    /// # Safety
    ///
    /// This function is called once for each handle. The handle is not used afterwards.
    #[inline]
    unsafe fn remove(&mut self) -> Option<Context> {
        if !self.0.derived.handles.remove() {
            return None;
        }
        // SAFETY: this is the last handle, so no other handle reads or writes `kept`: see `Derived`. Clones of the channel may
        // be left, but they do not access the cell `kept`.
        let kept = unsafe { &mut *self.0.derived.kept.get() };
        let parent = mem::replace(&mut kept.parent, background());
        let channel = kept.channel.take();
        // SAFETY: all handles together have a single reference to the `Done`. Only the last handle takes that
        // reference, once.
        let done = unsafe { ManuallyDrop::take(&mut self.0) };
        // If the parent's followers or an alarm refer to `done`, the reference count is above 1. So if the count is 1,
        // there is nothing to leave. The count stays 1, because no handle of the context is left that could give out
        // references. (A child may look at `done` for a moment.)
        if Arc::strong_count(&done) > 1 {
            done.release();
        }
        // Functions that will never run are dropped here. If a drop panics, unwinding drops the channel and the
        // parent.
        drop(done);
        // If no clone of the channel is left, this drop takes the context out of its parent.
        drop(channel);
        Some(parent)
    }
}

impl Clone for Handle {
    #[inline]
    fn clone(&self) -> Self {
        self.0.derived.handles.add();
        // SAFETY: the copied reference is dropped by the last handle only, and `add` has counted the new handle.
        Self(unsafe { ptr::read(&self.0) })
    }
}

impl Drop for Handle {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: `remove` is called once, because the handle is being dropped.
        if let Some(parent) = unsafe { self.remove() } {
            parent.drop_line();
        }
    }
}
