//! Models of `Once`: every interleaving, on loom's memory model, up to a bound of preemptions.
//!
//! `RUSTFLAGS="--cfg sudog_loom" cargo test --profile loom -p sudog-sync --test loom_once`
//!
//! A lost wake-up shows as a deadlock; a function that runs twice, or a caller that returns too early, as a data race in
//! loom's cell or as a wrong count; a use of the `Once` after it was freed as a violation of causality.
#![cfg(sudog_loom)]

use std::cell;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::Ordering::Relaxed;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::AtomicBool;
use loom::thread::{self, JoinHandle};
use sudog_runtime::Instant;
use sudog_runtime::model::set_clock;
use sudog_runtime::sema::{Cancel, Limit};
use sudog_sync::Once;

/// An `Once` that ends before its memory goes, so that a use after that is seen by loom only.
struct World {
    once: cell::UnsafeCell<MaybeUninit<Once>>,
    runs: UnsafeCell<u32>,
    stop: Cancel,
}

// SAFETY: all but the runs and the freeing is atomic; and that loom checks.
unsafe impl Send for World {}
// SAFETY: as above.
unsafe impl Sync for World {}

impl World {
    fn once(&self) -> &Once {
        // SAFETY: whoever calls it does so before `free`.
        unsafe { (*self.once.get()).assume_init_ref() }
    }

    fn free(&self) {
        // SAFETY: called once. The memory stays until the last thread has gone.
        unsafe { (*self.once.get()).assume_init_drop() };
    }

    fn run(&self) {
        // SAFETY: loom's cell checks that accesses do not overlap; that is the test.
        self.runs.with_mut(|runs| unsafe { *runs += 1 });
    }

    fn look(&self) {
        // SAFETY: as above.
        self.runs.with(|runs| assert_eq!(unsafe { *runs }, 1));
    }

    fn do_(&self) {
        self.once().do_(|| self.run());
        self.look();
    }

    /// One that does not wait, by a deadline; which in a model has always passed.
    fn hasty(&self) {
        if self.once().do_until(|| self.run(), Instant::now()) {
            self.look();
        }
    }

    /// One that waits until it is stopped.
    fn stoppable(&self) {
        let limit = Limit { cancel: Some(&self.stop), ..Limit::default() };
        if self.once().do_limited(|| self.run(), &limit).is_ok() {
            self.look();
        }
    }

    /// One whose function panics, if it is the one to run.
    fn panicking(&self) {
        let mut ours = false;
        let caught = catch_unwind(AssertUnwindSafe(|| {
            self.once().do_(|| {
                self.run();
                ours = true;
                resume_unwind(Box::new("by intent"));
            });
        }));
        assert_eq!(caught.is_err(), ours, "the panic is for the one who ran it");
        self.look();
    }
}

fn explore(preemptions: usize, model: impl Fn(Arc<World>) + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(move || {
        set_clock(0);
        model(Arc::new(World {
            once: cell::UnsafeCell::new(MaybeUninit::new(Once::new())),
            runs: UnsafeCell::new(0),
            stop: Cancel::new(),
        }));
    });
}

fn spawn(world: &Arc<World>, f: fn(&World)) -> JoinHandle<()> {
    let world = world.clone();
    thread::spawn(move || f(&world))
}

/// Some threads; at the end it is done, and nothing is left behind.
fn together(preemptions: usize, others: &'static [fn(&World)], own: fn(&World)) {
    explore(preemptions, move |w| {
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
    together(5, &[World::do_], World::do_);
}

#[test]
fn three_callers() {
    together(3, &[World::do_, World::do_], World::do_);
}

#[test]
fn a_caller_who_does_not_wait() {
    together(5, &[World::hasty], World::do_);
    together(3, &[World::hasty, World::do_], World::do_);
    together(3, &[World::hasty, World::hasty], World::do_);
}

#[test]
fn a_caller_who_is_stopped() {
    together(3, &[World::stoppable, |w| w.stop.cancel()], World::do_);
}

#[test]
fn a_function_that_panics() {
    together(4, &[World::panicking], World::do_);
    together(3, &[World::panicking, World::do_], World::panicking);
    together(3, &[World::panicking, World::hasty], World::do_);
}

/// Who has given up is not counted any more, while the function runs.
#[test]
fn nothing_is_left_of_one_who_gave_up() {
    fn explore_with(preemptions: usize, others: &'static [fn(&World)]) {
        explore(preemptions, |w| {
            w.once().do_(|| {
                w.run();
                let others: Vec<_> = others.iter().map(|f| spawn(&w, *f)).collect();
                others.into_iter().for_each(|t| t.join().unwrap());
                assert_eq!(format!("{:?}", w.once()), "Once { state: running, waiters: 0 }");
            });
            w.free();
        });
    }
    explore_with(3, &[World::hasty, World::hasty]);
    explore_with(2, &[World::stoppable, |w| w.stop.cancel()]);
}

/// `look` returns if the `Once` is done and its memory is not needed by the caller any more; then it is freed, while the
/// one who has run the function may not have returned yet.
fn freed_while_the_runner_returns(preemptions: usize, look: fn(&World) -> bool) {
    explore(preemptions, move |w| {
        let begun = Arc::new(AtomicBool::new(false));
        let (world, flag) = (w.clone(), begun.clone());
        let runner = thread::spawn(move || {
            world.once().do_(|| {
                flag.store(true, Relaxed);
                world.run();
            });
        });
        // One that has not begun would look at what has been freed.
        let has_begun = begun.load(Relaxed);
        let at_once = look(&w) && has_begun;
        if at_once {
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
    freed_while_the_runner_returns(5, |w| {
        w.do_();
        true
    });
}

#[test]
fn freed_by_a_waiter_who_was_in_a_hurry() {
    freed_while_the_runner_returns(5, |w| w.once().do_until(|| w.run(), Instant::now()));
}

#[test]
fn freed_by_one_who_looks() {
    freed_while_the_runner_returns(5, |w| w.once().is_done());
}
