//! Go's `x/time/rate/rate_test.go` and `sometimes_test.go`, with the same test names. Times are in tenths of a second.
//! Tests that wait run in bubbles.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use sudog::context::{self, Context};
use sudog::sync::{Mutex, WaitGroup};
use sudog::time::{now, sleep};
use sudog::x::rate::{Error, Limit, Limiter, Reservation, Sometimes};
use sudog::{go, spawn, synctest};

/// A tenth of a second.
const D: Duration = Duration::from_millis(100);

/// The times 0, 0.1 s, ...
fn times() -> impl Fn(u32) -> Instant {
    let start = Instant::now();
    move |n| start + n * D
}

fn limiter(limit: f64, burst: u32) -> Limiter {
    Limiter::new(Limit::per_second(limit), burst)
}

/// Asks for `n` tokens at each time, and checks whether the limiter allows the request.
#[track_caller]
fn run(limiter: &Limiter, allows: &[(u32, u32, bool)]) {
    let t = times();
    for (i, &(at, n, allowed)) in allows.iter().enumerate() {
        assert_eq!(limiter.allow_n(t(at), n), allowed, "step {i}: {n} at {at}");
    }
}

#[test]
fn limit() {
    assert!(Limit::per_second(10.0) == Limit::per_second(10.0) && Limit::INF > Limit::per_second(1e300));
    assert_eq!(Limiter::new(Limit::INF, 3).burst(), 3);
    assert_eq!(limiter(10.0, 0).limit().as_per_second(), 10.0);
}

#[test]
fn every() {
    for (interval, limit) in
        [(Duration::ZERO, Limit::INF), (D, Limit::per_second(10.0)), (2 * D, Limit::per_second(5.0))]
    {
        assert_eq!(Limit::every(interval), limit);
    }
    assert!((Limit::every(Duration::from_nanos(1)).as_per_second() - 1e9).abs() < 1.0);
}

#[test]
#[should_panic = "rate: a limit must not be negative"]
fn a_negative_limit() {
    _ = Limit::per_second(-1.0);
}

#[test]
#[should_panic = "rate: a limit must not be negative"]
fn a_limit_that_is_no_number() {
    _ = Limit::per_second(f64::NAN);
}

#[test]
fn limiter_burst_1() {
    run(
        &limiter(10.0, 1),
        &[
            (0, 1, true),
            (0, 1, false),
            (0, 1, false),
            (1, 1, true),
            (1, 1, false),
            (1, 1, false),
            (2, 2, false), // more than the burst
            (2, 1, true),
            (2, 1, false),
        ],
    );
}

#[test]
fn limiter_burst_3() {
    run(
        &limiter(10.0, 3),
        &[
            (0, 2, true),
            (0, 2, false),
            (0, 1, true),
            (0, 1, false),
            (1, 4, false),
            (2, 1, true),
            (3, 1, true),
            (4, 1, true),
            (4, 1, true),
            (4, 1, false),
            (4, 1, false),
            (9, 3, true),
            (9, 0, true),
        ],
    );
}

/// Go: `TestLimiterJumpBackwards`. In Go the marked step gets a token, because Go counts the time between 0 and 1
/// twice.
#[test]
fn limiter_jump_backwards() {
    run(
        &limiter(10.0, 3),
        &[
            (1, 1, true),
            (0, 1, true),
            (0, 1, true),
            (0, 1, false),
            (0, 1, false),
            (1, 1, false), // Go: true
            (2, 1, true),
            (2, 1, false),
        ],
    );
}

/// Checks that fractions of tokens add up without loss.
#[test]
fn limiter_no_truncation_errors() {
    assert!(limiter(0.7692307692307693, 1).allow());
}

