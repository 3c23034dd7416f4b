//! Tests of contexts beyond Go's: deadlines of waiters, tasks, sets of goroutines, storms, and user code without
//! restrictions. Go's tests are in `go::context`.
#![cfg(all(unix, not(sudog_loom)))]

use std::error;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use sudog::chan::{Chan, TryRecvError};
use sudog::context::{
    AfterFunc, CancelFunc, Cause, Context, Error, Key, after_func, background, with_cancel, with_cancel_cause,
    with_timeout, with_value,
};
use sudog::low_level::sema::{Order, Wake as Handoff, semacquire_limited, semrelease, waiters};
use sudog::runtime::gosched;
use sudog::sync::WaitGroup;
use sudog::{WaitLimit, go, run, spawn_async};
use support::goroutine::one_worker;
use support::kinds::Kind;
use support::{Calls, Watchdog, eventually};

support::over_threads_and_goroutines! {
    all_waiters_are_told waits_with_a_deadline a_done_caller_takes_nothing a_wait_that_is_cancelled_loses_no_permit sleeping
    the_cancel_that_comes_second_finds_all_done a_storm_of_followers a_storm_on_one_parent
    the_deadline_against_the_cancel
}

const SHORT: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(1000 * 3600);

fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut std::task::Context::from_waker(Waker::noop()))
}

fn says(cause: Option<Cause>) -> String {
    cause.map_or_else(|| "none".to_owned(), |cause| cause.to_string())
}

// ---- waiting ---------------------------------------------------------------------------------------------

fn all_waiters_are_told<K: Kind>() {
    for deadline in [None, Some(Duration::from_millis(20))] {
        let (ctx, cancel) = match deadline {
            None => with_cancel(&background()),
            Some(d) => with_timeout(&background(), d),
        };
        let (waiting, told) = (Arc::new(AtomicUsize::new(0)), Arc::new(WaitGroup::new()));
        for _ in 0..K::MANY {
            told.add(1);
            let (ctx, waiting, told) = (with_cancel(&ctx).0, waiting.clone(), told.clone());
            K::go(move || {
                waiting.fetch_add(1, SeqCst);
                assert_eq!(Some(ctx.wait()), ctx.err());
                told.done();
            });
        }
        K::until(|| waiting.load(SeqCst) == K::MANY);
        if deadline.is_none() {
            cancel.cancel();
        }
        told.wait();
    }
}

fn waits_with_a_deadline<K: Kind>() {
    let soon = || Instant::now() + SHORT;
    assert!(!background().wait_until(soon()));
    let (ctx, cancel) = with_cancel(&background());
    assert!(!ctx.wait_until(soon()));
    let (timed, _cancel) = with_timeout(&ctx, LONG);
    assert!(!timed.wait_until(soon()));
    let (sooner, _cancel) = with_timeout(&ctx, SHORT);
    assert!(sooner.wait_until(Instant::now() + LONG));
    K::go(move || cancel.cancel());
    assert!(timed.wait_until(Instant::now() + LONG));
    assert_eq!(timed.err(), Some(Error::Canceled));
    assert!(timed.wait_until(Instant::now() - SHORT), "done, however late it is");
    // A deadline beyond the end of time is no deadline.
    let (ctx, _cancel) = with_timeout(&background(), Duration::MAX);
    assert_eq!(ctx.deadline(), None);
    assert!(!ctx.wait_until(soon()));
}

/// Checks that a caller whose context is done takes no permit, even if a permit is there, and that a caller whose
/// context is not done takes the permit.
fn a_done_caller_takes_nothing<K: Kind>() {
    let permits = AtomicU32::new(2);
    let (ctx, cancel) = with_cancel(&background());
    let acquire = || ctx.limited(|limit| semacquire_limited(&permits, Order::Fifo, limit));
    assert_eq!(acquire(), Ok(()));
    cancel.cancel();
    assert_eq!(acquire(), Err(Error::Canceled));
    assert_eq!(permits.load(SeqCst), 1);
    assert_eq!(ctx.limited(|_| Ok(())), Err(Error::Canceled), "whatever the wait is");
    // A wait that ends by another limit does not mean that this context is done.
    let (ctx, _cancel) = with_timeout(&background(), LONG);
    let other = ctx.limited(|_| semacquire_limited(&AtomicU32::new(0), Order::Fifo, &WaitLimit::until(Instant::now())));
    assert_eq!((other, ctx.err()), (Err(Error::DeadlineExceeded), None));
}

