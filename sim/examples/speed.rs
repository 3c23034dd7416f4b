//! How fast the machine runs: contenders take turns at a lock for five simulated milliseconds.
//!
//! `cargo run --release -p sudog-sim --example speed` prints simulated acquisitions and traffic, and how many accesses the
//! machine simulates in a second.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sudog_sim::atomic::Ordering::{Acquire, Relaxed, Release};
use sudog_sim::atomic::{AtomicBool, AtomicU32};
use sudog_sim::{Machine, Preset, pause, thread, traffic, work};

const SIMULATED: Duration = Duration::from_millis(5);

/// A word on a line of its own.
#[derive(Default)]
#[repr(align(128))]
struct Line<T>(T);

trait Lock: Default + Send + Sync + 'static {
    const NAME: &str;
    fn lock(&self);
    fn unlock(&self);
}

/// The ticket lock.
#[derive(Default)]
struct Ticket {
    next: Line<AtomicU32>,
    serving: Line<AtomicU32>,
}

impl Lock for Ticket {
    const NAME: &str = "ticket";

    fn lock(&self) {
        let ticket = self.next.0.fetch_add(1, Relaxed);
        while self.serving.0.load(Acquire) != ticket {
            pause();
        }
    }

    fn unlock(&self) {
        self.serving.0.store(self.serving.0.load(Relaxed) + 1, Release);
    }
}

/// Test-and-test-and-set.
#[derive(Default)]
struct Tts(Line<AtomicBool>);

impl Lock for Tts {
    const NAME: &str = "tts";

    fn lock(&self) {
        while self.0.0.swap(true, Acquire) {
            while self.0.0.load(Relaxed) {
                pause();
            }
        }
    }

    fn unlock(&self) {
        self.0.0.store(false, Release);
    }
}

fn main() {
    for contenders in [1, 2, 4, 8, 16, 32, 64] {
        run::<Ticket>(contenders);
        run::<Tts>(contenders);
    }
}

fn run<L: Lock>(contenders: usize) {
    let machine = Machine::new(Preset::named("x5-2").expect("a preset"));
    let begun = Instant::now();
    let (acquisitions, traffic) = machine
        .run(move || {
            let shared = Arc::new((L::default(), Line(AtomicBool::new(false))));
            let contend = |shared: Arc<(L, Line<AtomicBool>)>| {
                move || {
                    let (lock, over) = &*shared;
                    let mut acquisitions = 0_u32;
                    while !over.0.load(Relaxed) {
                        lock.lock();
                        work(20);
                        lock.unlock();
                        work(50);
                        acquisitions += 1;
                    }
                    acquisitions
                }
            };
            let threads: Vec<_> = (0..contenders).map(|_| thread::spawn(contend(shared.clone()))).collect();
            thread::sleep(SIMULATED);
            shared.1.0.store(true, Relaxed);
            let each = threads.into_iter().map(|thread| thread.join().expect("it does not panic"));
            (each.sum::<u32>(), traffic())
        })
        .expect("it ends");
    let took = begun.elapsed();
    let of_each = |n: u64| n as f64 / f64::from(acquisitions);
    println!(
        "{:6} T = {contenders:2}: {:5.2} M acquisitions/s, {:5.1} misses and {:5.1} invalidations each; {} accesses in \
         {took:.2?}, {:.1} M/s",
        L::NAME,
        f64::from(acquisitions) / SIMULATED.as_secs_f64() / 1e6,
        of_each(traffic.misses),
        of_each(traffic.invalidations),
        traffic.accesses,
        traffic.accesses as f64 / took.as_secs_f64() / 1e6,
    );
}
