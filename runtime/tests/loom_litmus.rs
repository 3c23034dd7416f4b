//! Litmus tests: the effects of the models' SeqCst accesses.
//!
//! `RUSTFLAGS="--cfg sudog_loom" cargo test --profile loom -p sudog-runtime --test loom_litmus`
#![cfg(sudog_loom)]

use std::sync::Arc;

use sudog_runtime::model::thread;
use sudog_runtime::model::{Sc, each_site, set_sc};
use sudog_runtime::shim::AtomicU32;
use sudog_runtime::shim::Ordering::{self, AcqRel, Acquire, Relaxed, SeqCst};

fn explore<const WORDS: usize>(model: impl Fn(&Arc<[AtomicU32; WORDS]>) + Sync + Send + 'static) {
    sudog_runtime::model::explore_all(move || model(&Arc::new(std::array::from_fn(|_| AtomicU32::new(0)))));
}

fn spawn<W: 'static, T: 'static>(words: &Arc<W>, f: impl FnOnce(&W) -> T + 'static) -> thread::JoinHandle<T> {
    let words = words.clone();
    thread::spawn(move || f(&words))
}

// ---- effects of SeqCst accesses in a model --------------------------------------------------------------------------

#[test]
fn of_two_that_store_and_load_one_sees_the_other() {
    let test = concat!(module_path!(), "::of_two_that_store_and_load_one_sees_the_other");
    let all = ["store", "load", "store", "load"];
    let all = all.map(|what| format!("loom_litmus.rs, of_two_that_store_and_load_one_sees_the_other: {what}"));
    each_site(test, &all.each_ref().map(|site| &**site), &[], || {
        explore::<2>(|w| {
            let other = spawn(w, |[x, y]| {
                x.store(1, SeqCst);
                y.load(SeqCst)
            });
            w[1].store(1, SeqCst);
            let seen = w[0].load(SeqCst);
            assert!(other.join().unwrap() + seen > 0);
        });
    });
}

#[test]
fn of_two_that_add_and_load_one_sees_the_other() {
    let test = concat!(module_path!(), "::of_two_that_add_and_load_one_sees_the_other");
    let all = ["fetch_add", "load", "compare_exchange", "load"];
    let all = all.map(|what| format!("loom_litmus.rs, of_two_that_add_and_load_one_sees_the_other: {what}"));
    each_site(test, &all.each_ref().map(|site| &**site), &[], || {
        explore::<2>(|w| {
            let other = spawn(w, |[x, y]| {
                x.fetch_add(1, SeqCst);
                y.load(SeqCst)
            });
            w[1].compare_exchange(0, 1, SeqCst, Relaxed).unwrap();
            let seen = w[0].load(SeqCst);
            assert!(other.join().unwrap() + seen > 0);
        });
    });
}

/// Returns whether there is an execution in which neither thread sees the other's addition.
///
/// One thread adds and loads with `SeqCst`. The other thread adds and loads with the given orderings, and makes the
/// accesses of `between` to another word between the two.
fn both_may_miss(sc: Sc, add: Ordering, load: Ordering, between: fn(&AtomicU32)) -> bool {
    set_sc(sc);
    let missed = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let seen_by_none = missed.clone();
    explore::<3>(move |w| {
        let other = spawn(w, move |[x, y, z]| {
            x.fetch_add(1, add);
            between(z);
            y.load(load)
        });
        w[1].fetch_add(1, SeqCst);
        let seen = w[0].load(SeqCst);
        if other.join().unwrap() + seen == 0 {
            seen_by_none.store(true, Relaxed);
        }
    });
    missed.load(Relaxed)
}

fn nothing(_: &AtomicU32) {}

/// Each convention allows an execution that the other convention forbids without need.
#[test]
fn each_convention_finds_what_the_other_does_not() {
    for sc in [Sc::AfterWrites, Sc::BeforeLoads] {
        assert!(!both_may_miss(sc, SeqCst, SeqCst, nothing));
        assert!(both_may_miss(sc, AcqRel, Acquire, nothing));
        assert_eq!(both_may_miss(sc, AcqRel, SeqCst, nothing), sc == Sc::AfterWrites);
        assert_eq!(both_may_miss(sc, SeqCst, Acquire, nothing), sc == Sc::BeforeLoads);
    }
}

/// A SeqCst access to another word, between the addition and the load, is not a fence in C++, although on x86 a write
/// is a fence. In a model, such an access is a fence by one convention at most. Two such accesses are a fence by both
/// conventions, and no mutant of the pair survives.
#[test]
fn what_stands_between_is_a_fence_by_one_convention_only() {
    let adds = |z: &AtomicU32| _ = z.fetch_add(1, SeqCst);
    let loads = |z: &AtomicU32| _ = z.load(SeqCst);
    let both = |z: &AtomicU32| _ = z.fetch_add(1, SeqCst) + z.load(SeqCst);
    for sc in [Sc::AfterWrites, Sc::BeforeLoads] {
        assert_eq!(both_may_miss(sc, AcqRel, Acquire, adds), sc == Sc::BeforeLoads);
        assert_eq!(both_may_miss(sc, AcqRel, Acquire, loads), sc == Sc::AfterWrites);
        assert!(!both_may_miss(sc, AcqRel, Acquire, both), "not what C++ says");
    }
}
