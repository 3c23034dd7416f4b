//! The checks of [`Semaphore`].

use std::any::{Any, type_name};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use sudog::locks::waiting_array::{Benaphore, Ticket, Twa, TwaChain, TwaChannel, TwaLocation};
use sudog::locks::waiting_array::{BucketWait, MixedHash, PairedHash, PlainHash, Spin, SpinThenPark, SpinThenYield};
use sudog::runtime::sema;
#[cfg(target_os = "linux")]
use sudog::sync::semaphore::FutexSema;
use sudog::sync::semaphore::{ParkingLotSema, RuntimeSema};
use sudog::sync::{Order, Semaphore, Wake};
#[cfg(target_os = "linux")]
use sudog_lab::semaphores::SemT;
use sudog_lab::semaphores::{SemaphoreJob, SemaphoreName, with_semaphore};
use support::eventually;

crate::conformance::over_every_backend! {
    with_semaphore of SemaphoreName, SemaphoreJob over Semaphore;
    backends {
        runtime = Runtime;
        parking_lot_core = ParkingLotCore;
        #[cfg(target_os = "linux")] futex = Futex;
        benaphore = Benaphore;
        benaphore_twa = BenaphoreTwa;
        ticket = Ticket;
        twa = Twa;
        twa_far = TwaFar;
        twa_chain = TwaChain;
        twa_channel = TwaChannel;
        twa_location = TwaLocation;
        ticket_spin = TicketSpin;
        twa_spin = TwaSpin;
        twa_chain_spin = TwaChainSpin;
        twa_yield = TwaYield;
        twa_chain_yield = TwaChainYield;
        #[cfg(target_os = "linux")] sem_t = SemT;
        twa_spin_0 = TwaSpin0;
        twa_spin_2 = TwaSpin2;
        twa_spin_4 = TwaSpin4;
        twa_spin_8 = TwaSpin8;
        twa_2 = Twa2;
        twa_4 = Twa4;
        twa_8 = Twa8;
        twa_spin_paired = TwaSpinPaired;
        twa_spin_mixed = TwaSpinMixed;
        twa_paired = TwaPaired;
    }
    checks {
        permits_are_counted
        a_deadline_in_the_past_is_a_try
        a_deadline_ends_a_wait_and_not_too_soon
        every_release_ends_a_wait
        no_wake_up_is_lost
        release_many_wakes_that_many
        producers_and_consumers_conserve_permits
        a_storm_of_deadlines_conserves_permits
        waiters_are_served_in_their_order
        a_handed_off_permit_cannot_be_stolen
        nor_those_that_are_granted
    }
}

/// The number of waiters. The trait does not say, but a test that needs a queued waiter must not guess when it is
/// queued.
fn queued<S: Semaphore + 'static>(sema: &S) -> usize {
    let any: &dyn Any = sema;
    if let Some(sema) = any.downcast_ref::<RuntimeSema>() {
        // SAFETY: it is a transparent wrapper of its counter.
        return sema::waiters(unsafe { &*std::ptr::from_ref(sema).cast::<AtomicU32>() });
    }
    if any.is::<ParkingLotSema>() {
        use ::parking_lot_core::{DEFAULT_UNPARK_TOKEN, FilterOp, unpark_filter};
        let mut waiters = 0;
        let count = |_| {
            waiters += 1;
            FilterOp::Skip
        };
        // SAFETY: a transparent wrapper of its counter, so this is its key; no thread is unparked, and the callbacks
        // neither panic nor call into parking_lot.
        unsafe { unpark_filter(std::ptr::from_ref(sema).addr(), count, |_| DEFAULT_UNPARK_TOKEN) };
        return waiters;
    }
    // Those about to sleep are counted too; it keeps no order, so no test needs to know better.
    #[cfg(target_os = "linux")]
    if let Some(sema) = any.downcast_ref::<FutexSema>() {
        let shown = format!("{sema:?}");
        let waiters = shown.split("waiters: ").nth(1).and_then(|rest| rest.split(' ').next());
        return waiters.and_then(|n| n.parse().ok()).expect("it shows how many wait");
    }
    #[cfg(target_os = "linux")]
    if let Some(sema) = any.downcast_ref::<SemT>() {
        return sema.waiters();
    }
    macro_rules! of_the_waiting_arrays {
        ($($Sema:ty),+) => {
            $(if let Some(sema) = any.downcast_ref::<$Sema>() {
                return sema.wanted() as usize;
            })+
        };
    }
    of_the_waiting_arrays!(Benaphore, Benaphore<BucketWait>, Ticket, Twa, Twa<SpinThenPark, 0>);
    of_the_waiting_arrays!(TwaChain, TwaChannel, TwaLocation, Ticket<Spin>, Twa<Spin, 1, PlainHash>);
    of_the_waiting_arrays!(TwaChain<Spin>, Twa<SpinThenYield>, TwaChain<SpinThenYield>);
    of_the_waiting_arrays!(Twa<Spin, 0, PlainHash>, Twa<Spin, 2, PlainHash>, Twa<Spin, 4, PlainHash>);
    of_the_waiting_arrays!(Twa<Spin, 8, PlainHash>, Twa<SpinThenPark, 2>, Twa<SpinThenPark, 4>, Twa<SpinThenPark, 8>);
    of_the_waiting_arrays!(Twa<Spin, 1, PairedHash>, Twa<Spin, 1, MixedHash>, Twa<SpinThenPark, 1, PairedHash>);
    panic!("{}: how does one count its waiters?", type_name::<S>())
}

