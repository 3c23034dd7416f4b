//! Spans of `tracing` and switch hooks. A process has one subscriber and one set of hooks.
#![cfg(all(unix, not(sudog_loom)))]

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, OnceLock};
use std::thread::ThreadId;

use sudog::chan::Chan;
use sudog::low_level::{Entering, Leaving, SwitchHooks, TooManySwitchHooks, add_switch_hooks};
use sudog::runtime::gosched;
use sudog::sync::{Mutex as GoMutex, WaitGroup};
use sudog::time::sleep;
use sudog::{go_async, run, spawn};
use sudog_runtime::goroutine::PerGoroutine;
use support::Watchdog;
use support::goroutine::here;
use tracing::{Event, Subscriber, info, info_span};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::{LookupSpan, Registry};

/// The names of the spans around each event, outermost first.
static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Lines;

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, ctx: Context<'_, S>) {
        let spans: Vec<_> =
            ctx.event_scope(event).into_iter().flatten().map(|span| span.id().into_u64().to_string()).collect();
        LINES.lock().unwrap().push(spans.join(" "));
    }
}

fn install() {
    static INSTALLED: OnceLock<()> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        let subscriber = PerGoroutine::new(Registry::default().with(Lines));
        tracing::subscriber::set_global_default(subscriber).unwrap();
        // Add the hooks before any test starts a goroutine: a goroutine that is about to end would leave without having
        // entered.
        add_switch_hooks(SwitchHooks { enter, leave }).unwrap();
    });
}

/// Takes the turn to use the lines, which the tests share.
fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    install();
    LINES.lock().unwrap().clear();
    alone
}

/// Logs an event, and returns the spans around it.
fn spans() -> String {
    info!("a line");
    // No goroutine of this worker runs between the two calls. Goroutines of other workers may log a line.
    let last = LINES.lock().unwrap().last().cloned();
    last.unwrap_or_default()
}

/// Asserts that the current span and its parents are `expected`, innermost first, and that no span of another goroutine
/// is among them.
#[track_caller]
fn is_in(expected: &[&tracing::Span]) {
    let current = tracing::Span::current();
    assert_eq!(current.id(), expected.first().and_then(|span| span.id()));
    // The scope of an event follows the parents that the spans had when they were made.
    let dispatched = tracing::dispatcher::get_default(|dispatch| {
        let registry = dispatch.downcast_ref::<Registry>().expect("found through the wrapper");
        let mut names = Vec::new();
        let mut span = current.id().and_then(|id| registry.span(&id));
        while let Some(inner) = span {
            names.push(inner.id());
            span = inner.parent();
        }
        names
    });
    assert_eq!(dispatched, expected.iter().filter_map(|span| span.id()).collect::<Vec<_>>());
}

/// A thousand goroutines, each with a span and with another span inside, which wait in every way at random.
#[test]
fn each_line_has_its_own_spans() {
    let (watchdog, _alone) = (Watchdog::new(), alone());
    let waits = |n: usize, mutex: &GoMutex<usize>| match n % 4 {
        0 => gosched(),
        1 => sleep(std::time::Duration::from_micros(n as u64 % 50)),
        2 => *mutex.lock() += 1,
        _ => (0..3).for_each(|_| gosched()),
    };
    run(move || {
        let mutex = std::sync::Arc::new(GoMutex::new(0));
        let handles: Vec<_> = (0..1000)
            .map(|n| {
                let mutex = mutex.clone();
                spawn(move || {
                    is_in(&[]);
                    let outer = info_span!("outer", n);
                    let entered = outer.clone().entered();
                    for round in 0..10 {
                        is_in(&[&outer]);
                        waits(n + round, &mutex);
                        is_in(&[&outer]);
                        let inner = info_span!("inner", n, round);
                        inner.in_scope(|| {
                            waits(n * 7 + round, &mutex);
                            is_in(&[&inner, &outer]);
                        });
                    }
                    is_in(&[&outer]);
                    drop(entered);
                    gosched();
                    is_in(&[]);
                })
            })
            .collect();
        for handle in handles {
            handle.join().unwrap();
            watchdog.pat();
        }
    });
}

