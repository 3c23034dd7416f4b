//! Models of the stages of the mutex: every interleaving, on loom's memory model, up to a bound of preemptions.
//!
//! `RUSTFLAGS="--cfg sudog_loom" cargo test --profile loom -p sudog-sync --test loom_stages`
//!
//! A lost wake-up shows as a deadlock; a lost exclusion as a data race in loom's cell; a stray permit when the
//! semaphore is dropped; a bit or a count left behind in the lock's `Debug` output at the end. The clock is that of
//! `loom_mutex`.
#![cfg(sudog_loom)]

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use sudog_runtime::Instant;
use sudog_runtime::model::set_clock;
use sudog_runtime::model::thread;
use sudog_runtime::reached::{
    AGAIN, AT_ONCE, SLEEPS, TWO_SLEEP, WOKEN_BEFORE, is_asked_for, mark, must_reach, waiting,
};
use sudog_sync::mutex::stages::{V1, V2, V3, V4, V5, V6, V7};
use sudog_sync::semaphore::RuntimeSema;
use sudog_sync::{Order, RawLock, Semaphore, Wake};

/// The runtime's semaphore. Its drop asserts that `LEAST` to `MOST` permits are left.
struct Checked<const LEAST: u32, const MOST: u32>(RuntimeSema);

/// A semaphore of one permit, which is available while the lock is unlocked.
type One = Checked<1, 1>;
/// A semaphore in which one permit may be left without a taker.
type Stray = Checked<0, 1>;
type Empty = Checked<0, 0>;

// SAFETY: every call is passed on to `RuntimeSema`, which keeps the contract of `Semaphore`.
unsafe impl<const LEAST: u32, const MOST: u32> Semaphore for Checked<LEAST, MOST> {
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
        self.0.acquire_until(order, deadline)
    }
    fn release(&self, wake: Wake) {
        self.0.release(wake);
    }
}

impl<const LEAST: u32, const MOST: u32> Drop for Checked<LEAST, MOST> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let left = (0..).take_while(|_| self.0.try_acquire()).count() as u32;
            assert!((LEAST..=MOST).contains(&left), "{left} permits were left behind");
        }
    }
}

// The outcomes that a model can reach, in addition to the outcomes of a call.
const TRY: &str = "a try comes off";
const TRY_FAILS: &str = "a try fails";
const MAIN_FIRST: &str = "the main thread is first";
const OTHER_FIRST: &str = "another thread is first";
const ONE_AFTER_THE_OTHER: &str = "one has its turns after the other";
const OVERTAKEN: &str = "one has its turns between two of the other";
const ALTERNATE: &str = "the turns alternate";

struct World<L> {
    lock: L,
    data: UnsafeCell<u32>,
    /// The threads that had a turn, in order. `std`'s mutex guards the list, so a push is no step of the model.
    order: std::sync::Mutex<Vec<thread::ThreadId>>,
    main: thread::ThreadId,
}

impl<L: RawLock<Guard = ()> + std::fmt::Debug> World<L> {
    fn visit(&self) {
        // SAFETY: loom's cell checks that accesses do not overlap; that is the test.
        self.data.with_mut(|data| unsafe { *data += 1 });
        self.order.lock().unwrap().push(thread::current().id());
        // SAFETY: the caller has locked `self.lock`, whose guard is `()`, and has not unlocked it.
        unsafe { self.lock.unlock(()) };
    }

    /// Marks the order in which the main thread and the other threads had their turns.
    fn mark_order(&self) {
        let order = self.order.lock().unwrap();
        let changes = order.windows(2).filter(|turns| turns[0] != turns[1]).count();
        let main = order.iter().position(|turn| *turn == self.main);
        mark(if main == Some(0) { MAIN_FIRST } else { OTHER_FIRST });
        mark(match changes {
            0 | 1 => ONE_AFTER_THE_OTHER,
            2 => OVERTAKEN,
            _ => ALTERNATE,
        });
    }

    fn turn(&self) {
        waiting(|| self.lock.lock());
        self.visit();
    }

