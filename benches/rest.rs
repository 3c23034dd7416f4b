//! Go's benchmarks that `cargo lab-peers syncbench` lacks: functions that run once, `atomic.Value`, the weighted semaphore,
//! and the reads of a map of other sizes.
//!
//! `cargo bench -p sudog-benches --bench rest`. Source: `sync/oncefunc_test.go`, `sync/atomic/value_test.go`,
//! `golang.org/x/sync/semaphore/semaphore_bench_test.go`, `internal/sync/hashtriemap_bench_test.go`.

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use sudog::context;
use sudog::sync::atomic::Value;
use sudog::sync::{Map, Once, OnceFunc, OnceValue, OnceValues, once_func, once_value, once_values};
use sudog::x::Weighted;

fn once_funcs(c: &mut Criterion) {
    static FUNC: OnceFunc = OnceFunc::new(|| ());
    static VALUE: OnceValue<u64> = OnceValue::new(|| 42);
    static VALUES: OnceValues<u64, u64> = OnceValues::new(|| (42, 43));

    let mut group = c.benchmark_group("OnceFunc");
    let once = Once::new();
    group.bench_function("Once", |b| b.iter(|| once.do_(|| ())));
    group.bench_function("Global", |b| b.iter(|| FUNC.call()));
    let local = once_func(|| ());
    group.bench_function("Local", |b| b.iter(&local));
    group.bench_function("Make", |b| b.iter(|| once_func(|| ())()));
    group.finish();

    let mut group = c.benchmark_group("OnceValue");
    group.bench_function("Global", |b| b.iter(|| *VALUE.get()));
    let local = once_value(|| 42);
    group.bench_function("Local", |b| b.iter(&local));
    group.bench_function("Make", |b| b.iter(|| once_value(|| 42)()));
    group.finish();

    let mut group = c.benchmark_group("OnceValues");
    group.bench_function("Global", |b| b.iter(|| black_box(VALUES.get())));
    let local = once_values(|| (42, 43));
    group.bench_function("Local", |b| b.iter(&local));
    group.bench_function("Make", |b| b.iter(|| once_values(|| (42, 43))()));
    group.finish();
}

fn value(c: &mut Criterion) {
    let value = Value::from(0_u64);
    c.bench_function("ValueRead", |b| b.iter(|| value.load()));
}

fn weighted(c: &mut Criterion) {
    for size in [1, 128] {
        c.bench_function(&format!("NewSeq/{size}"), |b| b.iter(|| Weighted::new(black_box(size))));
    }
    // The number of tokens, the number taken at a time, and how often they are taken before they are given back.
    let all = [
        (1, 1, 1),
        (2, 1, 1),
        (16, 1, 1),
        (128, 1, 1),
        (2, 2, 1),
        (16, 2, 8),
        (128, 2, 64),
        (2, 1, 2),
        (16, 8, 2),
        (128, 64, 2),
    ];
    let mut group = c.benchmark_group("AcquireSeq");
    let ctx = context::background();
    for (size, tokens, times) in all {
        let semaphore = Weighted::new(size);
        let id = format!("{size}-{tokens}-{times}");
        group.bench_function(BenchmarkId::new("Acquire", &id), |b| {
            b.iter(|| {
                (0..times).for_each(|_| semaphore.acquire(&ctx, tokens).unwrap());
                (0..times).for_each(|_| semaphore.release(tokens));
            });
        });
        group.bench_function(BenchmarkId::new("TryAcquire", &id), |b| {
            b.iter(|| {
                (0..times).for_each(|_| assert!(semaphore.try_acquire(tokens)));
                (0..times).for_each(|_| semaphore.release(tokens));
            });
        });
    }
    group.finish();
}

fn maps(c: &mut Criterion) {
    for (name, keys) in [("Small", 1 << 3), ("", 1 << 7), ("Large", 1 << 17)] {
        let words: Vec<String> = (0..keys).map(|n| n.to_string()).collect();
        let map: Map<String, u64> = words.iter().cloned().zip(0..).collect();
        let mut at = 0;
        c.bench_function(&format!("HashTrieMapLoad{name}"), |b| {
            b.iter(|| {
                at = (at + 1) % words.len();
                map.load(words[at].as_str())
            });
        });
        if name != "Small" {
            c.bench_function(&format!("HashTrieMapLoadOrStore{name}"), |b| {
                b.iter(|| {
                    at = (at + 1) % words.len();
                    map.load_or_store(words[at].clone(), 0)
                });
            });
        }
    }
}

criterion_group! {
    name = all;
    config = Criterion::default().sample_size(10).measurement_time(Duration::from_millis(500)).warm_up_time(Duration::from_millis(100));
    targets = once_funcs, value, weighted, maps
}
criterion_main!(all);
