//! No goroutine starves: a ready goroutine runs sooner or later, whatever the other goroutines do, if only they call
//! into the runtime at times. In each test the hogs go on until their victim has run: a victim that starves makes the
//! test hang.
#![cfg(all(unix, not(sudog_loom)))]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use sudog::low_level::RuntimeSema;
use sudog::low_level::sema::{Wake, semacquire, semrelease, waiters};
use sudog::runtime::{gosched, set_max_procs};
use sudog::sync::{GoMutex, Mutex};
use sudog::time::{sleep, sleep_async};
use sudog::{Builder, Placement, block_on, go, go_async, run, scope, spawn};
use support::eventually;
use support::goroutine::{alone, alone_with, here, one_worker, until};

/// The state that hogs and victims share.
#[derive(Default)]
struct World {
    done: AtomicBool,
    /// A semaphore at which the victim waits.
    gate: AtomicU32,
    ping: AtomicU32,
    pong: AtomicU32,
}

impl World {
    fn is_done(&self) -> bool {
        self.done.load(Relaxed)
    }
}

/// Starts the hogs, which go on until the victim is done.
type Hogs = fn(&Arc<World>);

/// Two hogs that ready each other.
fn ping_pong<const WAKE: u8>(world: &Arc<World>) {
    let wake = if WAKE == 0 { Wake::Normal } else { Wake::Handoff };
    let (ping, pong) = (world.clone(), world.clone());
    go(move || {
        while !ping.is_done() {
            semacquire(&ping.ping);
            semrelease(&ping.pong, wake);
        }
        semrelease(&ping.pong, wake);
    });
    go(move || {
        while !pong.is_done() {
            semrelease(&pong.ping, wake);
            semacquire(&pong.pong);
        }
        semrelease(&pong.ping, wake);
    });
}

/// Two hogs that yield.
fn yielders(world: &Arc<World>) {
    for _ in 0..2 {
        let world = world.clone();
        go(move || until(|| world.is_done()));
    }
}

/// A hog that only releases and acquires, and never has to wait.
fn releaser(world: &Arc<World>) {
    let world = world.clone();
    go(move || {
        while !world.is_done() {
            semrelease(&world.ping, Wake::Normal);
            semacquire(&world.ping);
        }
    });
}

/// A hog that hands off without a waiter.
fn giver(world: &Arc<World>) {
    let world = world.clone();
    go(move || {
        while !world.is_done() {
            semrelease(&world.ping, Wake::Handoff);
            semacquire(&world.ping);
        }
    });
}

/// Hogs that start goroutines, and wait for these goroutines.
fn spawners(world: &Arc<World>) {
    for _ in 0..2 {
        let world = world.clone();
        go(move || {
            while !world.is_done() {
                spawn(|| ()).join().unwrap();
            }
        });
    }
}

/// Two hogs that lock the same mutex.
fn lockers(world: &Arc<World>) {
    let mutex = Arc::new(GoMutex::<RuntimeSema>::const_new());
    for _ in 0..2 {
        let (world, mutex) = (world.clone(), mutex.clone());
        go(move || {
            while !world.is_done() {
                mutex.lock();
                gosched();
                mutex.unlock();
            }
        });
    }
}

/// A future that wakes itself whenever it is polled.
fn restless(world: &Arc<World>) {
    let (task, goroutine) = (world.clone(), world.clone());
    let future = |world: Arc<World>| {
        std::future::poll_fn(move |cx| {
            cx.waker().wake_by_ref();
            if world.is_done() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        })
    };
    go_async(future(task));
    go(move || block_on(future(goroutine)));
}

/// Hogs that sleep for next to no time.
fn nappers(world: &Arc<World>) {
    for _ in 0..2 {
        let world = world.clone();
        go(move || {
            while !world.is_done() {
                sleep(Duration::from_micros(1));
            }
        });
    }
}

/// More goroutines than a run queue has room for, which sleep for next to no time.
fn many_nappers(world: &Arc<World>) {
    for _ in 0..300 {
        let world = world.clone();
        go(move || {
            while !world.is_done() {
                sleep(Duration::from_micros(2));
            }
        });
    }
}

/// More restless tasks than a run queue has room for.
fn many_restless(world: &Arc<World>) {
    for _ in 0..500 {
        let world = world.clone();
        go_async(std::future::poll_fn(move |cx| {
            cx.waker().wake_by_ref();
            if world.is_done() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        }));
    }
}

