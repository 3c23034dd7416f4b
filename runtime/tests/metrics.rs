//! The counters of the scheduler, which belong to the process, and so need a process of their own.
#![cfg(all(unix, not(any(sudog_loom, sudog_sim))))]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use sudog::low_level::sema::{
    Order, Wake, semacquire, semacquire_async, semacquire_mutex, semrelease, semrelease_many, waiters,
};
use sudog::runtime::{Histogram, Metrics, WorkerMetrics, gosched, metrics};
use sudog::sync::{Mutex, RwMutex};
use sudog::time::sleep;
use sudog::{blocking, go, go_async, run, spawn, synctest, without_switching};
use support::goroutine::{alone_with, until};
use support::{eventually, test_command};

const SECOND: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

/// Returns the numbers of running, runnable, blocking and waiting goroutines.
fn states(metrics: &Metrics) -> [usize; 4] {
    [metrics.running, metrics.runnable, metrics.blocking, metrics.waiting]
}

/// Waits until no goroutine of an earlier test is left.
fn no_goroutine_is_left() {
    eventually(|| metrics().goroutines == 0);
}

#[test]
fn each_goroutine_has_one_state() {
    let _alone = alone_with(1);
    no_goroutine_is_left();
    static NEVER: AtomicU32 = AtomicU32::new(0);
    static GATE: AtomicU32 = AtomicU32::new(0);
    run(|| {
        assert_eq!(states(&metrics()), [1, 0, 0, 0], "main runs");
        let created = metrics().goroutines_created;
        (0..3).for_each(|_| go_async(semacquire_async(&NEVER)));
        (0..4).for_each(|_| go(|| semacquire(&NEVER)));
        (0..5).for_each(|_| go(|| semacquire(&GATE)));
        until(|| waiters(&NEVER) == 7 && waiters(&GATE) == 5);
        assert_eq!(states(&metrics()), [1, 0, 0, 12]);

        let over = Arc::new(AtomicBool::new(false));
        let begun = Arc::new(AtomicU32::new(0));
        let calls = [(); 2].map(|()| {
            let (over, begun) = (over.clone(), begun.clone());
            spawn(move || {
                blocking(|| {
                    begun.fetch_add(1, Relaxed);
                    while !over.load(Relaxed) {
                        thread::sleep(MS);
                    }
                });
            })
        });
        until(|| begun.load(Relaxed) == 2);
        (0..10).for_each(|_| gosched());
        assert_eq!(states(&metrics()), [1, 0, 2, 12]);

        // On a slow machine the end of this goroutine's time slice must not start those that it readies.
        let now = without_switching(|| {
            semrelease_many(&GATE, 5); // readies all five
            (0..6).for_each(|_| go(|| ())); // not begun
            metrics()
        });
        // The last that was readied runs next, and is in no queue.
        assert!(matches!(states(&now), [1, 10 | 11, 2, 7 | 8]), "{now:?}");
        assert_eq!(now.goroutines, 21);
        assert_eq!(now.goroutines_created, created + 12 + 2 + 6);
        assert_eq!((now.max_procs, now.workers[0].is_idle, now.workers[0].run_queue), (1, false, now.runnable));
        assert_eq!(now.workers[0].goroutines, 1 + 4 + 5 + 2, "those that have begun: {now:?}");
        assert!(now.threads >= 3, "a worker, two for blocking calls: {now:?}");

        over.store(true, Relaxed);
        calls.into_iter().for_each(|call| call.join().unwrap());
        semrelease_many(&NEVER, 7);
        until(|| metrics().goroutines == 1);
        assert_eq!(states(&metrics()), [1, 0, 0, 0]);
    });
}

#[test]
fn the_numbers_have_gos_names() {
    let _alone = alone_with(2);
    let now = metrics();
    let values: Vec<_> = now.values().collect();
    assert!(values.is_sorted_by_key(|(name, _)| *name), "{values:?}");
    let of = |wanted: &str| values.iter().find(|(name, _)| *name == wanted).expect(wanted).1 as usize;
    assert_eq!(of("/sched/goroutines:goroutines"), now.goroutines);
    let parts = ["not-in-go", "runnable", "running", "waiting"]
        .map(|state| of(&format!("/sched/goroutines/{state}:goroutines")));
    assert_eq!(parts.iter().sum::<usize>(), now.goroutines);
    assert_eq!(of("/sched/gomaxprocs:threads"), 2);
}

