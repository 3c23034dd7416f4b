//! The lock of the state of a check, and of the list of tasks.

use std::cell::Cell;
use std::sync::PoisonError;

use crate::goroutine;
use crate::shim::system::{self, Mutex};

/// State of a check. No user code runs under the lock, but for an allocator, which may call into a check again.
pub(crate) struct CheckLock<T>(Mutex<T>);

impl<T> CheckLock<T> {
    pub(crate) const fn new(state: T) -> Self {
        Self(Mutex::new(state))
    }

    /// Runs `f` under the lock, without switching to another goroutine. Returns `None`, and does not run `f`, if the
    /// caller is in such an `f` already.
    pub(crate) fn enter<R>(&self, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        system::thread_local! {
            static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
        }
        if IS_INSIDE.with(|inside| inside.replace(true)) {
            return None;
        }
        let result = goroutine::without_switching(|| f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner)));
        IS_INSIDE.with(|inside| inside.set(false));
        Some(result)
    }
}