/// Cancels waiters, or lets them time out, while permits are released: each permit is taken or still there.
fn a_wait_that_is_cancelled_loses_no_permit<K: Kind>() {
    for round in 0..30 {
        let permits = Arc::new(AtomicU32::new(0));
        let (taken, ended) = (Arc::new(AtomicUsize::new(0)), Arc::new(WaitGroup::new()));
        let (ctx, cancel) = if round % 2 == 0 {
            with_cancel(&background())
        } else {
            with_timeout(&background(), Duration::from_micros(200))
        };
        const WAITERS: usize = 8;
        for _ in 0..WAITERS {
            ended.add(1);
            let (ctx, permits, taken, ended) = (ctx.clone(), permits.clone(), taken.clone(), ended.clone());
            K::go(move || {
                match ctx.limited(|limit| semacquire_limited(&permits, Order::Fifo, limit)) {
                    Ok(()) => _ = taken.fetch_add(1, SeqCst),
                    Err(error) => assert_eq!(Some(error), ctx.err()),
                }
                ended.done();
            });
        }
        let releaser = permits.clone();
        ended.add(1);
        let done = ended.clone();
        K::go(move || {
            for _ in 0..WAITERS / 2 {
                semrelease(&releaser, Handoff::Handoff);
            }
            done.done();
        });
        if round % 2 == 0 {
            K::gosched();
            cancel.cancel();
        }
        ended.wait();
        assert_eq!(taken.load(SeqCst) + permits.load(SeqCst) as usize, WAITERS / 2);
        assert_eq!(waiters(&permits), 0);
    }
}

fn sleeping<K: Kind>() {
    let (ctx, cancel) = with_cancel(&background());
    let begun = Instant::now();
    for d in [Duration::ZERO, Duration::from_nanos(1), SHORT] {
        assert_eq!(ctx.sleep(d), Ok(()));
        assert_eq!(background().sleep(d), Ok(()));
    }
    assert!(begun.elapsed() >= 2 * SHORT);
    let (timed, _cancel) = with_timeout(&ctx, SHORT);
    assert_eq!(timed.sleep(LONG), Err(Error::DeadlineExceeded));
    assert_eq!(timed.sleep(Duration::ZERO), Err(Error::DeadlineExceeded));
    let (timed, _cancel) = with_timeout(&ctx, LONG);
    assert_eq!(timed.sleep(SHORT), Ok(()));
    K::go(move || cancel.cancel());
    assert_eq!(timed.sleep(Duration::MAX), Err(Error::Canceled));
    assert_eq!(ctx.sleep(LONG), Err(Error::Canceled));
}

// ---- storms ----------------------------------------------------------------------------------------------

/// Cancels a tree at several heights at a time: each cancel finds all contexts beneath done when it returns.
fn the_cancel_that_comes_second_finds_all_done<K: Kind>() {
    for _ in 0..20 {
        let (root, cancel) = with_cancel(&background());
        let (middle, cancel_middle) = with_cancel(&root);
        let mut leaves = vec![middle.clone()];
        for i in 0..2000 {
            leaves.push(with_cancel(&leaves[i / 2]).0);
        }
        let leaves = Arc::new(leaves);
        let group = Arc::new(WaitGroup::new());
        for i in 0..4 {
            group.add(1);
            let (cancel, leaves, group) = ([&cancel, &cancel_middle][i % 2].clone(), leaves.clone(), group.clone());
            K::go(move || {
                cancel.cancel();
                assert!(leaves.iter().all(|leaf| leaf.err().is_some()));
                group.done();
            });
        }
        group.wait();
        assert!(root.err().is_some());
    }
}

