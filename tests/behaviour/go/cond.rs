//! Go's tests of its condition variable, over threads and over goroutines; and tests of deadlines, which Go does not
//! have.
//!
//! Go's `TestCondCopy` has no counterpart: a `Cond` cannot be moved while it has a waiter.
#![cfg(all(unix, feature = "locks", not(sudog_loom)))]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use sudog::low_level::{RuntimeSema, policy};
use sudog::sync::{Cond, GoMutex, GoRwMutex, Locker, Mutex, MutexWith, RwMutex, lock_api};
use sudog::{Cancel, WaitError, WaitLimit};
use support::Watchdog;
use support::kinds::Kind;

support::over_threads_and_goroutines! {
    cond_signal cond_signal_generations cond_broadcast race cond_signal_stealing
    wait_until_a_deadline a_deadline_and_a_signal_at_once
    a_cancel_ends_a_wait a_cancel_and_a_signal_at_once with_guards_of_a_rw_mutex with_guards_that_own_their_lock with_bare_locks
}

#[derive(Default)]
struct World {
    mutex: Mutex<()>,
    cond: Cond,
    running: AtomicUsize,
    awake: AtomicUsize,
}

/// Go: `TestCondSignal`.
fn cond_signal<K: Kind>() {
    const WAITERS: usize = 2;
    let w = Arc::new(World::default());
    for _ in 0..WAITERS {
        let w = w.clone();
        K::go(move || {
            let mut guard = w.mutex.lock();
            w.running.fetch_add(1, SeqCst);
            w.cond.wait(&mut guard);
            w.awake.fetch_add(1, SeqCst);
        });
    }
    K::until(|| w.running.load(SeqCst) == WAITERS);
    for woken in 0..WAITERS {
        let guard = w.mutex.lock();
        assert_eq!(w.awake.load(SeqCst), woken, "not asleep");
        assert_eq!(w.cond.waiters(), WAITERS - woken);
        w.cond.signal();
        drop(guard);
        K::until(|| w.awake.load(SeqCst) > woken);
        let _guard = w.mutex.lock();
        assert_eq!(w.awake.load(SeqCst), woken + 1, "too many awake");
    }
    w.cond.signal();
}

/// Go: `TestCondSignalGenerations`.
fn cond_signal_generations<K: Kind>() {
    const N: usize = 100;
    let w = Arc::new(World::default());
    for i in 0..N {
        let waiter = w.clone();
        K::go(move || {
            let mut guard = waiter.mutex.lock();
            waiter.running.fetch_add(1, SeqCst);
            waiter.cond.wait(&mut guard);
            let order = waiter.awake.fetch_add(1, SeqCst);
            assert_eq!(order, i, "not the oldest was woken");
        });
        if i > 0 {
            K::until(|| w.awake.load(SeqCst) == i);
        }
        K::until(|| w.running.load(SeqCst) == i + 1);
        let _guard = w.mutex.lock();
        w.cond.signal();
    }
    K::until(|| w.awake.load(SeqCst) == N);
}

/// Go: `TestCondBroadcast`.
fn cond_broadcast<K: Kind>() {
    let n = K::MANY;
    let w = Arc::new(World::default());
    let exit = Arc::new(AtomicBool::new(false));
    for _ in 0..n {
        let (w, exit) = (w.clone(), exit.clone());
        K::go(move || {
            let mut guard = w.mutex.lock();
            let mut rounds = 0;
            while !exit.load(SeqCst) {
                w.running.fetch_add(1, SeqCst);
                w.cond.wait(&mut guard);
                rounds += 1;
                // Every broadcast wakes each of the `n` waiters exactly once, so `awake / n` is the number of earlier
                // rounds.
                let awake = w.awake.fetch_add(1, SeqCst);
                assert_eq!(awake / n + 1, rounds, "woken twice, or not at all");
            }
        });
    }
    for round in 0..n {
        K::until(|| w.running.load(SeqCst) == n * (round + 1));
        let guard = w.mutex.lock();
        assert_eq!(w.awake.load(SeqCst), n * round, "not asleep");
        assert_eq!(w.cond.waiters(), n);
        exit.store(round == n - 1, SeqCst);
        w.cond.broadcast();
        drop(guard);
        K::until(|| w.awake.load(SeqCst) == n * (round + 1));
    }
    w.cond.broadcast();
}

