//! Go's tests of its wait group, over threads and over goroutines; and the exact texts of misuse.
#![cfg(all(unix, not(sudog_loom)))]

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::time::{Duration, Instant};

use sudog::runtime::{goexit, gosched};
use sudog::sync::WaitGroup;
use sudog::{Cancel, WaitError, WaitLimit, spawn, without_switching};
use support::goroutine::one_worker;
use support::kinds::Kind;
use support::{Watchdog, test_command};

support::over_threads_and_goroutines! {
    wait_group wait_group_race wait_group_align wait_group_go many_waits
    the_group_may_be_freed_when_the_wait_is_over
    a_wait_until_a_deadline a_cancelled_wait limits_and_the_end_at_once
}

/// Go: `TestWaitGroup`.
fn wait_group<K: Kind>() {
    const N: usize = 16;
    let groups = Arc::new((WaitGroup::new(), WaitGroup::new()));
    for _ in 0..8 {
        let exited = Arc::new(AtomicUsize::new(0));
        groups.0.add(N as i32);
        groups.1.add(N as i32);
        for _ in 0..N {
            let (groups, exited) = (groups.clone(), exited.clone());
            K::go(move || {
                groups.0.done();
                groups.1.wait();
                exited.fetch_add(1, SeqCst);
            });
        }
        groups.0.wait();
        for _ in 0..N {
            assert_eq!(exited.load(SeqCst), 0, "released too soon");
            groups.1.done();
        }
        K::until(|| exited.load(SeqCst) == N);
    }
}

/// Go: `TestWaitGroupRace`.
fn wait_group_race<K: Kind>() {
    for _ in 0..1000 {
        let w = Arc::new((WaitGroup::new(), AtomicUsize::new(0)));
        for _ in 0..2 {
            w.0.add(1);
            let w = w.clone();
            K::go(move || {
                w.1.fetch_add(1, Relaxed);
                w.0.done();
            });
        }
        w.0.wait();
        assert_eq!(w.1.load(Relaxed), 2, "a spurious return");
    }
}

/// Go: `TestWaitGroupAlign`.
fn wait_group_align<K: Kind>() {
    #[repr(C)]
    struct Unaligned {
        _byte: u8,
        group: WaitGroup,
    }
    let x = Arc::new(Unaligned { _byte: 0, group: WaitGroup::new() });
    x.group.add(1);
    let other = x.clone();
    K::go(move || other.group.done());
    x.group.wait();
}

/// Go: `TestWaitGroupGo`.
fn wait_group_go<K: Kind>() {
    let w = Arc::new((AtomicUsize::new(0), Arc::new(WaitGroup::new())));
    let other = w.clone();
    w.1.go(move || other.0.store(1, Relaxed));
    w.1.wait();
    assert_eq!(w.0.load(Relaxed), 1);
    w.1.go(|| goexit());
    w.1.wait();
}

// ---- not in Go ------------------------------------------------------------------------------------------------------

fn many_waits<K: Kind>() {
    let w = Arc::new((WaitGroup::new(), AtomicUsize::new(0)));
    for _ in 0..5 {
        w.1.store(0, SeqCst);
        w.0.add(3);
        for _ in 0..K::MANY {
            let w = w.clone();
            K::go(move || {
                w.0.wait();
                w.1.fetch_add(1, SeqCst);
            });
        }
        K::until(|| format!("{:?}", w.0) == format!("WaitGroup {{ counter: 3, waiters: {} }}", K::MANY));
        w.0.add(-2);
        assert_eq!(w.1.load(SeqCst), 0);
        w.0.done();
        K::until(|| w.1.load(SeqCst) == K::MANY);
        assert_eq!(format!("{:?}", w.0), "WaitGroup { counter: 0, waiters: 0 }");
    }
}

/// Frees the group as soon as the wait is over. The group is on the waiter's stack: a `done` that touched the group too
/// late would touch another frame. (Only a sanitizer can make this test fail.)
fn the_group_may_be_freed_when_the_wait_is_over<K: Kind>() {
    struct Shared(*const WaitGroup);
    // SAFETY: the group is alive until its last `done`.
    unsafe impl Send for Shared {}
    for _ in 0..200 {
        let group = WaitGroup::new();
        for _ in 0..4 {
            group.add(1);
            let shared = Shared(&raw const group);
            K::go(move || {
                let Shared(group) = { shared };
                // SAFETY: the group is alive, because the frame that owns the group waits for this `done`.
                unsafe { (*group).done() };
            });
        }
        group.wait();
    }
}

