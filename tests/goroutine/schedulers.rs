//! Schedulers of one's own: the two tests that Skaller's text leaves as placeholders, and what goes with them.
#![cfg(all(unix, not(sudog_loom)))]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::thread;

use sudog::runtime::gosched;
use sudog::runtime::sema::{Wake, semacquire, semrelease, waiters};
use sudog::sync::Mutex;
use sudog::{Scheduler, go, go_async, run_local, spawn};
use support::{Watchdog, eventually};

/// Counts how many there are.
struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Relaxed);
        Self(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// The process test: k schedulers on one active set, and goroutines in a ring that pass a token round.
#[test]
fn process_test() {
    const RING: usize = 50;
    const ROUNDS: usize = 20;
    static PASSED: AtomicUsize = AtomicUsize::new(0);
    static ENDED: AtomicUsize = AtomicUsize::new(0);
    let watchdog = Watchdog::new();
    for schedulers in 1..=4 {
        PASSED.store(0, Relaxed);
        ENDED.store(0, Relaxed);
        let scheduler = Scheduler::new();
        let ring: Arc<[AtomicU32]> = (0..RING).map(|_| AtomicU32::new(0)).collect();
        thread::scope(|s| {
            // None of them is at rest before the work is there.
            let outside = scheduler.keep_alive();
            for _ in 1..schedulers {
                s.spawn(|| scheduler.run(|| ()));
            }
            s.spawn(|| {
                scheduler.run(move || {
                    for i in 0..RING {
                        let ring = ring.clone();
                        go(move || {
                            for _ in 0..ROUNDS {
                                semacquire(&ring[i]);
                                PASSED.fetch_add(1, Relaxed);
                                semrelease(&ring[(i + 1) % RING], Wake::Normal);
                            }
                            ENDED.fetch_add(1, Relaxed);
                        });
                    }
                    semrelease(&ring[0], Wake::Normal);
                    drop(outside);
                });
            });
        });
        assert_eq!((PASSED.load(Relaxed), ENDED.load(Relaxed)), (RING * ROUNDS, RING));
        assert_eq!(scheduler.num_goroutine(), 0);
        watchdog.pat();
    }
}

/// The foreign threads test: members of a scheduler are woken by a thread that is in none, and by members of another scheduler.
#[test]
fn foreign_threads_test() {
    const N: usize = 200;
    static SERVED: AtomicUsize = AtomicUsize::new(0);
    let _watchdog = Watchdog::new();
    let (scheduler, other) = (Scheduler::new(), Scheduler::new());
    let (requests, answers) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    thread::scope(|s| {
        let from_thread = scheduler.keep_alive();
        let from_other = scheduler.keep_alive();
        let (req, ans) = (requests.clone(), answers.clone());
        s.spawn(|| {
            scheduler.run(move || {
                for _ in 0..N {
                    let (req, ans) = (req.clone(), ans.clone());
                    go(move || {
                        semacquire(&req);
                        SERVED.fetch_add(1, Relaxed);
                        semrelease(&ans, Wake::Normal);
                    });
                }
            });
        });
        let req = requests.clone();
        s.spawn(move || {
            for i in 0..N / 2 {
                semrelease(&req, if i % 2 == 0 { Wake::Normal } else { Wake::Handoff });
            }
            drop(from_thread);
        });
        let (req, ans) = (requests.clone(), answers.clone());
        let back = other.keep_alive(); // the first scheduler's members wake this one's
        s.spawn(|| {
            other.run(move || {
                for _ in 0..N / 2 {
                    semrelease(&req, Wake::Normal);
                }
                for _ in 0..N {
                    semacquire(&ans);
                }
                drop((from_other, back));
            });
        });
    });
    assert_eq!(SERVED.load(Relaxed), N);
}

/// Two goroutines that wait for each other are garbage, reference counts or not.
#[test]
fn cyclic_garbage_is_collected() {
    static LIVE: AtomicUsize = AtomicUsize::new(0);
    let _watchdog = Watchdog::new();
    let witness = Arc::new(());
    run_local({
        let witness = witness.clone();
        move || {
            let (a, b) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
            for (mine, theirs) in [(a.clone(), b.clone()), (b, a)] {
                let witness = witness.clone();
                go(move || {
                    let (_counted, _witness) = (Counted::new(&LIVE), witness);
                    semacquire(&mine); // each gives only after it has been given
                    semrelease(&theirs, Wake::Normal);
                });
                let counted = Counted::new(&LIVE);
                go_async(async move {
                    let _counted = counted;
                    std::future::pending::<()>().await;
                });
            }
            while LIVE.load(Relaxed) < 4 {
                gosched(); // all have begun
            }
        }
    });
    assert_eq!((LIVE.load(Relaxed), Arc::strong_count(&witness)), (0, 1));
}

/// The panic of a goroutine goes to its joiner; the others go on.
#[test]
fn a_panic_inside_a_fibre() {
    static DONE: AtomicUsize = AtomicUsize::new(0);
    let _watchdog = Watchdog::new();
    run_local(|| {
        for i in 0..10 {
            let panics = spawn(move || {
                gosched();
                assert!(i % 2 == 0, "odd");
            });
            go(move || {
                assert_eq!(panics.join().is_ok(), i % 2 == 0);
                DONE.fetch_add(1, Relaxed);
            });
        }
    });
    assert_eq!(DONE.load(Relaxed), 10);
    let outcome = thread::spawn(|| {
        run_local(|| {
            go(|| {
                gosched();
                DONE.fetch_add(1, Relaxed);
            });
            panic!("main");
        })
    });
    assert!(outcome.join().is_err(), "it comes out of run_local");
    assert_eq!(DONE.load(Relaxed), 11, "when all is done");
}

/// Goroutines are given up while foreign threads wake them, without a handle that would keep the scheduler: whatever was
/// given to one that is unwound goes to the next, or stays.
#[test]
fn a_drop_during_a_wake_up() {
    const EACH: u32 = 4;
    let rounds = if cfg!(debug_assertions) { 300 } else { 2000 };
    let watchdog = Watchdog::new();
    for round in 0..rounds {
        let (permits, taken) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        thread::scope(|s| {
            let (count, took) = (permits.clone(), taken.clone());
            s.spawn(move || {
                run_local(move || {
                    for _ in 0..EACH {
                        let (count, took) = (count.clone(), took.clone());
                        go(move || {
                            semacquire(&count);
                            took.fetch_add(1, Relaxed);
                        });
                    }
                });
            });
            for _ in 0..2 {
                let count = permits.clone();
                s.spawn(move || {
                    for i in 0..EACH / 2 {
                        semrelease(&count, if (round + i) % 2 == 0 { Wake::Normal } else { Wake::Handoff });
                    }
                });
            }
        });
        assert_eq!(waiters(&permits), 0);
        assert_eq!(permits.load(Relaxed) + taken.load(Relaxed), EACH, "a permit was lost, or made");
        watchdog.pat();
    }
}

/// A goroutine given up while it holds a lock leaves it unlocked.
#[test]
fn locks_are_left_unlocked() {
    static DATA: Mutex<u32> = Mutex::new(0);
    static NEVER: AtomicU32 = AtomicU32::new(0);
    let _watchdog = Watchdog::new();
    run_local(|| {
        go(|| {
            let _guard = DATA.lock();
            semacquire(&NEVER);
        });
        for _ in 0..3 {
            go(|| drop(DATA.lock())); // these wait for a mutex whose holder waits for ever
        }
    });
    eventually(|| DATA.try_lock().is_some());
    assert_eq!(waiters(&NEVER), 0);
}
