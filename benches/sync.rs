//! Some of Go's benchmarks of `sync`, over what is here and the best peers.
//!
//! `cargo bench --bench sync`. For all of them, with the contestants taking turns, use `cargo lab syncbench`, whose
//! operations these are.

use std::time::Duration;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use sudog_lab::bench::syncbench::{BenchName, Round};

const BENCHES: [&str; 10] = [
    "RWMutexUncontended",
    "RWMutexWrite100",
    "WaitGroupUncontended",
    "WaitGroupAddDone",
    "Once",
    "Pool",
    "PoolStarvation",
    "MapLoadMostlyHits",
    "MapLoadOrStoreBalanced",
    "MapSwapMostlyHits",
];

fn benches(c: &mut Criterion) {
    for name in BENCHES {
        let bench: BenchName = name.parse().expect("there is such a benchmark");
        let mut group = c.benchmark_group(name);
        for threads in [1, 2] {
            for contestant in &bench.contestants {
                group.bench_function(BenchmarkId::new(contestant.name, threads), |b| {
                    b.iter_custom(|n| contestant.time(&Round { threads, n }).expect("two threads can be had"));
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