/// Adds and drops functions and futures while the context ends: each function is either called or stopped.
fn a_storm_of_followers<K: Kind>() {
    const EACH: usize = 50;
    for round in 0..20 {
        let (ctx, cancel) = with_cancel(&background());
        let (calls, stops) = (Calls::default(), Arc::new(AtomicUsize::new(0)));
        let group = Arc::new(WaitGroup::new());
        for n in 0..4 {
            group.add(1);
            let (ctx, calls, stops, group) = (ctx.clone(), calls.clone(), stops.clone(), group.clone());
            K::go(move || {
                let mut kept = Vec::new();
                for i in 0..EACH {
                    // Follow the context itself, or a child that is dropped at once; some children have a deadline.
                    let on = match i % 3 {
                        0 => ctx.clone(),
                        1 => with_cancel(&ctx).0,
                        _ => with_timeout(&ctx, Duration::from_micros(50)).0,
                    };
                    kept.push(after_func(&on, calls.call()));
                    let mut future = pin!(on.done());
                    let _ = poll(future.as_mut());
                    if i % 4 == n {
                        K::gosched();
                    }
                }
                stops.fetch_add(kept.iter().filter(|stop| stop.stop()).count(), SeqCst);
                group.done();
            });
        }
        if round % 2 == 0 {
            K::gosched();
        }
        cancel.cancel();
        group.wait();
        K::until(|| calls.get() + stops.load(SeqCst) == 4 * EACH);
    }
}

/// Makes, cancels and drops children of one parent while the parent ends.
fn a_storm_on_one_parent<K: Kind>() {
    for round in 0..10 {
        let (parent, cancel) = with_cancel_cause(&background());
        let group = Arc::new(WaitGroup::new());
        for n in 0..4 {
            group.add(1);
            let (parent, group) = (parent.clone(), group.clone());
            K::go(move || {
                let mut kept = Vec::new();
                for i in 0..200 {
                    let (child, cancel) = with_cancel_cause(&parent);
                    match (i + n) % 4 {
                        0 => drop(child),
                        1 => {
                            cancel.cancel("mine");
                            let cause = says(child.cause());
                            assert!(cause == "mine" || cause == "parent's", "{cause}");
                        }
                        _ => kept.push((child, cancel)),
                    }
                    if i % 50 == 0 {
                        K::gosched();
                    }
                }
                for (child, _) in &kept {
                    assert_eq!(child.wait(), Error::Canceled);
                    assert_eq!(says(child.cause()), "parent's");
                }
                group.done();
            });
        }
        for _ in 0..round {
            K::gosched();
        }
        cancel.cancel("parent's");
        group.wait();
    }
}

/// Lets the clock, a cancel, waiters with a deadline, and a drop compete: there is one outcome, that of the first.
fn the_deadline_against_the_cancel<K: Kind>() {
    for round in 0..100 {
        let d = Duration::from_micros(round % 10 * 20);
        let (ctx, cancel) = with_timeout(&background(), d);
        let (child, _cancel) = with_timeout(&ctx, LONG);
        let group = Arc::new(WaitGroup::new());
        let seen = Arc::new(Mutex::new(Vec::new()));
        for ctx in [ctx.clone(), child] {
            group.add(1);
            let (seen, group) = (seen.clone(), group.clone());
            K::go(move || {
                let error = ctx.wait();
                seen.lock().unwrap().push(error);
                group.done();
            });
        }
        group.add(1);
        let done = group.clone();
        K::go(move || {
            for _ in 0..round / 10 {
                K::gosched();
            }
            drop(cancel.on_drop());
            done.done();
        });
        group.wait();
        let outcome = ctx.err().unwrap();
        assert_eq!(*seen.lock().unwrap(), [outcome; 2]);
    }
}

// ---- tasks -----------------------------------------------------------------------------------------------

#[test]
fn tasks_wait() {
    let _watchdog = Watchdog::new();
    run(|| {
        let (ctx, cancel) = with_cancel(&background());
        let (timed, _cancel) = with_timeout(&ctx, SHORT);
        let tasks: Vec<_> = (0..100).map(|_| spawn_async(ctx.done())).collect();
        assert_eq!(spawn_async(timed.done()).join().unwrap(), Error::DeadlineExceeded);
        assert!(!tasks.iter().any(|task| task.is_finished()));
        cancel.cancel();
        for task in tasks {
            assert_eq!(task.join().unwrap(), Error::Canceled);
        }
    });
}

