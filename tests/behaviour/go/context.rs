//! Go's tests of its contexts, over threads and over goroutines. The tests that look inside are in
//! `sync/src/context/tests.rs`; the tests that Go does not have are in `tests/behaviour/context.rs`.
#![cfg(all(unix, not(sudog_loom)))]

use std::error;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use sudog::context::{
    CancelCauseFunc, Cause, Context, Error, Key, after_func, background, todo, with_cancel, with_cancel_cause,
    with_deadline, with_timeout, with_timeout_cause, with_value, without_cancel,
};
use sudog::sync::WaitGroup;
use support::Calls;
use support::kinds::Kind;

support::over_threads_and_goroutines! {
    test_background test_todo test_with_cancel deadline timeout canceled_timeout values simultaneous_cancels
    interlocked_cancels layers_cancel layers_timeout with_cancel_canceled_parent
    with_cancel_simultaneously_canceled_parent deadline_exceeded_supports_timeout cause cause_race test_without_cancel
    after_func_called_after_cancel after_func_called_after_timeout after_func_called_immediately
    after_func_not_called_after_stop after_func_called_asynchronously context_err_done_race
    custom_context_after_func_cancel custom_context_after_func_timeout
}

const SHORT: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(1000 * 3600);

/// Wraps a context, as Go's tests do to hide its type. Here the wrapper adds only a level.
fn other(ctx: &Context) -> Context {
    static OTHER: Key<()> = Key::new("other");
    with_value(ctx, &OTHER, ())
}

/// Polls `<-ctx.Done()` once, and returns whether the channel is closed.
fn is_done(ctx: &Context) -> bool {
    let closed = poll(pin!(ctx.done())).is_ready();
    assert_eq!(closed, ctx.err().is_some());
    closed
}

fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut std::task::Context::from_waker(Waker::noop()))
}

/// Go: `TestBackground`.
fn test_background<K: Kind>() {
    let c = background();
    assert!(!is_done(&c));
    assert_eq!(c.to_string(), "context.Background");
    assert!(c.deadline().is_none() && c.cause().is_none());
}

/// Go: `TestTODO`.
fn test_todo<K: Kind>() {
    let c = todo();
    assert!(!is_done(&c));
    assert_eq!(c.to_string(), "context.TODO");
}

/// Go: `TestWithCancel`.
fn test_with_cancel<K: Kind>() {
    let (c1, cancel) = with_cancel(&background());
    assert_eq!(c1.to_string(), "context.Background.WithCancel");
    let o = other(&c1);
    let (c2, _cancel) = with_cancel(&o);
    let contexts = [c1, o, c2];
    assert!(!contexts.iter().any(is_done));
    cancel.cancel();
    for c in &contexts {
        assert!(is_done(c));
        assert_eq!(c.err(), Some(Error::Canceled));
    }
}

fn check_deadline<K: Kind>(c: &Context) {
    assert_eq!(c.wait(), Error::DeadlineExceeded);
    assert_eq!(c.err(), Some(Error::DeadlineExceeded));
    // The context is done for a poll, too.
    K::until(|| is_done(c));
}

/// Go: `TestDeadline`.
fn deadline<K: Kind>() {
    let soon = || Instant::now() + SHORT;
    let (c, _cancel) = with_deadline(&background(), soon());
    assert!(c.to_string().starts_with("context.Background.WithDeadline("), "{c}");
    check_deadline::<K>(&c);

    let (c, _cancel) = with_deadline(&background(), soon());
    check_deadline::<K>(&other(&c));

    let (c, _cancel) = with_deadline(&background(), soon());
    let (child, _cancel) = with_deadline(&other(&c), Instant::now() + LONG);
    assert_eq!(child.deadline(), c.deadline());
    assert!(child.to_string().ends_with(".WithCancel"));
    check_deadline::<K>(&child);

    for at_once in [Instant::now() - SHORT, Instant::now()] {
        let (c, _cancel) = with_deadline(&background(), at_once);
        assert_eq!(c.err(), Some(Error::DeadlineExceeded));
        check_deadline::<K>(&c);
    }

    // The clock alone ends the context, without a waiter.
    let (c, _cancel) = with_deadline(&background(), soon());
    K::until(|| c.err() == Some(Error::DeadlineExceeded));
}

