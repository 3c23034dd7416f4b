//! The checks of [`RawLock`].

use std::mem::ManuallyDrop;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use rand_mt::Mt64;
use sudog_runtime::shim::system::{
    atomic::{AtomicBool, AtomicU32, AtomicU64},
    now, thread,
};
use sudog_sync::RawLock;

use super::{Check, eventually, far, real_or_simulated, scope};
use crate::targets::compose::{DynGuard, DynLock};

/// A function that makes a lock.
type Make = fn() -> DynLock;

pub fn checks<L: RawLock + 'static>() -> Vec<Check> {
    checks_of(DynLock::boxed::<L>)
}

fn checks_of(new: Make) -> Vec<Check> {
    super::checks![new;
        one_at_a_time,
        try_lock_takes_a_free_lock_only,
        a_deadline_in_the_past_is_a_try,
        a_deadline_ends_a_wait_and_not_too_soon,
        a_far_deadline_is_a_lock,
        a_storm_of_timeouts_leaves_nothing_behind,
        a_forgotten_guard_leaves_it_locked,
    ]
}

/// An acquisition that its drop releases.
struct Held<'a>(&'a DynLock, ManuallyDrop<DynGuard>);

impl<'a> Held<'a> {
    fn by_lock(lock: &'a DynLock) -> Self {
        Self(lock, ManuallyDrop::new(lock.lock()))
    }

    fn by_try(lock: &'a DynLock) -> Option<Self> {
        Some(Self(lock, ManuallyDrop::new(lock.try_lock()?)))
    }

    fn until(lock: &'a DynLock, deadline: Instant) -> Option<Self> {
        Some(Self(lock, ManuallyDrop::new(lock.try_lock_until(deadline)?)))
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        // SAFETY:
        // - `self.1` is taken once, here.
        // - `self.1` came from an acquisition of this lock. A `DynGuard` is not `Send`, so neither is `self`, and this is
        //   the thread of the acquisition.
        unsafe { self.0.unlock(ManuallyDrop::take(&mut self.1)) };
    }
}

/// A number that only the holder of a lock counts up. Two holders at once would lose a step, or see each other.
#[derive(Default)]
struct Inside {
    count: AtomicU64,
    somebody: AtomicBool,
}

impl Inside {
    fn visit(&self, _held: &Held<'_>) {
        assert!(!self.somebody.swap(true, Relaxed), "two at once");
        let count = self.count.load(Relaxed);
        if count.is_multiple_of(64) {
            thread::yield_now(); // let others run while this thread is inside
        }
        self.count.store(count + 1, Relaxed);
        self.somebody.store(false, Relaxed);
    }
}

fn one_at_a_time(new: Make, _progress: fn()) {
    const THREADS: u64 = real_or_simulated(4, 3) as u64;
    const ROUNDS: u64 = real_or_simulated(3_000, 3) as u64;
    let (lock, inside) = (new(), Inside::default());
    scope(|s| {
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
    assert_eq!(inside.count.load(Relaxed), THREADS * ROUNDS);
    assert!(!lock.is_locked());
}

fn try_lock_takes_a_free_lock_only(new: Make, _progress: fn()) {
    let lock = new();
    let elsewhere = || scope(|s| s.spawn(|| Held::by_try(&lock).is_some()).join().unwrap());
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

fn a_deadline_in_the_past_is_a_try(new: Make, _progress: fn()) {
    let lock = new();
    let past = now();
    let held = Held::until(&lock, past).expect("free");
    assert!(Held::until(&lock, past).is_none());
    assert!(!scope(|s| s.spawn(|| Held::until(&lock, past).is_some()).join().unwrap()));
    drop(held);
    assert!(Held::until(&lock, past).is_some());
}

fn a_deadline_ends_a_wait_and_not_too_soon(new: Make, _progress: fn()) {
    let lock = new();
    let _held = Held::by_lock(&lock);
    for micros in [50, 500, real_or_simulated(5_000, 1).into()] {
        let deadline = now() + Duration::from_micros(micros);
        assert!(Held::until(&lock, deadline).is_none());
        assert!(now() >= deadline, "it gave up early");
    }
}

fn a_far_deadline_is_a_lock(new: Make, _progress: fn()) {
    let lock = new();
    for round in 0..real_or_simulated(40, 2).into() {
        let (held, started) = (Held::by_lock(&lock), AtomicU32::new(0));
        scope(|s| {
            let waiters: [_; 2] = std::array::from_fn(|_| {
                let (lock, started) = (&lock, &started);
                s.spawn(move || {
                    started.fetch_add(1, Relaxed);
                    Held::until(lock, far()).is_some()
                })
            });
            eventually(|| started.load(Relaxed) == 2);
            // Let the waiters get from spinning to sound asleep: the release must reach them in every state.
            thread::sleep(Duration::from_micros(round * 20));
            drop(held);
            assert!(waiters.into_iter().all(|waiter| waiter.join().unwrap()));
        });
    }
}

fn a_storm_of_timeouts_leaves_nothing_behind(new: Make, _progress: fn()) {
    const ROUNDS: u64 = real_or_simulated(400, 2) as u64;
    const PATIENT: u64 = 2;
    let (lock, inside, in_time) = (new(), Inside::default(), AtomicU64::new(0));
    scope(|s| {
        for seed in 0..real_or_simulated(4, 2).into() {
            let (lock, inside, in_time) = (&lock, &inside, &in_time);
            s.spawn(move || {
                let mut rng = Mt64::new(seed);
                for _ in 0..ROUNDS {
                    let deadline = now() + Duration::from_micros(rng.next_u64() % 60);
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
    assert_eq!(inside.count.load(Relaxed), PATIENT * ROUNDS + in_time.load(Relaxed));
    // If a waiter had stayed in the queue, the lock would be promised to that waiter now, or at the second release.
    for _ in 0..2 {
        assert!(!lock.is_locked());
        drop(Held::by_try(&lock).expect("free"));
        drop(Held::until(&lock, now()).expect("free"));
        drop(Held::by_lock(&lock));
    }
}

fn a_forgotten_guard_leaves_it_locked(new: Make, _progress: fn()) {
    let lock = new();
    let _ = lock.lock(); // a `DynGuard` that is dropped leaves the guard in the box, never dropped
    assert!(lock.is_locked() && lock.try_lock().is_none());
    assert!(scope(|s| s.spawn(|| lock.try_lock().is_none()).join().unwrap()));
    let moved = Box::new(lock);
    assert!(moved.is_locked() && moved.try_lock_until(now()).is_none());
    drop(moved);
}
