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

/// A successor claims the mutex after a tenth of a millisecond and wakes the first sleeper, so a contender waits for about
/// as many tenths as there are contenders. Two mistakes made waits of many milliseconds:
///
/// * The permit of the first sleeper stayed in the semaphore. The displaced owner took it, and two contenders took turns
///   for as long as nothing disturbed them.
/// * The successor claimed by compare-exchange. It failed whenever an owner had locked or unlocked since the last look.
#[test]
fn each_contender_has_its_turn_within_a_few_thresholds() {
    for contenders in [3, 4, 6, 8] {
        for outside in [0, 50, 200] {
            let longest = longest_wait(contenders, outside);
            let bound = Duration::from_micros(150) * u32::try_from(contenders).expect("few");
            assert!(longest < bound, "{contenders} contenders, {outside} cycles outside: one waited for {longest:?}");
        }
    }
}
