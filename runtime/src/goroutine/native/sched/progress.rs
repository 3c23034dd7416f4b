//! The state of a worker's answer to a dump, which [`dump.rs`](super::dump) asks for.

use crate::shim::system::atomic::{AtomicU64, Ordering};
use std::backtrace::Backtrace;
use std::cell::Cell;
use std::sync::Arc;

/// The number of the last request for a dump.
static NUMBER: AtomicU64 = AtomicU64::new(0);

/// Returns the number of the last request.
pub(super) fn last_request() -> u64 {
    // Acquire: pairs with the store in `request`.
    NUMBER.load(Ordering::Acquire)
}

/// Has each worker answer the request with this number, which the caller has made.
pub(super) fn request(number: u64) {
    // Release: a worker that reads the number also finds the request.
    NUMBER.store(number, Ordering::Release);
}

/// The state of the answer of a worker that runs fibres of type `F`. Used by that worker only.
pub(crate) struct Progress<F> {
    /// The request that the worker answers, or has answered.
    pub(super) number: Cell<u64>,
    /// True if the worker has answered request `number`.
    pub(super) is_done: Cell<bool>,
    /// The next fibre to describe.
    pub(super) next: Cell<Option<F>>,
    /// True if the worker has described a chunk, and makes a choice before the next chunk.
    pub(super) pauses: Cell<bool>,
    /// True while a fibre is resumed to show the fibre's stack.
    pub(super) is_showing: Cell<bool>,
    /// The stack that the fibre has shown.
    pub(super) stack: Cell<Option<Stack>>,
}

/// A stack, and its return addresses if the feature `profile` is on.
pub(crate) type Stack = (Backtrace, Arc<[usize]>);

/// The number of bytes of stack that a goroutine must have left to capture its stack.
pub(crate) const ROOM: usize = 16 << 10;

impl<F: Copy> Progress<F> {
    pub(crate) const fn new() -> Self {
        Self {
            number: Cell::new(0),
            is_done: Cell::new(true),
            next: Cell::new(None),
            pauses: Cell::new(false),
            is_showing: Cell::new(false),
            stack: Cell::new(None),
        }
    }

    /// Returns whether there is a request that the worker has not answered.
    pub(crate) fn is_wanted(&self) -> bool {
        !self.is_done.get() || self.number.get() != last_request()
    }

    /// Returns whether the worker is to describe a chunk now. The first call after each chunk returns false.
    pub(crate) fn is_due(&self) -> bool {
        self.is_wanted() && !self.pauses.replace(false)
    }

    /// Forgets a fibre that is about to be freed. `is_freed` tells that fibre, and `older` comes after it.
    pub(crate) fn forgets(&self, is_freed: impl FnOnce(F) -> bool, older: Option<F>) {
        if self.next.get().is_some_and(is_freed) {
            self.next.set(older);
        }
    }

    /// Returns whether the running fibre has been resumed just to show its stack.
    pub(crate) fn is_showing(&self) -> bool {
        self.is_showing.get()
    }

    /// Keeps the stack that the running fibre shows.
    pub(crate) fn shows(&self, stack: Stack) {
        self.stack.set(Some(stack));
    }
}

/// Captures the caller's stack.
pub(crate) fn capture() -> Stack {
    (Backtrace::force_capture(), addresses())
}

/// Returns the return addresses on the caller's stack, innermost first, if the feature `profile` is on.
fn addresses() -> Arc<[usize]> {
    cfg_select! {
        all(feature = "profile", not(sudog_sim)) => { crate::profile::addresses() }
        _ => { Arc::default() }
    }
}
