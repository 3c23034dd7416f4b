//! Bubbles: Go's `internal/synctest/synctest_test.go` (1.27) by name, and the differences from Go.
#![cfg(all(unix, not(sudog_loom)))]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use sudog::chan::{Chan, select};
use sudog::context::{self, Error};
use sudog::locks::waiting_array::Benaphore;
use sudog::low_level::Semaphore;
use sudog::low_level::sema::{Order, semacquire};
use sudog::runtime::{goexit, gosched};
use sudog::sync::{Cond, Mutex, WaitGroup};
use sudog::time::{self, Ticker, Timer, after_func, now, sleep};
use sudog::{
    Builder, Cancel, WaitError, WaitLimit, blocking, go, go_async, run, spawn, spawn_async, synctest, without_switching,
};
use support::Watchdog;
use support::goroutine::text;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

/// Waits for a permit that never comes.
fn for_ever() {
    static NEVER: AtomicU32 = AtomicU32::new(0);
    semacquire(&NEVER);
}

#[track_caller]
fn panics(wanted: &str, f: impl FnOnce() + Send + 'static) -> String {
    let payload = catch_unwind(AssertUnwindSafe(|| synctest::test(f))).expect_err("a panic");
    let text = text(&*payload);
    assert!(text.starts_with(wanted), "{text}");
    text.to_owned()
}

// ---- the clock ------------------------------------------------------------------------------------------------------

#[test]
fn now_is_the_bubble_s() {
    synctest::test(|| {
        let start = now();
        thread::sleep(MS); // sleeps by the system's clock, and the bubble's clock stands still
        assert_eq!(now(), start);
        let child = spawn(now);
        assert_eq!(child.join().unwrap(), start);
        sleep(SECOND);
        assert_eq!(now(), start + SECOND);
    });
}

/// Waits that look at the clock again and again still go on when the clock is near its largest time.
#[test]
fn the_end_of_the_clock() {
    let _watchdog = Watchdog::new();
    synctest::test(|| {
        let (mut left, begun) = (Duration::MAX, now());
        while begun.checked_add(left).is_none() {
            left /= 2;
        }
        // Sleep until the last possible time: each step halves the rest.
        sleep(left);
        let mut step = left;
        while !step.is_zero() {
            match now().checked_add(step) {
                Some(_) => sleep(step),
                None => step /= 2,
            }
        }
        assert_eq!(now().checked_add(Duration::from_nanos(1)), None);
        let cancel = Cancel::new();
        let limit = WaitLimit { deadline: None, cancel: Some(&cancel) };
        let permits = Benaphore::new(1);
        assert_eq!(permits.acquire_limited(Order::Fifo, &limit), Ok(()));
    });
}

#[test]
fn outside_of_a_bubble_now_is_the_system_s() {
    synctest::test(|| sleep(100 * HOUR));
    assert!(now() - Instant::now() < HOUR);
    run(|| assert!(now() - Instant::now() < HOUR));
}

/// Twenty-four hours of sleeps, tickers and calls: exact, and at once.
#[test]
fn a_day() {
    let _watchdog = Watchdog::new();
    let ticks = synctest::test(|| {
        let (start, ticks) = (now(), Arc::new(AtomicU32::new(0)));
        for n in 1..=24 {
            let ticks = ticks.clone();
            after_func(n * HOUR, move || {
                assert_eq!(now(), start + n * HOUR);
                ticks.fetch_add(1, Relaxed);
            });
        }
        go(move || {
            let ticker = Ticker::new(Duration::from_secs(60));
            for n in 1..=24 * 60 {
                assert_eq!(ticker.recv(), now());
                assert_eq!(now(), start + n * Duration::from_secs(60));
            }
        });
        for n in 1..=24 * 60 * 4 {
            sleep(Duration::from_secs(15));
            assert_eq!(now(), start + n * Duration::from_secs(15));
        }
        synctest::wait();
        ticks.load(Relaxed)
    });
    assert_eq!(ticks, 24);
}

