//! The readers-writer mutexes: Go's tests, over each lock, over threads and over goroutines; the order of admission;
//! deadlines, downgrades; the exact texts of misuse.
#![cfg(all(unix, feature = "locks", not(sudog_loom)))]

use std::cell::RefCell;
use std::fmt::Debug;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::Mutex as StdMutex;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use sudog::locks::waiting_array::Benaphore;
use sudog::low_level::sema::{Order, Wake};
use sudog::low_level::{ConstRawRwLock, ConstSemaphore, RawLock, RuntimeSema, Semaphore, policy};
use sudog::runtime::gosched;
use sudog::study::{FifoMutex, ParkingLotSema};
use sudog::sync::lock_api::{RwLockReadGuard, RwLockWriteGuard};
use sudog::sync::{GoMutex, GoRwMutex, Locker, PhaseFairRwMutex, RwLimited, RwMutex, RwMutexWith, ShardedRwMutex};
use sudog::{Cancel, WaitError, WaitLimit, context, go};
use sudog_runtime::goroutine;
use support::goroutine::one_worker;
use support::kinds::Kind;
use support::{Watchdog, test_command};

/// Makes a `#[test]` for each check over each lock and kind.
macro_rules! over_every_rw_mutex {
    (locks { $($module:ident = $Lock:ty, $($kind:ident)+;)+ } checks $checks:tt) => {
        $(mod $module {
            use super::*;
            $(over_every_rw_mutex!(@kind $kind, $Lock, $checks);)+
        })+
    };
    (@kind $Kind:ident, $Lock:ty, { $($check:ident)+ }) => {
        #[allow(non_snake_case)]
        mod $Kind {
            use super::*;
            $(#[test] fn $check() {
                let _watchdog = Watchdog::new();
                <support::kinds::$Kind as Kind>::run(super::super::$check::<support::kinds::$Kind, $Lock>);
            })+
        }
    };
}

over_every_rw_mutex! {
    locks {
        go = GoRwMutex, Threads Goroutines;
        by_gos_policy = GoRwMutex<GoMutex<RuntimeSema, policy::Go>>, Threads Goroutines;
        phase_fair = PhaseFairRwMutex, Threads Goroutines;
        over_parking_lot_core = GoRwMutex<GoMutex<ParkingLotSema>, ParkingLotSema>, Threads; // blocks a worker
        over_a_benaphore = PhaseFairRwMutex<Benaphore>, Threads Goroutines;
        sharded = ShardedRwMutex, Threads Goroutines;
        sharded_phase_fair = ShardedRwMutex<FifoMutex>, Threads Goroutines;
    }
    checks {
        parallel_readers rw_mutex_tries rw_mutex_hammer
        a_writer_that_waits_keeps_readers_out readers_of_a_write_go_before_the_next_writer downgrade
        deadlines timeouts_leave_no_trace cancels_leave_no_trace a_storm_of_everything
    }
}

type Rw<L> = Arc<RwMutexWith<L, u32>>;

fn new<L: ConstRawRwLock>() -> Rw<L> {
    Arc::new(RwMutexWith::new(0))
}

/// Checks that the lock has no owner, and that both sides are free.
#[track_caller]
fn assert_at_rest<L: ConstRawRwLock, T>(rw: &RwMutexWith<L, T>) {
    assert!(!rw.is_locked(), "somebody is left");
    assert!(rw.try_write().is_some() && rw.try_read().is_some());
}

fn soon() -> Instant {
    Instant::now() + Duration::from_millis(2)
}

// ---- Go's tests -----------------------------------------------------------------------------------------------------

