//! The semaphores of the waiting arrays: promises beyond the contract of every semaphore, which `conformance` checks.
#![cfg(all(feature = "locks", not(sudog_loom)))]

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use sudog::locks::waiting_array::{
    Benaphore, BucketWait, ChainWait, ChannelWait, Closed, Doorway, EventKey, LocationWait, LocationWaiter, MixedHash,
    OrbitHash, PairedHash, PlainHash, Refused, Spin, SpinThenPark, SpinThenYield, Ticket, TicketSema, TicketWait,
    Tickets, Twa, TwaChain, TwaChannel, TwaLocation, address_signal, address_signal_polite, address_wait_until,
    address_wait_until_deadline, key_monitor, key_signal, key_signal_polite, key_wait, key_wait_lazy, key_wait_until,
    location_wait, location_wake_all,
};
use sudog::low_level::ConstSemaphore;
use sudog_lab_core::conformance::scope;
use support::{Watchdog, eventually};

/// A hash that puts all waiters into one bucket.
type One = MixedHash<1>;

macro_rules! over_every_form {
    ($($check:ident)+) => { $(mod $check {
        use super::*;
        over_every_form!(@forms $check
            benaphore = Benaphore;
            benaphore_colliding = Benaphore<ChainWait<SpinThenPark, 1, One>>;
            benaphore_on_buckets = Benaphore<BucketWait>;
            benaphore_yielding = Benaphore<ChainWait<SpinThenYield>>;
            ticket = Ticket;
            ticket_spinning = Ticket<Spin>;
            twa = Twa;
            twa_far = Twa<SpinThenPark, 0, PlainHash>;
            twa_colliding = Twa<SpinThenPark, 3, One>;
            twa_as_printed = Twa<Spin, 1, PlainHash>;
            twa_yielding = Twa<SpinThenYield, 2, PairedHash<4>>;
            chain_as_printed = TwaChain<SpinThenPark, 0, PlainHash>;
            chain_colliding = TwaChain<SpinThenPark, 0, One>;
            chain_yielding = TwaChain<SpinThenYield, 1, OrbitHash>;
            channel_as_printed = TwaChannel<SpinThenPark, 0, PlainHash>;
            channel_colliding = TwaChannel<SpinThenPark, 2, One>;
            location_as_printed = TwaLocation<SpinThenPark, 0, PlainHash>;
            location_colliding = TwaLocation<SpinThenPark, 1, One>;
            location_yielding = TwaLocation<SpinThenYield, 1, PairedHash>;
        );
    })+ };
    (@forms $check:ident $($name:ident = $Sema:ty;)+) => {
        $(#[test] fn $name() {
            let _watchdog = Watchdog::new();
            let empty = <$Sema>::INIT;
            super::$check(&empty);
        })+
    };
}

over_every_form! {
    initial_permits
    many_at_once
    a_request_for_many_holds_up_later_ones
    no_contender_hoards
    several_are_woken_by_one_post
    closing
    closing_races_with_everything
    a_deadline_returns_what_had_come
    a_waiter_that_gives_up_leaves_no_entry_behind
    a_storm_conserves_permits
    a_moved_semaphore_remembers_given_up_tickets
    limits
}

/// The operations over which every check is generic.
trait Form: ConstSemaphore {
    fn acquire_many(&self, n: u32) -> Result<(), Closed>;
    fn acquire_many_until(&self, n: u32, deadline: Instant) -> Result<(), Refused>;
    fn try_acquire_many(&self, n: u32) -> bool;
    fn post(&self, n: u32);
    fn close(&self);
    fn is_closed(&self) -> bool;
    fn available(&self) -> u64;
    fn wanted(&self) -> u64;
}

