//! Where goroutines start: a family that blocks at once is spread over idle workers, a pair stays together.
//!
//! The place is a hint, and a busy machine may decide otherwise now and then: the watcher, a thief, a worker that has
//! no processor. So a test tries until the outcome has been as it should be ten times in a row. Without the rule that
//! it tests this does not happen before the watchdog barks.
#![cfg(all(unix, not(sudog_loom)))]

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::Mutex;
use std::thread::{self, ThreadId};
use std::time::Duration;

use sudog::chan::Chan;
use sudog::runtime::set_max_procs;
use sudog::sync::WaitGroup;
use sudog::time::sleep;
use sudog::{go, run};
use support::goroutine::{here, until};
use support::{Watchdog, pat};

/// So many outcomes in a row are no luck.
const IN_A_ROW: usize = 10;

/// Where a family started: the goroutines of each thread.
type Places = HashMap<ThreadId, usize>;

/// Starts goroutines that wait for one channel. When all of them wait, it ends them.
fn family(size: usize) -> Places {
    let (jobs, places) = (Chan::<()>::new(0), Arc::new(Mutex::new(Places::new())));
    let (started, done) = (Arc::new(WaitGroup::new()), Arc::new(WaitGroup::new()));
    started.add(size as _);
    done.add(size as _);
    for _ in 0..size {
        let (jobs, places, started, done) = (jobs.clone(), places.clone(), started.clone(), done.clone());
        go(move || {
            *places.lock().unwrap().entry(here()).or_default() += 1;
            started.done();
            jobs.recv();
            done.done();
        });
    }
    started.wait();
    jobs.close();
    done.wait();
    let places = std::mem::take(&mut *places.lock().unwrap());
    places
}

/// Tries until `outcome` has come `IN_A_ROW` times without another one between.
fn again_and_again(workers: usize, outcome: impl Fn() -> bool + Send + 'static) {
    let _watchdog = Watchdog::new();
    if thread::available_parallelism().map_or(1, usize::from) < workers {
        return; // no more workers get goroutines than there are processors
    }
    run(move || {
        set_max_procs(workers);
        let mut row = 0;
        while row < IN_A_ROW {
            row = if outcome() { row + 1 } else { 0 };
            sleep(Duration::from_millis(1)); // the other workers have ended their goroutines, and are idle
        }
        pat();
    });
}

#[test]
fn a_pool_is_spread() {
    again_and_again(2, || {
        let places = family(8);
        places.len() == 2 && places.values().all(|&n| n >= 3)
    });
}

#[test]
fn a_large_family_is_spread() {
    again_and_again(2, || {
        let places = family(200);
        places.len() == 2 && places.values().all(|&n| n >= 90)
    });
}

#[test]
fn all_workers_have_some_of_a_family() {
    again_and_again(4, || {
        let places = family(32);
        places.len() == 4 && places.values().all(|&n| n >= 5)
    });
}

/// Two goroutines, and main, that talk to each other.
#[test]
fn a_pair_stays_together() {
    again_and_again(2, || {
        let (ping, pong) = (Chan::<ThreadId>::new(0), Chan::<ThreadId>::new(0));
        let (from, to) = (ping.clone(), pong.clone());
        go(move || {
            while from.recv().is_some() {
                to.send(here());
            }
        });
        let partners: Vec<_> = (0..20)
            .map(|_| {
                ping.send(here());
                pong.recv()
            })
            .collect();
        ping.close();
        partners.iter().all(|&partner| partner == Some(here()))
    });
}

/// Goroutines that end are no family, however many of them wait: main, which waits for each, stays with them.
#[test]
fn goroutines_that_end_are_not_spread() {
    again_and_again(2, || {
        let places = Arc::new(Mutex::new(Places::new()));
        for _ in 0..20 {
            let (gate, places) = (Chan::<()>::new(0), places.clone());
            let theirs = gate.clone();
            go(move || {
                *places.lock().unwrap().entry(here()).or_default() += 1;
                theirs.recv();
                theirs.recv();
            });
            gate.send(());
            gate.close();
        }
        until(|| places.lock().unwrap().values().sum::<usize>() == 20);
        let places = std::mem::take(&mut *places.lock().unwrap());
        places.len() == 1
    });
}