#[test]
fn a_limit_of_zero() {
    let zero = limiter(0.0, 2);
    let t = times();
    assert!(zero.allow_n(t(0), 2));
    assert!(!zero.allow_n(t(1000), 1), "nothing comes");
    assert!(zero.reserve_n(t(1000), 1).is_none(), "it never comes");
    let error = zero.wait(&context::background()).unwrap_err();
    assert_eq!(error, Error::WouldExceedDeadline { n: 1 });
    assert!(Limiter::new(Limit::INF, 0).allow_n(t(0), 1000), "without a limit the burst says nothing");
    assert!(!limiter(1.0, 0).allow_n(t(0), 1));
}

/// Checks that many threads at once are allowed the burst and the tokens that have come meanwhile, and no more.
#[test]
fn simultaneous_requests() {
    let limiter = limiter(1e-9, 5);
    let allowed = AtomicU32::new(0);
    thread::scope(|s| {
        for _ in 0..15 {
            s.spawn(|| allowed.fetch_add(u32::from(limiter.allow()), Relaxed));
        }
    });
    assert_eq!(allowed.into_inner(), 5);
}

#[test]
fn long_running_qps() {
    synctest::test(|| {
        let limiter = limiter(100.0, 100);
        let (start, mut allowed) = (now(), 0);
        while now() - start < Duration::from_secs(5) {
            allowed += u32::from(limiter.allow());
            sleep(Duration::from_millis(2));
        }
        assert!((599..=600).contains(&allowed), "{allowed}: 100 at once, then 100 a second");
    });
}

/// Reserves `n` tokens, and checks the delay, which is in whole tenths of a second.
#[track_caller]
fn reserve<'a>(limiter: &'a Limiter, at: Instant, n: u32, wait: u32) -> Reservation<'a> {
    let reservation = limiter.reserve_n(at, n).expect("a reservation");
    let delay = reservation.delay_from(at);
    assert!(delay.abs_diff(wait * D) < Duration::from_micros(1), "{delay:?}");
    reservation
}

/// Reserves `n` tokens, checks the delay, and does not cancel the reservation.
#[track_caller]
fn taken(limiter: &Limiter, at: Instant, n: u32, wait: u32) {
    _ = reserve(limiter, at, n, wait);
}

#[test]
fn simple_reserve() {
    let (limiter, t) = (limiter(10.0, 2), times());
    taken(&limiter, t(0), 2, 0);
    taken(&limiter, t(0), 2, 2);
    taken(&limiter, t(3), 2, 1);
    assert!(limiter.reserve_n(t(3), 3).is_none());
}

#[test]
fn mix() {
    let (limiter, t) = (limiter(10.0, 2), times());
    assert!(limiter.reserve_n(t(0), 3).is_none(), "more than the burst");
    taken(&limiter, t(0), 2, 0);
    taken(&limiter, t(1), 2, 1);
    assert!(!limiter.allow_n(t(1), 2));
    taken(&limiter, t(4), 1, 0);
}

#[test]
fn cancel_invalid_and_last_and_too_late() {
    let (limiter, t) = (limiter(10.0, 2), times());
    taken(&limiter, t(0), 2, 0);
    let last = reserve(&limiter, t(0), 2, 2);
    last.cancel_at(t(1)); // gives 2 tokens back
    taken(&limiter, t(1), 2, 1);
    let late = reserve(&limiter, t(1), 2, 3);
    late.cancel_at(t(5)); // too late to cancel: no token back
    assert!((limiter.tokens_at(t(4)) - 0.0).abs() < 1e-6, "{}", limiter.tokens_at(t(4)));
}

#[test]
fn cancel_0_tokens() {
    let (limiter, t) = (limiter(10.0, 2), times());
    taken(&limiter, t(0), 2, 0);
    let nothing = reserve(&limiter, t(0), 0, 0);
    taken(&limiter, t(0), 1, 1);
    nothing.cancel_at(t(1));
    taken(&limiter, t(0), 1, 2);
}

#[test]
fn cancel_1_token() {
    let (limiter, t) = (limiter(10.0, 2), times());
    taken(&limiter, t(0), 2, 0);
    let two = reserve(&limiter, t(0), 2, 2);
    taken(&limiter, t(0), 1, 3);
    two.cancel_at(t(2)); // gives 1 token back: the later reservation relies on the other token
    taken(&limiter, t(2), 2, 2);
}

