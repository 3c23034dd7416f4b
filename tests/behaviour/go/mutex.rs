//! The Go mutex: Go's own tests, tests of the modes that Go's tests leave alone, tests of the guards, and tests of
//! misuse.
#![cfg(all(feature = "locks", not(sudog_loom)))]

use std::cell::RefCell;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex as StdMutex};
use std::thread;
use std::time::{Duration, Instant};

use sudog::locks::waiting_array::{Benaphore, TwaChannel};
use sudog::low_level::policy::{self, Policy, SpinStrategy};
use sudog::low_level::sema::{self, Order, Wake};
use sudog::low_level::{ApiLock, ConstSemaphore, RawLock, RuntimeSema, Semaphore};
#[cfg(target_os = "linux")]
use sudog::study::FutexSema;
use sudog::study::{self, ParkingLotSema};
use sudog::sync::{GoMutex, Mutex, MutexWith, lock_api};
use sudog_lab_core::conformance::{Scope, scope};
use support::{Watchdog, eventually, test_command};

/// The policy of Go since 1.9, except that no waiter ever starves.
enum Never {}
impl Policy for Never {
    const THRESHOLD: Duration = Duration::MAX;
    const STRATEGY: SpinStrategy = policy::Go::STRATEGY;
}

/// A policy under which a waiter starves as soon as it has slept and lost the race.
enum AtOnce {}
impl Policy for AtOnce {
    const THRESHOLD: Duration = Duration::from_nanos(1);
    const STRATEGY: SpinStrategy = SpinStrategy::Spin { rounds: 0, pauses: 0 };
}

/// A policy under which the successor claims the mutex as soon as it watches.
enum ClaimAtOnce {}
impl Policy for ClaimAtOnce {
    const THRESHOLD: Duration = Duration::ZERO;
    const STRATEGY: SpinStrategy = SpinStrategy::Successor { grace: Duration::ZERO };
}

/// Go's policy, with a threshold that leaves the test time to look.
enum Slow {}
impl Policy for Slow {
    const THRESHOLD: Duration = Duration::from_millis(30);
    const STRATEGY: SpinStrategy = policy::Go::STRATEGY;
}

