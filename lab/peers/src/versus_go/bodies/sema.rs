//! The semaphore, bare. Go's programs have none.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use sudog_runtime::AtomicU32;
use sudog_runtime::goroutine::{go, gosched, max_procs};
use sudog_runtime::sema::{Wake, semacquire, semrelease, waiters};
use sudog_sync::WaitGroup;

use super::round::Round;
use super::shared;

/// Measures the rule of Go's `TestSemaHandoff`: a release with handoff should leave the processor to the waiter as
/// well, so the waiter should go on before the releaser, although other goroutines always want to run. Go's test
/// demands two thirds of the rounds for the waiter.
pub fn handoff(round: &mut Round) {
    const ROUNDS: usize = 10_000;
    const NOBODY: u32 = 0;
    const WAITER: u32 = 1;
    const RELEASER: u32 = 2;

    let (sema, first) = (shared(AtomicU32::new(0)), shared(AtomicU32::new(NOBODY)));
    let (over, others, done) = (shared(AtomicBool::new(false)), shared(WaitGroup::new()), shared(WaitGroup::new()));
    for _ in 0..max_procs() {
        others.add(1);
        go(|| {
            while !over.load(Relaxed) {
                gosched();
            }
            others.done();
        });
    }
    round.n = ROUNDS;
    round.reset_timer();
    let mut won = 0;
    for _ in 0..ROUNDS {
        first.store(NOBODY, Relaxed);
        done.add(1);
        go(|| {
            semacquire(sema);
            let _ = first.compare_exchange(NOBODY, WAITER, Relaxed, Relaxed);
            done.done();
        });
        while waiters(sema) == 0 {
            gosched();
        }
        semrelease(sema, Wake::Handoff);
        let _ = first.compare_exchange(NOBODY, RELEASER, Relaxed, Relaxed);
        done.wait();
        won += usize::from(first.load(Relaxed) == WAITER);
    }
    round.stop_timer();
    round.extra("waiter_share", won as f64 / ROUNDS as f64);
    over.store(true, Relaxed);
    others.wait();
}
