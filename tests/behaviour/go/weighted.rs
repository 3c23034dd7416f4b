//! The tests of Go's `x/sync/semaphore`, over threads and over goroutines; and tests of deadlines and guards, which Go
//! does not have.
#![cfg(all(unix, not(sudog_loom)))]

use std::panic::catch_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use sudog::context::{Error, background, with_cancel, with_timeout};
use sudog::runtime::max_procs;
use sudog::time::sleep;
use sudog::x::Weighted;
use sudog::{Cancel, WaitError, WaitLimit};
use support::counting::without_allocating;
use support::kinds::Kind;
use support::{Watchdog, eventually};

support::over_threads_and_goroutines! {
    weighted weighted_try_acquire weighted_acquire weighted_doesnt_block_if_too_big large_acquire_doesnt_starve
    alloc_cancel_doesnt_starve weighted_acquire_canceled
    in_turn a_crowd_at_once limits_of_waiters the_first_gives_up everything_at_random
}

const FOREVER: WaitLimit<'static> = WaitLimit { deadline: None, cancel: None };

fn debug(semaphore: &Weighted) -> String {
    format!("{semaphore:?}")
}

fn state(size: u64, held: u64, waiters: usize) -> String {
    format!("Weighted {{ size: {size}, held: {held}, waiters: {waiters} }}")
}

/// A generator of numbers of low quality.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

// ---- as in Go -------------------------------------------------------------------------------------------------------

/// Go: `TestWeighted`.
fn weighted<K: Kind>() {
    let n = max_procs() as u64;
    let loops = 10_000 / n;
    let watchdog = Arc::new(Watchdog::new());
    let w = Arc::new((Weighted::new(n), AtomicU64::new(0)));
    for tokens in 0..n {
        let (w, watchdog) = (w.clone(), watchdog.clone());
        K::go(move || {
            let mut random = Random(tokens);
            for _ in 0..loops {
                w.0.acquire(&background(), tokens).unwrap();
                sleep(Duration::from_nanos(random.below(1_000_000)));
                w.0.release(tokens);
                watchdog.pat();
            }
            w.1.fetch_add(1, SeqCst);
        });
    }
    K::until(|| w.1.load(SeqCst) == n);
    assert_eq!(debug(&w.0), state(n, 0, 0));
}

/// Go: `TestWeightedPanic`. In Go the semaphore is unusable after the panic.
#[test]
fn weighted_panic() {
    let semaphore = Weighted::new(1);
    for held in 0..2 {
        let payload = catch_unwind(|| semaphore.release(held + 1)).unwrap_err();
        assert_eq!(payload.downcast_ref::<&str>(), Some(&"semaphore: released more than held"));
        assert_eq!(debug(&semaphore), state(1, held, 0));
        assert_eq!(semaphore.try_acquire(1), held == 0);
    }
    assert!(catch_unwind(|| semaphore.release(u64::MAX)).is_err());
    assert_eq!(debug(&semaphore), state(1, 1, 0));
}

/// Go: `TestWeightedTryAcquire`.
fn weighted_try_acquire<K: Kind>() {
    let (ctx, semaphore) = (background(), Weighted::new(2));
    let mut tries = Vec::new();
    semaphore.acquire(&ctx, 1).unwrap();
    tries.push(semaphore.try_acquire(1));
    tries.push(semaphore.try_acquire(1));
    semaphore.release(2);
    tries.push(semaphore.try_acquire(1));
    semaphore.acquire(&ctx, 1).unwrap();
    tries.push(semaphore.try_acquire(1));
    assert_eq!(tries, [true, false, true, false]);
}

/// Go: `TestWeightedAcquire`.
fn weighted_acquire<K: Kind>() {
    let (ctx, semaphore) = (background(), Weighted::new(2));
    const LONG: Duration = Duration::from_secs(3600);
    const SHORT: Duration = Duration::from_millis(10);
    let try_acquire = |tokens, patience| {
        let (ctx, _cancel) = with_timeout(&ctx, patience);
        semaphore.acquire(&ctx, tokens).is_ok()
    };
    let mut tries = Vec::new();
    semaphore.acquire(&ctx, 1).unwrap();
    tries.push(try_acquire(1, LONG));
    tries.push(try_acquire(1, SHORT));
    semaphore.release(2);
    tries.push(try_acquire(1, LONG));
    semaphore.acquire(&ctx, 1).unwrap();
    tries.push(try_acquire(1, SHORT));
    assert_eq!(tries, [true, false, true, false]);
}

