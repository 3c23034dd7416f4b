//! Mutexes, wait groups and conditions.

use std::hint::black_box;
use std::sync::Arc;

use crossbeam_utils::CachePadded;
use sudog_runtime::goroutine::go;
use sudog_sync::{Cond, GoMutex, Mutex, WaitGroup};

use super::round::Round;
use super::shared;
use super::work::Baton;
use crate::rounds::steps;

/// Measures a mutex of each goroutine's own.
pub fn mutex_uncontended(round: &mut Round) {
    round.parallel(1, |portion| {
        let mu = CachePadded::new(GoMutex::new());
        let mu: &GoMutex = black_box(&mu);
        while portion.more() {
            mu.lock();
            mu.unlock();
        }
    });
}

/// Measures a mutex that all goroutines share, with work outside the mutex.
pub fn mutex(round: &mut Round, parallelism: usize, work: u32) {
    let mu = GoMutex::new();
    round.parallel(parallelism, move |portion| {
        let work = work; // captured, this value is in the cache line of the mutex
        let mut x = 1;
        while portion.more() {
            mu.lock();
            mu.unlock();
            if work > 0 {
                x = steps(work, x);
            }
        }
        black_box(x);
    });
}

/// Two accounts, between which the contenders move money.
type Accounts = Mutex<(u64, u64)>;

fn transfer(accounts: &Accounts) {
    let mut accounts = accounts.lock();
    accounts.0 = accounts.0.wrapping_sub(100);
    accounts.1 += 100;
}

/// Measures a mutex where spinning is of no use, as another goroutine can always run. Every fourth turn locks; the
/// other turns touch memory, and give way by waiting for a new goroutine.
pub fn mutex_no_spin(round: &mut Round) {
    let accounts = Accounts::default();
    round.parallel(4, move |portion| {
        let handshake = shared(Baton::new());
        let mut data = vec![0; 4 << 10];
        let mut i = 0_usize;
        while portion.more() {
            if i.is_multiple_of(4) {
                transfer(&accounts);
            } else {
                touch(&mut data);
                go(|| handshake.give());
                handshake.take();
            }
            i += 1;
        }
    });
}

/// Measures a mutex where spinning is of use: the mutex is held for short, and each goroutine has much to do without
/// the mutex.
pub fn mutex_spin(round: &mut Round) {
    let accounts = Accounts::default();
    round.parallel(1, move |portion| {
        let mut data = vec![0; 16 << 10];
        while portion.more() {
            transfer(&accounts);
            touch(&mut data);
        }
    });
}

/// Touches every fourth word, four of them in each turn of the loop: a shorter loop takes two thirds more time at some places
/// in the program. The processor's stores bound either loop.
fn touch(data: &mut [u64]) {
    for part in black_box(data).chunks_exact_mut(16) {
        for word in [0, 4, 8, 12] {
            part[word] += 1;
        }
    }
}

/// Measures a wait group of each goroutine's own.
pub fn wait_group_uncontended(round: &mut Round) {
    round.parallel(1, |portion| {
        let wg = CachePadded::new(WaitGroup::new());
        let wg: &WaitGroup = black_box(&wg);
        while portion.more() {
            wg.add(1);
            wg.done();
            wg.wait();
        }
    });
}

/// Measures a wait group that all goroutines share, whose count is never zero for long.
pub fn wait_group_add_done(round: &mut Round, work: u32) {
    let wg = WaitGroup::new();
    round.parallel(1, move |portion| {
        let work = work; // captured, this value is in the cache line of the wait group
        let mut x = 1;
        while portion.more() {
            wg.add(1);
            if work > 0 {
                x = steps(work, x);
            }
            wg.done();
        }
        black_box(x);
    });
}

/// Measures a wait group that all goroutines share, with nothing to wait for.
pub fn wait_group_wait(round: &mut Round, work: u32) {
    let wg = WaitGroup::new();
    round.parallel(1, move |portion| {
        let work = work; // captured, this value is in the cache line of the wait group
        let mut x = 1;
        while portion.more() {
            wg.wait();
            if work > 0 {
                x = steps(work, x);
            }
        }
        black_box(x);
    });
}

/// Measures a goroutine, and the wait for the goroutine. Each time the wait group is new, and on the heap, as in Go.
pub fn wait_group_actually_wait(round: &mut Round) {
    round.parallel(1, |portion| {
        while portion.more() {
            let wg = Arc::new(WaitGroup::new());
            wg.add(1);
            let started = Arc::clone(&wg);
            go(move || started.done());
            wg.wait();
        }
    });
}

/// Measures a barrier of `waiters` + 1 goroutines: the last to arrive wakes the others.
pub fn cond(round: &mut Round, waiters: usize) {
    /// Stored in place of the number of arrivals when no more will come.
    const OVER: usize = usize::MAX;

    let (arrived, changed, done) = (shared(Mutex::new(0)), shared(Cond::new()), shared(WaitGroup::new()));
    let n = round.n;
    for _ in 0..=waiters {
        done.add(1);
        go(move || {
            for _ in 0..n {
                let mut arrived = arrived.lock();
                if *arrived == OVER {
                    break;
                }
                *arrived += 1;
                if *arrived == waiters + 1 {
                    *arrived = 0;
                    changed.broadcast();
                } else {
                    changed.wait(&mut arrived);
                }
            }
            *arrived.lock() = OVER;
            changed.broadcast();
            done.done();
        });
    }
    done.wait();
}