impl<W: TicketWait, D: Doorway> Form for TicketSema<W, D> {
    fn acquire_many(&self, n: u32) -> Result<(), Closed> {
        self.acquire_many(n)
    }
    fn acquire_many_until(&self, n: u32, deadline: Instant) -> Result<(), Refused> {
        self.acquire_many_until(n, deadline)
    }
    fn try_acquire_many(&self, n: u32) -> bool {
        self.try_acquire_many(n)
    }
    fn post(&self, n: u32) {
        self.post(n);
    }
    fn close(&self) {
        self.close();
    }
    fn is_closed(&self) -> bool {
        self.is_closed()
    }
    fn available(&self) -> u64 {
        self.available()
    }
    fn wanted(&self) -> u64 {
        self.wanted()
    }
}

fn far() -> Instant {
    Instant::now() + Duration::from_secs(3600)
}

fn soon(micros: u64) -> Instant {
    Instant::now() + Duration::from_micros(micros)
}

fn initial_permits<S: Form>(empty: &S) {
    assert_eq!((empty.available(), empty.wanted()), (0, 0));
    let sema = S::new(5);
    assert_eq!(sema.available(), 5);
    assert!(sema.try_acquire_many(2));
    assert_eq!(sema.acquire_many(3), Ok(()));
    assert!(!sema.try_acquire_many(1));
}

fn many_at_once<S: Form>(sema: &S) {
    sema.post(3);
    assert!(!sema.try_acquire_many(4), "one is missing");
    assert_eq!(sema.available(), 3);
    assert_eq!(sema.acquire_many_until(4, soon(300)), Err(Refused::TimedOut));
    assert_eq!(sema.available(), 3, "those that it had found are back");
    scope(|s| {
        let waiter = s.spawn(|| sema.acquire_many(5));
        eventually(|| sema.wanted() == 2);
        sema.post(1);
        eventually(|| sema.wanted() == 1);
        sema.post(2);
        assert_eq!(waiter.join().unwrap(), Ok(()));
    });
    assert_eq!((sema.available(), sema.wanted()), (1, 0));
    assert!(sema.try_acquire_many(0));
    assert_eq!(sema.acquire_many(0), Ok(()));
    assert_eq!(sema.available(), 1);
}

fn a_request_for_many_holds_up_later_ones<S: Form>(sema: &S) {
    let served = Mutex::new(Vec::new());
    scope(|s| {
        for (n, wanted) in [(3, 3), (1, 4), (2, 6)] {
            let served = &served;
            s.spawn(move || {
                sema.acquire_many(n).unwrap();
                served.lock().unwrap().push(n);
            });
            eventually(|| sema.wanted() == wanted);
        }
        sema.post(2);
        assert_eq!(sema.wanted(), 4, "for the first, who wants three");
        assert!(!sema.try_acquire_many(1));
        assert!(served.lock().unwrap().is_empty());
        sema.post(1);
        eventually(|| *served.lock().unwrap() == [3]);
        sema.post(1);
        eventually(|| *served.lock().unwrap() == [3, 1]);
        sema.post(2);
    });
    assert_eq!(served.into_inner().unwrap(), [3, 1, 2]);
}

/// Lets two contenders want two permits each, while there are two: if each kept one permit, both would wait for ever.
fn no_contender_hoards<S: Form>(sema: &S) {
    const ROUNDS: u32 = 3_000;
    sema.post(2);
    scope(|s| {
        for _ in 0..2 {
            s.spawn(|| {
                for round in 0..ROUNDS {
                    sema.acquire_many(2).unwrap();
                    if round % 2 == 0 {
                        sema.post(2);
                    } else {
                        sema.post(1);
                        sema.post(1);
                    }
                }
            });
        }
    });
    assert_eq!((sema.available(), sema.wanted()), (2, 0));
}

fn several_are_woken_by_one_post<S: Form>(sema: &S) {
    const WAITERS: u32 = 12;
    for _ in 0..10 {
        scope(|s| {
            for _ in 0..WAITERS {
                s.spawn(|| sema.acquire_many(1).unwrap());
            }
            eventually(|| sema.wanted() == u64::from(WAITERS));
            sema.post(WAITERS);
        });
    }
}