/// Go: `TestRace`.
fn race<K: Kind>() {
    let w = Arc::new((Mutex::new(0), Cond::new(), AtomicUsize::new(0)));
    let spawn = |f: fn(&(Mutex<i32>, Cond, AtomicUsize))| {
        let w = w.clone();
        K::go(move || {
            f(&w);
            w.2.fetch_add(1, SeqCst);
        });
    };
    spawn(|(mutex, cond, _)| {
        let mut x = mutex.lock();
        *x = 1;
        cond.wait(&mut x);
        assert_eq!(*x, 2);
        *x = 3;
        cond.signal();
    });
    spawn(|(mutex, cond, _)| {
        while mutex.try_lock().is_none_or(|x| *x != 1) {
            K::gosched();
        }
        *mutex.lock() = 2;
        cond.signal();
    });
    spawn(|(mutex, cond, _)| {
        loop {
            let mut x = mutex.lock();
            match *x {
                2 => {
                    cond.wait(&mut x);
                    return assert_eq!(*x, 3);
                }
                3 => return,
                _ => drop(x),
            }
            K::gosched();
        }
    });
    K::until(|| w.2.load(SeqCst) == 3);
}

/// Go: `TestCondSignalStealing`.
fn cond_signal_stealing<K: Kind>() {
    for _ in 0..1000 {
        let w = Arc::new(World::default());
        let first = w.clone();
        K::go(move || {
            let mut guard = first.mutex.lock();
            first.running.store(1, SeqCst);
            first.cond.wait(&mut guard);
            first.awake.store(1, SeqCst);
        });
        K::until(|| w.running.load(SeqCst) == 1);
        drop(w.mutex.lock());
        // The first waiter is in `wait` now. Start a broadcast, and a second waiter that might steal that broadcast.
        let done = Arc::new(AtomicBool::new(false));
        let broadcaster = w.clone();
        K::go(move || broadcaster.cond.broadcast());
        let (second, over) = (w.clone(), done.clone());
        K::go(move || {
            let mut guard = second.mutex.lock();
            while !over.load(SeqCst) {
                second.cond.wait(&mut guard);
            }
        });
        K::until(|| w.awake.load(SeqCst) == 1);
        let guard = w.mutex.lock();
        done.store(true, SeqCst);
        drop(guard);
        w.cond.broadcast();
    }
}

// ---- not in Go ------------------------------------------------------------------------------------------------------

fn wait_until_a_deadline<K: Kind>() {
    let w = World::default();
    let mut guard = w.mutex.lock();
    for millis in [0, 2] {
        let deadline = Instant::now() + Duration::from_millis(millis);
        assert!(w.cond.wait_limited(&mut guard, deadline).is_err());
        assert!(Instant::now() >= deadline);
        assert!(w.mutex.is_locked());
        assert_eq!(w.cond.waiters(), 0);
    }
}

