//! Goroutines that wait for each other: crowds, deadlines that race with releases, handoffs.
#![cfg(all(unix, not(sudog_loom)))]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use sudog::chan::Chan;
use sudog::low_level::sema::{
    NotifyList, Order, Wake, semacquire, semacquire_limited, semacquire_mutex, semrelease, semrelease_many, waiters,
};
use sudog::low_level::{RuntimeSema, policy};
use sudog::runtime::{gosched, max_procs, set_max_procs};
use sudog::sync::{GoMutex, Mutex};
use sudog::time::sleep;
use sudog::{Builder, Cancel, Placement, WaitError, WaitLimit, go, run, spawn};
use support::goroutine::{alone, one_worker, until};
use support::{Watchdog, eventually};

const WAKES: [Wake; 2] = [Wake::Normal, Wake::Handoff];

/// Returns the next number of a pseudo-random sequence: cheap, and random enough for these tests.
fn next(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *seed >> 33
}

// ---- crowds ---------------------------------------------------------------------------------------------------------

#[test]
fn a_hundred_thousand_goroutines_wait() {
    const CROWD: usize = 100_000;
    static GATE: AtomicU32 = AtomicU32::new(0);
    static STARTED: AtomicUsize = AtomicUsize::new(0);
    static DONE: AtomicUsize = AtomicUsize::new(0);
    let alone = alone();
    run(|| {
        for _ in 0..2 {
            STARTED.store(0, Relaxed);
            DONE.store(0, Relaxed);
            for _ in 0..CROWD {
                go(|| {
                    STARTED.fetch_add(1, Relaxed);
                    semacquire(&GATE);
                    DONE.fetch_add(1, Relaxed);
                });
            }
            until(|| STARTED.load(Relaxed) == CROWD);
            while waiters(&GATE) < CROWD {
                sleep(Duration::from_millis(1)); // pause: a count takes as long as a walk along the queue
            }
            assert_eq!(DONE.load(Relaxed), 0);
            alone.watchdog.pat();
            semrelease_many(&GATE, CROWD as u32);
            until(|| DONE.load(Relaxed) == CROWD);
            alone.watchdog.pat();
        }
    });
    assert_eq!(GATE.load(Relaxed), 0);
}

/// Consecutive waiters of another worker are handed to that worker together, up to 32 at a time. The waiters come in
/// rows of the same worker, or from several workers in turn.
#[test]
fn one_wakes_the_waiters_of_several_workers() {
    static LIST: NotifyList = NotifyList::new();
    static PERMITS: AtomicU32 = AtomicU32::new(0);
    let alone = alone();
    let before = set_max_procs(3);
    run(|| {
        for row in [1, 2, 33, 100] {
            let gate = Arc::new(Chan::<()>::new(0));
            let crowd = 3 * 100;
            let place = |n| Builder::new().on(Placement::Worker(n / row % 3));
            let handles: Vec<_> = (0..crowd)
                .map(|n| {
                    let handle = place(n).spawn(|| LIST.with_ticket(|ticket| ticket.wait(None)));
                    until(|| LIST.waiters() == n + 1); // in this order
                    handle
                })
                .collect();
            LIST.notify_all();
            assert!(handles.into_iter().all(|handle| handle.join().unwrap()));
            alone.watchdog.pat();
            let handles: Vec<_> = (0..crowd)
                .map(|n| {
                    let handle = place(n).spawn(|| semacquire(&PERMITS));
                    until(|| waiters(&PERMITS) == n + 1);
                    handle
                })
                .collect();
            semrelease_many(&PERMITS, crowd as u32);
            handles.into_iter().for_each(|handle| handle.join().unwrap());
            alone.watchdog.pat();
            let closed: Vec<_> = (0..crowd)
                .map(|n| {
                    let gate = gate.clone();
                    place(n).spawn(move || gate.recv())
                })
                .collect();
            gosched();
            gate.close();
            assert!(closed.into_iter().all(|handle| handle.join().unwrap().is_none()));
            alone.watchdog.pat();
        }
    });
    set_max_procs(before);
}

