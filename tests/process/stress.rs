//! Random use of all operations at once, from many threads, under a watchdog. Each test takes a second, or
//! `SUDOG_STRESS_SECS` seconds.
#![cfg(all(feature = "locks", not(sudog_loom)))]

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use rand::rngs::{StdRng, SysRng};
use rand::{RngExt, SeedableRng, TryRng};
use sudog::locks::waiting_array::{Benaphore, Twa, TwaLocation};
use sudog::low_level::policy::{self, Policy};
use sudog::low_level::sema::{Order, Wake};
use sudog::low_level::{ConstSemaphore, RuntimeSema};
#[cfg(target_os = "linux")]
use sudog::study::FutexSema;
use sudog::study::{ParkingLotSema, SemTable};
use sudog::sync::GoMutex;
use sudog::{Cancel, WaitLimit};
use support::Watchdog;

/// The number of threads. More threads than the processors of most machines: owners are preempted, and waiters sleep.
const THREADS: u64 = 12;

/// Returns the time at which the test ends.
fn end() -> Instant {
    let secs = std::env::var("SUDOG_STRESS_SECS").map_or(1.0, |secs| secs.parse().expect("a number of seconds"));
    Instant::now() + Duration::from_secs_f64(secs)
}

/// Makes a random generator, with another seed in each run. Prints the seed, which the output of a failed test then
/// shows.
fn rng(thread: u64) -> StdRng {
    let seed = SysRng.try_next_u64().expect("the system's generator");
    eprintln!("thread {thread}: seed {seed}");
    StdRng::seed_from_u64(seed)
}

fn spin(rng: &mut StdRng, most: u32) {
    (0..rng.random_range(0..most)).for_each(|_| std::hint::spin_loop());
}

// ---- the mutex ------------------------------------------------------------------------------------------------------

