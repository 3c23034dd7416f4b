//! Goroutines in the waiting arrays: they wait without their workers, beside threads.
#![cfg(all(unix, feature = "locks", not(sudog_loom)))]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use sudog::locks::waiting_array::{
    Benaphore, BucketWait, ChainWait, Doorway, EventKey, LocationWait, LocationWaiter, MixedHash, Refused, Spin,
    SpinThenPark, SpinThenYield, Ticket, TicketSema, TicketWait, Twa, TwaChain, TwaChannel, TwaLocation,
    address_signal, address_wait_until, key_monitor, key_signal, key_wait, key_wait_lazy, location_wake_all,
};
use sudog::low_level::sema::{Order, Wake};
use sudog::low_level::{ConstSemaphore, Semaphore};
use sudog::runtime::{gosched, set_max_procs};
use sudog::sync::WaitGroup;
use sudog::time::sleep;
use sudog::{go, run, spawn, without_switching};
use support::goroutine::{Alone, alone, alone_with, one_worker, until};
use support::{Watchdog, eventually};

/// All waiters in one bucket.
type One = MixedHash<1>;

macro_rules! over_every_form {
    ($($check:ident)+) => { $(mod $check {
        use super::*;
        over_every_form!(@forms $check
            benaphore = Benaphore;
            benaphore_colliding = Benaphore<ChainWait<SpinThenPark, 1, One>>;
            benaphore_on_buckets = Benaphore<BucketWait<SpinThenPark, 1, One>>;
            benaphore_on_locations = Benaphore<LocationWait<SpinThenPark, 0, One>>;
            ticket = Ticket;
            ticket_spinning = Ticket<Spin>;
            twa_far = Twa<SpinThenPark, 0>;
            twa_spinning = Twa<Spin>;
            chain_as_printed = TwaChain<SpinThenPark, 0>;
            chain_spinning = TwaChain<Spin, 0, One>;
            chain_yielding = TwaChain<SpinThenYield>;
            channel_colliding = TwaChannel<SpinThenPark, 0, One>;
            location = TwaLocation;
            location_spinning = TwaLocation<Spin, 0, One>;
        );
    })+ };
    (@forms $check:ident $($name:ident = $Sema:ty;)+) => {
        $(#[test] fn $name() { super::$check(|| <$Sema>::INIT); })+
    };
}

over_every_form! {
    many_on_one_worker
    many_on_two_workers_beside_threads
    a_goroutine_that_may_not_switch
}

/// Many goroutines contend on a single worker.
///
/// This test runs in no bubble, and neither do the other tests of this file whose goroutines sleep. A release by another
/// test may have taken such waiters out of a chain, and not have readied them yet. To a bubble its goroutines are then at
/// rest, and the bubble's clock jumps to the deadline.
fn many_on_one_worker<W: TicketWait, D: Doorway>(new: fn() -> TicketSema<W, D>) {
    let _alone = alone_with(1);
    let sema = Arc::new(new());
    let inside = Arc::new(AtomicU32::new(0));
    let theirs = (sema.clone(), inside.clone());
    run(move || {
        let (sema, inside) = theirs;
        let group = Arc::new(WaitGroup::new());
        for n in 0..50u64 {
            group.add(1);
            let (sema, group, inside) = (sema.clone(), group.clone(), inside.clone());
            go(move || {
                for turn in 0..20 {
                    if (turn + n) % 3 == 0 {
                        let far = Instant::now() + Duration::from_secs(3600);
                        assert_eq!(sema.acquire_many_until(1, far), Ok(()));
                    } else {
                        sema.acquire(Order::Fifo);
                    }
                    assert_eq!(inside.fetch_add(1, Relaxed), 0);
                    gosched();
                    inside.fetch_sub(1, Relaxed);
                    sema.release(Wake::Normal);
                }
                group.done();
            });
        }
        until(|| sema.wanted() == 50);
        sema.post(1);
        group.wait();
    });
    assert_eq!((sema.available(), sema.wanted()), (1, 0));
}

fn many_on_two_workers_beside_threads<W: TicketWait, D: Doorway>(new: fn() -> TicketSema<W, D>) {
    const TURNS: u64 = 300;
    let Alone { watchdog: _watchdog, .. } = &alone();
    let before = set_max_procs(2);
    let sema = Arc::new(new());
    let total = Arc::new(AtomicU64::new(0));
    let turns = |sema: &TicketSema<W, D>, total: &AtomicU64| {
        for turn in 0..TURNS {
            while turn % 7 == 0 && sema.acquire_many_until(1, Instant::now() + Duration::from_micros(20)).is_err() {}
            if turn % 7 != 0 {
                sema.acquire_many(1).unwrap();
            }
            total.store(total.load(Relaxed) + 1, Relaxed);
            sema.post(1);
        }
    };
    sema.post(1);
    thread::scope(|s| {
        s.spawn(|| turns(&sema, &total));
        run(|| {
            let all: Vec<_> = (0..10)
                .map(|_| {
                    let (sema, total) = (sema.clone(), total.clone());
                    spawn(move || turns(&sema, &total))
                })
                .collect();
            all.into_iter().for_each(|one| one.join().unwrap());
        });
    });
    set_max_procs(before);
    assert_eq!(total.load(Relaxed), 11 * TURNS);
    assert_eq!((sema.available(), sema.wanted()), (1, 0));
}

fn a_goroutine_that_may_not_switch<W: TicketWait, D: Doorway>(new: fn() -> TicketSema<W, D>) {
    let _watchdog = Watchdog::new();
    let sema = Arc::new(new());
    thread::scope(|s| {
        s.spawn(|| {
            eventually(|| sema.wanted() == 1);
            sema.post(1);
        });
        let theirs = sema.clone();
        one_worker(move || without_switching(|| theirs.acquire_many(1).unwrap()));
    });
}

/// The bare primitives, on a single worker: a waiter lets the other goroutines run.
#[test]
fn primitives() {
    let _alone = alone_with(1);
    const KEY: usize = 0x91;
    let x = Arc::new(AtomicU32::new(0));
    let theirs = x.clone();
    run(move || {
        let x = theirs;
        let waiters: Vec<_> = (0..9)
            .map(|n| {
                let x = x.clone();
                spawn(move || {
                    let ready = || x.load(Ordering::Acquire) == 1;
                    match n % 4 {
                        0 => address_wait_until(KEY, ready),
                        1 => loop {
                            let seen = key_monitor(KEY);
                            if ready() {
                                break;
                            }
                            key_wait(KEY, seen);
                        },
                        2 => {
                            let mut seen = EventKey::default();
                            while !ready() {
                                key_wait_lazy(KEY, &mut seen);
                            }
                        }
                        _ => {
                            let mut waiter = LocationWaiter::new();
                            while !ready() {
                                waiter.wait(KEY);
                            }
                        }
                    }
                })
            })
            .collect();
        (0..5).for_each(|_| gosched());
        x.store(1, Ordering::Release);
        address_signal(KEY);
        key_signal(KEY);
        location_wake_all(KEY);
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
    });
}

/// A condition panics while its goroutine stands in the middle of a chain of goroutines of the same worker.
#[test]
fn a_condition_that_panics() {
    let _alone = alone_with(1);
    const KEY: usize = 0x92;
    let ready = Arc::new(AtomicBool::new(false));
    let theirs = ready.clone();
    run(move || {
        let ready = theirs;
        let waiters: Vec<_> = (0..6)
            .map(|n| {
                let ready = ready.clone();
                spawn(move || {
                    let mut looks = 0;
                    let waits = || {
                        address_wait_until(KEY, || {
                            looks += 1;
                            if n % 2 == 1 && looks == 2 {
                                // The goroutine is in the chain: later waiters stand above it. A condition should not
                                // do this.
                                gosched();
                                panic!("deliberate");
                            }
                            ready.load(Ordering::Acquire)
                        });
                    };
                    assert_eq!(catch_unwind(AssertUnwindSafe(waits)).is_err(), n % 2 == 1);
                })
            })
            .collect();
        (0..9).for_each(|_| gosched());
        ready.store(true, Ordering::Release);
        address_signal(KEY);
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
    });
}

#[test]
fn deadlines_on_run() {
    let _watchdog = Watchdog::new();
    let sema = Arc::new(Benaphore::<ChainWait<SpinThenPark, 1, One>>::with_permits(0));
    let theirs = sema.clone();
    one_worker(move || {
        let sema = theirs;
        let hasty: Vec<_> = (0..10)
            .map(|n| {
                let sema = sema.clone();
                spawn(move || sema.acquire_many_until(1, Instant::now() + Duration::from_micros(100 * n)))
            })
            .collect();
        for one in hasty {
            assert_eq!(one.join().unwrap(), Err(Refused::TimedOut));
        }
    });
    sema.post(1);
    assert_eq!((sema.available(), sema.wanted()), (1, 0));
}

// ---- chains shared by a collision ------------------------------------------------------------------------------

type Colliding = Benaphore<ChainWait<SpinThenPark, 1, One>>;

/// Waits in the same bucket as a goroutine whose worker is busy and which is on top of the chain. `between` runs on
/// that worker.
///
/// A waiter with a time limit may give up before it was seen. If so, it waits again, with twice the limit.
fn beneath_a_busy_worker(waits: fn(&Colliding, Duration), between: impl FnOnce(&Colliding, &dyn Fn()) + Send) {
    let Alone { watchdog: _watchdog, .. } = &alone();
    let before = set_max_procs(1);
    let (sema, other) = (Colliding::with_permits(0), Arc::new(Colliding::with_permits(0)));
    thread::scope(|s| {
        run(|| {
            let (sema, mut patience) = (&sema, Duration::from_millis(30));
            let below = loop {
                let waiter = s.spawn(move || waits(sema, patience));
                until(|| sema.wanted() == 1 || waiter.is_finished());
                if !waiter.is_finished() {
                    break waiter;
                }
                waiter.join().unwrap();
                patience *= 2;
            };
            sleep(Duration::from_millis(5)); // the waiter below most likely sleeps now; if not, the test is easier
            let theirs = other.clone();
            let above = spawn(move || theirs.acquire_many(1).unwrap());
            until(|| other.wanted() == 1);
            sleep(Duration::from_millis(1));
            // From here on this worker's goroutines do not run.
            between(sema, &|| {
                while !below.is_finished() {
                    thread::yield_now();
                }
            });
            other.post(1);
            above.join().unwrap();
        });
    });
    set_max_procs(before);
}

#[test]
fn a_grant_does_not_hang_on_strangers() {
    beneath_a_busy_worker(
        |sema, _| sema.acquire_many(1).unwrap(),
        |sema, until_it_is_gone| {
            sema.post(1);
            until_it_is_gone();
        },
    );
}

#[test]
fn a_deadline_does_not_hang_on_strangers() {
    beneath_a_busy_worker(
        |sema, patience| {
            assert_eq!(sema.acquire_many_until(1, Instant::now() + patience), Err(Refused::TimedOut));
        },
        |_, until_it_is_gone| until_it_is_gone(),
    );
}
