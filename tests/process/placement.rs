//! Where goroutines start: a family that blocks at once is spread over idle workers, a pair stays together; and a thief
//! takes what its victim has no time for, but not from a victim that does not run.
//!
//! The place is a hint, and a busy machine decides otherwise now and then: a thief comes first, or a worker has no
//! processor. So a test tries until the outcome has been as it should be ten times in a row; and it counts what the rule
//! has moved, which thieves do not. A process of its own, and one test at a time: others' families would count too.
#![cfg(all(unix, not(sudog_loom)))]

use std::collections::HashMap;
use std::panic::{self, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, mpsc};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use sudog::chan::Chan;
use sudog::runtime::{set_max_procs, together};
use sudog::sync::WaitGroup;
use sudog::time::sleep;
use sudog::{go, run};
use sudog_runtime::goroutine::spread_so_far;
use support::goroutine::here;
use support::{Watchdog, pat, test_command, turn};

/// So many outcomes in a row are no luck.
const IN_A_ROW: usize = 10;

/// Where a family started: the goroutines of each thread.
type Places = HashMap<ThreadId, usize>;

/// Starts goroutines that wait for one channel; every other one ends at once, if `half` says so. When all have begun,
/// it ends those that wait.
fn start(size: usize, half: bool) -> Places {
    let (jobs, places) = (Chan::<()>::new(0), Arc::new(Mutex::new(Places::new())));
    let (started, done) = (Arc::new(WaitGroup::new()), Arc::new(WaitGroup::new()));
    started.add(size as _);
    done.add(size as _);
    for i in 0..size {
        let (jobs, places, started, done) = (jobs.clone(), places.clone(), started.clone(), done.clone());
        go(move || {
            *places.lock().unwrap().entry(here()).or_default() += 1;
            started.done();
            if !half || i % 2 == 0 {
                jobs.recv();
            }
            done.done();
        });
    }
    started.wait();
    jobs.close();
    done.wait();
    std::mem::take(&mut *places.lock().unwrap())
}

/// A family of so many.
fn family(size: usize) -> Places {
    start(size, false)
}

/// The families of other tests would count.
fn alone() -> impl Sized {
    static TURNS: Mutex<()> = Mutex::new(());
    (Watchdog::new(), turn(&TURNS))
}

/// A row that is longer than all before is progress: so the watchdog waits on a busy machine, but not for ever.
fn note_progress(row: usize, longest: &mut usize) {
    if row > *longest {
        *longest = row;
        pat();
    }
}

/// Tries until `outcome`, which is told how many goroutines the attempt has spread, has been true `IN_A_ROW` times without
/// a false one between. `None`: the attempt says nothing.
fn again_and_again<T>(workers: usize, attempt: fn() -> T, outcome: fn(T, usize) -> Option<bool>) {
    const REST: Duration = Duration::from_millis(1); // the other workers have ended their goroutines, and are idle
    until_in_a_row(IN_A_ROW, REST, workers, attempt, outcome);
}

/// [`again_and_again`], with the length of the row, and a rest between two attempts.
fn until_in_a_row<T>(
    length: usize,
    rest: Duration,
    workers: usize,
    attempt: fn() -> T,
    outcome: fn(T, usize) -> Option<bool>,
) {
    let _alone = alone();
    if thread::available_parallelism().map_or(1, usize::from) < workers {
        return; // no more workers get goroutines than there are processors
    }
    run(move || {
        set_max_procs(workers);
        let (mut row, mut longest) = (0, 0);
        while row < length {
            let before = spread_so_far();
            let result = attempt();
            row = match outcome(result, spread_so_far() - before) {
                Some(true) => row + 1,
                Some(false) => 0,
                None => row,
            };
            note_progress(row, &mut longest);
            sleep(rest);
        }
    });
}

/// Makes thirty attempts, of which none may spread a goroutine.
fn never<T>(attempt: fn() -> T) {
    let _alone = alone();
    run(move || {
        set_max_procs(2);
        for _ in 0..30 {
            let before = spread_so_far();
            attempt();
            assert_eq!(spread_so_far(), before);
            sleep(Duration::from_millis(1)); // the other worker is idle
        }
    });
}

/// Whether each of so many threads has `least` goroutines.
fn is_fair(places: &Places, threads: usize, least: usize) -> bool {
    places.len() == threads && places.values().all(|&n| n >= least)
}

#[test]
fn a_pool_is_spread() {
    again_and_again(2, || family(8), |places, spread| Some(spread >= 3 && is_fair(&places, 2, 3)));
}

#[test]
fn a_large_family_is_spread() {
    // Where starting takes long, as in a build that is not optimised, thieves come first, and divide it as well.
    again_and_again(2, || family(200), |places, _| Some(is_fair(&places, 2, 80)));
}

#[test]
fn all_workers_have_some_of_a_family() {
    again_and_again(4, || family(32), |places, spread| Some(spread >= 15 && is_fair(&places, 4, 5)));
}