fn mutex<S: ConstSemaphore, P: Policy>() {
    let (watchdog, end) = (Watchdog::new(), end());
    let (mutex, inside) = (GoMutex::<S, P>::const_new(), AtomicU64::new(0));
    let acquisitions: u64 = thread::scope(|s| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (mutex, inside, watchdog, mut rng) = (&mutex, &inside, &watchdog, rng(thread));
                s.spawn(move || {
                    let mut acquisitions = 0;
                    while Instant::now() < end {
                        let got = match rng.random_range(0..8) {
                            0..3 => {
                                mutex.lock();
                                true
                            }
                            3 => mutex.try_lock(),
                            4 => mutex.try_lock_for(Duration::from_millis(rng.random_range(0..4))),
                            _ => mutex.try_lock_for(Duration::from_micros(rng.random_range(0..100))),
                        };
                        if got {
                            acquisitions += 1;
                            let n = inside.load(Relaxed);
                            match rng.random_range(0..200) {
                                0 => thread::sleep(Duration::from_micros(rng.random_range(0..1500))), // a waiter starves
                                1..8 => thread::yield_now(),
                                _ => spin(&mut rng, 100),
                            }
                            inside.store(n + 1, Relaxed);
                            mutex.unlock();
                            watchdog.pat();
                        }
                        spin(&mut rng, 300);
                    }
                    acquisitions
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(inside.into_inner(), acquisitions);
    assert_eq!(format!("{mutex:?}"), "GoMutex { locked: false, woken: false, starving: false, waiters: 0, .. }");
    // No permit is left over: a permit would let in two contenders at once, or a contender too early.
    mutex.lock();
    assert!(!mutex.try_lock_for(Duration::from_millis(1)));
    mutex.unlock();
}

macro_rules! mutexes {
    ($($(#[$cfg:meta])* $name:ident = $S:ty, $P:ty;)+) => { $($(#[$cfg])* #[test] fn $name() { mutex::<$S, $P>(); })+ };
}

mutexes! {
    mutex_runtime_go = RuntimeSema, policy::Go;
    mutex_runtime_threads = RuntimeSema, policy::Threads;
    mutex_parking_lot_core_go = ParkingLotSema, policy::Go;
    mutex_parking_lot_core_threads = ParkingLotSema, policy::Threads;
    mutex_benaphore_go = Benaphore, policy::Go;
    mutex_benaphore_threads = Benaphore, policy::Threads;
    mutex_twa_threads = Twa, policy::Threads;
    mutex_twa_location_go = TwaLocation, policy::Go;
    #[cfg(target_os = "linux")]
    mutex_futex_go = FutexSema, policy::Go;
    #[cfg(target_os = "linux")]
    mutex_futex_threads = FutexSema, policy::Threads;
}

// ---- the table ------------------------------------------------------------------------------------------------------

const SEMAPHORES: usize = 5;

/// The counters of a semaphore. At the end, the granted permits and the permits left must be the released permits.
#[derive(Default)]
struct Semaphore {
    permits: AtomicU32,
    released: AtomicU64,
    granted: AtomicU64,
}

fn order(rng: &mut StdRng) -> Order {
    if rng.random() { Order::Fifo } else { Order::Lifo }
}

/// Takes a permit in a random way. Some ways may give up.
fn take<const N: usize>(table: &SemTable<N>, semaphore: &Semaphore, cancel: &Cancel, rng: &mut StdRng) {
    let soon = |rng: &mut StdRng| Some(Instant::now() + Duration::from_micros(rng.random_range(0..200)));
    let limit = match rng.random_range(0..4) {
        0 => WaitLimit { deadline: soon(rng), cancel: None },
        1 => WaitLimit { deadline: None, cancel: Some(cancel) },
        2 => WaitLimit { deadline: soon(rng), cancel: Some(cancel) },
        _ => {
            table.acquire(&semaphore.permits, order(rng));
            semaphore.granted.fetch_add(1, Relaxed);
            return;
        }
    };
    if table.acquire_limited(&semaphore.permits, order(rng), &limit).is_ok() {
        semaphore.granted.fetch_add(1, Relaxed);
    }
}

fn give<const N: usize>(table: &SemTable<N>, semaphore: &Semaphore, rng: &mut StdRng) {
    let n = match rng.random_range(0..4) {
        0 => {
            table.release(&semaphore.permits, Wake::Normal);
            1
        }
        1 => {
            table.release(&semaphore.permits, Wake::Handoff);
            1
        }
        2 => {
            let n = rng.random_range(0..4);
            table.release_many(&semaphore.permits, n);
            n
        }
        _ => {
            let n = rng.random_range(0..4);
            table.grant_many(&semaphore.permits, n);
            n
        }
    };
    semaphore.released.fetch_add(n.into(), Relaxed);
}

/// Takers wait on few addresses in few buckets; givers release permits; and a canceller cancels waiters, again and
/// again.
fn table<const N: usize>() {
    const CANCELS: usize = 400;
    let (watchdog, end) = (Watchdog::new(), end());
    let table = SemTable::<N>::new();
    let semaphores: [Semaphore; SEMAPHORES] = Default::default();
    let cancels: [Cancel; CANCELS] = std::array::from_fn(|_| Cancel::new());
    let current = AtomicU32::new(0);
    let takers = AtomicU64::new(THREADS / 2);
    thread::scope(|s| {
        let (watchdog, table, semaphores, cancels) = (&watchdog, &table, &semaphores, &cancels);
        let (current, takers) = (&current, &takers);
        for thread in 0..THREADS / 2 {
            let (mut takes, mut gives) = (rng(thread), rng(thread + THREADS / 2));
            s.spawn(move || {
                while Instant::now() < end {
                    let semaphore = &semaphores[takes.random_range(0..SEMAPHORES)];
                    take(table, semaphore, &cancels[current.load(Relaxed) as usize], &mut takes);
                    watchdog.pat();
                }
                takers.fetch_sub(1, Relaxed);
            });
            s.spawn(move || {
                // Give until all takers have ended: a taker may wait without a limit.
                while takers.load(Relaxed) > 0 {
                    let semaphore = &semaphores[gives.random_range(0..SEMAPHORES)];
                    // With too many permits no taker would wait.
                    if semaphore.permits.load(Relaxed) < 2 {
                        give(table, semaphore, &mut gives);
                    }
                    match gives.random_range(0..8) {
                        0 => thread::sleep(Duration::from_micros(gives.random_range(0..100))),
                        _ => spin(&mut gives, 2_000),
                    }
                }
            });
        }
        s.spawn(move || {
            let pause = end.saturating_duration_since(Instant::now()) / CANCELS as u32;
            for n in 1..=CANCELS {
                thread::sleep(pause);
                // Store the next number first: waits on a cancelled `Cancel` end at once, and would make no contention.
                current.store((n % CANCELS) as u32, Relaxed);
                cancels[n - 1].cancel();
            }
            assert!(cancels.iter().all(Cancel::is_cancelled));
        });
    });
    for (n, semaphore) in semaphores.iter().enumerate() {
        let left = u64::from(semaphore.permits.load(Relaxed));
        let (granted, released) = (semaphore.granted.load(Relaxed), semaphore.released.load(Relaxed));
        assert_eq!(granted + left, released, "semaphore {n}: granted {granted}, left {left}");
        assert!(granted > 0);
        assert_eq!(table.waiters(&semaphore.permits), 0);
    }
}

#[test]
fn table_of_one_bucket() {
    table::<1>();
}

#[test]
fn table_of_two_buckets() {
    table::<2>();
}
