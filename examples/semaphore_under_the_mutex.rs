//! The mutex is one algorithm over two parameters: the semaphore that waiters sleep on, and the policy by which waiters
//! wait.
//!
//! `cargo run --release --example semaphore_under_the_mutex`

use std::thread;
use std::time::Instant;

use sudog::locks::waiting_array::Benaphore;
use sudog::low_level::{ConstRawLock, RuntimeSema, policy};
use sudog::study;
use sudog::sync::{GoMutex, MutexWith};

const THREADS: u64 = 4;
const EACH: u64 = 100_000;

fn measure<L: ConstRawLock>(name: &str) {
    let total: MutexWith<L, u64> = MutexWith::new(0);
    let begin = Instant::now();
    thread::scope(|s| {
        for _ in 0..THREADS {
            s.spawn(|| (0..EACH).for_each(|_| *total.lock() += 1));
        }
    });
    let ns = begin.elapsed().as_nanos() / u128::from(THREADS * EACH);
    println!("{name:40} {ns:6} ns an acquisition");
    assert_eq!(total.into_inner(), THREADS * EACH);
}

fn main() {
    measure::<GoMutex>("the default: RuntimeSema, policy Threads");
    measure::<GoMutex<RuntimeSema, policy::Go>>("Go's constants");
    measure::<GoMutex<RuntimeSema, study::policy::Fifo>>("first come, first served");
    measure::<GoMutex<Benaphore>>("over a benaphore");
}