/// Goroutines that start more goroutines than a run queue has room for.
fn many_starters(world: &Arc<World>) {
    for _ in 0..300 {
        let world = world.clone();
        go(move || {
            while !world.is_done() {
                go(|| ());
                gosched();
            }
        });
    }
}

const HOGS: [(&str, Hogs); 12] = [
    ("ping-pong", ping_pong::<0>),
    ("ping-pong by handoff", ping_pong::<1>),
    ("yielders", yielders),
    ("releaser", releaser),
    ("giver", giver),
    ("spawners", spawners),
    ("lockers", lockers),
    ("restless futures", restless),
    ("nappers", nappers),
    ("many nappers", many_nappers),
    ("many restless tasks", many_restless),
    ("many starters", many_starters),
];

/// Runs the victim beside each kind of hogs, all on a single worker.
fn against_all_hogs(victim: impl Fn(&Arc<World>) + Sync) {
    let alone = alone_with(1);
    for (name, hogs) in HOGS {
        println!("{name}");
        run(|| {
            let world = Arc::new(World::default());
            hogs(&world);
            for _ in 0..100 {
                gosched(); // the hogs are under way
            }
            victim(&world);
            semacquire(&world.gate);
            world.done.store(true, Relaxed);
        });
        alone.watchdog.pat();
    }
}

#[test]
fn each_of_more_tasks_than_a_run_queue_has_room_for() {
    let _alone = alone_with(1);
    run(|| {
        let world = Arc::new(World::default());
        let polls: Arc<[AtomicU32]> = (0..500).map(|_| AtomicU32::new(0)).collect();
        for i in 0..polls.len() {
            let (world, polls) = (world.clone(), polls.clone());
            go_async(std::future::poll_fn(move |cx| {
                polls[i].fetch_add(1, Relaxed);
                cx.waker().wake_by_ref();
                if world.is_done() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
            }));
        }
        until(|| polls.iter().all(|polls| polls.load(Relaxed) >= 100));
        world.done.store(true, Relaxed);
    });
}

#[test]
fn each_of_many_nappers_beside_goroutines_of_a_thread() {
    let _alone = alone_with(1);
    run(|| {
        let world = Arc::new(World::default());
        let naps: Arc<[AtomicU32]> = (0..200).map(|_| AtomicU32::new(0)).collect();
        for i in 0..naps.len() {
            let (world, naps) = (world.clone(), naps.clone());
            go(move || {
                while !world.is_done() {
                    sleep(Duration::from_micros(1));
                    naps[i].fetch_add(1, Relaxed);
                }
            });
        }
        thread::scope(|threads| {
            threads.spawn(|| {
                // The global queue always has work, and the number of goroutines has a bound.
                let (begun, ended) = (&world.ping, &world.pong);
                while !world.is_done() {
                    if begun.load(Relaxed) - ended.load(Relaxed) < 5000 {
                        begun.fetch_add(1, Relaxed);
                        let world = world.clone();
                        go(move || _ = world.pong.fetch_add(1, Relaxed));
                    }
                }
            });
            until(|| naps.iter().all(|naps| naps.load(Relaxed) >= 10));
            world.done.store(true, Relaxed);
        });
    });
}

#[test]
fn one_that_has_not_started() {
    against_all_hogs(|world| {
        let world = world.clone();
        go(move || semrelease(&world.gate, Wake::Normal));
    });
}

#[test]
fn one_that_was_placed_here() {
    against_all_hogs(|world| {
        let world = world.clone();
        Builder::new().on(Placement::Here).go(move || semrelease(&world.gate, Wake::Normal));
    });
}

#[test]
fn one_that_sleeps() {
    against_all_hogs(|world| {
        let world = world.clone();
        go(move || {
            sleep(Duration::from_millis(1));
            semrelease(&world.gate, Wake::Normal);
        });
    });
}

#[test]
fn one_that_yields() {
    against_all_hogs(|world| {
        let world = world.clone();
        go(move || {
            for _ in 0..100 {
                gosched();
            }
            semrelease(&world.gate, Wake::Normal);
        });
    });
}

#[test]
fn one_that_is_woken_by_a_goroutine() {
    against_all_hogs(|world| {
        let (waits, wakes) = (world.clone(), world.clone());
        let step = Arc::new(AtomicU32::new(0));
        let steps = step.clone();
        go(move || {
            for _ in 0..10 {
                semacquire(&step);
            }
            semrelease(&waits.gate, Wake::Normal);
        });
        go(move || {
            for _ in 0..10 {
                semrelease(&steps, Wake::Normal);
            }
            drop(wakes);
        });
    });
}

