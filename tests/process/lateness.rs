//! A wait with a deadline ends in time beside goroutines that never leave their worker idle, if only these goroutines
//! call into the runtime at times: each kind of wait beside each kind of hog, on one worker and on two.
//!
//! The hogs work for a millisecond between two calls. Then a wait is late by a few milliseconds, or by 11 at most,
//! because the watcher asks each worker for its timers every 10 ms. Beside goroutines that yield, a wait is late by one
//! or two milliseconds. The bounds here are 20 and 5. Other programs use the processors, too. So the lateness is the
//! time since the deadline, or the time of the pieces of work that hogs have begun since the deadline, whichever is
//! less; and a wait is judged by several samples.
#![cfg(all(unix, not(sudog_loom)))]

use std::future::{pending, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::task::Poll;
use std::time::{Duration, Instant};

use sudog::chan::Chan;
use sudog::context::{self, background};
use sudog::low_level::sema::{Order, Wake, semacquire, semacquire_limited, semrelease};
use sudog::runtime::{gosched, set_max_procs};
use sudog::sync::{Cond, Mutex, RwMutex, WaitGroup};
use sudog::time::{self, Ticker, Timer, after_func, sleep, sleep_async};
use sudog::{Builder, Placement, WaitLimit, block_on, block_on_limited, chan::select, go_async, run, spawn_async};
use support::goroutine::alone;

const WAIT: Duration = Duration::from_millis(1);
const WORK: Duration = Duration::from_millis(1);
/// The bound of the lateness beside hogs that yield.
const SOON: Duration = Duration::from_millis(5);
/// The bound of the lateness beside other hogs.
const IN_TIME: Duration = Duration::from_millis(20);
/// The most samples of a wait. The wait passes if the first two samples are in time, or most of all samples.
const SAMPLES: usize = 9;

// ---- hogs ------------------------------------------------------------------------------------------------------------

/// The state that the hogs of a worker share with the goroutine that waits beside them.
type Beside = Arc<Side>;

#[derive(Default)]
struct Side {
    stop: AtomicBool,
    deadline: Mutex<Option<Instant>>,
    /// The number of times that a hog has begun to work since the deadline.
    late: AtomicU32,
}

impl Side {
    fn goes_on(&self) -> bool {
        !self.stop.load(Relaxed)
    }

    fn work(&self) {
        let begun = Instant::now();
        if self.deadline.try_lock().is_some_and(|deadline| deadline.is_some_and(|deadline| deadline <= begun)) {
            self.late.fetch_add(1, Relaxed);
        }
        while begun.elapsed() < WORK {
            std::hint::spin_loop();
        }
    }
}

/// Starts goroutines or tasks on the calling worker that go on until they are told to stop.
type Hogs = fn(&Beside);

/// Starts a goroutine that works and calls `round`, again and again, and at the end calls `end`. The goroutine stays on
/// this worker.
fn hog(side: &Beside, mut round: impl FnMut() + Send + 'static, end: impl FnOnce() + Send + 'static) {
    let side = side.clone();
    Builder::new().on(Placement::Here).go(move || {
        while side.goes_on() {
            side.work();
            round();
        }
        end();
    });
}

fn yielder(side: &Beside) {
    hog(side, gosched, || ());
}

fn two_yielders(side: &Beside) {
    yielder(side);
    // Start a second goroutine that makes as many yields, but does no work.
    let side = side.clone();
    Builder::new().on(Placement::Here).go(move || {
        while side.goes_on() {
            gosched();
        }
    });
}

/// A hog that sends to itself.
fn buffered(side: &Beside) {
    let channel = Chan::new(1);
    hog(
        side,
        move || {
            channel.send(1);
            channel.recv();
        },
        || (),
    );
}

/// Two hogs that ready each other, and so run on each other's time slices.
fn rendezvous(side: &Beside) {
    let (there, back) = (Chan::new(0), Chan::new(0));
    let (from, to) = (there.clone(), back.clone());
    hog(
        side,
        move || {
            there.try_send(()).is_ok().then(|| back.recv());
        },
        || (),
    );
    hog(
        side,
        move || {
            from.recv_limited(WAIT).is_ok().then(|| to.send(()));
        },
        || (),
    );
}

/// Two hogs that ready each other by semaphores.
fn ping_pong<const HANDOFF: bool>(side: &Beside) {
    let wake = if HANDOFF { Wake::Handoff } else { Wake::Normal };
    let ping = Arc::new([const { AtomicU32::new(0) }; 2]);
    for me in 0..2 {
        let (round, end) = (ping.clone(), ping.clone());
        hog(
            side,
            move || {
                semrelease(&round[me], wake);
                semacquire(&round[1 - me])
            },
            move || semrelease(&end[me], wake),
        );
    }
}

/// Three hogs that lock the same mutex and make calls while they own the mutex. So two hogs wait for the mutex, or have
/// been woken, when the third hog unlocks. (An unlock without a waiter is no call into the runtime.)
fn lockers(side: &Beside) {
    let mutex = Arc::new(Mutex::new(Chan::new(1)));
    for _ in 0..3 {
        let (mutex, works) = (mutex.clone(), side.clone());
        let round = move || {
            let channel = mutex.lock();
            works.work();
            channel.send(());
            channel.recv();
        };
        hog(side, round, || ());
    }
}

/// Two hogs that signal each other.
fn signallers(side: &Beside) {
    let turns = Arc::new((Mutex::new(0), Cond::new()));
    for me in 0..2 {
        let (round, end) = (turns.clone(), turns.clone());
        let take_turn = move || {
            let mut turn = round.0.lock();
            while *turn != me {
                round.1.wait(&mut turn);
            }
            *turn = if *turn == 2 { 2 } else { 1 - me };
            round.1.signal();
        };
        let leave = move || {
            *end.0.lock() = 1 - me;
            end.1.signal();
        };
        hog(side, take_turn, leave);
    }
}

fn selector(side: &Beside) {
    let never = Chan::<()>::new(0);
    hog(side, move || select! { recv(never) => unreachable!(), default => () }, || ());
}

fn ticker(side: &Beside) {
    let ticker = Ticker::new(Duration::from_micros(1));
    hog(side, move || _ = ticker.recv(), || ());
}

fn nappers(side: &Beside) {
    for _ in 0..2 {
        hog(side, || sleep(Duration::from_micros(1)), || ());
    }
}

/// Tasks that wake themselves.
fn restless(side: &Beside) {
    for _ in 0..2 {
        let side = side.clone();
        go_async(poll_fn(move |cx| {
            side.work();
            cx.waker().wake_by_ref();
            if side.goes_on() { Poll::Pending } else { Poll::Ready(()) }
        }));
    }
}

/// Tasks that wake each other.
fn tasks(side: &Beside) {
    let (there, back) = (Chan::new(1), Chan::new(1));
    there.send(());
    for (from, to) in [(there.clone(), back.clone()), (back, there)] {
        let side = side.clone();
        go_async(async move {
            while side.goes_on() && from.recv_async().await.is_some() {
                side.work();
                to.send_async(()).await;
            }
            to.close();
        });
    }
}

/// Goroutines each of which starts the next.
fn chain(side: &Beside) {
    let side = side.clone();
    Builder::new().on(Placement::Here).go(move || {
        side.work();
        if side.goes_on() {
            chain(&side);
        }
    });
}

/// A hog that resets a timer.
fn resetter(side: &Beside) {
    let timer = Timer::new(Duration::from_secs(3600));
    hog(
        side,
        move || {
            timer.reset(Duration::from_secs(3600));
        },
        || (),
    );
}

const HOGS: [(&str, Hogs, Duration); 15] = [
    ("a yielder", yielder, SOON),
    ("two yielders", two_yielders, SOON),
    ("a buffered channel", buffered, IN_TIME),
    ("a channel without a buffer", rendezvous, IN_TIME),
    ("semaphores", ping_pong::<false>, IN_TIME),
    ("semaphores with handoff", ping_pong::<true>, IN_TIME),
    ("a mutex", lockers, IN_TIME),
    ("a Cond", signallers, IN_TIME),
    ("select with a default", selector, IN_TIME),
    ("a ticker", ticker, IN_TIME),
    ("nappers", nappers, IN_TIME),
    ("tasks that wake themselves", restless, IN_TIME),
    ("tasks that wake each other", tasks, IN_TIME),
    ("a chain of starts", chain, IN_TIME),
    ("timers that are reset", resetter, IN_TIME),
];

// ---- waits -----------------------------------------------------------------------------------------------------------

/// Waits until the given time, which is [`WAIT`] away.
type Wait = fn(Instant);

fn limit(deadline: Instant) -> WaitLimit<'static> {
    WaitLimit::until(deadline)
}

