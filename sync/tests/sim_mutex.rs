//! The mutex on the simulated machine, with as many processors as contenders and nothing that disturbs them.
//!
//! `RUSTFLAGS="--cfg sudog_sim" cargo test --profile stress -p sudog-sync --test sim_mutex`
#![cfg(sudog_sim)]

use std::sync::Arc;
use std::time::Duration;

use sudog_sim::{Machine, Preset, thread, time, work};
use sudog_sync::GoMutex;
use sudog_sync::semaphore::RuntimeSema;

#[global_allocator]
static ARENA: sudog_sim::Arena = sudog_sim::Arena;

/// How long a contender waited at most, in 40 ms, with a processor for each contender.
fn longest_wait(contenders: usize, outside: u64) -> Duration {
    let preset = Preset::named("forty").expect("a machine of this name");
    let machine = Machine { processors: contenders, ..Machine::new(preset) };
    let run = move || {
        let mutex = Arc::new(GoMutex::<RuntimeSema>::new());
        let end = time::now() + Duration::from_millis(40);
        let contend = || {
            let mutex = mutex.clone();
            let mut longest = Duration::ZERO;
            thread::spawn(move || {
                loop {
                    let start = time::now();
                    if start >= end {
                        return longest;
                    }
                    mutex.lock();
                    longest = longest.max(time::now() - start);
                    work(20);
                    mutex.unlock();
                    work(outside);
                }
            })
        };
        let threads: Vec<_> = (0..contenders).map(|_| contend()).collect();
        threads.into_iter().map(|thread| thread.join().expect("it does not panic")).max().expect("contenders")
    };
    machine.run(run).expect("it ends")
}

/// A successor that has claimed the mutex wakes the first sleeper. Were its permit left in the semaphore, the displaced
/// owner would take it, and two contenders would take turns for as long as nothing disturbs them.
#[test]
fn no_contender_sleeps_while_others_take_turns() {
    for contenders in [4, 6, 8] {
        let longest = longest_wait(contenders, 200);
        assert!(longest < Duration::from_millis(5), "{contenders} contenders: one waited for {longest:?} of 40 ms");
    }
}
