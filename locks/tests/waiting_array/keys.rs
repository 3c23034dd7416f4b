//! Waiting for a key: the eventcount.

use sudog_locks::waiting_array::{
    EventKey, key_monitor, key_signal, key_signal_polite, key_wait, key_wait_lazy, key_wait_until,
};
use sudog_runtime::model::each_site;
use sudog_runtime::model::thread;
use sudog_runtime::reached::{SLEEPS, mark, waiting};

use super::{Flag, soon};
use crate::explore::{HERE, explore, must_fail};

/// Waits in the correct order: monitor, then test the condition.
fn wait(flag: &Flag) {
    loop {
        let seen = key_monitor(HERE);
        if flag.is_up() {
            break;
        }
        mark(if waiting(|| key_wait(HERE, seen)).1 { WAITS } else { SIGNALLED_BEFORE });
    }
}

const WAITS: &str = "one waits for a signal";
const SIGNALLED_BEFORE: &str = "a signal comes between the monitor and the wait";
const SIGNALLED: &str = "one in haste is signalled";
const LATE: &str = "one in haste gives up";

/// Waits with the lazy form. The default state of a key means that the key has never been signalled.
fn wait_lazily(flag: &Flag) {
    let mut seen = EventKey::default();
    while !flag.is_up() {
        mark(if waiting(|| key_wait_lazy(HERE, &mut seen)).1 { WAITS } else { SIGNALLED_BEFORE });
    }
}

fn hasty(seen: EventKey) -> bool {
    let (signalled, _) = waiting(|| key_wait_until(HERE, seen, soon()));
    mark(if signalled { SIGNALLED } else { LATE });
    signalled
}

fn a_signal(preemptions: usize, wait: fn(&Flag), signal: fn(usize)) {
    explore(preemptions, &[WAITS, SLEEPS], move || {
        let flag = Flag::new();
        let waiter = flag.spawn(wait);
        flag.raise();
        signal(HERE);
        waiter.join().unwrap();
    });
}

#[test]
fn a_signal_ends_a_wait() {
    a_signal(5, wait, key_signal);
    a_signal(5, wait_lazily, key_signal);
}

fn the_condition_first(flag: &Flag) {
    while !flag.is_up() {
        let seen = key_monitor(HERE);
        key_wait(HERE, seen);
    }
}

must_fail! {
    /// The historical defect of two C++ libraries.
    the_monitor_must_not_come_after_the_condition: "deadlock", a_signal(2, the_condition_first, key_signal);
}

fn polite_signal(preemptions: usize) {
    a_signal(preemptions, wait, key_signal_polite);
}

#[test]
fn a_polite_signal_finds_the_waiter() {
    polite_signal(5);
}

/// Checks that a polite signal needs both fences. The printed re-check of the polite form is only an acquire load.
#[test]
fn a_polite_signal_needs_both_fences() {
    let test = concat!(module_path!(), "::a_polite_signal_needs_both_fences");
    each_site(test, &["pop_stack.rs, wait: fence", "pop_stack.rs, flush_politely: fence"], &[], || polite_signal(3));
}

#[test]
fn a_deadline_beside_a_waiter() {
    explore(3, &[WAITS, SLEEPS, SIGNALLED, LATE], || {
        let flag = Flag::new();
        let patient = flag.spawn(wait);
        let hasty = flag.spawn(|_| hasty(key_monitor(HERE)));
        flag.raise();
        key_signal(HERE);
        patient.join().unwrap();
        hasty.join().unwrap();
    });
}

#[test]
fn whether_it_was_signalled_a_deadline_tells() {
    explore(4, &[SIGNALLED, LATE], || {
        let seen = key_monitor(HERE);
        let waiter = thread::spawn(move || hasty(seen));
        key_signal(HERE);
        let _either = waiter.join().unwrap();
        assert!(key_wait_until(HERE, seen, soon()));
        assert!(!key_wait_until(HERE, key_monitor(HERE), soon()));
    });
}
