//! Goroutines that borrow: whatever happens, the borrowed frame stays until these goroutines have ended.
#![cfg(all(unix, not(sudog_loom)))]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use sudog::chan::Chan;
use sudog::runtime::{Goexit, goexit, gosched};
use sudog::sync::WaitGroup;
use sudog::{Builder, ScopedJoinHandle, block_on, run, scope, spawn};
use support::Watchdog;
use support::goroutine::text;

/// A value whose destructor yields, and then raises a count.
struct Counted<'a>(&'a AtomicUsize);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        gosched();
        self.0.fetch_add(1, SeqCst);
    }
}

/// Starts `n` goroutines that borrow a count, and returns how many have ended by the end of the scope.
fn count(n: usize) -> usize {
    let ended = AtomicUsize::new(0);
    scope(|s| {
        for i in 0..n {
            let counted = Counted(&ended);
            s.go(move || {
                let _counted = counted;
                (0..i % 3).for_each(|_| gosched());
            });
        }
    });
    ended.into_inner()
}

#[test]
fn all_have_ended_at_the_end() {
    let _watchdog = Watchdog::new();
    assert_eq!(run(|| count(100)), 100);
    assert_eq!(count(100), 100, "of a thread");
    assert_eq!(run(|| block_on(async { count(10) })), 10, "in a future");
    run(|| scope(|_| ()));
}

#[test]
fn goroutines_borrow_and_return() {
    let _watchdog = Watchdog::new();
    run(|| {
        let words = ["a".to_owned(), "bc".to_owned()];
        let mut lengths = [0; 2];
        let total = scope(|s| {
            for (word, length) in words.iter().zip(&mut lengths) {
                s.go(|| *length = word.len());
            }
            let handles: Vec<ScopedJoinHandle<'_, &str>> = words.iter().map(|w| s.spawn(|| w.as_str())).collect();
            handles.into_iter().map(|handle| handle.join().unwrap()).collect::<String>()
        });
        assert_eq!((total.as_str(), lengths), ("abc", [1, 2]));
    });
}

#[test]
fn a_goroutine_of_a_scope_starts_others() {
    let _watchdog = Watchdog::new();
    let n = AtomicUsize::new(0);
    run(|| {
        scope(|s| {
            for _ in 0..10 {
                s.go(|| {
                    s.go(|| {
                        gosched();
                        n.fetch_add(1, SeqCst);
                    });
                    scope(|inner| inner.go(|| _ = n.fetch_add(1, SeqCst)));
                });
            }
        });
    });
    assert_eq!(n.into_inner(), 20);
}

#[test]
fn a_panic_waits_for_the_others() {
    let _watchdog = Watchdog::new();
    run(|| {
        let ended = AtomicUsize::new(0);
        let gate = Chan::<()>::new(0);
        let panic = catch_unwind(AssertUnwindSafe(|| {
            scope(|s| {
                for _ in 0..3 {
                    let counted = Counted(&ended);
                    let gate = &gate;
                    s.go(move || {
                        let _counted = counted;
                        gate.recv();
                    });
                }
                s.go(|| {
                    gosched();
                    gate.close();
                });
                panic!("in the closure");
            });
        }))
        .unwrap_err();
        assert_eq!((text(&*panic), ended.into_inner()), ("in the closure", 3));
    });
}

#[test]
fn panics_of_goroutines_are_the_scopes() {
    let _watchdog = Watchdog::new();
    run(|| {
        let panic_of = |f: &dyn Fn()| catch_unwind(AssertUnwindSafe(f)).unwrap_err();
        let panic = panic_of(&|| {
            scope(|s| {
                s.go(|| panic!("of a goroutine"));
                s.go(|| panic!("of a goroutine"));
            });
        });
        assert_eq!(text(&*panic), "of a goroutine");
        let panic = panic_of(&|| {
            scope(|s| drop(s.spawn(|| panic!("of a handle"))));
        });
        assert_eq!(text(&*panic), "a goroutine of this scope has panicked");
        // A panic of a joined goroutine goes to the joiner.
        // A `goexit` of the owner goes on after the wait for the goroutines.
        scope(|s| assert_eq!(text(&*s.spawn(|| panic!("joined")).join().unwrap_err()), "joined"));
    });
}

#[test]
fn goexit_is_no_panic() {
    let _watchdog = Watchdog::new();
    run(|| {
        scope(|s| {
            s.go(|| goexit());
            assert!(s.spawn(|| goexit()).join().unwrap_err().is::<Goexit>());
        });
        // Of the owner: goes on after the wait.
        let ended = Arc::new(AtomicUsize::new(0));
        let counted = ended.clone();
        let owner = spawn(move || {
            scope(|s| {
                s.go(|| {
                    (0..10).for_each(|_| gosched());
                    counted.fetch_add(1, SeqCst);
                });
                goexit()
            })
        });
        assert!(owner.join().unwrap_err().is::<Goexit>());
        assert_eq!(ended.load(SeqCst), 1);
    });
}

#[test]
fn a_handle_may_be_leaked() {
    let _watchdog = Watchdog::new();
    let n = AtomicUsize::new(0);
    run(|| {
        scope(|s| {
            std::mem::forget(s.spawn(|| {
                gosched();
                n.fetch_add(1, SeqCst)
            }));
        });
    });
    assert_eq!(n.into_inner(), 1);
}

#[test]
fn goroutines_of_a_scope_have_names_and_places() {
    let _watchdog = Watchdog::new();
    run(|| {
        let here = support::goroutine::here();
        let there = scope(|s| {
            let builder = Builder::new().name("scoped").stack_size(1 << 20).on(sudog::Placement::Here);
            builder.spawn_scoped(s, support::goroutine::here).join().unwrap()
        });
        assert_eq!(there, here);
        // A start that is refused gives back its borrows, and the scope ends.
        let refused = catch_unwind(AssertUnwindSafe(|| {
            scope(|s| Builder::new().on(sudog::Placement::Worker(255)).go_scoped(s, || ()));
        }));
        assert!(text(&*refused.unwrap_err()).starts_with("no worker 255"));
    });
}

/// A scope inside goroutines that end in all ways at once.
#[test]
fn scopes_in_a_storm() {
    let _watchdog = Watchdog::new();
    run(|| {
        let done = Arc::new(WaitGroup::new());
        for i in 0..if cfg!(debug_assertions) { 1000 } else { 10_000 } {
            done.add(1);
            let done = done.clone();
            let handle = spawn(move || {
                let mut data = [0_usize; 8];
                let sum = catch_unwind(AssertUnwindSafe(|| {
                    scope(|s| {
                        for (k, slot) in data.iter_mut().enumerate() {
                            s.go(move || {
                                gosched();
                                *slot = k;
                                if i % 7 == k {
                                    panic!("one of them");
                                }
                            });
                        }
                        if i % 3 == 0 {
                            goexit();
                        }
                    });
                }));
                assert!(data.iter().enumerate().all(|(k, &slot)| slot == k));
                done.done();
                assert!(sum.is_err());
            });
            drop(handle);
        }
        done.wait();
    });
}
