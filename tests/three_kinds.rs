//! Threads, goroutines and async tasks in one line.

#![cfg(unix)]

mod common;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex as StdMutex};

use common::{Watchdog, eventually};
use sudog::runtime::goroutine::{self, Builder, go_async, run, spawn, spawn_async};
use sudog::runtime::sema::{self, Wake, semacquire, semacquire_async, semrelease};
use sudog::sync::{LockAsync, Mutex};

/// Who has the mutex, in which order: for a while everybody gets what they queued for, first in, first out, whatever kind
/// they are of.
#[test]
fn the_three_kinds_are_served_in_the_order_in_which_they_came() {
    let _watchdog = Watchdog::new();
    const EACH: usize = 5;
    let permits = Arc::new(AtomicU32::new(0));
    let served = Arc::new(StdMutex::new(Vec::new()));
    let mut threads = Vec::new();
    for n in 0..3 * EACH {
        let (count, order) = (permits.clone(), served.clone());
        // Each is served, says so, and only then lets the next one in: the order of wake-ups is the order of the list.
        let say = move |n| {
            order.lock().unwrap().push(n);
        };
        match n % 3 {
            0 => threads.push(std::thread::spawn(move || {
                semacquire(&count);
                say(n);
                semrelease(&count, Wake::Handoff);
            })),
            1 => goroutine::go(move || {
                semacquire(&count);
                say(n);
                semrelease(&count, Wake::Handoff);
            }),
            _ => go_async(async move {
                semacquire_async(&count).await;
                say(n);
                semrelease(&count, Wake::Handoff);
            }),
        }
        eventually(|| sema::waiters(&permits) == n + 1);
    }
    semrelease(&permits, Wake::Handoff);
    eventually(|| served.lock().unwrap().len() == 3 * EACH);
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(*served.lock().unwrap(), (0..3 * EACH).collect::<Vec<_>>());
    eventually(|| permits.load(Ordering::Relaxed) == 1);
}

/// Many of each, all at once, on one counter.
#[test]
fn the_three_kinds_contend_and_nothing_is_lost() {
    let _watchdog = Watchdog::new();
    const EACH: u64 = 4;
    const TURNS: u64 = if cfg!(debug_assertions) { 500 } else { 5_000 };
    let total = Arc::new(Mutex::new(0_u64));
    let turn = |total: &Mutex<u64>| {
        let mut total = total.lock();
        let seen = *total;
        std::hint::black_box(seen);
        *total = seen + 1;
    };
    run(|| {
        let threads: Vec<_> = (0..EACH)
            .map(|_| {
                let total = total.clone();
                std::thread::spawn(move || (0..TURNS).for_each(|_| turn(&total)))
            })
            .collect();
        let goroutines: Vec<_> = (0..EACH)
            .map(|_| {
                let total = total.clone();
                spawn(move || (0..TURNS).for_each(|_| turn(&total)))
            })
            .collect();
        let tasks: Vec<_> = (0..EACH)
            .map(|_| {
                let total = total.clone();
                spawn_async(async move {
                    for _ in 0..TURNS {
                        *total.lock_async().await += 1;
                    }
                })
            })
            .collect();
        goroutines.into_iter().chain(tasks).for_each(|it| it.join().unwrap());
        goroutine::blocking(|| threads.into_iter().for_each(|it| it.join().unwrap()));
    });
    assert_eq!(*total.lock(), 3 * EACH * TURNS);
}

/// A worker that is stuck outside of the runtime gives up what has not begun there.
#[test]
fn a_stuck_worker_gives_up_what_has_not_begun() {
    let _watchdog = Watchdog::new();
    let before = goroutine::max_procs();
    goroutine::set_max_procs(before.max(3));
    run(|| {
        Builder::new()
            .name("stuck")
            .spawn(|| {
                let begun = Arc::new(AtomicBool::new(false));
                let other = begun.clone();
                goroutine::go(move || other.store(true, Ordering::Release));
                // Not a wait that the runtime knows of.
                while !begun.load(Ordering::Acquire) {
                    std::thread::yield_now();
                }
            })
            .join()
            .unwrap();
    });
    goroutine::set_max_procs(before);
}

/// Other executors' tasks: here one that polls by hand, on a thread.
#[test]
fn a_future_that_is_dropped_in_line_leaves_it() {
    let _watchdog = Watchdog::new();
    let permits = AtomicU32::new(0);
    let mut first = Box::pin(semacquire_async(&permits));
    let mut second = Box::pin(semacquire_async(&permits));
    let waker = std::task::Waker::noop();
    let mut cx = std::task::Context::from_waker(waker);
    assert!(first.as_mut().poll(&mut cx).is_pending());
    assert!(second.as_mut().poll(&mut cx).is_pending());
    assert_eq!(sema::waiters(&permits), 2);
    semrelease(&permits, Wake::Handoff); // to the first
    drop(first); // which does not want it
    assert!(second.as_mut().poll(&mut cx).is_ready());
    assert_eq!((sema::waiters(&permits), permits.load(Ordering::Relaxed)), (0, 0));
}