/// Go: `TestWeightedDoesntBlockIfTooBig`.
fn weighted_doesnt_block_if_too_big<K: Kind>() {
    const N: u64 = 2;
    let w = Arc::new((Weighted::new(N), AtomicU64::new(0), AtomicBool::new(false)));
    let (ctx, cancel) = with_cancel(&background());
    let too_big = w.clone();
    K::go(move || {
        assert_eq!(too_big.0.acquire(&ctx, N + 1), Err(Error::Canceled));
        too_big.2.store(true, SeqCst);
    });
    for _ in 0..N * 3 {
        let w = w.clone();
        K::go(move || {
            w.0.acquire(&background(), 1).unwrap();
            sleep(Duration::from_millis(1));
            w.0.release(1);
            w.1.fetch_add(1, SeqCst);
        });
    }
    K::until(|| w.1.load(SeqCst) == N * 3);
    assert!(!w.2.load(SeqCst));
    cancel.cancel();
    K::until(|| w.2.load(SeqCst));
}

/// Go: `TestLargeAcquireDoesntStarve`.
fn large_acquire_doesnt_starve<K: Kind>() {
    let n = max_procs() as u64;
    let w = Arc::new((Weighted::new(n), AtomicBool::new(true), AtomicU64::new(0)));
    for _ in 0..n {
        w.0.acquire(&background(), 1).unwrap();
        let w = w.clone();
        K::go(move || {
            while w.1.load(Relaxed) {
                sleep(Duration::from_millis(1));
                w.0.release(1);
                w.0.acquire(&background(), 1).unwrap();
            }
            w.0.release(1);
            w.2.fetch_add(1, SeqCst);
        });
    }
    w.0.acquire(&background(), n).unwrap();
    w.1.store(false, Relaxed);
    w.0.release(n);
    K::until(|| w.2.load(SeqCst) == n);
}

/// Go: `TestAllocCancelDoesntStarve`. Go's test relies on sleeps; here the test sees each waiter in the queue.
fn alloc_cancel_doesnt_starve<K: Kind>() {
    let w = Arc::new((Weighted::new(10), AtomicUsize::new(0)));
    w.0.acquire(&background(), 1).unwrap();
    let writer = w.clone();
    let (ctx, cancel) = with_cancel(&background());
    K::go(move || {
        assert_eq!(writer.0.acquire(&ctx, 10), Err(Error::Canceled));
        writer.1.fetch_add(1, SeqCst);
    });
    K::until(|| w.0.waiters() == 1);
    let reader = w.clone();
    K::go(move || {
        reader.0.acquire(&background(), 1).unwrap();
        reader.0.release(1);
        reader.1.fetch_add(1, SeqCst);
    });
    K::until(|| w.0.waiters() == 2);
    cancel.cancel();
    K::until(|| w.1.load(SeqCst) == 2);
    assert_eq!(debug(&w.0), state(10, 1, 0));
}

/// Go: `TestWeightedAcquireCanceled` (issue 63615). A caller that cancels and then releases tokens knows that no waiter
/// takes those tokens.
fn weighted_acquire_canceled<K: Kind>() {
    for _ in 0..300 {
        let w = Arc::new((Weighted::new(2), AtomicBool::new(false)));
        let (ctx, cancel) = with_cancel(&background());
        w.0.acquire(&background(), 1).unwrap();
        let other = w.clone();
        K::go(move || {
            // Wait until the acquire of two tokens stands in line.
            while other.0.try_acquire(1) {
                other.0.release(1);
                K::gosched();
            }
            cancel.cancel();
            other.0.release(1);
            other.1.store(true, SeqCst);
        });
        assert_eq!(w.0.acquire(&ctx, 2), Err(Error::Canceled));
        K::until(|| w.1.load(SeqCst));
        assert!(w.0.try_acquire(2), "tokens are lost");
    }
}

// ---- not in Go ------------------------------------------------------------------------------------------------------

/// Checks that waiters are served strictly in turn, whatever each wants. The tokens come back one by one, and no waiter
/// gets its tokens before the first waiter has got all of its own.
fn in_turn<K: Kind>() {
    const SIZE: u64 = 7;
    let wants = [3, 7, 1, 1, 5, 2, 7, 4, 6, 1];
    let w = Arc::new((Weighted::new(SIZE), AtomicUsize::new(0)));
    assert!(w.0.try_acquire(SIZE));
    for (place, tokens) in wants.into_iter().enumerate() {
        let waiter = w.clone();
        K::go(move || {
            waiter.0.acquire(&background(), tokens).unwrap();
            assert_eq!(waiter.1.fetch_add(1, SeqCst), place, "passed in line");
        });
        K::until(|| w.0.waiters() == place + 1);
    }
    let mut free = 0;
    for (served, tokens) in wants.into_iter().enumerate() {
        while free < tokens {
            assert_eq!((w.1.load(SeqCst), w.0.waiters()), (served, wants.len() - served));
            assert!(!w.0.try_acquire(0), "passed in line");
            w.0.release(1);
            free += 1;
        }
        free -= tokens;
        K::until(|| w.1.load(SeqCst) == served + 1);
    }
}

