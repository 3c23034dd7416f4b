//! Goroutines that are started, and that give way.

use std::time::Duration;

use sudog_runtime::goroutine::{go, gosched, max_procs};
use sudog_sync::WaitGroup;

use super::round::Round;
use super::shared;
use super::work::{Baton, burn};

/// Measures chains of goroutines, each of which starts the next and ends.
pub fn chains(round: &mut Round, chains: usize) {
    fn link(n: usize, done: &'static WaitGroup) {
        match n {
            0 => done.done(),
            _ => go(move || link(n - 1, done)),
        }
    }

    let done = shared(WaitGroup::new());
    let n = round.n / chains;
    done.add(chains as _);
    for _ in 0..chains {
        go(move || link(n, done));
    }
    done.wait();
}

/// Measures a chain for each worker.
pub fn parallel_chains(round: &mut Round) {
    chains(round, max_procs());
}

/// Measures a goroutine that starts all others, with the workers awake.
pub fn single(round: &mut Round) {
    let awake = shared(WaitGroup::new());
    for _ in 0..max_procs() {
        awake.add(1);
        go(|| {
            burn(Duration::from_micros(500));
            awake.done();
        });
    }
    awake.wait();
    let wg = shared(WaitGroup::new());
    round.reset_timer();
    wg.add(round.n as _);
    for _ in 0..round.n {
        go(|| wg.done());
    }
    wg.wait();
}

/// Measures two goroutines that give way to each other.
pub fn switch(round: &mut Round) {
    let done = shared(WaitGroup::new());
    let n = round.n / 2;
    for _ in 0..2 {
        done.add(1);
        go(move || {
            (0..n).for_each(|_| gosched());
            done.done();
        });
    }
    done.wait();
}

/// Measures a line of goroutines, each of which waits for the right neighbour: all are started, and a baton is passed
/// through. The first turn does not count, as the memory is fresh then.
pub fn daisy_chain(round: &mut Round) {
    const STAGES: usize = 10_000;

    let links: &'static [Baton] = shared((0..=STAGES).map(|_| Baton::new()).collect::<Vec<_>>());
    for turn in 0..=round.n {
        if turn == 1 {
            round.reset_timer();
        }
        for i in 0..STAGES {
            go(move || {
                links[i + 1].take();
                links[i].give();
            });
        }
        links[STAGES].give();
        links[0].take();
    }
}