/// Go: `TestTimeout`.
fn timeout<K: Kind>() {
    let (c, _cancel) = with_timeout(&background(), SHORT);
    assert!(c.to_string().starts_with("context.Background.WithDeadline("), "{c}");
    check_deadline::<K>(&c);

    let (c, _cancel) = with_timeout(&background(), SHORT);
    check_deadline::<K>(&other(&c));

    let (c, _cancel) = with_timeout(&background(), SHORT);
    let (c, _cancel) = with_timeout(&other(&c), LONG);
    check_deadline::<K>(&c);
}

/// Go: `TestCanceledTimeout`.
fn canceled_timeout<K: Kind>() {
    let (c, _cancel) = with_timeout(&background(), Duration::from_secs(1000));
    let (c, cancel) = with_timeout(&other(&c), LONG);
    cancel.cancel();
    assert!(is_done(&c));
    assert_eq!(c.err(), Some(Error::Canceled));
}

/// Go: `TestValues`. A value cannot be nil; an `Option` can be `None`.
fn values<K: Kind>() {
    static K1: Key<Option<&str>> = Key::new("k");
    static K2: Key<Option<&str>> = Key::new("k");
    static K3: Key<Option<String>> = Key::new("k");
    #[track_caller]
    fn check(c: &Context, v1: &str, v2: &str, v3: &str) {
        assert_eq!(c.value(&K1).copied().flatten().unwrap_or(""), v1);
        assert_eq!(c.value(&K2).copied().flatten().unwrap_or(""), v2);
        assert_eq!(c.value(&K3).cloned().flatten().unwrap_or_default(), v3);
    }
    let c0 = background();
    check(&c0, "", "", "");
    let c1 = with_value(&c0, &K1, Some("c1k1"));
    check(&c1, "c1k1", "", "");
    let c2 = with_value(&c1, &K2, Some("c2k2"));
    check(&c2, "c1k1", "c2k2", "");
    let c3 = with_value(&c2, &K3, Some("c3k3".to_owned()));
    check(&c3, "c1k1", "c2k2", "c3k3");
    let c4 = with_value(&c3, &K1, None);
    check(&c4, "", "c2k2", "c3k3");
    let (o1, _cancel) = with_cancel(&c1);
    check(&o1, "c1k1", "", "");
    let o2 = with_value(&o1, &K2, Some("o2k2"));
    check(&o2, "c1k1", "o2k2", "");
    let o3 = without_cancel(&c4);
    check(&o3, "", "c2k2", "c3k3");
    let o4 = with_value(&o3, &K3, None);
    check(&o4, "", "c2k2", "");

    static USER: Key<String> = Key::new("user");
    static COLOUR: Key<&str> = Key::new("colour");
    static AGE: Key<u32> = Key::new("age");
    let c = with_value(&todo(), &USER, "gopher".to_owned());
    let c = with_value(&without_cancel(&with_value(&c, &COLOUR, "cyan")), &AGE, 16);
    let shown = "context.TODO.WithValue(user, gopher).WithValue(colour, cyan).WithoutCancel.WithValue(age, u32)";
    assert_eq!((c.to_string(), format!("{c:?}")), (shown.to_owned(), shown.to_owned()));
}

/// Go: `TestSimultaneousCancels`.
fn simultaneous_cancels<K: Kind>() {
    let mut all = vec![with_cancel(&background())];
    let mut next = 0;
    while all.len() < 100 {
        for _ in 0..4 {
            all.push(with_cancel(&all[next].0));
        }
        next += 1;
    }
    // Cancel in an order unlike the order of creation; 37 and the number of contexts are coprime.
    let n = all.len();
    let group = Arc::new(WaitGroup::new());
    for (ctx, cancel) in (0..n).map(|i| all[i * 37 % n].clone()) {
        group.add(1);
        let group = group.clone();
        K::go(move || {
            cancel.cancel();
            assert_eq!(ctx.err(), Some(Error::Canceled));
            group.done();
        });
    }
    for i in 0..n {
        assert_eq!(all[i * 41 % n].0.wait(), Error::Canceled);
    }
    group.wait();
}

/// Go: `TestInterlockedCancels`.
fn interlocked_cancels<K: Kind>() {
    let (parent, cancel_parent) = with_cancel(&background());
    let (child, cancel_child) = with_cancel(&parent);
    K::go(move || {
        parent.wait();
        cancel_child.cancel();
    });
    cancel_parent.cancel();
    assert_eq!(child.wait(), Error::Canceled);
}

