//! Models of `Once`: every interleaving, on loom's memory model, up to a bound of preemptions.
//!
//! `RUSTFLAGS="--cfg sudog_loom" cargo test --profile loom -p sudog-sync --test loom_once`
//!
//! A lost wake-up shows as a deadlock; a function that runs twice, or a caller that returns too early, as a data race
//! in loom's cell or as a wrong count; a use of the `Once` after it was freed as a violation of causality.
#![cfg(sudog_loom)]

use std::cell;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::Ordering::Relaxed;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::AtomicBool;
use sudog_runtime::Instant;
use sudog_runtime::model::set_clock;
use sudog_runtime::model::thread::{self, JoinHandle};
use sudog_runtime::reached::{
    AT_ONCE, SLEEPS, TIME_IS_UP, TOO_LATE_AND_WOKEN, TWO_SLEEP, WOKEN_BEFORE, during, mark, must_reach, waiting,
};
use sudog_runtime::sema::{Cancel, WaitLimit};
use sudog_sync::Once;

/// An `Once` that is dropped before its memory is freed, so that loom is the only part that sees a use after the drop.
struct World {
    once: cell::UnsafeCell<MaybeUninit<Once>>,
    runs: UnsafeCell<u32>,
    stop: Cancel,
}

// SAFETY: all fields are atomic, except for `runs` and the drop of `once`. loom checks that accesses to both do not
// overlap.
unsafe impl Send for World {}
// SAFETY: all fields are atomic, except for `runs` and the drop of `once`. loom checks that accesses to both do not
// overlap.
unsafe impl Sync for World {}

impl World {
    fn once(&self) -> &Once {
        // SAFETY: `once` is initialised by `explore`, and each caller calls `once()` before `free`.
        unsafe { (*self.once.get()).assume_init_ref() }
    }

    fn free(&self) {
        // SAFETY: `free` is called once, so `once` is still initialised. The memory stays until the last thread has
        // ended.
        unsafe { (*self.once.get()).assume_init_drop() };
    }

    /// Makes a call that may run the function or wait for it, and marks which of the two happened.
    fn ran<T>(&self, call: impl FnOnce() -> T) -> T {
        let (result, waits) = waiting(call);
        mark(if waits { WAITS } else { RUNS_OR_FINDS_IT_DONE });
        result
    }

    fn run(&self) {
        // SAFETY: loom's cell checks that accesses do not overlap; that is the test.
        self.runs.with_mut(|runs| unsafe { *runs += 1 });
    }

    fn look(&self) {
        // SAFETY: loom's cell checks that accesses do not overlap; that is the test.
        self.runs.with(|runs| assert_eq!(unsafe { *runs }, 1));
    }

    fn do_(&self) {
        self.ran(|| self.once().do_(|| self.run()));
        self.look();
    }

    /// Calls with a deadline that has passed, so that the call does not wait. In a model, a deadline has always passed.
    fn hasty(&self) {
        if self.ran(|| self.once().do_limited(|| self.run(), Instant::now()).is_ok()) {
            self.look();
        } else {
            mark(GIVES_UP);
        }
    }

    /// Calls, and waits until the call is done or `stop` cancels the call.
    fn stoppable(&self) {
        let limit = WaitLimit { cancel: Some(&self.stop), ..WaitLimit::default() };
        if self.ran(|| self.once().do_limited(|| self.run(), &limit).is_ok()) {
            mark(IN_TIME);
            self.look();
        } else {
            mark(STOPPED);
        }
    }

    /// Calls with a function that panics, if this call is the call that runs its function.
    fn panicking(&self) {
        let mut ours = false;
        let caught = catch_unwind(AssertUnwindSafe(|| {
            self.once().do_(|| {
                self.run();
                ours = true;
                resume_unwind(Box::new("by intent"));
            });
        }));
        mark(if ours { PANICS } else { LEAVES_IT_TO_ANOTHER });
        assert_eq!(caught.is_err(), ours, "the panic is for the one who ran it");
        self.look();
    }
}

const WAITS: &str = "a caller waits for the function";
const RUNS_OR_FINDS_IT_DONE: &str = "a caller does not wait";
const GIVES_UP: &str = "a caller gives up";
const IN_TIME: &str = "a caller that may be stopped is not";
const STOPPED: &str = "a caller is stopped";
const PANICS: &str = "the function that panics runs";
const LEAVES_IT_TO_ANOTHER: &str = "the function that panics does not run";

