//! The mutex is one algorithm over two parameters: the semaphore that waiters sleep on, and the policy by which waiters
//! wait. Measures three policies, and the default policy over every semaphore of the laboratory's registry.
//!
//! `cargo run --release --example semaphore_under_the_mutex`

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use sudog::low_level::{RawLock, RuntimeSema, Semaphore, policy};
use sudog::study;
use sudog::sync::GoMutex;
use sudog_lab_core::semaphores::{SemaphoreJob, SemaphoreName, with_semaphore};

const THREADS: usize = 2;
const EACH: Duration = Duration::from_millis(20);

/// A lock, and the number of times that its owners have counted.
struct Counted<L> {
    lock: L,
    count: UnsafeCell<u64>,
}

// SAFETY: only the owner of the lock uses `count`.
unsafe impl<L: Sync> Sync for Counted<L> {}

impl<L: RawLock> Counted<L> {
    fn count(&self) -> u64 {
        let guard = self.lock.lock();
        // SAFETY: this thread owns the lock, and no reference to `count` is kept.
        let count = unsafe {
            *self.count.get() += 1;
            *self.count.get()
        };
        // SAFETY: `guard` came from `lock` of this lock above, on this thread.
        unsafe { self.lock.unlock(guard) };
        count
    }
}

fn measure<L: RawLock>(name: &str) {
    let total = Counted { lock: L::new(), count: UnsafeCell::new(0) };
    let over = AtomicBool::new(false);
    let begin = Instant::now();
    let turns: u64 = thread::scope(|s| {
        let turn = || {
            let mut turns = 0;
            while !over.load(Relaxed) {
                total.count();
                turns += 1;
            }
            turns
        };
        let threads = [(); THREADS].map(|()| s.spawn(turn));
        thread::sleep(EACH);
        over.store(true, Relaxed);
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    println!("{name:44} {:6} ns an acquisition", begin.elapsed().as_nanos() / u128::from(turns.max(1)));
    assert_eq!(total.count(), turns + 1, "no count is lost");
}

/// Measures the mutex over a semaphore of the registry.
struct Over(SemaphoreName);

impl SemaphoreJob for Over {
    type Out = ();

    fn run<S: Semaphore + 'static>(self) {
        measure::<GoMutex<S>>(&format!("over {}", self.0.name()));
    }
}

fn main() {
    measure::<GoMutex>("the default: RuntimeSema, policy Threads");
    measure::<GoMutex<RuntimeSema, policy::Go>>("Go's constants");
    measure::<GoMutex<RuntimeSema, study::policy::Fifo>>("first come, first served");
    SemaphoreName::ALL.iter().for_each(|&name| with_semaphore(name, Over(name)));
}
