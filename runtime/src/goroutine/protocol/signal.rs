//! What a [`block_on`](crate::goroutine::block_on) waits on: however many wake it between two polls, it takes one
//! permit.
//!
//! | waker | waiter |
//! |---|---|
//! | 1. does what the future waits for | 1. takes the permit |
//! | 2. `woken.swap(true)` | 2. `woken.swap(false)` |
//! | 3. if that was false: releases a permit | 3. polls |
//!
//! `woken` is true from a waker's step 2 to the waiter's, and there is one permit for that time. Each waker is followed
//! by a poll that sees its step 1: all changes of `woken` are read-modify-writes, so a waker's step 2 that finds true
//! is in the release sequence that the waiter's step 2 reads from. So that one is Acquire, and the waker's is Release.
//!
//! With a plain store in the place of the waiter's step 2 this is lost, even if both are sequentially consistent: the
//! store comes after the waker's step 2 in the order of all of these, but reads nothing from it. The poll may then miss
//! what the waker did, and the waker has left the wake-up to a permit that is gone: the future is never polled again.

use crate::sema::{self, WaitError, WaitLimit};
use crate::shim::{AtomicBool, AtomicU32, Ordering};

/// See the top of this file.
pub(crate) struct Signal {
    woken: AtomicBool,
    permits: AtomicU32,
}

impl Signal {
    pub(crate) fn new() -> Self {
        Self { woken: AtomicBool::new(false), permits: AtomicU32::new(0) }
    }

    /// The waiter's steps 1 and 2.
    pub(crate) fn wait(&self) {
        sema::semacquire(&self.permits);
        self.woken.swap(false, Ordering::Acquire);
    }

    /// [`Signal::wait`] that gives up at a limit. Neither step has been done then.
    #[cfg_attr(any(sudog_loom, not(unix)), allow(dead_code))]
    pub(crate) fn wait_limited(&self, limit: &WaitLimit<'_>) -> Result<(), WaitError> {
        sema::semacquire_limited(&self.permits, sema::Order::Fifo, limit)?;
        self.woken.swap(false, Ordering::Acquire);
        Ok(())
    }

    /// The waker's steps 2 and 3.
    pub(crate) fn wake(&self) {
        if !self.woken.swap(true, Ordering::Release) {
            // A waker has others to wake.
            crate::goroutine::without_switching(|| sema::semrelease(&self.permits, sema::Wake::Normal));
        }
    }
}

/// `RUSTFLAGS="--cfg sudog_loom" cargo test --profile loom -p sudog-runtime --lib signal`
#[cfg(all(test, sudog_loom))]
mod model {
    use super::*;
    use crate::shim::model::under_both;
    use loom::sync::Arc;
    use loom::thread;

    /// A future that is ready when two have done their part. Each wakes it; a wake-up that is lost is a deadlock.
    ///
    /// Under both conventions: with the store that the top of this file warns of, and SeqCst, one of them has fences
    /// that hide it.
    #[test]
    fn each_wake_is_followed_by_a_poll_that_sees_what_came_before_it() {
        under_both(|| {
            let mut model = loom::model::Builder::new();
            model.preemption_bound = Some(3);
            model.check(|| {
                let parts = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
                let signal = Arc::new(Signal::new());
                let wakers = parts.clone().map(|part| {
                    let signal = signal.clone();
                    thread::spawn(move || {
                        part.store(true, Ordering::Relaxed);
                        signal.wake();
                    })
                });
                while !parts.iter().all(|part| part.load(Ordering::Relaxed)) {
                    signal.wait();
                }
                wakers.into_iter().for_each(|waker| waker.join().unwrap());
            });
        });
    }
}