fn far() -> Instant {
    Instant::now() + Duration::from_secs(3600)
}

/// The two ways to wait for as long as it takes.
fn acquire<S: Semaphore>(sema: &S, order: Order, timed: bool) {
    if timed {
        assert!(sema.acquire_until(order, far()), "a permit comes before the hour is over");
    } else {
        sema.acquire(order);
    }
}

/// Takes all permits that are there.
fn drain<S: Semaphore>(sema: &S) -> u32 {
    std::iter::repeat_with(|| sema.try_acquire()).take_while(|&got| got).map(|_| 1).sum()
}

fn permits_are_counted<S: Semaphore>() {
    assert!(!S::new(0).try_acquire());
    let sema = S::new(3);
    assert_eq!(drain(&sema), 3);
    sema.release(Wake::Normal);
    sema.release(Wake::Handoff); // to no waiter: free for all
    sema.release_many(0);
    sema.release_many(4);
    sema.acquire(Order::Fifo);
    sema.acquire(Order::Lifo);
    assert!(sema.acquire_until(Order::Lifo, far()));
    assert_eq!(drain(&sema), 3);
}

fn a_deadline_in_the_past_is_a_try<S: Semaphore + 'static>() {
    let (sema, past) = (S::new(1), Instant::now());
    for order in [Order::Fifo, Order::Lifo] {
        assert!(sema.acquire_until(order, past));
        assert!(!sema.acquire_until(order, past));
        assert_eq!(queued(&sema), 0);
        sema.release(Wake::Normal);
    }
    assert_eq!(drain(&sema), 1);
}

fn a_deadline_ends_a_wait_and_not_too_soon<S: Semaphore + 'static>() {
    let sema = S::new(0);
    for micros in [50, 500, 5_000] {
        let deadline = Instant::now() + Duration::from_micros(micros);
        assert!(!sema.acquire_until(Order::Fifo, deadline));
        assert!(Instant::now() >= deadline, "it gave up early");
    }
    assert_eq!(queued(&sema), 0);
    sema.release(Wake::Handoff);
    assert_eq!(drain(&sema), 1, "a permit for somebody who has left");
}

fn every_release_ends_a_wait<S: Semaphore + 'static>() {
    let sema = S::new(0);
    for (order, wake, timed) in [Order::Fifo, Order::Lifo]
        .into_iter()
        .flat_map(|order| [Wake::Normal, Wake::Handoff].map(|wake| (order, wake)))
        .flat_map(|(order, wake)| [false, true].map(|timed| (order, wake, timed)))
    {
        if timed && !S::DEADLINES {
            continue; // it polls, so it stands in no line
        }
        thread::scope(|s| {
            s.spawn(|| acquire(&sema, order, timed));
            eventually(|| queued(&sema) == 1);
            sema.release(wake);
        });
        assert_eq!((drain(&sema), queued(&sema)), (0, 0));
    }
}

