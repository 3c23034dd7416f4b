//! The promises of the queue and spin locks beyond `RawLock` (which `conformance` checks): their orders, which guards
//! may change threads, and that a thread may hold several locks, end, forget a guard and panic.
#![cfg(all(feature = "locks", not(sudog_loom)))]

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rand::rngs::{StdRng, SysRng};
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng, TryRng};
use sudog::locks::spin_lock::{
    Clh, ClhGuard, Lifo, Mcs, McsGuard, Reciprocating, ReciprocatingGuard, Spin, SpinThenYield, TicketLock, Tts,
    WaitPolicy,
};
use sudog::low_level::{ConstRawLock, RawLock};
use sudog::sync::MutexWith;
use sudog_lab_core::conformance::{Scope, scope};
use support::{Watchdog, eventually, test_command};

/// Makes a test for each lock and policy.
macro_rules! over_all {
    ($($test:ident)+) => { $(
        mod $test {
            use super::*;

            over_all!(@locks $test
                tts = Tts, tts_yield = Tts<SpinThenYield>, ticket = TicketLock, mcs = Mcs,
                mcs_yield = Mcs<SpinThenYield>,
                clh = Clh, clh_yield = Clh<SpinThenYield>, lifo = Lifo, lifo_yield = Lifo<SpinThenYield>,
                reciprocating = Reciprocating, reciprocating_yield = Reciprocating<SpinThenYield>
            );
        }
    )+ };
    (@locks $test:ident $($name:ident = $Lock:ty),+) => {
        $(#[test] fn $name() {
            let watchdog = Watchdog::new();
            super::$test::<$Lock>(&watchdog);
        })+
    };
}

over_all! {
    many_are_held_at_once_and_released_in_any_order
    a_thread_ends_while_another_waits
    a_thread_locks_in_its_last_destructors
    a_forgotten_guard_is_a_lock_that_can_be_moved_and_dropped
    an_owner_that_panics_frees_the_lock
    stress
}

#[cfg(unix)]
over_all! {
    goroutines_and_threads_exclude_each_other
}

// ---- releases ------------------------------------------------------------------------------------------------

/// A trait with two implementations for a type that is `Send`, so that a call of its function on such a type cannot be
/// inferred.
trait UnlessSend<A> {
    fn is_not_send() {}
}
struct IsSend;
impl<T> UnlessSend<()> for T {}
impl<T: Send> UnlessSend<IsSend> for T {}

const _: fn() = <McsGuard as UnlessSend<_>>::is_not_send;
const _: fn() = <ReciprocatingGuard as UnlessSend<_>>::is_not_send;

const fn is_send<T: Send>() {}
const _: () = is_send::<ClhGuard>();
const _: () = is_send::<sudog::sync::lock_api::MutexGuard<'_, sudog::low_level::ApiLock<Clh>, u32>>();

/// Releases the lock on a third thread, while another thread waits, and while none does.
fn released_elsewhere<L: Seen + RawLock<Guard: Send>>() {
    let _watchdog = Watchdog::new();
    let lock = L::new();
    for waiters in [0, 1, 2, 0, 2] {
        let guard = lock.lock();
        scope(|s| {
            for _ in 0..waiters {
                let before = lock.seen();
                s.spawn(|| {
                    let guard = lock.lock();
                    // SAFETY: `guard` is of this lock, was acquired above, has not been released, and is `Send`.
                    scope(|s| _ = s.spawn(|| unsafe { lock.unlock(guard) }));
                });
                eventually(|| lock.seen() != before || before.is_none());
            }
            // SAFETY: `guard` is of this lock, was acquired above, has not been released, and is `Send`.
            s.spawn(|| unsafe { lock.unlock(guard) });
        });
        assert!(!lock.is_locked());
    }
}

#[test]
fn locks_with_send_guards_are_released_by_others() {
    released_elsewhere::<Tts>();
    released_elsewhere::<TicketLock>();
    released_elsewhere::<Clh>();
    released_elsewhere::<Lifo>();
}

// ---- order ----------------------------------------------------------------------------------------------------------