/// A waker that counts its wake-ups, and runs a function at each.
struct Say<F>(Arc<AtomicUsize>, F);

impl<F: Fn() + Send + Sync> Wake for Say<F> {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
        (self.1)();
    }
}

fn say<F: Fn() + Send + Sync + 'static>(count: &Arc<AtomicUsize>, f: F) -> Waker {
    Waker::from(Arc::new(Say(count.clone(), f)))
}

#[test]
fn a_future_wakes_the_waker_of_its_last_poll() {
    let (ctx, cancel) = with_cancel(&background());
    let counts = [const { AtomicUsize::new(0) }; 2].map(Arc::new);
    let wakers = counts.each_ref().map(|count| say(count, || ()));
    let mut future = ctx.done();
    let dropped = ctx.done();
    let mut dropped = Box::pin(dropped);
    for waker in &wakers {
        let mut cx = std::task::Context::from_waker(waker);
        assert!(Pin::new(&mut future).poll(&mut cx).is_pending());
        assert!(dropped.as_mut().poll(&mut cx).is_pending());
    }
    drop(dropped);
    cancel.cancel();
    assert_eq!(counts.each_ref().map(|count| count.load(SeqCst)), [0, 1]);
    assert_eq!(poll(pin!(future)), Poll::Ready(Error::Canceled));
}

// ---- user code -------------------------------------------------------------------------------------------

/// Lets a waker wait for a goroutine that waits for a descendant context: the descendant is done before any waker is
/// called.
#[test]
fn a_waker_may_wait_for_a_follower_that_is_told() {
    let _watchdog = Watchdog::new();
    one_worker(|| {
        let (ctx, cancel) = with_cancel(&background());
        let (child, _cancel) = with_cancel(&ctx);
        let (waits, told) = (Arc::new(AtomicBool::new(false)), Arc::new(WaitGroup::new()));
        told.add(1);
        let (is_waiting, is_told) = (waits.clone(), told.clone());
        go(move || {
            is_waiting.store(true, SeqCst);
            child.wait();
            is_told.done();
        });
        while !waits.load(SeqCst) {
            gosched(); // there is a single worker, so the goroutine runs until the wait
        }
        let waker = say(&Arc::default(), move || told.wait());
        let mut future = pin!(ctx.done());
        assert!(future.as_mut().poll(&mut std::task::Context::from_waker(&waker)).is_pending());
        cancel.cancel();
        assert!(poll(future).is_ready());
    });
}

/// Checks that every waker, waiter and function is told, although wakers panic.
#[test]
fn a_panicking_waker_keeps_no_follower_from_being_told() {
    let _watchdog = Watchdog::new();
    let (ctx, cancel) = with_cancel(&background());
    let (child, _cancel) = with_cancel(&ctx);
    let (woken, calls) = (Arc::new(AtomicUsize::new(0)), Calls::default());
    let mut futures = Vec::new();
    for (n, ctx) in [&ctx, &child, &ctx, &child].into_iter().enumerate() {
        let waker = say(&woken, move || panic_any(n));
        let mut future = Box::pin(ctx.done());
        assert!(future.as_mut().poll(&mut std::task::Context::from_waker(&waker)).is_pending());
        futures.push(future);
        after_func(ctx, calls.call());
    }
    let waiter = thread::spawn({
        let child = child.clone();
        move || child.wait()
    });
    let payload = catch_unwind(AssertUnwindSafe(|| cancel.cancel())).expect_err("the first panic");
    assert_eq!(payload.downcast_ref(), Some(&0_usize));
    assert_eq!(woken.load(SeqCst), 4);
    assert_eq!(waiter.join().unwrap(), Error::Canceled);
    eventually(|| calls.get() == 4);
    assert!(futures.into_iter().all(|future| poll(pin!(future)).is_ready()));
    cancel.cancel(); // no more
    // During an unwinding the panic of a waker would be a second panic, so the cancel does not pass that panic on.
    let (ctx, cancel) = with_cancel(&background());
    let mut future = pin!(ctx.done());
    let waker = say(&woken, || panic!("a waker, by intent"));
    assert!(future.as_mut().poll(&mut std::task::Context::from_waker(&waker)).is_pending());
    let payload = catch_unwind(AssertUnwindSafe(|| {
        let _cancel = cancel.on_drop();
        panic_any("first");
    }));
    assert_eq!(payload.unwrap_err().downcast_ref(), Some(&"first"));
    assert_eq!((woken.load(SeqCst), ctx.err()), (5, Some(Error::Canceled)));
}