fn closing<S: Form>(sema: &S) {
    sema.post(1);
    scope(|s| {
        let waiters: Vec<_> = (2..6)
            .map(|n| {
                s.spawn(move || match n % 2 {
                    0 => sema.acquire_many(n).is_err(),
                    _ => sema.acquire_many_until(n, far()) == Err(Refused::Closed),
                })
            })
            .collect();
        eventually(|| sema.wanted() == 2 + 3 + 4 + 5 - 1);
        assert!(!sema.is_closed());
        sema.close();
        assert!(waiters.into_iter().all(|waiter| waiter.join().unwrap()));
    });
    for _ in 0..3 {
        assert!(sema.is_closed());
        assert_eq!(sema.acquire_many(1), Err(Closed));
        assert_eq!(sema.acquire_many(0), Err(Closed));
        assert_eq!(sema.acquire_many_until(1, far()), Err(Refused::Closed));
        assert_eq!(sema.acquire_many_until(1, Instant::now()), Err(Refused::Closed));
        assert!(!sema.try_acquire_many(1) && !sema.try_acquire_many(0));
        assert_eq!((sema.available(), sema.wanted()), (0, 0));
        sema.post(7);
        sema.close();
    }
    let panic = catch_unwind(AssertUnwindSafe(|| sema.acquire(sudog::low_level::sema::Order::Fifo)));
    assert!(panic.is_err(), "the plain acquire has no other way to say it");
}

fn closing_races_with_everything<S: Form>(_: &S) {
    for round in 0..200 {
        let (sema, granted) = (S::new(1), AtomicU64::new(0));
        scope(|s| {
            for thread in 0..3 {
                let (sema, granted) = (&sema, &granted);
                s.spawn(move || {
                    loop {
                        let got = match thread {
                            0 => sema.acquire_many_until(1, soon(50)),
                            n => sema.acquire_many(n).map_err(|Closed| Refused::Closed),
                        };
                        match got {
                            Ok(()) => {
                                granted.fetch_add(1, Relaxed);
                                sema.post(thread.max(1));
                            }
                            Err(Refused::Closed) => break,
                            Err(Refused::TimedOut) => {}
                        }
                    }
                });
            }
            sema.post(2);
            (0..round * 10).for_each(|_| std::hint::spin_loop());
            sema.close();
        });
        assert!(!sema.try_acquire_many(1));
        assert_eq!(sema.wanted(), 0);
    }
}

fn a_deadline_returns_what_had_come<S: Form>(sema: &S) {
    let served = AtomicBool::new(false);
    scope(|s| {
        let hasty = s.spawn(|| sema.acquire_many_until(3, Instant::now() + Duration::from_millis(60)));
        // The clock may be faster than this thread; then there is nothing to see, and nothing to fail.
        eventually(|| sema.wanted() == 3 || hasty.is_finished());
        sema.post(2);
        s.spawn(|| {
            sema.acquire_many(2).unwrap();
            served.store(true, Relaxed);
        });
        assert_eq!(hasty.join().unwrap(), Err(Refused::TimedOut));
    });
    assert!(served.into_inner());
    assert_eq!((sema.available(), sema.wanted()), (0, 0));
}

/// Checks that waiters in line that give up are passed over, and that the others are served in their order.
fn a_waiter_that_gives_up_leaves_no_entry_behind<S: Form>(sema: &S) {
    let mut rng = StdRng::seed_from_u64(7);
    for _ in 0..20 {
        let patient: Vec<bool> = (0..8).map(|_| rng.random()).collect();
        let (served, gone) = (Mutex::new(Vec::new()), AtomicUsize::new(0));
        scope(|s| {
            let mut wanted = 0;
            for (me, &patient) in patient.iter().enumerate() {
                let (served, gone) = (&served, &gone);
                s.spawn(move || {
                    if patient {
                        sema.acquire_many(1).unwrap();
                        served.lock().unwrap().push(me);
                    } else {
                        assert_eq!(sema.acquire_many_until(2, soon(400)), Err(Refused::TimedOut));
                        gone.fetch_add(1, Relaxed);
                    }
                });
                if patient {
                    wanted += 1;
                    eventually(|| sema.wanted() >= wanted && sema.wanted() % 2 == wanted % 2);
                }
            }
            let hasty = patient.iter().filter(|patient| !**patient).count();
            eventually(|| gone.load(Relaxed) == hasty && sema.wanted() == wanted);
            for n in 1..=wanted as usize {
                sema.post(1);
                eventually(|| served.lock().unwrap().len() == n);
            }
        });
        let expected: Vec<_> = (0..patient.len()).filter(|&n| patient[n]).collect();
        assert_eq!(served.into_inner().unwrap(), expected);
        assert_eq!((sema.available(), sema.wanted()), (0, 0));
    }
}

