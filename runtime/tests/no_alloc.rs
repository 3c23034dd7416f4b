//! Tests that waiting does not allocate, not even in the first wait of a thread, and that ending a wait does not
//! allocate.
#![cfg(not(sudog_loom))]

use std::hint::black_box;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use sudog_runtime::sema::{
    Cancel, Order, WaitError, WaitLimit, Wake, semacquire, semacquire_limited, semacquire_mutex, semrelease,
    semrelease_many, waiters,
};
use support::counting::without_allocating;

/// Ends the process, naming the test, unless the result is dropped within a minute.
fn watchdog() -> Sender<()> {
    let test = thread::current().name().unwrap_or("?").to_owned();
    let (alive, ended) = channel();
    thread::spawn(move || {
        if ended.recv_timeout(Duration::from_secs(60)) == Err(RecvTimeoutError::Timeout) {
            sudog_runtime::fatal(&format!("{test}: still waiting after a minute"));
        }
    });
    alive
}

/// Runs `wait` on a new thread, as that thread's first wait, and `wake` on this thread once the waiter is queued at
/// `count`. Returns the result of `wait`.
fn wait_and_wake<T: Send>(count: &AtomicU32, wait: impl FnOnce() -> T + Send, wake: impl FnOnce()) -> T {
    let _watchdog = watchdog();
    thread::scope(|s| {
        let waiter = s.spawn(|| without_allocating(wait));
        while waiters(count) == 0 {
            thread::yield_now();
        }
        without_allocating(wake);
        waiter.join().unwrap()
    })
}

#[test]
fn an_acquire_that_finds_a_permit() {
    let count = AtomicU32::new(0);
    thread::scope(|s| {
        s.spawn(|| {
            without_allocating(|| {
                semrelease(&count, Wake::Normal);
                semrelease(&count, Wake::Handoff);
                semacquire(&count);
                semacquire(&count);
            });
        });
    });
    assert_eq!(count.load(Ordering::Relaxed), 0);
}

#[test]
fn an_acquire_that_waits() {
    let count = AtomicU32::new(0);
    for order in [Order::Fifo, Order::Lifo] {
        for wake in [Wake::Normal, Wake::Handoff] {
            wait_and_wake(&count, || semacquire_mutex(&count, order), || semrelease(&count, wake));
        }
        wait_and_wake(&count, || semacquire_mutex(&count, order), || semrelease_many(&count, 1));
    }
    assert_eq!(count.load(Ordering::Relaxed), 0);
}

#[test]
fn a_limited_acquire_that_succeeds() {
    let (count, cancel) = (AtomicU32::new(0), Cancel::new());
    let limit = WaitLimit { deadline: Some(Instant::now() + Duration::from_secs(3600)), cancel: Some(&cancel) };
    for wake in [Wake::Normal, Wake::Handoff] {
        let wait = || semacquire_limited(&count, Order::Fifo, &limit);
        assert_eq!(wait_and_wake(&count, wait, || semrelease(&count, wake)), Ok(()));
    }
}

#[test]
fn an_acquire_that_times_out() {
    let count = AtomicU32::new(0);
    let wait = || {
        without_allocating(|| {
            let soon = WaitLimit::until(Instant::now() + Duration::from_millis(2));
            semacquire_limited(&count, Order::Fifo, &soon)
        })
    };
    let outcome = thread::scope(|s| s.spawn(wait).join().unwrap());
    assert_eq!(outcome, Err(WaitError::TimedOut));
}

#[test]
fn an_acquire_that_is_cancelled() {
    let (count, cancel) = (AtomicU32::new(0), Cancel::new());
    let limit = WaitLimit { cancel: Some(&cancel), ..WaitLimit::default() };
    let wait = || semacquire_limited(&count, Order::Fifo, &limit);
    assert_eq!(wait_and_wake(&count, wait, || cancel.cancel()), Err(WaitError::Cancelled));
    assert_eq!(without_allocating(wait), Err(WaitError::Cancelled));
}

#[test]
#[should_panic = "allocations where there must be none"]
fn the_allocator_counts() {
    without_allocating(|| drop(black_box(Box::new(1))));
}
