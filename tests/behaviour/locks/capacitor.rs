//! Capacitors: which threads are let through, how often a waiter is overtaken, and that a waiter that gives up leaves
//! no trace.
#![cfg(all(feature = "locks", not(sudog_loom)))]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex as StdMutex};
use std::thread;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use sudog::locks::capacitor::{
    Admission, Always, ArriveDepart, Capacitor, Fractional, Gated, LaneChoice, Multilane, Path, Platoon, SeparateLanes,
    Sliding, SlidingWindow, WindowTicket, Wrapped,
};
use sudog::locks::waiting_array::{Benaphore, SpinThenPark, Ticket, Twa};
use sudog::low_level::{ApiLock, RawLock, RuntimeSema, Semaphore};
use sudog::study::{self, FifoMutex, ParkingLotSema};
use sudog::sync::{Cond, GoMutex, MutexWith, lock_api};
use sudog_lab_core::conformance::scope;
use support::{Watchdog, eventually, test_command};

fn soon() -> Instant {
    Instant::now() + Duration::from_millis(1)
}

fn far() -> Instant {
    Instant::now() + Duration::from_secs(3600)
}

// ---- arrivals ---------------------------------------------------------------------------------------------

fn a_platoon<S: Semaphore>() {
    let platoon = Platoon::<S>::with_limit(3);
    for _ in 0..4 {
        (0..3).for_each(|_| platoon.try_arrive().expect("room for three"));
        for _ in 0..3 {
            assert!(platoon.try_arrive().is_none(), "a fourth");
            assert!(platoon.arrive_until(soon()).is_none());
            platoon.depart(());
        }
    }
}

#[test]
fn a_platoon_goes_when_all_of_the_one_before_have_departed() {
    a_platoon::<Benaphore>();
    a_platoon::<Ticket>();
    a_platoon::<Twa>();
    a_platoon::<RuntimeSema>();
    a_platoon::<ParkingLotSema>();
}

#[test]
fn a_window_moves_with_the_first() {
    let window = SlidingWindow::new(3);
    let [a, b, c] = [(); 3].map(|()| window.try_arrive().expect("room for three"));
    window.depart(b);
    window.depart(c);
    assert!(window.try_arrive().is_none(), "two have come since the first");
    gives_up(&window);
    assert_eq!(window.present(), 4, "the one that gave up is there until the first departs");
    window.depart(a);
    assert_eq!(window.present(), 0);
    assert!(window.is_idle());
}

/// Arrives, waits, and gives up, with a deadline that has not passed before the arrival draws its ticket.
fn gives_up(window: &SlidingWindow) {
    let before = window.drawn();
    let mut patience = Duration::from_millis(1);
    while window.drawn() == before {
        assert!(window.arrive_until(Instant::now() + patience).is_none());
        patience *= 2;
    }
}

#[test]
fn lanes_that_are_counted_together_go_together() {
    let lanes = Multilane::with_lanes(3, 2);
    assert_eq!(lanes.bound(), Some(5));
    for _ in 0..3 {
        let tickets: Vec<_> = (0..6).map(|_| lanes.try_arrive().expect("room for six")).collect();
        for ticket in tickets {
            assert!(lanes.try_arrive().is_none(), "a seventh");
            assert!(lanes.arrive_until(soon()).is_none());
            lanes.depart(ticket);
        }
    }
}

#[test]
fn lanes_of_a_thread_of_its_own() {
    let lanes = SeparateLanes::<Benaphore>::with_lanes(2, 1, LaneChoice::ByThread);
    let _held = lanes.arrive();
    assert!(lanes.try_arrive().is_none(), "always the same lane");
    assert_eq!(lanes.bound(), None);
}

#[test]
fn an_arrived_thread_departs_in_a_panic() {
    let window = SlidingWindow::new(1);
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        let _arrival = window.pass();
        panic!("inside");
    }));
    assert!(unwound.is_err());
    assert!(window.is_idle());
    assert!(window.pass_until(soon()).is_some());
    let arrival = window.pass();
    assert!(window.pass_until(soon()).is_none(), "that one has not departed");
    drop(arrival);
    // A thread that forgets to depart closes the window, and causes no other harm.
    std::mem::forget(window.pass());
    assert!(window.try_arrive().is_none());
}

