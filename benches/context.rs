//! Go's benchmarks of contexts and of errgroup.
//!
//! `cargo bench -p sudog-benches --bench context`. Source: `context/benchmark_test.go` and `golang.org/x/sync/errgroup`. The counterpart
//! of Go's `RunParallel` is a thread for each processor.

use std::convert::Infallible;
use std::hint::black_box;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use sudog::context::{CancelFunc, Context, Key, background, with_cancel, with_timeout, with_value};
use sudog::sync::WaitGroup;
use sudog::x::ErrGroup;
use sudog_runtime::goroutine;

const HOUR: Duration = Duration::from_secs(3600);

/// Runs `f` `iterations` times, divided among a thread for each processor.
fn in_parallel(iterations: u64, f: impl Fn() + Sync) -> Duration {
    let threads = thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let start = Barrier::new(threads as usize + 1);
    thread::scope(|s| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                s.spawn(|| {
                    start.wait();
                    for _ in 0..iterations.div_ceil(threads) {
                        f();
                    }
                })
            })
            .collect();
        start.wait();
        let began = Instant::now();
        for worker in workers {
            worker.join().unwrap();
        }
        began.elapsed()
    })
}

fn work() {
    let mut x = 0_u64;
    for _ in 0..100 {
        x = black_box(x / (x + 1));
    }
}

fn chain(root: &Context, depth: usize) {
    let mut ctx = root.clone();
    for _ in 0..depth {
        ctx = with_cancel(&ctx).0;
    }
    black_box(&ctx);
}

fn cancelling(c: &mut Criterion) {
    static KEY: Key<&str> = Key::new("key");
    let (shared, _cancel) = with_cancel(&with_value(&background(), &KEY, "value"));
    c.bench_function("Context/CommonParentCancel", |b| {
        b.iter_custom(|n| {
            in_parallel(n, || {
                let (ctx, cancel) = with_cancel(&shared);
                assert_eq!(ctx.value(&KEY), Some(&"value"));
                work();
                cancel.cancel();
                work();
            })
        });
    });

    let mut group = c.benchmark_group("Context/WithTimeout");
    for concurrency in [40, 4000, 400_000] {
        let timed = || with_timeout(&background(), HOUR).1;
        let others: Vec<CancelFunc> = (0..concurrency).map(|_| timed()).collect();
        group.bench_function(BenchmarkId::from_parameter(concurrency), |b| {
            b.iter_custom(|n| in_parallel(n, || [(); 10].map(|()| timed()).iter().for_each(CancelFunc::cancel)));
        });
        others.iter().for_each(CancelFunc::cancel);
    }
    group.finish();

    let mut group = c.benchmark_group("Context/CancelTree");
    for depth in [1, 10, 100, 1000] {
        group.bench_function(BenchmarkId::new("Background", depth), |b| b.iter(|| chain(&background(), depth)));
        group.bench_function(BenchmarkId::new("OpenCanceler", depth), |b| {
            b.iter(|| {
                let (ctx, cancel) = with_cancel(&background());
                chain(&ctx, depth);
                cancel.cancel();
            });
        });
        group.bench_function(BenchmarkId::new("ClosedCanceler", depth), |b| {
            b.iter(|| {
                let (ctx, cancel) = with_cancel(&background());
                cancel.cancel();
                chain(&ctx, depth);
            });
        });
    }
    group.finish();
}

fn looking(c: &mut Criterion) {
    let (open, _cancel) = with_cancel(&background());
    let (closed, cancel) = with_cancel(&background());
    cancel.cancel();
    c.bench_function("Context/ErrOK", |b| b.iter(|| black_box(&open).err()));
    c.bench_function("Context/ErrCanceled", |b| b.iter(|| black_box(&closed).err()));
    // Go's `select { case <-ctx.Done(): default: }`.
    c.bench_function("Context/CheckCanceled/Done", |b| {
        b.iter(|| black_box(&closed).limit().cancel.unwrap().is_cancelled())
    });
    c.bench_function("Context/ContextCancelDone", |b| {
        b.iter_custom(|n| in_parallel(n, || _ = black_box(open.limit().cancel.unwrap().is_cancelled())));
    });

    static KEYS: [Key<usize>; 100] = [const { Key::new("i") }; 100];
    static ABSENT: Key<usize> = Key::new("absent");
    let deep = |depth: usize| (0..depth).fold(background(), |ctx, i| with_value(&ctx, &KEYS[i], i));
    let mut group = c.benchmark_group("Context/DeepValue");
    for depth in [10, 20, 30, 50, 100] {
        let ctx = deep(depth);
        group.bench_function(BenchmarkId::new("SameGoRoutine", depth), |b| b.iter(|| ctx.value(&ABSENT)));
        group.bench_function(BenchmarkId::new("NewGoRoutine", depth), |b| {
            let ctx = ctx.clone();
            goroutine::run(|| {
                b.iter(|| {
                    let (done, ctx) = (Arc::new(WaitGroup::new()), ctx.clone());
                    done.go(move || _ = black_box(ctx.value(&ABSENT)));
                    done.wait();
                });
            });
        });
        group.bench_function(BenchmarkId::new("WithValue", depth), |b| b.iter(|| deep(depth)));
    }
    group.finish();
}

fn err_group(c: &mut Criterion) {
    c.bench_function("ErrGroup/Go", |b| {
        b.iter_custom(|n| {
            goroutine::run(|| {
                let group = ErrGroup::new();
                let began = Instant::now();
                for _ in 0..n {
                    group.go(|| Ok::<_, Infallible>(()));
                }
                group.wait().unwrap();
                began.elapsed()
            })
        });
    });
}

criterion_group! {
    name = all;
    config = Criterion::default().warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
    targets = cancelling, looking, err_group
}
criterion_main!(all);