/// Makes a `#[test]` for each check over each semaphore and policy.
macro_rules! over_every_go_mutex {
    (mutexes { $($(#[$cfg:meta])* $module:ident = $S:ty, $P:ty;)+ } checks $checks:tt) => {
        $($(#[$cfg])* mod $module {
            use super::*;
            over_every_go_mutex!(@checks $S, $P, $checks);
        })+
    };
    (@checks $S:ty, $P:ty, { $($check:ident)+ }) => {
        $(#[test] fn $check() {
            let _watchdog = Watchdog::new();
            super::$check::<$S, $P>();
        })+
    };
}

over_every_go_mutex! {
    mutexes {
        runtime_go = RuntimeSema, policy::Go;
        runtime_threads = RuntimeSema, policy::Threads;
        runtime_go_1_8 = RuntimeSema, study::policy::Go1_8;
        runtime_go_1_9 = RuntimeSema, study::policy::Go1_9;
        runtime_fifo = RuntimeSema, study::policy::Fifo;
        runtime_recorded = RuntimeSema, study::policy::Recorded<policy::Go>;
        runtime_never = RuntimeSema, Never;
        runtime_at_once = RuntimeSema, AtOnce;
        runtime_claim_at_once = RuntimeSema, ClaimAtOnce;
        parking_lot_core_go = ParkingLotSema, policy::Go;
        parking_lot_core_threads = ParkingLotSema, policy::Threads;
        parking_lot_core_at_once = ParkingLotSema, AtOnce;
        parking_lot_core_claim_at_once = ParkingLotSema, ClaimAtOnce;
        benaphore_go = Benaphore, policy::Go;
        benaphore_threads = Benaphore, policy::Threads;
        benaphore_claim_at_once = Benaphore, ClaimAtOnce;
        twa_channel_go = TwaChannel, policy::Go;
        #[cfg(target_os = "linux")] futex_go = FutexSema, policy::Go;
        #[cfg(target_os = "linux")] futex_fifo = FutexSema, study::policy::Fifo;
        #[cfg(target_os = "linux")] futex_threads = FutexSema, policy::Threads;
        #[cfg(target_os = "linux")] futex_at_once = FutexSema, AtOnce;
        #[cfg(target_os = "linux")] futex_claim_at_once = FutexSema, ClaimAtOnce;
    }
    checks { hammer fairness crowd timeouts_leave_no_trace a_grant_at_the_deadline_is_not_lost any_thread_may_unlock }
}

/// Checks that the mutex is unlocked, and that no contender has left a trace in its state.
#[track_caller]
fn assert_at_rest<S: Semaphore, P: Policy>(mutex: &GoMutex<S, P>) {
    assert_eq!(format!("{mutex:?}"), "GoMutex { locked: false, woken: false, starving: false, waiters: 0, .. }");
}

// ---- Go's tests -----------------------------------------------------------------------------------------------------

/// Go: `TestSemaphore`.
#[test]
fn semaphore() {
    let _watchdog = Watchdog::new();
    let permits = AtomicU32::new(1);
    scope(|s| {
        for _ in 0..10 {
            s.spawn(|| {
                for _ in 0..1000 {
                    sema::semacquire(&permits);
                    sema::semrelease(&permits, Wake::Normal);
                }
            });
        }
    });
    assert_eq!(permits.into_inner(), 1);
}

/// Go: `TestMutex`; a count replaces Go's race detector.
fn hammer<S: ConstSemaphore, P: Policy>() {
    let mutex = GoMutex::<S, P>::const_new();
    mutex.lock();
    assert!(!mutex.try_lock());
    mutex.unlock();
    assert!(mutex.try_lock());
    mutex.unlock();

    let (inside, tried) = (AtomicU64::new(0), AtomicU64::new(0));
    scope(|s| {
        for _ in 0..10 {
            s.spawn(|| {
                for i in 0..1000 {
                    if i % 3 != 0 {
                        mutex.lock();
                    } else if !mutex.try_lock() {
                        continue;
                    } else {
                        tried.fetch_add(1, Relaxed);
                    }
                    inside.store(inside.load(Relaxed) + 1, Relaxed);
                    mutex.unlock();
                }
            });
        }
    });
    assert_eq!(inside.into_inner(), 10 * 666 + tried.into_inner());
    assert_at_rest(&mutex);
}

/// Go: `TestMutexFairness`.
fn fairness<S: ConstSemaphore, P: Policy>() {
    const NAP: Duration = Duration::from_micros(100);
    let (mutex, stop) = (GoMutex::<S, P>::const_new(), AtomicBool::new(false));
    let start = Instant::now();
    scope(|s| {
        s.spawn(|| {
            while !stop.load(Relaxed) {
                mutex.lock();
                thread::sleep(NAP);
                mutex.unlock();
            }
        });
        for _ in 0..10 {
            thread::sleep(NAP);
            mutex.lock();
            mutex.unlock();
        }
        stop.store(true, Relaxed);
    });
    let took = start.elapsed();
    assert!(took < Duration::from_secs(10), "10 turns took {took:?}");
    assert_at_rest(&mutex);
}

// ---- every semaphore, every mode ------------------------------------------------------------------------------------

fn crowd<S: ConstSemaphore, P: Policy>() {
    const THREADS: u64 = 24;
    const ROUNDS: u64 = 60;
    let (mutex, inside) = (GoMutex::<S, P>::const_new(), AtomicU64::new(0));
    mutex.lock();
    scope(|s| {
        for _ in 0..THREADS {
            s.spawn(|| {
                for round in 0..ROUNDS {
                    mutex.lock();
                    let n = inside.load(Relaxed);
                    if round % 8 == 0 {
                        thread::yield_now();
                    }
                    inside.store(n + 1, Relaxed);
                    mutex.unlock();
                }
            });
        }
        eventually(|| u64::from(mutex.waiters()) == THREADS);
        assert!(mutex.is_locked() && !mutex.try_lock());
        mutex.unlock();
    });
    assert_eq!(inside.into_inner(), THREADS * ROUNDS);
    assert_at_rest(&mutex);
}

fn timeouts_leave_no_trace<S: ConstSemaphore, P: Policy>() {
    let mutex = GoMutex::<S, P>::const_new();
    mutex.lock();
    scope(|s| {
        for n in 0..6 {
            let mutex = &mutex;
            s.spawn(move || assert!(!mutex.try_lock_for(Duration::from_micros(400 * n))));
        }
    });
    assert_eq!(format!("{mutex:?}"), "GoMutex { locked: true, woken: false, starving: false, waiters: 0, .. }");
    mutex.unlock();
    assert_at_rest(&mutex);
}

/// Lets deadlines coincide with the unlock: a waiter that is granted the mutex must take it, or the mutex would stay
/// locked.
fn a_grant_at_the_deadline_is_not_lost<S: ConstSemaphore, P: Policy>() {
    let mutex = GoMutex::<S, P>::const_new();
    for round in 0..60 {
        mutex.lock();
        // Aim both sides at this moment, a little earlier or later.
        let deadline = Instant::now() + Duration::from_micros(150);
        scope(|s| {
            for _ in 0..3 {
                s.spawn(|| {
                    if mutex.try_lock_until(deadline) {
                        mutex.unlock();
                    }
                });
            }
            s.spawn(|| {
                mutex.lock();
                mutex.unlock();
            });
            let aim = deadline - Duration::from_micros(15) + Duration::from_micros(round % 30);
            while Instant::now() < aim {
                std::hint::spin_loop();
            }
            mutex.unlock();
        });
        assert_at_rest(&mutex);
    }
}

fn any_thread_may_unlock<S: ConstSemaphore, P: Policy>() {
    let mutex = GoMutex::<S, P>::const_new();
    for _ in 0..50 {
        mutex.lock();
        scope(|s| {
            s.spawn(|| mutex.unlock());
            mutex.lock();
        });
        mutex.unlock();
    }
    assert_at_rest(&mutex);
}

// ---- one step at a time ---------------------------------------------------------------------------------------------

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Acquire(Order),
    Release(Wake),
}

/// The state that a [`Spy`] and its test share.
#[derive(Default)]
struct Script {
    permits: AtomicU32,
    steps: StdMutex<Vec<Step>>,
    shut: AtomicBool,
    at_gate: AtomicU32,
    /// Holds a releaser while true: after the releaser has changed the mutex's word, before the semaphore releases.
    hold_release: AtomicBool,
    at_release: AtomicU32,
}

/// The runtime's semaphore, which records its steps. A waiter that has its permit must pass a gate before it returns to
/// the mutex. At the gate the test can hold the waiter, and overtake it, for as long as the test likes.
struct Spy(Arc<Script>);

thread_local! {
    static LATEST: RefCell<Arc<Script>> = RefCell::default();
}

/// A mutex over a spy, and the spy's script.
fn spied<P: Policy>() -> (GoMutex<Spy, P>, Arc<Script>) {
    (RawLock::new(), LATEST.take())
}

impl Script {
    fn tell(&self, step: Step) {
        self.steps.lock().unwrap().push(step);
    }

    fn last(&self) -> Option<Step> {
        self.steps.lock().unwrap().last().copied()
    }

    fn queued(&self) -> usize {
        sema::waiters(&self.permits)
    }

    fn gate(&self) {
        self.at_gate.fetch_add(1, Relaxed);
        eventually(|| !self.shut.load(Relaxed));
        self.at_gate.fetch_sub(1, Relaxed);
    }

    /// Unlocks, and returns when the woken waiter stands at the gate.
    fn wake_up_to_the_gate<P: Policy>(&self, mutex: &GoMutex<Spy, P>) {
        self.shut.store(true, Relaxed);
        mutex.unlock();
        eventually(|| self.at_gate.load(Relaxed) == 1);
    }

    /// Opens the gate, and returns when the waiter has left the gate.
    fn open(&self) {
        self.shut.store(false, Relaxed);
        eventually(|| self.at_gate.load(Relaxed) == 0);
    }

    /// Wakes a waiter, overtakes that waiter, and returns when the waiter has lost and sleeps again.
    fn overtake<P: Policy>(&self, mutex: &GoMutex<Spy, P>) {
        let queued = self.queued();
        self.wake_up_to_the_gate(mutex);
        assert_eq!(self.last(), Some(Step::Release(Wake::Normal)));
        assert!(mutex.try_lock(), "in normal mode a newcomer may overtake");
        self.open();
        eventually(|| self.queued() == queued);
        let place = if P::REQUEUE_AT_HEAD { Order::Lifo } else { Order::Fifo };
        assert_eq!(self.last(), Some(Step::Acquire(place)), "to where the policy says");
    }
}

// SAFETY: `Spy` calls the functions of the runtime's semaphore, so `Spy` keeps the contract of `Semaphore` as that
// semaphore does.
unsafe impl Semaphore for Spy {
    const LIFO: bool = true;
    const FIFO: bool = true;
    const HANDOFF: bool = true;
    const DEADLINES: bool = true;

    fn new(permits: u32) -> Self {
        let script = Arc::new(Script { permits: AtomicU32::new(permits), ..Script::default() });
        LATEST.set(script.clone());
        Self(script)
    }

    fn acquire(&self, order: Order) {
        self.0.tell(Step::Acquire(order));
        sema::semacquire_mutex(&self.0.permits, order);
        self.0.gate();
    }

    fn try_acquire(&self) -> bool {
        sema::try_semacquire(&self.0.permits)
    }

    fn acquire_until(&self, order: Order, deadline: Instant) -> bool {
        self.0.tell(Step::Acquire(order));
        let got = sema::semacquire_limited(&self.0.permits, order, deadline).is_ok();
        self.0.gate();
        got
    }

    fn release(&self, wake: Wake) {
        self.0.tell(Step::Release(wake));
        self.0.at_release.fetch_add(1, Relaxed);
        eventually(|| !self.0.hold_release.load(Relaxed));
        self.0.at_release.fetch_sub(1, Relaxed);
        sema::semrelease(&self.0.permits, wake);
    }
}

/// The waiters of a test, in the order in which they got the mutex. Each waiter keeps the mutex until the test ends its
/// turn.
#[derive(Default)]
struct Turns {
    taken: StdMutex<Vec<usize>>,
    over: AtomicU32,
}

impl Turns {
    fn take<P: Policy>(&self, mutex: &GoMutex<Spy, P>, who: usize) {
        mutex.lock();
        let turn = {
            let mut taken = self.taken.lock().unwrap();
            taken.push(who);
            taken.len() as u32
        };
        eventually(|| self.over.load(Relaxed) >= turn);
        mutex.unlock();
    }

    /// Starts `waiters` threads one after another. Each thread sleeps in the queue before the next thread starts.
    fn line_up<'s, P: Policy>(&'s self, s: Scope<'s, '_>, mutex: &'s GoMutex<Spy, P>, spy: &Script, waiters: usize) {
        for waiter in 0..waiters {
            s.spawn(move || self.take(mutex, waiter));
            eventually(|| spy.queued() == waiter + 1);
        }
    }

    fn so_far(&self) -> Vec<usize> {
        self.taken.lock().unwrap().clone()
    }

    fn end_one(&self) {
        self.over.fetch_add(1, Relaxed);
    }
}