/// Checks that waiters are let through in the order of their arrival: with a limit of 1 each waits for the waiter
/// before it.
fn in_line<C: ArriveDepart + 'static>(drawn: fn(&C) -> u64) {
    const WAITERS: u64 = 10;
    let _watchdog = Watchdog::new();
    let (capacitor, order) = (C::with_limit(1), StdMutex::new(Vec::new()));
    scope(|s| {
        let held = capacitor.arrive();
        let before = drawn(&capacitor);
        for n in 0..WAITERS {
            let (capacitor, order) = (&capacitor, &order);
            s.spawn(move || {
                let ticket = capacitor.arrive();
                order.lock().unwrap().push(n);
                capacitor.depart(ticket);
            });
            eventually(|| drawn(capacitor) == before + n + 1);
        }
        capacitor.depart(held);
    });
    assert_eq!(order.into_inner().unwrap(), (0..WAITERS).collect::<Vec<_>>());
}

#[test]
fn first_come_first_let_through() {
    in_line::<SlidingWindow>(SlidingWindow::drawn);
    in_line::<Platoon<Benaphore>>(|p| p.semaphore().wanted());
    in_line::<Platoon<Twa>>(|p| p.semaphore().wanted());
}

// ---- giving up ------------------------------------------------------------------------------------------------------

/// Lets more waiters give up than a window has bits, in front of some that stay.
#[test]
fn a_crowd_that_gives_up_is_not_waited_for() {
    let _watchdog = Watchdog::new();
    const CROWD: u64 = 40;
    for limit in [1, 4, 31] {
        let (window, through) = (SlidingWindow::new(limit), AtomicU32::new(0));
        scope(|s| {
            let held: Vec<_> = (0..limit).map(|_| window.arrive()).collect();
            for _ in 0..CROWD {
                gives_up(&window);
            }
            assert_eq!(window.drawn(), u64::from(limit) + CROWD);
            for n in 0..8 {
                s.spawn(|| {
                    let ticket = window.arrive();
                    through.fetch_add(1, Relaxed);
                    window.depart(ticket);
                });
                eventually(|| window.drawn() == u64::from(limit) + CROWD + n + 1);
            }
            assert_eq!(through.load(Relaxed), 0);
            held.into_iter().rev().for_each(|ticket| window.depart(ticket));
        });
        assert_eq!((through.into_inner(), window.present()), (8, 0));
    }
}

/// Lets waiters arrive far from the base and near it, with and without deadlines, all at once: while a ticket holds up
/// the base, more waiters give up behind that ticket than the window has bits.
#[test]
fn a_storm_of_late_waiters() {
    const LIMIT: u32 = 4;
    const CROWD: u32 = 60;
    let watchdog = Watchdog::new();
    let window: SlidingWindow = SlidingWindow::with_limit_at(LIMIT, u32::MAX - 1000);
    let (inside, over) = (AtomicU32::new(0), AtomicBool::new(false));
    let visit = |ticket| {
        assert!(inside.fetch_add(1, Relaxed) < LIMIT, "too many are let through");
        inside.fetch_sub(1, Relaxed);
        window.depart(ticket);
    };
    scope(|s| {
        for poller in 0..4 {
            let (window, over, visit) = (&window, &over, &visit);
            s.spawn(move || {
                let mut rng = StdRng::seed_from_u64(poller);
                while !over.load(Relaxed) {
                    let patience = Duration::from_micros(rng.random_range(0..50));
                    window.arrive_until(Instant::now() + patience).into_iter().for_each(visit);
                }
            });
        }
        for _ in 0..2 {
            s.spawn(|| {
                while !over.load(Relaxed) {
                    visit(window.arrive());
                }
            });
        }
        for _ in 0..100 {
            let ticket = window.arrive();
            eventually(|| window.present() >= CROWD);
            visit(ticket);
            watchdog.pat();
        }
        over.store(true, Relaxed);
    });
    assert_eq!(window.present(), 0);
}