/// Go: `TestParallelReaders`. All readers hold the lock at the same time.
fn parallel_readers<K: Kind, L: ConstRawRwLock + 'static>() {
    for readers in [1, 3, 4] {
        let (rw, inside, over) = (new::<L>(), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        for _ in 0..readers {
            let (rw, inside, over) = (rw.clone(), inside.clone(), over.clone());
            K::go(move || {
                let guard = rw.read();
                inside.fetch_add(1, SeqCst);
                K::until(|| inside.load(SeqCst) == readers);
                drop(guard);
                over.fetch_add(1, SeqCst);
            });
        }
        K::until(|| over.load(SeqCst) == readers);
        assert_at_rest(&rw);
    }
}

/// Go: the beginning of `TestRWMutex`.
fn rw_mutex_tries<K: Kind, L: ConstRawRwLock>() {
    let rw = new::<L>();
    let writer = rw.write();
    assert!(rw.is_locked() && rw.is_locked_exclusive());
    assert!(rw.try_write().is_none() && rw.try_read().is_none());
    drop(writer);
    let writer = rw.try_write().expect("free");
    drop(writer);
    let readers = (rw.read(), rw.try_read().expect("others read"));
    assert!(rw.try_write().is_none());
    assert!(rw.is_locked() && !rw.is_locked_exclusive());
    drop(readers);
    assert_at_rest(&rw);
}

/// Go: `TestRWMutex`, `HammerRWMutex`, with their parameters: 1, 3, 10 or 5 readers, two writers, a thousand rounds
/// each.
fn rw_mutex_hammer<K: Kind, L: ConstRawRwLock + 'static>() {
    const N: usize = 1000;
    for readers in [1, 3, 10, 5] {
        let (rw, activity) = (new::<L>(), Arc::new(AtomicI32::new(0)));
        let over = Arc::new(AtomicUsize::new(0));
        let each = |f: fn(&RwMutexWith<L, u32>, &AtomicI32)| {
            let (rw, activity, over) = (rw.clone(), activity.clone(), over.clone());
            K::go(move || {
                for _ in 0..N {
                    f(&rw, &activity);
                }
                over.fetch_add(1, SeqCst);
            });
        };
        let writer = |rw: &RwMutexWith<L, u32>, activity: &AtomicI32| {
            let _guard = rw.write();
            assert_eq!(activity.fetch_add(10000, Relaxed), 0, "not alone");
            (0..100).for_each(|n| _ = std::hint::black_box(n));
            activity.fetch_sub(10000, Relaxed);
        };
        let reader = |rw: &RwMutexWith<L, u32>, activity: &AtomicI32| {
            let _guard = rw.read();
            assert!((0..10000).contains(&activity.fetch_add(1, Relaxed)), "beside a writer");
            (0..100).for_each(|n| _ = std::hint::black_box(n));
            activity.fetch_sub(1, Relaxed);
        };
        each(writer);
        (0..readers / 2).for_each(|_| each(reader));
        each(writer);
        (readers / 2..readers).for_each(|_| each(reader));
        K::until(|| over.load(SeqCst) == readers + 2);
        assert_at_rest(&rw);
    }
}

/// Go: `TestRLocker`.
#[test]
fn r_locker() {
    let _watchdog = Watchdog::new();
    let rw = Arc::new(GoRwMutex::new());
    let writes = Arc::new(AtomicU32::new(0));
    let other = (rw.clone(), writes.clone());
    let writer = std::thread::spawn(move || {
        let (rw, writes) = other;
        for n in 1..=10 {
            Locker::lock(&*rw);
            writes.store(n, SeqCst);
            Locker::unlock(&*rw);
            // The next writer begins when the readers have looked.
            support::eventually(|| writes.load(SeqCst) == 0);
        }
    });
    let reader = rw.rlocker();
    for n in 1..=10 {
        support::eventually(|| writes.load(SeqCst) == n);
        reader.lock();
        reader.lock();
        assert_eq!(rw.readers(), 2);
        reader.unlock();
        reader.unlock();
        writes.store(0, SeqCst);
    }
    writer.join().unwrap();
}

// ---- order of admission --------------------------------------------------------------------------------------------------