/// Go: `TestMutexWaitTimeMetric`. In a bubble the time of a wait is exact.
#[test]
fn waits_for_locks_are_summed() {
    let _alone = alone_with(2);
    let waited = |program: fn()| {
        let before = metrics().mutex_wait;
        synctest::test(program);
        metrics().mutex_wait - before
    };
    // A mutex, for which two wait.
    let two = || {
        let mutex = Arc::new(Mutex::new(()));
        let guard = mutex.lock();
        for _ in 0..2 {
            let mutex = mutex.clone();
            go(move || drop(mutex.lock()));
        }
        sleep(3 * SECOND);
        drop(guard);
    };
    assert_eq!(waited(two), 6 * SECOND);
    // A reader that waits for a writer, and a writer that waits for a reader.
    let readers = || {
        let lock = Arc::new(RwMutex::new(()));
        let write = lock.write();
        let reads = {
            let lock = lock.clone();
            spawn(move || {
                let _read = lock.read();
                sleep(2 * SECOND);
            })
        };
        sleep(SECOND);
        drop(write);
        gosched();
        drop(lock.write());
        reads.join().unwrap();
    };
    assert_eq!(waited(readers), 3 * SECOND);
    // A waiter that is woken, finds that another has taken the permit, and waits again.
    let overtaken = || {
        static SEMA: AtomicU32 = AtomicU32::new(0);
        let waits = spawn(|| semacquire_mutex(&SEMA, Order::Fifo));
        sleep(SECOND);
        semrelease(&SEMA, Wake::Normal);
        semacquire(&SEMA);
        sleep(2 * SECOND);
        semrelease(&SEMA, Wake::Normal);
        waits.join().unwrap();
    };
    assert_eq!(waited(overtaken), 3 * SECOND);
    // What is no lock, and a wait that gives up.
    let others = || {
        let mutex = Mutex::new(());
        let _guard = mutex.lock();
        assert!(mutex.try_lock_for(4 * SECOND).is_none());
        let (sender, receiver) = sudog::chan::channel(0);
        go(move || {
            sleep(5 * SECOND);
            sender.send(()).unwrap();
        });
        receiver.recv().unwrap();
        spawn(|| sleep(SECOND)).join().unwrap();
    };
    assert_eq!(waited(others), 4 * SECOND);
}

#[test]
fn latencies_are_those_of_goroutines_that_are_ready() {
    let _alone = alone_with(1);
    run(|| {
        static TURN: AtomicU32 = AtomicU32::new(0);
        static OVER: AtomicBool = AtomicBool::new(false);
        let waits = spawn(|| {
            while !OVER.load(Relaxed) {
                semacquire(&TURN);
            }
        });
        let before = metrics().latencies;
        for _ in 0..200 {
            until(|| waiters(&TURN) == 1);
            semrelease(&TURN, Wake::Normal);
            let begun = Instant::now();
            while begun.elapsed() < MS / 10 {}
        }
        let after = metrics().latencies;
        let long = |histogram: &Histogram| {
            histogram.buckets().filter(|(times, _)| times.end > MS / 10).map(|(_, count)| count).sum::<u64>()
        };
        // One in eight. (Main is not readied: it yields.)
        let found = long(&after) - long(&before);
        assert!((20..=30).contains(&found), "{found} of 200: {after:?}");
        assert!(after.quantile(1.0) >= MS / 10);
        OVER.store(true, Relaxed);
        semrelease(&TURN, Wake::Normal);
        waits.join().unwrap();
    });
}

#[test]
fn workers_steal_and_sleep() {
    let _alone = alone_with(2);
    let sum = |count: fn(&WorkerMetrics) -> u64| metrics().workers.iter().map(count).sum::<u64>();
    eventually(|| {
        run(|| {
            // Work that is started faster than it is done.
            let ends: Vec<_> = (0..100).map(|_| spawn(|| while !busy_for(MS / 10) {})).collect();
            ends.into_iter().for_each(|end| end.join().unwrap());
        });
        sum(|worker| worker.steals) > 0
    });
    eventually(|| sum(|worker| worker.sleeps) > 0);
}

fn busy_for(time: Duration) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < time {}
    true
}