const WAITS: [(&str, Wait); 18] = [
    ("sleep", |_| sleep(WAIT)),
    ("Timer", |_| _ = Timer::new(WAIT).recv()),
    ("Ticker", |_| _ = Ticker::new(WAIT).recv()),
    ("time::after", |_| _ = time::after(WAIT).recv()),
    ("recv_limited", |_| assert!(Chan::<()>::new(0).recv_limited(WAIT).is_err())),
    ("send_limited", |_| assert!(Chan::new(0).send_limited((), WAIT).is_err())),
    ("select", |_| select! { recv(Chan::<()>::new(0)) => unreachable!(), default(WAIT) => () }),
    ("semacquire_limited", |when| assert!(semacquire_limited(&AtomicU32::new(0), Order::Fifo, when).is_err())),
    ("Mutex", |when| {
        let mutex = Mutex::new(());
        let _guard = mutex.lock();
        assert!(mutex.try_lock_until(when).is_none());
    }),
    ("RwMutex", |when| {
        let mutex = RwMutex::new(());
        let _guard = mutex.write();
        assert!(mutex.try_read_until(when).is_none());
    }),
    ("Cond", |when| assert!(Cond::new().wait_limited(&mut Mutex::new(()).lock(), when).is_err())),
    ("WaitGroup", |when| {
        let group = WaitGroup::new();
        group.add(1);
        assert!(group.wait_limited(when).is_err());
        group.done();
    }),
    ("a context", |when| _ = context::with_deadline(&background(), when).0.wait()),
    ("block_on_limited", |when| assert!(block_on_limited(pending::<()>(), &limit(when)).is_err())),
    ("block_on sleep_async", |_| block_on(sleep_async(WAIT))),
    ("a task", |_| spawn_async(sleep_async(WAIT)).join().unwrap()),
    ("join_limited", |when| {
        let gate = Arc::new(AtomicU32::new(0));
        let waits = gate.clone();
        let mut waiter = Builder::new().on(Placement::Here).spawn(move || semacquire(&waits));
        assert!(waiter.join_limited(&limit(when)).is_err());
        semrelease(&gate, Wake::Normal);
    }),
    ("after_func", |_| {
        let called = Arc::new(AtomicU32::new(0));
        let calls = called.clone();
        let _call = after_func(WAIT, move || semrelease(&calls, Wake::Normal));
        semacquire(&called);
    }),
];