#[test]
fn cancel_multi() {
    let (limiter, t) = (limiter(10.0, 4), times());
    taken(&limiter, t(0), 4, 0);
    let first = reserve(&limiter, t(0), 3, 3);
    let second = reserve(&limiter, t(0), 1, 4);
    second.cancel_at(t(0)); // gives 1 token back
    first.cancel_at(t(0)); // gives all 3 tokens back
    taken(&limiter, t(0), 3, 3);
}

#[test]
fn reserve_jump_back() {
    let (limiter, t) = (limiter(10.0, 2), times());
    taken(&limiter, t(1), 2, 0);
    taken(&limiter, t(0), 1, 2); // a time before the time of the last call counts as the time of the last call
    taken(&limiter, t(2), 2, 2);
}

#[test]
fn reserve_set_limit() {
    let (limiter, t) = (limiter(5.0, 2), times());
    taken(&limiter, t(0), 2, 0);
    taken(&limiter, t(0), 2, 4);
    limiter.set_limit_at(t(2), Limit::per_second(10.0));
    taken(&limiter, t(2), 1, 2); // up to t(2) tokens come at the former limit
}

#[test]
fn reserve_set_burst() {
    let (limiter, t) = (limiter(5.0, 2), times());
    taken(&limiter, t(0), 2, 0);
    taken(&limiter, t(0), 2, 4);
    limiter.set_burst_at(t(3), 4);
    taken(&limiter, t(3), 4, 9); // there are -0.5 tokens at t(3), and 4 fewer after this call
}

#[test]
fn reserve_set_limit_cancel() {
    let (limiter, t) = (limiter(5.0, 2), times());
    taken(&limiter, t(0), 2, 0);
    let second = reserve(&limiter, t(0), 2, 4);
    limiter.set_limit_at(t(2), Limit::per_second(10.0));
    second.cancel_at(t(2)); // gives 2 tokens back
    taken(&limiter, t(2), 2, 1);
}

fn wait(limiter: &Limiter, ctx: &Context, n: u32) -> (Result<(), Error>, Duration) {
    let begun = now();
    (limiter.wait_n(ctx, n), now() - begun)
}

fn tenths(d: Duration) -> u128 {
    (d.as_micros() + 500) / D.as_micros()
}

#[test]
fn wait_simple() {
    synctest::test(|| {
        let limiter = limiter(10.0, 3);
        let (canceled, cancel) = context::with_cancel(&context::background());
        cancel.cancel();
        let error = Error::Context(context::Error::Canceled);
        assert_eq!(wait(&limiter, &canceled, 1), (Err(error), Duration::ZERO));
        let (n, burst) = (4, 3);
        assert_eq!(wait(&limiter, &context::background(), 4), (Err(Error::ExceedsBurst { n, burst }), Duration::ZERO));
        for (n, waited) in [(2, 0), (2, 1), (1, 1)] {
            let (result, took) = wait(&limiter, &context::background(), n);
            assert_eq!((result, tenths(took)), (Ok(()), waited));
        }
        assert_eq!(Error::ExceedsBurst { n, burst }.to_string(), "rate: Wait(n=4) exceeds limiter's burst 3");
        assert_eq!(Error::WouldExceedDeadline { n: 2 }.to_string(), "rate: Wait(n=2) would exceed context deadline");
        assert_eq!(error.to_string(), "context canceled");
    });
}

#[test]
fn wait_cancel() {
    synctest::test(|| {
        let limiter = Arc::new(limiter(10.0, 3));
        let (ctx, cancel) = context::with_cancel(&context::background());
        assert_eq!(wait(&limiter, &ctx, 2).0, Ok(()));
        go(move || {
            sleep(D);
            cancel.cancel();
        });
        let (result, took) = wait(&limiter, &ctx, 3);
        assert_eq!((result, tenths(took)), (Err(Error::Context(context::Error::Canceled)), 1));
        // The cancelled wait has given the tokens back.
        let tokens = limiter.tokens();
        assert!((tokens - 2.0).abs() < 1e-6, "{tokens}");
        let (result, took) = wait(&limiter, &context::background(), 3);
        assert_eq!((result, tenths(took)), (Ok(()), 1));
    });
}