/// Checks that `starving` follows from the waiter's time: by the clock that the waiter reads, the waiter has waited at
/// least `at_least` and at most `at_most`. If the threshold lies between the two, both answers are right.
#[track_caller]
fn assert_starving<P: Policy>(starving: bool, at_least: Duration, at_most: Duration) {
    assert!(starving || at_least <= P::THRESHOLD, "not starving after {at_least:?} at least");
    assert!(!starving || at_most > P::THRESHOLD, "starving after {at_most:?} at most");
}

/// Goes from normal mode to starvation mode and back, with `newcomers` that arrive while the mutex is being handed
/// over.
fn starve<P: Policy>(newcomers: usize) {
    let (mutex, spy) = spied::<P>();
    let turns = Turns::default();
    mutex.lock();
    scope(|s| {
        let not_before = Instant::now();
        s.spawn(|| turns.take(&mutex, 0));
        eventually(|| spy.queued() == 1);
        assert_eq!(spy.last(), Some(Step::Acquire(Order::Fifo)));
        let not_after = Instant::now(); // the waiter had begun to wait by now

        while !mutex.is_starving() {
            let woken = Instant::now();
            spy.overtake(&mutex);
            assert_starving::<P>(mutex.is_starving(), woken - not_after, not_before.elapsed());
        }

        // Starvation mode: the mutex is promised to the waiter, and to no other contender.
        spy.wake_up_to_the_gate(&mutex);
        assert_eq!(spy.last(), Some(Step::Release(P::HANDOFF)));
        assert!(!mutex.is_locked() && mutex.is_starving());
        assert!(!mutex.try_lock() && !mutex.try_lock_until(Instant::now()), "a newcomer overtook one who starves");
        let arrival = Instant::now();
        for newcomer in 1..=newcomers {
            let (mutex, turns) = (&mutex, &turns);
            s.spawn(move || turns.take(mutex, newcomer));
            eventually(|| spy.queued() == newcomer);
            assert_eq!(spy.last(), Some(Step::Acquire(Order::Fifo)));
        }
        assert!(turns.so_far().is_empty(), "somebody overtook one who starves");
        let arrived = Instant::now();
        spy.open();
        eventually(|| turns.so_far() == [0]);
        assert!(mutex.is_locked());
        assert_eq!(mutex.waiters() as usize, newcomers);
        // The first waiter has itself waited too long, so only an empty line ends the mode.
        assert_eq!(mutex.is_starving(), newcomers > 0);

        for newcomer in 1..=newcomers {
            let mode = mutex.is_starving();
            let handed = Instant::now();
            turns.end_one();
            eventually(|| turns.so_far().len() == newcomer + 1);
            if mode && newcomer < newcomers {
                assert_starving::<P>(mutex.is_starving(), handed - arrived, arrival.elapsed());
            } else {
                assert!(!mutex.is_starving(), "normal mode again, or the last one in line");
            }
        }
        turns.end_one();
    });
    assert!(turns.so_far().into_iter().eq(0..=newcomers), "first in, first out");
    assert_at_rest(&mutex);
    assert_eq!(spy.permits.load(Relaxed), 0);
}

