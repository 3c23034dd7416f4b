//! Long computations, on threads of their own.
#![cfg(all(unix, not(sudog_loom)))]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use sudog::runtime::{GoroutineInfo, dump, max_procs, set_max_procs};
use sudog::sync::WaitGroup;
use sudog::{Builder, block_on, blocking, compute, go, on_goroutine, run, spawn_async};
use support::goroutine::{alone, alone_with, here, text, until};
use support::{Watchdog, eventually};

#[test]
fn others_run_meanwhile() {
    let _alone = alone_with(1);
    run(|| {
        let (ran, theirs) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let flag = ran.clone();
        go(move || flag.store(true, SeqCst));
        // Loop without a call into the runtime.
        compute(|| {
            while !ran.load(SeqCst) {
                std::hint::spin_loop();
            }
            theirs.store(true, SeqCst);
        });
        assert!(theirs.load(SeqCst));
    });
}

#[test]
fn it_borrows_returns_and_panics() {
    let _watchdog = Watchdog::new();
    run(|| {
        let numbers = [1, 2, 3];
        assert_eq!(compute(|| numbers.iter().sum::<i32>()), 6);
        let panic = catch_unwind(AssertUnwindSafe(|| compute(|| panic!("of the computation")))).unwrap_err();
        assert_eq!(text(&*panic), "of the computation");
        assert_eq!(compute(|| 7), 7, "after a panic");
    });
}

/// A caller that is not a goroutine computes on its own thread: no thread waits for another thread.
#[test]
fn threads_compute_themselves() {
    let _watchdog = Watchdog::new();
    assert_eq!(compute(here), here());
    run(|| {
        let (outer, inner) = compute(|| (here(), compute(here)));
        assert_eq!(outer, inner);
        assert_ne!(outer, here());
        let (outer, inner) = blocking(|| (here(), compute(here)));
        assert_eq!(outer, inner);
        assert!(!compute(on_goroutine));
        // The function of a task runs on a goroutine's stack.
        let worker = here();
        let task = spawn_async(async move { compute(here) != worker });
        assert!(block_on(task).unwrap());
    });
}

/// The number of computations at a time is the number of processors, no more and no fewer; the rest follow.
#[test]
fn as_many_as_processors() {
    let _alone = alone(); // other tests set the number
    let limit = max_procs();
    run(move || {
        let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let done = Arc::new(WaitGroup::new());
        for _ in 0..4 * limit {
            let (running, most) = (running.clone(), most.clone());
            done.go(move || {
                compute(|| {
                    most.fetch_max(running.fetch_add(1, SeqCst) + 1, SeqCst);
                    eventually(|| most.load(SeqCst) >= limit);
                    thread::sleep(Duration::from_millis(1)); // time to see a computation too many
                    running.fetch_sub(1, SeqCst);
                });
            });
        }
        done.wait();
        assert_eq!(most.load(SeqCst), limit);
    });
}

/// Computations that wait for a thread get a thread each when the number of processors is raised.
#[test]
fn a_raised_number_of_processors_starts_threads() {
    const CALLS: usize = 3;
    let _alone = alone_with(1);
    run(|| {
        let (begun, over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let calls = [(); CALLS].map(|()| {
            let (begun, over) = (begun.clone(), over.clone());
            Builder::new().name("compute-waits").spawn(move || {
                compute(|| {
                    begun.fetch_add(1, SeqCst);
                    eventually(|| over.load(SeqCst));
                });
            })
        });
        until(|| {
            let waits = |info: &&GoroutineInfo| {
                info.name.as_deref() == Some("compute-waits") && info.wait_reason == "computation"
            };
            begun.load(SeqCst) == 1 && dump().goroutines.iter().filter(waits).count() == CALLS
        });
        set_max_procs(CALLS);
        until(|| begun.load(SeqCst) == CALLS);
        over.store(true, SeqCst);
        calls.into_iter().for_each(|call| call.join().unwrap());
    });
}