/// Serves more waiters by one release than the semaphore table wakes in one batch.
fn a_crowd_at_once<K: Kind>() {
    let n = K::MANY as u64;
    let w = Arc::new((Weighted::new(n), AtomicU64::new(0)));
    for _ in 0..3 {
        w.1.store(0, SeqCst);
        assert!(w.0.try_acquire(n));
        for _ in 0..n {
            let w = w.clone();
            K::go(move || {
                w.0.acquire_limited(1, &FOREVER).unwrap();
                w.1.fetch_add(1, SeqCst);
                w.0.release(1);
            });
        }
        K::until(|| w.0.waiters() == K::MANY);
        w.0.release(n);
        K::until(|| w.1.load(SeqCst) == n && debug(&w.0) == state(n, 0, 0));
    }
}

fn limits_of_waiters<K: Kind>() {
    let w = Arc::new((Weighted::new(2), Cancel::new(), AtomicUsize::new(0)));
    assert!(w.0.acquire_limited(2, Instant::now()).is_ok(), "what is free is taken whatever the time");
    for tokens in [1, 2, 3] {
        let deadline = Instant::now() + Duration::from_millis(1);
        assert!(w.0.acquire_limited(tokens, deadline).is_err());
        assert!(Instant::now() >= deadline);
        assert!(w.0.hold_limited(tokens, Instant::now()).is_err());
        assert_eq!(w.0.hold_limited(tokens, &WaitLimit::until(deadline)).unwrap_err(), WaitError::TimedOut);
        let (ctx, _cancel) = with_timeout(&background(), Duration::from_millis(1));
        assert_eq!(w.0.acquire(&ctx, tokens), Err(Error::DeadlineExceeded));
    }
    for tokens in [1, 2, 3] {
        let w = w.clone();
        K::go(move || {
            let limit = WaitLimit { cancel: Some(&w.1), ..FOREVER };
            assert_eq!(w.0.acquire_limited(tokens, &limit), Err(WaitError::Cancelled));
            w.2.fetch_add(1, SeqCst);
        });
    }
    K::until(|| w.0.waiters() == 2);
    w.1.cancel();
    K::until(|| w.2.load(SeqCst) == 3);
    assert_eq!(debug(&w.0), state(2, 2, 0));
    w.0.release(2);
    let limit = WaitLimit { cancel: Some(&w.1), ..FOREVER };
    assert_eq!(w.0.acquire_limited(1, &limit), Err(WaitError::Cancelled), "though it is free");
}

/// Checks that when the first waiter gives up, the waiters behind it that fit are served at once.
fn the_first_gives_up<K: Kind>() {
    let w = Arc::new((Weighted::new(4), Cancel::new(), AtomicUsize::new(0)));
    assert!(w.0.try_acquire(1));
    let big = w.clone();
    K::go(move || {
        let limit = WaitLimit { cancel: Some(&big.1), ..FOREVER };
        assert_eq!(big.0.acquire_limited(4, &limit), Err(WaitError::Cancelled));
    });
    K::until(|| w.0.waiters() == 1);
    for tokens in [1, 2, 2] {
        let (other, before) = (w.clone(), w.0.waiters());
        K::go(move || {
            other.0.acquire_limited(tokens, &FOREVER).unwrap();
            other.2.fetch_add(1, SeqCst);
        });
        K::until(|| w.0.waiters() == before + 1);
    }
    w.1.cancel();
    K::until(|| w.2.load(SeqCst) == 2 && debug(&w.0) == state(4, 4, 1));
    w.0.release(2);
    K::until(|| w.2.load(SeqCst) == 3);
    w.0.release(4);
    assert_eq!(debug(&w.0), state(4, 0, 0));
}

#[test]
fn a_context_that_is_done_gets_nothing() {
    let semaphore = Weighted::new(1);
    let (ctx, cancel) = with_cancel(&background());
    cancel.cancel();
    assert_eq!(semaphore.acquire(&ctx, 1), Err(Error::Canceled));
    assert_eq!(semaphore.hold(&ctx, 1).unwrap_err(), Error::Canceled);
    let (ctx, _cancel) = with_timeout(&background(), Duration::ZERO);
    assert_eq!(semaphore.acquire(&ctx, 1), Err(Error::DeadlineExceeded));
    assert_eq!(debug(&semaphore), state(1, 0, 0));
}

