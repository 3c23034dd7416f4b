//! Models of `futex_lock.rs`: every interleaving, on loom's memory model, up to a bound of preemptions.
//!
//! `RUSTFLAGS="--cfg sudog_loom" cargo test --profile loom -p sudog-preload --test loom_futex_lock`
//!
//! A lost wake-up shows as a deadlock; two owners, or an access that is not ordered, as a data race in loom's cell.
#![cfg(sudog_loom)]

#[path = "../src/futex_lock.rs"]
mod futex_lock;

use futex_lock::FutexLock;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use sudog_runtime::model::thread;
use sudog_runtime::reached::{AGAIN, AT_ONCE, SLEEPS, TWO_SLEEP, must_reach, waiting};
use sudog_runtime::shim::futex;

struct World {
    lock: FutexLock,
    data: UnsafeCell<u32>,
}

impl World {
    /// Locks and counts, so many times.
    fn count(&self, times: u32) {
        for _ in 0..times {
            waiting(|| self.lock.lock());
            // SAFETY: loom's cell checks that accesses do not overlap; that is the test.
            self.data.with_mut(|data| unsafe { *data += 1 });
            self.lock.unlock();
        }
    }
}

/// Models so many threads, each of which locks so many times.
fn model(preemptions: usize, reach: &'static [&'static str], threads: u32, times: u32) {
    must_reach(reach, || {
        sudog_runtime::model::explore(preemptions, move || {
            let world = Arc::new(World { lock: FutexLock::new(), data: UnsafeCell::new(0) });
            let others: Vec<_> = (1..threads)
                .map(|_| {
                    let world = Arc::clone(&world);
                    thread::spawn(move || world.count(times))
                })
                .collect();
            world.count(times);
            others.into_iter().for_each(|other| other.join().unwrap());
            // SAFETY: the other threads have ended.
            assert_eq!(world.data.with(|data| unsafe { *data }), threads * times);
        });
    });
}

#[test]
fn two_threads_lock_twice() {
    model(3, &[AT_ONCE, SLEEPS, AGAIN], 2, 2);
}

#[test]
fn three_threads_lock() {
    model(2, &[AT_ONCE, SLEEPS, TWO_SLEEP], 3, 1);
}
