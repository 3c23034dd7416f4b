//! Tasks of another executor wait in the same lines as threads and goroutines: they rely only on the contract of
//! `Waker`.
#![cfg(all(unix, not(sudog_loom)))]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use sudog::low_level::sema::{Wake, semacquire_async, semrelease, waiters};
use sudog::runtime::gosched;
use sudog::sync::{LockAsync, Mutex};
use sudog::{run, spawn};
use support::Watchdog;
use tokio::time::timeout;

fn executor() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap()
}

/// Lets tasks of another executor, threads and goroutines contend for one mutex.
#[test]
fn a_mutex_between_executors() {
    const EACH: u32 = 2000;
    static COUNT: Mutex<u32> = Mutex::new(0);
    let _watchdog = Watchdog::new();
    let tokio = executor();
    let tasks = (0..4).map(|_| {
        tokio.spawn(async {
            for _ in 0..EACH {
                *COUNT.lock_async().await += 1;
                tokio::task::yield_now().await;
            }
        })
    });
    let tasks: Vec<_> = tasks.collect();
    thread::scope(|s| {
        s.spawn(|| (0..EACH).for_each(|_| *COUNT.lock() += 1));
        s.spawn(|| {
            run(|| {
                let handles = [(); 2].map(|()| {
                    spawn(|| {
                        for _ in 0..EACH {
                            *COUNT.lock() += 1;
                            gosched();
                        }
                    })
                });
                handles.into_iter().for_each(|handle| handle.join().unwrap());
            });
        });
    });
    tokio.block_on(async {
        for task in tasks {
            task.await.unwrap();
        }
    });
    assert_eq!(*COUNT.lock(), 7 * EACH);
}

/// Checks that waits that time out take no permit and lose none.
#[test]
fn waits_that_time_out() {
    const TASKS: u32 = 50;
    let watchdog = Watchdog::new();
    let tokio = executor();
    for round in 0..20 {
        let (permits, taken) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicUsize::new(0)));
        let tasks: Vec<_> = (0..TASKS)
            .map(|i| {
                let (permits, taken) = (permits.clone(), taken.clone());
                tokio.spawn(async move {
                    // For some tasks the time is up before they begin.
                    let patience = Duration::from_micros(u64::from(i * round));
                    if timeout(patience, semacquire_async(&permits)).await.is_ok() {
                        taken.fetch_add(1, Relaxed);
                    }
                })
            })
            .collect();
        for i in 0..TASKS / 2 {
            semrelease(&permits, if i % 2 == 0 { Wake::Normal } else { Wake::Handoff });
        }
        tokio.block_on(async {
            for task in tasks {
                task.await.unwrap();
            }
        });
        assert_eq!(waiters(&permits), 0);
        assert_eq!(permits.load(Relaxed) as usize + taken.load(Relaxed), TASKS as usize / 2);
        watchdog.pat();
    }
}
