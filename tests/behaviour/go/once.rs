//! Go's tests of `Once`, `OnceFunc`, `OnceValue` and `OnceValues`, over threads and over goroutines; and tests that Go
//! does not have: limits, the payloads of panics.
#![cfg(all(unix, not(sudog_loom)))]

use std::backtrace::Backtrace;
use std::cell::{Cell, RefCell};
use std::panic::{self, AssertUnwindSafe, catch_unwind, panic_any, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use sudog::runtime::{Goexit, goexit, gosched};
use sudog::sync::{Once, OnceFunc, OnceValue, OnceValues, SharedPanic, once_func, once_value, once_values};
use sudog::{Cancel, WaitError, WaitLimit, context, spawn};
use support::counting::without_allocating;
use support::kinds::{Kind, Threads};
use support::{Watchdog, eventually};

support::over_threads_and_goroutines! {
    once once_panic all_wait_for_the_first the_panic_is_for_the_first limits_of_waiters limits_at_random
    the_once_may_be_freed_when_it_is_done a_value_for_all a_panic_for_all limits_of_a_value
}

fn debug(once: &Once) -> String {
    format!("{once:?}")
}

fn waiting(n: usize) -> String {
    format!("Once {{ state: running, waiters: {n} }}")
}

const DONE: &str = "Once { state: done, waiters: 0 }";

// ---- Once, as in Go -------------------------------------------------------------------------------------------------

/// Go: `TestOnce`.
fn once<K: Kind>() {
    const N: usize = 10;
    let w = Arc::new((Once::new(), AtomicUsize::new(0), AtomicUsize::new(0)));
    for _ in 0..N {
        let w = w.clone();
        K::go(move || {
            w.0.do_(|| _ = w.1.fetch_add(1, Relaxed));
            assert_eq!(w.1.load(Relaxed), 1);
            w.2.fetch_add(1, SeqCst);
        });
    }
    K::until(|| w.2.load(SeqCst) == N);
    assert_eq!(w.1.load(Relaxed), 1);
}

/// Go: `TestOncePanic`.
fn once_panic<K: Kind>() {
    let once = Once::new();
    for round in 0..2 {
        let caught = catch_unwind(|| once.do_(|| panic_any("failed")));
        assert_eq!(caught.is_err(), round == 0);
    }
    once.do_(|| ());
    once.do_(|| panic!("called twice"));
}

// ---- Once, not in Go ------------------------------------------------------------------------------------------------

struct World {
    once: Once,
    ended: AtomicBool,
    go_on: AtomicBool,
    returned: AtomicUsize,
    refused: AtomicUsize,
}

impl World {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            once: Once::new(),
            ended: AtomicBool::new(false),
            go_on: AtomicBool::new(false),
            returned: AtomicUsize::new(0),
            refused: AtomicUsize::new(0),
        })
    }

    /// Starts the call that runs the function. The function calls `end` once `go_on` is set.
    fn start<K: Kind>(self: &Arc<Self>, end: fn()) {
        let w = self.clone();
        K::go(move || {
            let caught = catch_unwind(AssertUnwindSafe(|| {
                w.once.do_(|| {
                    K::until(|| w.go_on.load(SeqCst));
                    w.ended.store(true, Relaxed);
                    end();
                });
            }));
            if caught.is_err() {
                w.refused.fetch_add(1, SeqCst);
            }
            w.returned.fetch_add(1, SeqCst);
        });
        K::until(|| debug(&self.once) == waiting(0));
    }

    fn go_and_wait<K: Kind>(self: &Arc<Self>, n: usize) {
        for _ in 0..n {
            let w = self.clone();
            K::go(move || {
                w.once.do_(|| unreachable!());
                assert!(w.ended.load(Relaxed), "returned too soon");
                w.returned.fetch_add(1, SeqCst);
            });
        }
    }
}

fn all_wait_for_the_first<K: Kind>() {
    let w = World::new();
    w.start::<K>(|| ());
    w.go_and_wait::<K>(K::MANY);
    K::until(|| debug(&w.once) == waiting(K::MANY));
    assert_eq!(w.returned.load(SeqCst), 0);
    w.go_on.store(true, SeqCst);
    K::until(|| w.returned.load(SeqCst) == K::MANY + 1);
    assert_eq!(debug(&w.once), DONE);
}