/// Lets a waker panic on the watcher's thread.
#[test]
fn a_waker_that_panics_by_the_clock() {
    let _watchdog = Watchdog::new();
    let woken = Arc::new(AtomicUsize::new(0));
    let wakers = [say(&woken, || panic!("a waker, by intent")), say(&woken, || ())];
    // Try again with more time, until both futures are listed before the deadline. A listed waiter is told.
    let mut expected = 0;
    for n in 0.. {
        let (ctx, _cancel) = with_timeout(&background(), SHORT * 2_u32.pow(n));
        let mut futures = [ctx.done(), ctx.done()];
        let polls = futures
            .iter_mut()
            .zip(&wakers)
            .map(|(future, waker)| Pin::new(future).poll(&mut std::task::Context::from_waker(waker)));
        let listed = polls.filter(Poll::is_pending).count();
        expected += listed;
        eventually(|| woken.load(SeqCst) == expected);
        assert!(futures.iter_mut().all(|future| poll(Pin::new(future)).is_ready()));
        if listed == futures.len() {
            break;
        }
    }
    let (ctx, _cancel) = with_timeout(&background(), SHORT);
    eventually(|| ctx.err().is_some()); // the watcher is alive
}

/// Checks that no lock is held while a waker or a destructor runs, whatever that code does with contexts.
#[test]
fn user_code_may_use_the_context_that_ends() {
    let _watchdog = Watchdog::new();
    #[derive(Debug)]
    struct Busy(Context, CancelFunc);
    impl Busy {
        fn work(&self) {
            self.1.cancel();
            let (child, _cancel) = with_timeout(&self.0, LONG);
            assert_eq!(child.err(), self.0.err());
            after_func(&self.0, || ()).stop();
            _ = self.0.to_string();
        }
    }
    impl Drop for Busy {
        fn drop(&mut self) {
            self.work();
        }
    }
    impl std::fmt::Display for Busy {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.pad("busy")
        }
    }
    impl error::Error for Busy {}
    static KEY: Key<Busy> = Key::new("key");

    let (root, cancel_root) = with_cancel(&background());
    let (ctx, cancel) = with_cancel_cause(&root);
    let busy = || Busy(root.clone(), cancel_root.clone());
    let (from_waker, from_call) = (busy(), busy());
    let woken = Arc::new(AtomicUsize::new(0));
    let waker = say(&woken, move || from_waker.work());
    let mut future = pin!(ctx.done());
    assert!(future.as_mut().poll(&mut std::task::Context::from_waker(&waker)).is_pending());
    let stop: AfterFunc = after_func(&ctx, move || from_call.work());
    let other = after_func(&ctx, {
        let busy = busy();
        move || drop(busy)
    });
    assert!(other.stop());
    assert_eq!(root.err(), Some(Error::Canceled), "by the destructor of what was stopped");
    assert_eq!((woken.load(SeqCst), stop.stop()), (1, false));
    cancel.cancel(busy()); // too late, so the error is dropped
    let (ctx, cancel) = with_cancel_cause(&background());
    cancel.cancel(busy());
    drop(with_value(&ctx, &KEY, busy()));
    drop((ctx, cancel));
}

/// Checks a function that owns the last handle of its own context.
#[test]
fn a_function_that_has_its_own_context() {
    let _watchdog = Watchdog::new();
    let (ctx, cancel) = with_cancel(&background());
    let called = Arc::new(WaitGroup::new());
    called.add(1);
    let (own, theirs) = (ctx.clone(), called.clone());
    after_func(&ctx, move || {
        assert_eq!(own.err(), Some(Error::Canceled));
        theirs.done();
    });
    drop(ctx);
    cancel.cancel();
    called.wait();
}

