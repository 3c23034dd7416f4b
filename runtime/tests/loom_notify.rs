//! Models of the notify list.
//!
//! `RUSTFLAGS="--cfg sudog_loom" cargo test --profile loom -p sudog-runtime --test loom_notify`
//!
//! A lost signal shows as a deadlock. Under loom a deadline has always passed already, so the deadline races with
//! everything that happens after the parking.
#![cfg(sudog_loom)]

use loom::cell::UnsafeCell;
use loom::sync::atomic::AtomicU32;
use loom::sync::{Arc, Mutex};
use std::sync::atomic::Ordering::Relaxed;
use sudog_runtime::Instant;
use sudog_runtime::model::each_site;
use sudog_runtime::model::thread;
use sudog_runtime::reached::{
    AT_ONCE, SLEEPS, TIME_IS_UP, TOO_LATE_AND_WOKEN, TWO_SLEEP, WOKEN_BEFORE, mark, must_reach, waiting,
};
use sudog_runtime::sema::{Cancel, NotifyList, WaitError, WaitLimit};

/// A textbook condition variable: items under a mutex, and waiters for an item.
struct World {
    list: NotifyList,
    items: Mutex<u32>,
    /// The places of notified waiters, in order. Not under the mutex: notified waiters write the log, and the check of
    /// the order reads it.
    log: AtomicU32,
    data: UnsafeCell<u32>,
}

// The states that a model can reach, in addition to a call's states. For a wait, `AT_ONCE` means that a notification
// comes before the wait.
const NO_WAIT: &str = "an item is there";
const WOKEN: &str = "a waiter has its item";
const WOKEN_IN_VAIN: &str = "the item is gone when its waiter is there";
const GIVEN_UP: &str = "a ticket is given up";
const PASSED_ON: &str = "a ticket that is given up passes on its signal";
const NOTIFIED_WITH_ALL: &str = "a ticket that is given up was notified by a broadcast";
const CANCELLED: &str = "a cancel ends a wait";
const CANCELLED_BEFORE: &str = "a cancel comes before the wait";
const NOTIFIED: &str = "a notification comes before a cancel";

#[derive(Clone, Copy, PartialEq)]
enum Patience {
    Endless,
    /// Waits until a deadline, once; then goes without an item.
    Deadline,
    /// Takes a ticket, once, and gives the ticket up without waiting.
    None,
}

impl World {
    /// Takes an item. Returns true if there was an item for this waiter.
    ///
    /// A waiter that gives up does not look for an item: if the waiter had been notified without knowing it, another
    /// waiter would wait for ever although there is an item.
    fn take(&self, patience: Patience) -> bool {
        let mut items = self.items.lock().unwrap();
        let mut waits = 0;
        while *items == 0 {
            waits += 1;
            let deadline = (patience == Patience::Deadline).then(Instant::now);
            let notified = self.list.with_ticket(|ticket| {
                drop(items);
                patience != Patience::None && waiting(|| ticket.wait(deadline)).0
            });
            if !notified {
                mark(GIVEN_UP);
                return false;
            }
            items = self.items.lock().unwrap();
        }
        mark(if waits == 0 { NO_WAIT } else { WOKEN });
        if waits > 1 {
            mark(WOKEN_IN_VAIN);
        }
        *items -= 1;
        true
    }

    fn put(&self, n: u32) {
        *self.items.lock().unwrap() += n;
    }
}

/// Runs `model` in every interleaving with at most `preemptions` preemptions. Some interleavings must reach `states`.
fn explore(preemptions: usize, states: &[&'static str], model: impl Fn(Arc<World>) + Sync + Send + 'static) {
    let run = move || {
        sudog_runtime::model::set_clock(0);
        let world = Arc::new(World {
            list: NotifyList::new(),
            items: Mutex::new(0),
            log: AtomicU32::new(0),
            data: UnsafeCell::new(0),
        });
        model(world.clone());
        assert_eq!(world.list.waiters(), 0);
    };
    must_reach(states, || sudog_runtime::model::explore(preemptions, run));
}

fn spawn<T: 'static>(world: &Arc<World>, f: impl FnOnce(&World) -> T + 'static) -> thread::JoinHandle<T> {
    let world = world.clone();
    thread::spawn(move || f(&world))
}

#[test]
fn a_signal_wakes_the_waiter() {
    explore(5, &[NO_WAIT, WOKEN, AT_ONCE, SLEEPS, WOKEN_BEFORE], |w| {
        let waiter = spawn(&w, |w| w.take(Patience::Endless));
        w.put(1);
        w.list.notify_one();
        assert!(waiter.join().unwrap());
    });
}

/// Checks that the notify list needs no sequentially consistent access: whatever a notification must see happens before
/// the notification. The semaphore table, whose buckets have the same lock, does need such accesses.
#[test]
fn a_signal_needs_no_total_order() {
    let test = concat!(module_path!(), "::a_signal_needs_no_total_order");
    each_site(test, &[], &["model_lock.rs, lock_and_count: fetch_add", "model_lock.rs, count: load"], || {
        explore(3, &[AT_ONCE, SLEEPS], |w| {
            let waiter = spawn(&w, |w| w.take(Patience::Endless));
            w.put(1);
            w.list.notify_one();
            assert!(waiter.join().unwrap());
        });
    });
}