/// Waits with deadlines of any length, for requests of any size, and tries: at the end the permits taken and the
/// permits left add up to the permits posted.
fn a_storm_conserves_permits<S: Form>(sema: &S) {
    const ROUNDS: u32 = 1_500;
    const TAKERS: u64 = 4;
    let (taken, posted, takers) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(TAKERS));
    scope(|s| {
        let (taken, posted, takers) = (&taken, &posted, &takers);
        for seed in 0..TAKERS {
            s.spawn(move || {
                let mut rng = StdRng::seed_from_u64(seed);
                for _ in 0..ROUNDS {
                    let n = if rng.random_range(0..4) == 0 { rng.random_range(2..5) } else { 1 };
                    let got = match rng.random_range(0..6) {
                        0 => sema.try_acquire_many(n),
                        1 => sema.acquire_many(n).is_ok(),
                        _ => sema.acquire_many_until(n, soon(rng.random_range(0..80))).is_ok(),
                    };
                    if got {
                        taken.fetch_add(n.into(), Relaxed);
                    }
                }
                takers.fetch_sub(1, Relaxed);
            });
        }
        for seed in 10..12 {
            s.spawn(move || {
                let mut rng = StdRng::seed_from_u64(seed);
                while takers.load(Relaxed) > 0 {
                    // With many permits no taker would wait.
                    if sema.available() < 4 {
                        let n = rng.random_range(1..4);
                        posted.fetch_add(n.into(), Relaxed);
                        sema.post(n);
                    }
                    match rng.random_range(0..4) {
                        0 => thread::sleep(Duration::from_micros(rng.random_range(0..30))),
                        _ => thread::yield_now(),
                    }
                }
            });
        }
    });
    assert_eq!(sema.wanted(), 0);
    assert_eq!(taken.into_inner() + sema.available(), posted.into_inner());
}

fn a_moved_semaphore_remembers_given_up_tickets<S: Form>(_: &S) {
    let mut semas = VecDeque::new();
    for n in 0..40 {
        let sema = S::INIT;
        for _ in 0..n % 4 {
            assert!(sema.acquire_many_until(1 + n % 3, soon(1)).is_err());
        }
        semas.push_back(sema); // moves this semaphore, and at times all of them
    }
    for sema in semas {
        let sema = Box::new(sema);
        sema.post(1);
        assert_eq!(sema.available(), 1);
        assert!(sema.try_acquire_many(1) && !sema.try_acquire_many(1));
    }
}

fn limits<S: Form>(sema: &S) {
    sema.post(u32::MAX);
    sema.post(u32::MAX);
    assert_eq!(sema.available(), 2 * u64::from(u32::MAX));
    assert!(sema.try_acquire_many(u32::MAX));
    assert_eq!(sema.acquire_many(u32::MAX - 1), Ok(()));
    assert_eq!(sema.acquire_many_until(u32::MAX, soon(200)), Err(Refused::TimedOut));
    sema.post(0);
    assert_eq!(sema.available(), 1);
    for _ in 0..100 {
        assert!(sema.acquire_many_until(u32::MAX, soon(1)).is_err());
    }
    scope(|s| {
        s.spawn(|| sema.acquire_many(3).unwrap());
        eventually(|| sema.wanted() == 2);
        sema.post(u32::MAX);
    });
    assert_eq!(sema.available(), u64::from(u32::MAX) - 2);
}

// ---- the last taker frees it ----------------------------------------------------------------------------------------