/// A lock in the capacitor `C`, for a `C` that can tell that it is empty.
type Gate<L, C> = Wrapped<L, C, Gated>;

fn at_rest<L: RawLock, C: ArriveDepart>(lock: &Gate<L, C>) {
    assert!(lock.capacitor().is_idle());
    let pass = lock.try_lock().expect("nobody has it");
    assert!(pass.ticket().is_none(), "past the capacitor");
    // SAFETY: `pass` is the guard of this lock, and has not been released.
    unsafe { lock.unlock(pass) };
}

#[test]
fn a_waiter_that_gives_up_departs() {
    fn check<C: ArriveDepart>() {
        let lock = Gate::<GoMutex, C>::new();
        let pass = lock.lock();
        assert!(lock.try_lock().is_none());
        assert!(lock.try_lock_until(soon()).is_none());
        assert!(lock.capacitor().is_idle());
        // SAFETY: `pass` is the guard of this lock, and has not been released.
        unsafe { lock.unlock(pass) };
        at_rest(&lock);
        // Take the inner lock by hand, so that callers wait for the inner lock.
        lock.inner().lock();
        for _ in 0..10 {
            assert!(lock.try_lock_until(soon()).is_none());
        }
        lock.inner().unlock();
        at_rest(&lock);
    }
    check::<SlidingWindow>();
    check::<Platoon<Benaphore>>();
    check::<Platoon<RuntimeSema>>();
}

#[test]
fn a_condition_is_waited_for_outside() {
    let _watchdog = Watchdog::new();
    fn check<R: sudog::low_level::ConstRawLock>(mutex: &MutexWith<R, bool>) {
        let cond = Cond::new();
        scope(|s| {
            let waiter = s.spawn(|| {
                let mut ready = mutex.lock();
                while !*ready {
                    cond.wait(&mut ready);
                }
            });
            // If the waiter stayed inside the capacitor during the wait, no other thread would get in: the limit is 1.
            loop {
                let mut ready = mutex.lock();
                *ready = true;
                cond.broadcast();
                drop(ready);
                if waiter.is_finished() {
                    break;
                }
                thread::yield_now();
            }
        });
    }
    let window = Wrapped::with(FifoMutex::<RuntimeSema>::new(), SlidingWindow::new(1), Always);
    check(&lock_api::Mutex::from_raw(ApiLock::new(window), false));
    let platoon = Wrapped::with(FifoMutex::<RuntimeSema>::new(), Platoon::<Benaphore>::with_limit(1), Always);
    check(&lock_api::Mutex::from_raw(ApiLock::new(platoon), false));
}

#[test]
fn a_panic_in_the_critical_section_leaves_it_unlocked() {
    static SLIDING: MutexWith<Sliding<GoMutex>, u32> = MutexWith::new(0);
    static WINDOW: MutexWith<Sliding<GoMutex, Always>, u32> = MutexWith::new(0);
    static CAPACITOR: MutexWith<Capacitor<GoMutex>, u32> = MutexWith::new(0);
    static FRACTIONAL: MutexWith<Capacitor<GoMutex, RuntimeSema, Fractional>, u32> = MutexWith::new(0);
    fn check<R: sudog::low_level::ConstRawLock>(mutex: &MutexWith<R, u32>) {
        for n in 1..=100 {
            let unwound = catch_unwind(AssertUnwindSafe(|| {
                *mutex.lock() += 1;
                let _guard = mutex.lock();
                panic!("inside");
            }));
            assert!(unwound.is_err());
            assert_eq!(*mutex.try_lock().expect("unlocked"), n);
        }
    }
    check(&SLIDING);
    check(&WINDOW);
    check(&CAPACITOR);
    check(&FRACTIONAL);
}