#[test]
fn timer_read_before_deadline() {
    synctest::test(|| {
        let start = now();
        assert_eq!(Timer::new(5 * SECOND).recv(), start + 5 * SECOND);
        assert_eq!(now() - start, 5 * SECOND);
        assert_eq!(select! { recv(time::after(5 * SECOND)) -> at => at }, start + 10 * SECOND);
        assert_eq!(now(), start + 10 * SECOND);
    });
}

#[test]
fn timer_reset() {
    synctest::test(|| {
        let start = now();
        let timer = Timer::new(SECOND);
        timer.recv();
        timer.reset(2 * SECOND);
        timer.recv();
        assert_eq!(now() - start, 3 * SECOND);
        timer.reset(3 * SECOND);
        sleep(SECOND);
        timer.reset(3 * SECOND);
        timer.recv();
        assert_eq!(now() - start, 7 * SECOND);
    });
}

#[test]
fn time_after() {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    synctest::test(|| {
        after_func(SECOND, || {
            CALLS.fetch_add(1, Relaxed);
            go(|| {
                sleep(SECOND);
                CALLS.fetch_add(1, Relaxed);
            });
        });
        synctest::sleep(3 * SECOND);
        assert_eq!(CALLS.load(Relaxed), 2);
    });
}

/// A delayed call does not count as a goroutine that is left behind, and is not made after the bubble's end.
#[test]
fn timer_after_bubble_exit() {
    synctest::test(|| after_func(SECOND, || unreachable!()));
    synctest::test(|| {
        let ticker = time::tick(SECOND);
        ticker.recv();
    });
}

/// The order in which goroutines wake at the same instant. In Go they run in any order.
#[test]
fn those_that_wake_at_one_instant_wake_in_the_order_of_their_waits() {
    synctest::test(|| {
        let order = Arc::new(Mutex::new(Vec::new()));
        for n in 0..100 {
            let order = order.clone();
            go(move || {
                sleep(SECOND);
                order.lock().push(n);
            });
        }
        synctest::sleep(SECOND);
        assert!(order.lock().iter().copied().eq(0..100));
    });
}

#[test]
fn after_func_runs_immediately() {
    static RUN: AtomicBool = AtomicBool::new(false);
    synctest::test(|| {
        after_func(Duration::ZERO, || RUN.store(true, Relaxed));
        while !RUN.load(Relaxed) {
            gosched();
        }
    });
}

#[test]
fn deadlines_of_waits() {
    synctest::test(|| {
        let start = now();
        let (mutex, chan) = (Arc::new(Mutex::new(())), Chan::<u32>::new(0));
        let guard = mutex.lock();
        let theirs = mutex.clone();
        go(move || {
            assert!(theirs.try_lock_for(HOUR).is_none());
            assert_eq!(now() - start, HOUR);
        });
        let limit = WaitLimit::until(start + 2 * HOUR);
        assert_eq!(chan.recv_limited(&limit), Err(WaitError::TimedOut));
        assert_eq!(now() - start, 2 * HOUR);
        drop(guard);
        let timed_out = select! {
            recv(chan) -> _ => false,
            default(HOUR) => true,
        };
        assert!(timed_out);
        assert_eq!(now() - start, 3 * HOUR);
    });
}

#[test]
fn contexts() {
    synctest::test(|| {
        let start = now();
        let (ctx, _cancel) = context::with_timeout(&context::background(), 5 * SECOND);
        static CALLED: AtomicBool = AtomicBool::new(false);
        let _call = context::after_func(&ctx, || CALLED.store(true, Relaxed));
        sleep(5 * SECOND - Duration::from_nanos(1));
        synctest::wait();
        assert_eq!((ctx.err(), CALLED.load(Relaxed)), (None, false));
        sleep(Duration::from_nanos(1));
        synctest::wait();
        assert_eq!((ctx.err(), CALLED.load(Relaxed)), (Some(Error::DeadlineExceeded), true));
        let (ctx, cancel) = context::with_timeout(&context::background(), HOUR);
        assert_eq!(ctx.sleep(SECOND), Ok(()));
        go(move || {
            sleep(SECOND);
            cancel.cancel();
        });
        assert_eq!(ctx.sleep(HOUR), Err(Error::Canceled));
        assert_eq!(now() - start, 7 * SECOND);
    });
}