/// Checks that starvation begins after no less than a millisecond, and then for certain. Go has no test for this
/// threshold.
#[test]
fn starvation_begins_at_gos_threshold_and_not_before() {
    let _watchdog = Watchdog::new();
    for round in 0..20 {
        starve::<policy::Go>(round % 4);
    }
}

#[test]
fn until_1_13_the_releaser_goes_on() {
    let _watchdog = Watchdog::new();
    assert_eq!((study::policy::Go1_9::HANDOFF, policy::Go::HANDOFF), (Wake::Grant, Wake::Handoff));
    starve::<study::policy::Go1_9>(2);
}

/// Checks that a loser goes to the end of the line, as in Go until 1.8.
#[test]
fn in_go_1_8_a_loser_goes_to_the_end() {
    let _watchdog = Watchdog::new();
    let (mutex, spy) = spied::<study::policy::Go1_8>();
    let turns = Turns::default();
    mutex.lock();
    scope(|s| {
        turns.line_up(s, &mutex, &spy, 3);
        spy.overtake(&mutex);
        assert!(!mutex.is_starving());
        mutex.unlock();
        for turn in 1..=3 {
            eventually(|| turns.so_far().len() == turn);
            turns.end_one();
        }
    });
    assert_eq!(turns.so_far(), [1, 2, 0]);
    assert_at_rest(&mutex);
}