// ---- the table -------------------------------------------------------------------------------------------------------

/// Returns the latenesses of a wait beside hogs as an error if too many are larger than `bound`.
fn judge(wait: Wait, side: &Side, bound: Duration) -> Result<(), Vec<Duration>> {
    let mut samples = Vec::new();
    loop {
        let deadline = Instant::now() + WAIT;
        *side.deadline.lock() = Some(deadline);
        side.late.store(0, Relaxed);
        wait(deadline);
        samples.push(deadline.elapsed().min(WORK * side.late.load(Relaxed)));
        *side.deadline.lock() = None;
        let late = samples.iter().filter(|&&late| late > bound).count();
        match (samples.len(), late) {
            (2, 0) => return Ok(()),
            (SAMPLES, late) if late <= SAMPLES / 2 => return Ok(()),
            (SAMPLES, _) => return Err(samples),
            _ => {}
        }
    }
}

/// Makes all waits, one after another, beside each kind of hog, on each worker.
fn no_wait_is_late(workers: usize) {
    let alone = alone();
    let mut late = Vec::new();
    for (hogs_name, hogs, bound) in HOGS {
        println!("{hogs_name}");
        let all = run(move || {
            set_max_procs(workers);
            let beside = (0..workers).map(|worker| {
                Builder::new().on(Placement::Worker(worker)).spawn(move || {
                    let side = Beside::default();
                    hogs(&side);
                    let late = WAITS.map(|(name, wait)| judge(wait, &side, bound).map_err(|late| (name, late)));
                    side.stop.store(true, Relaxed);
                    late
                })
            });
            let beside: Vec<_> = beside.collect();
            beside.into_iter().flat_map(|side| side.join().unwrap()).collect::<Vec<_>>()
        });
        for (wait_name, samples) in all.into_iter().filter_map(Result::err) {
            late.push(format!("{wait_name} beside {hogs_name}: {samples:?}\n"));
        }
        alone.watchdog.pat();
    }
    assert!(late.is_empty(), "late on {workers} workers:\n{}", late.concat());
}

#[test]
fn on_one_worker() {
    no_wait_is_late(1);
}

#[test]
fn on_two_workers() {
    no_wait_is_late(2);
}