/// Go: `TestLayersCancel`.
fn layers_cancel<K: Kind>() {
    layers::<K>(LONG);
}

/// Go: `TestLayersTimeout`.
fn layers_timeout<K: Kind>() {
    layers::<K>(SHORT);
}

fn layers<K: Kind>(d: Duration) {
    static SEEDS: AtomicU32 = AtomicU32::new(1);
    static KEYS: [Key<usize>; 30] = [const { Key::new("v") }; 30];
    for _ in 0..30 {
        let mut seed = SEEDS.fetch_add(1, SeqCst).wrapping_mul(0x9e37_79b9) | 1;
        let mut random = |n: u32| {
            seed ^= seed << 13;
            seed ^= seed >> 17;
            seed ^= seed << 5;
            seed % n
        };
        let (mut ctx, mut cancels, mut timers, mut n_values) = (background(), Vec::new(), 0, 0);
        while cancels.is_empty() || timers == 0 || n_values < 10 {
            let (derived, cancel) = match random(3) {
                0 if n_values < KEYS.len() => {
                    ctx = with_value(&ctx, &KEYS[n_values], n_values);
                    n_values += 1;
                    continue;
                }
                1 => with_cancel(&ctx),
                _ => {
                    timers += 1;
                    with_timeout(&ctx, d)
                }
            };
            ctx = derived;
            cancels.push(cancel);
        }
        let check_values = || {
            for (n, key) in KEYS.iter().enumerate() {
                assert_eq!(ctx.value(key).copied(), (n < n_values).then_some(n));
            }
        };
        assert!(ctx.to_string().starts_with("context.Background."), "{ctx}");
        check_values();
        if d == LONG {
            assert!(!is_done(&ctx));
            cancels[random(cancels.len() as u32) as usize].cancel();
            assert!(is_done(&ctx));
        } else {
            assert_eq!(ctx.wait(), Error::DeadlineExceeded);
        }
        check_values();
    }
}

fn because() -> Box<dyn error::Error + Send + Sync> {
    "Because!".into()
}

fn says(cause: Option<Cause>) -> String {
    cause.map_or_else(|| "none".to_owned(), |cause| cause.to_string())
}

/// Go: `TestWithCancelCanceledParent`.
fn with_cancel_canceled_parent<K: Kind>() {
    let (parent, cancel) = with_cancel_cause(&background());
    cancel.cancel(because());
    let (c, _cancel) = with_cancel(&parent);
    assert!(is_done(&c));
    assert_eq!(c.err(), Some(Error::Canceled));
    assert!(Arc::ptr_eq(&c.cause().unwrap(), &parent.cause().unwrap()));
    assert_eq!(says(c.cause()), "Because!");
}

/// Go: `TestWithCancelSimultaneouslyCanceledParent`.
fn with_cancel_simultaneously_canceled_parent<K: Kind>() {
    for _ in 0..100 {
        let (parent, cancel) = with_cancel_cause(&background());
        K::go(move || cancel.cancel(because()));
        let (c, _cancel) = with_cancel(&parent);
        assert_eq!(c.wait(), Error::Canceled);
        assert_eq!(says(c.cause()), "Because!");
    }
}

/// Go: `TestDeadlineExceededSupportsTimeout`.
fn deadline_exceeded_supports_timeout<K: Kind>() {
    assert!(Error::DeadlineExceeded.timeout() && !Error::Canceled.timeout());
    let texts = [Error::Canceled, Error::DeadlineExceeded].map(|error| error.to_string());
    assert_eq!(texts, ["context canceled", "context deadline exceeded"]);
}

