//! No wait for a mutex allocates, not even the first wait of a thread; nor does the end of a wait.
#![cfg(not(sudog_loom))]

use std::thread;
use std::time::{Duration, Instant};

use sudog::low_level::policy::{self, Policy};
use sudog::low_level::{ConstSemaphore, RuntimeSema};
use sudog::sync::GoMutex;
use support::counting::without_allocating;
use support::{Watchdog, eventually};

/// Tests all semaphores but `ParkingLotSema`: parking_lot_core makes its table, and each thread's place in that table,
/// on the heap.
fn a_lock_that_waits<S: ConstSemaphore, P: Policy>() {
    let _watchdog = Watchdog::new();
    let mutex = GoMutex::<S, P>::const_new();
    without_allocating(|| mutex.lock());
    let far = Instant::now() + Duration::from_secs(3600);
    thread::scope(|s| {
        s.spawn(|| without_allocating(|| assert!(!mutex.try_lock_for(Duration::from_millis(2))))).join().unwrap();
        for _ in 0..2 {
            s.spawn(|| {
                without_allocating(|| {
                    mutex.lock();
                    mutex.unlock();
                })
            });
            s.spawn(|| {
                without_allocating(|| {
                    assert!(mutex.try_lock_until(far));
                    mutex.unlock();
                })
            });
        }
        eventually(|| mutex.waiters() == 4);
        without_allocating(|| mutex.unlock());
    });
    without_allocating(|| mutex.lock());
}

#[test]
fn over_the_runtime_by_gos_policy() {
    a_lock_that_waits::<RuntimeSema, policy::Go>();
}

#[test]
fn over_the_runtime_by_the_policy_for_threads() {
    a_lock_that_waits::<RuntimeSema, policy::Threads>();
}

#[cfg(target_os = "linux")]
#[test]
fn over_the_futex() {
    a_lock_that_waits::<sudog::study::FutexSema, policy::Go>();
    a_lock_that_waits::<sudog::study::FutexSema, policy::Threads>();
}
