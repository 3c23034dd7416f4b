//! Models of the queue and spin locks: every interleaving, on loom's memory model, up to a bound of preemptions.
//!
//! `RUSTFLAGS="--cfg sudog_loom" cargo test --profile loom -p sudog-locks --test loom_spin_lock`
//!
//! A lost wake-up, or a lost handover, shows as a deadlock; a lost exclusion, or a lost order, as a data race in loom's
//! cell; leftovers in the lock's state at the end.
//!
//! A policy that parks does so at once in a model. A policy that yields lets the other threads run first. A thread's
//! element, and its list of nodes, end with the modelled thread.
#![cfg(sudog_loom)]

#[path = "../../lab/core/src/targets/models/fissile.rs"]
mod lab_fissile;
#[path = "../../lab/core/src/targets/models/hapax.rs"]
mod lab_hapax;
#[path = "../../lab/core/src/targets/models/ticket_lines.rs"]
mod lab_ticket_lines;
#[path = "../../lab/core/src/targets/models/twa_lock.rs"]
mod lab_twa_lock;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use sudog_locks::spin_lock::{Clh, Lifo, Mcs, Reciprocating, Spin, SpinThenPark, SpinThenYield, TicketLock, Tts};
use sudog_runtime::model::set_clock;
use sudog_runtime::model::thread;
use sudog_runtime::reached::{AGAIN, AT_ONCE, SLEEPS, TWO_SLEEP, YIELDS, mark, must_reach, waiting};
use sudog_sync::RawLock;

/// The queue of `lab_fissile`, in the place of `Cna`, which keeps its nodes from one execution to the next.
type Cna = Mcs<SpinThenYield>;

// States that a model can reach, in addition to a call's states.
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
    /// The order of the turns. Pushed by each owner; recording the order is no step of the model.
    order: std::sync::Mutex<Vec<thread::ThreadId>>,
    main: thread::ThreadId,
}

impl<L: RawLock> World<L> {
    fn new() -> Self {
        Self { lock: L::new(), data: UnsafeCell::new(0), order: Default::default(), main: thread::current().id() }
    }

    fn visit(&self) {
        // SAFETY: loom's cell checks that accesses do not overlap; the model tests this.
        self.data.with_mut(|data| unsafe { *data += 1 });
        self.order.lock().unwrap().push(thread::current().id());
    }

    /// Marks whether the main thread and the other threads had their turns in this order.
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
        let (guard, _) = waiting(|| self.lock.lock());
        self.visit();
        // SAFETY: `guard` is of this lock, was acquired above on this thread, and has not been released.
        unsafe { self.lock.unlock(guard) };
    }

    /// Tries to lock and have a turn. Returns the number of turns: 1 or 0.
    fn quick_turn(&self) -> u32 {
        let guard = self.lock.try_lock();
        mark(if guard.is_some() { TRY } else { TRY_FAILS });
        let Some(guard) = guard else { return 0 };
        self.visit();
        // SAFETY: `guard` is of this lock, was acquired above on this thread, and has not been released.
        unsafe { self.lock.unlock(guard) };
        1
    }

    /// Checks, when all other threads are done, that the lock can be taken at once, and was taken `turns` times.
    fn finish(&self, turns: u32) {
        self.mark_order();
        assert!(!self.lock.is_locked());
        let guard = self.lock.try_lock().expect("it is free");
        self.visit();
        // SAFETY: `guard` is of this lock, was acquired above on this thread, and has not been released.
        unsafe { self.lock.unlock(guard) };
        // SAFETY: loom's cell checks that accesses do not overlap; the model tests this.
        assert_eq!(self.data.with(|data| unsafe { *data }), turns + 1);
        assert!(!self.lock.is_locked());
    }
}

