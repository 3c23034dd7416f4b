//! The checks of [`Semaphore`].

use std::any::{Any, type_name};
use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use rand_mt::Mt64;
use sudog_locks::capacitor::{ArriveDepart, Bounded};
#[cfg(target_os = "linux")]
use sudog_locks::capacitor::{Platoon, SlidingWindow};
use sudog_locks::waiting_array::{Benaphore, Ticket, TicketSema, Twa, TwaChain, TwaChannel, TwaLocation};
use sudog_locks::waiting_array::{
    BucketWait, Conservative, GrayHash, MixedHash, OrbitHash, PairedHash, PlainHash, Spin, SpinThenPark, SpinThenYield,
    ToldWait,
};
use sudog_runtime::shim::system::{
    Mutex,
    atomic::{AtomicBool, AtomicU32},
    now, thread,
};
use sudog_runtime::{sema, spin};
#[cfg(target_os = "linux")]
use sudog_sync::semaphore::FutexSema;
use sudog_sync::semaphore::{ParkingLotSema, RuntimeSema};
use sudog_sync::{Order, Semaphore, Wake};

use super::{Check, eventually, far, real_or_simulated, scope};
#[cfg(target_os = "linux")]
use crate::targets::semaphores::SemT;
use crate::targets::semaphores::{EventCountSema, Lfence, RuntimeLifo, StrideOneHash};

/// Returns all checks of semaphores.
pub fn checks<S: Semaphore + 'static>() -> Vec<Check> {
    checks_of(Subject::of::<S>())
}

fn checks_of(subject: Subject) -> Vec<Check> {
    super::checks![subject;
        permits_are_counted,
        a_deadline_in_the_past_is_a_try,
        a_deadline_ends_a_wait_and_not_too_soon,
        every_release_ends_a_wait,
        no_wake_up_is_lost,
        release_many_wakes_that_many,
        producers_and_consumers_conserve_permits,
        a_storm_of_deadlines_conserves_permits,
        waiters_are_served_in_their_order,
        a_handed_off_permit_cannot_be_stolen,
        nor_those_that_are_granted,
    ]
}

/// A semaphore of any type.
trait AnySemaphore: Send + Sync {
    fn acquire(&self, order: Order);
    fn try_acquire(&self) -> bool;
    fn acquire_until(&self, order: Order, deadline: Instant) -> bool;
    fn release(&self, wake: Wake);
    fn release_many(&self, n: u32);
    fn grant_many(&self, n: u32);

    /// Returns the number of waiters. `Semaphore` has no such function, but a test that needs a queued waiter must not
    /// guess when the waiter is queued.
    fn queued(&self) -> usize;
}

impl<S: Semaphore + 'static> AnySemaphore for S {
    fn acquire(&self, order: Order) {
        Semaphore::acquire(self, order);
    }

    fn try_acquire(&self) -> bool {
        Semaphore::try_acquire(self)
    }

    fn acquire_until(&self, order: Order, deadline: Instant) -> bool {
        Semaphore::acquire_until(self, order, deadline)
    }

    fn release(&self, wake: Wake) {
        Semaphore::release(self, wake);
    }

    fn release_many(&self, n: u32) {
        Semaphore::release_many(self, n);
    }

    fn grant_many(&self, n: u32) {
        Semaphore::grant_many(self, n);
    }

    fn queued(&self) -> usize {
        queued(self).unwrap_or_else(|| panic!("{}: how does one count its waiters?", type_name::<S>()))
    }
}

/// A type of semaphores: a function that makes a semaphore, and the constants of [`Semaphore`].
#[derive(Clone, Copy)]
struct Subject {
    make: fn(u32) -> Box<dyn AnySemaphore>,
    lifo: bool,
    fifo: bool,
    handoff: bool,
    deadlines: bool,
}

