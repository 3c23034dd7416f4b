//! Go's tests of its errgroup, over threads and over goroutines; and tests that Go does not have: panics, contexts of
//! waiters, limits that change.
#![cfg(all(unix, not(sudog_loom)))]

use std::convert::Infallible;
use std::error;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use sudog::context::{self, Cause, Context, background, with_cancel, with_timeout};
use sudog::runtime::{goexit, gosched};
use sudog::sync::WaitGroup;
use sudog::time::sleep;
use sudog::x::ErrGroup;
use support::kinds::Kind;

support::over_threads_and_goroutines! {
    just_errors parallel zero_group with_context try_go go_limit cancel_cause

    a_panic_goes_on_in_wait a_panic_cancels_the_context goexit_is_an_end waits_that_give_up goes_that_give_up
    used_again many_wait a_storm_of_limits a_limit_is_lifted
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Doom(u32);

impl fmt::Display for Doom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "doom {}", self.0)
    }
}

impl error::Error for Doom {}

fn doom(cause: &Cause) -> Option<Doom> {
    cause.downcast_ref().copied()
}

fn fine() -> Result<(), Infallible> {
    Ok(())
}

/// Go: `ExampleGroup_justErrors`.
fn just_errors<K: Kind>() {
    let group = ErrGroup::new();
    let number = |text: &'static str| move || text.parse::<u32>().map(|_| ());
    for text in ["1", "twelve", "3"] {
        group.go(number(text));
    }
    assert_eq!(group.wait().unwrap_err().to_string(), "invalid digit found in string");
}

/// Go: `ExampleGroup_parallel`.
fn parallel<K: Kind>() {
    fn search(ctx: &Context, kind: &str, query: &str) -> Result<String, context::Error> {
        ctx.err().map_or_else(|| Ok(format!("{kind} result for {query:?}")), Err)
    }
    let (group, ctx) = ErrGroup::with_context(&background());
    let results = Arc::new([const { std::sync::Mutex::new(String::new()) }; 3]);
    for (i, kind) in ["web", "image", "video"].into_iter().enumerate() {
        let (ctx, results) = (ctx.clone(), results.clone());
        group.go(move || {
            *results[i].lock().unwrap() = search(&ctx, kind, "golang")?;
            Ok::<_, context::Error>(())
        });
    }
    group.wait().unwrap();
    let results = results.each_ref().map(|result| result.lock().unwrap().clone());
    assert_eq!(results, ["web", "image", "video"].map(|kind| format!("{kind} result for \"golang\"")));
}

/// Go: `TestZeroGroup`.
fn zero_group<K: Kind>() {
    let (one, two) = (Err(Doom(1)), Err(Doom(2)));
    for results in [&[][..], &[Ok(())], &[one], &[one, Ok(())], &[one, Ok(()), two]] {
        let group = ErrGroup::new();
        let mut first = None;
        for &result in results {
            group.go(move || result);
            first = first.or(result.err());
            assert_eq!(group.wait().err().and_then(|error| doom(&error)), first);
        }
    }
}