/// Checks that as many waiters are woken as there are signals that found a waiter, whatever the deadlines do.
fn a_deadline_and_a_signal_at_once<K: Kind>() {
    const WAITERS: usize = 6;
    for round in 0..60 {
        let w = Arc::new(World::default());
        let ended = Arc::new(AtomicUsize::new(0));
        let deadline = Instant::now() + Duration::from_micros(200);
        for waiter in 0..WAITERS {
            let (world, ended) = (w.clone(), ended.clone());
            K::go(move || {
                let w = world;
                let mut guard = w.mutex.lock();
                w.running.fetch_add(1, SeqCst);
                if waiter == WAITERS - 1 {
                    // This waiter is the last in line: a signal that the other waiters leave is for this waiter.
                    w.cond.wait(&mut guard);
                    w.awake.fetch_add(1, SeqCst);
                } else if w.cond.wait_limited(&mut guard, deadline).is_ok() {
                    w.awake.fetch_add(1, SeqCst);
                }
                ended.fetch_add(1, SeqCst);
            });
            K::until(|| w.running.load(SeqCst) == waiter + 1);
        }
        drop(w.mutex.lock());
        while Instant::now() < deadline + Duration::from_micros(round % 30) - Duration::from_micros(15) {
            K::gosched();
        }
        let mut signals = 0;
        while ended.load(SeqCst) < WAITERS {
            let guard = w.mutex.lock();
            if w.cond.waiters() == 1 {
                // The only waiter has no deadline and cannot give up, so this signal is for that waiter.
                w.cond.signal();
                signals += 1;
            }
            drop(guard);
            K::gosched();
        }
        assert!(signals <= 1 && w.awake.load(SeqCst) >= 1);
        assert_eq!(w.cond.waiters(), 0);
    }
}

fn a_cancel_ends_a_wait<K: Kind>() {
    let w = Arc::new((World::default(), Cancel::new()));
    let other = w.clone();
    K::go(move || {
        let (w, stop) = &*other;
        let mut guard = w.mutex.lock();
        let limit = WaitLimit { cancel: Some(stop), deadline: None };
        assert_eq!(w.cond.wait_limited(&mut guard, &limit), Err(WaitError::Cancelled));
        assert!(w.mutex.is_locked());
        assert_eq!(w.cond.wait_limited(&mut guard, &limit), Err(WaitError::Cancelled), "it stays cancelled");
        w.awake.fetch_add(1, SeqCst);
    });
    K::until(|| w.0.cond.waiters() == 1);
    w.1.cancel();
    K::until(|| w.0.awake.load(SeqCst) == 1);
    assert_eq!(w.0.cond.waiters(), 0);
}

/// Cancels and signals the first of two waiters at once: the first waiter gets the signal, or else the second gets it.
fn a_cancel_and_a_signal_at_once<K: Kind>() {
    for _ in 0..200 {
        let w = Arc::new((World::default(), Cancel::new()));
        let ended = Arc::new(AtomicUsize::new(0));
        for waiter in 0..2 {
            let (other, ended) = (w.clone(), ended.clone());
            K::go(move || {
                let (w, stop) = &*other;
                let mut guard = w.mutex.lock();
                let limit = WaitLimit { cancel: (waiter == 0).then_some(stop), deadline: None };
                if w.cond.wait_limited(&mut guard, &limit).is_ok() {
                    w.awake.fetch_add(1, SeqCst);
                }
                ended.fetch_add(1, SeqCst);
            });
            K::until(|| w.0.cond.waiters() == waiter + 1);
        }
        let other = w.clone();
        K::go(move || other.1.cancel());
        w.0.cond.signal();
        K::until(|| w.0.awake.load(SeqCst) == 1);
        K::until(|| w.1.is_cancelled());
        // If the first waiter had the signal, the second still waits.
        K::until(|| ended.load(SeqCst) == 2 || w.0.cond.waiters() == 1);
        w.0.cond.broadcast();
        K::until(|| ended.load(SeqCst) == 2);
    }
}

fn with_guards_of_a_rw_mutex<K: Kind>() {
    let w = Arc::new((RwMutex::new(0), Cond::new(), AtomicUsize::new(0)));
    for reader in [true, false] {
        let w = w.clone();
        K::go(move || {
            if reader {
                let mut level = w.0.read();
                while *level < 1 {
                    w.1.wait(&mut level);
                }
                assert!(!w.0.is_locked_exclusive());
            } else {
                let mut level = w.0.write();
                while *level < 1 {
                    w.1.wait(&mut level);
                }
                *level += 1;
                assert!(w.0.is_locked_exclusive());
            }
            w.2.fetch_add(1, SeqCst);
        });
    }
    K::until(|| w.1.waiters() == 2);
    *w.0.write() = 1;
    w.1.broadcast();
    K::until(|| w.2.load(SeqCst) == 2);
    assert_eq!(*w.0.read(), 2);
}