/// Checks that no waiter is ever woken to compete: already the first unlock hands the mutex over.
#[test]
fn first_come_first_served() {
    let _watchdog = Watchdog::new();
    let (mutex, spy) = spied::<study::policy::Fifo>();
    let turns = Turns::default();
    mutex.lock();
    scope(|s| {
        turns.line_up(s, &mutex, &spy, 4);
        assert!(mutex.is_starving());
        mutex.unlock();
        for turn in 1..=4 {
            assert!(!mutex.try_lock(), "a newcomer came first");
            eventually(|| turns.so_far().len() == turn);
            assert_eq!(mutex.is_starving(), turn < 4, "as long as somebody waits");
            turns.end_one();
        }
    });
    assert_eq!(turns.so_far(), [0, 1, 2, 3]);
    let steps = spy.steps.lock().unwrap();
    assert!(steps.iter().all(|s| matches!(s, Step::Acquire(Order::Fifo) | Step::Release(Wake::Handoff))), "{steps:?}");
    drop(steps);
    assert_at_rest(&mutex);
}

#[test]
fn a_handoff_to_a_waiter_that_has_not_starved_ends_starvation_mode() {
    let _watchdog = Watchdog::new();
    starve::<Slow>(3);
}

#[test]
fn with_the_least_threshold_a_loser_starves() {
    let _watchdog = Watchdog::new();
    (0..5).for_each(starve::<AtOnce>);
}

#[test]
fn a_loser_goes_back_to_the_front_in_normal_mode() {
    let _watchdog = Watchdog::new();
    let (mutex, spy) = spied::<Never>();
    let turns = Turns::default();
    mutex.lock();
    scope(|s| {
        turns.line_up(s, &mutex, &spy, 4);
        for _ in 0..20 {
            spy.overtake(&mutex);
            assert!(!mutex.is_starving());
            assert_eq!(mutex.waiters(), 4);
        }
        mutex.unlock();
        for turn in 1..=4 {
            eventually(|| turns.so_far().len() == turn);
            turns.end_one();
        }
    });
    assert_eq!(turns.so_far(), [0, 1, 2, 3]);
    assert_at_rest(&mutex);
}

