//! Models of the mutex with contenders of different kinds: threads, goroutines, async tasks.
//!
//! `RUSTFLAGS="--cfg sudog_loom" cargo test --profile loom -p sudog-sync --test loom_kinds`
//!
//! The clock and the failures are those of `loom_mutex`. A goroutine is a thread of the model that contends as a
//! goroutine does.
#![cfg(sudog_loom)]

mod world;

use std::time::Duration;
use sudog_runtime::model::be_goroutine;
use sudog_runtime::reached::{AGAIN, AT_ONCE, SLEEPS, TOO_LATE_AND_WOKEN, TWO_SLEEP, must_reach};
use sudog_sync::mutex::policy::{Go, Policy, SpinStrategy, Threads};
use world::states::*;
use world::{World, explore, spawn};

/// Steps of the clock, in microseconds: no successor claims the mutex; a successor does; a successor stops watching at
/// once; and goroutines starve, too.
const STEPS: [u64; 4] = [0, 50, 150, 2000];

fn as_goroutine<P: Policy, const RICH: bool>(w: &World<P, RICH>) {
    be_goroutine();
    w.turn();
}

/// Two turns of a thread and two of another contender: either may wait while the other has the mutex.
fn two_turns_each<P: Policy, const RICH: bool>(preemptions: usize, other: fn(&World<P, RICH>)) {
    for step in STEPS {
        explore::<P, RICH>(preemptions, step, move |w| {
            let other = spawn(&w, move |w| {
                other(w);
                other(w);
            });
            w.turn();
            w.turn();
            other.join().unwrap();
            w.finish(4);
        });
    }
}

fn three_kinds<P: Policy, const RICH: bool>(preemptions: usize) {
    for step in STEPS {
        explore::<P, RICH>(preemptions, step, |w| {
            let others = [spawn(&w, as_goroutine), spawn(&w, |w| w.async_turn())];
            w.turn();
            for t in others {
                t.join().unwrap();
            }
            w.finish(3);
        });
    }
}

/// A goroutine, a patient contender and a hasty contender. With `hasty_goroutine` the hasty contender is a goroutine
/// and the patient contender a thread; without, the other way round.
fn deadlines<P: Policy, const RICH: bool>(preemptions: usize, hasty_goroutine: bool) {
    for step in STEPS {
        explore::<P, RICH>(preemptions, step, move |w| {
            let patient = spawn(&w, move |w| if hasty_goroutine { w.turn() } else { as_goroutine(w) });
            let hasty = spawn(&w, move |w| {
                if hasty_goroutine {
                    be_goroutine();
                }
                w.hasty_turn()
            });
            as_goroutine(&w);
            patient.join().unwrap();
            let turns = 2 + hasty.join().unwrap();
            w.finish(turns);
        });
    }
}

/// A task that gives up after `polls` polls, beside a contender that does not give up.
fn drops<P: Policy, const RICH: bool>(preemptions: usize, polls: usize, patient: fn(&World<P, RICH>)) {
    for step in STEPS {
        explore::<P, RICH>(preemptions, step, move |w| {
            let patient = spawn(&w, patient);
            let hasty = spawn(&w, move |w| w.dropped_turn(polls));
            w.turn();
            patient.join().unwrap();
            let turns = 2 + hasty.join().unwrap();
            w.finish(turns);
        });
    }
}

/// A task that gives up, beside an owner that locks the mutex twice: the task is woken, loses the mutex again, and
/// starves.
fn drop_of_the_starving<P: Policy, const RICH: bool>(preemptions: usize) {
    for step in STEPS {
        explore::<P, RICH>(preemptions, step, |w| {
            let hasty = spawn(&w, |w| w.dropped_turn(2));
            w.turn();
            w.turn();
            let turns = 2 + hasty.join().unwrap();
            w.finish(turns);
        });
    }
}

/// Two tasks that give up at once: the last task must take the permit released to them.
fn two_drops<P: Policy, const RICH: bool>(preemptions: usize) {
    for step in STEPS {
        explore::<P, RICH>(preemptions, step, |w| {
            let hasty = [spawn(&w, |w| w.dropped_turn(1)), spawn(&w, |w| w.dropped_turn(2))];
            w.turn();
            let turns = hasty.map(|t| t.join().unwrap()).iter().sum::<u32>();
            w.finish(1 + turns);
        });
    }
}

#[test]
fn a_thread_and_a_goroutine() {
    must_reach(&[AT_ONCE, SLEEPS, WOKEN_BY_UNLOCK, STARVES, HANDED_OVER, STOPS_WATCHING], || {
        two_turns_each::<Threads, true>(3, as_goroutine)
    });
}

#[test]
fn a_thread_and_a_task() {
    must_reach(&[AT_ONCE, SLEEPS, WOKEN_BY_UNLOCK, STARVES, HANDED_OVER, READY_AT_ONCE, WOKEN], || {
        two_turns_each::<Threads, true>(3, |w| w.async_turn())
    });
    must_reach(&[AT_ONCE, SLEEPS, WOKEN_BY_UNLOCK, STARVES, HANDED_OVER, READY_AT_ONCE, WOKEN], || {
        two_turns_each::<Go, true>(3, |w| w.async_turn())
    });
}