/// Lets a thread admit goroutines that wait in lanes.
#[cfg(unix)]
#[test]
fn goroutines_in_lanes() {
    use sudog::{run, spawn};
    let _watchdog = Watchdog::new();

    let lock = Arc::new(Wrapped::with(GoMutex::new(), Multilane::with_lanes(2, 2), Always));
    let visit = |lock: &Wrapped<GoMutex, Multilane, Always>| {
        let pass = lock.lock();
        // SAFETY: `pass` is the guard of this lock, and has not been released.
        unsafe { lock.unlock(pass) };
    };
    for _ in 0..2 {
        let pass = lock.lock();
        let theirs = lock.clone();
        scope(|s| {
            let goroutines = s.spawn(move || {
                run(|| {
                    let visits = |lock: Arc<_>| move || visit(&lock);
                    let goroutines = [(); 20].map(|()| spawn(visits(theirs.clone())));
                    goroutines.into_iter().for_each(|goroutine| goroutine.join().unwrap());
                });
            });
            // SAFETY: `pass` is the guard of this lock, and has not been released.
            unsafe { lock.unlock(pass) };
            goroutines.join().unwrap();
        });
    }
    // Two rounds of 21, in platoons of 4: two of the last platoon have gone.
    assert_eq!(lock.capacitor().dealt(), 42);
    let tickets = [(); 2].map(|()| lock.capacitor().try_arrive().expect("room for two"));
    assert!(lock.capacitor().try_arrive().is_none());
    tickets.into_iter().for_each(|ticket| lock.capacitor().depart(ticket));
    assert!(lock.capacitor().try_arrive().is_some());
}

/// Checks that a goroutine that yields as it unlocks has departed before. Goroutines of its worker that then arrive,
/// and wait to be let through, may keep that goroutine from its worker.
#[cfg(unix)]
#[test]
fn an_unlocking_owner_has_departed_before_it_gives_way() {
    use sudog::runtime::gosched;
    use sudog::spawn;
    use support::goroutine::one_worker;
    let _watchdog = Watchdog::new();

    // The mutex yields as it hands over; the semaphore blocks the worker.
    type Inner = GoMutex<RuntimeSema, study::policy::Fifo>;
    let lock = Arc::new(Wrapped::with(Inner::new(), Platoon::<ParkingLotSema>::with_limit(2), Always));
    let visit = |lock: &Wrapped<Inner, Platoon<ParkingLotSema>, Always>| {
        let pass = lock.lock();
        // SAFETY: `pass` is the guard of this lock, and has not been released.
        unsafe { lock.unlock(pass) };
    };
    one_worker(move || {
        let pass = lock.lock();
        let shared = Arc::new((lock.clone(), AtomicBool::new(false)));
        let theirs = shared.clone();
        let other = spawn(move || {
            let (lock, unlocks) = &*theirs;
            while !unlocks.load(Relaxed) {
                gosched();
            }
            visit(lock);
        });
        gosched(); // the goroutine has begun, so that goroutine runs next
        scope(|s| {
            s.spawn(|| visit(&lock));
            eventually(|| format!("{:?}", lock.inner()).contains("waiters: 1"));
            shared.1.store(true, Relaxed);
            // SAFETY: `pass` is the guard of this lock, and has not been released.
            unsafe { lock.unlock(pass) };
        });
        other.join().unwrap();
    });
}

/// A lock whose calls panic when told to: a call that locks panics before it has done anything, an unlock after it has
/// unlocked.
struct Panicky {
    lock: GoMutex,
    call: AtomicUsize,
}

impl Panicky {
    const CALLS: usize = 3;

    /// Makes the next call with this number panic.
    fn arm(&self, call: usize) {
        self.call.store(call, Relaxed);
    }

    fn call(&self, call: usize) {
        if self.call.compare_exchange(call, 0, Relaxed, Relaxed).is_ok() {
            panic!("call {call}");
        }
    }
}

// SAFETY: `GoMutex`, to which each method passes its call, keeps the contract of `RawLock`.
unsafe impl RawLock for Panicky {
    type Guard = ();
    const DEADLINES: bool = true;
    fn new() -> Self {
        Self { lock: GoMutex::new(), call: AtomicUsize::new(0) }
    }
    fn lock(&self) {
        self.call(1);
        self.lock.lock();
    }
    fn try_lock(&self) -> Option<()> {
        self.call(2);
        RawLock::try_lock(&self.lock)
    }
    fn try_lock_until(&self, deadline: Instant) -> Option<()> {
        self.call(3);
        RawLock::try_lock_until(&self.lock, deadline)
    }
    unsafe fn unlock(&self, (): ()) {
        self.lock.unlock();
        self.call(4);
    }
    fn is_locked(&self) -> bool {
        RawLock::is_locked(&self.lock)
    }
}

