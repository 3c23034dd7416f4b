//! After a goroutine has yielded, each goroutine and each task that was ready on its worker has had a turn: whatever
//! made it ready, and in whatever order. And no stream of new work starves a goroutine that yields.
//!
//! All turns are counted, on a single worker, where no thief takes a turn away.
#![cfg(all(unix, not(sudog_loom)))]

use std::cell::Cell;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::task::{Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use sudog::low_level::sema::{Wake, semacquire, semrelease, semrelease_many, waiters};
use sudog::runtime::gosched;
use sudog::time::sleep;
use sudog::{Builder, Placement, go, go_async, run, spawn};
use support::Watchdog;
use support::goroutine::{alone_with, one_worker, until};

/// A generator of numbers below `n`: Knuth's MMIX.
struct Random(Cell<u64>);

impl Random {
    fn below(&self, n: u64) -> u64 {
        self.0.set(self.0.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407));
        (self.0.get() >> 33) % n
    }
}

/// The number of expected turns, and the number of turns taken.
#[derive(Clone, Default)]
struct Turns {
    ready: Arc<AtomicUsize>,
    had: Arc<AtomicUsize>,
}

impl Turns {
    fn expect(&self) {
        self.ready.fetch_add(1, Relaxed);
    }

    fn take(&self) {
        self.had.fetch_add(1, Relaxed);
    }

    fn check(&self, what: &str) {
        assert_eq!(self.had.load(Relaxed), self.ready.load(Relaxed), "{what}");
    }
}