/// Waits until a writer has announced itself: no newcomer may read.
fn until_announced<K: Kind, L: ConstRawRwLock + Debug>(rw: &RwMutexWith<L, u32>) {
    K::until(|| rw.try_read().is_none());
}

fn a_writer_that_waits_keeps_readers_out<K: Kind, L: ConstRawRwLock + Debug + 'static>() {
    let rw = new::<L>();
    let first = rw.read();
    let log = Arc::new(StdMutex::new(Vec::new()));
    let (other, its_log) = (rw.clone(), log.clone());
    K::go(move || {
        let mut guard = other.write();
        its_log.lock().unwrap().push("writer");
        *guard += 1;
    });
    until_announced::<K, L>(&rw);
    let (other, its_log) = (rw.clone(), log.clone());
    K::go(move || {
        let guard = other.read();
        assert_eq!(*guard, 1, "before the writer");
        its_log.lock().unwrap().push("reader");
    });
    for _ in 0..20 {
        K::gosched();
    }
    assert!(log.lock().unwrap().is_empty());
    drop(first);
    K::until(|| log.lock().unwrap().len() == 2);
    assert_eq!(*log.lock().unwrap(), ["writer", "reader"]);
    K::until(|| !rw.is_locked());
}

/// Checks that readers that arrive during a write see the value of that write and nothing later, however many writers
/// wait.
fn readers_of_a_write_go_before_the_next_writer<K: Kind, L: ConstRawRwLock + Debug + 'static>() {
    const READERS: usize = 5;
    for _ in 0..20 {
        let (rw, coming) = (new::<L>(), Arc::new(AtomicUsize::new(0)));
        let (seen, writers) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let mut first = rw.write();
        for _ in 0..READERS {
            let (rw, coming, seen) = (rw.clone(), coming.clone(), seen.clone());
            K::go(move || {
                coming.fetch_add(1, SeqCst);
                let guard = rw.read();
                assert_eq!(*guard, 1, "a writer went before");
                seen.fetch_add(1, SeqCst);
            });
        }
        // Wait until the readers wait. Only the `Debug` of the lock tells how many readers wait: not every lock has a
        // public method for that number.
        K::until(|| coming.load(SeqCst) == READERS && waiting_readers(&rw) == READERS);
        for _ in 0..2 {
            let (rw, writers) = (rw.clone(), writers.clone());
            K::go(move || {
                *rw.write() += 1;
                writers.fetch_add(1, SeqCst);
            });
        }
        *first = 1;
        drop(first);
        K::until(|| seen.load(SeqCst) == READERS && writers.load(SeqCst) == 2);
        assert_eq!(*rw.read(), 3);
    }
}

/// The number of readers that wait, according to the `Debug` of the Go mutex within the lock.
fn waiting_readers<L: ConstRawRwLock + Debug, T>(rw: &RwMutexWith<L, T>) -> usize {
    // SAFETY: the raw lock is only formatted, not changed.
    let text = format!("{:?}", unsafe { rw.raw() });
    let readers = text.rsplit_once("readers: ").expect("its readers").1;
    readers.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
}

fn downgrade<K: Kind, L: ConstRawRwLock + 'static>() {
    let (rw, over) = (new::<L>(), Arc::new(AtomicUsize::new(0)));
    let mut guard = rw.write();
    *guard = 1;
    let (other, its_over) = (rw.clone(), over.clone());
    K::go(move || {
        *other.write() = 2;
        its_over.fetch_add(1, SeqCst);
    });
    let (other, its_over) = (rw.clone(), over.clone());
    K::go(move || {
        let guard = other.read();
        assert!((1..=2).contains(&*guard));
        drop(guard);
        its_over.fetch_add(1, SeqCst);
    });
    let guard = RwLockWriteGuard::downgrade(guard);
    for _ in 0..20 {
        assert_eq!(*guard, 1, "written meanwhile");
        K::gosched();
    }
    drop(guard);
    K::until(|| over.load(SeqCst) == 2);
    assert_eq!(*rw.read(), 2);
    assert_at_rest(&rw);
}

