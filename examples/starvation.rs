//! Starvation mode, seen: one thread locks and unlocks in a loop; another thread locks ten times. How long does the
//! other thread wait, under Go's mutex of 1.8, which had no starvation mode, and under today's mutex?
//!
//! `cargo run --release --example starvation`

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use sudog::low_level::RuntimeSema;
use sudog::low_level::policy::{self, Policy};
use sudog::study;
use sudog::sync::{GoMutex, MutexWith};

fn longest_wait<P: Policy>() -> Duration {
    let mutex: MutexWith<GoMutex<RuntimeSema, P>, ()> = MutexWith::new(());
    let (stop, hogs) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|s| {
        s.spawn(|| {
            while !stop.load(Relaxed) {
                let guard = mutex.lock();
                hogs.store(true, Relaxed);
                thread::sleep(Duration::from_micros(100));
                drop(guard);
            }
        });
        while !hogs.load(Relaxed) {
            thread::yield_now();
        }
        let wait = |_| {
            let begin = Instant::now();
            drop(mutex.lock());
            begin.elapsed()
        };
        let longest = (0..10).map(wait).max();
        stop.store(true, Relaxed);
        longest.unwrap_or_default()
    })
}

fn main() {
    println!("Go 1.8, no starvation mode:  longest wait {:?}", longest_wait::<study::policy::Go1_8>());
    println!("Go's constants of today:     longest wait {:?}", longest_wait::<policy::Go>());
    println!("our default for threads:     longest wait {:?}", longest_wait::<policy::Threads>());
}