#[test]
fn a_thread_a_goroutine_and_a_task() {
    must_reach(&[AT_ONCE, SLEEPS, WOKEN_BY_UNLOCK, STARVES, HANDED_OVER, READY_AT_ONCE, WOKEN, TWO_SLEEP], || {
        three_kinds::<Threads, true>(2)
    });
    must_reach(&[AT_ONCE, SLEEPS, WOKEN_BY_UNLOCK, STARVES, HANDED_OVER, READY_AT_ONCE, WOKEN], || {
        three_kinds::<Go, true>(2)
    });
}

#[test]
fn over_a_poor_semaphore() {
    must_reach(&[AT_ONCE, SLEEPS, WOKEN_BY_UNLOCK, STARVES, HANDED_OVER], || {
        two_turns_each::<Threads, false>(3, as_goroutine)
    });
    must_reach(&[AT_ONCE, SLEEPS, WOKEN_BY_UNLOCK, STARVES, HANDED_OVER, READY_AT_ONCE, WOKEN], || {
        three_kinds::<Threads, false>(2)
    });
}

#[test]
fn deadlines_of_a_thread_and_of_a_goroutine() {
    must_reach(&[COMES_OFF, GIVES_UP, TOO_LATE_AND_WOKEN, UNREGISTERS, MUST_TAKE_PERMIT, STARVES, HANDED_OVER], || {
        deadlines::<Threads, true>(2, false)
    });
    must_reach(&[COMES_OFF, GIVES_UP, TOO_LATE_AND_WOKEN, UNREGISTERS, MUST_TAKE_PERMIT, STARVES, HANDED_OVER], || {
        deadlines::<Threads, true>(2, true)
    });
    must_reach(&[COMES_OFF, GIVES_UP, TOO_LATE_AND_WOKEN, UNREGISTERS, MUST_TAKE_PERMIT, STARVES, HANDED_OVER], || {
        deadlines::<Threads, false>(2, false)
    });
}

#[test]
fn a_task_that_is_dropped() {
    must_reach(&[COMES_OFF, DROPPED, CANCELLED_AWAKE, UNREGISTERS], || drops::<Threads, true>(2, 1, |w| w.turn()));
    must_reach(&[COMES_OFF, DROPPED, CANCELLED_AWAKE, UNREGISTERS], || drops::<Threads, true>(2, 2, as_goroutine));
    must_reach(&[COMES_OFF, DROPPED, CANCELLED_AWAKE, UNREGISTERS], || drops::<Go, true>(2, 2, |w| w.async_turn()));
    must_reach(&[COMES_OFF, DROPPED, CANCELLED_AWAKE, UNREGISTERS], || drops::<Threads, false>(2, 2, |w| w.turn()));
}

#[test]
fn a_starving_task_that_is_dropped() {
    must_reach(
        &[COMES_OFF, DROPPED, CANCELLED_AWAKE, CANCELLED_OWNER, UNREGISTERS, MUST_TAKE_PERMIT, STARVES, HANDED_OVER],
        || drop_of_the_starving::<Threads, true>(4),
    );
    must_reach(
        &[COMES_OFF, DROPPED, CANCELLED_AWAKE, CANCELLED_OWNER, UNREGISTERS, MUST_TAKE_PERMIT, STARVES, HANDED_OVER],
        || drop_of_the_starving::<Go, true>(4),
    );
}

/// Threads starve after a millisecond; goroutines starve from the start, whichever contender is awake then.
enum Impatient {}

impl Policy for Impatient {
    const THRESHOLD: Duration = Duration::from_millis(1);
    const STRATEGY: SpinStrategy = SpinStrategy::Spin { rounds: 0, pauses: 0 };
    const GOROUTINE_THRESHOLD: Duration = Duration::ZERO;
}

/// Threads that watch the mutex, and goroutines that starve from the start.
enum ImpatientBesideSuccessors {}

impl Policy for ImpatientBesideSuccessors {
    const THRESHOLD: Duration = Threads::THRESHOLD;
    const STRATEGY: SpinStrategy = Threads::STRATEGY;
    const GOROUTINE_THRESHOLD: Duration = Duration::ZERO;
}

fn one_starves_from_the_start<P: Policy>(steps: &[u64]) {
    for &step in steps {
        explore::<P, true>(2, step, |w| {
            let others = [spawn(&w, |w| w.turn()), spawn(&w, as_goroutine)];
            w.turn();
            w.turn(); // overtakes the waiter that the first unlock has woken
            for t in others {
                t.join().unwrap();
            }
            w.finish(4);
        });
    }
}

#[test]
fn a_goroutine_that_starves_from_the_start() {
    must_reach(&[AGAIN, TWO_SLEEP, STARVES, HANDED_OVER], || one_starves_from_the_start::<Impatient>(&[0, 2000]));
    must_reach(&[AGAIN, TWO_SLEEP, STARVES, HANDED_OVER], || {
        one_starves_from_the_start::<ImpatientBesideSuccessors>(&[0, 50])
    });
}

#[test]
fn two_tasks_that_are_dropped() {
    must_reach(&[COMES_OFF, DROPPED, CANCELLED_AWAKE, UNREGISTERS, MUST_TAKE_PERMIT], || two_drops::<Threads, true>(2));
    must_reach(&[COMES_OFF, DROPPED, CANCELLED_AWAKE, UNREGISTERS, MUST_TAKE_PERMIT], || two_drops::<Go, true>(2));
}