/// A chain in which each goroutine is woken by the goroutine before.
#[test]
fn a_chain_of_goroutines() {
    const LINKS: usize = 10_000;
    let _alone = alone();
    for wake in WAKES {
        let chain: Arc<Vec<AtomicU32>> = Arc::new((0..=LINKS).map(|_| AtomicU32::new(0)).collect());
        run(|| {
            for link in 0..LINKS {
                let chain = chain.clone();
                go(move || {
                    semacquire(&chain[link]);
                    semrelease(&chain[link + 1], wake);
                });
            }
            semrelease(&chain[0], wake);
            semacquire(&chain[LINKS]);
        });
        assert!(chain.iter().all(|permits| permits.load(Relaxed) == 0));
    }
}

fn crowd_at_a_mutex<P: policy::Policy>() {
    const CROWD: u64 = 200;
    const ROUNDS: u64 = 200;
    let alone = alone();
    let mutex = Arc::new((GoMutex::<RuntimeSema, P>::const_new(), AtomicU64::new(0)));
    let inside = |mutex: &(GoMutex<RuntimeSema, P>, AtomicU64), round| {
        mutex.0.lock();
        let n = mutex.1.load(Relaxed);
        if round % 16 == 0 {
            gosched();
        }
        mutex.1.store(n + 1, Relaxed);
        mutex.0.unlock();
    };
    // Threads lock the same mutex, too.
    thread::scope(|s| {
        for _ in 0..2 {
            s.spawn(|| (0..ROUNDS).for_each(|round| inside(&mutex, round)));
        }
        run(|| {
            let crowd: Vec<_> = (0..CROWD)
                .map(|_| {
                    let mutex = mutex.clone();
                    spawn(move || (0..ROUNDS).for_each(|round| inside(&mutex, round)))
                })
                .collect();
            crowd.into_iter().for_each(|one| one.join().unwrap());
        });
    });
    alone.watchdog.pat();
    assert_eq!(mutex.1.load(Relaxed), (CROWD + 2) * ROUNDS);
    assert_eq!(format!("{:?}", mutex.0), "GoMutex { locked: false, woken: false, starving: false, waiters: 0, .. }");
}

#[test]
fn a_crowd_at_a_mutex_by_gos_policy() {
    crowd_at_a_mutex::<policy::Go>();
}

#[test]
fn a_crowd_at_a_mutex_by_the_policy_for_threads() {
    crowd_at_a_mutex::<policy::Threads>();
}

/// A mutex whose holders sleep, so that all other goroutines queue, turns to starvation mode and is handed over.
#[test]
fn a_mutex_held_across_waits() {
    let _alone = alone();
    let mutex = Arc::new(Mutex::new(0_u32));
    run(|| {
        let crowd: Vec<_> = (0..20)
            .map(|_| {
                let mutex = mutex.clone();
                spawn(move || {
                    for round in 0..10 {
                        let mut guard = mutex.lock();
                        let n = *guard;
                        if round % 3 == 0 {
                            sleep(Duration::from_micros(300))
                        } else {
                            gosched()
                        }
                        *guard = n + 1;
                    }
                })
            })
            .collect();
        crowd.into_iter().for_each(|one| one.join().unwrap());
    });
    assert_eq!(*mutex.lock(), 200);
}

/// A few permits, and many goroutines and threads, with every order and every wake.
#[test]
fn a_crowd_at_a_semaphore() {
    const PERMITS: u32 = 3;
    static SEMA: AtomicU32 = AtomicU32::new(PERMITS);
    static INSIDE: AtomicU32 = AtomicU32::new(0);
    let alone = alone();
    fn rounds(seed: u64) {
        let mut seed = seed;
        for _ in 0..500 {
            let random = next(&mut seed);
            semacquire_mutex(&SEMA, if random & 1 == 0 { Order::Fifo } else { Order::Lifo });
            assert!(INSIDE.fetch_add(1, SeqCst) < PERMITS);
            if random & 6 == 0 {
                gosched();
            }
            INSIDE.fetch_sub(1, SeqCst);
            semrelease(&SEMA, WAKES[(random >> 3) as usize & 1]);
        }
    }
    thread::scope(|s| {
        for n in 0..2 {
            s.spawn(move || rounds(n));
        }
        run(|| {
            let crowd: Vec<_> = (2..100).map(|n| spawn(move || rounds(n))).collect();
            crowd.into_iter().for_each(|one| one.join().unwrap());
        });
    });
    alone.watchdog.pat();
    assert_eq!((SEMA.load(Relaxed), waiters(&SEMA)), (PERMITS, 0));
}