fn spin(time: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// Semaphores, each with a goroutine that waits for its permits.
type Gates = Arc<[AtomicU32; 4]>;

/// Starts a goroutine that waits at a gate, again and again. A permit is a turn for that goroutine.
fn waits_at(gates: &Gates, gate: usize, turns: &Turns, over: &Arc<AtomicBool>) {
    let (gates, turns, over) = (gates.clone(), turns.clone(), over.clone());
    go(move || {
        loop {
            semacquire(&gates[gate]);
            if over.load(Relaxed) {
                return;
            }
            turns.take();
        }
    });
}

/// The waker of a task that is polled whenever it is woken.
#[derive(Default)]
struct Sleeping(std::sync::Mutex<Option<Waker>>);

#[test]
fn all_that_is_ready_runs_first() {
    let watchdog = Watchdog::new();
    for seed in 0..30 {
        one_worker(move || {
            let random = Random(Cell::new(seed));
            let (turns, over, gates) = (Turns::default(), Arc::new(AtomicBool::new(false)), Gates::default());
            for gate in 0..4 {
                waits_at(&gates, gate, &turns, &over);
            }
            // Start a task that waits for its waker.
            let sleeping = Arc::new(Sleeping::default());
            let (task, polled, ends) = (sleeping.clone(), turns.clone(), over.clone());
            go_async(poll_fn(move |cx| {
                if task.0.lock().unwrap().replace(cx.waker().clone()).is_some() && !ends.load(Relaxed) {
                    polled.take();
                }
                if ends.load(Relaxed) { Poll::Ready(()) } else { Poll::Pending }
            }));
            until(|| gates.iter().all(|gate| waiters(gate) == 1) && sleeping.0.lock().unwrap().is_some());
            for round in 0..100 {
                let (mut woken, mut tasks, mut log) = ([false; 4], 0, vec![]);
                for _ in 0..random.below(12) {
                    let kind = random.below(8);
                    log.push(kind);
                    let (had, gates) = (turns.clone(), gates.clone());
                    match kind {
                        0 => go(move || had.take()),
                        1 => Builder::new().on(Placement::Here).go(move || had.take()),
                        2 => go_async(async move { had.take() }),
                        // A goroutine that this goroutine or a thread readies.
                        3 | 4 => {
                            let gate = random.below(4) as usize;
                            if std::mem::replace(&mut woken[gate], true) {
                                continue;
                            }
                            let readies = move || semrelease(&gates[gate], Wake::Normal);
                            if kind == 3 { readies() } else { thread::spawn(readies).join().unwrap() }
                        }
                        5 => {
                            if std::mem::replace(&mut tasks, 1) == 1 {
                                continue;
                            }
                            sleeping.0.lock().unwrap().as_ref().unwrap().wake_by_ref();
                        }
                        // A goroutine that yields, and has a turn at each yield of this goroutine.
                        6 => {
                            let (begun, more) = (turns.clone(), random.below(3));
                            turns.expect();
                            go(move || {
                                begun.take();
                                for _ in 0..more {
                                    had.expect();
                                    gosched();
                                    had.take();
                                }
                            });
                            continue;
                        }
                        _ => {
                            // A task that a thread wakes, through the global queue.
                            let waker = sleeping.clone();
                            if std::mem::replace(&mut tasks, 1) == 1 {
                                continue;
                            }
                            let wakes = move || waker.0.lock().unwrap().as_ref().unwrap().wake_by_ref();
                            thread::spawn(wakes).join().unwrap();
                        }
                    }
                    turns.expect();
                }
                let before = turns.ready.load(Relaxed);
                gosched();
                let had = turns.had.load(Relaxed);
                assert!(had >= before, "seed {seed}, round {round}: {had} of {before} turns, {log:?}");
            }
            for _ in 0..3 {
                gosched();
            }
            turns.check("at the end");
            over.store(true, Relaxed);
            gates.iter().for_each(|gate| semrelease(gate, Wake::Normal));
            sleeping.0.lock().unwrap().as_ref().unwrap().wake_by_ref();
        });
        watchdog.pat();
    }
}

/// Up to as many goroutines and tasks as the worker's own queue holds.
#[test]
fn so_do_two_hundred() {
    let _watchdog = Watchdog::new();
    one_worker(|| {
        for n in 0..=200 {
            let turns = Turns::default();
            for i in 0..n {
                turns.expect();
                let turns = turns.clone();
                if i % 3 == 0 { go_async(async move { turns.take() }) } else { go(move || turns.take()) }
            }
            gosched();
            turns.check("those that were started");
        }
    });
}

/// Goroutines that yield have their turns in a row; none has two turns before another has had its turn.
#[test]
fn many_that_yield_take_turns() {
    let _watchdog = Watchdog::new();
    one_worker(|| {
        const MANY: usize = 50;
        const ROUNDS: usize = 200;
        let turns = Arc::new([const { AtomicUsize::new(0) }; MANY]);
        let all: Vec<_> = (0..MANY)
            .map(|me| {
                let turns = turns.clone();
                spawn(move || {
                    for round in 1..=ROUNDS {
                        turns[me].store(round, Relaxed);
                        gosched();
                        // Each other goroutine has had its turn of this round, and perhaps of the next round.
                        for other in turns.iter() {
                            let had = other.load(Relaxed);
                            assert!(had == round || had == round + 1, "round {round}: {had}");
                        }
                    }
                })
            })
            .collect();
        for one in all {
            one.join().unwrap();
        }
    });
}

/// The goroutine that was readied last runs next on the rest of the slice, also when the slice is over.
#[test]
fn so_does_the_next_when_the_slice_is_over() {
    let _watchdog = Watchdog::new();
    one_worker(|| {
        let (turns, over, gates) = (Turns::default(), Arc::new(AtomicBool::new(false)), Gates::default());
        waits_at(&gates, 0, &turns, &over);
        until(|| waiters(&gates[0]) == 1);
        for _ in 0..8 {
            turns.expect();
            semrelease(&gates[0], Wake::Normal);
            spin(Duration::from_millis(12)); // the watcher asks for the worker
            gosched();
            turns.check("the one that was readied");
        }
        over.store(true, Relaxed);
        semrelease(&gates[0], Wake::Normal);
    });
}

/// A sleeper whose time has come is ready, too.
#[test]
fn so_does_a_sleeper_that_is_due() {
    let _alone = alone_with(1);
    run(|| {
        for _ in 0..20 {
            let turns = Turns::default();
            for _ in 0..3 {
                turns.expect();
                let turns = turns.clone();
                go(move || {
                    sleep(Duration::from_millis(1));
                    turns.take();
                });
            }
            gosched(); // the sleepers start to sleep
            spin(Duration::from_millis(2));
            gosched();
            turns.check("the sleepers");
        }
    });
}

/// A goroutine that switches at a safepoint has yielded.
#[test]
fn a_safepoint_that_gives_way_is_a_yield() {
    let _watchdog = Watchdog::new();
    one_worker(|| {
        for n in 1..40 {
            let turns = Turns::default();
            for i in 0..n {
                turns.expect();
                let turns = turns.clone();
                match i % 3 {
                    0 => go(move || turns.take()),
                    1 => Builder::new().on(Placement::Here).go(move || turns.take()),
                    _ => go_async(async move { turns.take() }),
                }
            }
            let free = AtomicU32::new(0);
            while turns.had.load(Relaxed) == 0 {
                semrelease_many(&free, 0);
            }
            turns.check("those that were started");
        }
    });
}

// ---- no stream of work starves a goroutine that yields
// ----------------------------------------------------------------

/// Yields beside a stream of work: between two turns of the goroutine, the stream makes at most `most` steps.
fn comes_back(name: &'static str, most: usize, starts: fn(&Arc<AtomicUsize>, &Arc<AtomicBool>)) {
    one_worker(move || {
        let (steps, over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        starts(&steps, &over);
        gosched();
        for turn in 0..1000 {
            let before = steps.load(Relaxed);
            gosched();
            let steps = steps.load(Relaxed) - before;
            assert!((1..=most).contains(&steps), "{name}: {steps} steps in turn {turn}");
        }
        over.store(true, Relaxed);
    });
}

#[test]
fn a_chain_of_starts_lets_it_come_back() {
    fn chain(steps: &Arc<AtomicUsize>, over: &Arc<AtomicBool>) {
        let (steps, over) = (steps.clone(), over.clone());
        go(move || {
            steps.fetch_add(1, Relaxed);
            if !over.load(Relaxed) {
                chain(&steps, &over);
            }
        });
    }
    let _watchdog = Watchdog::new();
    comes_back("a chain of starts", 1, chain);
}

#[test]
fn tasks_that_wake_themselves_let_it_come_back() {
    let _watchdog = Watchdog::new();
    comes_back("ten tasks", 10, |steps, over| {
        for _ in 0..10 {
            let (steps, over) = (steps.clone(), over.clone());
            go_async(poll_fn(move |cx| {
                steps.fetch_add(1, Relaxed);
                cx.waker().wake_by_ref();
                if over.load(Relaxed) { Poll::Ready(()) } else { Poll::Pending }
            }));
        }
    });
}

#[test]
fn goroutines_that_ready_each_other_let_it_come_back() {
    let _watchdog = Watchdog::new();
    // The number of steps in a slice of the pair, in a debug build.
    comes_back("a pair", 200_000, |steps, over| {
        let gates = Gates::default();
        for me in 0..2 {
            let (steps, over, gates) = (steps.clone(), over.clone(), gates.clone());
            go(move || {
                while !over.load(Relaxed) {
                    steps.fetch_add(1, Relaxed);
                    semrelease(&gates[me], Wake::Normal);
                    semacquire(&gates[1 - me]);
                }
                semrelease(&gates[me], Wake::Normal);
            });
        }
    });
}

/// A flood of starts, more than the worker's queue holds.
#[test]
fn a_flood_of_starts_lets_it_come_back() {
    let _watchdog = Watchdog::new();
    comes_back("a flood", 600, |steps, over| {
        let (steps, over) = (steps.clone(), over.clone());
        go(move || {
            while !over.load(Relaxed) {
                for _ in 0..300 {
                    let steps = steps.clone();
                    go(move || _ = steps.fetch_add(1, Relaxed));
                }
                gosched();
            }
        });
    });
}

/// Work from a thread, by the global queue.
#[test]
fn work_from_outside_lets_it_come_back() {
    let _watchdog = Watchdog::new();
    one_worker(|| {
        let over = Arc::new(AtomicBool::new(false));
        let all: Vec<_> = (0..1000).map(|_| Arc::new(Sleeping::default())).collect();
        for sleeping in &all {
            let (sleeping, over) = (sleeping.clone(), over.clone());
            go_async(poll_fn(move |cx| {
                *sleeping.0.lock().unwrap() = Some(cx.waker().clone());
                if over.load(Relaxed) { Poll::Ready(()) } else { Poll::Pending }
            }));
        }
        until(|| all.iter().all(|sleeping| sleeping.0.lock().unwrap().is_some()));
        let wake_all = move || {
            for sleeping in &all {
                sleeping.0.lock().unwrap().as_ref().unwrap().wake_by_ref();
            }
        };
        let ends = over.clone();
        let flood = thread::spawn(move || {
            while !ends.load(Relaxed) {
                wake_all();
            }
            wake_all();
        });
        for _ in 0..1000 {
            gosched();
        }
        over.store(true, Relaxed);
        flood.join().unwrap();
    });
}