/// A span in which `run` was called is not around the goroutines, and is the current span again when `run` has
/// returned.
#[test]
fn a_run_in_a_span() {
    let (_watchdog, _alone) = (Watchdog::new(), alone());
    let outer = info_span!("outer");
    let entered = outer.clone().entered();
    run(|| {
        let own = info_span!(parent: None, "own");
        let guard = own.clone().entered();
        gosched();
        is_in(&[&own]);
        let other = spawn(|| {
            let own = info_span!(parent: None, "other");
            let _own = own.clone().entered();
            gosched();
            is_in(&[&own]);
        });
        other.join().unwrap();
        is_in(&[&own]);
        drop(guard);
    });
    is_in(&[&outer]);
    drop(entered);
    is_in(&[]);
    assert_eq!(spans(), "");
}

/// A goroutine that leaks its guard takes its span with it.
#[test]
fn a_leaked_guard() {
    let (_watchdog, _alone) = (Watchdog::new(), alone());
    run(|| {
        spawn(|| std::mem::forget(info_span!("leaked").entered())).join().unwrap();
        is_in(&[]);
        spawn(|| is_in(&[])).join().unwrap();
        go_async(async { is_in(&[]) });
        gosched();
    });
    is_in(&[]);
}

// ---- hooks ----------------------------------------------------------------------------------------------------------

/// The threads that the hooks have seen. The flag is true while the thread has a goroutine.
static HERE: Mutex<Option<HashMap<ThreadId, bool>>> = Mutex::new(None);
static BEGUN: AtomicUsize = AtomicUsize::new(0);
static ENDED: AtomicUsize = AtomicUsize::new(0);
static WAITS: AtomicUsize = AtomicUsize::new(0);

fn enter(why: Entering) {
    let before = HERE.lock().unwrap().get_or_insert_default().insert(here(), true);
    assert!(!before.unwrap_or(false), "two goroutines have one worker");
    BEGUN.fetch_add(usize::from(why == Entering::Begins), SeqCst);
}

sudog::goroutine_local! {
    /// The number of leaves that a hook has counted for a goroutine.
    static VISITS: std::cell::Cell<u32> = std::cell::Cell::new(0);
}

fn leave(why: Leaving) {
    VISITS.with(|visits| visits.set(visits.get() + 1));
    let before = HERE.lock().unwrap().get_or_insert_default().insert(here(), false);
    assert!(before.unwrap_or(false), "no goroutine has the worker");
    ENDED.fetch_add(usize::from(why == Leaving::Ends), SeqCst);
    WAITS.fetch_add(usize::from(why == Leaving::Waits), SeqCst);
}

/// A goroutine-local that the last hook of a goroutine uses does not pass to the next goroutine, which has the same
/// stack.
#[test]
fn a_hook_uses_a_goroutine_local_at_the_end() {
    let (_watchdog, _alone) = (Watchdog::new(), alone());
    run(|| {
        for _ in 0..10 {
            assert_eq!(spawn(|| VISITS.with(std::cell::Cell::get)).join().unwrap(), 0);
        }
    });
}

/// Entries and exits alternate on each worker, whatever goroutines and tasks do: also when they end by a panic, or by
/// `goexit`.
#[test]
fn hooks_alternate() {
    let (_watchdog, _alone) = (Watchdog::new(), alone());
    let begun_before = BEGUN.load(SeqCst);
    run(|| {
        let (ch, done) = (Chan::new(0), std::sync::Arc::new(WaitGroup::new()));
        for n in 0..100 {
            let ch = ch.clone();
            done.go(move || ch.send(n));
            go_async(async { sudog::time::sleep_async(std::time::Duration::from_micros(10)).await });
        }
        (0..100).for_each(|_| assert!(ch.recv().is_some()));
        done.wait();
        assert!(spawn(|| panic!("a goroutine's")).join().is_err());
        assert!(spawn(|| sudog::runtime::goexit()).join().is_err());
        for _ in 0..10 {
            let ch = ch.clone();
            sudog::go(move || _ = ch.recv());
        }
        gosched();
        ch.close();
    });
    let (begun, ended) = (BEGUN.load(SeqCst), ENDED.load(SeqCst));
    assert!(begun - begun_before >= 202 && WAITS.load(SeqCst) > 0, "{begun_before}, {begun}");
    support::eventually(|| BEGUN.load(SeqCst) == ENDED.load(SeqCst));
    assert!(ended <= begun);
    let nothing = SwitchHooks { enter: |_| (), leave: |_| () };
    let added = std::iter::repeat_with(|| add_switch_hooks(nothing)).take_while(Result::is_ok).count();
    assert_eq!(added, 2, "the spans' and this test's are there");
    assert_eq!(add_switch_hooks(nothing), Err(TooManySwitchHooks));
}
