//! Go's mutex benchmarks over every lock of the laboratory.
//!
//! `cargo bench --bench mutex`. For fairness beside throughput, and for many threads, use `cargo lab mutexbench`.
//! Source: `sync/mutex_test.go`: BenchmarkMutexUncontended, BenchmarkMutex, BenchmarkMutexWork.

use std::hint::black_box;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use sudog_lab::locks::{Job, LockName, with_lock};
use sudog_sync::RawLock;

/// `threads` threads share `iterations` of lock, unlock, and `work` multiplications and divisions outside.
struct Shared {
    threads: u64,
    iterations: u64,
    work: u32,
}

impl Job for Shared {
    type Out = Duration;

    fn run<L: RawLock + 'static>(self) -> Duration {
        let lock = L::new();
        let start = Barrier::new(self.threads as usize + 1);
        std::thread::scope(|s| {
            for _ in 0..self.threads {
                s.spawn(|| {
                    start.wait();
                    for _ in 0..self.iterations.div_ceil(self.threads) {
                        let guard = lock.lock();
                        // SAFETY: acquired above, on this thread.
                        unsafe { lock.unlock(guard) };
                        (0..self.work).for_each(|n| _ = black_box(n.wrapping_mul(7) / 3));
                    }
                });
            }
            start.wait();
            Instant::now()
        })
        .elapsed() // the scope has ended, so all threads have
    }
}

/// One thread, one lock.
struct Uncontended(u64);

impl Job for Uncontended {
    type Out = Duration;

    fn run<L: RawLock + 'static>(self) -> Duration {
        let lock = black_box(Box::new(L::new()));
        let start = Instant::now();
        for _ in 0..self.0 {
            let guard = lock.lock();
            // SAFETY: acquired above, on this thread.
            unsafe { lock.unlock(guard) };
        }
        start.elapsed()
    }
}

fn benches(c: &mut Criterion) {
    let mut group = c.benchmark_group("MutexUncontended");
    for name in LockName::usual() {
        group.bench_function(name.name(), |b| b.iter_custom(|n| with_lock(name, Uncontended(n))));
    }
    group.finish();
    for (title, work) in [("Mutex", 0), ("MutexWork", 100)] {
        let mut group = c.benchmark_group(title);
        for threads in [2, 8] {
            for name in LockName::usual() {
                group.bench_function(BenchmarkId::new(name.name(), threads), |b| {
                    b.iter_custom(|iterations| with_lock(name, Shared { threads, iterations, work }));
                });
            }
        }
        group.finish();
    }
}

criterion_group! {
    name = all;
    config = Criterion::default().sample_size(10).measurement_time(Duration::from_secs(1)).warm_up_time(Duration::from_millis(200));
    targets = benches
}
criterion_main!(all);