/// One release meets one acquire that is on its way to sleep, and no other call repairs what that breaks.
fn no_wake_up_is_lost<S: Semaphore + 'static>() {
    const ROUNDS: u32 = 20_000;
    let (sema, arrivals) = (S::new(0), AtomicU32::new(0));
    let side = |acquires_in: u32| {
        for round in 0..ROUNDS {
            if round % 256 == 0 {
                support::pat(); // of the test's own thread, which is one of the sides
            }
            arrivals.fetch_add(1, Relaxed);
            let mut looks = 0;
            while arrivals.load(Relaxed) < 2 * (round + 1) {
                looks += 1;
                if looks % 200 == 0 { thread::yield_now() } else { std::hint::spin_loop() }
            }
            if round % 2 == acquires_in {
                acquire(&sema, Order::Fifo, round % 3 == 0);
            } else {
                // The last acquirer comes last, and would find us done: give it a start, a little more or less.
                (0..round % 64).for_each(|_| std::hint::spin_loop());
                sema.release(if round % 5 == 0 { Wake::Handoff } else { Wake::Normal });
            }
        }
    };
    thread::scope(|s| {
        s.spawn(|| side(0));
        side(1);
    });
    assert_eq!((drain(&sema), queued(&sema)), (0, 0));
}

fn release_many_wakes_that_many<S: Semaphore + 'static>() {
    const WAITERS: usize = 8;
    const FEWER: usize = 5;
    for timed in [false, true].into_iter().filter(|timed| !timed || S::DEADLINES) {
        let (sema, granted) = (S::new(0), AtomicU32::new(0));
        let served = || granted.load(Relaxed) as usize;
        thread::scope(|s| {
            for _ in 0..WAITERS {
                s.spawn(|| {
                    acquire(&sema, Order::Fifo, timed);
                    granted.fetch_add(1, Relaxed);
                });
            }
            eventually(|| queued(&sema) == WAITERS);
            sema.release_many(FEWER as u32);
            eventually(|| served() == FEWER && queued(&sema) == WAITERS - FEWER);
            assert!(!sema.try_acquire());
            sema.release_many(WAITERS as u32);
            eventually(|| served() == WAITERS);
        });
        assert_eq!(drain(&sema) as usize, FEWER, "what is more than there were waiters stays");
    }
}

fn producers_and_consumers_conserve_permits<S: Semaphore + 'static>() {
    const THREADS: u32 = 3;
    const ROUNDS: u32 = 2_000;
    let sema = S::new(0);
    thread::scope(|s| {
        for thread in 0..THREADS {
            let sema = &sema;
            s.spawn(move || {
                for round in 0..ROUNDS {
                    match (thread + round) % 3 {
                        0 => sema.release(Wake::Normal),
                        1 => sema.release(Wake::Handoff),
                        _ => sema.release_many(1),
                    }
                }
            });
            s.spawn(move || {
                for round in 0..ROUNDS {
                    let order = if round % 4 == 0 { Order::Lifo } else { Order::Fifo };
                    acquire(sema, order, (thread + round) % 2 == 0);
                }
            });
        }
    });
    assert_eq!((drain(&sema), queued(&sema)), (0, 0));
}

fn a_storm_of_deadlines_conserves_permits<S: Semaphore + 'static>() {
    const ROUNDS: u32 = 1_000;
    let (sema, granted, released) = (S::new(0), AtomicU32::new(0), AtomicU32::new(0));
    thread::scope(|s| {
        let (sema, granted, released) = (&sema, &granted, &released);
        for seed in 0..4 {
            s.spawn(move || {
                let mut rng = StdRng::seed_from_u64(seed);
                for _ in 0..ROUNDS {
                    let deadline = Instant::now() + Duration::from_micros(rng.random_range(0..60));
                    let order = if rng.random() { Order::Fifo } else { Order::Lifo };
                    if sema.acquire_until(order, deadline) {
                        granted.fetch_add(1, Relaxed);
                    }
                }
            });
        }
        for seed in 4..6 {
            s.spawn(move || {
                let mut rng = StdRng::seed_from_u64(seed);
                for _ in 0..ROUNDS / 2 {
                    let n = rng.random_range(1..4);
                    match n {
                        1 => sema.release(if rng.random() { Wake::Normal } else { Wake::Handoff }),
                        _ => sema.release_many(n),
                    }
                    released.fetch_add(n, Relaxed);
                    thread::sleep(Duration::from_micros(rng.random_range(0..20)));
                }
            });
        }
    });
    assert_eq!(granted.into_inner() + drain(&sema), released.into_inner());
    assert_eq!(queued(&sema), 0);
}

