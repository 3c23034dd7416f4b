//! The signal that a [`block_on`](crate::goroutine::block_on) waits for: however many wakers wake the waiter between
//! two polls, the waiter takes one permit.
//!
//! | waker | waiter |
//! |---|---|
//! | 1. makes the change that the future waits for | 1. takes the permit |
//! | 2. `woken.swap(true)` | 2. `woken.swap(false)` |
//! | 3. if step 2 found false: releases a permit | 3. polls |
//!
//! `woken` is true from a waker's step 2 to the waiter's step 2, and one permit is released for that time. After each
//! waker's step 2 comes a poll that sees the waker's step 1. All changes of `woken` are read-modify-writes, so even a
//! waker's step 2 that finds true is part of the release sequence from which the waiter's step 2 reads. So the waiter's
//! step 2 is Acquire, and the waker's step 2 is Release.
//!
//! With a store in the place of the waiter's swap this does not hold, even if the store and the waker's swap are
//! sequentially consistent: the store comes after the waker's step 2 in the order of all such operations, but reads
//! nothing from that step. Then the poll may miss the waker's step 1. The waker has released no permit, as `woken` was
//! true, and the permit of the earlier waker is taken: the future is never polled again.

use crate::sema::{self, WaitError, WaitLimit};
use crate::shim::{AtomicBool, AtomicU32, Ordering};

/// The signal: see the top of this file.
pub(crate) struct Signal {
    woken: AtomicBool,
    permits: AtomicU32,
}

impl Signal {
    pub(crate) fn new() -> Self {
        Self { woken: AtomicBool::new(false), permits: AtomicU32::new(0) }
    }

    /// Waits for a waker: the waiter's steps 1 and 2.
    pub(crate) fn wait(&self) {
        sema::semacquire(&self.permits);
        self.woken.swap(false, Ordering::Acquire);
    }

    /// Waits as [`Signal::wait`] does, but gives up at a limit. If so, neither step 1 nor step 2 has been done.
    #[cfg_attr(any(sudog_loom, not(unix)), allow(dead_code))]
    pub(crate) fn wait_limited(&self, limit: &WaitLimit<'_>) -> Result<(), WaitError> {
        sema::semacquire_limited(&self.permits, sema::Order::Fifo, limit)?;
        self.woken.swap(false, Ordering::Acquire);
        Ok(())
    }

    /// Wakes the waiter: the waker's steps 2 and 3.
    pub(crate) fn wake(&self) {
        if !self.woken.swap(true, Ordering::Release) {
            // Do not switch to another goroutine: the caller may have more wakers to call.
            crate::goroutine::without_switching(|| sema::semrelease(&self.permits, sema::Wake::Normal));
        }
    }
}

/// `RUSTFLAGS="--cfg sudog_loom" cargo test --profile loom -p sudog-runtime --lib signal`
#[cfg(all(test, sudog_loom))]
mod model {
    use super::*;
    use crate::model::thread;
    use crate::shim::model::under_both;
    use loom::sync::Arc;

    /// Polls a future that is ready when two wakers have done their step 1. Each waker wakes the future; a wake-up that
    /// is lost is a deadlock.
    ///
    /// The model runs under both of `under_both`'s conventions, because the fences of one convention hide the fault of
    /// the SeqCst store of which the top of this file warns.
    #[test]
    fn each_wake_is_followed_by_a_poll_that_sees_what_came_before_it() {
        under_both(|| {
            crate::model::explore(3, || {
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