#[test]
fn one_that_is_woken_by_a_thread() {
    against_all_hogs(|world| {
        let foreign = world.clone();
        thread::spawn(move || {
            eventually(|| waiters(&foreign.gate) == 1);
            semrelease(&foreign.gate, Wake::Normal); // wakes main
        });
    });
}

#[test]
fn a_task() {
    against_all_hogs(|world| {
        let world = world.clone();
        go_async(async move {
            std::future::ready(()).await;
            semrelease(&world.gate, Wake::Normal);
        });
    });
}

#[test]
fn one_that_waits_for_a_mutex() {
    against_all_hogs(|world| {
        let mutex = Arc::new(Mutex::new(()));
        for _ in 0..2 {
            let (world, mutex) = (world.clone(), mutex.clone());
            go(move || {
                while !world.is_done() {
                    let guard = mutex.lock();
                    gosched();
                    drop(guard);
                    gosched();
                }
            });
        }
        let world = world.clone();
        go(move || {
            for _ in 0..20 {
                drop(mutex.lock());
            }
            semrelease(&world.gate, Wake::Normal);
        });
    });
}

/// A victim of a goroutine that computes, and calls into the runtime once in a while.
#[test]
fn a_victim_of_one_that_computes() {
    let _alone = alone_with(1);
    run(|| {
        let world = Arc::new(World::default());
        let victim = world.clone();
        go(move || {
            semacquire(&victim.gate);
            victim.done.store(true, Relaxed);
        });
        until(|| waiters(&world.gate) == 1);
        semrelease(&world.gate, Wake::Normal);
        while !world.is_done() {
            for n in 0..10_000 {
                std::hint::black_box(n);
            }
            semrelease(&world.ping, Wake::Normal);
            semacquire(&world.ping);
        }
    });
}

/// Work for any worker, when all existing workers are busy.
#[test]
fn work_from_outside_against_busy_workers() {
    let alone = alone();
    let before = set_max_procs(1);
    for (name, hogs) in HOGS {
        println!("{name}");
        let world = Arc::new(World::default());
        {
            let world = world.clone();
            go(move || hogs(&world));
        }
        // Start from a thread: the start goes through the global queue.
        for _ in 0..10 {
            spawn(|| ()).join().unwrap();
        }
        spawn(|| sleep(Duration::from_micros(100))).join().unwrap();
        block_on(async { sleep_async(Duration::from_micros(100)).await });
        world.done.store(true, Relaxed);
        alone.watchdog.pat();
    }
    set_max_procs(before);
}

/// A main goroutine, and the goroutines that main starts, still run beside `max_procs` hogs on as many workers.
#[test]
fn busy_workers_all_over() {
    let alone = alone();
    for (name, hogs) in HOGS {
        println!("{name}");
        let world = Arc::new(World::default());
        run(|| {
            for _ in 0..4 {
                let world = world.clone();
                go(move || hogs(&world));
            }
            for _ in 0..20 {
                gosched();
                spawn(|| sleep(Duration::from_micros(10))).join().unwrap();
            }
            world.done.store(true, Relaxed);
        });
        alone.watchdog.pat();
    }
}

/// Each of several workers has hogs.
#[test]
fn hogs_on_every_worker() {
    let alone = alone_with(2);
    for (name, hogs) in HOGS {
        println!("{name}");
        let world = Arc::new(World::default());
        run(|| {
            scope(|s| {
                for n in 0..2 {
                    let world = world.clone();
                    Builder::new().on(Placement::Worker(n)).go_scoped(s, move || {
                        hogs(&world);
                        spawn(gosched).join().unwrap();
                        let done = world.clone();
                        go(move || semrelease(&done.gate, Wake::Normal));
                        semacquire(&world.gate);
                        if n == 0 {
                            sleep(Duration::from_micros(200));
                            world.done.store(true, Relaxed);
                        }
                    });
                }
            });
        });
        alone.watchdog.pat();
    }
}