/// A lock whose queue can be seen to grow.
trait InLine: RawLock {
    fn last_in_line(&self) -> u64;
}

macro_rules! in_line {
    ($($Lock:ident)+) => { $(
        impl<P: WaitPolicy> InLine for $Lock<P> {
            fn last_in_line(&self) -> u64 {
                self.last_in_line()
            }
        }
    )+ };
}

in_line!(TicketLock Mcs Clh Lifo Reciprocating);

/// A lock whose state may change visibly when a waiter arrives. Some locks change for the first waiter only, or not at
/// all.
trait Seen: RawLock {
    fn seen(&self) -> Option<u64>;
}

impl<P: WaitPolicy> Seen for Tts<P> {
    fn seen(&self) -> Option<u64> {
        let sleepers = format!("{self:?}").contains("sleepers: true");
        (P::PARKS && !sleepers).then_some(0)
    }
}

macro_rules! seen_in_line {
    ($($Lock:ident)+) => { $(
        impl<P: WaitPolicy> Seen for $Lock<P> {
            fn seen(&self) -> Option<u64> {
                Some(self.last_in_line())
            }
        }
    )+ };
}

seen_in_line!(TicketLock Mcs Clh Lifo Reciprocating);

/// Returns the order in which contenders get the lock. While the lock is held, `first` contenders arrive, one after
/// another. Then the lock is released, and its next owner keeps the lock until `second` more contenders have arrived.
fn served<L: InLine>(first: usize, second: usize) -> Vec<usize> {
    let _watchdog = Watchdog::new();
    let (lock, order, all_here) = (L::new(), Mutex::new(Vec::new()), AtomicUsize::new(0));
    let (lock, order, all_here) = (&lock, &order, &all_here);
    scope(|s| {
        let guard = lock.lock();
        let arrive = |n: usize| {
            let before = lock.last_in_line();
            s.spawn(move || {
                let guard = lock.lock();
                order.lock().unwrap().push(n);
                eventually(|| all_here.load(Relaxed) == 1);
                // SAFETY: `guard` is of this lock, was acquired above on this thread, and has not been released.
                unsafe { lock.unlock(guard) };
            });
            eventually(|| lock.last_in_line() != before);
        };
        (0..first).for_each(arrive);
        // SAFETY: `guard` is of this lock, was acquired above on this thread, and has not been released.
        unsafe { lock.unlock(guard) };
        eventually(|| order.lock().unwrap().len() == 1);
        (first..first + second).for_each(arrive);
        all_here.store(1, Relaxed);
    });
    let order = order.lock().unwrap();
    order.clone()
}

fn first_come_first_served<L: InLine>() {
    assert_eq!(served::<L>(4, 3), [0, 1, 2, 3, 4, 5, 6]);
}

#[test]
fn the_ticket_lock_is_first_come_first_served() {
    first_come_first_served::<TicketLock>();
}

#[test]
fn mcs_is_first_come_first_served() {
    first_come_first_served::<Mcs>();
    first_come_first_served::<Mcs<SpinThenYield>>();
}

#[test]
fn clh_is_first_come_first_served() {
    first_come_first_served::<Clh>();
    first_come_first_served::<Clh<SpinThenYield>>();
}

#[test]
fn lifo_is_last_come_first_served() {
    // Contender 3 owns the lock as the others arrive, which queue in front of the contenders that came before contender
    // 3.
    assert_eq!(served::<Lifo>(4, 3), [3, 6, 5, 4, 2, 1, 0]);
    assert_eq!(served::<Lifo<SpinThenYield>>(4, 3), [3, 6, 5, 4, 2, 1, 0]);
}

#[test]
fn reciprocating_serves_segment_after_segment_each_from_its_end() {
    // Contenders that arrive while contender 3 owns the lock are the next segment.
    assert_eq!(served::<Reciprocating>(4, 3), [3, 2, 1, 0, 6, 5, 4]);
    assert_eq!(served::<Reciprocating<SpinThenYield>>(4, 3), [3, 2, 1, 0, 6, 5, 4]);
    assert_eq!(served::<Reciprocating>(1, 4), [0, 4, 3, 2, 1]);
}