#[test]
fn one_awake_contender_is_enough() {
    let _watchdog = Watchdog::new();
    let (mutex, spy) = spied::<Never>();
    let turns = Turns::default();
    mutex.lock();
    scope(|s| {
        turns.line_up(s, &mutex, &spy, 2);
        spy.wake_up_to_the_gate(&mutex);
        let releases = || spy.steps.lock().unwrap().iter().filter(|s| matches!(s, Step::Release(_))).count();
        assert_eq!(releases(), 1);
        for _ in 0..10 {
            mutex.lock();
            mutex.unlock();
        }
        assert_eq!((releases(), spy.queued()), (1, 1), "an unlock woke another, with one awake already");
        spy.open();
        turns.end_one();
        turns.end_one();
    });
    assert_at_rest(&mutex);
}

impl Script {
    /// Wakes and overtakes the only waiter, under [`AtOnce`], so that the waiter sleeps again and starves. Returns
    /// false if the waiter's deadline came in between.
    fn starve_until<T>(&self, mutex: &GoMutex<Spy, AtOnce>, waiter: &thread::ScopedJoinHandle<'_, T>) -> bool {
        self.shut.store(true, Relaxed);
        mutex.unlock();
        eventually(|| self.at_gate.load(Relaxed) == 1 || waiter.is_finished());
        assert!(mutex.try_lock());
        self.open();
        eventually(|| self.queued() == 1 || waiter.is_finished());
        mutex.is_starving()
    }
}

/// Checks that the last waiter in line ends starvation mode when it gives up.
#[test]
fn a_waiter_that_gives_up_while_starving_leaves_normal_mode_behind() {
    let _watchdog = Watchdog::new();
    let (mutex, spy) = spied::<AtOnce>();
    let mut starved = false;
    while !starved {
        mutex.lock();
        scope(|s| {
            let waiter = s.spawn(|| mutex.try_lock_for(Duration::from_millis(40)));
            eventually(|| spy.queued() == 1 || waiter.is_finished());
            starved = spy.starve_until(&mutex, &waiter);
            assert!(!waiter.join().unwrap(), "it was locked throughout");
        });
        assert_eq!(format!("{mutex:?}"), "GoMutex { locked: true, woken: false, starving: false, waiters: 0, .. }");
        mutex.unlock();
        assert_at_rest(&mutex);
        assert_eq!(spy.permits.load(Relaxed), 0);
    }
}

/// Lets the deadline come when an unlock has taken the waiter off the count, or has promised the mutex to the waiter,
/// but has not reached the semaphore: the permit under way belongs to the waiter, and so does the mutex.
fn woken_at_the_deadline(starving: bool) {
    let _watchdog = Watchdog::new();
    let (mutex, spy) = spied::<AtOnce>();
    let mut met = 0;
    while met < 5 {
        mutex.lock();
        scope(|s| {
            let waiter = s.spawn(|| {
                let got = mutex.try_lock_for(Duration::from_millis(20));
                if got {
                    mutex.unlock();
                }
                got
            });
            eventually(|| spy.queued() == 1 || waiter.is_finished());
            if starving {
                spy.starve_until(&mutex, &waiter);
            }
            spy.hold_release.store(true, Relaxed);
            let unlocker = s.spawn(|| mutex.unlock());
            eventually(|| spy.at_release.load(Relaxed) == 1 || unlocker.is_finished());
            // If the waiter is still in line after the unlock has changed the word, the unlock means this waiter.
            let meant = spy.queued() == 1;
            eventually(|| spy.queued() == 0);
            spy.hold_release.store(false, Relaxed);
            let got = waiter.join().unwrap();
            assert!(got || !meant, "the permit is its own, and it left");
            met += u32::from(meant);
        });
        assert_at_rest(&mutex);
        assert_eq!(spy.permits.load(Relaxed), 0);
    }
}

#[test]
fn a_waiter_woken_at_its_deadline_is_woken() {
    woken_at_the_deadline(false);
}

#[test]
fn a_waiter_handed_the_mutex_at_its_deadline_has_it() {
    woken_at_the_deadline(true);
}

