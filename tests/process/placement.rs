//! The places where goroutines start. A family that blocks at once is spread over idle workers, and a pair stays
//! together. A thief takes the goroutines that its victim has no time for, but takes none from a victim that does not
//! run.
//!
//! The place is a hint, and a busy machine decides otherwise now and then: a thief comes first, or a worker has no
//! processor. So a test tries until the outcome has been right ten times in a row; and it counts the goroutines that
//! the rule has moved, which excludes those that thieves move. A process of its own, and one test at a time: the
//! families of other tests would count, too.
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

/// The number of right outcomes in a row that rule out luck.
const IN_A_ROW: usize = 10;

/// The places where a family started: the number of goroutines of each thread.
type Places = HashMap<ThreadId, usize>;

/// Starts goroutines that wait on the same channel; with `half`, every other goroutine ends at once. When all
/// goroutines have begun, closes the channel, which ends the waiting goroutines.
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

/// Starts a family of `size` goroutines.
fn family(size: usize) -> Places {
    start(size, false)
}

/// Takes the turn to start families: the families of other tests would count.
fn alone() -> impl Sized {
    static TURNS: Mutex<()> = Mutex::new(());
    (Watchdog::new(), turn(&TURNS))
}

/// Pats the watchdog when a row is longer than all rows before: so the watchdog waits on a busy machine, but not for
/// ever.
fn note_progress(row: usize, longest: &mut usize) {
    if row > *longest {
        *longest = row;
        pat();
    }
}

/// Tries until `outcome` has been true `IN_A_ROW` times without a false outcome between.
///
/// `outcome` is told how many goroutines the attempt has spread, and returns `None` if the attempt proves nothing.
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

/// Returns whether there are `threads` threads, each with at least `least` goroutines.
fn is_fair(places: &Places, threads: usize, least: usize) -> bool {
    places.len() == threads && places.values().all(|&n| n >= least)
}

#[test]
fn a_pool_is_spread() {
    again_and_again(2, || family(8), |places, spread| Some(spread >= 3 && is_fair(&places, 2, 3)));
}

#[test]
fn a_large_family_is_spread() {
    // Where a start takes long, as in a build without optimisation, thieves come first, and divide the family as well.
    again_and_again(2, || family(200), |places, _| Some(is_fair(&places, 2, 80)));
}

#[test]
fn all_workers_have_some_of_a_family() {
    again_and_again(4, || family(32), |places, spread| Some(spread >= 15 && is_fair(&places, 4, 5)));
}

/// The first family of a process waits for the threads that its start creates: often there is no other family.
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

/// A family that is started under `together` stays, and the next family is spread, also when a call of `together` has
/// unwound before.
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

/// Goroutines that block are no family if other goroutines end in between. A thief may take every other goroutine, and
/// leave a family.
#[test]
fn goroutines_that_end_are_not_spread() {
    again_and_again(2, || start(20, true), |_, spread| Some(spread == 0));
}

/// Starts a goroutine, and keeps its worker from running that goroutine by `wait`, which is told when the goroutine has
/// begun.
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
    // An attempt that has taken longer proves nothing.
    again_and_again(2, attempt, |(began, time), _| (time < Duration::from_millis(10)).then_some(!began));
}

/// The work of a worker that runs a goroutine, or sits in a system call, is stolen all the same.
#[test]
fn work_is_stolen_from_a_worker_that_has_no_time_for_it() {
    let _alone = alone();
    run(|| {
        set_max_procs(2);
        start_and(|begun| while !begun.load(SeqCst) {});
        // Block the worker's thread.
        let (tx, rx) = mpsc::channel();
        go(move || tx.send(()).unwrap());
        rx.recv().unwrap();
    });
}

/// Two goroutines that compute, and enter the runtime all the time, do not share a worker beside an idle worker: the
/// first goroutine does not yield to the second while another worker is idle.
///
/// The thief has ended its last goroutine a moment before, at various times: the thief finds the second goroutine too
/// young, and is about to sleep. The test needs a row of sixty, because without this rule most attempts come out right
/// all the same.
#[test]
fn two_that_compute_do_not_share_a_worker() {
    const THIEF_WAIT: Duration = Duration::from_millis(1);
    static ATTEMPTS: AtomicUsize = AtomicUsize::new(0);
    let attempt = || {
        let (done, begun) = (Arc::new(WaitGroup::new()), Arc::new(Mutex::new(Vec::new())));
        let end = Instant::now() + THIEF_WAIT / 2;
        let earlier = Duration::from_micros(ATTEMPTS.fetch_add(1, SeqCst) as u64 % 16 * 5);
        done.add(2);
        for _ in 0..2 {
            let (done, begun) = (done.clone(), begun.clone());
            go(move || {
                let how_many = || begun.lock().unwrap().len();
                begun.lock().unwrap().push((here(), Instant::now()));
                let end = if how_many() == 2 { end - earlier } else { end };
                let calls = sudog::sync::RwMutex::new(0_u64); // the unlock is a safepoint
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
    // An attempt in which no thief had a processor for so long proves nothing.
    until_in_a_row(60, Duration::ZERO, 2, attempt, |(apart, between), _| {
        (apart || between < THIEF_WAIT).then_some(apart)
    });
}
