//! Waiting for an address.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use sudog_locks::waiting_array::{
    address_signal, address_signal_polite, address_wait_until, address_wait_until_deadline,
};
use sudog_runtime::model::each_site;
use sudog_runtime::model::thread;
use sudog_runtime::reached::{AT_ONCE, SLEEPS, TWO_SLEEP, mark, waiting};

use super::{Flag, soon};
use crate::explore::{HERE, explore};

fn wait(flag: &Flag) {
    waiting(|| address_wait_until(HERE, || flag.is_up()));
}

fn hasty(flag: &Flag) -> bool {
    let (signalled, _) = waiting(|| address_wait_until_deadline(HERE, || flag.is_up(), soon()));
    mark(if signalled { SIGNALLED } else { LATE });
    signalled
}

const SIGNALLED: &str = "one in haste sees what it waits for";
const LATE: &str = "one in haste gives up";

fn polite_signal(preemptions: usize) {
    explore(preemptions, &[AT_ONCE, SLEEPS], || {
        let flag = Flag::new();
        let waiter = flag.spawn(wait);
        flag.raise();
        address_signal_polite(HERE);
        waiter.join().unwrap();
    });
}

#[test]
fn a_polite_signal_finds_the_waiter() {
    polite_signal(5);
}

#[test]
fn a_polite_signal_needs_both_fences() {
    let test = concat!(module_path!(), "::a_polite_signal_needs_both_fences");
    each_site(test, &["pop_stack.rs, wait: fence", "pop_stack.rs, flush_politely: fence"], &[], || polite_signal(3));
}

#[test]
fn two_polite_signals() {
    explore(3, &[AT_ONCE, SLEEPS], || {
        let flag = Flag::new();
        let waiter = flag.spawn(wait);
        let other = thread::spawn(|| address_signal_polite(HERE));
        flag.raise();
        address_signal_polite(HERE);
        waiter.join().unwrap();
        other.join().unwrap();
    });
}

/// Lets a waiter leave the chain by a panic, after its push.
#[test]
fn a_condition_that_panics() {
    explore(4, &[AT_ONCE, SLEEPS], || {
        let flag = Flag::new();
        let patient = flag.spawn(wait);
        let panics = thread::spawn(|| {
            let asked = Cell::new(0);
            let wait = || {
                address_wait_until(HERE, || {
                    if asked.replace(asked.get() + 1) > 0 {
                        resume_unwind(Box::new("the condition's")); // no message
                    }
                    false
                });
            };
            let panic = catch_unwind(AssertUnwindSafe(wait)).unwrap_err();
            assert_eq!(panic.downcast_ref(), Some(&"the condition's"));
        });
        flag.raise();
        address_signal(HERE);
        patient.join().unwrap();
        panics.join().unwrap();
    });
}

/// Lets one of three waiters in a chain give up: the first, the second or the third.
#[test]
fn a_deadline_in_a_chain() {
    explore(2, &[SIGNALLED, LATE, SLEEPS, TWO_SLEEP], || {
        let flag = Flag::new();
        let hasty = flag.spawn(hasty);
        let others = [
            flag.spawn(wait),
            flag.spawn(|flag| {
                flag.raise();
                address_signal(HERE);
            }),
        ];
        wait(&flag);
        others.into_iter().for_each(|t| t.join().unwrap());
        hasty.join().unwrap();
    });
}

/// Lets two waiters give up; either may be the top that the other detaches.
#[test]
fn two_deadlines_in_a_chain() {
    explore(2, &[SIGNALLED, LATE, SLEEPS], || {
        let flag = Flag::new();
        let hasty = [(); 2].map(|()| flag.spawn(hasty));
        let waker = flag.spawn(|flag| {
            flag.raise();
            address_signal(HERE);
        });
        wait(&flag);
        waker.join().unwrap();
        hasty.into_iter().for_each(|t| _ = t.join().unwrap()); // signalled or late
    });
}