/// Checks that the successor claims the mutex after the threshold and not before, and that the claim holds.
fn claim<P: Policy>() {
    let _watchdog = Watchdog::new();
    if thread::available_parallelism().is_ok_and(|n| n.get() == 1) {
        return; // on a single processor no contender watches, because a watcher would keep the owner from running
    }
    let mutex = GoMutex::<RuntimeSema, P>::const_new();
    for round in 0..50 {
        let (owned, over) = (AtomicBool::new(false), AtomicBool::new(false));
        mutex.lock();
        scope(|s| {
            let start = Instant::now();
            s.spawn(|| {
                mutex.lock();
                owned.store(true, Relaxed);
                eventually(|| over.load(Relaxed));
                mutex.unlock();
            });
            eventually(|| mutex.is_starving());
            let waited = start.elapsed();
            assert!(waited >= P::THRESHOLD, "claimed after {waited:?} at most");
            if round % 2 == 0 {
                eventually(|| mutex.waiters() == 1); // the grace is over: the successor sleeps
            }
            mutex.unlock();
            while !owned.load(Relaxed) {
                assert!(!mutex.try_lock(), "a newcomer took what the successor had claimed");
            }
            assert!(!mutex.is_starving(), "a claim is for one handoff");
            over.store(true, Relaxed);
        });
        assert_at_rest(&mutex);
    }
}

#[test]
fn a_successor_claims_the_mutex_after_the_threshold_and_gets_it() {
    claim::<policy::Threads>();
}

#[test]
fn a_successor_may_claim_at_once() {
    claim::<ClaimAtOnce>();
}

// ---- the mutex with its value ---------------------------------------------------------------------------------------

#[test]
fn sizes() {
    // Debug builds store the owner, for the deadlock report, and the number of the lock, for the check of the order.
    const OWNER: usize = if cfg!(debug_assertions) { 16 } else { 0 };
    assert_eq!(size_of::<GoMutex>(), 8 + OWNER);
    assert_eq!(size_of::<Mutex<()>>(), 8 + OWNER);
    assert_eq!(size_of::<Mutex<u64>>(), 16 + OWNER);
    assert_eq!(size_of::<GoMutex<ParkingLotSema, policy::Go>>(), 8 + OWNER);
}

#[test]
fn a_mutex_needs_no_annotations() {
    let mutex = Mutex::new(5);
    *mutex.lock() += 1;
    assert_eq!(*mutex.lock(), 6);
    assert_eq!(mutex.into_inner(), 6);
    assert_eq!(*Mutex::<u8>::default().lock(), 0);
}

#[test]
fn a_static_mutex() {
    static TOTAL: Mutex<u64> = Mutex::new(0);
    let _watchdog = Watchdog::new();
    scope(|s| (0..4).for_each(|_| drop(s.spawn(|| (0..500).for_each(|_| *TOTAL.lock() += 1)))));
    assert_eq!(*TOTAL.lock(), 2_000);
}

#[test]
fn try_lock_for_and_until() {
    let mutex = Mutex::new(());
    let guard = mutex.try_lock_for(Duration::MAX).expect("free, and past the end of time");
    let deadline = Instant::now() + Duration::from_millis(2);
    assert!(mutex.try_lock().is_none() && mutex.try_lock_for(Duration::ZERO).is_none());
    assert!(mutex.try_lock_until(deadline).is_none());
    assert!(Instant::now() >= deadline);
    drop(guard);
    assert!(mutex.try_lock_for(Duration::ZERO).is_some());
}

#[test]
fn a_mapped_guard_is_the_guard() {
    let mutex = Mutex::new((1, "one"));
    let mut number = lock_api::MutexGuard::map(mutex.lock(), |pair| &mut pair.0);
    *number = 2;
    assert!(mutex.try_lock().is_none());
    drop(number);
    assert_eq!(*mutex.try_lock().expect("free"), (2, "one"));
}

#[test]
fn an_arc_guard_keeps_the_mutex() {
    let mutex = Arc::new(Mutex::new(vec![1]));
    let mut guard = mutex.lock_arc();
    assert!(mutex.try_lock_arc().is_none());
    let weak = Arc::downgrade(&mutex);
    drop(mutex);
    guard.push(2);
    let mutex = weak.upgrade().expect("the guard keeps it");
    drop(guard);
    assert_eq!(*mutex.lock(), [1, 2]);
}

#[test]
fn a_guard_may_be_dropped_on_another_thread() {
    let _watchdog = Watchdog::new();
    let mutex = Mutex::new(0);
    let guard = mutex.lock();
    scope(|s| {
        s.spawn(move || {
            let mut guard = guard;
            *guard = 1;
        });
        assert_eq!(*mutex.lock(), 1);
    });
}