/// A notification without a mutex: loom's cell checks that the read comes after the write.
#[test]
fn what_came_before_a_notification_is_seen_after_it() {
    explore(5, &[AT_ONCE, SLEEPS, WOKEN_BEFORE], |w| {
        let waiter = spawn(&w, |w| {
            w.list.with_ticket(|ticket| waiting(|| ticket.wait(None)).0);
            // SAFETY: loom's cell checks that accesses do not overlap; that is the test.
            w.data.with(|data| assert_eq!(unsafe { *data }, 1));
        });
        while w.list.waiters() == 0 {
            thread::yield_now();
        }
        // SAFETY: loom's cell checks that accesses do not overlap; that is the test.
        w.data.with_mut(|data| unsafe { *data = 1 });
        w.list.notify_one();
        waiter.join().unwrap();
    });
}

#[test]
fn two_signals_wake_two() {
    explore(3, &[NO_WAIT, WOKEN, AT_ONCE, SLEEPS, WOKEN_BEFORE, TWO_SLEEP, WOKEN_IN_VAIN], |w| {
        let waiters = [(); 2].map(|()| spawn(&w, |w| w.take(Patience::Endless)));
        w.put(1);
        w.list.notify_one();
        w.put(1);
        w.list.notify_one();
        assert!(waiters.map(|t| t.join().unwrap()) == [true; 2]);
    });
}

#[test]
fn a_broadcast_wakes_all() {
    explore(3, &[NO_WAIT, WOKEN, AT_ONCE, SLEEPS, WOKEN_BEFORE, TWO_SLEEP], |w| {
        let waiters = [(); 2].map(|()| spawn(&w, |w| w.take(Patience::Endless)));
        w.put(2);
        w.list.notify_all();
        assert!(waiters.map(|t| t.join().unwrap()) == [true; 2]);
    });
}

#[test]
fn a_signal_and_a_broadcast_at_once() {
    explore(2, &[NO_WAIT, WOKEN, AT_ONCE, SLEEPS, WOKEN_BEFORE, TWO_SLEEP], |w| {
        let waiters = [(); 2].map(|()| spawn(&w, |w| w.take(Patience::Endless)));
        w.put(2);
        let other = spawn(&w, |w| w.list.notify_all());
        w.list.notify_one();
        other.join().unwrap();
        assert!(waiters.map(|t| t.join().unwrap()) == [true; 2]);
    });
}

/// The two ways to give up, each with the states to reach. A waiter that gives up takes no item with it, and no signal.
type Both = [(Patience, &'static [&'static str]); 2];
const SIGNAL: Both = [
    (Patience::Deadline, &[TIME_IS_UP, TOO_LATE_AND_WOKEN, GIVEN_UP, SLEEPS, WOKEN, NO_WAIT]),
    (Patience::None, &[GIVEN_UP, PASSED_ON, SLEEPS, WOKEN, NO_WAIT]),
];
const BROADCAST: Both = [
    (Patience::Deadline, &[TIME_IS_UP, TOO_LATE_AND_WOKEN, GIVEN_UP, SLEEPS, WOKEN, NO_WAIT]),
    (Patience::None, &[GIVEN_UP, NOTIFIED_WITH_ALL, SLEEPS, WOKEN, NO_WAIT]),
];

#[test]
fn a_waiter_that_gives_up_leaves_the_signal_to_the_next() {
    for (patience, states) in SIGNAL {
        explore(3, states, move |w| {
            let patient = spawn(&w, |w| w.take(Patience::Endless));
            let hasty = spawn(&w, move |w| {
                if w.take(patience) {
                    w.put(1);
                    w.list.notify_one();
                }
            });
            w.put(1);
            w.list.notify_one();
            assert!(patient.join().unwrap());
            hasty.join().unwrap();
        });
    }
}

#[test]
fn giving_up_meets_a_broadcast() {
    for (patience, states) in BROADCAST {
        explore(3, states, move |w| {
            let patient = spawn(&w, |w| w.take(Patience::Endless));
            let hasty = spawn(&w, move |w| w.take(patience));
            w.put(2);
            w.list.notify_all();
            assert!(patient.join().unwrap());
            let got = u32::from(hasty.join().unwrap());
            assert_eq!(*w.items.lock().unwrap(), 1 - got);
        });
    }
}

/// The broadcast was for all tickets held at its time; a later ticket waits for another notification.
#[test]
fn a_broadcast_is_not_passed_on() {
    explore(4, &[NOTIFIED_WITH_ALL, TIME_IS_UP], |w| {
        let hasty = spawn(&w, |w| w.take(Patience::None));
        w.list.notify_all();
        let notified = w.list.with_ticket(|ticket| waiting(|| ticket.wait(Some(Instant::now()))).0);
        assert!(!notified, "by a broadcast that came before");
        hasty.join().unwrap();
    });
}

