//! Models of the mutex under each policy: every interleaving, on loom's memory model, up to a bound of preemptions.
//!
//! `RUSTFLAGS="--cfg sudog_loom" cargo test --profile loom -p sudog-sync --test loom_mutex`
//!
//! The clock advances by a fixed step at each reading. With no step no contender ever starves; with a step of a
//! threshold every contender does at once. A lost wake-up shows as a deadlock; a lost exclusion as a data race in
//! loom's cell; a stray permit when the semaphore is dropped.
#![cfg(sudog_loom)]

mod world;

use loom::sync::Arc;
use sudog_runtime::reached::{
    AGAIN, AT_ONCE, SLEEPS, TIME_IS_UP, TOO_LATE_AND_WOKEN, TWO_SLEEP, WOKEN_BEFORE, waiting,
};
use sudog_runtime::sema::Cancel;
use sudog_sync::mutex::policy::{Fifo, Go, Go1_8, Go1_9, Policy, Threads};
use world::states::*;
use world::{each, explore, spawn};

fn two_threads<P: Policy, const RICH: bool>(preemptions: usize, step_us: u64) {
    explore::<P, RICH>(preemptions, step_us, |w| {
        let other = spawn(&w, |w| {
            w.turn();
            w.turn();
        });
        w.turn();
        w.turn();
        other.join().unwrap();
        w.finish(4);
    });
}

fn three_threads<P: Policy, const RICH: bool>(preemptions: usize, step_us: u64) {
    explore::<P, RICH>(preemptions, step_us, |w| {
        let others = [spawn(&w, |w| w.turn()), spawn(&w, |w| w.turn())];
        w.turn();
        for t in others {
            t.join().unwrap();
        }
        w.finish(3);
    });
}

/// A contender that locks twice, and a hasty contender: the hasty contender may be woken, lose the race, starve, and
/// then leave.
fn deadline_of_the_starving<P: Policy, const RICH: bool>(preemptions: usize, step_us: u64) {
    explore::<P, RICH>(preemptions, step_us, |w| {
        let hasty = spawn(&w, |w| w.hasty_turn());
        w.turn();
        w.turn();
        let turns = 2 + hasty.join().unwrap();
        w.finish(turns);
    });
}

/// Two contenders that wait for ever, and a contender that does not wait.
fn deadlines<P: Policy, const RICH: bool>(preemptions: usize, step_us: u64) {
    explore::<P, RICH>(preemptions, step_us, |w| {
        let patient = spawn(&w, |w| w.turn());
        let hasty = spawn(&w, |w| w.hasty_turn());
        w.turn();
        patient.join().unwrap();
        let turns = 2 + hasty.join().unwrap();
        w.finish(turns);
    });
    explore::<P, RICH>(preemptions, step_us, |w| {
        let patient = spawn(&w, |w| w.turn());
        let late = spawn(&w, |w| w.late_turn());
        w.turn();
        patient.join().unwrap();
        let turns = 2 + late.join().unwrap();
        w.finish(turns);
    });
}

/// Two contenders that do not wait, and an owner: both may leave at once, and the last must take the permit left for
/// both.
fn two_deadlines<P: Policy, const RICH: bool>(preemptions: usize, step_us: u64) {
    explore::<P, RICH>(preemptions, step_us, |w| {
        let hasty = [spawn(&w, |w| w.hasty_turn()), spawn(&w, |w| w.hasty_turn())];
        w.turn();
        let turns = hasty.map(|t| t.join().unwrap()).iter().sum::<u32>();
        w.finish(1 + turns);
    });
}

/// An owner that cancels a contender, and unlocks, beside a contender that waits for ever.
fn cancels<P: Policy, const RICH: bool>(preemptions: usize, step_us: u64) {
    explore::<P, RICH>(preemptions, step_us, |w| {
        let stop = Arc::new(Cancel::new());
        let patient = spawn(&w, |w| w.turn());
        let cancelled = spawn(&w, {
            let stop = stop.clone();
            move |w| w.turn_unless(&stop)
        });
        waiting(|| w.mutex.lock());
        w.touch();
        stop.cancel();
        w.mutex.unlock();
        patient.join().unwrap();
        let turns = 2 + cancelled.join().unwrap();
        w.finish(turns);
    });
}