#[test]
fn a_panic_unlocks_and_poisons_nothing() {
    let mutex = Mutex::new(0);
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        *mutex.lock() = 1;
        let mut guard = mutex.lock();
        *guard += 1;
        std::panic::resume_unwind(Box::new("no message"));
    }));
    assert!(outcome.is_err());
    assert_eq!(*mutex.try_lock().expect("unlocked by the unwinding"), 2);
}

#[test]
fn a_forgotten_guard_can_be_unlocked_by_force() {
    let mutex = Mutex::new(());
    std::mem::forget(mutex.lock());
    assert!(mutex.is_locked());
    // SAFETY: the guard above was forgotten.
    unsafe { mutex.force_unlock(()) };
    assert!(!mutex.is_locked());
}

#[test]
fn a_mutex_over_any_lock() {
    fn count<R: lock_api::RawMutex + Sync>(mutex: lock_api::Mutex<R, u32>) {
        scope(|s| (0..4).for_each(|_| drop(s.spawn(|| (0..500).for_each(|_| *mutex.lock() += 1)))));
        assert_eq!(mutex.into_inner(), 2_000);
    }
    let _watchdog = Watchdog::new();
    count(MutexWith::<GoMutex<RuntimeSema, policy::Go>, _>::new(0));
    count(MutexWith::<GoMutex<ParkingLotSema>, _>::new(0));
    #[cfg(target_os = "linux")]
    count(MutexWith::<GoMutex<FutexSema, policy::Go>, _>::new(0));
    count(MutexWith::<sudog_lab_core::locks::StdMutex, _>::new(0));
    count(MutexWith::<sudog_lab_core::locks::ParkingLot013<true>, _>::new(0));
    count(MutexWith::from_raw(ApiLock::new(GoMutex::<RuntimeSema>::const_new()), 0));
}

// ---- misuse ---------------------------------------------------------------------------------------------------------

/// The environment variable that tells a child process which misuse to commit.
const MISUSE: &str = "SUDOG_TEST_MISUSE";

fn unlock<S: ConstSemaphore, P: Policy>() {
    GoMutex::<S, P>::const_new().unlock();
}

fn lock_unlock_unlock<S: ConstSemaphore, P: Policy>() {
    let mutex = GoMutex::<S, P>::const_new();
    mutex.lock();
    mutex.unlock();
    mutex.unlock();
}

const MISUSES: &[fn()] = &[
    unlock::<RuntimeSema, policy::Go>,
    unlock::<RuntimeSema, policy::Threads>,
    unlock::<ParkingLotSema, policy::Go>,
    unlock::<ParkingLotSema, policy::Threads>,
    lock_unlock_unlock::<RuntimeSema, policy::Go>,
    lock_unlock_unlock::<RuntimeSema, policy::Threads>,
    lock_unlock_unlock::<ParkingLotSema, policy::Go>,
    lock_unlock_unlock::<ParkingLotSema, policy::Threads>,
    #[cfg(target_os = "linux")]
    unlock::<FutexSema, policy::Go>,
    #[cfg(target_os = "linux")]
    unlock::<FutexSema, policy::Threads>,
    #[cfg(target_os = "linux")]
    lock_unlock_unlock::<FutexSema, policy::Go>,
    #[cfg(target_os = "linux")]
    lock_unlock_unlock::<FutexSema, policy::Threads>,
];

/// Go: `TestMutexMisuse`. The test runs itself again as a child process for each misuse.
#[test]
fn misuse() {
    if let Ok(case) = std::env::var(MISUSE) {
        let outcome = catch_unwind(MISUSES[case.parse::<usize>().unwrap()]);
        // Write to standard error directly: the harness captures printed output.
        let _ = writeln!(std::io::stderr(), "survived: {outcome:?}");
        std::process::exit(0);
    }
    for case in 0..MISUSES.len() {
        let child = test_command(module_path!(), "misuse")
            .env(MISUSE, case.to_string())
            .stdout(Stdio::null())
            .output()
            .unwrap();
        assert_eq!(
            String::from_utf8_lossy(&child.stderr),
            "fatal error: sync: unlock of unlocked mutex\n",
            "case {case}"
        );
        #[cfg(unix)]
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&child.status), Some(6), "case {case}: not aborted");
        assert!(!child.status.success());
    }
}