/// Queues waiters one by one, in the given orders; then says in which order they are served.
fn served<S: Semaphore + 'static>(orders: &[Order], timed: bool, wake: Wake) -> Vec<usize> {
    let (sema, served) = (S::new(0), Mutex::new(Vec::new()));
    thread::scope(|s| {
        for (waiter, &order) in orders.iter().enumerate() {
            let (sema, served) = (&sema, &served);
            s.spawn(move || {
                acquire(sema, order, timed && waiter % 2 == 0);
                served.lock().unwrap().push(waiter);
            });
            eventually(|| queued(sema) == waiter + 1);
        }
        for n in 1..=orders.len() {
            sema.release(wake);
            eventually(|| served.lock().unwrap().len() == n);
        }
    });
    served.into_inner().unwrap()
}

fn waiters_are_served_in_their_order<S: Semaphore + 'static>() {
    use Order::{Fifo, Lifo};
    if !S::FIFO {
        assert!(!S::LIFO, "a front, and no line");
        return;
    }
    for timed in [false, true].into_iter().filter(|timed| !timed || S::DEADLINES) {
        for wake in [Wake::Normal, Wake::Handoff] {
            assert_eq!(served::<S>(&[Fifo; 5], timed, wake), [0, 1, 2, 3, 4]);
            let (all, some) =
                (served::<S>(&[Lifo; 5], timed, wake), served::<S>(&[Fifo, Fifo, Lifo, Fifo, Lifo], timed, wake));
            if S::LIFO {
                assert_eq!((all, some), (vec![4, 3, 2, 1, 0], vec![4, 2, 0, 1, 3]));
            } else {
                assert_eq!((all, some), (vec![0, 1, 2, 3, 4], vec![0, 1, 2, 3, 4]));
            }
        }
    }
}

/// Go's `TestSemaHandoff`; but where Go expects the waiter to win two rounds in three, here it wins them all.
fn a_handed_off_permit_cannot_be_stolen<S: Semaphore + 'static>() {
    cannot_be_stolen::<S>(5_000, 1, |sema| sema.release(Wake::Handoff));
}

/// [`Semaphore::grant_many`]: for all waiters, which may be more than are woken at a time.
fn nor_those_that_are_granted<S: Semaphore + 'static>() {
    cannot_be_stolen::<S>(300, 2, |sema| sema.grant_many(2));
    cannot_be_stolen::<S>(3, 70, |sema| sema.grant_many(70));
}

/// As many permits are given as there are waiters for them.
fn cannot_be_stolen<S: Semaphore + 'static>(rounds: u32, waiters: u32, give: fn(&S)) {
    if !S::HANDOFF {
        return;
    }
    let (sema, granted, over) = (S::new(0), AtomicU32::new(0), AtomicBool::new(false));
    thread::scope(|s| {
        for _ in 0..waiters {
            s.spawn(|| {
                for round in 0..rounds {
                    acquire(&sema, Order::Fifo, round % 2 == 0);
                    granted.fetch_add(1, Relaxed);
                    while granted.load(Relaxed) < (round + 1) * waiters {
                        thread::yield_now();
                    }
                }
            });
        }
        let thief = s.spawn(|| {
            let mut loot = 0;
            while !over.load(Relaxed) {
                for _ in 0..100 {
                    if sema.try_acquire() {
                        loot += 1;
                        sema.release(Wake::Normal); // the waiter is not to blame
                    }
                }
                thread::yield_now(); // a waiter that spins may need this processor to see its permit
            }
            loot
        });
        let mut loot = 0;
        for round in 1..=rounds {
            support::pat();
            while queued(&sema) < waiters as usize {
                thread::yield_now();
            }
            give(&sema);
            if sema.try_acquire() {
                loot += 1;
                sema.release(Wake::Normal);
            }
            while granted.load(Relaxed) != round * waiters {
                thread::yield_now();
            }
        }
        over.store(true, Relaxed);
        assert_eq!((loot, thief.join().unwrap()), (0, 0), "permits stolen by the releaser, and by another thread");
    });
    assert_eq!(drain(&sema), 0);
}