/// Returns whether threads that wait for a semaphore, or a lock, of type `T` only spin, as far as a name of a type says.
pub fn waiters_spin<T>() -> bool {
    ["::Spin,", "::Spin>", "::Lfence>"].iter().any(|wait| type_name::<T>().contains(wait))
}

impl Subject {
    fn of<S: Semaphore + 'static>() -> Self {
        let make = |permits| -> Box<dyn AnySemaphore> { Box::new(S::new(permits)) };
        Self { make, lifo: S::LIFO, fifo: S::FIFO, handoff: S::HANDOFF, deadlines: S::DEADLINES }
    }

    fn with(self, permits: u32) -> Box<dyn AnySemaphore> {
        (self.make)(permits)
    }
}

/// Returns the number of waiters; `None` if it is not known how to count those of this type.
fn queued(any: &dyn Any) -> Option<usize> {
    if let Some(sema) = any.downcast_ref::<RuntimeSema>() {
        // SAFETY: a `RuntimeSema` is a transparent wrapper of its counter, so the pointer is to a live `AtomicU32`.
        return Some(sema::waiters(unsafe { &*std::ptr::from_ref(sema).cast::<AtomicU32>() }));
    }
    if let Some(sema) = any.downcast_ref::<ParkingLotSema>() {
        use parking_lot_core::{DEFAULT_UNPARK_TOKEN, FilterOp, unpark_filter};
        let mut waiters = 0;
        let count = |_| {
            waiters += 1;
            FilterOp::Skip
        };
        // SAFETY: a `ParkingLotSema` is a transparent wrapper of its counter, so the address of `sema` is its key in
        // the table; no thread is unparked, and the callbacks neither panic nor call into parking_lot.
        unsafe { unpark_filter(std::ptr::from_ref(sema).addr(), count, |_| DEFAULT_UNPARK_TOKEN) };
        return Some(waiters);
    }
    // The count includes threads that are about to sleep. This semaphore keeps no order, so no test needs the exact
    // number.
    #[cfg(target_os = "linux")]
    if let Some(sema) = any.downcast_ref::<FutexSema>() {
        let shown = format!("{sema:?}");
        let waiters = shown.split("waiters: ").nth(1).and_then(|rest| rest.split(' ').next());
        return Some(waiters.and_then(|n| n.parse().ok()).expect("it shows how many wait"));
    }
    #[cfg(target_os = "linux")]
    if let Some(sema) = any.downcast_ref::<SemT>() {
        return Some(sema.waiters());
    }
    if let Some(sema) = any.downcast_ref::<RuntimeLifo>() {
        return queued(&sema.0);
    }
    // Count the acquirers that wait at the capacitor, and those that wait inside.
    macro_rules! behind_a_window {
        ($($Sema:ty),+) => {
            $(if let Some(sema) = any.downcast_ref::<$Sema>() {
                let window = sema.capacitor();
                return Some(window.present().saturating_sub(window.limit()) as usize + queued(sema.inner())?);
            })+
        };
    }
    behind_a_window!(Bounded<RuntimeSema>, Bounded<RuntimeLifo>);
    #[cfg(target_os = "linux")]
    behind_a_window!(Bounded<FutexSema>, Bounded<FutexSema, SlidingWindow, 1>);
    #[cfg(target_os = "linux")]
    behind_a_window!(Bounded<FutexSema, SlidingWindow, 2>, Bounded<FutexSema, SlidingWindow, 16>);
    #[cfg(target_os = "linux")]
    if let Some(sema) = any.downcast_ref::<Bounded<FutexSema, Platoon>>() {
        return Some(sema.capacitor().semaphore().wanted() as usize + queued(sema.inner())?);
    }
    macro_rules! of_the_waiting_arrays {
        ($($Sema:ty),+) => {
            $(if let Some(sema) = any.downcast_ref::<$Sema>() {
                return Some(sema.wanted() as usize);
            })+
        };
    }
    of_the_waiting_arrays!(Benaphore, Benaphore<BucketWait>, Ticket, Twa, Twa<SpinThenPark, 0>);
    of_the_waiting_arrays!(TwaChain, TwaChannel, TwaLocation, Ticket<Spin>, Twa<Spin, 1, PlainHash>);
    of_the_waiting_arrays!(TwaChain<Spin>, Twa<SpinThenYield>, TwaChain<SpinThenYield>);
    of_the_waiting_arrays!(Twa<Spin, 0, PlainHash>, Twa<Spin, 2, PlainHash>, Twa<Spin, 4, PlainHash>);
    of_the_waiting_arrays!(Twa<Spin, 8, PlainHash>, Twa<SpinThenPark, 2>, Twa<SpinThenPark, 4>, Twa<SpinThenPark, 8>);
    of_the_waiting_arrays!(Twa<Spin, 1, PairedHash>, Twa<Spin, 1, MixedHash>, Twa<SpinThenPark, 1, PairedHash>);
    of_the_waiting_arrays!(TwaChain<SpinThenPark, 0, PlainHash<4096>, true>, TwaChain<Spin, 0, PlainHash<4096>, true>);
    of_the_waiting_arrays!(TwaChannel<SpinThenPark, 0, PlainHash<4096>, true, false>);
    of_the_waiting_arrays!(TwaChannel<Spin, 0, PlainHash<4096>, true, false>, Twa<SpinThenPark, 0, MixedHash<1>>);
    of_the_waiting_arrays!(TwaChain<Spin, 0, PlainHash<4096>, true, false>, Ticket<Lfence>);
    of_the_waiting_arrays!(TwaChain<Spin, 0, PlainHash<4096>, true, true, false>);
    of_the_waiting_arrays!(TwaLocation<Spin, 0, PlainHash<4096>, true>);
    of_the_waiting_arrays!(TwaLocation<Spin, 0, PlainHash<4096>, false, false>);
    of_the_waiting_arrays!(TwaChannel<Spin, 0, PlainHash<4096>, true>, TwaLocation<Spin, 0, PlainHash<4096>>);
    of_the_waiting_arrays!(TicketSema<ToldWait<Spin, PlainHash<4096>>>);
    of_the_waiting_arrays!(TicketSema<ToldWait<Spin, PlainHash<4096>, true>>, TicketSema<Conservative<BucketWait>>);
    of_the_waiting_arrays!(TicketSema<Conservative<BucketWait<Spin, 1, PlainHash>>>, Ticket<Spin, true>);
    of_the_waiting_arrays!(Twa<SpinThenPark, 1, MixedHash<4096>>, Twa<Spin, 1, OrbitHash>, Twa<Spin, 1, GrayHash>);
    of_the_waiting_arrays!(Twa<Spin, 1, StrideOneHash>, EventCountSema, EventCountSema<true>, EventCountSema<false, true>);
    None
}