/// Checks that the phase-fair mutex serves writers in the order in which they arrived.
#[test]
fn writers_in_turn() {
    let _watchdog = Watchdog::new();
    static RW: PhaseFairRwMutex = PhaseFairRwMutex::const_new();
    let order = one_worker(|| {
        let order = Arc::new(StdMutex::new(Vec::new()));
        RW.lock();
        for n in 0..10 {
            let order = order.clone();
            go(move || {
                RW.lock();
                order.lock().unwrap().push(n);
                gosched();
                RW.unlock();
            });
        }
        while goroutine::num_goroutine() > 1 && order.lock().unwrap().len() < 10 {
            if RW.has_writer() && order.lock().unwrap().is_empty() {
                gosched();
                gosched();
                RW.unlock();
            }
            gosched();
        }
        order
    });
    assert_eq!(*order.lock().unwrap(), (0..10).collect::<Vec<_>>());
}

// ---- deadlines ------------------------------------------------------------------------------------------------------

fn deadlines<K: Kind, L: ConstRawRwLock>() {
    let rw = new::<L>();
    let reader = rw.read();
    assert!(rw.try_write_until(soon()).is_none());
    assert!(rw.try_read_until(soon()).is_some(), "the writer has left");
    drop(reader);
    let writer = rw.write();
    assert!(rw.try_read_until(soon()).is_none() && rw.try_write_until(soon()).is_none());
    assert!(rw.try_read_for(Duration::ZERO).is_none() && rw.try_write_for(Duration::ZERO).is_none());
    drop(writer);
    assert!(rw.try_read_for(Duration::MAX).is_some() && rw.try_write_for(Duration::MAX).is_some());
    assert_at_rest(&rw);
}

/// Checks that a writer that gives up admits the readers that it has kept out.
fn timeouts_leave_no_trace<K: Kind, L: ConstRawRwLock + 'static>() {
    for round in 0..30 {
        let (rw, over) = (new::<L>(), Arc::new(AtomicUsize::new(0)));
        let first = rw.read();
        let hasty = (rw.clone(), over.clone());
        K::go(move || {
            let (rw, over) = hasty;
            let deadline = Instant::now() + Duration::from_micros(100 * (round % 4));
            assert!(rw.try_write_until(deadline).is_none(), "beside a reader");
            over.fetch_add(1, SeqCst);
        });
        for n in 0..4 {
            let (rw, over) = (rw.clone(), over.clone());
            K::go(move || {
                let deadline = Instant::now() + Duration::from_micros(100 * n);
                drop(if n % 2 == 0 { Some(rw.read()) } else { rw.try_read_until(deadline) });
                over.fetch_add(1, SeqCst);
            });
        }
        // All waits end while a reader reads.
        K::until(|| over.load(SeqCst) == 5);
        drop(first);
        assert_at_rest(&rw);
    }
}

