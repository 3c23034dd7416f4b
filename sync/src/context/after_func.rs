//! Calls that are made when a context is done.

use std::fmt;
use std::sync::{Arc, PoisonError};
use sudog_runtime::shim::system::Mutex;

use sudog_runtime::goroutine;

use super::Context;
use super::done::Done;
use super::followers::{Follower, Place};

/// Calls `f` in a new goroutine when `ctx` is done. If `ctx` is done already, calls `f` at once. Go's
/// `context.AfterFunc`.
///
/// `f` is called even if no handle of the context is left. But if the context has no deadline, and no handle can cancel
/// the context any more, `f` is dropped.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use sudog::context;
/// use sudog::sync::WaitGroup;
///
/// let (ctx, cancel) = context::with_cancel(&context::background());
/// let called = Arc::new(WaitGroup::new());
/// called.add(1);
/// let in_call = called.clone();
/// let stop = context::after_func(&ctx, move || in_call.done());
/// cancel.cancel();
/// called.wait();
/// assert!(!stop.stop());
/// ```
pub fn after_func<F: FnOnce() + Send + 'static>(ctx: &Context, f: F) -> AfterFunc {
    let Some(done) = ctx.governor() else {
        return AfterFunc(Kind::Never(Mutex::new(Some(Box::new(f)))));
    };
    match done.follow(Follower::Call(Box::new(f))) {
        Ok(place) => AfterFunc(Kind::Follows(done.clone(), place)),
        Err((_, follower)) => {
            if let Follower::Call(f) = follower {
                goroutine::go(f);
            }
            AfterFunc(Kind::Called)
        }
    }
}

/// A handle of the call that [`after_func`] registers. Dropping the handle does not prevent the call.
pub struct AfterFunc(Kind);

enum Kind {
    Follows(Arc<Done>, Place),
    Called,
    /// The function, for a context that is never done.
    Never(Mutex<Option<Box<dyn FnOnce() + Send>>>),
}

impl AfterFunc {
    /// Prevents the call, and returns true. Returns false if the goroutine of the call has been started, or if the
    /// call was stopped before.
    ///
    /// Does not wait for a call that is under way.
    pub fn stop(&self) -> bool {
        match &self.0 {
            Kind::Follows(done, place) => done.unfollow(*place).is_some(),
            Kind::Called => false,
            Kind::Never(f) => {
                let f = f.lock().unwrap_or_else(PoisonError::into_inner).take();
                f.is_some()
            }
        }
    }
}

impl fmt::Debug for AfterFunc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("AfterFunc")
    }
}
