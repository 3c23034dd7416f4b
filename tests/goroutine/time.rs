//! Sleeps, timers and tickers, of threads, goroutines and tasks.
#![cfg(all(unix, not(sudog_loom)))]

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Waker};
use std::thread;
use std::time::{Duration, Instant};

use sudog::context;
use sudog::runtime::sema::{Wake, semacquire, semrelease};
use sudog::runtime::{gosched, num_goroutine, set_max_procs};
use sudog::time::{SleepAsync, Ticker, Timer, after, after_func, sleep, sleep_async};
use sudog::{Builder, Placement, block_on, go, go_async, run, spawn, spawn_async};
use support::goroutine::{Dropped, alone, one_worker, text, until};
use support::{Watchdog, eventually};

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

/// That `f` takes no less than `d`. How much more is not checked.
#[track_caller]
fn takes<T>(d: Duration, f: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let result = f();
    assert!(begun.elapsed() >= d, "{:?}", begun.elapsed());
    result
}

// ---- sleep ----------------------------------------------------------------------------------------------------------

#[test]
fn a_sleep_is_never_short() {
    let _alone = alone();
    takes(MS, || sleep(MS)); // a thread
    run(|| {
        for micros in [0, 1, 10, 100, 1000, 3000] {
            let d = Duration::from_micros(micros);
            takes(d, || sleep(d));
            let handle = spawn(move || takes(d, || sleep(d)));
            handle.join().unwrap();
        }
    });
}

#[test]
fn others_run_while_one_sleeps() {
    static RUNS: AtomicUsize = AtomicUsize::new(0);
    let _watchdog = Watchdog::new();
    one_worker(|| {
        for n in 0..1000 {
            go(move || {
                sleep(Duration::from_micros(n % 50 * 10));
                RUNS.fetch_add(1, Relaxed);
            });
        }
        while RUNS.load(Relaxed) < 1000 {
            sleep(Duration::from_micros(50));
        }
    });
}

static SLEEPERS: AtomicUsize = AtomicUsize::new(0);

fn num_sleepers() -> usize {
    SLEEPERS.load(Relaxed)
}

fn spawn_here(f: impl FnOnce() + Send + 'static) {
    use sudog::{Builder, Placement};
    Builder::new().on(Placement::Here).go(|| {
        SLEEPERS.fetch_add(1, Relaxed);
        f();
    });
}

#[test]
fn async_sleeps() {
    let _alone = alone();
    takes(2 * MS, || block_on(sleep_async(2 * MS)));
    block_on(sleep_async(Duration::ZERO));
    run(|| {
        takes(2 * MS, || block_on(sleep_async(2 * MS)));
        let tasks: Vec<_> = (0..100)
            .map(|n| {
                spawn_async(async move {
                    let begun = Instant::now();
                    let d = Duration::from_micros(100 * (n % 10));
                    sleep_async(d).await;
                    begun.elapsed() >= d
                })
            })
            .collect();
        assert!(tasks.into_iter().all(|task| task.join().unwrap()));
    });
    // Dropped before it fires, and never polled.
    drop(sleep_async(HOUR));
    let mut never = Box::pin(sleep_async(HOUR));
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(std::future::Future::poll(never.as_mut(), &mut cx).is_pending());
    assert!(std::future::Future::poll(Box::pin(sleep_async(Duration::MAX)).as_mut(), &mut cx).is_pending());
}

// ---- Timer ----------------------------------------------------------------------------------------------------------

#[test]
fn a_timer_fires_once() {
    let _alone = alone();
    let fires = || {
        let timer = takes(MS, || {
            let timer = Timer::new(MS);
            assert!(timer.wait());
            timer
        });
        assert!(!timer.wait(), "its firing has been waited for");
        assert!(!timer.stop());
        assert!(takes(MS, || after(MS).wait()));
    };
    fires();
    run(fires);
}

#[test]
fn a_timer_fires_for_one_of_many() {
    let _alone = alone();
    run(|| {
        let timer = Arc::new(Timer::new(2 * MS));
        let waits: Vec<_> = (0..20)
            .map(|_| {
                let timer = timer.clone();
                spawn(move || timer.wait())
            })
            .collect();
        assert_eq!(waits.into_iter().filter_map(|wait| wait.join().ok()).filter(|&fired| fired).count(), 1);
    });
}

