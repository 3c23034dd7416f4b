//! Runs the models of waiting in the waiting array.
#![allow(dead_code)] // compiled into each suite, and no suite uses all of this module

use sudog_locks::waiting_array::{address_signal, key_monitor, location_wake_all};
use sudog_runtime::model::set_clock;
use sudog_runtime::reached::must_reach;

/// The two buckets of the tables, by address, key or location.
pub const HERE: usize = 0;
pub const THERE: usize = 1;

/// Explores the model with a clock at rest: a deadline passes as soon as a thread sleeps, never before. Some of the
/// executions must reach `states`.
pub fn explore(preemptions: usize, states: &[&'static str], model: impl Fn() + Sync + Send + 'static) {
    explore_in_time(preemptions, 0, states, model);
}

/// Explores the model with a clock that advances by `step` nanoseconds each time it is read.
pub fn explore_in_time(
    preemptions: usize,
    step: u64,
    states: &[&'static str],
    model: impl Fn() + Sync + Send + 'static,
) {
    let run = move || {
        STEP.set(step);
        set_clock(step);
        // Make the tables first: a thread that makes a table would otherwise pass its earlier writes on to the other
        // threads.
        for bucket in [HERE, THERE] {
            address_signal(bucket);
            let _ = key_monitor(bucket);
            location_wake_all(bucket);
        }
        model();
    };
    must_reach(states, || sudog_runtime::model::explore(preemptions, run));
}

/// The step of the clock.
pub fn step() -> u64 {
    STEP.get()
}

thread_local!(static STEP: std::cell::Cell<u64> = const { std::cell::Cell::new(0) });

#[allow(unused_imports)]
pub(crate) use crate::must_fail::must_fail;