/// Two segments, of which the second begins while the first is served. A contender that arrives then must not be taken
/// for the mark at the end of the first segment, though the contender's element may have the mark's address.
struct Segments {
    lock: Reciprocating,
    order: Mutex<Vec<usize>>,
    another_came: AtomicUsize,
}

impl Segments {
    fn new() -> Self {
        Self { lock: RawLock::new(), order: Mutex::default(), another_came: AtomicUsize::new(0) }
    }

    /// Takes the lock, waits for three contenders, and unlocks for them: the caller's element is the mark. The first
    /// owner among the three keeps the lock until another contender has arrived.
    fn first<'s>(&'s self, s: Scope<'s, '_>) {
        let Self { lock, order, another_came } = self;
        let guard = lock.lock();
        for n in 0..3 {
            let before = lock.last_in_line();
            s.spawn(move || {
                let guard = lock.lock();
                order.lock().unwrap().push(n);
                eventually(|| n != 2 || another_came.load(Relaxed) == 1);
                // SAFETY: `guard` is of this lock, was acquired above on this thread, and has not been released.
                unsafe { lock.unlock(guard) };
            });
            eventually(|| lock.last_in_line() != before);
        }
        // SAFETY: `guard` is of this lock, was acquired above on this thread, and has not been released.
        unsafe { lock.unlock(guard) };
        eventually(|| order.lock().unwrap().len() == 1);
    }

    /// Locks as the only contender of the next segment.
    fn second<'s>(&'s self, s: Scope<'s, '_>) {
        let Self { lock, order, another_came } = self;
        let before = lock.last_in_line();
        s.spawn(move || {
            eventually(|| lock.last_in_line() != before);
            another_came.store(1, Relaxed);
        });
        let guard = lock.lock();
        assert_eq!(*order.lock().unwrap(), [2, 1, 0]);
        // SAFETY: `guard` is of this lock, was acquired above on this thread, and has not been released.
        unsafe { lock.unlock(guard) };
    }
}

#[test]
fn reciprocating_knows_a_mark_from_its_thread_that_arrives_again() {
    let _watchdog = Watchdog::new();
    let segments = Segments::new();
    scope(|s| {
        segments.first(s);
        segments.second(s);
    });
    assert!(!segments.lock.is_locked());
}

/// Runs the second segment on a new thread, which is likely to get the memory of the ended thread, and so the mark's
/// address.
#[test]
fn reciprocating_knows_the_mark_of_a_thread_that_has_ended() {
    for _ in 0..20 {
        let _watchdog = Watchdog::new();
        let segments = &Segments::new();
        scope(|s| {
            s.spawn(move || segments.first(s)).join().unwrap();
            s.spawn(move || segments.second(s)).join().unwrap();
        });
        assert!(!segments.lock.is_locked());
    }
}

// ---- threads that hold, end, forget, panic --------------------------------------------------------------------------

fn many_are_held_at_once_and_released_in_any_order<L: RawLock>(watchdog: &Watchdog) {
    const LOCKS: usize = 150; // more than fit into the first chunk of Clh's nodes
    let locks: Vec<L> = (0..LOCKS).map(|_| L::new()).collect();
    let mut held_by: Vec<_> = (0..LOCKS).map(|_| AtomicU64::new(0)).collect();
    scope(|s| {
        for seed in 0..3 {
            let (locks, held_by) = (&locks, &held_by);
            s.spawn(move || {
                let mut rng = StdRng::seed_from_u64(seed);
                for _ in 0..20 {
                    // Lock in the order of the locks, so that no ring of waiters forms.
                    let mut held: Vec<_> = locks.iter().enumerate().map(|(n, lock)| (n, lock.lock())).collect();
                    held.shuffle(&mut rng);
                    for (n, guard) in held {
                        held_by[n].store(held_by[n].load(Relaxed) + 1, Relaxed);
                        // SAFETY: `guard` is of this lock, was acquired above on this thread, and has not been released.
                        unsafe { locks[n].unlock(guard) };
                    }
                    watchdog.pat();
                }
            });
        }
    });
    assert!(held_by.iter_mut().all(|n| *n.get_mut() == 60) && !locks.iter().any(L::is_locked));
}