/// Checks guards that own their lock: the lock lives as long as its guard, and no longer.
fn with_guards_that_own_their_lock<K: Kind>() {
    let w = Arc::new((Cond::new(), AtomicUsize::new(0)));
    let (mutex, rw) = (Arc::new(Mutex::new(0)), Arc::new(RwMutex::new(0)));
    for which in 0..3 {
        let (w, mutex, rw) = (w.clone(), mutex.clone(), rw.clone());
        K::go(move || {
            match which {
                0 => w.0.wait(&mut mutex.lock_arc()),
                1 => w.0.wait(&mut rw.read_arc()),
                _ => w.0.wait(&mut rw.write_arc()),
            }
            drop((mutex, rw));
            w.1.fetch_add(1, SeqCst);
        });
    }
    K::until(|| w.0.waiters() == 3);
    // Each waiter has drawn a ticket before it unlocks.
    K::until(|| mutex.try_lock().is_some());
    K::until(|| rw.try_write().is_some());
    w.0.broadcast();
    K::until(|| w.1.load(SeqCst) == 3);
    assert_eq!((Arc::strong_count(&mutex), Arc::strong_count(&rw)), (1, 1));
}

/// Go: `NewCond` of a `Mutex`, an `RWMutex`, and its `RLocker`.
fn with_bare_locks<K: Kind>() {
    fn wake<K: Kind>(locker: impl Locker, w: &World) {
        locker.lock();
        w.running.fetch_add(1, SeqCst);
        w.cond.wait_locker(&locker);
        w.awake.fetch_add(1, SeqCst);
        assert!(w.cond.wait_locker_limited(&locker, &WaitLimit::until(Instant::now())).is_err());
        locker.unlock();
    }
    type Bare = (World, GoMutex, GoRwMutex);
    let w: Arc<Bare> = Arc::new((World::default(), GoMutex::new(), GoRwMutex::new()));
    let waits: [fn(&Bare); 3] =
        [|w| wake::<K>(&w.1, &w.0), |w| wake::<K>(&w.2, &w.0), |w| wake::<K>(w.2.rlocker(), &w.0)];
    for wait in waits {
        let w = w.clone();
        K::go(move || wait(&w));
    }
    K::until(|| w.0.cond.waiters() == 3);
    // Each waiter has drawn a ticket before it unlocks.
    K::until(|| w.1.try_lock());
    K::until(|| w.2.try_lock());
    w.1.unlock();
    w.2.unlock();
    w.0.cond.broadcast();
    K::until(|| w.0.awake.load(SeqCst) == 3);
    K::until(|| !w.1.is_locked() && w.2.readers() == 0 && !w.2.has_writer());
}

#[test]
fn it_goes_with_any_mutex() {
    fn ping_pong<R: lock_api::RawMutex + Sync>(mutex: lock_api::Mutex<R, u32>) {
        const ROUNDS: u32 = 200;
        let cond = Cond::new();
        let turns = |mine: u32| {
            for _ in 0..ROUNDS {
                let mut turn = mutex.lock();
                while *turn % 2 != mine {
                    cond.wait(&mut turn);
                }
                *turn += 1;
                cond.signal();
            }
        };
        std::thread::scope(|s| {
            s.spawn(|| turns(1));
            turns(0);
        });
        assert_eq!(mutex.into_inner(), 2 * ROUNDS);
    }
    let _watchdog = Watchdog::new();
    ping_pong(Mutex::new(0));
    ping_pong(MutexWith::<GoMutex<RuntimeSema, policy::Go>, _>::new(0));
    ping_pong(MutexWith::<sudog_lab_core::locks::ParkingLot013<true>, _>::new(0));
}
