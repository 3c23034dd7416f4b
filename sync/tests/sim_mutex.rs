//! The mutex on the simulated machine, with as many processors as contenders and nothing that disturbs them.
//!
//! `RUSTFLAGS="--cfg sudog_sim" cargo stress -p sudog-sync --test sim_mutex`
#![cfg(sudog_sim)]

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use sudog_runtime::AtomicU64;
use sudog_runtime::goroutine::{Builder, Placement, set_max_procs};
use sudog_sim::{Machine, Preset, thread, time, work};
use sudog_sync::GoMutex;
use sudog_sync::semaphore::RuntimeSema;

#[global_allocator]
static ARENA: sudog_sim::Arena = sudog_sim::Arena;

/// Returns the longest wait of a contender in 40 ms, with a processor for each contender.
fn longest_wait(machine: &str, contenders: usize, [inside, outside]: [u64; 2]) -> Duration {
    let preset = Preset::named(machine).expect("a machine of this name");
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
                    work(inside);
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

/// A successor claims the mutex after a tenth of a millisecond and wakes the first sleeper, so a contender waits for
/// about as many tenths as there are contenders. Two mistakes made waits of many milliseconds:
///
/// * The permit of the first sleeper stayed in the semaphore. The displaced owner took that permit, and two contenders
///   took turns for as long as nothing disturbed them.
/// * The successor claimed by compare-exchange, which failed whenever an owner had locked or unlocked since the last
///   look.
#[test]
fn each_contender_has_its_turn_within_a_few_thresholds() {
    const FORTY: &[[u64; 2]] = &[[20, 0], [20, 50], [20, 200], [0, 50], [100, 50]];
    const ALTRA: &[[u64; 2]] = &[[0, 0], [5, 0], [5, 5], [20, 0], [20, 5]];
    for (machine, works) in [("forty", FORTY), ("altra", ALTRA)] {
        for (contenders, &work) in [3, 4, 6, 8].into_iter().flat_map(|n| works.iter().map(move |work| (n, work))) {
            let longest = longest_wait(machine, contenders, work);
            let bound = Duration::from_micros(150) * u32::try_from(contenders).expect("few");
            let [inside, outside] = work;
            assert!(
                longest < bound,
                "{machine}, {contenders} contenders, {inside} cycles inside, {outside} outside: one waited for {longest:?}"
            );
        }
    }
}

/// Returns the number of acquisitions in 20 ms, by 32 threads on eight processors.
fn acquisitions(inside: u64, outside: u64) -> u64 {
    let preset = Preset::named("forty").expect("a machine of this name");
    let machine = Machine { processors: 8, ..Machine::new(preset) };
    let run = move || {
        let mutex = Arc::new(GoMutex::<RuntimeSema>::new());
        let contend = || {
            let (mutex, end) = (mutex.clone(), time::now() + Duration::from_millis(20));
            thread::spawn(move || {
                let mut count = 0;
                while time::now() < end {
                    mutex.lock();
                    work(inside);
                    mutex.unlock();
                    work(outside);
                    count += 1;
                }
                count
            })
        };
        let threads: Vec<_> = (0..32).map(|_| contend()).collect();
        threads.into_iter().map(|thread| thread.join().expect("it does not panic")).sum::<u64>()
    };
    machine.run(run).expect("it ends")
}

/// Threads that are away from the mutex for five times as long as they hold it. Six of them keep the mutex busy. A mistake
/// let only two stay awake: a thread that came back slept at once, as others slept, although the mutex was soon free.
#[test]
fn threads_that_are_away_for_long_stay_awake() {
    let found = acquisitions(1_000, 5_000);
    assert!(found > 22_000, "{found} acquisitions in 20 ms, where one thread alone makes about 10,000");
}

/// Go issue 33747: the contenders queue behind a stall, and a worker that has slept needs 50 us to begin. If the
/// starvation mode lasts, each handoff costs that much while all other workers sleep, for ever: 17 rounds a millisecond
/// instead of 110.
#[test]
fn goroutines_recover_from_a_stall() {
    const CONTENDERS: usize = 40;
    let mut preset = Preset::named("forty").expect("a machine of this name").clone();
    preset.system.idle_exit = 50_000;
    let cycles = |us: u64| us * preset.mhz;
    let (inside, outside) = (cycles(7), cycles(350));
    let rounds = Machine::new(&preset).run(move || {
        set_max_procs(CONTENDERS);
        let mutex = Arc::new(GoMutex::<RuntimeSema>::new());
        let rounds = Arc::new(AtomicU64::new(0));
        mutex.lock();
        for number in 0..CONTENDERS {
            let (mutex, rounds) = (mutex.clone(), rounds.clone());
            let contend = move || {
                loop {
                    work(outside);
                    mutex.lock();
                    work(inside);
                    mutex.unlock();
                    rounds.fetch_add(1, Relaxed);
                }
            };
            Builder::new().on(Placement::Worker(number)).spawn(contend);
        }
        thread::sleep(Duration::from_millis(5));
        mutex.unlock();
        thread::sleep(Duration::from_millis(10));
        let before = rounds.load(Relaxed);
        thread::sleep(Duration::from_millis(10));
        rounds.load(Relaxed) - before
    });
    let rounds = rounds.expect("it ends");
    assert!(rounds > 500, "{rounds} rounds in 10 ms");
}