fn a_thread_ends_while_another_waits<L: RawLock>(_: &Watchdog) {
    let lock = L::new();
    for _ in 0..50 {
        let (starts, started) = channel();
        scope(|s| {
            let guard = lock.lock();
            for _ in 0..2 {
                let (lock, starts) = (&lock, starts.clone());
                s.spawn(move || {
                    starts.send(()).unwrap();
                    let guard = lock.lock();
                    // SAFETY: `guard` is of this lock, was acquired above on this thread, which ends afterwards, and
                    // has not been released.
                    unsafe { lock.unlock(guard) };
                });
                started.recv().unwrap();
            }
            // SAFETY: `guard` is of this lock, was acquired above on this thread, and has not been released.
            unsafe { lock.unlock(guard) };
        });
        assert!(!lock.is_locked());
    }
}

/// A value that locks and unlocks when it is dropped.
struct AtTheEnd<L: RawLock + 'static>(Arc<(L, AtomicU64)>);

impl<L: RawLock> Drop for AtTheEnd<L> {
    fn drop(&mut self) {
        let (lock, count) = &*self.0;
        let other = L::new();
        let (inner, guard) = (other.lock(), lock.lock());
        count.store(count.load(Relaxed) + 1, Relaxed);
        // SAFETY: `guard` is of `lock`, `inner` is of `other`; both were acquired above on this thread, and have not
        // been released.
        unsafe {
            lock.unlock(guard);
            other.unlock(inner);
        }
    }
}

thread_local! {
    static BEFORE: RefCell<Option<Box<dyn std::any::Any>>> = const { RefCell::new(None) };
    static AFTER: RefCell<Option<Box<dyn std::any::Any>>> = const { RefCell::new(None) };
}

fn a_thread_locks_in_its_last_destructors<L: RawLock + 'static>(_: &Watchdog) {
    const THREADS: u64 = 20;
    let shared = Arc::new((L::new(), AtomicU64::new(0)));
    let threads: Vec<_> = (0..THREADS)
        .map(|n| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                // One of the two values is destroyed before the thread-local data of the lock, the other after that
                // data, whichever order the system uses.
                BEFORE.set(Some(Box::new(AtTheEnd(Arc::clone(&shared)))));
                if n % 2 == 0 {
                    let guard = shared.0.lock();
                    // SAFETY: `guard` is of this lock, was acquired above on this thread, and has not been released.
                    unsafe { shared.0.unlock(guard) };
                }
                AFTER.set(Some(Box::new(AtTheEnd(shared))));
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let (lock, count) = &*shared;
    assert!(!lock.is_locked());
    assert_eq!(count.load(Relaxed), 2 * THREADS);
}

fn a_forgotten_guard_is_a_lock_that_can_be_moved_and_dropped<L: RawLock>(_: &Watchdog) {
    let free = L::new();
    for round in 0..100 {
        let lock = L::new();
        if round % 2 == 0 {
            std::mem::forget(lock.lock());
        } else {
            // Forget the guard on a thread that has ended.
            scope(|s| s.spawn(|| std::mem::forget(lock.lock())).join().unwrap());
        }
        let moved = Box::new(lock);
        assert!(moved.is_locked() && moved.try_lock().is_none());
        assert!(moved.try_lock_until(Instant::now() + Duration::from_micros(10)).is_none());
        drop(moved);
        // The other lock works as before.
        let guard = free.try_lock().expect("free");
        scope(|s| s.spawn(|| assert!(free.try_lock().is_none())).join().unwrap());
        // SAFETY: `guard` is of this lock, was acquired above on this thread, and has not been released.
        unsafe { free.unlock(guard) };
    }
}

fn an_owner_that_panics_frees_the_lock<L: ConstRawLock>(_: &Watchdog) {
    let mutex = MutexWith::<L, u32>::new(0);
    scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                for _ in 0..100 {
                    let panic = catch_unwind(AssertUnwindSafe(|| {
                        let mut value = mutex.lock();
                        *value += 1;
                        std::panic::resume_unwind(Box::new(()));
                    }));
                    assert!(panic.is_err());
                }
            });
        }
    });
    assert_eq!(mutex.into_inner(), 400);
}