/// Frees the semaphore as soon as the taker has its permit, while the poster is still inside its post.
fn freed_at_once<W: TicketWait, D: Doorway>(abandoned: bool) {
    const { assert!(!TicketSema::<W, D>::OUTLIVES_GRANT) };
    const ROUNDS: u32 = 5_000;
    let _watchdog = Watchdog::new();
    let (posts, next) = std::sync::mpsc::sync_channel::<Posted<W, D>>(1);
    scope(|s| {
        s.spawn(move || {
            for Posted(sema) in next {
                // SAFETY: this post makes the semaphore's only permit, and the taker of that permit frees the
                // semaphore, not before.
                unsafe { TicketSema::post_raw(sema, 1) };
            }
        });
        for round in 0..ROUNDS {
            let sema = Box::into_raw(Box::new(TicketSema::<W, D>::INIT));
            // SAFETY: `sema` points to a new box, which is freed only in the last line of the round.
            let shared = unsafe { &*sema };
            if abandoned {
                assert!(shared.acquire_many_until(1, soon(1)).is_err());
            }
            posts.send(Posted(sema)).unwrap();
            (0..round % 128).for_each(|_| std::hint::spin_loop());
            shared.acquire_many(1).unwrap();
            // SAFETY: `sema` came from `Box::into_raw` above. The only permit has been taken, so the poster does not
            // use `sema` any more.
            drop(unsafe { Box::from_raw(sema) });
        }
        drop(posts);
    });
}

struct Posted<W, D>(*const TicketSema<W, D>);

// SAFETY: the pointer is the address of a semaphore, which threads may share.
unsafe impl<W, D> Send for Posted<W, D> {}

#[test]
fn the_last_taker_may_free_it() {
    for abandoned in [false, true] {
        freed_at_once::<ChainWait, sudog::locks::waiting_array::CountedDoorway>(abandoned);
        freed_at_once::<BucketWait, sudog::locks::waiting_array::CountedDoorway>(abandoned);
        freed_at_once::<LocationWait, sudog::locks::waiting_array::CountedDoorway>(abandoned);
        freed_at_once::<ChainWait, Tickets>(abandoned);
        freed_at_once::<ChannelWait, Tickets>(abandoned);
    }
    const {
        assert!(Twa::<SpinThenPark>::OUTLIVES_GRANT && TwaLocation::<SpinThenPark>::OUTLIVES_GRANT);
    }
}

// ---- the primitives -------------------------------------------------------------------------------------------------

const THREADS: u32 = 6;

/// Sets a number to 1, 2, 3, …, while the other threads wait for each value.
fn follows(key: usize, wait: impl Fn(&AtomicU32, u32) + Sync, signal: impl Fn()) {
    const STEPS: u32 = 2_000;
    let _watchdog = Watchdog::new();
    let (x, followers) = (AtomicU32::new(0), AtomicU32::new(0));
    let _ = key;
    scope(|s| {
        for _ in 0..THREADS {
            s.spawn(|| {
                for step in 1..=STEPS {
                    wait(&x, step);
                    followers.fetch_add(1, Relaxed);
                }
            });
        }
        for step in 1..=STEPS {
            x.store(step, Ordering::Release);
            signal();
            if step % 50 == 0 {
                eventually(|| followers.load(Relaxed) == step * THREADS);
            }
        }
    });
}

#[test]
fn addresses() {
    const A: usize = 0x51;
    let wait = |x: &AtomicU32, step| address_wait_until(A, || x.load(Ordering::Acquire) >= step);
    follows(A, wait, || address_signal(A));
    follows(A, wait, || address_signal_polite(A));
}

#[test]
fn addresses_with_deadlines() {
    const A: usize = 0x52;
    let wait = |x: &AtomicU32, step| {
        while !address_wait_until_deadline(A, || x.load(Ordering::Acquire) >= step, soon(30)) {}
    };
    follows(A, wait, || address_signal(A));
    assert!(address_wait_until_deadline(A, || true, Instant::now()));
    let (end, asked) = (soon(2_000), AtomicU32::new(0));
    let never = || {
        asked.fetch_add(1, Relaxed);
        false
    };
    assert!(!address_wait_until_deadline(A, never, end));
    assert!(Instant::now() >= end && asked.into_inner() >= 2);
}

