//! Sleeps, timers and tickers, of threads, goroutines and tasks.
#![cfg(all(unix, not(sudog_loom)))]

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use sudog::chan::{Chan, Select, select, select_async};
use sudog::low_level::sema::{self, semacquire, semrelease};
use sudog::runtime::{gosched, num_goroutine, set_max_procs};
use sudog::sync::Mutex;
use sudog::time::{SleepAsync, Ticker, Timer, after, after_func, sleep, sleep_async};
use sudog::{
    Builder, Cancel, Placement, WaitError, WaitLimit, block_on, context, go, go_async, run, spawn, spawn_async,
};
use support::goroutine::{Dropped, alone, one_worker, text, until};
use support::{Watchdog, eventually};

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

/// Asserts that `f` takes no less than `d`. There is no upper bound.
#[track_caller]
fn takes<T>(d: Duration, f: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let result = f();
    assert!(begun.elapsed() >= d, "{:?}", begun.elapsed());
    result
}

/// A waker that waits until a goroutine has answered.
struct WaitsFor(Chan<()>);

impl Wake for WaitsFor {
    fn wake(self: Arc<Self>) {
        self.0.recv();
    }
}

/// A task's waker may wait for a goroutine at the same timer: goroutines are woken before the wakers are called.
#[test]
fn a_reset_wakes_goroutines_before_it_calls_wakers() {
    let (_alone, _watchdog) = (alone(), Watchdog::new());
    one_worker(|| {
        let (timer, answers) = (Arc::new(Timer::new(HOUR)), Chan::new(1));
        let (of_goroutine, answer) = (timer.clone(), answers.clone());
        let goroutine = spawn(move || {
            of_goroutine.recv();
            answer.send(());
        });
        sudog::synctest::wait(); // until the goroutine waits
        let mut receive = Box::pin(timer.recv_async());
        let waker = Waker::from(Arc::new(WaitsFor(answers)));
        assert!(receive.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        timer.reset(Duration::ZERO);
        goroutine.join().unwrap();
    });
}

// ---- sleep ----------------------------------------------------------------------------------------------------------

#[test]
fn a_sleep_is_never_short() {
    let _alone = alone();
    takes(MS, || sleep(MS)); // sleeps on a thread
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
    // Drop a sleep before it fires, and a sleep that is never polled.
    drop(sleep_async(HOUR));
    let mut never = Box::pin(sleep_async(HOUR));
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(std::future::Future::poll(never.as_mut(), &mut cx).is_pending());
    assert!(std::future::Future::poll(Box::pin(sleep_async(Duration::MAX)).as_mut(), &mut cx).is_pending());
}

// ---- Timer ----------------------------------------------------------------------------------------------------------

/// The ways to receive from a timer: each must do the same.
const WAYS: [fn(&Timer) -> Instant; 7] = [
    |timer| timer.recv(),
    |timer| block_on(timer.recv_async()),
    |timer| select! { recv(timer) -> at => at },
    |timer| select! { recv(Chan::<()>::nil()) => unreachable!(), recv(*timer) -> at => at },
    |timer| select! { recv(Some(timer)) -> at => at, recv(None::<Ticker>) => unreachable!() },
    |timer| {
        block_on(async {
            select_async! { recv(Chan::<()>::nil()) => unreachable!(), recv(timer) -> at => at }
        })
    },
    |timer| {
        let mut select = Select::new();
        select.future(timer.recv_async(), |at| at);
        select.wait()
    },
];

fn has_fired(timer: &Timer) -> bool {
    select! { recv(timer) => true, default => false }
}

#[test]
fn a_timer_fires_once() {
    let _alone = alone();
    let fires = || {
        for way in WAYS {
            let begun = Instant::now();
            let timer = Timer::new(MS);
            let at = way(&timer);
            assert!(at >= begun + MS && at <= Instant::now());
            assert!(!has_fired(&timer), "its time has been received");
            assert!(!timer.stop());
            assert!(select! { recv(timer) => false, default(MS) => true });
            assert!(!timer.reset(Duration::ZERO));
            way(&timer);
            takes(MS, || way(&after(MS)));
        }
    };
    fires();
    run(fires);
}

/// Of several receives a single receive gets the time, in whatever forms they wait, and even if that receive looks last.
#[test]
fn a_timer_fires_for_one_of_many() {
    let alone = alone();
    run(|| {
        let timer = Arc::new(Timer::new(2 * MS));
        let received = Arc::new(AtomicUsize::new(0));
        let n = 3 * WAYS.len();
        for way in WAYS.into_iter().cycle().take(n) {
            let (timer, received) = (timer.clone(), received.clone());
            go(move || {
                way(&timer);
                received.fetch_add(1, Relaxed);
            });
        }
        for round in 1..=n {
            until(|| received.load(Relaxed) == round);
            sleep(MS);
            assert_eq!(received.load(Relaxed), round);
            assert!(!timer.reset(MS), "a receive has got its time");
            alone.watchdog.pat();
        }
        assert!(timer.stop(), "no receive is left");
    });
}

/// Go 1.23: a receive that begins after a stop or a reset gets no earlier time, although the timer had fired. The
/// results of the stop and the reset say that no receive got that time.
#[test]
fn nothing_stale_is_received() {
    let _alone = alone();
    let check = || {
        let timer = Timer::new(Duration::ZERO);
        thread::sleep(MS);
        assert!(timer.stop());
        assert!(!has_fired(&timer) && !timer.stop());
        assert!(!timer.reset(Duration::ZERO));
        thread::sleep(MS);
        assert!(timer.reset(HOUR));
        assert!(!has_fired(&timer));
        let begun = Instant::now();
        assert!(timer.reset(Duration::ZERO));
        assert!(timer.recv() >= begun);
        assert!(!timer.reset(HOUR));
        assert!(timer.stop());

        let ticker = Ticker::new(Duration::from_nanos(1));
        thread::sleep(MS);
        ticker.stop();
        assert!(select! { recv(ticker) => false, default => true });
        ticker.reset(HOUR);
        assert!(select! { recv(ticker) => false, default => true });
    };
    check();
    run(check);
}

/// Waits of each kind see a reset to an earlier or a later time, and a stop.
#[test]
fn a_timer_that_is_set_anew_while_receives_wait() {
    let alone = alone();
    run(|| {
        for way in WAYS {
            let timer = Arc::new(Timer::new(HOUR));
            let (waits, begun) = (timer.clone(), Instant::now());
            let wait = spawn(move || way(&waits));
            for _ in 0..20 {
                gosched(); // the receive waits by now, as a rule
            }
            assert!(timer.reset(MS));
            assert!(wait.join().unwrap() < begun + HOUR);

            timer.reset(3 * MS);
            let waits = timer.clone();
            let wait = spawn(move || way(&waits));
            gosched();
            let (begun, later) = (Instant::now(), 8 * MS);
            if timer.reset(later) {
                assert!(wait.join().unwrap() >= begun + later);
            }

            timer.reset(2 * MS);
            let waits = timer.clone();
            let mut wait = spawn(move || way(&waits));
            gosched();
            if timer.stop() {
                assert!(matches!(
                    wait.join_limited(&WaitLimit::until(Instant::now() + 4 * MS)),
                    Err(WaitError::TimedOut)
                ));
                assert!(!timer.reset(MS));
            }
            wait.join().unwrap();
            alone.watchdog.pat();
        }
        assert!(Timer::new(Duration::MAX).stop());
        let never = Timer::new(MS);
        assert!(never.reset(Duration::MAX) && never.stop());
    });
}

/// Stops that race with the firing: `stop` and the receives agree on which was first.
#[test]
fn a_timer_is_either_stopped_or_fires() {
    let alone = alone();
    run(|| {
        let mut stopped = 0;
        for round in 0..1000 {
            let timer = Arc::new(Timer::new(Duration::from_micros(30)));
            let over = Chan::<()>::new(0);
            let waits: Vec<_> = (0..2)
                .map(|_| {
                    let (timer, over) = (timer.clone(), over.clone());
                    spawn(move || select! { recv(*timer) => true, recv(over) => false })
                })
                .collect();
            sleep(Duration::from_micros(20 + round % 20));
            let was_set = timer.stop();
            let looked = has_fired(&timer);
            over.close();
            let fired = waits.into_iter().filter_map(|wait| wait.join().ok()).filter(|&fired| fired).count();
            assert_eq!((fired, looked), (usize::from(!was_set), false));
            stopped += u32::from(was_set);
            if round % 100 == 0 {
                alone.watchdog.pat();
            }
        }
        println!("{stopped} of 1000 were stopped");
    });
}

/// A future that is dropped has received nothing, and the timer does not wake its task.
#[test]
fn a_timer_s_future_that_is_dropped() {
    struct Counts(AtomicUsize);
    impl Wake for Counts {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }
    let _alone = alone();
    let wakes = Arc::new(Counts(AtomicUsize::new(0)));
    let waker = Waker::from(wakes.clone());
    let mut cx = Context::from_waker(&waker);
    let timer = Timer::new(HOUR);
    let mut early = Box::pin(timer.recv_async());
    assert!(early.as_mut().poll(&mut cx).is_pending());
    drop(early);
    assert_eq!(Arc::strong_count(&wakes), 2, "its waker is nowhere");
    timer.reset(2 * MS);
    timer.recv();
    assert_eq!(wakes.0.load(Relaxed), 0);
    timer.reset(50 * MS); // not over before the poll

    let mut woken = Box::pin(timer.recv_async());
    assert!(woken.as_mut().poll(&mut cx).is_pending());
    eventually(|| wakes.0.load(Relaxed) == 1);
    drop(woken);
    assert!(has_fired(&timer), "the time is another's");
    assert_eq!(Arc::strong_count(&wakes), 2);
}

/// All wakers are woken, and the goroutines, too, even if a waker panics.
#[test]
fn a_waker_that_panics_keeps_no_other_from_being_woken() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("by intention");
        }
    }
    let _alone = alone();
    run(|| {
        let timer = Arc::new(Timer::new(HOUR));
        let waker = Waker::from(Arc::new(Panics));
        let mut first = Box::pin(timer.recv_async());
        assert!(first.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        let waits = [WAYS[0], WAYS[1]].map(|way| {
            let timer = timer.clone();
            spawn(move || way(&timer))
        });
        for _ in 0..20 {
            gosched();
        }
        assert!(std::panic::catch_unwind(|| timer.reset(Duration::ZERO)).is_err());
        let received = || waits.iter().filter(|wait| wait.is_finished()).count();
        until(|| received() == 1);
        timer.reset(Duration::ZERO);
        until(|| received() == 2);
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
        semrelease(&DONE, sema::Wake::Normal);
    };
    takes(MS, || {
        let _timer = after_func(MS, calls);
        semacquire(&DONE); // waits on a thread
    });
    run(|| {
        drop(after_func(MS, calls)); // the call does not need the timer
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

/// A stopped call has been dropped without being called when `stop` returns.
#[test]
fn after_func_drops_what_it_does_not_call() {
    static DROPS: AtomicUsize = AtomicUsize::new(0);
    let _alone = alone();
    for d in [HOUR, Duration::MAX] {
        let before = DROPS.load(Relaxed);
        let dropped = Dropped(&DROPS);
        let timer = after_func(d, move || drop(dropped));
        assert_eq!(DROPS.load(Relaxed), before);
        assert!(timer.stop() && !timer.stop());
        assert_eq!(DROPS.load(Relaxed), before + 1);
    }
}

/// Until its time a delayed call is no goroutine.
#[test]
fn a_call_to_come_is_no_goroutine() {
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    let _watchdog = Watchdog::new();
    one_worker(|| {
        for n in 0..100 {
            after_func(Duration::from_micros(n % 2 * 2000), || _ = CALLS.fetch_add(1, Relaxed));
        }
        let far = after_func(HOUR, || unreachable!());
        until(|| CALLS.load(Relaxed) >= 50 && num_goroutine() == 1);
        assert!(far.stop());
        sleep(3 * MS);
        assert_eq!(CALLS.load(Relaxed), 100);
    });
}

/// The captures of a delayed call are not copied to the small stack of the call's goroutine.
#[test]
fn a_call_with_a_large_capture() {
    #[inline(never)]
    fn call_after(d: Duration) {
        let (large, done) = (std::hint::black_box([1_u8; 1 << 20]), Chan::new(1));
        let theirs = done.clone();
        after_func(d, move || theirs.send(std::hint::black_box(&large).iter().map(|&n| usize::from(n)).sum::<usize>()));
        assert_eq!(done.recv(), Some(1 << 20));
    }
    let _alone = alone();
    run(|| {
        call_after(Duration::ZERO);
        call_after(MS);
    });
}

// ---- Ticker ---------------------------------------------------------------------------------------------------------

#[test]
fn a_ticker_ticks() {
    let _alone = alone();
    let ticks = || {
        let mut ticker = None;
        takes(5 * MS, || {
            let ticker = ticker.insert(Ticker::new(MS));
            let times: Vec<_> = (0..5).map(|_| ticker.recv()).collect();
            assert!(times.windows(2).all(|pair| pair[1] - pair[0] >= MS));
        });
        let ticker = ticker.unwrap();
        ticker.stop();
        assert!(select! { recv(ticker) => false, default(3 * MS) => true });
        takes(4 * MS, || {
            ticker.reset(2 * MS);
            ticker.recv();
            select! { recv(ticker) => {}, recv(after(HOUR)) => unreachable!() }
        });
        takes(2 * MS, || {
            ticker.reset(2 * MS); // otherwise a tick may have been due while this thread did not run
            block_on(ticker.recv_async());
        });
        assert_eq!(
            block_on(async {
                select_async! { recv(ticker) => 1, recv(after(HOUR)) => 2 }
            }),
            1
        );
    };
    ticks();
    run(ticks);
}

#[test]
fn ticks_without_a_receiver_are_dropped() {
    let _alone = alone();
    run(|| {
        let begun = Instant::now();
        let ticker = Ticker::new(3 * MS);
        sleep(20 * MS);
        assert!(ticker.recv() < begun + 5 * MS, "the first is there");
        // If all missed ticks were kept, this would take no time. The next tick may be due at once.
        takes(3 * MS, || (0..3).for_each(|_| _ = ticker.recv()));
    });
}

/// Receivers of all kinds: each tick goes to a single receiver, and each receiver gets some ticks.
#[test]
fn a_ticker_for_several() {
    let _alone = alone();
    run(|| {
        let ticker = Arc::new(Ticker::new(Duration::from_micros(200)));
        let ticks: Arc<[AtomicUsize; 6]> = Arc::default();
        let over = Chan::<()>::new(0);
        let waits: Vec<_> = (0..6)
            .map(|n| {
                let (ticker, ticks, over) = (ticker.clone(), ticks.clone(), over.clone());
                let last = Mutex::new(None);
                let tick = move |at: Instant| {
                    assert!(last.lock().replace(at).is_none_or(|last| last < at), "no tick twice");
                    ticks[n].fetch_add(1, Relaxed);
                };
                match n % 3 {
                    0 => spawn(
                        move || {
                            while select! { recv(*ticker) -> at => { tick(at); true }, recv(over) => false } {}
                        },
                    ),
                    1 => spawn_async(async move {
                        while select_async! { recv(*ticker) -> at => { tick(at); true }, recv(over) => false } {}
                    }),
                    _ => spawn(move || {
                        while select! { recv(over) => false, default => true } {
                            tick(ticker.recv());
                        }
                    }),
                }
            })
            .collect();
        until(|| ticks.iter().all(|ticks| ticks.load(Relaxed) >= 3));
        over.close();
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

/// Returns the last possible `Instant`.
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

/// Checks that an alarm at the end of time does not delay two other alarms. The waker of the first of these waits, and
/// the second ends that wait.
#[test]
fn an_alarm_at_the_end_of_time() {
    /// A waker that runs a closure.
    struct Runs<F>(F);

    impl<F: Fn() + Send + Sync + 'static> Wake for Runs<F> {
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
    thread::sleep(10 * MS); // the watcher sleeps by now, as a rule
    let _first = set(MS, || {
        semacquire(&NEXT);
        semrelease(&DONE, sema::Wake::Normal);
    });
    let _second = set(2 * MS, || semrelease(&NEXT, sema::Wake::Normal));
    semacquire(&DONE);
}

// ---- limits ---------------------------------------------------------------------------------------------------------

/// A wait that gives up takes nothing: the timer and the handle are unchanged.
#[test]
fn waits_that_give_up() {
    let _watchdog = Watchdog::new();
    let test = || {
        let stop = Arc::new(Cancel::new());
        let timer = Arc::new(Timer::new(HOUR));
        let mut sleeper = spawn({
            let timer = timer.clone();
            move || timer.recv()
        });
        let soon = || WaitLimit::until(Instant::now() + MS);
        takes(
            MS,
            || select! { recv(*timer) => unreachable!(), default(soon()) -> why => assert_eq!(why, WaitError::TimedOut) },
        );
        takes(MS, || assert!(matches!(sleeper.join_limited(&soon()), Err(WaitError::TimedOut))));
        let cancelled = WaitLimit { cancel: Some(&stop), ..WaitLimit::default() };
        go({
            let stop = stop.clone();
            move || stop.cancel()
        });
        select! { recv(*timer) => unreachable!(), default(&cancelled) -> why => assert_eq!(why, WaitError::Cancelled) }
        assert!(matches!(sleeper.join_limited(&cancelled), Err(WaitError::Cancelled)));
        // A time or a result that is already there is taken, whatever the limit.
        assert!(timer.reset(Duration::ZERO));
        until(|| sleeper.is_finished());
        sleeper.join().unwrap();
        timer.reset(Duration::ZERO);
        select! { recv(*timer) => {}, default(&cancelled) => unreachable!() }
        let mut ended = spawn(|| 7);
        until(|| ended.is_finished());
        assert_eq!(ended.join_limited(&WaitLimit::until(Instant::now())).unwrap().unwrap(), 7);
    };
    run(test);
    test();
}

/// Each worker has alarms of its own. An alarm that is due before all others goes off, whichever worker has set it. An
/// alarm that another worker cancels is gone.
#[test]
fn alarms_of_all_workers() {
    let _alone = alone();
    let _watchdog = Watchdog::new();
    let before = set_max_procs(3);
    run(|| {
        const HOUR: Duration = Duration::from_secs(3600);
        // The thread that wakes sleepers sleeps until this alarm.
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
