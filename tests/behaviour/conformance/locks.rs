//! The checks of [`RawLock`].

use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use sudog::sync::RawLock;
use sudog_lab::compose::{StudyJob, StudyName, with_study};
use sudog_lab::locks::{Job, LockName, with_lock};

/// The checks, for each lock of a registry.
macro_rules! over_every_lock {
    ($($registry:tt)*) => {
        crate::conformance::over_every_backend! {
            $($registry)*
            checks {
                one_at_a_time
                try_lock_takes_a_free_lock_only
                a_deadline_in_the_past_is_a_try
                a_deadline_ends_a_wait_and_not_too_soon
                a_far_deadline_is_a_lock
                a_storm_of_timeouts_leaves_nothing_behind
                a_forgotten_guard_leaves_it_locked
            }
        }
    };
}

over_every_lock! {
    with_lock of LockName, Job over RawLock;
    backends {
        go = Go;
        go_1_14 = Go114;
        go_1_9 = Go19;
        go_1_8 = Go18;
        go_fifo = GoFifo;
        go_parking_lot_core = GoParkingLotCore;
        #[cfg(target_os = "linux")] go_futex = GoFutex;
        go_benaphore = GoBenaphore;
        go_ticket = GoTicket;
        go_twa = GoTwa;
        go_twa_chain = GoTwaChain;
        go_twa_channel = GoTwaChannel;
        go_twa_location = GoTwaLocation;
        v1 = V1;
        v2 = V2;
        v3 = V3;
        v4 = V4;
        v5 = V5;
        v6 = V6;
        v7 = V7;
        std_mutex = Std;
        parking_lot_0_12 = ParkingLot012;
        parking_lot_0_12_fair = ParkingLot012Fair;
        parking_lot_0_13 = ParkingLot013;
        parking_lot_0_13_fair = ParkingLot013Fair;
        #[cfg(unix)] pthread = Pthread;
        tts = Tts;
        ticket_lock = Ticket;
        mcs = Mcs;
        clh = Clh;
        lifo = Lifo;
        reciprocating = Reciprocating;
        tts_spin = TtsSpin;
        tts_yield = TtsYield;
        ticket_lock_spin = TicketSpin;
        mcs_spin = McsSpin;
        mcs_yield = McsYield;
        clh_spin = ClhSpin;
        lifo_spin = LifoSpin;
        reciprocating_spin = ReciprocatingSpin;
        tas_backoff = TasBackoff;
        anderson = Anderson;
        cna = Cna;
        twa_lock_model = TwaLockModel;
        bar_david_tts = BarDavidTts;
        bar_david_lifo = BarDavidLifo;
        bar_david_mcs = BarDavidMcs;
        std_model = StdModel;
        parking_lot_model = ParkingLotModel;
    }
}

over_every_lock! {
    with_study of StudyName, StudyJob over RawLock;
    backends {
        capacitor_go = CapacitorGo;
        capacitor_go_gated = CapacitorGoGated;
        capacitor_go_fractional = CapacitorGoFractional;
        sliding_go = SlidingGo;
        sliding_go_always = SlidingGoAlways;
        multilane_go = MultilaneGo;
        separate_go = SeparateGo;
        capacitor_tts = CapacitorTts;
        sliding_tts = SlidingTts;
        capacitor_lifo = CapacitorLifo;
        sliding_lifo = SlidingLifo;
        sliding_mcs = SlidingMcs;
        sliding_clh = SlidingClh;
        sliding_ticket = SlidingTicket;
        sliding_reciprocating = SlidingReciprocating;
        boxed = Boxed;
    }
}

/// An acquisition that its drop releases. As `Send` as the lock's guard is, so it is released where that is allowed.
struct Held<'a, L: RawLock>(&'a L, ManuallyDrop<L::Guard>);

impl<'a, L: RawLock> Held<'a, L> {
    fn by_lock(lock: &'a L) -> Self {
        Self(lock, ManuallyDrop::new(lock.lock()))
    }

    fn by_try(lock: &'a L) -> Option<Self> {
        Some(Self(lock, ManuallyDrop::new(lock.try_lock()?)))
    }

    fn until(lock: &'a L, deadline: Instant) -> Option<Self> {
        Some(Self(lock, ManuallyDrop::new(lock.try_lock_until(deadline)?)))
    }
}

impl<L: RawLock> Drop for Held<'_, L> {
    fn drop(&mut self) {
        // SAFETY:
        // - it is taken once, here;
        // - it came from an acquisition of this lock; if it is not `Send` then `self` is not, and we are on its thread.
        unsafe { self.0.unlock(ManuallyDrop::take(&mut self.1)) };
    }
}

/// A number that only the holder of a lock counts up. Two at once would lose a step, or see each other.
#[derive(Default)]
struct Inside {
    count: AtomicU64,
    somebody: AtomicBool,
}

impl Inside {
    fn visit<L: RawLock>(&self, _held: &Held<'_, L>) {
        assert!(!self.somebody.swap(true, Relaxed), "two at once");
        let count = self.count.load(Relaxed);
        if count.is_multiple_of(64) {
            thread::yield_now(); // be overtaken in here
        }
        self.count.store(count + 1, Relaxed);
        self.somebody.store(false, Relaxed);
    }
}