/// Takes a permit, waiting for as long as it takes, with or without a deadline.
fn acquire(sema: &dyn AnySemaphore, order: Order, timed: bool) {
    if timed {
        assert!(sema.acquire_until(order, far()), "a permit comes before the hour is over");
    } else {
        sema.acquire(order);
    }
}

/// Takes all free permits, and returns their number.
fn drain(sema: &dyn AnySemaphore) -> u32 {
    std::iter::repeat_with(|| sema.try_acquire()).take_while(|&got| got).map(|_| 1).sum()
}

fn permits_are_counted(subject: Subject, _progress: fn()) {
    assert!(!subject.with(0).try_acquire());
    let sema = subject.with(3);
    assert_eq!(drain(&*sema), 3);
    sema.release(Wake::Normal);
    sema.release(Wake::Handoff); // to no waiter: the permit is free for all
    sema.release_many(0);
    sema.release_many(4);
    sema.acquire(Order::Fifo);
    sema.acquire(Order::Lifo);
    assert!(sema.acquire_until(Order::Lifo, far()));
    assert_eq!(drain(&*sema), 3);
}

fn a_deadline_in_the_past_is_a_try(subject: Subject, _progress: fn()) {
    let (sema, past) = (subject.with(1), now());
    for order in [Order::Fifo, Order::Lifo] {
        assert!(sema.acquire_until(order, past));
        assert!(!sema.acquire_until(order, past));
        assert_eq!(sema.queued(), 0);
        sema.release(Wake::Normal);
    }
    assert_eq!(drain(&*sema), 1);
}

