//! Models of the semaphore table: every interleaving, on loom's memory model, up to a bound of preemptions.
//!
//! `RUSTFLAGS="--cfg sudog_loom" cargo test --profile loom -p sudog-runtime --test loom_sema`
//!
//! A lost wake-up shows as a deadlock, which loom reports; a lost or doubled permit as a failed count. Under loom a
//! deadline has always passed already, so the deadline races with everything that happens after the queueing.
#![cfg(sudog_loom)]

use loom::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use sudog_runtime::model::each_site;
use sudog_runtime::model::thread;
use sudog_runtime::reached::{
    AGAIN, AT_ONCE, SLEEPS, TIME_IS_UP, TOO_LATE_AND_WOKEN, WOKEN_BEFORE, mark, must_reach, waiting,
};
use sudog_runtime::sema::{Cancel, Order, SemTable, WaitError, WaitLimit, Wake};
use sudog_runtime::{AtomicU32, Instant};

struct World {
    table: SemTable<1>,
    permits: AtomicU32,
    other: AtomicU32,
    cancel: Cancel,
    /// The number of calls that have waited. No step of the model.
    waits: AtomicUsize,
}

// The states that a model can reach, in addition to a call's states.
const ONE_WAITS: &str = "one waits";
const TWO_WAIT: &str = "two wait";
const GRANTED: &str = "a limited call gets its permit";
const CANCELLED_BEFORE: &str = "a cancel comes before the wait";
const CANCELLED: &str = "a cancel ends a wait";
const TIMED_OUT: &str = "a deadline ends a wait";

impl World {
    fn acquire(&self) {
        self.wait(|| self.table.acquire(&self.permits, Order::Fifo));
    }

    fn wait<T>(&self, acquire: impl FnOnce() -> T) -> (T, bool) {
        let (result, waited) = waiting(acquire);
        self.waits.fetch_add(usize::from(waited), Relaxed);
        (result, waited)
    }

    fn acquire_limited(&self, limit: &WaitLimit<'_>) -> Result<(), WaitError> {
        let (result, waited) = self.wait(|| self.table.acquire_limited(&self.permits, Order::Fifo, limit));
        mark(match result {
            Ok(()) => GRANTED,
            Err(WaitError::Cancelled) => {
                if waited {
                    CANCELLED
                } else {
                    CANCELLED_BEFORE
                }
            }
            Err(_) => TIMED_OUT,
        });
        result
    }

    fn release(&self, wake: Wake) {
        self.table.release(&self.permits, wake);
    }

    fn try_acquire(&self) -> bool {
        self.acquire_limited(&WaitLimit::until(Instant::now())).is_ok()
    }

    fn left(&self) -> u32 {
        self.permits.load(Relaxed)
    }
}

/// Runs `model` in every interleaving with at most `preemptions` preemptions. Some interleavings must reach `states`.
fn explore(
    preemptions: usize,
    permits: u32,
    states: &[&'static str],
    model: impl Fn(Arc<World>) + Sync + Send + 'static,
) {
    let run = move || {
        sudog_runtime::model::set_clock(0);
        let world = World {
            table: SemTable::new(),
            permits: AtomicU32::new(permits),
            other: AtomicU32::new(0),
            cancel: Cancel::new(),
            waits: AtomicUsize::new(0),
        };
        let world = Arc::new(world);
        model(world.clone());
        match world.waits.load(Relaxed) {
            0 => {}
            1 => mark(ONE_WAITS),
            _ => mark(TWO_WAIT),
        }
    };
    must_reach(states, || sudog_runtime::model::explore(preemptions, run));
}

fn spawn<T: 'static>(world: &Arc<World>, f: impl FnOnce(&World) -> T + 'static) -> thread::JoinHandle<T> {
    let world = world.clone();
    thread::spawn(move || f(&world))
}

#[test]
fn a_release_wakes_the_acquirer() {
    for wake in [Wake::Normal, Wake::Handoff] {
        explore(4, 0, &[AT_ONCE, SLEEPS, WOKEN_BEFORE], move |w| {
            let waiter = spawn(&w, World::acquire);
            w.release(wake);
            waiter.join().unwrap();
            assert_eq!(w.left(), 0);
        });
    }
}