/// Reads the metrics again and again, while goroutines start and end.
#[test]
fn the_sum_is_right_while_all_runs() {
    let _alone = alone_with(2);
    run(|| {
        static OVER: AtomicBool = AtomicBool::new(false);
        let busy: Vec<_> = (0..4)
            .map(|_| {
                spawn(|| {
                    while !OVER.load(Relaxed) {
                        spawn(gosched).join().unwrap();
                    }
                })
            })
            .collect();
        for _ in 0..2000 {
            let now = metrics();
            assert_eq!(states(&now).iter().sum::<usize>(), now.goroutines);
            gosched();
        }
        OVER.store(true, Relaxed);
        busy.into_iter().for_each(|goroutine| goroutine.join().unwrap());
    });
}

/// Threads that hold a mutex for longer than the threshold of starvation make others starve; short holds are awaited by
/// spinning.
#[test]
fn starvations_and_spins_of_mutexes() {
    let _alone = alone_with(1);
    let contend = |held: Duration| {
        let mutex = Mutex::new(());
        thread::scope(|s| {
            for _ in 0..3 {
                s.spawn(|| {
                    for _ in 0..20 {
                        let _guard = mutex.lock();
                        busy_for(held);
                    }
                });
            }
        });
    };
    let before = metrics();
    eventually(|| {
        contend(3 * MS);
        metrics().mutex_starvations > before.mutex_starvations
    });
    eventually(|| {
        contend(Duration::from_micros(1));
        metrics().mutex_spin_wins > before.mutex_spin_wins
    });
}

#[test]
fn the_numbers_as_json() {
    let _alone = alone_with(1);
    run(|| (0..100).for_each(|_| gosched()));
    let numbers = metrics();
    let json = serde_json::to_value(&numbers).unwrap();
    assert_eq!(json["max_procs"], 1);
    assert_eq!(json["goroutines_created"], numbers.goroutines_created);
    assert_eq!(json["mutex_wait"]["secs"], numbers.mutex_wait.as_secs());
    assert_eq!(json["mutex_starvations"], numbers.mutex_starvations);
    assert_eq!(json["workers"][0]["sleeps"], numbers.workers[0].sleeps);
    let buckets = json["latencies"].as_array().unwrap();
    assert!(!buckets.is_empty());
    assert_eq!(buckets.iter().map(|bucket| bucket["count"].as_u64().unwrap()).sum::<u64>(), numbers.latencies.count());
    let (times, _) = numbers.latencies.buckets().next().unwrap();
    assert_eq!(buckets[0]["times"]["end"]["nanos"], times.end.subsec_nanos());
}

#[test]
fn results_may_be_sent_and_shared() {
    fn is<T: Send + Sync + Clone + std::panic::UnwindSafe + std::panic::RefUnwindSafe + 'static>() {}
    is::<Metrics>();
    is::<WorkerMetrics>();
    is::<Histogram>();
}

const CHILD: &str = "SUDOG_TEST_CHILD";

#[test]
fn schedtrace() {
    if std::env::var_os(CHILD).is_some() {
        run(|| sleep(60 * MS));
        return;
    }
    let child = |value: &str| {
        let mut child = test_command(module_path!(), "schedtrace");
        let output = child.env(CHILD, "1").env("SUDOG_DEBUG", value).output().unwrap();
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    };
    let (ends_well, trace) = child("schedtrace=10");
    assert!(ends_well, "{trace}");
    let lines: Vec<_> = trace.lines().filter(|line| line.starts_with("SCHED ")).collect();
    assert!(lines.len() >= 2, "{trace}");
    assert!(lines.iter().all(|line| line.contains("ms: gomaxprocs=") && line.contains(" runqueue=0 [")), "{trace}");
    assert!(
        lines.iter().any(|line| line.ends_with("goroutines=1 running=0 runnable=0 blocking=0 waiting=1")),
        "{trace}"
    );
    let (ends_well, trace) = child("");
    assert!(ends_well && !trace.contains("SCHED "), "{trace}");
    for nonsense in ["schedtrace", "schedtrace=0", "schedtrace=-5", "gctrace=1"] {
        let (ends_well, says) = child(nonsense);
        assert!(!ends_well && says.contains("SUDOG_DEBUG is"), "{nonsense}: {says}");
    }
}