/// The first family of a process waits for the threads that it starts: often it is the only one.
#[test]
fn the_first_family_is_spread() {
    const CHILD: &str = "SUDOG_TEST_FIRST_FAMILY";
    if std::env::var_os(CHILD).is_some() {
        let places = run(|| {
            set_max_procs(2);
            family(8)
        });
        return assert!(is_fair(&places, 2, 3), "{places:?}");
    }
    let _alone = alone();
    if thread::available_parallelism().map_or(1, usize::from) < 2 {
        return;
    }
    let (mut row, mut longest) = (0, 0);
    while row < 8 {
        let child = test_command(module_path!(), "the_first_family_is_spread").env(CHILD, "1").output().unwrap();
        row = if child.status.success() { row + 1 } else { 0 };
        note_progress(row, &mut longest);
    }
}

/// Two goroutines that block at once are no family.
#[test]
fn a_pair_is_not_spread() {
    never(|| family(2));
}

/// A family that is started under `together` stays, also when the call has unwound before; the next one is spread.
#[test]
fn a_family_that_stays_together_is_not_spread() {
    never(|| together(|| family(8)));
    let attempt = || {
        let panics = catch_unwind(|| together(|| panic::resume_unwind(Box::new(()))));
        assert!(panics.is_err());
        family(8)
    };
    again_and_again(2, attempt, |places, spread| Some(spread >= 3 && is_fair(&places, 2, 3)));
}

/// Goroutines that block are no family if they are readied in between: they talk to each other.
#[test]
fn goroutines_that_talk_are_not_spread() {
    let talk = || {
        let (ping, pong, end) = (Chan::<()>::new(0), Chan::<()>::new(0), Chan::<()>::new(0));
        for _ in 0..10 {
            let (from, to, end) = (ping.clone(), pong.clone(), end.clone());
            go(move || {
                from.recv();
                to.send(());
                end.recv();
            });
            ping.send(());
            pong.recv();
        }
        family(2);
        end.close();
    };
    never(talk);
}

/// Goroutines that block are no family if others end in between. A thief may take every other one, and leave a family.
#[test]
fn goroutines_that_end_are_not_spread() {
    again_and_again(2, || start(20, true), |_, spread| Some(spread == 0));
}

/// Starts a goroutine, and keeps its worker from running it by `wait`, which is told when it has begun.
fn start_and(wait: impl FnOnce(&AtomicBool)) {
    let (begun, done) = (Arc::new(AtomicBool::new(false)), Arc::new(WaitGroup::new()));
    done.add(1);
    let (theirs, end) = (begun.clone(), done.clone());
    go(move || {
        theirs.store(true, SeqCst);
        end.done();
    });
    wait(&begun);
    done.wait();
}

/// A worker that does not run, for less than ten milliseconds, keeps its work.
#[test]
fn work_does_not_age_while_its_worker_does_not_run() {
    let attempt = || {
        let (mut began, mut time) = (false, Duration::ZERO);
        let start = Instant::now();
        start_and(|begun| {
            thread::sleep(Duration::from_millis(2));
            began = begun.load(SeqCst);
            time = start.elapsed();
        });
        (began, time)
    };
    // An attempt that has taken longer says nothing.
    again_and_again(2, attempt, |(began, time), _| (time < Duration::from_millis(10)).then_some(!began));
}

/// The work of a worker that runs a goroutine, or sits in a system call, is stolen all the same.
#[test]
fn work_is_stolen_from_a_worker_that_has_no_time_for_it() {
    let _alone = alone();
    run(|| {
        set_max_procs(2);
        start_and(|begun| while !begun.load(SeqCst) {});
        // Blocks the worker's thread.
        let (tx, rx) = mpsc::channel();
        go(move || tx.send(()).unwrap());
        rx.recv().unwrap();
    });
}

/// Two goroutines that compute, and enter the runtime all the time, do not share a worker beside an idle one: the first does
/// not give way to the second before a thief has come, or a millisecond is over. The thief has ended its last goroutine a
/// moment before, at various times: it finds the second too young, and is about to sleep. A row of sixty, as without this
/// rule most attempts come out right all the same.
#[test]
fn two_that_compute_do_not_share_a_worker() {
    const LONG_SLICE: Duration = Duration::from_millis(1);
    static ATTEMPTS: AtomicUsize = AtomicUsize::new(0);
    let attempt = || {
        let (done, begun) = (Arc::new(WaitGroup::new()), Arc::new(Mutex::new(Vec::new())));
        let end = Instant::now() + LONG_SLICE / 2;
        let earlier = Duration::from_micros(ATTEMPTS.fetch_add(1, SeqCst) as u64 % 16 * 5);
        done.add(2);
        for _ in 0..2 {
            let (done, begun) = (done.clone(), begun.clone());
            go(move || {
                let how_many = || begun.lock().unwrap().len();
                begun.lock().unwrap().push((here(), Instant::now()));
                let end = if how_many() == 2 { end - earlier } else { end };
                let calls = sudog::sync::RwMutex::new(0_u64); // whose unlock is a place to give way
                while how_many() < 2 || Instant::now() < end {
                    *calls.write() += 1;
                }
                done.done();
            });
        }
        done.wait();
        let begun = begun.lock().unwrap();
        let [(place, time), (other_place, later)] = begun[..] else { panic!("two have begun") };
        (place != other_place, later.saturating_duration_since(time))
    };
    // That no thief had a processor for so long says nothing.
    until_in_a_row(60, Duration::ZERO, 2, attempt, |(apart, between), _| {
        (apart || between < LONG_SLICE).then_some(apart)
    });
}
