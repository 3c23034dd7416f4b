//! The slow path of `unlock`: contenders are left. `state.rs` has the protocol.

use std::sync::atomic::Ordering::Relaxed;

use sudog_runtime::fatal;
use sudog_runtime::shim::mark;

use super::go_mutex::GoMutex;
use super::policy::Policy;
use super::state::State;
use crate::raw::{Semaphore, Wake};

impl<S: Semaphore, P: Policy> GoMutex<S, P> {
    /// Finishes an unlock that has left `state`, in which the mutex is free.
    #[cold]
    pub(super) fn unlock_slow(&self, mut state: State) {
        // Report the misuse: an unlock of a locked mutex would have cleared LOCKED.
        if state.is_locked() {
            fatal("sync: unlock of unlocked mutex");
        }

        // Starvation mode: hand the mutex over to the first waiter; or leave the mutex to the successor, which watches.
        if state.is_starving() {
            if !state.is_woken() {
                self.sema.release(P::HANDOFF);
            }
            return;
        }

        // Normal mode: make a waiter the designated waker, and wake that waiter. Nothing is left to do if no contender
        // sleeps, if another contender has locked or claimed the mutex, or if there is a designated waker already.
        while state.must_wake_waiter() {
            match self.state.compare_exchange_weak(state, state.designate_waiter(), Relaxed, Relaxed) {
                Ok(_) => {
                    mark("an unlock wakes a waiter");
                    return self.sema.release(Wake::Normal);
                }
                Err(now) => state = now,
            }
        }
    }
}