/// A signal is for the tickets held at its time, and for the first of them.
#[test]
fn no_newcomer_steals_a_signal() {
    explore(3, &[AT_ONCE, SLEEPS, WOKEN_BEFORE, TWO_SLEEP], |w| {
        let wait = |place: u32| {
            move |w: &World| {
                w.list.with_ticket(|ticket| {
                    waiting(|| ticket.wait(None));
                    // Log 1 and 2 as digits, in the order in which the waiters are notified.
                    let _ = w.log.fetch_update(Relaxed, Relaxed, |log| Some(log * 10 + place));
                });
            }
        };
        let first = spawn(&w, wait(1));
        while w.list.waiters() == 0 {
            thread::yield_now();
        }
        let second = spawn(&w, wait(2));
        w.list.notify_one();
        first.join().unwrap();
        assert_eq!(w.log.load(Relaxed), 1);
        while w.list.waiters() == 0 {
            thread::yield_now();
        }
        w.list.notify_one();
        second.join().unwrap();
        assert_eq!(w.log.load(Relaxed), 12);
    });
}

/// Takes an item, unless `stop` cancels the wait. Returns true if the waiter has the item.
///
/// The canceller has put an item, and another waiter waits without a limit: the signal is for one of the two waiters,
/// whatever the cancel does.
fn cancelled_take(w: &World, stop: &Cancel) -> bool {
    let limit = WaitLimit { cancel: Some(stop), deadline: None };
    let mut items = w.items.lock().unwrap();
    while *items == 0 {
        let over = w.list.with_ticket(|ticket| {
            drop(items);
            let (over, waited) = waiting(|| ticket.wait_limited(&limit));
            mark(match (over, waited) {
                (Ok(()), _) => NOTIFIED,
                (_, true) => CANCELLED,
                (_, false) => CANCELLED_BEFORE,
            });
            assert_eq!(ticket.wait_limited(&limit), over, "the same again");
            over
        });
        match over {
            Ok(()) => items = w.items.lock().unwrap(),
            Err(why) => {
                assert_eq!(why, WaitError::Cancelled);
                return false;
            }
        }
    }
    *items -= 1;
    true
}

#[test]
fn a_cancel_ends_a_wait() {
    explore(4, &[CANCELLED, CANCELLED_BEFORE, SLEEPS, WOKEN_BEFORE], |w| {
        let stop = Arc::new(Cancel::new());
        let waiter = spawn(&w, {
            let stop = stop.clone();
            move |w| cancelled_take(w, &stop)
        });
        stop.cancel();
        assert!(!waiter.join().unwrap());
    });
}

#[test]
fn a_cancel_loses_no_signal() {
    explore(3, &[CANCELLED, CANCELLED_BEFORE, NOTIFIED, NO_WAIT, WOKEN, SLEEPS, TWO_SLEEP], |w| {
        let stop = Arc::new(Cancel::new());
        let hasty = spawn(&w, {
            let stop = stop.clone();
            move |w| cancelled_take(w, &stop)
        });
        let patient = spawn(&w, |w| w.take(Patience::Endless));
        w.put(1);
        w.list.notify_one();
        stop.cancel();
        if hasty.join().unwrap() {
            w.put(1);
            w.list.notify_one();
        }
        assert!(patient.join().unwrap());
    });
}

#[test]
fn a_cancel_and_a_broadcast() {
    explore(3, &[CANCELLED, CANCELLED_BEFORE, NOTIFIED, SLEEPS, WOKEN_BEFORE], |w| {
        let stop = Arc::new(Cancel::new());
        let hasty = spawn(&w, {
            let stop = stop.clone();
            move |w| cancelled_take(w, &stop)
        });
        let canceller = thread::spawn({
            let stop = stop.clone();
            move || stop.cancel()
        });
        w.put(2);
        w.list.notify_all();
        let left = !hasty.join().unwrap();
        canceller.join().unwrap();
        assert_eq!(*w.items.lock().unwrap(), 1 + u32::from(left));
    });
}

/// A canceller unlinks the ticket; the ticket's holder, whose time is up, must not unlink it again.
#[test]
fn a_cancel_and_a_deadline() {
    explore(4, &[CANCELLED, CANCELLED_BEFORE, TIME_IS_UP, TOO_LATE_AND_WOKEN], |w| {
        let stop = Arc::new(Cancel::new());
        let hasty = spawn(&w, {
            let stop = stop.clone();
            move |w| {
                let limit = WaitLimit { cancel: Some(&stop), deadline: Some(Instant::now()) };
                w.list.with_ticket(|ticket| {
                    let (over, waited) = waiting(|| ticket.wait_limited(&limit));
                    match over {
                        Ok(()) => panic!("nobody notifies"),
                        Err(WaitError::TimedOut) => {}
                        Err(WaitError::Cancelled) => mark(if waited { CANCELLED } else { CANCELLED_BEFORE }),
                    }
                });
            }
        });
        stop.cancel();
        hasty.join().unwrap();
    });
}
