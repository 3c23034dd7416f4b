//! Every semaphore, and every lock in a capacitor, of the laboratory's registries: taken and given back by one thread,
//! and by two.
//!
//! `cargo bench -p sudog-benches --bench backends`, or the same with `-- 'take and post/T=1'`.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use sudog::low_level::sema::{Order, Wake};
use sudog::low_level::{RawLock, Semaphore};
use sudog::sync::GoMutex;
use sudog_lab_core::compose::{StudyName, with_study};
use sudog_lab_core::locks::Job;
use sudog_lab_core::semaphores::{SemaphoreJob, SemaphoreName, with_semaphore};

/// Times `iterations` calls, shared by `threads` threads.
fn time(threads: u64, iterations: u64, turn: &(impl Fn() + Sync)) -> Duration {
    let start = Barrier::new(threads as usize);
    let work = || {
        start.wait();
        let began = Instant::now();
        (0..iterations.div_ceil(threads)).for_each(|_| turn());
        began.elapsed()
    };
    std::thread::scope(|s| {
        let others: Vec<_> = (1..threads).map(|_| s.spawn(work)).collect();
        let mine = work();
        others.into_iter().map(|other| other.join().unwrap()).fold(mine, Duration::max)
    })
}

/// Measures the calls of a backend.
struct Measure<'a>(&'a mut Criterion, &'static str);

impl Measure<'_> {
    fn calls(&mut self, calls: &str, turn: impl Fn() + Sync) {
        for threads in [1, 2] {
            let mut group = self.0.benchmark_group(format!("{calls}/T={threads}"));
            group.bench_function(self.1, |b| b.iter_custom(|n| time(threads, n, &turn)));
            group.finish();
        }
    }

    fn lock<L: RawLock>(&mut self) {
        let lock = L::new();
        self.calls("lock and unlock", || {
            let guard = lock.lock();
            // SAFETY: `guard` came from `lock` of this lock above, on this thread.
            unsafe { lock.unlock(guard) };
        });
    }
}

impl SemaphoreJob for Measure<'_> {
    type Out = ();

    fn run<S: Semaphore + 'static>(mut self) {
        let sema = S::new(1);
        self.calls("take and post", || {
            sema.acquire(Order::Fifo);
            sema.release(Wake::Normal);
        });
        self.lock::<GoMutex<S>>();
    }
}

impl Job for Measure<'_> {
    type Out = ();

    fn run<L: RawLock + 'static>(mut self) {
        self.lock::<L>();
    }
}

fn benches(c: &mut Criterion) {
    SemaphoreName::ALL.iter().for_each(|&name| with_semaphore(name, Measure(c, name.name())));
    StudyName::ALL.iter().for_each(|&name| with_study(name, Measure(c, name.name())));
}

criterion_group! {
    name = all;
    config = Criterion::default().sample_size(10).measurement_time(Duration::from_millis(200)).warm_up_time(Duration::from_millis(50));
    targets = benches
}
criterion_main!(all);