fn the_panic_is_for_the_first<K: Kind>() {
    let w = World::new();
    w.start::<K>(|| resume_unwind(Box::new("by intent")));
    w.go_and_wait::<K>(5);
    K::until(|| debug(&w.once) == waiting(5));
    w.go_on.store(true, SeqCst);
    K::until(|| w.returned.load(SeqCst) == 6);
    assert_eq!((w.refused.load(SeqCst), debug(&w.once).as_str()), (1, DONE));
}

fn limits_of_waiters<K: Kind>() {
    let w = World::new();
    let stop = Arc::new(Cancel::new());
    let (ctx, cancel) = context::with_cancel(&context::background());
    w.start::<K>(|| ());
    assert!(w.once.do_limited(|| unreachable!(), Instant::now()).is_err());
    let deadline = Instant::now() + Duration::from_millis(2);
    assert!(w.once.do_limited(|| unreachable!(), deadline).is_err());
    assert!(Instant::now() >= deadline);
    let (stopped, handle) = (w.clone(), stop.clone());
    K::go(move || {
        let limit = WaitLimit { cancel: Some(&handle), ..WaitLimit::default() };
        assert_eq!(stopped.once.do_limited(|| unreachable!(), &limit), Err(WaitError::Cancelled));
        stopped.refused.fetch_add(1, SeqCst);
    });
    let (cancelled, its_ctx) = (w.clone(), ctx.clone());
    K::go(move || {
        assert_eq!(cancelled.once.do_limited(|| unreachable!(), &its_ctx), Err(context::Error::Canceled));
        cancelled.refused.fetch_add(1, SeqCst);
    });
    w.go_and_wait::<K>(1);
    K::until(|| debug(&w.once) == waiting(3));
    stop.cancel();
    K::until(|| debug(&w.once) == waiting(2));
    cancel.cancel();
    K::until(|| w.refused.load(SeqCst) == 2);
    assert_eq!(debug(&w.once), waiting(1));
    w.go_on.store(true, SeqCst);
    K::until(|| w.returned.load(SeqCst) == 2);
    // A call of a `Once` that is done returns at once, whatever the limit.
    let limit = WaitLimit { cancel: Some(&stop), ..WaitLimit::default() };
    assert_eq!(w.once.do_limited(|| unreachable!(), &limit), Ok(()));
    assert_eq!(w.once.do_limited(|| unreachable!(), &ctx), Ok(()));
    assert!(w.once.do_limited(|| unreachable!(), Instant::now()).is_ok());
}

#[test]
fn the_one_that_runs_has_no_limit() {
    let (once, ran) = (Once::new(), Cell::new(false));
    assert!(once.do_limited(|| ran.set(true), Instant::now()).is_ok());
    assert!(ran.get());
}

#[test]
fn a_cancelled_caller_does_not_run() {
    let (once, stop) = (Once::new(), Cancel::new());
    stop.cancel();
    let limit = WaitLimit { cancel: Some(&stop), ..WaitLimit::default() };
    assert_eq!(once.do_limited(|| unreachable!(), &limit), Err(WaitError::Cancelled));
    let (ctx, cancel) = context::with_cancel(&context::background());
    cancel.cancel();
    assert_eq!(once.do_limited(|| unreachable!(), &ctx), Err(context::Error::Canceled));
    assert_eq!(debug(&once), "Once { state: new, waiters: 0 }");
}