/// Cancels waits behind a writer, behind a reader, and behind a writer that waits. The waits leave the lock as if they
/// had never begun; with a cancel that has already happened, a call neither waits nor takes the lock.
fn cancels_leave_no_trace<K: Kind, L: ConstRawRwLock + 'static>() {
    for round in 0..30 {
        let (rw, over, stop) = (new::<L>(), Arc::new(AtomicUsize::new(0)), Arc::new(Cancel::new()));
        let wait = |reads: bool| {
            let (rw, over, stop) = (rw.clone(), over.clone(), stop.clone());
            K::go(move || {
                // A deadline beside the cancel changes nothing.
                let deadline = (round % 3 == 0).then(|| Instant::now() + Duration::from_secs(3600));
                let limit = WaitLimit { deadline, cancel: Some(&stop) };
                let why = if reads { rw.read_limited(&limit).err() } else { rw.write_limited(&limit).err() };
                assert!(matches!(why, None | Some(WaitError::Cancelled)), "{why:?}");
                over.fetch_add(1, SeqCst);
            });
        };
        let guards = if round % 2 == 0 { (Some(rw.write()), None) } else { (None, Some(rw.read())) };
        for n in 0..4 {
            wait(n % 2 == round % 2);
            K::gosched();
        }
        if round % 5 != 0 {
            (0..10).for_each(|_| K::gosched());
        }
        stop.cancel();
        // All waits end while the lock is held.
        K::until(|| over.load(SeqCst) == 4);
        let limit = WaitLimit { deadline: None, cancel: Some(&stop) };
        assert!(rw.write_limited(&limit).is_err());
        drop(guards);
        assert_at_rest(&rw);
        let never = Cancel::new();
        let limit = WaitLimit { deadline: None, cancel: Some(&never) };
        assert!(rw.read_limited(&limit).is_ok());
        assert!(rw.write_limited(&limit).is_ok());
        let (ctx, cancel) = context::with_cancel(&context::background());
        *rw.write_limited(&ctx).unwrap() += 1;
        assert_eq!(*rw.read_limited(&ctx).unwrap(), 1);
        cancel.cancel();
        assert_eq!(rw.read_limited(&ctx).err(), Some(context::Error::Canceled));
        assert_eq!(rw.write_limited(&ctx).err(), Some(context::Error::Canceled));
        assert_at_rest(&rw);
    }
}

/// A semaphore that tells the test whether a wait of the calling thread ends by a cancel.
struct Told(RuntimeSema);

thread_local! {
    static TELL: RefCell<Option<Sender<bool>>> = const { RefCell::new(None) };
}

impl Told {
    fn tell(ends_by_cancel: bool) {
        TELL.with_borrow(|tell| tell.iter().for_each(|tell| tell.send(ends_by_cancel).unwrap_or(())));
    }
}

// SAFETY: every call is passed on to `RuntimeSema`, which keeps the contract of `Semaphore`.
unsafe impl Semaphore for Told {
    const LIFO: bool = true;
    const FIFO: bool = true;
    const HANDOFF: bool = true;
    const DEADLINES: bool = true;

    fn new(permits: u32) -> Self {
        Self(RuntimeSema::new(permits))
    }
    fn acquire(&self, order: Order) {
        self.0.acquire(order);
    }
    fn try_acquire(&self) -> bool {
        self.0.try_acquire()
    }
    fn acquire_until(&self, order: Order, deadline: Instant) -> bool {
        Self::tell(false);
        self.0.acquire_until(order, deadline)
    }
    fn acquire_limited(&self, order: Order, limit: &WaitLimit<'_>) -> Result<(), WaitError> {
        Self::tell(limit.cancel.is_some());
        self.0.acquire_limited(order, limit)
    }
    fn release(&self, wake: Wake) {
        self.0.release(wake);
    }
}

impl ConstSemaphore for Told {
    const INIT: Self = Self(RuntimeSema::INIT);
}

/// Checks that a wait with a cancel is a single wait in the queue: a caller that left the queue to look for the cancel
/// would be overtaken, and for ever beside owners that take turns.
fn a_wait_for_a_cancel_keeps_its_place<L: ConstRawRwLock + 'static>() {
    let _watchdog = Watchdog::new();
    for (writes, waits_to_write) in [(false, true), (true, false), (true, true)] {
        let (rw, stop) = (new::<L>(), Cancel::new());
        let guards = if writes { (Some(rw.write()), None) } else { (None, Some(rw.read())) };
        let (tell, told) = channel();
        thread::scope(|s| {
            let waiter = s.spawn(|| {
                TELL.set(Some(tell));
                if waits_to_write { rw.write_limited(&stop).err() } else { rw.read_limited(&stop).err() }
            });
            let ends_by_cancel = told.recv();
            stop.cancel();
            assert_eq!(waiter.join().unwrap(), Some(WaitError::Cancelled));
            assert_eq!(ends_by_cancel, Ok(true), "the first wait, for {waits_to_write} beside {writes}");
        });
        drop(guards);
        assert_at_rest(&rw);
    }
}