type Case = (&'static [Result<(), Doom>], Option<Doom>);

const CASES: [Case; 4] =
    [(&[], None), (&[Ok(())], None), (&[Err(Doom(0))], Some(Doom(0))), (&[Err(Doom(0)), Ok(())], Some(Doom(0)))];

/// Go: `TestWithContext`.
fn with_context<K: Kind>() {
    for (results, want) in CASES {
        let (group, ctx) = ErrGroup::with_context(&background());
        for &result in results {
            group.go(move || result);
        }
        assert_eq!(group.wait().err().and_then(|error| doom(&error)), want);
        assert_eq!(ctx.err(), Some(context::Error::Canceled));
    }
}

/// Go: `TestCancelCause`.
fn cancel_cause<K: Kind>() {
    for (results, want) in CASES {
        let (group, ctx) = ErrGroup::with_context(&background());
        for &result in results {
            assert!(group.try_go(move || result));
        }
        let error = group.wait().err();
        assert_eq!(error.as_ref().and_then(doom), want);
        let cause = ctx.cause().unwrap();
        match error {
            Some(error) => assert!(Arc::ptr_eq(&error, &cause)),
            None => assert_eq!(cause.to_string(), "context canceled"),
        }
    }
}

/// Go: `TestTryGo`.
fn try_go<K: Kind>() {
    fn held(gate: &Arc<WaitGroup>) -> impl FnOnce() -> Result<(), Infallible> + Send + use<> {
        let gate = gate.clone();
        move || {
            gate.wait();
            Ok(())
        }
    }
    fn open<K: Kind>(gate: &Arc<WaitGroup>) {
        let gate = gate.clone();
        K::go(move || gate.done());
    }
    const N: usize = 42;
    let (group, gate) = (ErrGroup::new(), Arc::new(WaitGroup::new()));
    group.set_limit(Some(N));
    gate.add(1);
    for _ in 0..N {
        assert!(group.try_go(held(&gate)));
    }
    assert!(!group.try_go(held(&gate)));
    open::<K>(&gate);
    group.wait().unwrap();

    let gate = Arc::new(WaitGroup::new());
    gate.add(1);
    assert!(group.try_go(held(&gate)));
    open::<K>(&gate);
    group.wait().unwrap();

    let gate = Arc::new(WaitGroup::new());
    gate.add(1);
    group.set_limit(Some(1));
    assert!(group.try_go(held(&gate)));
    assert!(!group.try_go(held(&gate)));
    open::<K>(&gate);
    group.wait().unwrap();

    group.set_limit(Some(0));
    for _ in 0..1 << 10 {
        assert!(!group.try_go(fine));
    }
    group.wait().unwrap();
}

/// Go: `TestGoLimit`.
fn go_limit<K: Kind>() {
    const LIMIT: usize = 10;
    let (group, active) = (ErrGroup::new(), Arc::new(AtomicUsize::new(0)));
    group.set_limit(Some(LIMIT));
    for _ in 0..=1 << 10 {
        let active = active.clone();
        group.go(move || {
            let n = active.fetch_add(1, SeqCst) + 1;
            if n > LIMIT {
                return Err(format!("saw {n} active goroutines"));
            }
            sleep(Duration::from_micros(1)); // gives other goroutines a chance to exceed the limit
            active.fetch_sub(1, SeqCst);
            Ok(())
        });
    }
    group.wait().unwrap();
}

// ---- not in Go ------------------------------------------------------------------------------------------------------

fn panics<T>(f: impl FnOnce() -> T) -> String {
    let Err(payload) = catch_unwind(AssertUnwindSafe(f)) else { panic!("no panic") };
    match payload.downcast::<String>() {
        Ok(text) => *text,
        Err(payload) => (*payload.downcast::<&str>().expect("a text")).to_owned(),
    }
}

fn a_panic_goes_on_in_wait<K: Kind>() {
    let group = ErrGroup::new();
    group.go(|| -> Result<(), Infallible> { panic_any(7_u32) });
    group.go(|| Err(Doom(1)));
    let payload = catch_unwind(AssertUnwindSafe(|| group.wait())).unwrap_err();
    assert_eq!(payload.downcast_ref(), Some(&7_u32));
    assert_eq!(panics(|| group.wait()), "a goroutine of this group has panicked: (no text)");
    // The same, with several panics in a group.
    let group = ErrGroup::new();
    for n in 0..3 {
        group.go(move || -> Result<(), Infallible> { panic!("number {n}") });
    }
    let text = panics(|| group.wait());
    assert!(text.starts_with("number "), "{text}");
    assert_eq!(panics(|| group.wait()), format!("a goroutine of this group has panicked: {text}"));
}

fn a_panic_cancels_the_context<K: Kind>() {
    let (group, ctx) = ErrGroup::with_context(&background());
    let other = ctx.clone();
    group.go(move || Err(other.wait()));
    group.go(|| -> Result<(), Infallible> { panic!("by intent") });
    assert_eq!(panics(|| group.wait()), "by intent");
    assert_eq!(ctx.cause().unwrap().to_string(), "panic: by intent");
}

fn goexit_is_an_end<K: Kind>() {
    let (group, ctx) = ErrGroup::with_context(&background());
    group.set_limit(Some(1));
    for _ in 0..3 {
        group.go(|| -> Result<(), Infallible> { goexit() });
    }
    assert!(ctx.err().is_none());
    group.wait().unwrap();
}

fn waits_that_give_up<K: Kind>() {
    let (stop, cancel) = with_cancel(&background());
    let (group, ctx) = ErrGroup::with_context(&background());
    group.go(move || Err(stop.wait()));
    let (soon, _cancel) = with_timeout(&background(), Duration::from_millis(1));
    assert_eq!(group.wait_limited(&soon).unwrap_err(), context::Error::DeadlineExceeded);
    assert_eq!(ctx.err(), None);
    let waits = Arc::new(AtomicUsize::new(0));
    for _ in 0..3 {
        let (group, waits) = (group.clone(), waits.clone());
        K::go(move || {
            assert_eq!(group.wait_limited(&background()).unwrap().unwrap_err().to_string(), "context canceled");
            waits.fetch_add(1, SeqCst);
        });
    }
    K::until(|| format!("{group:?}").contains("waiters: 3"));
    cancel.cancel();
    K::until(|| waits.load(SeqCst) == 3);
    assert!(group.wait().is_err());
}

fn goes_that_give_up<K: Kind>() {
    let group = ErrGroup::new();
    group.set_limit(Some(1));
    let (stop, cancel) = with_cancel(&background());
    group.go(move || {
        stop.wait();
        fine()
    });
    let (soon, _cancel) = with_timeout(&background(), Duration::from_millis(1));
    for _ in 0..2 {
        let refused = group.go_limited(|| -> Result<(), Infallible> { unreachable!() }, &soon);
        assert_eq!(refused, Err(context::Error::DeadlineExceeded));
    }
    let text = panics(|| group.set_limit(Some(3)));
    assert_eq!(text, "errgroup: modify limit while 1 goroutines in the group are still active");
    cancel.cancel();
    group.go_limited(fine, &background()).unwrap();
    group.wait().unwrap();
}

fn used_again<K: Kind>() {
    let (group, runs) = (ErrGroup::new(), Arc::new(AtomicUsize::new(0)));
    for round in 1..=20 {
        group.set_limit((round % 2 == 0).then_some(3));
        for _ in 0..10 {
            let runs = runs.clone();
            group.go(move || {
                runs.fetch_add(1, SeqCst);
                fine()
            });
        }
        group.wait().unwrap();
        assert_eq!(runs.load(SeqCst), 10 * round);
    }
    group.go(|| Err(Doom(3)));
    assert!(group.wait().is_err());
    group.go(fine);
    assert_eq!(doom(&group.wait().unwrap_err()), Some(Doom(3)), "the first remains");
}

fn many_wait<K: Kind>() {
    let group = ErrGroup::new();
    let (stop, cancel) = with_cancel(&background());
    group.go(move || {
        stop.wait();
        Err(Doom(4))
    });
    let waits = Arc::new(AtomicUsize::new(0));
    for _ in 0..20 {
        let (group, waits) = (group.clone(), waits.clone());
        K::go(move || {
            assert_eq!(doom(&group.wait().unwrap_err()), Some(Doom(4)));
            waits.fetch_add(1, SeqCst);
        });
    }
    K::until(|| format!("{group:?}").contains("waiters: 20"));
    cancel.cancel();
    K::until(|| waits.load(SeqCst) == 20);
}

/// Lets callers that wait for room, and at times give up, compete with goroutines that end: the limit holds, and no
/// room is lost.
fn a_storm_of_limits<K: Kind>() {
    const LIMIT: usize = 3;
    for round in 0..10 {
        let (group, active) = (ErrGroup::new(), Arc::new(AtomicUsize::new(0)));
        group.set_limit(Some(LIMIT));
        let ended = Arc::new(WaitGroup::new());
        group.go(fine); // a task runs while others are added
        for n in 0..4 {
            ended.add(1);
            let (group, active, ended) = (group.clone(), active.clone(), ended.clone());
            K::go(move || {
                for i in 0..50 {
                    let active = active.clone();
                    let task = move || {
                        assert!(active.fetch_add(1, SeqCst) < LIMIT);
                        gosched();
                        active.fetch_sub(1, SeqCst);
                        fine()
                    };
                    match (i + n) % 3 {
                        0 => group.go(task),
                        1 => _ = group.try_go(task),
                        _ => {
                            let (ctx, _cancel) = with_timeout(&background(), Duration::from_micros(20 * round));
                            _ = group.go_limited(task, &ctx);
                        }
                    }
                }
                ended.done();
            });
        }
        ended.wait();
        group.wait().unwrap();
        group.set_limit(Some(LIMIT)); // no room is taken
    }
}

/// Lifts a limit while goroutines run that were started under that limit. Those goroutines do not give their room back
/// to the next limit.
fn a_limit_is_lifted<K: Kind>() {
    let group = ErrGroup::new();
    let (stop, cancel) = with_cancel(&background());
    let wait = |stop: &Context| {
        let stop = stop.clone();
        move || {
            stop.wait();
            fine()
        }
    };
    group.set_limit(Some(1));
    group.go(wait(&stop));
    group.set_limit(None);
    group.go(wait(&stop));
    group.set_limit(Some(1)); // no running goroutine counts against the new limit
    assert!(group.try_go(wait(&stop)));
    assert!(!group.try_go(fine));
    cancel.cancel();
    group.wait().unwrap();
    assert!(group.try_go(fine));
    group.wait().unwrap();
}
