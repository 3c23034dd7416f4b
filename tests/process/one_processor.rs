//! Workers whose threads share a processor: none searches on that processor while another worker waits for the
//! processor, and none is left without work. A process of its own, because the tests bind all threads of the process to
//! a single processor, and count their searches.
#![cfg(all(target_os = "linux", not(any(sudog_loom, sudog_sim))))]

use std::fs;
use std::sync::{LazyLock, Mutex};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use sudog::chan::Chan;
use sudog::runtime::set_max_procs;
use sudog::sync::RwMutex;
use sudog::{run, spawn};
use sudog_runtime::goroutine::{Builder, Placement, Searches, searches};
use sudog_runtime::spin;
use support::Watchdog;

/// Binds all threads of the process to the processor of the caller.
fn bind_all_here() {
    // SAFETY: a `cpu_set_t` of zeros is a valid, empty set; `sched_getcpu` takes no arguments.
    let (mut set, here): (libc::cpu_set_t, _) = unsafe { (std::mem::zeroed(), libc::sched_getcpu()) };
    let here = usize::try_from(here).expect("Linux says where a thread runs");
    assert!(here < 8 * size_of_val(&set), "a set has room for processor {here}");
    // SAFETY: `set` is a valid set, which has room for this processor.
    unsafe { libc::CPU_SET(here, &mut set) };
    for task in fs::read_dir("/proc/self/task").unwrap() {
        let task = task.unwrap().file_name().into_string().unwrap().parse().unwrap();
        // A thread that has ended meanwhile is not bound, and runs nowhere.
        // SAFETY: `set` is a valid set of the size given.
        _ = unsafe { libc::sched_setaffinity(task, size_of_val(&set), &raw const set) };
    }
}

/// The number of processors before a test has bound the threads.
static PROCESSORS: LazyLock<usize> = LazyLock::new(|| thread::available_parallelism().map_or(1, usize::from));

/// The tests take turns.
static TURN: Mutex<()> = Mutex::new(());

/// Two goroutines on two workers exchange messages and answers. Without the rule each worker searches in vain for the
/// answer, while the worker that is to answer waits for the processor: once or twice for each message.
#[test]
fn a_message_costs_no_vain_search() {
    const TRIPS: u32 = 2000;
    let _watchdog = Watchdog::new();
    let _turn = TURN.lock().unwrap();
    if *PROCESSORS < 2 {
        return; // no worker searches at all
    }
    set_max_procs(2);
    run(|| {
        let (ping, pong) = (Chan::<u32>::new(0), Chan::<u32>::new(0));
        let (from, to) = (ping.clone(), pong.clone());
        Builder::new().on(Placement::Worker(1)).go(move || {
            from.iter().for_each(|n| to.send(n));
            to.close();
        });
        let (from, to) = (pong.clone(), ping.clone());
        let trips = Builder::new().on(Placement::Worker(0)).spawn(move || {
            let trips = || {
                for n in 0..TRIPS {
                    to.send(n);
                    assert_eq!(from.recv(), Some(n));
                }
            };
            trips();
            bind_all_here();
            let before = searches();
            trips();
            let after = searches();
            Searches { vain: after.vain - before.vain, yields: after.yields - before.yields }
        });
        let searches = trips.join().unwrap();
        ping.close();
        println!("{searches:?}");
        // After a long yield, while another program has had the processor, the workers sleep at once: fewer yields. A
        // search that loses the processor to another program is vain, too.
        assert!(searches.vain < u64::from(TRIPS / 4), "{searches:?} for {TRIPS} messages there and back");
    });
}

/// Calls `check` ten times on the first of two workers whose threads share a processor, each time when the other worker
/// sleeps.
fn beside_an_idle_worker(check: fn()) {
    let _watchdog = Watchdog::new();
    let _turn = TURN.lock().unwrap();
    if *PROCESSORS < 2 {
        return; // no worker waits for a thief
    }
    set_max_procs(2);
    run(move || {
        Builder::new().on(Placement::Worker(1)).spawn(|| ()).join().unwrap();
        bind_all_here();
        for _ in 0..10 {
            while !spin::is_processor_idle() {
                thread::yield_now();
            }
            check();
        }
    });
}

/// Enters the runtime all the time.
fn call_until(end: Instant) {
    let calls = RwMutex::new(0_u64);
    while Instant::now() < end {
        *calls.write() += 1; // the unlock is a safepoint
    }
}

/// Of two goroutines that compute, and enter the runtime all the time, the second runs on the idle worker, although that
/// worker's thread has no processor on which it could see the work grow old.
#[test]
fn an_idle_worker_gets_work_that_no_thief_takes() {
    fn compute() -> ThreadId {
        call_until(Instant::now() + Duration::from_millis(20));
        thread::current().id()
    }
    beside_an_idle_worker(|| {
        let both = [spawn(compute), spawn(compute)].map(|goroutine| goroutine.join().unwrap());
        assert_ne!(both[0], both[1], "both on one worker");
    });
}

/// While one goroutine is on its way to the idle worker, another waits for the worker that is not busy: behind the first
/// it would wait for as long as that computes.
#[test]
fn an_idle_worker_gets_one_goroutine_at_a_time() {
    const COMPUTES: Duration = Duration::from_millis(60);
    beside_an_idle_worker(|| {
        let begun = Instant::now();
        let first = spawn(|| {
            let begun = Instant::now();
            while begun.elapsed() < COMPUTES {
                std::hint::spin_loop();
            }
            thread::current().id()
        });
        // The first goroutine is placed after a millisecond.
        call_until(begun + Duration::from_micros(1300));
        let second = spawn(|| (thread::current().id(), Instant::now()));
        call_until(begun + Duration::from_millis(6));
        let free = Instant::now();
        let (thread, began) = second.join().unwrap();
        let waited = began.saturating_duration_since(free);
        assert!(thread != first.join().unwrap() || waited < COMPUTES / 3, "the second waited for {waited:?}");
    });
}
