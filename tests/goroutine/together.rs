//! `together`: goroutines that are started under `together` stay on the caller's worker.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use sudog::runtime::{gosched, together};
use sudog::sync::WaitGroup;
use sudog::x::ErrGroup;
use sudog::{Builder, Placement, blocking, go, go_async, run, scope, spawn};
use support::goroutine::{alone_with, here};

/// Starts goroutines in every way, and goroutines from these goroutines: all stay on this worker.
#[test]
fn all_that_is_started_stays_here() {
    let _alone = alone_with(2);
    run(|| {
        let places = Arc::new(Mutex::new(Vec::<ThreadId>::new()));
        let note = || {
            let places = places.clone();
            move || {
                gosched();
                places.lock().unwrap().push(here());
            }
        };
        together(|| {
            let group = Arc::new(WaitGroup::new());
            for _ in 0..20 {
                group.go(note());
                let (inner, theirs) = (note(), group.clone());
                group.go(move || theirs.go(inner));
            }
            group.wait();
            scope(|s| (0..20).for_each(|_| s.go(note())));
            let errors = ErrGroup::new();
            for _ in 0..20 {
                let note = note();
                errors.go(move || {
                    note();
                    Ok::<(), std::io::Error>(())
                });
            }
            errors.wait().unwrap();
            let inner = note();
            spawn(move || spawn(inner).join().unwrap()).join().unwrap();
            Builder::new().on(Placement::First).spawn(note()).join().unwrap();
        });
        let places = places.lock().unwrap();
        assert_eq!(places.len(), 20 * 4 + 2);
        assert!(places.iter().all(|&place| place == here()), "{places:?}");
    });
}

/// A busy worker keeps the goroutines that are started under `together`, and the goroutines that these start. Other
/// work is stolen after ten milliseconds at the latest.
#[test]
fn nothing_is_stolen() {
    let _alone = alone_with(2);
    run(|| {
        let starts_one = || {
            let child = spawn(here);
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_millis(30) {}
            assert_eq!(child.join().unwrap(), here());
        };
        together(|| {
            starts_one();
            spawn(starts_one).join().unwrap();
        });
    });
}

/// Later goroutines that use the stacks of goroutines started under `together` are not marked. Each of these first
/// starts a child, which another worker may take while its own worker is busy.
#[test]
fn the_mark_ends_with_the_goroutine_and_with_the_call() {
    let _alone = alone_with(2);
    run(|| {
        together(|| {
            let handles: Vec<_> = (0..8).map(|_| spawn(gosched)).collect();
            handles.into_iter().for_each(|handle| handle.join().unwrap());
            _ = catch_unwind(AssertUnwindSafe(|| together(|| resume_unwind(Box::new(())))));
            assert_eq!(spawn(here).join().unwrap(), here(), "still inside of the outer call");
        });
        // Start from a goroutine on a stack that has just been used, and from this goroutine.
        let elsewhere = move || {
            let place = Arc::new(Mutex::new(None));
            let theirs = place.clone();
            go(move || *theirs.lock().unwrap() = Some(here()));
            while place.lock().unwrap().is_none() {} // keep this worker busy
            let place = *place.lock().unwrap();
            place != Some(here())
        };
        for _ in 0..20 {
            assert!(spawn(elsewhere).join().unwrap());
        }
        assert!(elsewhere());
    });
}

/// On a thread without a goroutine, `together` just calls the function.
#[test]
fn outside_of_goroutines() {
    assert_eq!(together(|| spawn(|| 1).join().unwrap()), 1);
    let twice = run(|| together(|| blocking(|| together(|| 2))));
    assert_eq!(twice, 2);
    let (sender, receiver) = std::sync::mpsc::channel();
    go_async(async move { sender.send(together(|| 3)).unwrap() });
    assert_eq!(receiver.recv().unwrap(), 3);
}