#[test]
fn tasks() {
    synctest::test(|| {
        let start = now();
        let task = spawn_async(async {
            time::sleep_async(HOUR).await;
            now()
        });
        assert_eq!(task.join().unwrap(), start + HOUR);
        sudog::block_on(time::sleep_async(HOUR));
        assert_eq!(now(), start + 2 * HOUR);
    });
}

/// The bubble's only worker waits in place: no goroutine can run meanwhile.
#[test]
fn a_wait_that_does_not_switch() {
    let _watchdog = Watchdog::new();
    synctest::test(|| {
        let start = now();
        assert!(!without_switching(|| Mutex::new(()).try_lock_for(HOUR).is_none()));
        let locked = Mutex::new(());
        let _guard = locked.lock();
        assert!(without_switching(|| locked.try_lock_for(HOUR).is_none()));
        assert_eq!(now() - start, HOUR);
        without_switching(|| sleep(HOUR));
        assert_eq!(now() - start, 2 * HOUR);
    });
}

#[test]
fn a_blocking_call_stops_the_clock() {
    let _watchdog = Watchdog::new();
    static OVER: AtomicBool = AtomicBool::new(false);
    synctest::test(|| {
        go(|| {
            blocking(|| thread::sleep(10 * MS));
            OVER.store(true, Relaxed);
        });
        sleep(HOUR);
        assert!(OVER.load(Relaxed), "an hour has passed first");
        let start = now();
        blocking(|| thread::sleep(MS));
        assert_eq!(now(), start);
    });
}

/// A context is dropped, with its alarm, on another thread.
#[test]
fn an_alarm_is_cancelled_elsewhere() {
    synctest::test(|| {
        let made = context::with_timeout(&context::background(), SECOND);
        blocking(move || drop(made));
        sleep(HOUR);
    });
    // A context that outlives its bubble is cancelled like any other context, and drops its waker.
    let (ctx, cancel) = synctest::test(|| context::with_timeout_cause(&context::background(), HOUR, Noticed));
    assert_eq!((ctx.err(), DROPS.load(SeqCst)), (None, 0));
    cancel.cancel();
    drop((ctx, cancel));
    assert_eq!(DROPS.load(SeqCst), 1, "the alarm keeps it");

    static DROPS: AtomicU32 = AtomicU32::new(0);
    #[derive(Debug)]
    struct Noticed;
    impl std::fmt::Display for Noticed {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.pad("late")
        }
    }
    impl std::error::Error for Noticed {}
    impl Drop for Noticed {
        fn drop(&mut self) {
            DROPS.fetch_add(1, SeqCst);
        }
    }
}

// ---- waiting for the others -----------------------------------------------------------------------------------------

#[test]
fn simple_wait() {
    synctest::test(synctest::wait);
    synctest::test(|| {
        go(|| ());
        synctest::wait();
    });
}

#[test]
fn wait() {
    fn f(values: Chan<u32>, done: Arc<AtomicBool>) {
        let count = values.recv().unwrap();
        if count == 0 {
            done.store(true, Relaxed);
        } else {
            let theirs = (values.clone(), done);
            go(move || f(theirs.0, theirs.1));
            values.send(count - 1);
        }
    }
    for _ in 0..100 {
        synctest::test(|| {
            let (values, done) = (Chan::new(0), Arc::new(AtomicBool::new(false)));
            let theirs = (values.clone(), done.clone());
            go(move || f(theirs.0, theirs.1));
            values.send(100);
            synctest::wait();
            assert!(done.load(Relaxed));
        });
    }
}

