//! Waiting for an address.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use loom::thread;
use sudog_sync::semaphore::waiting_array::{
    Fence, address_signal, address_signal_polite, address_wait_until, address_wait_until_deadline, without,
};

use super::{Flag, soon};
use crate::explore::{HERE, explore, must_fail};

fn wait(flag: &Flag) {
    address_wait_until(HERE, || flag.is_up());
}

fn polite_signal(preemptions: usize, missing: Option<Fence>) {
    without(missing);
    explore(preemptions, || {
        let flag = Flag::new();
        let waiter = flag.spawn(wait);
        flag.raise();
        address_signal_polite(HERE);
        waiter.join().unwrap();
    });
}

#[test]
fn a_polite_signal_finds_who_waits() {
    polite_signal(5, None);
}

must_fail! {
    a_push_needs_a_fence: "deadlock", polite_signal(3, Some(Fence::AfterPush));
    a_polite_look_needs_a_fence: "deadlock", polite_signal(3, Some(Fence::BeforePoliteLook));
}

#[test]
fn two_polite_signals() {
    explore(3, || {
        let flag = Flag::new();
        let waiter = flag.spawn(wait);
        let other = thread::spawn(|| address_signal_polite(HERE));
        flag.raise();
        address_signal_polite(HERE);
        waiter.join().unwrap();
        other.join().unwrap();
    });
}

/// One leaves the chain by a panic, after its push.
#[test]
fn a_condition_that_panics() {
    explore(4, || {
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

/// Three in a chain, of whom one gives up, as the first, the second or the third.
#[test]
fn a_deadline_in_a_chain() {
    explore(2, || {
        let flag = Flag::new();
        let hasty = flag.spawn(|flag| address_wait_until_deadline(HERE, || flag.is_up(), soon()));
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

/// Two who give up, of whom one may be the top that the other takes off.
#[test]
fn two_deadlines_in_a_chain() {
    explore(2, || {
        let flag = Flag::new();
        let hasty = [(); 2].map(|()| flag.spawn(|flag| address_wait_until_deadline(HERE, || flag.is_up(), soon())));
        let waker = flag.spawn(|flag| {
            flag.raise();
            address_signal(HERE);
        });
        wait(&flag);
        waker.join().unwrap();
        hasty.into_iter().for_each(|t| _ = t.join().unwrap()); // signalled or late
    });
}