fn check(preemptions: usize, states: &[&'static str], model: impl Fn() + Sync + Send + 'static) {
    let run = move || {
        set_clock(0);
        model();
    };
    must_reach(states, || sudog_runtime::model::explore(preemptions, run));
}

/// Runs threads that have `turns` turns each. Before its turns the first thread makes `quick` tries, which need not
/// succeed.
fn explore<L: RawLock + std::fmt::Debug + 'static, const THREADS: usize>(
    preemptions: usize,
    turns: [u32; THREADS],
    quick: u32,
    states: &[&'static str],
) {
    explore_lock::<L, THREADS>(preemptions, turns, quick, states, |lock| format!("{lock:?}"));
}

/// Explores as [`explore`] does. What `leftovers` returns of the lock must be the same before and after.
fn explore_lock<L: RawLock + 'static, const THREADS: usize>(
    preemptions: usize,
    turns: [u32; THREADS],
    quick: u32,
    states: &[&'static str],
    leftovers: fn(&L) -> String,
) {
    check(preemptions, states, move || {
        let w = Arc::new(World::<L>::new());
        let at_rest = leftovers(&w.lock);
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
        assert_eq!(leftovers(&w.lock), at_rest);
        w.finish(turns.iter().sum::<u32>() + quick);
    });
}

const HOLDS_AND_WAITS: &str = "a thread that holds a lock waits for another";

/// Lets two threads hold the first lock as they wait for the second, while a third thread wants only the second lock.
fn explore_two_locks<L: RawLock + std::fmt::Debug + 'static>(preemptions: usize, states: &[&'static str]) {
    fn both<L: RawLock>(outer: &World<L>, inner: &World<L>) {
        let ((first, _), (second, waits)) = (waiting(|| outer.lock.lock()), waiting(|| inner.lock.lock()));
        if waits {
            mark(HOLDS_AND_WAITS);
        }
        outer.visit();
        inner.visit();
        // SAFETY: `first` is of `outer`, `second` is of `inner`; both were acquired above on this thread, and have not
        // been released.
        unsafe {
            outer.lock.unlock(first); // in the order in which the locks were locked
            inner.lock.unlock(second);
        }
    }
    check(preemptions, states, || {
        let worlds = Arc::new([World::<L>::new(), World::new()]);
        let others = [0, 1].map(|other| {
            let worlds = worlds.clone();
            thread::spawn(move || match other {
                0 => both(&worlds[0], &worlds[1]),
                _ => worlds[1].turn(),
            })
        });
        both(&worlds[0], &worlds[1]);
        others.into_iter().for_each(|other| other.join().unwrap());
        worlds[0].finish(2);
        worlds[1].finish(3);
    });
}

/// The models of each lock. `$waits` tells whether a thread that waits sleeps or yields, which depends on the policy.
macro_rules! locks {
    ($($name:ident: $Lock:ty, $waits:expr;)+) => { $(
        mod $name {
            use super::*;

            #[test]
            fn two_threads() {
                explore::<$Lock, _>(3, [2, 2], 0, &[AT_ONCE, $waits, MAIN_FIRST, OTHER_FIRST, OVERTAKEN, ALTERNATE]);
            }

            #[test]
            fn try_lock() {
                explore::<$Lock, _>(3, [1, 1], 1, &[AT_ONCE, $waits, TRY, TRY_FAILS, MAIN_FIRST, OTHER_FIRST, OVERTAKEN]);
            }

            /// Lets the other thread's turns bring the words round to earlier values.
            #[test]
            fn try_lock_beside_many_turns() {
                explore::<$Lock, _>(3, [0, 4], 2, &[AT_ONCE, $waits, TRY, TRY_FAILS, MAIN_FIRST, OTHER_FIRST, OVERTAKEN]);
            }
        }
    )+ };
}

locks! {
    tts: Tts<SpinThenPark>, SLEEPS;
    tts_yield: Tts<SpinThenYield>, YIELDS;
    tts_spin: Tts<Spin>, YIELDS;
    ticket: TicketLock<SpinThenYield>, YIELDS;
    ticket_spin: TicketLock<Spin>, YIELDS;
    mcs: Mcs<SpinThenPark>, SLEEPS;
    mcs_yield: Mcs<SpinThenYield>, YIELDS;
    clh: Clh<SpinThenPark>, SLEEPS;
    clh_yield: Clh<SpinThenYield>, YIELDS;
    lifo: Lifo<SpinThenPark>, SLEEPS;
    lifo_yield: Lifo<SpinThenYield>, YIELDS;
    reciprocating: Reciprocating<SpinThenPark>, SLEEPS;
    reciprocating_yield: Reciprocating<SpinThenYield>, YIELDS;
}