#[test]
fn keys() {
    const K: usize = 0x53;
    let wait = |x: &AtomicU32, step| {
        loop {
            let seen = key_monitor(K);
            if x.load(Ordering::Acquire) >= step {
                return;
            }
            key_wait(K, seen);
        }
    };
    follows(K, wait, || key_signal(K));
    follows(K, wait, || key_signal_polite(K));
    let lazy = |x: &AtomicU32, step| {
        let mut seen = EventKey::default();
        while x.load(Ordering::Acquire) < step {
            key_wait_lazy(K, &mut seen);
        }
    };
    follows(K, lazy, || key_signal(K));
    let until = |x: &AtomicU32, step| {
        loop {
            let seen = key_monitor(K);
            if x.load(Ordering::Acquire) >= step {
                return;
            }
            key_wait_until(K, seen, soon(40));
        }
    };
    follows(K, until, || key_signal(K));
    // A signaller of another key in this channel may end the wait in vain, by a collision.
    let to_the_end = (0..1000).find_map(|_| {
        let (seen, deadline) = (key_monitor(K), soon(500));
        (!key_wait_until(K, seen, deadline)).then(|| {
            assert!(Instant::now() >= deadline);
            seen
        })
    });
    let seen = to_the_end.expect("a thousand waits that nobody has ended all ended early");
    key_signal(K);
    assert!(key_wait_until(K, seen, soon(500)) && key_wait_until(K, seen, Instant::now()));
    key_wait(K, seen);
}

#[test]
fn locations() {
    const L: usize = 0x54;
    let wait = |x: &AtomicU32, step| {
        let mut waiter = LocationWaiter::new();
        while x.load(Ordering::Acquire) < step {
            location_wait(&mut waiter, L);
        }
    };
    follows(L, wait, || location_wake_all(L));
    let until = |x: &AtomicU32, step| {
        let mut waiter = LocationWaiter::new();
        while x.load(Ordering::Acquire) < step {
            waiter.wait_until(L, soon(40));
        }
    };
    follows(L, until, || location_wake_all(L));
}

/// Checks that a waiter that has enlisted, and moves to another location without having been woken, wakes the waiters
/// that it leaves behind.
#[test]
fn a_waiter_that_moves_on() {
    let _watchdog = Watchdog::new();
    let (left, stop) = (AtomicU32::new(0), AtomicBool::new(false));
    scope(|s| {
        for _ in 0..3 {
            s.spawn(|| {
                let mut waiter = LocationWaiter::new();
                for round in 0.. {
                    if stop.load(Relaxed) {
                        break;
                    }
                    // Only threads that move on wake this waiter.
                    waiter.wait(0x1000 + 8 * (round % 5));
                    left.fetch_add(1, Relaxed);
                }
            });
        }
        eventually(|| left.load(Relaxed) > 3_000);
        stop.store(true, Relaxed);
    });
}

#[test]
fn a_condition_that_panics_leaves_the_chain_whole() {
    let _watchdog = Watchdog::new();
    const A: usize = 0x55;
    let (ready, waiting) = (AtomicBool::new(false), AtomicU32::new(0));
    scope(|s| {
        for n in 0..6 {
            let (ready, waiting) = (&ready, &waiting);
            s.spawn(move || {
                let mut looks = 0;
                let condition = || {
                    looks += 1;
                    if looks == 2 {
                        waiting.fetch_add(1, Relaxed); // this waiter is in the chain now
                    }
                    assert!(n % 2 == 0 || looks < 2, "deliberate");
                    ready.load(Ordering::Acquire)
                };
                let outcome = catch_unwind(AssertUnwindSafe(|| address_wait_until(A, condition)));
                assert_eq!(outcome.is_err(), n % 2 == 1);
            });
            eventually(|| waiting.load(Relaxed) == n + 1);
        }
        ready.store(true, Ordering::Release);
        address_signal(A);
    });
}