#[test]
fn a_stopped_timer_wakes_its_waiter() {
    let _alone = alone();
    run(|| {
        let timer = Arc::new(Timer::new(HOUR));
        let waits: Vec<_> = (0..5)
            .map(|_| {
                let timer = timer.clone();
                spawn(move || timer.wait())
            })
            .collect();
        for _ in 0..20 {
            gosched(); // some wait by now, some have not begun: it must make no difference
        }
        assert!(timer.stop());
        assert!(!timer.stop(), "it was stopped");
        for wait in waits {
            assert!(!wait.join().unwrap());
        }
        assert!(!timer.reset(MS), "it was stopped");
        assert!(timer.wait());
    });
}

#[test]
fn a_timer_that_is_set_anew() {
    let _alone = alone();
    run(|| {
        // To an earlier time, while a caller waits.
        let timer = Arc::new(Timer::new(HOUR));
        let waits = timer.clone();
        let wait = spawn(move || waits.wait());
        for _ in 0..20 {
            gosched();
        }
        assert!(timer.reset(MS));
        assert!(wait.join().unwrap());
        // To a later time.
        let timer = Timer::new(MS);
        takes(3 * MS, || {
            timer.reset(3 * MS);
            assert!(timer.wait());
        });
        timer.reset(HOUR);
        timer.reset(Duration::ZERO);
        assert!(timer.wait());
        assert!(Timer::new(Duration::MAX).stop());
    });
}

/// Stops and resets that race with the firing: every waiter comes back, and `stop` and `wait` agree on which was first.
#[test]
fn a_timer_is_either_stopped_or_fires() {
    let alone = alone();
    run(|| {
        let mut stopped = 0;
        for round in 0..1000 {
            let timer = Arc::new(Timer::new(Duration::from_micros(30)));
            let waits: Vec<_> = (0..2)
                .map(|_| {
                    let timer = timer.clone();
                    spawn(move || timer.wait())
                })
                .collect();
            sleep(Duration::from_micros(20 + round % 20));
            let was_set = timer.stop();
            let fired = waits.into_iter().filter_map(|wait| wait.join().ok()).filter(|&fired| fired).count();
            assert_eq!(fired, usize::from(!was_set));
            stopped += u32::from(was_set);
            if round % 100 == 0 {
                alone.watchdog.pat();
            }
        }
        println!("{stopped} of 1000 were stopped");
    });
}

// ---- after_func -----------------------------------------------------------------------------------------------------

#[test]
fn after_func_calls_once() {
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    static DONE: AtomicU32 = AtomicU32::new(0);
    let _alone = alone();
    let calls = || {
        CALLS.fetch_add(1, Relaxed);
        semrelease(&DONE, Wake::Normal);
    };
    takes(MS, || {
        let _timer = after_func(MS, calls);
        semacquire(&DONE); // a thread
    });
    run(|| {
        drop(after_func(MS, calls)); // the timer is not needed
        semacquire(&DONE);
        let stopped = after_func(HOUR, calls);
        assert!(stopped.stop());
    });
    assert_eq!(CALLS.load(Relaxed), 2);
}

#[test]
fn after_func_calls_or_is_stopped() {
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    const ROUNDS: usize = 1000;
    let _watchdog = Watchdog::new();
    let stopped = one_worker(|| {
        let mut stopped = 0;
        for round in 0..ROUNDS {
            let timer = after_func(Duration::from_micros(20), || _ = CALLS.fetch_add(1, Relaxed));
            sleep(Duration::from_micros(10 + round as u64 % 20));
            stopped += usize::from(timer.stop());
        }
        until(|| num_goroutine() == 1);
        stopped
    });
    assert_eq!(CALLS.load(Relaxed) + stopped, ROUNDS);
}

/// What is stopped is dropped, uncalled.
#[test]
fn after_func_drops_what_it_does_not_call() {
    static DROPS: AtomicUsize = AtomicUsize::new(0);
    let _alone = alone();
    let dropped = Dropped(&DROPS);
    let timer = after_func(HOUR, move || drop(dropped));
    assert_eq!(DROPS.load(Relaxed), 0);
    timer.stop();
    eventually(|| DROPS.load(Relaxed) == 1);
}

