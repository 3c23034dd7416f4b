//! Go's semaphore benchmarks.
//!
//! `cargo bench -p sudog-benches --bench sema`. Source: `sync/runtime_sema_test.go` (BenchmarkSemaUncontended, -SyntNonblock,
//! -SyntBlock) and `runtime/sema_test.go` (BenchmarkSemTable, with a stride that collides).

use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use sudog::low_level::sema::{Order, Wake, semacquire, semrelease, semrelease_many, waiters};
use sudog::study::BUCKETS;
use sudog_runtime::sema::testing::DetachedQueue;

/// Two semaphores that share a bucket, as they share 8 bytes.
#[repr(align(8))]
#[derive(Default)]
struct Neighbours {
    permits: AtomicU32,
    other: AtomicU32,
}

/// Times `iterations` of release and acquire, shared by two threads, while `blocked` others wait in the same bucket, so
/// that each release looks for waiters.
fn contended(iterations: u64, blocked: usize) -> Duration {
    let Neighbours { permits, other } = &Neighbours::default();
    let start = Barrier::new(3);
    std::thread::scope(|s| {
        for _ in 0..blocked {
            s.spawn(|| semacquire(other));
        }
        while waiters(other) < blocked {
            std::thread::yield_now();
        }
        let workers = [(); 2].map(|()| {
            s.spawn(|| {
                start.wait();
                for _ in 0..iterations.div_ceil(2) {
                    semrelease(permits, Wake::Normal);
                    semacquire(permits);
                }
            })
        });
        start.wait();
        let began = Instant::now();
        for worker in workers {
            worker.join().unwrap();
        }
        let elapsed = began.elapsed();
        semrelease_many(other, blocked as u32);
        elapsed
    })
}

fn benches(c: &mut Criterion) {
    let mut group = c.benchmark_group("Sema");
    let permits = black_box(Box::new(AtomicU32::new(0)));
    group.bench_function("Uncontended", |b| {
        b.iter(|| {
            semrelease(&permits, Wake::Normal);
            semacquire(&permits);
        });
    });
    group.bench_function("SyntNonblock", |b| b.iter_custom(|n| contended(n, 0)));
    group.bench_function("SyntBlock", |b| b.iter_custom(|n| contended(n, 1)));
    group.finish();

    // Addresses that share a bucket of the table are a multiple of 8 x 251 bytes apart.
    let addr = |n: usize| 0x10_0000 + n * 8 * BUCKETS;
    let mut group = c.benchmark_group("SemTable");
    for n in [1000, 2000, 4000, 8000] {
        group.throughput(criterion::Throughput::Elements(n as u64));
        let mut one = DetachedQueue::new((0..n).map(|i| addr(i / (n / 2))));
        group.bench_function(BenchmarkId::new("OneAddrCollision", n), |b| {
            b.iter(|| {
                one.queue_all(Order::Fifo);
                (0..n).for_each(|i| _ = one.dequeue(addr(i / (n / 2))));
            });
        });
        let mut many = DetachedQueue::new((0..n).map(addr));
        group.bench_function(BenchmarkId::new("ManyAddrCollision", n), |b| {
            b.iter(|| {
                many.queue_all(Order::Fifo);
                (0..n).for_each(|i| _ = many.dequeue(addr(i)));
            });
        });
    }
    group.finish();
}

criterion_group! {
    name = all;
    config = Criterion::default().sample_size(10).measurement_time(Duration::from_secs(1)).warm_up_time(Duration::from_millis(200));
    targets = benches
}
criterion_main!(all);