fn a_deadline_ends_a_wait_and_not_too_soon(subject: Subject, _progress: fn()) {
    let sema = subject.with(0);
    for micros in [50, 500, real_or_simulated(5_000, 1).into()] {
        let deadline = now() + Duration::from_micros(micros);
        assert!(!sema.acquire_until(Order::Fifo, deadline));
        assert!(now() >= deadline, "it gave up early");
    }
    assert_eq!(sema.queued(), 0);
    sema.release(Wake::Handoff);
    assert_eq!(drain(&*sema), 1, "a permit for somebody who has left");
}

fn every_release_ends_a_wait(subject: Subject, _progress: fn()) {
    let sema = subject.with(0);
    for (order, wake, timed) in [Order::Fifo, Order::Lifo]
        .into_iter()
        .flat_map(|order| [Wake::Normal, Wake::Handoff].map(|wake| (order, wake)))
        .flat_map(|(order, wake)| [false, true].map(|timed| (order, wake, timed)))
    {
        if timed && !subject.deadlines {
            continue; // an acquire with a deadline polls, so no waiter is queued
        }
        scope(|s| {
            s.spawn(|| acquire(&*sema, order, timed));
            eventually(|| sema.queued() == 1);
            sema.release(wake);
        });
        assert_eq!((drain(&*sema), sema.queued()), (0, 0));
    }
}

/// Checks that a release ends an acquire that is on its way to sleep. The release and the acquire are the only calls of
/// a round, so no other call would repair a lost wake-up.
fn no_wake_up_is_lost(subject: Subject, progress: fn()) {
    const ROUNDS: u32 = real_or_simulated(20_000, 4);
    let (sema, arrivals) = (subject.with(0), AtomicU32::new(0));
    let side = |acquires_in: u32| {
        for round in 0..ROUNDS {
            if round % 256 == 0 {
                progress(); // of the test's own thread, which runs one of the sides
            }
            arrivals.fetch_add(1, Relaxed);
            let mut looks = 0;
            while arrivals.load(Relaxed) < 2 * (round + 1) {
                looks += 1;
                if looks % 200 == 0 { thread::yield_now() } else { spin::do_spin(1) }
            }
            if round % 2 == acquires_in {
                acquire(&*sema, Order::Fifo, round % 3 == 0);
            } else {
                // This side acquired in the last round, so it comes to this round last and passes the loop above first.
                // Give the other side's acquire a start of varying length, as otherwise it would find the permit
                // already released.
                (0..round % 64).for_each(|_| spin::do_spin(1));
                sema.release(if round % 5 == 0 { Wake::Handoff } else { Wake::Normal });
            }
        }
    };
    scope(|s| {
        s.spawn(|| side(0));
        side(1);
    });
    assert_eq!((drain(&*sema), sema.queued()), (0, 0));
}

fn release_many_wakes_that_many(subject: Subject, _progress: fn()) {
    const WAITERS: usize = real_or_simulated(8, 3) as usize;
    const FEWER: usize = real_or_simulated(5, 2) as usize;
    for timed in [false, true].into_iter().filter(|timed| !timed || subject.deadlines) {
        let (sema, granted) = (subject.with(0), AtomicU32::new(0));
        let served = || granted.load(Relaxed) as usize;
        scope(|s| {
            for _ in 0..WAITERS {
                s.spawn(|| {
                    acquire(&*sema, Order::Fifo, timed);
                    granted.fetch_add(1, Relaxed);
                });
            }
            eventually(|| sema.queued() == WAITERS);
            sema.release_many(FEWER as u32);
            eventually(|| served() == FEWER && sema.queued() == WAITERS - FEWER);
            assert!(!sema.try_acquire());
            sema.release_many(WAITERS as u32);
            eventually(|| served() == WAITERS);
        });
        assert_eq!(drain(&*sema) as usize, FEWER, "what is more than there were waiters stays");
    }
}