/// A normal release and its acquirer are a Dekker pair.
#[test]
fn a_release_sees_the_acquirer_or_is_seen() {
    let test = concat!(module_path!(), "::a_release_sees_the_acquirer_or_is_seen");
    let needed = [
        "model_lock.rs, lock_and_count: fetch_add",
        "model_lock.rs, count: load",
        "table.rs, add: fetch_add",
        "table.rs, take: load",
    ];
    each_site(test, &needed, &["table.rs, take: compare_exchange"], || {
        explore(4, 0, &[AT_ONCE, SLEEPS], |w| {
            let waiter = spawn(&w, World::acquire);
            w.release(Wake::Normal);
            waiter.join().unwrap();
            assert_eq!(w.left(), 0);
        });
    });
}

#[test]
fn two_releases_wake_two_acquirers() {
    // A woken waiter can lose to a newcomer. Here no waiter can if the other permit is handed over.
    let states = [AT_ONCE, SLEEPS, WOKEN_BEFORE, ONE_WAITS, TWO_WAIT, AGAIN];
    for (wake, states) in [(Wake::Normal, &states[..]), (Wake::Handoff, &states[..5])] {
        explore(3, 0, states, move |w| {
            let waiters = [spawn(&w, World::acquire), spawn(&w, World::acquire)];
            w.release(wake);
            w.release(Wake::Normal);
            for t in waiters {
                t.join().unwrap();
            }
            assert_eq!(w.left(), 0);
        });
    }
}

#[test]
fn one_release_of_two_wakes_two_acquirers() {
    explore(3, 0, &[AT_ONCE, SLEEPS, WOKEN_BEFORE, ONE_WAITS, TWO_WAIT], |w| {
        let waiters = [spawn(&w, World::acquire), spawn(&w, World::acquire)];
        w.table.release_many(&w.permits, 2);
        for t in waiters {
            t.join().unwrap();
        }
        assert_eq!(w.left(), 0);
    });
}

/// A wait group's last step: one grant for each waiter. Some waiters may not have queued yet.
#[test]
fn grants_reach_waiters_that_have_yet_to_queue() {
    explore(3, 0, &[AT_ONCE, SLEEPS, WOKEN_BEFORE, ONE_WAITS, TWO_WAIT], |w| {
        let waiters = [spawn(&w, World::acquire), spawn(&w, World::acquire)];
        w.table.grant_many(&w.permits, 2);
        for t in waiters {
            t.join().unwrap();
        }
        assert_eq!(w.left(), 0);
    });
}

#[test]
fn a_grant_meets_a_deadline() {
    explore(4, 0, &[AT_ONCE, GRANTED, TIMED_OUT, WOKEN_BEFORE, TOO_LATE_AND_WOKEN], |w| {
        let waiter = spawn(&w, World::try_acquire);
        w.table.grant_many(&w.permits, 1);
        let got = u32::from(waiter.join().unwrap());
        assert_eq!(got + w.left(), 1);
    });
}

#[test]
fn a_permit_excludes() {
    explore(3, 1, &[AT_ONCE, SLEEPS, WOKEN_BEFORE, ONE_WAITS], |w| {
        let turn = |w: &World| {
            w.acquire();
            assert_eq!(w.other.fetch_add(1, Relaxed), 0);
            w.other.fetch_sub(1, Relaxed);
            w.release(Wake::Normal);
        };
        let other = spawn(&w, turn);
        turn(&w);
        other.join().unwrap();
        assert_eq!(w.left(), 1);
    });
}

#[test]
fn semaphores_that_share_a_bucket_do_not_mix() {
    explore(3, 0, &[AT_ONCE, SLEEPS, ONE_WAITS, TWO_WAIT], |w| {
        let first = spawn(&w, World::acquire);
        let second = spawn(&w, |w| _ = w.wait(|| w.table.acquire(&w.other, Order::Lifo)));
        w.table.release(&w.other, Wake::Normal);
        second.join().unwrap();
        w.release(Wake::Handoff);
        first.join().unwrap();
        assert_eq!(w.left() + w.other.load(Relaxed), 0);
    });
}