/// Steps of the clock, in microseconds: no contender starves; every contender does.
const GO: [u64; 2] = [0, 2000];
/// No successor claims the mutex; a successor claims, then stops watching; a successor stops watching at once.
const THREADS: [u64; 3] = [0, 50, 150];

#[test]
fn go_two_threads() {
    each(
        GO,
        &[AT_ONCE, SLEEPS, WOKEN_BEFORE, AGAIN, WOKEN_BY_UNLOCK, SPIN_WIN, STARVES, STARVES_NO_MORE, HANDED_OVER],
        |step| two_threads::<Go, true>(3, step),
    );
}

#[test]
fn go_three_threads() {
    each(
        GO,
        &[AT_ONCE, SLEEPS, TWO_SLEEP, AGAIN, WOKEN_BY_UNLOCK, SPIN_WIN, BARGE, STARVES, STARVES_NO_MORE, HANDED_OVER],
        |step| three_threads::<Go, true>(2, step),
    );
}

#[test]
fn go_over_a_poor_semaphore() {
    each(
        GO,
        &[AT_ONCE, SLEEPS, TWO_SLEEP, AGAIN, WOKEN_BY_UNLOCK, SPIN_WIN, BARGE, STARVES, STARVES_NO_MORE, HANDED_OVER],
        |step| three_threads::<Go, false>(2, step),
    );
}

#[test]
fn go_deadlines() {
    each(
        GO,
        &[COMES_OFF, GIVES_UP, TIME_IS_UP, TOO_LATE_AND_WOKEN, UNREGISTERS, MUST_TAKE_PERMIT, STARVES, HANDED_OVER],
        |step| deadlines::<Go, true>(2, step),
    );
    each(GO, &[COMES_OFF, GIVES_UP, TIME_IS_UP, TOO_LATE_AND_WOKEN, UNREGISTERS, MUST_TAKE_PERMIT], |step| {
        two_deadlines::<Go, true>(2, step)
    });
    each(
        GO,
        &[
            COMES_OFF,
            GIVES_UP,
            TIME_IS_UP,
            TOO_LATE_AND_WOKEN,
            UNREGISTERS,
            MUST_TAKE_PERMIT,
            STARVES,
            HANDED_OVER,
            AGAIN,
        ],
        |step| deadline_of_the_starving::<Go, true>(4, step),
    );
}

#[test]
fn go_cancels() {
    each(
        GO,
        &[COMES_OFF, IS_CANCELLED, SLEEPS, TWO_SLEEP, UNREGISTERS, MUST_TAKE_PERMIT, STARVES, HANDED_OVER],
        |step| cancels::<Go, true>(2, step),
    );
}

#[test]
fn threads_cancels() {
    each(
        THREADS,
        &[
            COMES_OFF,
            IS_CANCELLED,
            SLEEPS,
            TWO_SLEEP,
            UNREGISTERS,
            MUST_TAKE_PERMIT,
            STARVES,
            CLAIM_SUCCEEDS,
            STOPS_WATCHING,
            HANDED_OVER,
        ],
        |step| cancels::<Threads, true>(2, step),
    );
}

#[test]
fn go_deadlines_over_a_poor_semaphore() {
    each(
        GO,
        &[COMES_OFF, GIVES_UP, TIME_IS_UP, TOO_LATE_AND_WOKEN, UNREGISTERS, MUST_TAKE_PERMIT, STARVES, HANDED_OVER],
        |step| deadlines::<Go, false>(2, step),
    );
}

