//! x/sync's `semaphore` example "workerPool": at most as many goroutines at a time as there are processors, each with a
//! weight of 1. The goroutines compute the lengths of Collatz sequences.
//!
//! `cargo run --example weighted_semaphore`

use std::sync::Arc;

use sudog::prelude::*;
use sudog::runtime::max_procs;
use sudog::x::Weighted;

fn collatz_steps(mut n: u64) -> u32 {
    let mut steps = 0;
    while n > 1 {
        n = if n.is_multiple_of(2) { n / 2 } else { 3 * n + 1 };
        steps += 1;
    }
    steps
}

fn main() {
    sudog::run(|| {
        let workers = max_procs() as u64;
        let semaphore = Arc::new(Weighted::new(workers));
        let out = Arc::new(Mutex::new([0; 32]));
        let ctx = context::background();
        for n in 0..32 {
            // Wait until a worker has ended, and only then start another.
            semaphore.acquire(&ctx, 1).expect("the context is never done");
            go!(clone semaphore, out; {
                out.lock()[n] = collatz_steps(n as u64 + 1);
                semaphore.release(1);
            });
        }
        // Acquire all tokens: then all workers have ended.
        semaphore.acquire(&ctx, workers).expect("the context is never done");
        let out = *out.lock();
        println!("{out:?}");
        assert_eq!(out[..9], [0, 1, 7, 2, 5, 8, 16, 3, 19]);
    });
}