fn explore(preemptions: usize, states: &[&'static str], model: impl Fn(Arc<World>) + Sync + Send + 'static) {
    let run = move || {
        set_clock(0);
        model(Arc::new(World {
            once: cell::UnsafeCell::new(MaybeUninit::new(Once::new())),
            runs: UnsafeCell::new(0),
            stop: Cancel::new(),
        }));
    };
    must_reach(states, || sudog_runtime::model::explore(preemptions, run));
}

fn spawn(world: &Arc<World>, f: fn(&World)) -> JoinHandle<()> {
    let world = world.clone();
    thread::spawn(move || f(&world))
}

/// Runs a call in each thread. At the end the `Once` is done, and has no waiters left.
fn together(preemptions: usize, states: &[&'static str], others: &'static [fn(&World)], own: fn(&World)) {
    explore(preemptions, states, move |w| {
        let others: Vec<_> = others.iter().map(|f| spawn(&w, *f)).collect();
        own(&w);
        others.into_iter().for_each(|t| t.join().unwrap());
        assert_eq!(format!("{:?}", w.once()), "Once { state: done, waiters: 0 }");
        w.do_();
        w.free();
    });
}

#[test]
fn two_callers() {
    together(5, &[AT_ONCE, WAITS, SLEEPS, WOKEN_BEFORE], &[World::do_], World::do_);
}

#[test]
fn three_callers() {
    together(3, &[AT_ONCE, WAITS, SLEEPS, WOKEN_BEFORE, TWO_SLEEP], &[World::do_, World::do_], World::do_);
}

#[test]
fn a_caller_that_does_not_wait() {
    together(5, &[WAITS, GIVES_UP, TIME_IS_UP, TOO_LATE_AND_WOKEN, SLEEPS, WOKEN_BEFORE], &[World::hasty], World::do_);
    together(3, &[WAITS, GIVES_UP, TIME_IS_UP, TOO_LATE_AND_WOKEN, TWO_SLEEP], &[World::hasty, World::do_], World::do_);
    together(
        3,
        &[WAITS, GIVES_UP, TIME_IS_UP, TOO_LATE_AND_WOKEN, TWO_SLEEP],
        &[World::hasty, World::hasty],
        World::do_,
    );
}

#[test]
fn a_caller_that_is_stopped() {
    together(3, &[IN_TIME, STOPPED, WAITS, SLEEPS, WOKEN_BEFORE], &[World::stoppable, |w| w.stop.cancel()], World::do_);
}

#[test]
fn a_function_that_panics() {
    together(4, &[PANICS, LEAVES_IT_TO_ANOTHER, WAITS, SLEEPS], &[World::panicking], World::do_);
    together(
        3,
        &[PANICS, LEAVES_IT_TO_ANOTHER, WAITS, SLEEPS, TWO_SLEEP],
        &[World::panicking, World::do_],
        World::panicking,
    );
    together(
        3,
        &[PANICS, LEAVES_IT_TO_ANOTHER, WAITS, SLEEPS, TWO_SLEEP, GIVES_UP, TOO_LATE_AND_WOKEN],
        &[World::panicking, World::hasty],
        World::do_,
    );
}

/// A waiter that has given up is no longer counted while the function runs.
#[test]
fn nothing_is_left_of_a_waiter_that_gave_up() {
    fn explore_with(preemptions: usize, states: &[&'static str], others: &'static [fn(&World)]) {
        explore(preemptions, states, |w| {
            w.once().do_(|| {
                w.run();
                let others: Vec<_> = others.iter().map(|f| spawn(&w, *f)).collect();
                others.into_iter().for_each(|t| t.join().unwrap());
                assert_eq!(format!("{:?}", w.once()), "Once { state: running, waiters: 0 }");
            });
            w.free();
        });
    }
    explore_with(3, &[GIVES_UP, TIME_IS_UP], &[World::hasty, World::hasty]);
    explore_with(2, &[STOPPED, SLEEPS, WOKEN_BEFORE], &[World::stoppable, |w| w.stop.cancel()]);
}

const FREED: &str = "it is freed before the runner is joined";
const FREED_BY_WAITER: &str = "who has waited frees it";

/// Frees the `Once` as soon as `look` returns true, while the caller that ran the function may not have returned yet.
///
/// `look` returns true if the `Once` is done, and if the caller of `look` no longer needs the memory.
fn freed_while_the_runner_returns(preemptions: usize, states: &[&'static str], look: fn(&World) -> bool) {
    explore(preemptions, states, move |w| {
        let begun = Arc::new(AtomicBool::new(false));
        let (world, flag) = (w.clone(), begun.clone());
        let runner = thread::spawn(move || {
            world.once().do_(|| {
                flag.store(true, Relaxed);
                world.run();
            });
        });
        // Free early only if the runner has begun: a runner that begins later would use freed memory.
        let has_begun = begun.load(Relaxed);
        let (done, seen) = during(|| look(&w));
        let at_once = done && has_begun;
        if at_once {
            mark(FREED);
            if [SLEEPS, WOKEN_BEFORE, TIME_IS_UP].iter().any(|wait| seen.has(wait)) {
                mark(FREED_BY_WAITER);
            }
            w.free();
        }
        runner.join().unwrap();
        if !at_once {
            w.free();
        }
    });
}

#[test]
fn freed_by_a_waiter() {
    freed_while_the_runner_returns(5, &[FREED, FREED_BY_WAITER, SLEEPS, WOKEN_BEFORE], |w| {
        w.once().do_(|| w.run());
        w.look();
        true
    });
}

#[test]
fn freed_by_a_hasty_waiter() {
    freed_while_the_runner_returns(5, &[FREED, FREED_BY_WAITER, TIME_IS_UP], |w| {
        w.once().do_limited(|| w.run(), Instant::now()).is_ok()
    });
}

#[test]
fn freed_by_a_caller_that_looks() {
    freed_while_the_runner_returns(5, &[FREED], |w| w.once().is_done());
}