/// Go's semrelease with handoff lets a newcomer take the permit on its way; this release must not.
#[test]
fn no_newcomer_steals_a_handed_over_permit() {
    const HANDED_OVER: &str = "a thief is beside what is handed over";
    explore(3, 0, &[HANDED_OVER, SLEEPS, WOKEN_BEFORE], |w| {
        let waiter = spawn(&w, World::acquire);
        let thief = spawn(&w, |w| {
            let beside = w.table.waiters(&w.permits) == 1;
            (beside, beside && w.try_acquire())
        });
        let releaser = spawn(&w, |w| {
            let queued = w.table.waiters(&w.permits) == 1;
            w.release(Wake::Handoff);
            queued
        });
        let queued = releaser.join().unwrap();
        let (beside, stolen) = thief.join().unwrap();
        if beside && queued {
            mark(HANDED_OVER);
        }
        if stolen {
            assert!(!queued, "a newcomer took the permit that was handed to a waiter");
            w.release(Wake::Normal);
        }
        waiter.join().unwrap();
        assert_eq!(w.left(), 0);
    });
}

#[test]
fn a_deadline_neither_loses_nor_doubles_a_permit() {
    for wake in [Wake::Normal, Wake::Handoff] {
        explore(4, 0, &[AT_ONCE, GRANTED, TIMED_OUT, TIME_IS_UP, TOO_LATE_AND_WOKEN], move |w| {
            let waiter = spawn(&w, World::try_acquire);
            w.release(wake);
            let got = u32::from(waiter.join().unwrap());
            assert_eq!(got + w.left(), 1);
        });
    }
}

#[test]
fn a_deadline_does_not_strand_the_next_in_line() {
    for wake in [Wake::Normal, Wake::Handoff] {
        explore(3, 0, &[GRANTED, TIMED_OUT, TOO_LATE_AND_WOKEN, SLEEPS, TWO_WAIT], move |w| {
            let patient = spawn(&w, World::acquire);
            let hasty = spawn(&w, |w| {
                if w.try_acquire() {
                    w.release(Wake::Normal);
                }
            });
            w.release(wake);
            patient.join().unwrap();
            hasty.join().unwrap();
            assert_eq!(w.left(), 0);
        });
    }
}

#[test]
fn a_cancel_neither_loses_nor_doubles_a_permit() {
    for wake in [Wake::Normal, Wake::Handoff] {
        explore(3, 0, &[GRANTED, CANCELLED_BEFORE, CANCELLED, SLEEPS, WOKEN_BEFORE], move |w| {
            let waiter = spawn(&w, |w| {
                let limit = WaitLimit { cancel: Some(&w.cancel), ..WaitLimit::default() };
                w.acquire_limited(&limit)
            });
            let releaser = spawn(&w, move |w| w.release(wake));
            w.cancel.cancel();
            releaser.join().unwrap();
            let got = match waiter.join().unwrap() {
                Ok(()) => 1,
                Err(why) => {
                    assert_eq!(why, WaitError::Cancelled);
                    0
                }
            };
            assert_eq!(got + w.left(), 1);
        });
    }
}

#[test]
fn a_cancel_finds_every_waiter() {
    explore(4, 0, &[CANCELLED_BEFORE, CANCELLED, ONE_WAITS, TWO_WAIT], |w| {
        let wait = |w: &World| {
            let limit = WaitLimit { cancel: Some(&w.cancel), ..WaitLimit::default() };
            w.acquire_limited(&limit)
        };
        let waiters = [spawn(&w, wait), spawn(&w, wait)];
        w.cancel.cancel();
        for t in waiters {
            assert_eq!(t.join().unwrap(), Err(WaitError::Cancelled));
        }
        assert_eq!(w.table.waiters(&w.permits), 0);
    });
}

#[test]
fn a_cancel_meets_a_deadline() {
    explore(4, 0, &[CANCELLED_BEFORE, CANCELLED, TIMED_OUT, TOO_LATE_AND_WOKEN], |w| {
        let waiter = spawn(&w, |w| {
            let limit = WaitLimit { cancel: Some(&w.cancel), ..WaitLimit::until(Instant::now()) };
            w.acquire_limited(&limit)
        });
        w.cancel.cancel();
        assert!(waiter.join().unwrap().is_err());
        assert_eq!(w.table.waiters(&w.permits), 0);
    });
}