// ---- Ticker ---------------------------------------------------------------------------------------------------------

#[test]
fn a_ticker_ticks() {
    let _alone = alone();
    let ticks = || {
        let mut ticker = None;
        takes(5 * MS, || {
            let ticker = ticker.insert(Ticker::new(MS));
            (0..5).for_each(|_| assert!(ticker.tick()));
        });
        let ticker = ticker.unwrap();
        ticker.stop();
        assert!(!ticker.tick() && !ticker.tick());
        takes(4 * MS, || {
            ticker.reset(2 * MS);
            assert!(ticker.tick() && ticker.tick());
        });
    };
    ticks();
    run(ticks);
}

#[test]
fn ticks_without_a_waiter_are_dropped() {
    let _alone = alone();
    run(|| {
        let ticker = Ticker::new(3 * MS);
        sleep(20 * MS);
        assert!(ticker.tick(), "one is there");
        // If all that were missed were there, this would take no time; but the next may be due at once.
        takes(3 * MS, || (0..3).for_each(|_| assert!(ticker.tick())));
    });
}

#[test]
fn a_ticker_for_several() {
    let _alone = alone();
    run(|| {
        let ticker = Arc::new(Ticker::new(Duration::from_micros(200)));
        let ticks = Arc::new(AtomicUsize::new(0));
        let waits: Vec<_> = (0..4)
            .map(|_| {
                let (ticker, ticks) = (ticker.clone(), ticks.clone());
                spawn(move || {
                    while ticker.tick() {
                        ticks.fetch_add(1, Relaxed);
                    }
                })
            })
            .collect();
        while ticks.load(Relaxed) < 20 {
            sleep(MS);
        }
        ticker.stop();
        waits.into_iter().for_each(|wait| wait.join().unwrap());
    });
}

#[test]
fn no_ticker_without_a_period() {
    let refused = |f: fn()| text(&*std::panic::catch_unwind(f).unwrap_err()).to_owned();
    assert_eq!(refused(|| _ = Ticker::new(Duration::ZERO)), "non-positive interval for NewTicker");
    assert_eq!(refused(|| Ticker::new(MS).reset(Duration::ZERO)), "non-positive interval for Ticker.Reset");
    let _forever = Ticker::new(Duration::MAX);
}

// ---- all together ---------------------------------------------------------------------------------------------------

#[test]
fn ten_thousand_sleepers() {
    static AWAKE: AtomicUsize = AtomicUsize::new(0);
    let _alone = alone();
    run(|| {
        for n in 0..10_000_u64 {
            let d = Duration::from_micros(n * 7919 % 20_000);
            if n % 4 == 0 {
                go_async(async move {
                    sleep_async(d).await;
                    AWAKE.fetch_add(1, Relaxed);
                });
            } else {
                go(move || {
                    takes(d, || sleep(d));
                    AWAKE.fetch_add(1, Relaxed);
                });
            }
        }
        while AWAKE.load(Relaxed) < 10_000 {
            sleep(MS);
        }
    });
}

/// Sleepers of many workers, while threads come and go.
#[test]
fn sleepers_on_several_runs() {
    let _alone = alone();
    thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                for _ in 0..20 {
                    run(|| takes(MS / 4, || sleep(MS / 4)));
                }
            });
        }
    });
}

/// The last moment that an `Instant` can be.
fn end_of_time() -> Instant {
    let mut at = Instant::now();
    let mut step = Duration::MAX / 2;
    while !step.is_zero() {
        match at.checked_add(step) {
            Some(later) => at = later,
            None => step /= 2,
        }
    }
    at
}

