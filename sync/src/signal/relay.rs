//! Passes signals from their handler to a thread that sends the signals to channels. The handler itself may do next to
//! nothing.
//!
//! | handler ([`Relay::arrive`]) | stopper |
//! |---|---|
//! | 1. increments `delivering` | 1. removes the signal from `wanted` ([`Relay::unwant`]) |
//! | 2. reads `wanted`: is the signal relayed? | 2. waits until `delivering` is 0 ([`Relay::quiesce`]) |
//! | 3. if so: adds the signal to `pending` | 3. takes all of `pending` ([`Relay::take`]) |
//! | 4. decrements `delivering` | |
//! | 5. if not: does what the system would do | |
//!
//! A signal either is relayed or does its default action: no signal is lost on the way. All accesses are
//! read-modify-writes, so each access reads the latest value. If the handler's step 2 comes before the stopper's step
//! 1 in the order of `wanted`, the stopper's step 1 acquires everything that the handler has released there, including
//! the handler's step 1. So the stopper's step 2 waits for the handler's step 4, which releases the handler's step 3.
//! If the handler's step 2 comes after the stopper's step 1, the signal is not relayed.
//!
//! A signal that arrives twice before being taken is relayed once, as in Go and in the system's own queue.
//!
//! Go: `sigsend` and `signalWaitUntilIdle` of `runtime/sigqueue.go` (1.27).

use sudog_runtime::const_unless_model;
use sudog_runtime::shim::{AtomicU32, AtomicU64, Ordering, yield_now};

/// The task of the handler after it has reported the arrival of a signal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Arrival {
    /// The signal is pending: the handler must wake the thread that relays.
    Relayed,
    /// The signal is not wanted: the handler must do the rest (its step 5).
    Unwanted,
}

/// The signals of a process. A set of signals has a bit for each signal: [`bit`].
pub(super) struct Relay {
    wanted: AtomicU64,
    pending: AtomicU64,
    /// The number of handlers that are between their steps 1 and 4.
    delivering: AtomicU32,
}

/// Returns the set that contains only this signal, a number from 1 to 64.
pub(super) const fn bit(number: u32) -> u64 {
    1 << (number - 1)
}

impl Relay {
    const_unless_model! {
        pub(super) const fn new() -> Self {
            Self { wanted: AtomicU64::new(0), pending: AtomicU64::new(0), delivering: AtomicU32::new(0) }
        }
    }

    /// Relays these signals from now on.
    pub(super) fn want(&self, signals: u64) {
        self.wanted.fetch_or(signals, Ordering::AcqRel);
    }

    /// Does the stopper's step 1.
    pub(super) fn unwant(&self, signals: u64) {
        self.wanted.fetch_and(!signals, Ordering::AcqRel);
    }

    /// Does the stopper's step 2. A handler takes about ten instructions, and does not wait. The awaited handler does
    /// not run on the calling thread, because the handler would have ended before this call.
    pub(super) fn quiesce(&self) {
        while self.delivering.fetch_add(0, Ordering::AcqRel) != 0 {
            yield_now(); // yields the thread: the awaited handler runs on another thread
        }
    }

    /// Does the stopper's step 3. Also called by the thread that relays, when that thread is woken.
    pub(super) fn take(&self) -> u64 {
        self.pending.swap(0, Ordering::AcqRel)
    }

    /// Does the handler's steps 1 to 4, by atomic operations only.
    pub(super) fn arrive(&self, number: u32) -> Arrival {
        self.delivering.fetch_add(1, Ordering::AcqRel);
        let wanted = self.wanted.fetch_or(0, Ordering::AcqRel) & bit(number) != 0;
        if wanted {
            self.pending.fetch_or(bit(number), Ordering::AcqRel);
        }
        self.delivering.fetch_sub(1, Ordering::AcqRel);
        if wanted { Arrival::Relayed } else { Arrival::Unwanted }
    }
}

/// `RUSTFLAGS="--cfg sudog_loom" cargo test --profile loom -p sudog-sync --lib relay`
#[cfg(all(test, sudog_loom))]
mod model {
    use super::*;
    use loom::sync::Arc;
    use sudog_runtime::model::thread;
    use sudog_runtime::reached::{YIELDS, mark, must_reach};

    const RELAYED: &str = "a signal is relayed";
    const BY_DEFAULT: &str = "a signal comes when it is not wanted any more";

    /// A signal that arrives while its last receiver stops is found by the stopper, or is not relayed.
    #[test]
    fn none_is_lost_on_the_way() {
        must_reach(&[RELAYED, BY_DEFAULT, YIELDS], || {
            sudog_runtime::model::explore_all(|| {
                let relay = Arc::new(Relay::new());
                relay.want(bit(1) | bit(2));
                let handler = thread::spawn({
                    let relay = relay.clone();
                    move || relay.arrive(1)
                });
                relay.unwant(bit(1));
                relay.quiesce();
                let found = relay.take();
                let arrival = handler.join().unwrap();
                mark(if arrival == Arrival::Relayed { RELAYED } else { BY_DEFAULT });
                assert_eq!(found == bit(1), arrival == Arrival::Relayed);
                assert_eq!(relay.take(), 0, "it comes late");
            });
        });
    }

    /// Two signals, of which one is still wanted: each is taken once, by the stopper or by the thread that relays.
    #[test]
    fn each_is_taken_once() {
        const BOTH: &str = "a signal is found by the stopper of the other";
        must_reach(&[RELAYED, BY_DEFAULT, BOTH], || {
            sudog_runtime::model::explore_all(|| {
                let relay = Arc::new(Relay::new());
                relay.want(bit(1) | bit(2));
                let handler = thread::spawn({
                    let relay = relay.clone();
                    move || {
                        let two = relay.arrive(2);
                        let one = relay.arrive(1);
                        (two, one, relay.take())
                    }
                });
                relay.unwant(bit(1));
                relay.quiesce();
                let found = relay.take();
                let (two, one, rest) = handler.join().unwrap();
                assert_eq!(two, Arrival::Relayed);
                mark(if one == Arrival::Relayed { RELAYED } else { BY_DEFAULT });
                if found & bit(2) != 0 {
                    mark(BOTH);
                }
                let late = relay.take();
                let relayed = bit(2) | if one == Arrival::Relayed { bit(1) } else { 0 };
                assert_eq!(found | rest | late, relayed);
                assert_eq!(found & rest | found & late | rest & late, 0, "taken twice");
            });
        });
    }
}
