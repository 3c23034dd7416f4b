//! Two goroutines that wake each other.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use sudog_runtime::goroutine::{self, Builder, Placement, go, gosched, max_procs};
use sudog_sync::WaitGroup;

use super::round::Round;
use super::shared;
use super::work::{Baton, burn, spin};

/// Measures the way there and back, wherever the scheduler puts the second goroutine.
pub fn ping_pong(round: &mut Round) {
    there_and_back(round.n, Placement::Any, Duration::ZERO);
}

/// Measures the way there and back to the next worker. In Go a goroutine cannot be placed: Go's scheduler decides.
pub fn across(round: &mut Round, busy: Duration) {
    there_and_back(round.n, Placement::Worker(1 % max_procs()), busy);
}

/// Passes a baton there and back, `n` times. Before each turn the first goroutine is busy for `busy`, and meanwhile the
/// second has nothing to do.
fn there_and_back(n: usize, other: Placement, busy: Duration) {
    let (ping, pong) = (shared(Baton::new()), shared(Baton::new()));
    Builder::new().on(other).go(move || {
        for _ in 0..n {
            ping.take();
            pong.give();
        }
    });
    for _ in 0..n {
        if !busy.is_zero() {
            spin(busy);
        }
        ping.give();
        pong.take();
    }
}

/// Measures the way there and back beside a goroutine that is always busy. The busy goroutine's share of the time is
/// the other figure.
pub fn ping_pong_hog(round: &mut Round) {
    const TURN: Duration = Duration::from_micros(10);

    let (stop, turns, done) = (shared(AtomicBool::new(false)), shared(AtomicU64::new(0)), shared(WaitGroup::new()));
    burn(TURN); // calibrates
    done.add(1);
    go(|| {
        while !stop.load(Relaxed) {
            burn(TURN);
            turns.fetch_add(1, Relaxed);
            gosched();
        }
        done.done();
    });
    round.reset_timer();
    ping_pong(round);
    round.stop_timer();
    let hogged = TURN.as_secs_f64() * turns.load(Relaxed) as f64;
    round.extra("hog_share", hogged / round.elapsed().as_secs_f64());
    stop.store(true, Relaxed);
    done.wait();
}

/// Measures two goroutines that take turns as giver and taker, and spin before each turn: the giver for longer, so that
/// the taker already waits when the giver gives. Both should spin at the same time; then 2 * (delay + WAKE) is the
/// least possible time.
pub fn wakeup(round: &mut Round, delay: Duration) {
    const WAKE: Duration = Duration::from_micros(5);

    let (ping, pong, done) = (shared(Baton::new()), shared(Baton::new()), shared(WaitGroup::new()));
    let n = round.n;
    done.add(2);
    go(move || {
        for _ in 0..n {
            spin(delay + WAKE);
            ping.give();
            spin(delay);
            pong.take();
        }
        done.done();
    });
    go(move || {
        for _ in 0..n {
            spin(delay);
            ping.take();
            spin(delay + WAKE);
            pong.give();
        }
        done.done();
    });
    done.wait();
}

/// Measures the length of a short sleep.
pub fn sleep(round: &mut Round) {
    (0..round.n).for_each(|_| goroutine::sleep(Duration::from_micros(100)));
}
