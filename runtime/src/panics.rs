//! Panics of user code that must not prevent the remaining work.

use crate::shim::system::thread;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// A store for the first panic of several pieces of user code, all of which must run.
///
/// The unwinding of a goroutine ([`Goexit`](crate::goroutine)) counts as a panic, too.
#[derive(Default)]
pub struct Panics(Option<Box<dyn Any + Send>>);

impl Panics {
    /// Runs `f`, and keeps the panic of `f` unless an earlier panic is kept already.
    #[inline]
    pub fn catch(&mut self, f: impl FnOnce()) {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(f)) {
            self.keep(payload);
        }
    }

    #[cold]
    fn keep(&mut self, payload: Box<dyn Any + Send>) {
        match self.0 {
            None => self.0 = Some(payload),
            Some(_) => drop_payload(payload),
        }
    }

    /// Resumes the kept panic. If the thread is panicking already, drops the payload instead: a second panic would end
    /// the process.
    #[inline]
    pub fn resume(self) {
        if let Some(payload) = self.0 {
            resume(payload);
        }
    }
}

#[cold]
fn resume(payload: Box<dyn Any + Send>) {
    if !thread::panicking() {
        resume_unwind(payload);
    }
    drop_payload(payload);
}

/// Drops a panic's payload. If the payload's destructor panics in turn, catches that panic, and leaks its payload.
pub fn drop_payload(payload: Box<dyn Any + Send>) {
    if let Err(another) = catch_unwind(AssertUnwindSafe(move || drop(payload))) {
        std::mem::forget(another); // leaked: the new payload's destructor may panic, too
    }
}

impl std::fmt::Debug for Panics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Panics").field(&self.0.is_some()).finish()
    }
}
