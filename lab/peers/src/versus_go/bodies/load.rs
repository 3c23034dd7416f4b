//! Whole tasks, and very many goroutines.

use std::time::Duration;

use sudog_runtime::AtomicU32;
use sudog_runtime::goroutine::{go, go_async};
use sudog_runtime::sema::{semacquire_async, semrelease_many};
use sudog_sync::WaitGroup;

use super::round::Round;
use super::shared;
use super::work::burn;

/// Measures 10,000 tasks of 20 to 200 us, in an order that looks random.
pub fn fork_join(round: &mut Round) {
    const TASKS: u64 = 10_000;

    burn(Duration::from_micros(1)); // calibrates
    let wg = shared(WaitGroup::new());
    round.reset_timer();
    for _ in 0..round.n {
        for i in 0..TASKS {
            wg.add(1);
            go(move || {
                burn(Duration::from_micros(20 + i * 7919 % 181));
                wg.done();
            });
        }
        wg.wait();
    }
}

/// Starts `count` goroutines, each with a stack. The goroutines wait at a gate; then the gate is opened, and each does
/// `something`. Returns when all have ended.
fn crowd(count: usize, something: fn()) {
    let (ready, gate, done) = (shared(WaitGroup::new()), shared(WaitGroup::new()), shared(WaitGroup::new()));
    gate.add(1);
    ready.add(count as _);
    done.add(count as _);
    for _ in 0..count {
        go(move || {
            ready.done();
            gate.wait();
            something();
            done.done();
        });
    }
    ready.wait();
    gate.done();
    done.wait();
}

/// The counterpart of [`crowd`] for goroutines without stacks. The gate is a semaphore: a wait group waits with a
/// semaphore as well.
fn crowd_async(count: usize, something: fn()) {
    let (ready, gate, done) = (shared(WaitGroup::new()), shared(AtomicU32::new(0)), shared(WaitGroup::new()));
    ready.add(count as _);
    done.add(count as _);
    for _ in 0..count {
        go_async(async move {
            ready.done();
            semacquire_async(gate).await;
            something();
            done.done();
        });
    }
    ready.wait();
    semrelease_many(gate, u32::try_from(count).expect("a semaphore counts to 2^32"));
    done.wait();
}

/// Measures 64 goroutines that have started and wait; then each has 10 ms of work.
fn imbalance_of(round: &mut Round, crowd: fn(usize, fn())) {
    burn(Duration::from_micros(1)); // calibrates
    round.reset_timer();
    for _ in 0..round.n {
        crowd(64, || burn(Duration::from_millis(10)));
    }
}

/// Measures the imbalance of goroutines with stacks.
pub fn imbalance(round: &mut Round) {
    imbalance_of(round, crowd);
}

/// Measures the imbalance of goroutines without stacks.
pub fn imbalance_async(round: &mut Round) {
    imbalance_of(round, crowd_async);
}

/// Measures very many goroutines at a gate, twice. The first time is mostly the cost of memory, which the second time
/// can reuse. The time of an operation is that of the second time.
pub(super) fn million_of(round: &mut Round, crowd: fn(usize, fn())) {
    let nothing = || {};
    crowd(round.count, nothing);
    let first = round.elapsed();
    round.reset_timer();
    crowd(round.count, nothing);
    round.stop_timer();
    round.extra("first_ns", first.as_nanos() as f64);
    if let Some(peak) = peak_bytes() {
        round.extra("peak_bytes", peak);
    }
}

/// Measures very many goroutines with stacks.
pub fn million(round: &mut Round) {
    million_of(round, crowd);
}

/// Measures very many goroutines without stacks.
pub fn million_async(round: &mut Round) {
    million_of(round, crowd_async);
}

/// Returns the most memory that the process has had, or `None` where the system does not tell.
fn peak_bytes() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let kib = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?.trim().strip_suffix("kB")?;
    Some(kib.trim().parse::<f64>().ok()? * 1024.0)
}