/// Checks that a goroutine that waits counts as its thread: here the goroutine blocks one of two workers while the
/// owner runs.
#[cfg(unix)]
fn goroutines_and_threads_exclude_each_other<L: RawLock + 'static>(watchdog: &Watchdog) {
    use sudog::runtime::gosched;
    use sudog::{run, spawn};

    fn visit<L: RawLock>((lock, count): &(L, AtomicU64)) {
        let guard = lock.lock();
        count.store(count.load(Relaxed) + 1, Relaxed); // and does not yield
        // SAFETY: `guard` is of this lock, was acquired above on this thread, and has not been released.
        unsafe { lock.unlock(guard) };
    }

    let shared = Arc::new((L::new(), AtomicU64::new(0)));
    scope(|s| {
        for _ in 0..2 {
            s.spawn(|| (0..2_000).for_each(|_| visit(&shared)));
        }
        let theirs = Arc::clone(&shared);
        run(move || {
            let goroutines: Vec<_> = (0..8)
                .map(|_| {
                    let shared = Arc::clone(&theirs);
                    spawn(move || {
                        for _ in 0..500 {
                            visit(&shared);
                            gosched();
                        }
                    })
                })
                .collect();
            goroutines.into_iter().for_each(|goroutine| goroutine.join().unwrap());
        });
        watchdog.pat();
    });
    assert_eq!(shared.1.load(Relaxed), 2 * 2_000 + 8 * 500);
    assert!(!shared.0.is_locked());
}

/// A policy whose wait panics.
struct Panics;

impl WaitPolicy for Panics {
    const PARKS: bool = true;

    fn pass_time(_: u32) -> bool {
        std::panic::resume_unwind(Box::new(()))
    }
}

/// Runs the test of this name again as a child process, in which a variable asks for the deed; returns the child's
/// standard error.
fn last_words(test: &str, deed: impl FnOnce()) -> Option<String> {
    const DO_IT: &str = "SUDOG_TEST_SPIN_LOCK_DEED";
    if std::env::var_os(DO_IT).is_some() {
        deed();
        return None;
    }
    let child = test_command(module_path!(), test).env(DO_IT, "1").output().unwrap();
    assert!(!child.status.success());
    Some(String::from_utf8(child.stderr).unwrap())
}

mod a_policy_that_panics_in_line_ends_the_process {
    use super::*;

    fn test<L: RawLock>(name: &str) {
        let deed = || {
            let lock = L::new();
            let _guard = lock.lock();
            scope(|s| _ = s.spawn(|| _ = lock.lock()).join());
        };
        let name = format!("a_policy_that_panics_in_line_ends_the_process::{name}");
        if let Some(words) = last_words(&name, deed) {
            assert!(words.contains("fatal error: sync: a waiter was unwound in the queue of a lock"), "{words}");
        }
    }

    macro_rules! tests {
        ($($name:ident = $Lock:ident)+) => { $(
            #[test]
            fn $name() {
                test::<$Lock<Panics>>(stringify!($name));
            }
        )+ };
    }

    tests!(tts = Tts ticket = TicketLock mcs = Mcs clh = Clh lifo = Lifo reciprocating = Reciprocating);
}

/// A policy that says that it never sleeps, and then that the time to sleep has come.
struct Contradicts;

static CONTRADICTIONS: AtomicUsize = AtomicUsize::new(0);

impl WaitPolicy for Contradicts {
    const PARKS: bool = false;

    fn pass_time(_: u32) -> bool {
        CONTRADICTIONS.fetch_add(1, Relaxed);
        thread::yield_now();
        false
    }
}