#[test]
fn an_inner_lock_that_panics_leaves_no_thread_inside() {
    fn check<C: ArriveDepart>() {
        let lock = Gate::<Panicky, C>::new();
        let visit = |way: usize| {
            let pass = match way {
                0 => Some(lock.lock()),
                1 => lock.try_lock(),
                _ => lock.try_lock_until(soon()),
            };
            // SAFETY: `pass` is the guard of this lock, and has not been released.
            pass.map(|pass| unsafe { lock.unlock(pass) })
        };
        let mut panics = 0;
        for way in 0..3 {
            for call in 1..=Panicky::CALLS + 1 {
                // If a thread is in the capacitor, every newcomer goes through the capacitor.
                for through in [false, true] {
                    let other = through.then(|| lock.capacitor().pass());
                    lock.inner().arm(call);
                    panics += u32::from(catch_unwind(AssertUnwindSafe(|| visit(way))).is_err());
                    lock.inner().arm(0);
                    assert!(!lock.is_locked());
                    drop(other);
                    at_rest(&lock);
                }
            }
        }
        assert_eq!(panics, 3 * 2 * 2, "each visit makes two of the calls: it locks, by its way, and unlocks");
        // No place in the capacitor has been lost.
        let all: Vec<_> = (0..lock.capacitor().limit()).map(|_| lock.capacitor().try_arrive()).collect();
        assert!(all.iter().all(Option::is_some));
    }
    check::<SlidingWindow>();
    check::<Platoon<Benaphore>>();
}

/// Checks that a lock call with a deadline in the past only tries, so that the caller does not arrive in vain.
#[test]
fn a_deadline_in_the_past_draws_no_ticket() {
    let past = Instant::now();
    for through in [false, true] {
        let lock = Wrapped::with(GoMutex::new(), SlidingWindow::new(2), Gated);
        let arrival = through.then(|| lock.capacitor().arrive());
        let pass = lock.lock();
        let drawn = lock.capacitor().drawn();
        for _ in 0..10 {
            assert!(lock.try_lock_until(past).is_none() && lock.try_lock().is_none());
        }
        assert_eq!(lock.capacitor().drawn(), drawn);
        // SAFETY: `pass` is the guard of this lock, and has not been released.
        unsafe { lock.unlock(pass) };
        arrival.into_iter().for_each(|ticket| lock.capacitor().depart(ticket));
        assert!(lock.try_lock_until(past).is_some(), "free");
    }
}

/// Checks which misuse ends the process, and with which message.
#[test]
fn departures_without_arrivals_are_fatal() {
    const CHILD: &str = "SUDOG_CAPACITOR_MISUSE";
    // All misuses are of windows. A platoon, or lanes, notice misuse only if more threads depart at once than they admit.
    let misuses: [fn(); 3] = [
        || {
            let window = SlidingWindow::new(1);
            let _first = window.arrive();
            (0..40).for_each(|_| gives_up(&window));
            // Depart with a ticket of another window: in this window the ticket of that number has given up, far from
            // the base.
            window.depart(SlidingWindow::<SpinThenPark>::with_limit_at(1, 35).arrive());
        },
        || {
            let window = SlidingWindow::new(2);
            let [_, second] = [window.arrive(), window.arrive()];
            window.depart(second);
            window.depart(second);
        },
        || {
            let window = SlidingWindow::new(2);
            let ticket = window.arrive();
            window.depart(ticket);
            window.depart(ticket);
        },
    ];
    if let Ok(number) = std::env::var(CHILD) {
        misuses[number.parse::<usize>().unwrap()]();
        std::process::exit(0);
    }
    for number in 0..misuses.len() {
        let child = test_command(module_path!(), "departures_without_arrivals_are_fatal")
            .env(CHILD, number.to_string())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&child.stderr);
        assert!(!child.status.success() && said.contains("departure without an arrival"), "{number}: {said}");
    }
}