/// A goroutine blocks the thread of its worker, and the other worker is never idle. The other worker runs the goroutine
/// that the first has started.
#[test]
fn one_whose_worker_is_blocked() {
    let alone = alone_with(2);
    for (name, hogs) in HOGS {
        println!("{name}");
        let (world, busy) = (Arc::new(World::default()), AtomicBool::new(false));
        run(|| {
            scope(|s| {
                Builder::new().on(Placement::Worker(1)).go_scoped(s, || {
                    busy.store(true, Relaxed);
                    hogs(&world);
                    until(|| world.is_done());
                });
                Builder::new().on(Placement::Worker(0)).go_scoped(s, || {
                    eventually(|| busy.load(Relaxed));
                    let victim = world.clone();
                    go(move || victim.done.store(true, Relaxed));
                    eventually(|| world.is_done()); // blocks the thread
                });
            });
        });
        alone.watchdog.pat();
    }
}

/// A goroutine locks and unlocks a mutex in a loop, while another goroutine waits for that mutex.
#[test]
fn a_mutex_that_is_never_left_alone() {
    let alone = alone();
    let hog_and_victim = || {
        let shared = Arc::new((GoMutex::<RuntimeSema>::const_new(), AtomicBool::new(false)));
        let victim = shared.clone();
        shared.0.lock();
        Builder::new().on(Placement::Here).go(move || {
            victim.0.lock();
            victim.1.store(true, Relaxed);
            victim.0.unlock();
        });
        until(|| shared.0.waiters() == 1);
        shared.0.unlock();
        while !shared.1.load(Relaxed) {
            shared.0.lock();
            shared.0.unlock();
        }
    };
    one_worker(hog_and_victim);
    alone.watchdog.pat();
    run(hog_and_victim);
}

/// An owner computes between two unlocks, and locks the mutex again before the waiter that it has woken has run. The
/// waiter has its turn when the watcher asks, every 10 ms, and not at the 64th unlock.
#[test]
fn a_mutex_whose_owner_computes() {
    let _alone = alone_with(1);
    run(|| {
        let shared = Arc::new((GoMutex::<RuntimeSema>::const_new(), AtomicBool::new(false)));
        let victim = shared.clone();
        shared.0.lock();
        Builder::new().on(Placement::Here).go(move || {
            victim.0.lock();
            victim.1.store(true, Relaxed);
            victim.0.unlock();
        });
        until(|| shared.0.waiters() == 1);
        shared.0.unlock();
        let mut unlocks = 0;
        while !shared.1.load(Relaxed) {
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_millis(1) {
                std::hint::spin_loop();
            }
            shared.0.lock();
            shared.0.unlock();
            unlocks += 1;
        }
        assert!(unlocks < 40, "{unlocks}");
    });
}

/// The watcher looks at bubbles, too: a goroutine that has run for a tick yields at its next call, long before the 64th
/// call, which looks at the clock anyway.
#[test]
fn the_watcher_asks_in_every_kind_of_scheduler() {
    fn calls_until_the_other_runs() -> u32 {
        let (ran, free) = (Arc::new(AtomicBool::new(false)), AtomicU32::new(0));
        let runs = ran.clone();
        Builder::new().on(Placement::Here).go(move || runs.store(true, Relaxed));
        let mut calls = 0;
        while !ran.load(Relaxed) {
            thread::sleep(Duration::from_millis(15)); // blocks the worker, as a goroutine that computes
            semrelease(&free, Wake::Normal);
            calls += 1;
        }
        calls
    }
    let _alone = alone();
    for calls in [run(calls_until_the_other_runs), one_worker(calls_until_the_other_runs)] {
        assert!(calls < 60, "{calls}");
    }
}

/// A goroutine that is placed on a busy worker has its turn after a turn or two, not only at the worker's next look at
/// all queues.
#[test]
fn what_is_placed_waits_no_longer_than_what_is_woken() {
    let _alone = alone_with(2);
    run(|| {
        let place_of = |worker| Builder::new().on(Placement::Worker(worker)).spawn(here).join().unwrap();
        let mine = (0..2).find(|&worker| place_of(worker) == here()).unwrap();
        for _ in 0..100 {
            let (placed, ran) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
            let (places, runs) = (placed.clone(), ran.clone());
            let main = here();
            Builder::new().on(Placement::Worker(1 - mine)).go(move || {
                Builder::new().on(Placement::Worker(mine)).go(move || {
                    assert_eq!(here(), main);
                    runs.store(true, Relaxed);
                });
                places.store(true, Relaxed);
            });
            until(|| placed.load(Relaxed));
            let mut turns = 0;
            while !ran.load(Relaxed) {
                gosched();
                turns += 1;
            }
            assert!(turns < 10, "{turns}");
        }
    });
}