/// Go: `TestCause`, except its custom contexts.
fn cause<K: Kind>() {
    fn nested() -> ((Context, CancelCauseFunc), (Context, CancelCauseFunc)) {
        let parent = with_cancel_cause(&background());
        let child = with_cancel_cause(&parent.0);
        (parent, child)
    }
    #[track_caller]
    fn check(ctx: &Context, err: Option<Error>, cause: &str) {
        assert_eq!((ctx.err(), says(ctx.cause()).as_str()), (err, cause));
    }
    let canceled = Some(Error::Canceled);
    let exceeded = Some(Error::DeadlineExceeded);
    let forever = Duration::from_secs(1_000_000);

    check(&background(), None, "none");
    check(&todo(), None, "none");

    let (ctx, cancel) = with_cancel(&background());
    cancel.cancel();
    check(&ctx, canceled, "context canceled");

    let (ctx, cancel) = with_cancel_cause(&background());
    cancel.cancel("parentCause");
    check(&ctx, canceled, "parentCause");

    let (ctx, cancel) = with_cancel_cause(&background());
    cancel.cancel_without_cause();
    check(&ctx, canceled, "context canceled");

    let ((_, cancel_parent), (ctx, cancel_child)) = nested();
    cancel_parent.cancel("parentCause");
    cancel_child.cancel("childCause");
    check(&ctx, canceled, "parentCause");

    let ((parent, cancel_parent), (ctx, cancel_child)) = nested();
    cancel_child.cancel("childCause");
    cancel_parent.cancel("parentCause");
    check(&ctx, canceled, "childCause");
    check(&parent, canceled, "parentCause");

    let ((_, cancel_parent), (ctx, cancel_child)) = nested();
    cancel_parent.cancel("parentCause");
    cancel_child.cancel_without_cause();
    check(&ctx, canceled, "parentCause");

    let ((_, cancel_parent), (ctx, cancel_child)) = nested();
    cancel_child.cancel_without_cause();
    cancel_parent.cancel("parentCause");
    check(&ctx, canceled, "context canceled");

    let ((_, cancel_parent), (ctx, cancel_child)) = nested();
    cancel_parent.cancel_without_cause();
    cancel_child.cancel("childCause");
    check(&ctx, canceled, "context canceled");

    let ((_, cancel_parent), (ctx, cancel_child)) = nested();
    cancel_child.cancel("childCause");
    cancel_parent.cancel_without_cause();
    check(&ctx, canceled, "childCause");

    let (ctx, cancel) = with_timeout(&background(), Duration::ZERO);
    cancel.cancel();
    check(&ctx, exceeded, "context deadline exceeded");

    let (ctx, cancel) = with_timeout(&background(), forever);
    cancel.cancel();
    check(&ctx, canceled, "context canceled");

    let (ctx, cancel) = with_timeout_cause(&background(), Duration::ZERO, "tooSlow");
    cancel.cancel();
    check(&ctx, exceeded, "tooSlow");

    let (ctx, cancel) = with_timeout_cause(&background(), forever, "tooSlow");
    cancel.cancel();
    check(&ctx, canceled, "context canceled");

    let (parent, cancel) = with_cancel_cause(&background());
    let (ctx, _cancel) = with_timeout_cause(&parent, Duration::ZERO, "tooSlow");
    cancel.cancel("finishedEarly");
    check(&ctx, exceeded, "tooSlow");

    let (parent, cancel) = with_cancel_cause(&background());
    let (ctx, _cancel) = with_timeout_cause(&parent, forever, "tooSlow");
    cancel.cancel("finishedEarly");
    check(&ctx, canceled, "finishedEarly");

    check(&without_cancel(&background()), None, "none");

    let (parent, cancel) = with_cancel_cause(&background());
    let ctx = without_cancel(&parent);
    cancel.cancel("finishedEarly");
    check(&ctx, None, "none");

    let (parent, cancel) = with_timeout_cause(&background(), Duration::ZERO, "tooSlow");
    let ctx = without_cancel(&parent);
    cancel.cancel();
    check(&ctx, None, "none");

    // Two cases that Go's table does not have: a timeout by the clock, and a child of a context that has timed out.
    let (ctx, _cancel) = with_timeout_cause(&background(), SHORT, "tooSlow");
    let (child, _cancel) = with_cancel(&ctx);
    child.wait();
    check(&child, exceeded, "tooSlow");
    assert!(Arc::ptr_eq(&Error::Canceled.cause_of(), &Error::Canceled.cause_of()));
}

trait CauseOf {
    fn cause_of(self) -> Cause;
}

impl CauseOf for Error {
    /// The cause of a context that ended with this error and was given no cause.
    fn cause_of(self) -> Cause {
        let (ctx, cancel) = with_cancel(&background());
        cancel.cancel();
        assert_eq!(ctx.err(), Some(self));
        ctx.cause().unwrap()
    }
}

/// Go: `TestCauseRace`.
fn cause_race<K: Kind>() {
    let (ctx, cancel) = with_cancel_cause(&background());
    K::go(move || cancel.cancel(because()));
    let cause = loop {
        match ctx.cause() {
            Some(cause) => break cause,
            None => K::gosched(),
        }
    };
    assert_eq!(cause.to_string(), "Because!");
}