#[test]
fn a_guard_gives_back() {
    static SEMAPHORE: Weighted = Weighted::new(3);
    let held = SEMAPHORE.hold(&background(), 2).unwrap();
    assert_eq!((held.tokens(), debug(&SEMAPHORE)), (2, state(3, 2, 0)));
    assert!(SEMAPHORE.try_hold(2).is_none());
    drop(held);
    drop(SEMAPHORE.hold_limited(3, Instant::now()).unwrap());
    _ = catch_unwind(|| {
        let _held = SEMAPHORE.hold_limited(3, &FOREVER).unwrap();
        std::panic::resume_unwind(Box::new(()));
    });
    assert_eq!(debug(&SEMAPHORE), state(3, 0, 0));
}

/// Checks that acquiring no tokens succeeds at once, but does not pass waiters.
#[test]
fn no_tokens_and_a_semaphore_of_none() {
    let semaphore = Weighted::new(0);
    assert!(semaphore.try_acquire(0) && !semaphore.try_acquire(1));
    assert!(semaphore.acquire_limited(1, Instant::now()).is_err());
    semaphore.release(0);
    let semaphore = Weighted::new(Weighted::MAX_SIZE);
    for too_many in [u64::MAX, 1 << 63] {
        assert!(!semaphore.try_acquire(too_many) && semaphore.acquire_limited(too_many, Instant::now()).is_err());
        assert!(catch_unwind(|| semaphore.release(too_many)).is_err());
    }
    assert!(semaphore.try_acquire(Weighted::MAX_SIZE) && !semaphore.try_acquire(1));
    assert!(semaphore.try_acquire(0) && !semaphore.try_acquire(Weighted::MAX_SIZE));
    for too_many in [u64::MAX, 1 << 63] {
        assert!(catch_unwind(|| semaphore.release(too_many)).is_err());
    }
    semaphore.release(Weighted::MAX_SIZE);
    assert_eq!(debug(&semaphore), state(Weighted::MAX_SIZE, 0, 0));
}

#[test]
#[should_panic = "semaphore: larger than Weighted::MAX_SIZE"]
fn too_large_a_semaphore() {
    _ = Weighted::new(Weighted::MAX_SIZE + 1);
}

#[test]
fn waiting_allocates_nothing() {
    let _watchdog = Watchdog::new();
    let semaphore = Weighted::new(2);
    assert!(without_allocating(|| semaphore.try_acquire(2)));
    thread::scope(|s| {
        for tokens in [1, 2] {
            let semaphore = &semaphore;
            s.spawn(move || {
                without_allocating(|| {
                    semaphore.acquire_limited(tokens, &FOREVER).unwrap();
                    semaphore.release(tokens);
                });
            });
        }
        eventually(|| semaphore.waiters() == 2);
        without_allocating(|| {
            assert!(semaphore.acquire_limited(1, Instant::now() + Duration::from_millis(1)).is_err());
            assert!(semaphore.acquire_limited(3, Instant::now() + Duration::from_millis(1)).is_err());
            semaphore.release(2);
        });
    });
    assert_eq!(debug(&semaphore), state(2, 0, 0));
}

/// Checks that tokens are conserved: never more are held than exist, and all are back at the end.
fn everything_at_random<K: Kind>() {
    const SIZE: u64 = 6;
    const TASKS: u64 = 10;
    let watchdog = Arc::new(Watchdog::new());
    let w = Arc::new((Weighted::new(SIZE), AtomicU64::new(0), AtomicU64::new(0)));
    for task in 0..TASKS {
        let (w, watchdog, mut random) = (w.clone(), watchdog.clone(), Random(task));
        K::go(move || {
            for _ in 0..400 {
                watchdog.pat();
                let tokens = random.below(SIZE + 1);
                let soon = Duration::from_micros(random.below(100));
                let (ctx, cancel) = with_cancel(&background());
                let got = match random.below(6) {
                    0 => w.0.try_acquire(tokens),
                    1 => w.0.acquire_limited(tokens, Instant::now() + soon).is_ok(),
                    2 => {
                        let (ctx, _cancel) = with_timeout(&ctx, soon);
                        w.0.acquire(&ctx, tokens).is_ok()
                    }
                    3 => {
                        K::go(move || cancel.cancel());
                        w.0.acquire(&ctx, tokens).is_ok()
                    }
                    _ => w.0.acquire(&ctx, tokens).is_ok(),
                };
                if got {
                    let held = w.1.fetch_add(tokens, SeqCst) + tokens;
                    assert!(held <= SIZE, "{held} tokens are held");
                    if random.below(3) == 0 {
                        K::gosched();
                    }
                    w.1.fetch_sub(tokens, SeqCst);
                    w.0.release(tokens);
                }
            }
            w.2.fetch_add(1, SeqCst);
        });
    }
    K::until(|| w.2.load(SeqCst) == TASKS);
    assert_eq!(debug(&w.0), state(SIZE, 0, 0));
}