// ---- admission ------------------------------------------------------------------------------------------------------

#[test]
fn past_the_gate_only_if_no_thread_is_inside() {
    fn check<C: ArriveDepart>() {
        let lock = Gate::<GoMutex, C>::new();
        let ways = || {
            let pass = lock.lock();
            let past = pass.ticket().is_none();
            // SAFETY: `pass` is the guard of this lock, and has not been released.
            unsafe { lock.unlock(pass) };
            past
        };
        assert!(ways());
        lock.capacitor().announce();
        let ticket = lock.capacitor().arrive();
        assert!(!ways(), "somebody is in the capacitor");
        lock.capacitor().depart_and_retract(ticket);
        assert!(ways());
        // A thread that arrives without an announcement is not seen, and disturbs no other thread.
        let ticket = lock.capacitor().arrive();
        lock.capacitor().depart(ticket);
        assert!(ways());
        drop(lock.capacitor().pass());
        assert!(lock.capacitor().pass_until(soon()).is_some());
        assert!(ways());
    }
    check::<SlidingWindow>();
    check::<Platoon<Benaphore>>();
}

/// Checks that a thread that bypasses the capacitor neither arrives nor departs, whatever the other threads do.
#[test]
fn a_policy_of_ones_own() {
    struct EverySecond(AtomicUsize);
    impl Default for EverySecond {
        fn default() -> Self {
            Self(AtomicUsize::new(0))
        }
    }
    impl Admission for EverySecond {
        const GATED: bool = false;

        fn path(&self) -> Path {
            if self.0.fetch_add(1, Relaxed).is_multiple_of(2) { Path::Through } else { Path::Past }
        }
    }
    let lock = Wrapped::<GoMutex, SlidingWindow, EverySecond>::new();
    for n in 0..10 {
        let pass = lock.lock();
        assert_eq!(pass.ticket().map(WindowTicket::number), (n % 2 == 0).then_some(n / 2));
        // SAFETY: `pass` is the guard of this lock, and has not been released.
        unsafe { lock.unlock(pass) };
    }
}

// ---- the bound ------------------------------------------------------------------------------------------------------

/// An entry into the lock: with a ticket; or past the gate, with the number of tickets drawn when the thread asked for
/// the lock.
#[derive(Clone, Copy)]
enum Entry {
    Ticket(u32),
    Past(u32),
}

/// The largest number of later arrivals that entered before an entry. `entries` is in the order of entry.
fn most_overtaken(entries: &[Entry]) -> u64 {
    // Few entries are far out of order, so look back only as far as an entry can be out of order.
    let mut most = 0;
    for (i, &entry) in entries.iter().enumerate() {
        let Entry::Ticket(ticket) = entry else { continue };
        let later = |other: &&Entry| match **other {
            Entry::Ticket(other) | Entry::Past(other) => (other.wrapping_sub(ticket) as i32) > 0,
        };
        most = most.max(entries[i.saturating_sub(4096)..i].iter().filter(later).count() as u64);
    }
    most
}

#[test]
fn overtaken_is_counted() {
    let most = |tickets: &[u32]| most_overtaken(&tickets.iter().copied().map(Entry::Ticket).collect::<Vec<_>>());
    assert_eq!(most(&[0, 1, 2]), 0);
    assert_eq!(most(&[1, 2, 0, 3]), 2);
    assert_eq!(most(&[u32::MAX, 1, 0]), 1);
    assert_eq!(most_overtaken(&[Entry::Past(1), Entry::Ticket(0)]), 1, "it asked when 0 had been drawn");
    assert_eq!(most_overtaken(&[Entry::Past(0), Entry::Ticket(0)]), 0);
}