// ---- deadlines ------------------------------------------------------------------------------------------------------

/// Runs waits whose deadlines fall together with releases, on any worker. In the end the semaphore has all its permits
/// again.
fn hammer_deadlines(run: impl Fn(Box<dyn FnOnce() + Send>), goroutines: u64) {
    let sema = Arc::new(AtomicU32::new(2));
    let (got, gave_up) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let theirs = (sema.clone(), got.clone(), gave_up.clone());
    run(Box::new(move || {
        let (sema, got, gave_up) = theirs;
        let crowd: Vec<_> = (0..goroutines)
            .map(|n| {
                let (sema, got, gave_up) = (sema.clone(), got.clone(), gave_up.clone());
                spawn(move || {
                    let mut seed = n;
                    for _ in 0..300 {
                        let random = next(&mut seed);
                        let order = if random & 1 == 0 { Order::Fifo } else { Order::Lifo };
                        let deadline = Instant::now() + Duration::from_nanos(next(&mut seed) % 60_000);
                        if semacquire_limited(&sema, order, deadline).is_ok() {
                            got.fetch_add(1, Relaxed);
                            match random % 5 {
                                0 => sleep(Duration::from_nanos(next(&mut seed) % 40_000)),
                                1 | 2 => gosched(),
                                _ => {}
                            }
                            semrelease(&sema, WAKES[(random >> 8) as usize & 1]);
                        } else {
                            gave_up.fetch_add(1, Relaxed);
                            gosched();
                        }
                    }
                })
            })
            .collect();
        crowd.into_iter().for_each(|one| one.join().unwrap());
        assert_eq!((sema.load(Relaxed), waiters(&sema)), (2, 0));
    }));
    assert_eq!(got.load(Relaxed) + gave_up.load(Relaxed), goroutines * 300);
    assert!(got.load(Relaxed) > 0);
}

#[test]
fn deadlines_against_releases() {
    let alone = alone();
    for _ in 0..5 {
        hammer_deadlines(run, 50);
        alone.watchdog.pat();
    }
}

#[test]
fn deadlines_against_releases_on_one_worker() {
    let watchdog = Watchdog::new();
    for _ in 0..5 {
        hammer_deadlines(one_worker, 50);
        watchdog.pat();
    }
}