#[test]
fn a_wait_of_a_rw_mutex_for_a_cancel_keeps_its_place() {
    a_wait_for_a_cancel_keeps_its_place::<GoRwMutex<GoMutex<Told>, Told>>();
    a_wait_for_a_cancel_keeps_its_place::<PhaseFairRwMutex<Told>>();
}

/// The lock of the writers that wait for a writer.
#[test]
fn a_wait_of_a_mutex_for_a_cancel_keeps_its_place() {
    fn check<P: policy::Policy>() {
        let _watchdog = Watchdog::new();
        let (mu, stop) = (GoMutex::<Told, P>::const_new(), Cancel::new());
        mu.lock();
        let (tell, told) = channel();
        thread::scope(|s| {
            let waiter = s.spawn(|| {
                TELL.set(Some(tell));
                mu.lock_limited(&WaitLimit { cancel: Some(&stop), ..WaitLimit::default() })
            });
            let ends_by_cancel = told.recv();
            stop.cancel();
            assert_eq!(waiter.join().unwrap(), Err(WaitError::Cancelled));
            assert_eq!(ends_by_cancel, Ok(true), "the first wait");
        });
        assert_eq!(mu.waiters(), 0);
        mu.unlock();
        assert!(mu.try_lock());
    }
    check::<policy::Threads>();
    check::<policy::Go>();
}

#[test]
fn a_wait_of_a_sharded_mutex_for_a_cancel_keeps_its_place() {
    a_wait_for_a_cancel_keeps_its_place::<ShardedRwMutex<GoMutex<Told>, Told>>();
    a_wait_for_a_cancel_keeps_its_place::<ShardedRwMutex<FifoMutex<Told>, Told>>();
}

/// Runs tasks that read and write at random, with and without deadlines and cancels: no write is lost, and no waiter is
/// left.
fn a_storm_of_everything<K: Kind, L: ConstRawRwLock + 'static>() {
    const CROWD: u64 = 8;
    const ROUNDS: u64 = 300;
    let (rw, over) = (new::<L>(), Arc::new(AtomicUsize::new(0)));
    let written = Arc::new(AtomicU64::new(0));
    // Each handle is cancelled once, at some time, for all tasks that use the handle.
    let stops: Arc<[Cancel; 8]> = Arc::default();
    for seed in 1..=CROWD {
        let (rw, written, over) = (rw.clone(), written.clone(), over.clone());
        let stops = stops.clone();
        K::go(move || {
            let mut random = seed;
            for round in 0..ROUNDS as usize {
                random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let deadline = Instant::now() + Duration::from_micros((random >> 40) % 60);
                let read = |guard: RwLockReadGuard<'_, _, u32>| {
                    let before = *guard;
                    K::gosched();
                    assert_eq!(*guard, before, "written beside a reader");
                };
                let write = |mut guard: RwLockWriteGuard<'_, _, u32>| {
                    let before = *guard;
                    K::gosched();
                    *guard = before + 1;
                    written.fetch_add(1, Relaxed);
                    if (random >> 50) % 2 == 0 {
                        read(RwLockWriteGuard::downgrade(guard));
                    }
                };
                match (random >> 33) % 8 {
                    0..=2 => read(rw.read()),
                    3 if seed % 2 == 0 => {
                        let limit = WaitLimit { cancel: Some(&stops[round % 8]), ..WaitLimit::until(deadline) };
                        if let Ok(guard) = rw.read_limited(&limit) {
                            read(guard);
                        }
                    }
                    3 => rw.try_read_until(deadline).map_or((), read),
                    4 => rw.try_read().map_or((), read),
                    5 => write(rw.write()),
                    6 if seed % 2 == 0 => {
                        let limit = WaitLimit { cancel: Some(&stops[round % 8]), ..WaitLimit::default() };
                        if let Ok(guard) = rw.write_limited(&limit) {
                            write(guard);
                        }
                        stops[(round + 1) % 8].cancel();
                    }
                    6 => rw.try_write_until(deadline).map_or((), write),
                    _ => rw.try_write().map_or((), write),
                }
            }
            over.fetch_add(1, SeqCst);
        });
    }
    K::until(|| over.load(SeqCst) == CROWD as usize);
    assert_eq!(u64::from(*rw.read()), written.load(Relaxed));
    assert_at_rest(&rw);
}