/// Runs callers of all sorts at once, time and again: one function runs, no caller returns early, no caller is left.
fn limits_at_random<K: Kind>() {
    const CALLERS: usize = 8;
    let watchdog = Watchdog::new();
    for round in 0..300 {
        watchdog.pat();
        let w = Arc::new((Once::new(), AtomicUsize::new(0), AtomicUsize::new(0), Cancel::new()));
        for caller in 0..CALLERS {
            let w = w.clone();
            K::go(move || {
                let f = || {
                    (0..round % 7).for_each(|_| K::gosched());
                    w.1.fetch_add(1, Relaxed);
                };
                let limit = match (caller + round) % 4 {
                    0 => WaitLimit::until(Instant::now() + Duration::from_micros(round as u64 % 50)),
                    1 => WaitLimit { cancel: Some(&w.3), ..WaitLimit::default() },
                    _ => WaitLimit::default(),
                };
                match w.0.do_limited(f, &limit) {
                    Ok(()) => assert_eq!(w.1.load(Relaxed), 1),
                    Err(_) => assert!(limit.deadline.is_some() || limit.cancel.is_some()),
                }
                if caller == round % CALLERS {
                    w.3.cancel();
                }
                w.2.fetch_add(1, SeqCst);
            });
        }
        K::until(|| w.2.load(SeqCst) == CALLERS);
        assert_eq!(debug(&w.0), DONE);
    }
}

/// Frees the `Once` as soon as a caller sees that the function is done. The `Once` is on that caller's stack: a late
/// access would touch another frame. (Only a sanitizer can make this test fail.)
fn the_once_may_be_freed_when_it_is_done<K: Kind>() {
    struct Shared(*const Once, Arc<AtomicBool>);
    // SAFETY: the `Once` is alive until its function is done.
    unsafe impl Send for Shared {}
    for _ in 0..200 {
        let once = Once::new();
        let begun = Arc::new(AtomicBool::new(false));
        let shared = Shared(&raw const once, begun.clone());
        K::go(move || {
            let Shared(once, begun) = { shared };
            // SAFETY: the `Once` is alive, because the frame that owns the `Once` waits for this function.
            unsafe { (*once).do_(|| begun.store(true, SeqCst)) };
        });
        K::until(|| begun.load(SeqCst));
        once.do_(|| unreachable!());
    }
}

/// Checks a function that ends its goroutine while a thread waits for that function.
#[test]
fn a_goexit_has_done_it() {
    let _watchdog = Watchdog::new();
    let once = Arc::new(Once::new());
    let (inside, outside) = (once.clone(), once.clone());
    let goroutine = spawn(move || {
        inside.do_(|| {
            while debug(&inside) != waiting(1) {
                gosched();
            }
            goexit();
        });
    });
    eventually(|| debug(&once) == waiting(0));
    outside.do_(|| unreachable!());
    assert!(goroutine.join().unwrap_err().is::<Goexit>());
}

#[test]
fn sizes() {
    assert_eq!(size_of::<Once>(), 8);
    assert!(size_of::<OnceFunc>() <= 40);
}

#[test]
fn waiting_allocates_nothing() {
    let _watchdog = Watchdog::new();
    let w = World::new();
    w.start::<Threads>(|| ());
    thread::scope(|s| {
        for _ in 0..3 {
            s.spawn(|| without_allocating(|| w.once.do_(|| unreachable!())));
        }
        without_allocating(|| {
            assert!(w.once.do_limited(|| unreachable!(), Instant::now() + Duration::from_millis(1)).is_err())
        });
        eventually(|| debug(&w.once) == waiting(3));
        w.go_on.store(true, SeqCst);
    });
}

// ---- OnceFunc, OnceValue, OnceValues, as in Go ----------------------------------------------------------------------

/// Go: `TestOnceFunc`.
#[test]
fn once_func_() {
    let calls = AtomicUsize::new(0);
    let f = without_allocating(|| once_func(|| _ = calls.fetch_add(1, Relaxed)));
    (0..11).for_each(|_| without_allocating(&f));
    assert_eq!(calls.load(Relaxed), 1);
}

/// Go: `TestOnceValue`.
#[test]
fn once_value_() {
    let calls = AtomicUsize::new(0);
    let f = without_allocating(|| once_value(|| calls.fetch_add(1, Relaxed) + 1));
    (0..11).for_each(|_| _ = without_allocating(&f));
    assert_eq!((f(), calls.load(Relaxed)), (1, 1));
}