#[test]
fn a_wait_comes_before_the_clock() {
    synctest::test(|| {
        let start = now();
        go(|| sleep(MS));
        synctest::wait();
        assert_eq!(now(), start);
        sleep(MS);
    });
}

#[test]
fn cond() {
    synctest::test(|| {
        let pair = Arc::new((Mutex::new(()), Cond::new()));
        let start = now();
        let theirs = pair.clone();
        go(move || {
            for all in [false, true] {
                sleep(MS);
                let _guard = theirs.0.lock();
                if all { theirs.1.broadcast() } else { theirs.1.signal() }
            }
        });
        let mut guard = pair.0.lock();
        pair.1.wait(&mut guard);
        assert_eq!(now() - start, MS);
        drop(guard);
        let group = Arc::new(WaitGroup::new());
        for _ in 0..2 {
            let pair = pair.clone();
            group.go(move || pair.1.wait(&mut pair.0.lock()));
        }
        group.wait();
        assert_eq!(now() - start, 2 * MS);
    });
}

#[test]
fn misuse_of_wait() {
    let outside = catch_unwind(synctest::wait).unwrap_err();
    assert_eq!(text(&*outside), "goroutine is not in a bubble");
    run(|| assert!(catch_unwind(synctest::wait).is_err()));
    synctest::test(|| {
        let second = spawn(|| catch_unwind(synctest::wait).map_err(|payload| text(&*payload).to_owned()));
        synctest::wait();
        assert_eq!(second.join().unwrap(), Err("wait already in progress".to_owned()));
        assert!(without_switching(|| catch_unwind(synctest::wait)).is_err());
        synctest::wait();
    });
}

#[test]
fn a_bubble_in_a_goroutine() {
    synctest::test(|| assert!(catch_unwind(|| synctest::test(|| ())).is_err()));
    run(|| assert!(catch_unwind(|| synctest::test(|| ())).is_err()));
}

// ---- the end --------------------------------------------------------------------------------------------------------

#[test]
fn run_empty() {
    assert_eq!(synctest::test(|| 42), 42);
}

#[test]
fn test_waits_for_all() {
    static ENDED: AtomicBool = AtomicBool::new(false);
    synctest::test(|| {
        go(|| {
            (0..100).for_each(|_| gosched());
            ENDED.store(true, Relaxed);
        });
    });
    assert!(ENDED.load(Relaxed));
}

#[test]
fn deadlock_root() {
    let text = panics("deadlock: all goroutines in bubble are blocked", for_ever);
    assert!(text.contains("\"main\""), "{text}");
}

#[test]
fn deadlock_child() {
    let text = panics("deadlock: main bubble goroutine has exited but blocked goroutines remain", || {
        Builder::new().name("forgotten").go(for_ever);
        Builder::new().name("late").go(|| sleep(SECOND));
        go_async(std::future::pending());
    });
    assert!(text.contains("\"forgotten\" [waiting"), "{text}");
    assert!(text.contains("\"late\" [sleep"), "time stands still after main: {text}");
    assert!(text.contains("1 async task"), "{text}");
    assert_eq!(text.matches("started as goroutine::synctest::").count(), 2, "{text}");
    // The text has the places of the two calls if switches are observed.
    assert_eq!(text.lines().count(), if cfg!(debug_assertions) { 9 } else { 7 }, "{text}");
}

#[test]
fn deadlock_ticker() {
    panics("deadlock: main bubble goroutine has exited but blocked goroutines remain", || {
        go(|| {
            time::tick(SECOND).recv();
            unreachable!();
        });
    });
}

#[test]
fn a_panic_of_main_goes_first() {
    panics("of main", || {
        go(for_ever);
        panic!("of main");
    });
    assert!(!now().elapsed().is_zero() || now() <= Instant::now(), "the thread has left the bubble");
    panics("synctest: the main goroutine of the bubble called goexit", || goexit());
}