#[test]
fn wait_timeout() {
    synctest::test(|| {
        let limiter = limiter(10.0, 3);
        let (ctx, _cancel) = context::with_timeout(&context::background(), D);
        assert_eq!(wait(&limiter, &ctx, 2).0, Ok(()));
        assert_eq!(wait(&limiter, &ctx, 1).0, Ok(()));
        let too_late = Err(Error::WouldExceedDeadline { n: 3 });
        assert_eq!(wait(&limiter, &ctx, 3), (too_late, Duration::ZERO), "it fails before it waits");
    });
}

#[test]
fn wait_inf() {
    synctest::test(|| {
        let limiter = Limiter::new(Limit::INF, 0);
        assert_eq!(wait(&limiter, &context::background(), 3), (Ok(()), Duration::ZERO));
    });
}

#[test]
fn waiters_are_served_in_the_order_of_their_calls() {
    synctest::test(|| {
        let limiter = Arc::new(limiter(10.0, 1));
        let (order, group) = (Arc::new(Mutex::new(Vec::new())), Arc::new(WaitGroup::new()));
        for n in 0..20 {
            let (limiter, order) = (limiter.clone(), order.clone());
            group.go(move || {
                limiter.wait(&context::background()).unwrap();
                order.lock().push(n);
            });
        }
        let begun = now();
        group.wait();
        assert_eq!(tenths(now() - begun), 19);
        assert!(order.lock().iter().copied().eq(0..20));
    });
}

// ---- sometimes ------------------------------------------------------------------------------------------------------

#[test]
fn sometimes() {
    let calls = |sometimes: Sometimes| {
        let mut done = Vec::new();
        (0..8).for_each(|n| sometimes.do_(|| done.push(n)));
        done
    };
    assert_eq!(calls(Sometimes::new()), [0]);
    assert_eq!(calls(Sometimes::new().first(3)), [0, 1, 2]);
    assert_eq!(calls(Sometimes::new().every(3)), [0, 3, 6]);
    assert_eq!(calls(Sometimes::new().first(2).every(3)), [0, 1, 3, 6]);
    assert_eq!(calls(Sometimes::new().interval(Duration::from_secs(3600))), [0]);
    assert_eq!(calls(Sometimes::new().interval(Duration::from_nanos(0)).every(7)), [0, 7]);
}

#[test]
fn sometimes_interval() {
    synctest::test(|| {
        let sometimes = Sometimes::new().interval(Duration::from_secs(1));
        let mut done = 0;
        for _ in 0..100 {
            sometimes.do_(|| done += 1);
            sleep(D);
        }
        assert_eq!(done, 10);
    });
}

/// Checks three actions that in Go would deadlock or keep other callers waiting.
#[test]
fn the_action_of_sometimes_is_free() {
    let sometimes = Arc::new(Sometimes::new().every(1));
    let mut inner = 0;
    sometimes.do_(|| sometimes.do_(|| inner += 1));
    assert_eq!(inner, 1);
    let panics = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| sometimes.do_(|| panic!("of a user"))));
    assert!(panics.is_err());
    sudog::run(|| {
        let other = sometimes.clone();
        sometimes.do_(|| spawn(move || other.do_(|| ())).join().unwrap());
    });
}

/// Checks that a reservation made without a limit took no token, and gives no token back once there is a limit.
#[test]
fn a_reservation_without_a_limit_gives_nothing_back() {
    let t = times();
    let limiter = Limiter::new(Limit::INF, 10);
    let reservation = limiter.reserve_n(t(0), 1).expect("no limit");
    limiter.set_limit_at(t(0), Limit::per_second(1.0));
    assert!(limiter.allow_n(t(0), 10));
    reservation.cancel_at(t(0));
    assert_eq!(limiter.tokens_at(t(0)), 0.0);
}