fn far() -> Instant {
    Instant::now() + Duration::from_secs(3600)
}

fn one_at_a_time<L: RawLock>() {
    const THREADS: u64 = 4;
    const ROUNDS: u64 = 3_000;
    let (lock, inside) = (L::new(), Inside::default());
    thread::scope(|s| {
        for thread in 0..THREADS {
            let (lock, inside) = (&lock, &inside);
            s.spawn(move || {
                for round in 0..ROUNDS {
                    let held = match (thread + round) % 3 {
                        0 => Held::by_lock(lock),
                        1 => Held::until(lock, far()).expect("the lock comes before the hour is over"),
                        _ => Held::by_try(lock).unwrap_or_else(|| Held::by_lock(lock)),
                    };
                    inside.visit(&held);
                }
            });
        }
    });
    assert_eq!(inside.count.into_inner(), THREADS * ROUNDS);
    assert!(!lock.is_locked());
}

fn try_lock_takes_a_free_lock_only<L: RawLock>() {
    let lock = L::new();
    let elsewhere = || thread::scope(|s| s.spawn(|| Held::by_try(&lock).is_some()).join().unwrap());
    assert!(!lock.is_locked());
    for acquire in [|lock| Held::by_try(lock).expect("free"), Held::by_lock, |lock| Held::until(lock, far()).unwrap()] {
        let held = acquire(&lock);
        assert!(lock.is_locked());
        assert!(Held::by_try(&lock).is_none(), "held");
        assert!(!elsewhere(), "held, as another thread sees it");
        drop(held);
        assert!(!lock.is_locked());
        assert!(elsewhere(), "free, as another thread sees it");
    }
    assert!(Held::by_try(&lock).is_some());
}

fn a_deadline_in_the_past_is_a_try<L: RawLock>() {
    let lock = L::new();
    let past = Instant::now();
    let held = Held::until(&lock, past).expect("free");
    assert!(Held::until(&lock, past).is_none());
    assert!(!thread::scope(|s| s.spawn(|| Held::until(&lock, past).is_some()).join().unwrap()));
    drop(held);
    assert!(Held::until(&lock, past).is_some());
}

fn a_deadline_ends_a_wait_and_not_too_soon<L: RawLock>() {
    let lock = L::new();
    let _held = Held::by_lock(&lock);
    for micros in [50, 500, 5_000] {
        let deadline = Instant::now() + Duration::from_micros(micros);
        assert!(Held::until(&lock, deadline).is_none());
        assert!(Instant::now() >= deadline, "it gave up early");
    }
}

fn a_far_deadline_is_a_lock<L: RawLock>() {
    let lock = L::new();
    for round in 0..40 {
        let held = Held::by_lock(&lock);
        thread::scope(|s| {
            let (starts, started) = channel();
            let waiters: [_; 2] = std::array::from_fn(|_| {
                let (lock, starts) = (&lock, starts.clone());
                s.spawn(move || {
                    starts.send(()).unwrap();
                    Held::until(lock, far()).is_some()
                })
            });
            started.recv().unwrap();
            started.recv().unwrap();
            // From spinning to sound asleep: whatever they are at, the release must reach them.
            thread::sleep(Duration::from_micros(round * 20));
            drop(held);
            assert!(waiters.into_iter().all(|waiter| waiter.join().unwrap()));
        });
    }
}

fn a_storm_of_timeouts_leaves_nothing_behind<L: RawLock>() {
    const ROUNDS: u64 = 400;
    const PATIENT: u64 = 2;
    let (lock, inside, in_time) = (L::new(), Inside::default(), AtomicU64::new(0));
    thread::scope(|s| {
        for seed in 0..4 {
            let (lock, inside, in_time) = (&lock, &inside, &in_time);
            s.spawn(move || {
                let mut rng = StdRng::seed_from_u64(seed);
                for _ in 0..ROUNDS {
                    let deadline = Instant::now() + Duration::from_micros(rng.random_range(0..60));
                    if let Some(held) = Held::until(lock, deadline) {
                        in_time.fetch_add(1, Relaxed);
                        inside.visit(&held);
                    }
                }
            });
        }
        for _ in 0..PATIENT {
            s.spawn(|| (0..ROUNDS).for_each(|_| inside.visit(&Held::by_lock(&lock))));
        }
    });
    assert_eq!(inside.count.into_inner(), PATIENT * ROUNDS + in_time.into_inner());
    // Had a waiter stayed in line, the lock would be promised to it now, or at the second release.
    for _ in 0..2 {
        assert!(!lock.is_locked());
        drop(Held::by_try(&lock).expect("free"));
        drop(Held::until(&lock, Instant::now()).expect("free"));
        drop(Held::by_lock(&lock));
    }
}

fn a_forgotten_guard_leaves_it_locked<L: RawLock>() {
    let lock = L::new();
    std::mem::forget(lock.lock());
    assert!(lock.is_locked() && lock.try_lock().is_none());
    assert!(thread::scope(|s| s.spawn(|| lock.try_lock().is_none()).join().unwrap()));
    let moved = Box::new(lock);
    assert!(moved.is_locked() && moved.try_lock_until(Instant::now()).is_none());
    drop(moved);
}