fn a_wait_until_a_deadline<K: Kind>() {
    let w = WaitGroup::new();
    assert!(w.wait_limited(Instant::now()).is_ok(), "no tasks");
    w.add(1);
    for millis in [0, 2] {
        let deadline = Instant::now() + Duration::from_millis(millis);
        assert!(w.wait_limited(deadline).is_err());
        assert!(Instant::now() >= deadline);
        assert_eq!(format!("{w:?}"), "WaitGroup { counter: 1, waiters: 0 }");
    }
    w.done();
    assert!(w.wait_limited(Instant::now()).is_ok());
}

fn a_cancelled_wait<K: Kind>() {
    let w = Arc::new((WaitGroup::new(), Cancel::new(), AtomicUsize::new(0)));
    w.0.add(1);
    let other = w.clone();
    K::go(move || {
        let limit = WaitLimit { cancel: Some(&other.1), deadline: None };
        assert_eq!(other.0.wait_limited(&limit), Err(WaitError::Cancelled));
        other.2.fetch_add(1, SeqCst);
    });
    K::until(|| format!("{:?}", w.0) == "WaitGroup { counter: 1, waiters: 1 }");
    w.1.cancel();
    K::until(|| w.2.load(SeqCst) == 1);
    assert_eq!(format!("{:?}", w.0), "WaitGroup { counter: 1, waiters: 0 }");
}

/// Checks waits that end by a deadline, by a cancel, or by the last task, about at once: all waits end, and the group
/// is as new.
fn limits_and_the_end_at_once<K: Kind>() {
    for round in 0..100 {
        let w = Arc::new((WaitGroup::new(), Cancel::new(), AtomicUsize::new(0)));
        w.0.add(1);
        for waiter in 0..6 {
            let w = w.clone();
            K::go(move || {
                let deadline = Instant::now() + Duration::from_micros(50 * waiter);
                let over = match waiter % 3 {
                    0 => w.0.wait_limited(&WaitLimit::default()),
                    1 => w.0.wait_limited(&WaitLimit::until(deadline)),
                    _ => w.0.wait_limited(&WaitLimit { cancel: Some(&w.1), deadline: None }),
                };
                assert!(waiter % 3 != 0 || over.is_ok());
                w.2.fetch_add(1, SeqCst);
            });
        }
        let other = w.clone();
        K::go(move || other.1.cancel());
        (0..round).for_each(|_| K::gosched());
        w.0.done();
        K::until(|| w.2.load(SeqCst) == 6);
        assert_eq!(format!("{:?}", w.0), "WaitGroup { counter: 0, waiters: 0 }");
        w.0.add(1);
        assert!(w.0.wait_limited(Instant::now()).is_err(), "a permit was left behind");
    }
}

fn panics(f: impl FnOnce()) -> String {
    let payload = catch_unwind(AssertUnwindSafe(f)).expect_err("a panic");
    match payload.downcast::<String>() {
        Ok(text) => *text,
        Err(payload) => (*payload.downcast::<&str>().expect("a text")).to_owned(),
    }
}

/// Go: `TestWaitGroupMisuse`.
#[test]
fn wait_group_misuse() {
    let text = panics(|| {
        let group = WaitGroup::new();
        group.add(1);
        group.done();
        group.done();
    });
    assert_eq!(text, "sync: negative WaitGroup counter");
}

/// Runs on one worker, so that the woken waiter does not run before the next round has begun.
#[test]
fn a_round_begun_before_the_last_wait_has_returned() {
    let _watchdog = Watchdog::new();
    let text = one_worker(|| {
        let group = Arc::new(WaitGroup::new());
        group.add(1);
        let waiter = group.clone();
        let handle = spawn(move || waiter.wait());
        while format!("{group:?}") != "WaitGroup { counter: 1, waiters: 1 }" {
            gosched();
        }
        without_switching(|| {
            group.done();
            group.add(1);
        });
        panics(|| {
            handle.join().unwrap_or_else(|payload| std::panic::resume_unwind(payload));
        })
    });
    assert_eq!(text, "sync: WaitGroup is reused before previous Wait has returned");
}

/// Go: `TestIssue76126`. The test runs itself again as a child process.
#[test]
fn issue_76126() {
    const CHILD: &str = "SUDOG_TEST_ISSUE_76126";
    if std::env::var(CHILD).is_ok() {
        let group = Arc::new(WaitGroup::new());
        group.go(|| panic!("by intent"));
        group.wait();
        // Write to standard error directly: the harness captures printed output.
        let _ = writeln!(std::io::stderr(), "wait has returned");
        std::process::exit(0);
    }
    let child = test_command(module_path!(), "issue_76126").env(CHILD, "1").stdout(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&child.stderr);
    assert_eq!(child.status.code(), Some(2), "{said}");
    assert!(said.contains("panic: by intent") && !said.contains("wait has returned"), "{said}");
}