// ---- guards ---------------------------------------------------------------------------------------------------------

/// Checks that guards may be forgotten: the lock keeps its state and may be dropped.
#[test]
fn forgotten_guards() {
    let rw = RwMutex::new(String::from("kept"));
    std::mem::forget(rw.read());
    assert!(rw.try_write().is_none() && rw.try_read().is_some());
    assert_eq!(rw.into_inner(), "kept");
}

// ---- misuse ---------------------------------------------------------------------------------------------------------

/// The name of a misuse, the function that commits the misuse, and the text of the fatal error.
type Misuse = (&'static str, fn(&GoRwMutex), &'static str);

/// Go: the cases of `TestMutexMisuse` that concern an RWMutex; and a case that Go does not notice.
const MISUSE: [Misuse; 7] = [
    ("RWMutex.Unlock", |rw| rw.unlock(), "sync: Unlock of unlocked RWMutex"),
    (
        "RWMutex.Unlock2",
        |rw| {
            rw.rlock();
            rw.unlock();
        },
        "sync: Unlock of unlocked RWMutex",
    ),
    (
        "RWMutex.Unlock3",
        |rw| {
            rw.lock();
            rw.unlock();
            rw.unlock();
        },
        "sync: Unlock of unlocked RWMutex",
    ),
    ("RWMutex.RUnlock", |rw| rw.runlock(), "sync: RUnlock of unlocked RWMutex"),
    (
        "RWMutex.RUnlock2",
        |rw| {
            rw.lock();
            rw.runlock();
        },
        "sync: RUnlock of unlocked RWMutex",
    ),
    (
        "RWMutex.RUnlock3",
        |rw| {
            rw.rlock();
            rw.runlock();
            rw.runlock();
        },
        "sync: RUnlock of unlocked RWMutex",
    ),
    (
        "RUnlock beside a writer, while a reader waits",
        |rw| {
            rw.lock();
            std::thread::scope(|s| {
                s.spawn(|| rw.rlock());
                support::eventually(|| rw.readers() == 1);
                rw.runlock();
            });
        },
        "sync: RUnlock of unlocked RWMutex",
    ),
];

/// Go: `TestMutexMisuse`. The test runs itself again as a child process for each misuse.
#[test]
fn mutex_misuse() {
    const CHILD: &str = "SUDOG_TEST_RW_MUTEX_MISUSE";
    if let Ok(which) = std::env::var(CHILD) {
        let (_, misuse, _) = MISUSE.iter().find(|(name, _, _)| *name == which).unwrap();
        // The misuse ends the process: `catch_unwind` does not recover from it.
        let _ = std::panic::catch_unwind(|| misuse(&GoRwMutex::new()));
        std::process::exit(0);
    }
    for (name, _, message) in MISUSE {
        let child =
            test_command(module_path!(), "mutex_misuse").env(CHILD, name).stdout(Stdio::null()).output().unwrap();
        let said = String::from_utf8_lossy(&child.stderr);
        assert!(!child.status.success(), "{name} was survived");
        assert!(said.contains(&format!("fatal error: {message}\n")), "{name}: {said}");
    }
}