#[test]
fn keys_are_told_apart_by_where_they_are() {
    static KEYS: [Key<u32>; 2] = [const { Key::new("key") }; 2];
    let leaked: &'static Key<u32> = Box::leak(Box::new(Key::new("key")));
    let ctx = with_value(&with_value(&background(), &KEYS[0], 0), leaked, 2);
    assert_eq!((ctx.value(&KEYS[0]), ctx.value(&KEYS[1]), ctx.value(leaked)), (Some(&0), None, Some(&2)));
    assert!(size_of::<Key<()>>() > 0);
    assert_eq!((KEYS[0].name(), format!("{leaked:?}").as_str()), ("key", "Key(\"key\")"));
}

// ---- sets of goroutines ----------------------------------------------------------------------------------

/// Checks that a context may be made in one place and waited for in another.
#[test]
fn a_context_from_outside_holds_inside() {
    let _watchdog = Watchdog::new();
    let (ctx, _cancel) = with_timeout(&background(), Duration::from_millis(20));
    let (child, _cancel) = with_cancel(&ctx);
    let error = run(|| {
        let permits = AtomicU32::new(0);
        child.limited(|limit| semacquire_limited(&permits, Order::Fifo, limit))
    });
    assert_eq!(error, Err(Error::DeadlineExceeded));
    assert_eq!(ctx.err(), Some(Error::DeadlineExceeded));
}

/// Cancels on a thread that is no worker.
#[test]
fn a_foreign_thread_cancels() {
    let _watchdog = Watchdog::new();
    let (ctx, cancel) = with_cancel(&background());
    let calls = Calls::default();
    thread::scope(|s| {
        s.spawn(move || cancel.cancel());
        run(|| {
            after_func(&ctx, calls.call());
            assert_eq!(ctx.wait(), Error::Canceled);
        });
    });
    eventually(|| calls.get() == 1);
}

/// A waker that runs a closure.
struct Runs<F>(F);

impl<F: Fn() + Send + Sync + 'static> Wake for Runs<F> {
    fn wake(self: Arc<Self>) {
        (self.0)();
    }
}

/// A caller that finds the error of a context finds the context's channel closed, as in Go; also user code that runs in the
/// cancel of an ancestor.
#[test]
fn a_context_with_an_error_has_a_closed_channel() {
    let (parent, cancel) = with_cancel(&background());
    let (child, _cancel_child) = with_cancel(&parent);
    let channel = child.done_chan().clone();
    let looked = Arc::new(AtomicUsize::new(0));
    let looks = looked.clone();
    let waker = Waker::from(Arc::new(Runs(move || {
        assert_eq!(child.err(), Some(Error::Canceled));
        assert_eq!(channel.try_recv(), Err(TryRecvError::Closed));
        looks.fetch_add(1, SeqCst);
    })));
    let mut done = pin!(parent.done());
    assert!(done.as_mut().poll(&mut std::task::Context::from_waker(&waker)).is_pending());
    cancel.cancel();
    assert_eq!(looked.load(SeqCst), 1);
}

/// A task's waker may wait for a goroutine that receives from the channel of a descendant.
#[test]
fn waiters_at_channels_are_woken_before_wakers_are_called() {
    let _watchdog = Watchdog::new();
    let (parent, cancel) = with_cancel(&background());
    let (child, _cancel_child) = with_cancel(&parent);
    let (channel, answers) = (child.done_chan().clone(), Chan::new(1));
    let (of_waiter, answer) = (channel.clone(), answers.clone());
    let waiter = thread::spawn(move || {
        assert_eq!(of_waiter.recv(), None);
        answer.send(());
    });
    eventually(|| channel.waiting_receivers() == 1);
    let waker = Waker::from(Arc::new(Runs(move || answers.recv().unwrap())));
    let mut done = pin!(parent.done());
    assert!(done.as_mut().poll(&mut std::task::Context::from_waker(&waker)).is_pending());
    cancel.cancel();
    waiter.join().unwrap();
}