/// Go: `TestOnceValues`.
#[test]
fn once_values_() {
    let calls = AtomicUsize::new(0);
    let make = || {
        let calls = calls.fetch_add(1, Relaxed) + 1;
        (calls, calls + 1)
    };
    let f = without_allocating(|| once_values(make));
    (0..11).for_each(|_| _ = without_allocating(&f));
    assert_eq!((f(), calls.load(Relaxed)), ((1, 2), 1));
}

/// Checks that each call panics with "x", and that the function has run once.
fn panics_with_x(calls: &AtomicUsize, f: impl Fn()) {
    for time in ["first", "second"] {
        let payload = catch_unwind(AssertUnwindSafe(&f)).expect_err(time);
        assert_eq!(payload.downcast_ref::<&str>(), Some(&"x"), "{time}");
    }
    assert_eq!(calls.load(Relaxed), 1);
}

fn x<T>(calls: &AtomicUsize) -> T {
    calls.fetch_add(1, Relaxed);
    panic_any("x")
}

/// Go: `TestOnceFuncPanic`.
#[test]
fn once_func_panic() {
    let calls = AtomicUsize::new(0);
    panics_with_x(&calls, once_func(|| x(&calls)));
}

/// Go: `TestOnceValuePanic`.
#[test]
fn once_value_panic() {
    let calls = AtomicUsize::new(0);
    let f = once_value(|| x::<i32>(&calls));
    panics_with_x(&calls, || _ = f());
}

/// Go: `TestOnceValuesPanic`.
#[test]
fn once_values_panic() {
    let calls = AtomicUsize::new(0);
    let f = once_values(|| x::<(i32, i32)>(&calls));
    panics_with_x(&calls, || _ = f());
}

/// Go: `TestOnceFuncPanicNil`. The closest counterpart of nil is the payload `()`.
#[test]
fn once_func_panic_nil() {
    let calls = AtomicUsize::new(0);
    let f = once_func(|| {
        calls.fetch_add(1, Relaxed);
        panic_any(())
    });
    for _ in 0..2 {
        let payload = catch_unwind(AssertUnwindSafe(&f)).unwrap_err();
        assert!(payload.downcast_ref::<SharedPanic>().unwrap().is::<()>());
    }
    assert_eq!(calls.load(Relaxed), 1);
}

/// Go: `TestOnceFuncGoexit`. Go leaves the outcome open: here the first goroutine ends, and the second panics.
#[test]
fn once_func_goexit() {
    let _watchdog = Watchdog::new();
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let f = Arc::new(once_func(move || {
        counted.fetch_add(1, Relaxed);
        goexit();
    }));
    let call = || {
        let f = f.clone();
        spawn(move || f()).join().unwrap_err()
    };
    assert!(call().is::<Goexit>());
    let said = "sync: a function that was to run once has ended its goroutine";
    assert_eq!(call().downcast_ref::<&str>(), Some(&said));
    assert_eq!(calls.load(Relaxed), 1);
}

/// Go: `TestOnceFuncPanicTraceback`. The first call runs the panic hook inside the function; later calls run the hook
/// at the place of the call.
#[test]
fn once_func_panic_traceback() {
    thread_local! {
        static SEEN: RefCell<Option<Vec<(u32, bool)>>> = const { RefCell::new(None) };
    }
    const LINE: u32 = line!() + 3;
    #[inline(never)]
    fn once_func_that_panics() {
        panic!("x");
    }
    let _watchdog = Watchdog::new(); // the first watchdog of a process sets a panic hook
    let usual = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        let is_ours = SEEN.with_borrow_mut(|seen| {
            if let Some(seen) = seen {
                let has_origin = Backtrace::force_capture().to_string().contains("once_func_that_panics");
                seen.push((info.location().unwrap().line(), has_origin));
            }
            seen.is_some()
        });
        if !is_ours {
            usual(info);
        }
    }));
    SEEN.set(Some(Vec::new()));
    let f = OnceFunc::new(once_func_that_panics);
    for _ in 0..2 {
        assert_eq!(catch_unwind(|| f.call()).unwrap_err().downcast_ref(), Some(&"x"));
    }
    let seen = SEEN.take().unwrap();
    assert_eq!(seen, [(LINE, true), (line!() - 3, false)]);
}