fn producers_and_consumers_conserve_permits(subject: Subject, _progress: fn()) {
    const THREADS: u32 = real_or_simulated(3, 2);
    const ROUNDS: u32 = real_or_simulated(2_000, 3);
    let sema = subject.with(0);
    scope(|s| {
        for thread in 0..THREADS {
            let sema = &*sema;
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
    assert_eq!((drain(&*sema), sema.queued()), (0, 0));
}

fn a_storm_of_deadlines_conserves_permits(subject: Subject, _progress: fn()) {
    const ROUNDS: u32 = real_or_simulated(1_000, 4);
    let (sema, granted, released) = (subject.with(0), AtomicU32::new(0), AtomicU32::new(0));
    scope(|s| {
        let (sema, granted, released) = (&*sema, &granted, &released);
        for seed in 0..real_or_simulated(4, 2).into() {
            s.spawn(move || {
                let mut rng = Mt64::new(seed);
                for _ in 0..ROUNDS {
                    let deadline = now() + Duration::from_micros(rng.next_u64() % 60);
                    let order = if rng.next_u64().is_multiple_of(2) { Order::Fifo } else { Order::Lifo };
                    if sema.acquire_until(order, deadline) {
                        granted.fetch_add(1, Relaxed);
                    }
                }
            });
        }
        for seed in 4..6 {
            s.spawn(move || {
                let mut rng = Mt64::new(seed);
                for _ in 0..ROUNDS / 2 {
                    let n = 1 + (rng.next_u64() % 3) as u32;
                    match n {
                        1 => sema.release(if rng.next_u64().is_multiple_of(2) { Wake::Normal } else { Wake::Handoff }),
                        _ => sema.release_many(n),
                    }
                    released.fetch_add(n, Relaxed);
                    thread::sleep(Duration::from_micros(rng.next_u64() % 20));
                }
            });
        }
    });
    assert_eq!(granted.load(Relaxed) + drain(&*sema), released.load(Relaxed));
    assert_eq!(sema.queued(), 0);
}

/// Queues waiters one by one, in the given orders, then releases permits, and returns the order in which the waiters
/// are served.
fn served(subject: Subject, orders: &[Order], timed: bool, wake: Wake) -> Vec<usize> {
    let (sema, served) = (subject.with(0), Mutex::new(Vec::new()));
    scope(|s| {
        for (waiter, &order) in orders.iter().enumerate() {
            let (sema, served) = (&*sema, &served);
            s.spawn(move || {
                acquire(sema, order, timed && waiter % 2 == 0);
                served.lock().unwrap_or_else(PoisonError::into_inner).push(waiter);
            });
            eventually(|| sema.queued() == waiter + 1);
        }
        for n in 1..=orders.len() {
            sema.release(wake);
            eventually(|| served.lock().unwrap_or_else(PoisonError::into_inner).len() == n);
        }
    });
    std::mem::take(&mut *served.lock().unwrap_or_else(PoisonError::into_inner))
}

fn waiters_are_served_in_their_order(subject: Subject, _progress: fn()) {
    use Order::{Fifo, Lifo};
    if !subject.fifo {
        assert!(!subject.lifo, "a front, and no line");
        return;
    }
    for timed in [false, true].into_iter().filter(|timed| !timed || subject.deadlines) {
        for wake in [Wake::Normal, Wake::Handoff] {
            assert_eq!(served(subject, &[Fifo; 5], timed, wake), [0, 1, 2, 3, 4]);
            let (all, some) = (
                served(subject, &[Lifo; 5], timed, wake),
                served(subject, &[Fifo, Fifo, Lifo, Fifo, Lifo], timed, wake),
            );
            if subject.lifo {
                assert_eq!((all, some), (vec![4, 3, 2, 1, 0], vec![4, 2, 0, 1, 3]));
            } else {
                assert_eq!((all, some), (vec![0, 1, 2, 3, 4], vec![0, 1, 2, 3, 4]));
            }
        }
    }
}

/// Checks what Go's `TestSemaHandoff` checks; but Go expects the waiter to win two rounds in three, and this check
/// expects the waiter to win all.
fn a_handed_off_permit_cannot_be_stolen(subject: Subject, progress: fn()) {
    cannot_be_stolen(subject, progress, real_or_simulated(5_000, 3), 1, |sema| sema.release(Wake::Handoff));
}

/// Checks [`Semaphore::grant_many`] for all waiters, which may be more than are woken at a time.
fn nor_those_that_are_granted(subject: Subject, progress: fn()) {
    cannot_be_stolen(subject, progress, real_or_simulated(300, 2), 2, |sema| sema.grant_many(2));
    // On the simulated machine, use fewer: seventy waiters would need more steps than a schedule has.
    const MANY: u32 = real_or_simulated(70, 3);
    cannot_be_stolen(subject, progress, real_or_simulated(3, 1), MANY, |sema| sema.grant_many(MANY));
}

/// Checks that no newcomer takes a permit of `give`, which gives as many permits as there are waiters. Makes `rounds`
/// checks; fewer, but a fiftieth at least, if these take longer than half a second: where waiters that spin share a
/// processor with the releaser, each round takes a time slice of the system. Makes all with `SUDOG_ALL_ROUNDS` in the
/// environment (`.ci/nightly conformance`).
fn cannot_be_stolen(subject: Subject, progress: fn(), rounds: u32, waiters: u32, give: fn(&dyn AnySemaphore)) {
    if !subject.handoff {
        return;
    }
    let (sema, granted, over) = (subject.with(0), AtomicU32::new(0), AtomicBool::new(false));
    // The last round, once the releaser has begun that round.
    let last = AtomicU32::new(u32::MAX);
    let (begun, makes_all) = (now(), cfg!(sudog_sim) || std::env::var_os("SUDOG_ALL_ROUNDS").is_some());
    let is_last = |round| {
        round == rounds || !makes_all && round >= rounds.div_ceil(50) && begun.elapsed() > Duration::from_millis(500)
    };
    scope(|s| {
        for _ in 0..waiters {
            s.spawn(|| {
                for round in 1.. {
                    acquire(&*sema, Order::Fifo, round % 2 == 1 && subject.deadlines); // else polls, in no queue
                    granted.fetch_add(1, Relaxed);
                    while granted.load(Relaxed) < round * waiters {
                        thread::yield_now();
                    }
                    // The permit was given after the releaser had stored the number of the last round.
                    if round == last.load(Relaxed) {
                        break;
                    }
                }
            });
        }
        let thief = s.spawn(|| {
            let mut loot = 0;
            while !over.load(Relaxed) {
                for _ in 0..real_or_simulated(100, 3) {
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
        for round in 1.. {
            progress();
            while sema.queued() < waiters as usize {
                thread::yield_now();
            }
            let is_last = is_last(round);
            if is_last {
                last.store(round, Relaxed);
            }
            give(&*sema);
            if sema.try_acquire() {
                loot += 1;
                sema.release(Wake::Normal);
            }
            while granted.load(Relaxed) != round * waiters {
                thread::yield_now();
            }
            if is_last {
                break;
            }
        }
        over.store(true, Relaxed);
        assert_eq!((loot, thief.join().unwrap()), (0, 0), "permits stolen by the releaser, and by another thread");
    });
    assert_eq!(drain(&*sema), 0);
}