/// The releaser is a thread that aims at the deadline.
#[test]
fn deadlines_against_releases_from_outside() {
    const ROUNDS: u64 = 2_000;
    let alone = alone();
    let (sema, ready, answered) = (AtomicU32::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let aims: Vec<_> = (0..ROUNDS).map(|_| std::sync::OnceLock::<Instant>::new()).collect();
    let taken = AtomicU64::new(0);
    thread::scope(|s| {
        s.spawn(|| {
            for round in 0..ROUNDS {
                while ready.load(SeqCst) <= round {
                    thread::yield_now();
                }
                let aim = *aims[round as usize].get().unwrap() + Duration::from_nanos(round % 7 * 2_000);
                while Instant::now() < aim {
                    std::hint::spin_loop();
                }
                semrelease(&sema, WAKES[round as usize & 1]);
                while answered.load(SeqCst) <= round {
                    thread::yield_now();
                }
            }
        });
        run(|| {
            for round in 0..ROUNDS {
                let deadline = Instant::now() + Duration::from_micros(40);
                aims[round as usize].set(deadline - Duration::from_micros(8)).unwrap();
                ready.store(round + 1, SeqCst);
                if semacquire_limited(&sema, Order::Fifo, deadline).is_ok() {
                    taken.fetch_add(1, Relaxed);
                } else {
                    semacquire(&sema); // the permit is available, or comes
                }
                assert_eq!((sema.load(SeqCst), waiters(&sema)), (0, 0));
                answered.store(round + 1, SeqCst);
                if round % 100 == 0 {
                    alone.watchdog.pat();
                }
            }
        });
    });
    println!("{} of {ROUNDS} in time", taken.into_inner());
}

#[test]
fn a_mutex_with_deadlines() {
    let _alone = alone();
    let mutex = Arc::new(Mutex::new(0_u64));
    let locked = Arc::new(AtomicU64::new(0));
    run(|| {
        let crowd: Vec<_> = (0..40)
            .map(|n| {
                let (mutex, locked) = (mutex.clone(), locked.clone());
                spawn(move || {
                    let mut seed = n;
                    for _ in 0..200 {
                        if let Some(mut guard) = mutex.try_lock_for(Duration::from_nanos(next(&mut seed) % 50_000)) {
                            locked.fetch_add(1, Relaxed);
                            *guard += 1;
                            if seed & 3 == 0 {
                                sleep(Duration::from_nanos(seed >> 7 & 0x3fff));
                            }
                        } else {
                            gosched();
                        }
                    }
                })
            })
            .collect();
        crowd.into_iter().for_each(|one| one.join().unwrap());
    });
    assert_eq!(*mutex.try_lock().expect("nobody has it"), locked.load(Relaxed));
}

#[test]
fn a_deadline_passes() {
    let _alone = alone();
    run(|| {
        let sema = AtomicU32::new(0);
        let deadline = Instant::now() + Duration::from_millis(2);
        assert!(semacquire_limited(&sema, Order::Fifo, deadline).is_err());
        assert!(Instant::now() >= deadline);
        assert_eq!((sema.load(Relaxed), waiters(&sema)), (0, 0));
        let mutex = Mutex::new(());
        let _guard = mutex.lock();
        assert!(mutex.try_lock_for(Duration::from_millis(1)).is_none());
        assert!(mutex.try_lock_for(Duration::ZERO).is_none());
    });
}

#[test]
fn a_cancel_ends_the_waits_of_goroutines() {
    let _alone = alone();
    for _ in 0..200 {
        let shared = Arc::new((AtomicU32::new(0), Cancel::new()));
        run(|| {
            let waits: Vec<_> = (0..10)
                .map(|_| {
                    let shared = shared.clone();
                    spawn(move || {
                        let deadline = Some(Instant::now() + Duration::from_secs(3600));
                        let limit = WaitLimit { deadline, cancel: Some(&shared.1) };
                        semacquire_limited(&shared.0, Order::Fifo, &limit)
                    })
                })
                .collect();
            until(|| waiters(&shared.0) == 10);
            let releaser = {
                let shared = shared.clone();
                spawn(move || semrelease_many(&shared.0, 3))
            };
            shared.1.cancel();
            releaser.join().unwrap();
            let outcomes: Vec<_> = waits.into_iter().map(|wait| wait.join().unwrap()).collect();
            let got = outcomes.iter().filter(|outcome| outcome.is_ok()).count() as u32;
            assert_eq!(got + shared.0.load(Relaxed), 3);
            assert!(outcomes.iter().all(|outcome| matches!(outcome, Ok(()) | Err(WaitError::Cancelled))));
        });
        assert_eq!(waiters(&shared.0), 0);
    }
}

// ---- handoffs -------------------------------------------------------------------------------------------------------

/// Makes a round of Go's `TestSemaHandoff`: a goroutine that is handed a permit runs before the releaser goes on.
///
/// Yielding goroutines keep the workers slightly busy. Returns true if the waiter was first.
fn hand_off_once(waiter_on: Placement, spinners: usize) -> bool {
    let shared = Arc::new((AtomicU32::new(0), AtomicU32::new(0), AtomicBool::new(false)));
    let spinners: Vec<_> = (0..spinners)
        .map(|_| {
            let shared = shared.clone();
            spawn(move || until(|| shared.2.load(Relaxed)))
        })
        .collect();
    let waiter = {
        let shared = shared.clone();
        Builder::new().on(waiter_on).spawn(move || {
            semacquire(&shared.0);
            let _ = shared.1.compare_exchange(0, 1, SeqCst, SeqCst);
            shared.2.store(true, Relaxed);
        })
    };
    until(|| waiters(&shared.0) == 1);
    semrelease(&shared.0, Wake::Handoff);
    let _ = shared.1.compare_exchange(0, 2, SeqCst, SeqCst);
    waiter.join().unwrap();
    spinners.into_iter().for_each(|spinner| spinner.join().unwrap());
    shared.1.load(Relaxed) == 1
}

fn first_of(rounds: usize, round: impl Fn() -> bool) -> usize {
    (0..rounds).filter(|_| round()).count()
}

/// Go's `TestSemaHandoff`.
#[test]
fn the_waiter_runs_before_the_releaser_goes_on() {
    const ROUNDS: usize = 10_000;
    let _alone = alone();
    let first = run(|| first_of(ROUNDS, || hand_off_once(Placement::Any, max_procs())));
    assert!(first * 10 >= ROUNDS * 9, "{first} of {ROUNDS}");
}

/// A handoff on a single worker, where luck hardly matters: only a slice that ends at that very moment lets another
/// goroutine go first.
#[test]
fn on_one_worker_the_waiter_runs_first() {
    const ROUNDS: usize = 10_000;
    let _alone = alone();
    let first = run(|| first_of(ROUNDS, || hand_off_once(Placement::Here, 0)));
    assert!(first * 100 >= ROUNDS * 99, "{first} of {ROUNDS}");
    let first = one_worker(|| first_of(ROUNDS, || hand_off_once(Placement::Any, 2)));
    assert!(first * 100 >= ROUNDS * 99, "{first} of {ROUNDS}");
}

/// A permit that is handed over has a single owner.
#[test]
fn no_newcomer_takes_a_handed_over_permit() {
    let _alone = alone();
    let sema = Arc::new(AtomicU32::new(0));
    let thieves = Arc::new(AtomicBool::new(true));
    run(|| {
        let crowd: Vec<_> = (0..8)
            .map(|_| {
                let (sema, thieves) = (sema.clone(), thieves.clone());
                spawn(move || {
                    let mut stolen = 0;
                    while thieves.load(Relaxed) {
                        stolen += u32::from(sudog::low_level::sema::try_semacquire(&sema));
                        gosched();
                    }
                    stolen
                })
            })
            .collect();
        for _ in 0..2_000 {
            let waiter = {
                let sema = sema.clone();
                spawn(move || semacquire(&sema))
            };
            until(|| waiters(&sema) == 1);
            semrelease(&sema, Wake::Handoff);
            waiter.join().unwrap();
        }
        thieves.store(false, Relaxed);
        assert_eq!(crowd.into_iter().map(|thief| thief.join().unwrap()).sum::<u32>(), 0);
    });
    assert_eq!(sema.load(Relaxed), 0);
}

#[test]
fn threads_and_goroutines_stand_in_one_line() {
    const EACH: usize = 50;
    static SEMA: AtomicU32 = AtomicU32::new(0);
    static ORDER: Mutex<Vec<usize>> = Mutex::new(Vec::new());
    let _alone = alone();
    thread::scope(|s| {
        run(|| {
            for n in 0..EACH {
                s.spawn(move || {
                    semacquire(&SEMA);
                    ORDER.lock().push(2 * n);
                    semrelease(&SEMA, Wake::Handoff);
                });
                eventually(|| waiters(&SEMA) == 2 * n + 1);
                go(move || {
                    semacquire(&SEMA);
                    ORDER.lock().push(2 * n + 1);
                    semrelease(&SEMA, Wake::Handoff);
                });
                until(|| waiters(&SEMA) == 2 * n + 2);
            }
            semrelease(&SEMA, Wake::Handoff);
            until(|| ORDER.lock().len() == 2 * EACH && SEMA.load(Relaxed) == 1);
        });
    });
    assert_eq!(*ORDER.lock(), (0..2 * EACH).collect::<Vec<_>>());
}