/// Go: `TestOnceXGC`: the values that the function has captured live until the first call, and not longer.
#[test]
fn once_x_gc() {
    fn check<F: Fn()>(name: &str, make: impl FnOnce(Arc<AtomicUsize>) -> F) {
        let captured = Arc::new(AtomicUsize::new(0));
        let f = make(captured.clone());
        assert_eq!(Arc::strong_count(&captured), 2, "{name}: dropped too early");
        for _ in 0..2 {
            _ = catch_unwind(AssertUnwindSafe(&f));
            assert_eq!(Arc::strong_count(&captured), 1, "{name}: alive after the call");
        }
        assert_eq!(captured.load(Relaxed), 1);
    }
    fn use_it(captured: &AtomicUsize) {
        captured.fetch_add(1, Relaxed);
    }
    fn panic_with_it<T>(captured: &AtomicUsize) -> T {
        use_it(captured);
        resume_unwind(Box::new("test panic"))
    }
    check("OnceFunc", |captured| once_func(move || use_it(&captured)));
    check("OnceValue", |captured| {
        let f = once_value(move || use_it(&captured));
        move || f()
    });
    check("OnceValues", |captured| {
        let f = once_values(move || (use_it(&captured), ()));
        move || _ = f()
    });
    check("OnceFunc panic", |captured| once_func(move || panic_with_it(&captured)));
    check("OnceValue panic", |captured| {
        let f = once_value(move || panic_with_it::<()>(&captured));
        move || f()
    });
    check("OnceValues panic", |captured| {
        let f = once_values(move || panic_with_it::<((), ())>(&captured));
        move || _ = f()
    });
}

// ---- not in Go ------------------------------------------------------------------------------------------------------

fn a_value_for_all<K: Kind>() {
    let w = Arc::new((OnceValue::new(|| Box::new(42)), AtomicUsize::new(0)));
    for _ in 0..K::MANY {
        let w = w.clone();
        K::go(move || {
            assert_eq!(**w.0.get(), 42);
            w.1.fetch_add(1, SeqCst);
        });
    }
    K::until(|| w.1.load(SeqCst) == K::MANY);
    assert_eq!(format!("{:?}", w.0), "OnceValue(42)");
}

/// Checks that waiters and later callers get the panic of the first caller.
fn a_panic_for_all<K: Kind>() {
    const N: usize = 6;
    #[derive(Debug, PartialEq)]
    struct Reason(u32);
    let (calls, go_on) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let (counted, told) = (calls.clone(), go_on.clone());
    let f = move || -> u32 {
        counted.fetch_add(1, SeqCst);
        K::until(|| told.load(SeqCst));
        resume_unwind(Box::new(Reason(7)))
    };
    let w = Arc::new((OnceValue::new(f), AtomicUsize::new(0)));
    let call = {
        let w = w.clone();
        move || {
            let payload = catch_unwind(AssertUnwindSafe(|| _ = w.0.get())).unwrap_err();
            let payload = payload.downcast::<SharedPanic>().unwrap();
            assert_eq!(payload.downcast_ref::<Reason>(), Some(&Reason(7)));
            w.1.fetch_add(1, SeqCst);
        }
    };
    for _ in 0..N {
        K::go(call.clone());
    }
    K::until(|| calls.load(SeqCst) == 1);
    assert_eq!(format!("{:?}", w.0), "OnceValue(<not made>)");
    go_on.store(true, SeqCst);
    K::until(|| w.1.load(SeqCst) == N);
    call();
    assert_eq!(calls.load(SeqCst), 1);
    assert_eq!(format!("{:?}", w.0), "OnceValue(<failed>)");
}

