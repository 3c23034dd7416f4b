//! The cost of an event: while nothing is recorded, while events are recorded, and for a mutex that reports.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use sudog::low_level::RuntimeSema;
use sudog::low_level::event::{self, Kind};
use sudog::low_level::policy::Go;
use sudog::study::policy::Recorded;
use sudog::sync::GoMutex;

fn record(c: &mut Criterion) {
    let record = || event::record(black_box(Kind::Sleep), black_box(0x1000), black_box(0x2000));
    c.bench_function("event/off", |b| b.iter(record));
    event::start();
    c.bench_function("event/on", |b| b.iter(record));
    let _ = event::stop();
}

fn uncontended(c: &mut Criterion) {
    let turn = |mutex: &GoMutex<RuntimeSema, Recorded<Go>>| {
        mutex.lock();
        mutex.unlock();
    };
    let plain = GoMutex::<RuntimeSema, Go>::const_new();
    c.bench_function("event/mutex", |b| {
        b.iter(|| {
            black_box(&plain).lock();
            black_box(&plain).unlock();
        });
    });
    let reports = GoMutex::const_new();
    c.bench_function("event/mutex, recorded, off", |b| b.iter(|| turn(black_box(&reports))));
    event::start();
    c.bench_function("event/mutex, recorded, on", |b| b.iter(|| turn(black_box(&reports))));
    let _ = event::stop();
}

criterion_group!(benches, record, uncontended);
criterion_main!(benches);