    /// Tries to take a turn. Returns the number of turns taken, 0 or 1.
    fn quick_turn(&self) -> u32 {
        let got = self.lock.try_lock().is_some();
        mark(if got { TRY } else { TRY_FAILS });
        if got {
            self.visit();
        }
        u32::from(got)
    }
}

/// Runs `THREADS` threads: thread `i` takes `turns[i]` turns. Before that, the first thread tries `quick` turns, which
/// may fail.
fn explore<L: RawLock<Guard = ()> + std::fmt::Debug + 'static, const THREADS: usize>(
    preemptions: usize,
    step_us: u64,
    turns: [u32; THREADS],
    quick: u32,
) {
    assert!(is_asked_for(), "by `must_reach`: which states?");
    sudog_runtime::model::explore(preemptions, move || {
        set_clock(step_us * 1000);
        let (order, main) = (Default::default(), thread::current().id());
        let w = Arc::new(World { lock: L::new(), data: UnsafeCell::new(0), order, main });
        let at_rest = format!("{:?}", w.lock);
        let others = turns[1..].iter().map(|&turns| {
            let w = w.clone();
            thread::spawn(move || (0..turns).for_each(|_| w.turn()))
        });
        let others: Vec<_> = others.collect();
        let quick: u32 = (0..quick).map(|_| w.quick_turn()).sum();
        (0..turns[0]).for_each(|_| w.turn());
        for other in others {
            other.join().unwrap();
        }
        w.mark_order();
        assert_eq!(format!("{:?}", w.lock), at_rest);
        w.lock.lock();
        // SAFETY: loom's cell checks that accesses do not overlap; that is the test.
        assert_eq!(w.data.with(|data| unsafe { *data }), turns.iter().sum::<u32>() + quick);
        // SAFETY: this thread locked `w.lock` above and has not unlocked it.
        unsafe { w.lock.unlock(()) };
        assert_eq!(format!("{:?}", w.lock), at_rest);
    });
}

/// Steps of the clock, in microseconds. With 0, no time passes: a spin ends when all other threads have run. With 1, a
/// spin ends by the clock. With 2000, every contender starves.
const STARVES: [u64; 3] = [0, 1, 2000];
const SPINS: [u64; 2] = [0, 1];

macro_rules! stages {
    ($($name:ident: $Lock:ty, $steps:expr;)+) => { $(
        mod $name {
            use super::*;

            #[test]
            fn two_threads() {
                let states = [AT_ONCE, SLEEPS, WOKEN_BEFORE, MAIN_FIRST, OTHER_FIRST, OVERTAKEN, ALTERNATE];
                must_reach(&states, || $steps.into_iter().for_each(|step| explore::<$Lock, _>(3, step, [2, 2], 0)));
            }

            #[test]
            fn three_threads() {
                let states = [AT_ONCE, SLEEPS, TWO_SLEEP, AGAIN, MAIN_FIRST, OTHER_FIRST, OVERTAKEN, ALTERNATE];
                must_reach(&states, || $steps.into_iter().for_each(|step| explore::<$Lock, _>(2, step, [2, 1, 1], 0)));
            }

            #[test]
            fn try_lock() {
                let states = [AT_ONCE, SLEEPS, WOKEN_BEFORE, TRY, TRY_FAILS, MAIN_FIRST, OTHER_FIRST, OVERTAKEN];
                must_reach(&states, || $steps.into_iter().for_each(|step| explore::<$Lock, _>(3, step, [1, 1], 1)));
            }
        }
    )+ };
}

stages! {
    v1: V1<One>, [0];
    v2: V2<Stray>, [0];
    v3: V3<Stray>, SPINS;
    v4: V4<Empty>, SPINS;
    v5: V5<Empty>, SPINS;
    v6: V6<Empty>, SPINS;
    v7: V7<Empty>, STARVES;
}

/// Another contender comes while the mutex is promised to a waiter: that takes more preemptions.
#[test]
fn v7_is_promised() {
    const HANDED_OVER: &str = "the mutex is handed over";
    const PROMISED: &str = "another comes while the mutex is promised";
    must_reach(&[HANDED_OVER, PROMISED, SLEEPS, TWO_SLEEP, AGAIN], || explore::<V7<Empty>, _>(3, 2000, [2, 1, 1], 0));
}