/// Checks the first call of a waiter whose element is in its place already, because of an earlier user: the caller's
/// look was before that.
#[test]
fn the_first_call_of_a_new_waiter_does_not_wait() {
    let _watchdog = Watchdog::new();
    const L: usize = 0x56;
    for _ in 0..10 {
        LocationWaiter::new().wait(L);
        LocationWaiter::new().wait(L);
    }
}

/// A policy under which other threads act between a waiter's look at the grant and its enlisting.
struct ActsBetween;

static BETWEEN: TwaLocation<ActsBetween, 1, One> = TwaLocation::with_permits(0);

impl sudog::locks::waiting_array::WaitPolicy for ActsBetween {
    const PARKS: bool = true;

    fn pass_time(iter: u32) -> bool {
        if iter == 0 && BETWEEN.wanted() == 1 {
            BETWEEN.post(1); // the grant, and the wake-up
            LocationWaiter::new().wait(0); // a waiter enlists in that bucket, and does nothing else
        }
        false
    }
}

#[test]
fn a_wake_up_between_the_look_and_the_enlisting() {
    let _watchdog = Watchdog::new();
    BETWEEN.acquire_many(1).unwrap();
}

/// Makes one request after another, which together fill a line's 2^60 many times over.
#[test]
fn requests_for_very_many_never_run_out() {
    let ticket = Ticket::new(u32::MAX);
    let closed = Benaphore::new(0);
    closed.close();
    for _ in 0..10_000 {
        ticket.acquire_many(u32::MAX).unwrap();
        ticket.post(u32::MAX);
        assert!(closed.acquire_many(u32::MAX).is_err());
    }
}

/// Lets the taker of the last permit use the memory for something else, which the poster must not touch: the taker
/// checks what the memory contains afterwards.
#[test]
fn a_post_over_a_gap_leaves_what_it_has_given() {
    /// Watches `state` closely, unless the other thread has no processor.
    fn spin_until(state: &dyn Fn() -> bool) {
        while !(0..1000).any(|_| {
            std::hint::spin_loop();
            state()
        }) {
            thread::yield_now();
        }
    }

    const ROUNDS: u32 = 30_000;
    let _watchdog = Watchdog::new();
    type Words = [AtomicU64; 8];
    assert!(size_of::<Benaphore>() <= size_of::<Words>() && align_of::<Benaphore>() <= align_of::<Words>());
    let (words, turn): (Words, _) = (Default::default(), AtomicU32::new(0));
    let place = (&raw const words).expose_provenance();
    let (words, turn) = (&words, &turn);
    scope(|s| {
        s.spawn(move || {
            for round in 0..ROUNDS {
                spin_until(&|| turn.load(Ordering::Acquire) == 2 * round + 1);
                // SAFETY: the semaphore at `place` is alive until its only permit is taken, and this post makes that
                // permit.
                unsafe { Benaphore::post_raw(std::ptr::with_exposed_provenance::<Benaphore>(place), 1) };
                turn.store(2 * round + 2, Ordering::Release);
            }
        });
        for round in 0..ROUNDS {
            let sema = std::ptr::with_exposed_provenance_mut::<Benaphore>(place);
            // SAFETY: `words` is large enough and aligned for a `Benaphore`, and only this thread and, between the
            // turns, the poster use it.
            unsafe { sema.write(Benaphore::new(0)) };
            // SAFETY: `sema` points to the semaphore that was just written.
            let sema = unsafe { &*sema };
            assert!(sema.acquire_many_until(1, Instant::now() + Duration::from_nanos(500)).is_err());
            turn.store(2 * round + 1, Ordering::Release);
            spin_until(&|| sema.try_acquire_many(1));
            // The semaphore is gone. (The gap has been passed, so the semaphore had no memory on the heap.)
            words.iter().for_each(|word| word.store(0, Relaxed));
            spin_until(&|| turn.load(Ordering::Acquire) == 2 * round + 2);
            assert!(words.iter().all(|word| word.load(Relaxed) == 0), "the poster wrote to what was gone");
        }
    });
}