/// An alarm at the end of time is no harm to others: one whose waker waits, and one that it waits for.
#[test]
fn an_alarm_at_the_end_of_time() {
    /// Runs a closure.
    struct Runs<F>(F);

    impl<F: Fn() + Send + Sync + 'static> std::task::Wake for Runs<F> {
        fn wake(self: Arc<Self>) {
            (self.0)();
        }
    }

    fn set(d: Duration, f: impl Fn() + Send + Sync + 'static) -> Pin<Box<SleepAsync>> {
        let mut sleep = Box::pin(sleep_async(d));
        let waker = Waker::from(Arc::new(Runs(f)));
        assert!(sleep.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        sleep
    }

    static DONE: AtomicU32 = AtomicU32::new(0);
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let (_watchdog, _alone) = (Watchdog::new(), alone());
    let (_never, _cancel) = context::with_deadline(&context::background(), end_of_time());
    let (_last, _cancel) = context::with_deadline(&context::background(), end_of_time() - MS);
    thread::sleep(10 * MS); // the watcher sleeps, as a rule
    let _first = set(MS, || {
        semacquire(&NEXT);
        semrelease(&DONE, Wake::Normal);
    });
    let _second = set(2 * MS, || semrelease(&NEXT, Wake::Normal));
    semacquire(&DONE);
}

// ---- limits ---------------------------------------------------------------------------------------------------------

/// A wait that gives up takes nothing: the timer, the ticker and the handle are as they were.
#[test]
fn waits_that_give_up() {
    use sudog::runtime::sema::{Cancel, WaitError, WaitLimit};
    let _watchdog = Watchdog::new();
    let test = || {
        let stop = Arc::new(Cancel::new());
        let (timer, ticker) = (Arc::new(Timer::new(HOUR)), Arc::new(Ticker::new(HOUR)));
        let mut sleeper = spawn({
            let timer = timer.clone();
            move || timer.wait()
        });
        let soon = || WaitLimit::until(Instant::now() + MS);
        takes(MS, || assert_eq!(timer.wait_limited(&soon()), Err(WaitError::TimedOut)));
        takes(MS, || assert_eq!(ticker.tick_limited(&soon()), Err(WaitError::TimedOut)));
        takes(MS, || assert!(matches!(sleeper.join_limited(&soon()), Err(WaitError::TimedOut))));
        let cancelled = WaitLimit { cancel: Some(&stop), ..WaitLimit::default() };
        go({
            let stop = stop.clone();
            move || stop.cancel()
        });
        assert_eq!(timer.wait_limited(&cancelled), Err(WaitError::Cancelled));
        assert_eq!(ticker.tick_limited(&cancelled), Err(WaitError::Cancelled));
        assert!(matches!(sleeper.join_limited(&cancelled), Err(WaitError::Cancelled)));
        // What is there is taken, whatever the limit.
        ticker.reset(MS);
        assert_eq!(ticker.tick_limited(&WaitLimit::until(Instant::now() + HOUR)), Ok(true));
        thread::sleep(MS * 2);
        assert_eq!(ticker.tick_limited(&WaitLimit::until(Instant::now())), Ok(true));
        assert!(timer.reset(Duration::ZERO));
        assert!(sleeper.join().unwrap() || timer.wait(), "the timer fires for one of them");
        ticker.stop();
        assert_eq!(ticker.tick_limited(&cancelled), Ok(false));
        let mut ended = spawn(|| 7);
        until(|| ended.is_finished());
        assert_eq!(ended.join_limited(&WaitLimit::until(Instant::now())).unwrap().unwrap(), 7);
    };
    run(test);
    test();
}

/// Each worker's alarms are apart. One that is due before all others is heard, whichever worker has set it; and one that
/// another worker calls off is gone.
#[test]
fn alarms_of_all_workers() {
    let _alone = alone();
    let _watchdog = Watchdog::new();
    let before = set_max_procs(3);
    run(|| {
        const HOUR: Duration = Duration::from_secs(3600);
        // The thread that wakes sleeps until this one.
        let (_far, _cancel) = context::with_timeout(&context::background(), HOUR);
        for worker in (0..3).cycle().take(9) {
            let there = Builder::new().on(Placement::Worker(worker)).spawn(move || {
                block_on(sleep_async(Duration::from_millis(1)));
                context::with_timeout(&context::background(), HOUR / 2)
            });
            let (ctx, cancel) = there.join().unwrap();
            cancel.cancel();
            assert_eq!(ctx.err(), Some(context::Error::Canceled));
        }
    });
    set_max_procs(before);
}