/// Go: `TestWithoutCancel`.
fn test_without_cancel<K: Kind>() {
    static KEY: Key<&str> = Key::new("key");
    let (parent, _cancel) = with_timeout(&with_value(&background(), &KEY, "value"), Duration::ZERO);
    let ctx = without_cancel(&parent);
    assert_eq!((ctx.deadline(), is_done(&ctx), ctx.err()), (None, false, None));
    assert_eq!(ctx.value(&KEY), Some(&"value"));
    assert!(parent.deadline().is_some() && is_done(&parent));
}

/// Go: `TestAfterFuncCalledAfterCancel`.
fn after_func_called_after_cancel<K: Kind>() {
    let (ctx, cancel) = with_cancel(&background());
    let calls = Calls::default();
    let stop = after_func(&ctx, calls.call());
    for _ in 0..10 {
        K::gosched();
    }
    assert_eq!(calls.get(), 0);
    cancel.cancel();
    K::until(|| calls.get() == 1);
    assert!(!stop.stop());
}

/// Go: `TestAfterFuncCalledAfterTimeout`.
fn after_func_called_after_timeout<K: Kind>() {
    let (ctx, _cancel) = with_timeout(&background(), SHORT);
    let calls = Calls::default();
    after_func(&ctx, calls.call());
    K::until(|| calls.get() == 1);
}

/// Go: `TestAfterFuncCalledImmediately`.
fn after_func_called_immediately<K: Kind>() {
    let (ctx, cancel) = with_cancel(&background());
    cancel.cancel();
    let calls = Calls::default();
    let stop = after_func(&ctx, calls.call());
    K::until(|| calls.get() == 1);
    assert!(!stop.stop());
}

/// Go: `TestAfterFuncNotCalledAfterStop`.
fn after_func_not_called_after_stop<K: Kind>() {
    let (ctx, cancel) = with_cancel(&background());
    let calls = Calls::default();
    let stop = after_func(&ctx, calls.call());
    assert!(stop.stop());
    assert_eq!(Arc::strong_count(&calls.0), 1, "nobody has it who could call it");
    cancel.cancel();
    assert!(!stop.stop());
    // Nor is the function of a context that is never done called.
    let stop = after_func(&background(), calls.call());
    assert_eq!(Arc::strong_count(&calls.0), 2);
    assert!(stop.stop() && !stop.stop());
    assert_eq!((Arc::strong_count(&calls.0), calls.get()), (1, 0));
}

/// Go: `TestAfterFuncCalledAsynchronously`.
fn after_func_called_asynchronously<K: Kind>() {
    let (ctx, cancel) = with_cancel(&background());
    let (go_on, gone) = (Arc::new(WaitGroup::new()), Arc::new(WaitGroup::new()));
    go_on.add(1);
    gone.add(1);
    let (theirs, done) = (go_on.clone(), gone.clone());
    let _stop = after_func(&ctx, move || {
        theirs.wait();
        done.done();
    });
    cancel.cancel(); // `cancel` does not wait for the function
    go_on.done();
    gone.wait();
}

/// Go: `TestContextErrDoneRace`.
fn context_err_done_race<K: Kind>() {
    for _ in 0..10 {
        let (ctx, cancel) = with_cancel(&background());
        let mut done = pin!(ctx.done());
        assert!(poll(done.as_mut()).is_pending());
        K::go(move || cancel.cancel());
        while ctx.err().is_none() {
            K::gosched();
        }
        assert!(poll(done).is_ready());
        assert_eq!(ctx.wait(), Error::Canceled);
    }
}

/// Go: `TestCustomContextAfterFuncCancel`, `TestCustomContextAfterFuncAfterFunc`.
fn custom_context_after_func_cancel<K: Kind>() {
    let (ctx0, cancel0) = with_cancel(&background());
    let (ctx1, _cancel1) = with_cancel(&ctx0);
    let calls = Calls::default();
    after_func(&ctx0, calls.call());
    K::go(move || cancel0.cancel());
    ctx1.wait();
    K::until(|| calls.get() == 1);
}

/// Go: `TestCustomContextAfterFuncTimeout`.
fn custom_context_after_func_timeout<K: Kind>() {
    let (ctx0, cancel0) = with_cancel(&background());
    let (ctx1, _cancel1) = with_timeout(&ctx0, LONG);
    K::go(move || cancel0.cancel());
    assert_eq!(ctx1.wait(), Error::Canceled);
}