fn limits_of_a_value<K: Kind>() {
    let w = Arc::new((AtomicBool::new(false), AtomicBool::new(false), AtomicBool::new(false)));
    let inside = w.clone();
    let pair = Arc::new(OnceValues::new(move || {
        inside.0.store(true, SeqCst);
        K::until(|| inside.1.load(SeqCst));
        (1, 2)
    }));
    let (runner, ended) = (pair.clone(), w.clone());
    K::go(move || {
        assert_eq!(runner.get(), (&1, &2));
        ended.2.store(true, SeqCst);
    });
    K::until(|| w.0.load(SeqCst));
    let soon = WaitLimit::until(Instant::now() + Duration::from_millis(1));
    assert_eq!(pair.get_limited(&soon), Err(WaitError::TimedOut));
    assert_eq!(pair.get_limited(Instant::now()).ok(), None);
    let (ctx, _cancel) = context::with_timeout(&context::background(), Duration::from_millis(1));
    assert_eq!(pair.get_limited(&ctx), Err(context::Error::DeadlineExceeded));
    w.1.store(true, SeqCst);
    K::until(|| w.2.load(SeqCst));
    assert_eq!(pair.get_limited(&soon), Ok((&1, &2)));
    assert_eq!(pair.get_limited(&ctx), Ok((&1, &2)));
}

#[test]
fn limits_of_a_function() {
    static SETUP: OnceFunc = OnceFunc::new(|| {
        assert!(SETUP.call_limited(Instant::now()).is_err());
        assert_eq!(SETUP.call_limited(&WaitLimit::until(Instant::now())), Err(WaitError::TimedOut));
        let (ctx, _cancel) = context::with_timeout(&context::background(), Duration::from_millis(1));
        assert_eq!(SETUP.call_limited(&ctx), Err(context::Error::DeadlineExceeded));
    });
    let (ctx, cancel) = context::with_cancel(&context::background());
    cancel.cancel();
    assert_eq!(SETUP.call_limited(&ctx), Err(context::Error::Canceled));
    assert!(SETUP.call_limited(Instant::now()).is_ok());
    assert_eq!(SETUP.call_limited(&ctx), Ok(()));
}

#[test]
fn texts_stay_texts_and_others_are_shared() {
    let text = OnceFunc::new(|| panic!("{:?} and {:?}", Some(1), Some(2)));
    for _ in 0..2 {
        let payload = catch_unwind(AssertUnwindSafe(|| text.call())).unwrap_err();
        assert_eq!(payload.downcast_ref::<String>().map(String::as_str), Some("Some(1) and Some(2)"));
    }
    // A function within a function: the payload is not wrapped twice.
    let inner = Arc::new(OnceFunc::new(|| resume_unwind(Box::new(Cell::new(5)))));
    let within = inner.clone();
    let outer = OnceFunc::new(move || within.call());
    let payload = catch_unwind(AssertUnwindSafe(|| outer.call())).unwrap_err();
    let payload = *payload.downcast::<SharedPanic>().unwrap();
    assert!(payload.is::<Cell<i32>>());
    let payload = payload.into_inner().expect_err("the functions have it too");
    drop((inner, outer));
    let payload = payload.into_inner().unwrap();
    assert_eq!(payload.downcast_ref::<Cell<i32>>().unwrap().get(), 5);
}

/// Checks that a `static` can hold these types, with functions that capture nothing.
#[test]
fn in_a_static() {
    static VALUE: OnceValue<String> = OnceValue::new(|| "made".to_owned());
    static PAIR: OnceValues<u8, Vec<u8>> = OnceValues::new(|| (1, vec![2]));
    static FUNC: OnceFunc = OnceFunc::new(|| _ = VALUE.get());
    FUNC.call();
    assert_eq!((VALUE.get().as_str(), PAIR.get()), ("made", (&1, &vec![2])));
}

/// Checks that the value is dropped with its `OnceValue`, and that a function that was never called is dropped, too.
#[test]
fn drops() {
    let counted = Arc::new(());
    let captured = counted.clone();
    let value = OnceValue::new(move || captured);
    value.get();
    assert_eq!(Arc::strong_count(&counted), 2);
    drop(value);
    assert_eq!(Arc::strong_count(&counted), 1);
    let captured = counted.clone();
    drop(OnceFunc::new(move || drop(captured)));
    assert_eq!(Arc::strong_count(&counted), 1);
}