/// The models with three threads, for locks that park. Two threads that spin can yield to each other for ever, which no
/// bound of preemptions ends.
macro_rules! locks_of_three {
    ($($name:ident: $Lock:ty;)+) => {
        mod three_threads {
            use super::*;

            $(#[test] fn $name() { explore::<$Lock, _>(2, [2, 1, 1], 0, &[AT_ONCE, SLEEPS, TWO_SLEEP, MAIN_FIRST, OTHER_FIRST, OVERTAKEN, ALTERNATE]); })+
        }

        mod two_locks {
            use super::*;

            $(#[test] fn $name() { explore_two_locks::<$Lock>(2, &[AT_ONCE, SLEEPS, TWO_SLEEP, HOLDS_AND_WAITS, MAIN_FIRST, OTHER_FIRST]); })+
        }
    };
}

locks_of_three! {
    mcs: Mcs;
    clh: Clh;
    lifo: Lifo;
    reciprocating: Reciprocating;
}

/// Runs three threads on a `Tts`. The futex of the model has a single bed for all words, so it can model only one lock.
#[test]
fn three_threads_tts() {
    explore::<Tts, _>(2, [2, 1, 1], 0, &[AT_ONCE, SLEEPS, TWO_SLEEP, AGAIN, MAIN_FIRST, OTHER_FIRST, ALTERNATE]);
}

/// The models of the laboratory's locks, from the laboratory's files. There the arrays have one slot, and no contender is
/// near its turn.
macro_rules! locks_of_the_laboratory {
    ($($name:ident: $Lock:ty, $waits:expr;)+) => {
        mod laboratory { $(
            mod $name {
                use super::super::*;

                #[test]
                fn two_threads() {
                    let states = [AT_ONCE, MAIN_FIRST, OTHER_FIRST, OVERTAKEN, ALTERNATE, $waits];
                    explore_lock::<$Lock, _>(3, [2, 2], 0, &states, |_| String::new());
                }

                #[test]
                fn try_lock() {
                    let states = [AT_ONCE, TRY, TRY_FAILS, MAIN_FIRST, OTHER_FIRST, OVERTAKEN];
                    explore_lock::<$Lock, _>(3, [1, 1], 1, &states, |_| String::new());
                }
            }
        )+ }
    };
}

locks_of_the_laboratory! {
    ticket_lines: lab_ticket_lines::TicketLines, YIELDS;
    hapax: lab_hapax::Hapax, YIELDS;
    twa_lock: lab_twa_lock::TwaLock, YIELDS;
    twa_lock_chain: lab_twa_lock::TwaLock<lab_twa_lock::Chains>, SLEEPS;
}

/// In this model a contender that has failed once is impatient.
#[test]
fn fissile() {
    const STATES: [&str; 6] = [
        AT_ONCE,
        YIELDS,
        MAIN_FIRST,
        OTHER_FIRST,
        "the first of the queue is impatient",
        "a newcomer does not overtake an impatient waiter",
    ];
    explore::<lab_fissile::Fissile, _>(3, [2, 2], 0, &STATES);
    explore::<lab_fissile::Fissile, _>(3, [1, 1], 1, &[AT_ONCE, YIELDS, TRY, TRY_FAILS]);
}

#[test]
fn three_threads_twa_lock_chain() {
    use lab_twa_lock::{Chains, TwaLock};
    let states = [AT_ONCE, SLEEPS, TWO_SLEEP, MAIN_FIRST, OTHER_FIRST];
    explore_lock::<TwaLock<Chains>, _>(2, [2, 1, 1], 0, &states, |_| String::new());
}
