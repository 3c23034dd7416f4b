//! A hundred goroutines sleep for a millisecond, again and again, while another goroutine computes for a second: how
//! late do the sleepers wake? In Go the runtime interrupts the computing goroutine; here that goroutine announces the
//! computation by `compute`.
//!
//! `cargo run --release --example compute`

use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use sudog::prelude::*;
use sudog::{compute, runtime};

const SLEEPERS: usize = 100;
const NAP: Duration = Duration::from_millis(1);
const LATE: Duration = Duration::from_millis(35);

fn busy_for(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        spin_loop();
    }
}

/// Returns the longest delay, and the number of late goroutines, while `busy` runs.
fn delays(busy: impl FnOnce()) -> (Duration, usize) {
    let over = AtomicBool::new(false);
    let worst: Vec<AtomicU64> = (0..SLEEPERS).map(|_| AtomicU64::new(0)).collect();
    let started = Arc::new(WaitGroup::new());
    started.add(SLEEPERS as _);
    scope(|s| {
        for worst in &worst {
            let (over, started) = (&over, started.clone());
            s.go(move || {
                started.done();
                while !over.load(Relaxed) {
                    let due = Instant::now() + NAP;
                    sleep(NAP);
                    worst.fetch_max(due.elapsed().as_micros() as u64, Relaxed);
                }
            });
        }
        started.wait();
        busy();
        over.store(true, Relaxed);
    });
    let worst = worst.iter().map(|worst| Duration::from_micros(worst.load(Relaxed)));
    (worst.clone().max().unwrap_or_default(), worst.filter(|&delay| delay > LATE).count())
}

fn main() {
    let second = Duration::from_secs(1);
    sudog::run(|| {
        println!(
            "{} workers; {SLEEPERS} goroutines that sleep for {NAP:?}; late is more than {LATE:?}",
            runtime::max_procs()
        );
        let (worst, late) = delays(|| busy_for(second));
        println!("beside a goroutine that computes: {late} late, at worst by {} ms", worst.as_millis());
        let (worst, late) = delays(|| compute(|| busy_for(second)));
        println!("the same in compute(..):          {late} late, at worst by {} ms", worst.as_millis());
    });
}