#[test]
fn a_policy_that_contradicts_itself_leaves_no_waiter_asleep() {
    fn test<L: RawLock>() {
        let _watchdog = Watchdog::new();
        let lock = L::new();
        let guard = lock.lock();
        scope(|s| {
            let before = CONTRADICTIONS.load(Relaxed);
            s.spawn(|| {
                let guard = lock.lock();
                // SAFETY: `guard` is of this lock, was acquired above on this thread, and has not been released.
                unsafe { lock.unlock(guard) };
            });
            // A waiter that sleeps would not ask the policy any more.
            eventually(|| CONTRADICTIONS.load(Relaxed) > before + 5);
            // SAFETY: `guard` is of this lock, was acquired above on this thread, and has not been released.
            unsafe { lock.unlock(guard) };
        });
    }
    test::<Tts<Contradicts>>();
    test::<TicketLock<Contradicts>>();
    test::<Mcs<Contradicts>>();
    test::<Clh<Contradicts>>();
    test::<Lifo<Contradicts>>();
    test::<Reciprocating<Contradicts>>();
}

// ---- stress ---------------------------------------------------------------------------------------------------------

fn stress<L: RawLock>(watchdog: &Watchdog) {
    const THREADS: u64 = 8;
    let secs = std::env::var("SUDOG_STRESS_SECS").map_or(0.5, |secs| secs.parse().expect("a number of seconds"));
    let end = Instant::now() + Duration::from_secs_f64(secs);
    let locks: [(L, AtomicU64); 2] = std::array::from_fn(|_| (L::new(), AtomicU64::new(0)));
    let visits: u64 = scope(|s| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let seed = SysRng.try_next_u64().expect("the system's generator");
                eprintln!("thread {thread}: seed {seed}");
                let (locks, mut rng) = (&locks, StdRng::seed_from_u64(seed));
                s.spawn(move || {
                    let mut visits = 0;
                    let visit = |(lock, count): &(L, AtomicU64), rng: &mut StdRng, quick: bool| {
                        let Some(guard) = (if quick { lock.try_lock() } else { Some(lock.lock()) }) else { return 0 };
                        let n = count.load(Relaxed);
                        match rng.random_range(0..300) {
                            0 => thread::sleep(Duration::from_micros(rng.random_range(0..500))),
                            1..8 => thread::yield_now(),
                            _ => (0..rng.random_range(0..100)).for_each(|_| std::hint::spin_loop()),
                        }
                        count.store(n + 1, Relaxed);
                        // SAFETY: `guard` is of this lock, was acquired above on this thread, and has not been released.
                        unsafe { lock.unlock(guard) };
                        1
                    };
                    while Instant::now() < end {
                        let quick = rng.random_range(0..3) == 0;
                        visits += match rng.random_range(0..8) {
                            0 => {
                                // Lock one lock inside the other.
                                let guard = locks[0].0.lock();
                                let visits = visit(&locks[1], &mut rng, quick);
                                // SAFETY: `guard` is of this lock, was acquired above on this thread, and has not
                                // been released.
                                unsafe { locks[0].0.unlock(guard) };
                                visits
                            }
                            n => visit(&locks[n % 2], &mut rng, quick),
                        };
                        watchdog.pat();
                    }
                    visits
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(locks.iter().map(|(_, count)| count.load(Relaxed)).sum::<u64>(), visits);
    assert!(locks.iter().all(|(lock, _)| !lock.is_locked()));
}

/// Checks locks whose policy pauses for ever. With more threads than processors each handover takes a time slice, so
/// there are few threads and few rounds.
#[test]
fn those_that_only_spin_exclude_too() {
    fn visit<L: RawLock>() {
        let _watchdog = Watchdog::new();
        let (lock, count) = (L::new(), AtomicU64::new(0));
        scope(|s| {
            for _ in 0..2 {
                s.spawn(|| {
                    for _ in 0..500 {
                        let guard = lock.lock();
                        count.store(count.load(Relaxed) + 1, Relaxed);
                        // SAFETY: `guard` is of this lock, was acquired above on this thread, and has not been released.
                        unsafe { lock.unlock(guard) };
                    }
                });
            }
        });
        assert_eq!(count.into_inner(), 1000);
    }
    visit::<Tts<Spin>>();
    visit::<TicketLock<Spin>>();
    visit::<Mcs<Spin>>();
    visit::<Clh<Spin>>();
    visit::<Lifo<Spin>>();
    visit::<Reciprocating<Spin>>();
}