/// The presets differ from Go in features that they leave out, or in a kind of release. Each model tests such a
/// difference.
#[test]
fn presets() {
    each(
        GO,
        &[AT_ONCE, SLEEPS, WOKEN_BEFORE, AGAIN, WOKEN_BY_UNLOCK, SPIN_WIN, STARVES, STARVES_NO_MORE, HANDED_OVER],
        |step| two_threads::<Go1_9, true>(3, step),
    );
    each(
        GO,
        &[COMES_OFF, GIVES_UP, TIME_IS_UP, TOO_LATE_AND_WOKEN, UNREGISTERS, MUST_TAKE_PERMIT, STARVES, HANDED_OVER],
        |step| deadlines::<Go1_9, true>(2, step),
    );
    each([2000], &[AT_ONCE, SLEEPS, TWO_SLEEP, WOKEN_BY_UNLOCK, BARGE], |step| three_threads::<Go1_8, true>(2, step));
    each([2000], &[SLEEPS, STARVES, STARVES_NO_MORE, HANDED_OVER], |step| two_threads::<Fifo, true>(3, step));
    each([2000], &[SLEEPS, STARVES, STARVES_NO_MORE, HANDED_OVER, TWO_SLEEP], |step| {
        three_threads::<Fifo, true>(2, step)
    });
    each([2000], &[SLEEPS, STARVES, STARVES_NO_MORE, HANDED_OVER, TWO_SLEEP, AGAIN], |step| {
        three_threads::<Fifo, false>(2, step)
    });
    each(
        [2000],
        &[COMES_OFF, GIVES_UP, TIME_IS_UP, TOO_LATE_AND_WOKEN, UNREGISTERS, MUST_TAKE_PERMIT, STARVES, HANDED_OVER],
        |step| deadlines::<Fifo, true>(2, step),
    );
    each(
        [2000],
        &[COMES_OFF, GIVES_UP, TIME_IS_UP, TOO_LATE_AND_WOKEN, UNREGISTERS, MUST_TAKE_PERMIT, STARVES, HANDED_OVER],
        |step| two_deadlines::<Fifo, true>(2, step),
    );
}

#[test]
fn threads_two_threads() {
    each(
        THREADS,
        &[AT_ONCE, SLEEPS, AGAIN, WOKEN_BY_UNLOCK, STARVES, CLAIM_SUCCEEDS, STOPS_WATCHING, HANDED_OVER],
        |step| two_threads::<Threads, true>(3, step),
    );
}

#[test]
fn threads_three_threads() {
    each(
        THREADS,
        &[AT_ONCE, SLEEPS, TWO_SLEEP, WOKEN_BY_UNLOCK, STARVES, CLAIM_SUCCEEDS, STOPS_WATCHING, HANDED_OVER],
        |step| three_threads::<Threads, true>(2, step),
    );
}

#[test]
fn threads_over_a_poor_semaphore() {
    each(
        THREADS,
        &[AT_ONCE, SLEEPS, TWO_SLEEP, AGAIN, WOKEN_BY_UNLOCK, STARVES, CLAIM_SUCCEEDS, STOPS_WATCHING, HANDED_OVER],
        |step| three_threads::<Threads, false>(2, step),
    );
}

#[test]
fn threads_deadlines() {
    each(
        THREADS,
        &[
            COMES_OFF,
            GIVES_UP,
            TIME_IS_UP,
            TOO_LATE_AND_WOKEN,
            UNREGISTERS,
            MUST_TAKE_PERMIT,
            STARVES,
            CLAIM_SUCCEEDS,
            STOPS_WATCHING,
            HANDED_OVER,
        ],
        |step| deadlines::<Threads, true>(2, step),
    );
    each(
        THREADS,
        &[
            COMES_OFF,
            GIVES_UP,
            TIME_IS_UP,
            TOO_LATE_AND_WOKEN,
            UNREGISTERS,
            MUST_TAKE_PERMIT,
            STARVES,
            STOPS_WATCHING,
            HANDED_OVER,
        ],
        |step| two_deadlines::<Threads, true>(2, step),
    );
    each(
        THREADS,
        &[
            COMES_OFF,
            GIVES_UP,
            TIME_IS_UP,
            TOO_LATE_AND_WOKEN,
            UNREGISTERS,
            MUST_TAKE_PERMIT,
            AGAIN,
            STARVES,
            CLAIM_SUCCEEDS,
            STOPS_WATCHING,
            HANDED_OVER,
        ],
        |step| deadline_of_the_starving::<Threads, true>(4, step),
    );
}

#[test]
fn threads_deadlines_over_a_poor_semaphore() {
    each(
        THREADS,
        &[
            COMES_OFF,
            GIVES_UP,
            TIME_IS_UP,
            TOO_LATE_AND_WOKEN,
            UNREGISTERS,
            MUST_TAKE_PERMIT,
            AGAIN,
            STARVES,
            CLAIM_SUCCEEDS,
            STOPS_WATCHING,
            HANDED_OVER,
        ],
        |step| deadlines::<Threads, false>(2, step),
    );
}
