//! Fibres that hang on channels of csp: futures that nothing but their owner holds, tasks of the runtime, goroutines.

use std::fs;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Waker};
use std::time::Instant;

use sudog_csp::{End, Reclaimed, make_channel, make_ends, spawn_fibre_on};
use sudog_runtime::goroutine::{Placement, go_async, gosched, run};

use super::HangRecord;

/// Adds the squares that are read until no writer can come.
fn sum(mut results: End<u64>) -> u64 {
    let mut sum = 0_u64;
    while let Ok(square) = results.read() {
        sum = sum.wrapping_add(square);
    }
    sum
}

pub fn squares_of_goroutines(n: u64) -> u64 {
    run(move || {
        let [mut numbers, mut input] = make_channel::<u64, 2>();
        let [mut output, results] = make_channel::<u64, 2>();
        drop(spawn_fibre_on(Placement::Here, move || (1..=n).try_for_each(|i| numbers.write(i))));
        drop(spawn_fibre_on(Placement::Here, move || -> Result<(), Reclaimed> {
            loop {
                let i = input.read()?;
                output.write(i.wrapping_mul(i))?;
            }
        }));
        sum(results)
    })
}

pub fn squares_of_tasks(n: u64) -> u64 {
    run(move || {
        let [mut numbers, mut input] = make_channel::<u64, 2>();
        let [mut output, mut results] = make_channel::<u64, 2>();
        go_async(async move {
            for i in 1..=n {
                numbers.write_async(i).await.expect("it is read");
            }
        });
        go_async(async move {
            while let Ok(i) = input.read_async().await {
                output.write_async(i.wrapping_mul(i)).await.expect("it is read");
            }
        });
        sudog_runtime::goroutine::block_on(async {
            let mut sum = 0_u64;
            while let Ok(square) = results.read_async().await {
                sum = sum.wrapping_add(square);
            }
            sum
        })
    })
}

/// Returns the resident memory of the process in bytes, or 0 if the system does not report it.
fn resident() -> usize {
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    4096 * statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or(0)
}

/// The times of fibres that hang on one channel.
struct Measured {
    n: usize,
    before: usize,
    begin: Instant,
    hung: (f64, f64),
}

impl Measured {
    fn begin(n: usize) -> Self {
        // Give the memory of earlier fibres back to the system, so that this memory is not counted as `before`.
        #[cfg(all(target_os = "linux", target_env = "gnu"))]
        // SAFETY: `malloc_trim` has no precondition.
        unsafe {
            libc::malloc_trim(0);
        }
        Self { n, before: resident(), begin: Instant::now(), hung: (0.0, 0.0) }
    }

    /// Returns the time since the last call, for each fibre.
    fn lap(&mut self) -> f64 {
        std::mem::replace(&mut self.begin, Instant::now()).elapsed().as_nanos() as f64 / self.n as f64
    }

    /// Notes that all fibres hang.
    fn all_hang(&mut self) {
        self.hung = (self.lap(), resident().saturating_sub(self.before) as f64 / self.n as f64);
        self.begin = Instant::now();
    }

    fn record(mut self, name: &'static str, drop_ns: Option<f64>) -> HangRecord {
        let end_ns = self.lap();
        let (hang_ns, bytes) = self.hung;
        HangRecord { bench: "csp-stages", name, n: self.n, bytes, hang_ns, drop_ns, end_ns }
    }
}

/// Makes a future hang, in a box with an end of its own.
fn hanging_future(end: &End<u32>) -> Pin<Box<impl Future<Output = Result<u32, Reclaimed>> + use<>>> {
    let mut end = end.dup();
    let mut future = Box::pin(async move { end.read_async().await });
    assert!(poll(future.as_mut()).is_pending());
    future
}

fn poll<F: Future>(future: Pin<&mut F>) -> std::task::Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Futures alone: the least that a fibre takes. They are reclaimed by a drop, and then, in a second run, by the last end.
pub fn futures(n: usize) -> HangRecord {
    let mut measured = Measured::begin(n);
    let [end] = make_channel::<u32, 1>();
    let futures: Vec<_> = (0..n).map(|_| hanging_future(&end)).collect();
    measured.all_hang();
    drop(futures);
    let drop_ns = measured.lap();
    assert_eq!(end.readers(), 0, "all have left");

    let mut futures: Vec<_> = (0..n).map(|_| hanging_future(&end)).collect();
    measured.begin = Instant::now();
    drop(end);
    assert!(futures.iter_mut().all(|future| poll(future.as_mut()) == Err(Reclaimed).into()));
    measured.record("futures", Some(drop_ns))
}

/// Tasks of the runtime, which wake up and end when the last end is dropped.
pub fn tasks(n: usize) -> HangRecord {
    static ENDED: AtomicUsize = AtomicUsize::new(0);
    ENDED.store(0, Relaxed);
    run(move || {
        let mut measured = Measured::begin(n);
        let [end] = make_channel::<u32, 1>();
        for _ in 0..n {
            let mut end = end.dup();
            go_async(async move {
                assert_eq!(end.read_async().await, Err(Reclaimed));
                ENDED.fetch_add(1, Relaxed);
            });
        }
        until(|| end.readers() == n);
        measured.all_hang();
        drop(end);
        until(|| ENDED.load(Relaxed) == n);
        measured.record("tasks", None)
    })
}

/// Goroutines, each of which has a stack.
pub fn goroutines(n: usize) -> HangRecord {
    static ENDED: AtomicUsize = AtomicUsize::new(0);
    ENDED.store(0, Relaxed);
    let n = n.min(100_000);
    run(move || {
        let mut measured = Measured::begin(n);
        let mut ends = make_ends::<u32>(n + 1);
        let end = ends.pop().expect("there is an end more than fibres");
        for mut end in ends {
            drop(spawn_fibre_on(Placement::Here, move || {
                assert_eq!(end.read(), Err(Reclaimed));
                ENDED.fetch_add(1, Relaxed);
            }));
        }
        until(|| end.readers() == n);
        measured.all_hang();
        drop(end);
        until(|| ENDED.load(Relaxed) == n);
        measured.record("goroutines", None)
    })
}

fn until(state: impl Fn() -> bool) {
    while !state() {
        gosched();
    }
}
