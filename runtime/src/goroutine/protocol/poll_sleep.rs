//! The sleep of a worker in the network poller, in place of its parker, and the way in which a waker ends that sleep.
//!
//! | sleeper | waker |
//! |---|---|
//! | 1. `polling = true` | 1. unparks the sleeper's parker: from then on the parker is ready |
//! | 2. looks whether the parker is ready | 2. reads `polling` |
//! | 3. unless the parker is ready: polls, until an event or an interrupt | 3. if `polling` is true: interrupts the poller |
//!
//! Steps 1 and 2 are a Dekker pair, with a sequentially consistent fence between 1 and 2 on both sides: the sleeper
//! finds its parker ready, or the waker finds the sleeper polling. An interrupt stays until a sleeper takes it, so an
//! interrupt that comes between 2 and 3 of the sleeper ends the poll at once. An interrupt that comes too late ends the
//! next poll without a reason, which does no harm.
//!
//! Go: `netpollBreak` of `runtime/netpoll_epoll.go` (1.27).

use crate::shim::{AtomicBool, Ordering, Parker, full_fence};

/// The state of a worker that may sleep in the poller: see the top of this file.
pub(crate) struct PollSleep {
    polling: AtomicBool,
}

impl PollSleep {
    pub(crate) fn new() -> Self {
        Self { polling: AtomicBool::new(false) }
    }

    /// Polls, until an event or until a waker interrupts, unless the parker is ready. Returns whether the parker was
    /// readied; then the parker can be used again. Called by the sleeper.
    pub(crate) fn sleep(&self, parker: &Parker, poll: impl FnOnce()) -> bool {
        self.polling.store(true, Ordering::Relaxed);
        full_fence();
        if !parker.is_ready() {
            poll();
        }
        self.polling.store(false, Ordering::Relaxed);
        // If the parker is ready, `park` returns at once. `park` also has the Acquire that pairs with the unpark.
        parker.is_ready() && parker.park(None)
    }

    /// Interrupts the sleeper's poll. Called by the waker, after the unpark.
    #[inline]
    pub(crate) fn interrupt(&self, interrupt: impl FnOnce()) {
        full_fence();
        if self.polling.load(Ordering::Relaxed) {
            interrupt();
        }
    }
}

#[cfg(all(test, sudog_loom))]
mod tests {
    use super::*;
    use crate::model::thread;
    use crate::shim::reached::{mark, must_reach};
    use loom::sync::{Arc, Condvar, Mutex};

    /// A model of an eventfd in an epoll: an interrupt stays until a poll takes it.
    struct Poller(Mutex<bool>, Condvar);

    impl Poller {
        fn poll(&self) {
            let mut interrupted = self.0.lock().unwrap();
            while !*interrupted {
                mark("it sleeps in the poller");
                interrupted = self.1.wait(interrupted).unwrap();
            }
            *interrupted = false;
        }

        fn interrupt(&self) {
            *self.0.lock().unwrap() = true;
            self.1.notify_one();
        }
    }

    #[test]
    fn a_waker_ends_a_sleep_in_the_poller() {
        let states = ["it sleeps in the poller", "it polls", "it is ready before it polls", "it is interrupted"];
        must_reach(&states, || {
            crate::model::explore_all(|| {
                let poller = Arc::new(Poller(Mutex::new(false), Condvar::new()));
                let sleeper = Arc::new((PollSleep::new(), Parker::new()));
                let waker = thread::spawn({
                    let (poller, sleeper) = (poller.clone(), sleeper.clone());
                    move || {
                        // SAFETY: the parker is alive, and unparked once.
                        unsafe { Parker::unpark(&raw const sleeper.1) };
                        sleeper.0.interrupt(|| {
                            mark("it is interrupted");
                            poller.interrupt();
                        });
                    }
                });
                let mut polled = false;
                let woken = sleeper.0.sleep(&sleeper.1, || {
                    polled = true;
                    poller.poll();
                });
                mark(if polled { "it polls" } else { "it is ready before it polls" });
                assert!(woken, "an interrupt comes after its unpark");
                waker.join().unwrap();
            });
        });
    }
}