/// Runs all operations at random, on more threads than the limit, which stall now and then between arrival and lock.
fn storm(limit: u32, gated: bool) {
    const THREADS: u64 = 6;
    const ROUNDS: u64 = 2_000;
    #[derive(Default)]
    struct Sometimes(bool);
    impl Admission for Sometimes {
        const GATED: bool = true;

        fn path(&self) -> Path {
            if self.0 { Path::Gate } else { Path::Through }
        }
    }
    /// A lock that stalls now and then, and serves any waiter, as the system chooses.
    struct Unfair(GoMutex, AtomicUsize);
    // SAFETY: `GoMutex`, to which each method passes its call, keeps the contract of `RawLock`.
    unsafe impl RawLock for Unfair {
        type Guard = ();
        const DEADLINES: bool = true;
        fn new() -> Self {
            Self(GoMutex::new(), AtomicUsize::new(0))
        }
        fn lock(&self) {
            if self.1.fetch_add(1, Relaxed).is_multiple_of(64) {
                thread::yield_now();
            }
            self.0.lock();
        }
        fn try_lock(&self) -> Option<()> {
            RawLock::try_lock(&self.0)
        }
        fn try_lock_until(&self, deadline: Instant) -> Option<()> {
            RawLock::try_lock_until(&self.0, deadline)
        }
        unsafe fn unlock(&self, (): ()) {
            self.0.unlock();
        }
        fn is_locked(&self) -> bool {
            RawLock::is_locked(&self.0)
        }
    }
    let watchdog = Watchdog::new();
    let window: SlidingWindow = SlidingWindow::with_limit_at(limit, u32::MAX - 1000);
    let lock = Wrapped::with(Unfair::new(), window, Sometimes(gated));
    let entries = std::cell::UnsafeCell::new(Vec::new());
    struct Shared<T>(T);
    // SAFETY: threads access the cell only while they own the lock.
    unsafe impl<T> Sync for Shared<T> {}
    let entries = Shared(entries);
    scope(|s| {
        for thread in 0..THREADS {
            let (lock, entries, watchdog) = (&lock, &entries, &watchdog);
            s.spawn(move || {
                let mut rng = StdRng::seed_from_u64(thread);
                for _ in 0..ROUNDS {
                    watchdog.pat();
                    let drawn = lock.capacitor().drawn() as u32;
                    let pass = match rng.random_range(0..8) {
                        0..4 => Some(lock.lock()),
                        4 => lock.try_lock(),
                        5 => lock.try_lock_until(far()),
                        _ => lock.try_lock_until(Instant::now() + Duration::from_micros(rng.random_range(0..50))),
                    };
                    let Some(pass) = pass else { continue };
                    // SAFETY: this thread owns the lock, so no other thread accesses the cell.
                    let log = unsafe { &mut *entries.0.get() };
                    log.push(pass.ticket().map_or(Entry::Past(drawn), |ticket| Entry::Ticket(ticket.number())));
                    if rng.random_range(0..100) == 0 {
                        thread::yield_now();
                    }
                    // SAFETY: `pass` is the guard of this lock, and has not been released.
                    unsafe { lock.unlock(pass) };
                }
            });
        }
    });
    assert_eq!(lock.capacitor().present(), 0);
    let entries = entries.0.into_inner();
    let past = entries.iter().filter(|entry| matches!(entry, Entry::Past(_))).count();
    assert_eq!(past > 0, gated, "{past} of {}", entries.len());
    let most = most_overtaken(&entries);
    assert!(Some(most) <= lock.capacitor().bound(), "overtaken by {most}");
}

#[test]
fn no_waiter_is_overtaken_beyond_the_bound() {
    for limit in [1, 2, 4, 31] {
        storm(limit, false);
        storm(limit, true);
    }
}

#[test]
fn absurd_limits() {
    for limit in [0, (1 << 20) + 1] {
        assert!(catch_unwind(|| Platoon::<Benaphore>::with_limit(limit)).is_err());
    }
    assert!(catch_unwind(|| Multilane::with_lanes(0, 1)).is_err());
    assert!(catch_unwind(|| Multilane::with_lanes(u32::MAX, u32::MAX)).is_err());
    assert!(catch_unwind(|| SeparateLanes::<Benaphore>::with_lanes(0, 1, LaneChoice::InTurn)).is_err());
    assert!(catch_unwind(|| Fractional::new(-0.1)).is_err());
    assert!(catch_unwind(|| Fractional::new(f64::NAN)).is_err());
}
