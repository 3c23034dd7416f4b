//! A check over threads, and over goroutines.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;

use sudog_runtime::goroutine;

use crate::eventually;

/// What Go's `go` statement and its neighbours are in a check. Closures are boxed, so that the start of a thread or goroutine is
/// not compiled anew for each of them.
pub trait Kind: 'static {
    /// How many are many.
    const MANY: usize;

    /// Runs the check.
    fn run(check: impl FnOnce() + Send);
    /// Starts another thread or goroutine.
    fn go(f: impl FnOnce() + Send + 'static);

    /// Lets others run.
    fn gosched();

    /// Waits for a state; the watchdog barks if it never comes.
    fn until(state: impl Fn() -> bool);
}

/// Over threads.
pub enum Threads {}

impl Kind for Threads {
    const MANY: usize = 64;

    fn run(check: impl FnOnce() + Send) {
        check();
    }

    fn go(f: impl FnOnce() + Send + 'static) {
        thread::spawn(Box::new(f) as Box<dyn FnOnce() + Send>);
    }

    fn gosched() {
        thread::yield_now();
    }

    fn until(state: impl Fn() -> bool) {
        eventually(state);
    }
}

/// Over goroutines.
pub enum Goroutines {}

impl Kind for Goroutines {
    const MANY: usize = 200;

    fn run(check: impl FnOnce() + Send) {
        goroutine::run(Box::new(check) as Box<dyn FnOnce() + Send + '_>);
    }

    fn go(f: impl FnOnce() + Send + 'static) {
        goroutine::go(Box::new(f) as Box<dyn FnOnce() + Send>);
    }

    fn gosched() {
        goroutine::gosched();
    }

    fn until(state: impl Fn() -> bool) {
        while !state() {
            goroutine::gosched();
        }
    }
}

/// Runs `f` in `n` threads or goroutines, with their numbers, and waits for all of them.
pub fn together<K: Kind>(n: usize, f: impl Fn(usize) + Send + Sync + 'static) {
    let (f, running) = (Arc::new(f), Arc::new(AtomicUsize::new(n)));
    for i in 0..n {
        let (f, running) = (f.clone(), running.clone());
        K::go(move || {
            f(i);
            running.fetch_sub(1, SeqCst);
        });
    }
    K::until(|| running.load(SeqCst) == 0);
}

/// A `#[test]` for each check over each kind.
#[macro_export]
macro_rules! over_threads_and_goroutines {
    ($($check:ident)+) => {
        mod threads {
            $($crate::over_threads_and_goroutines!(@ $check $crate::kinds::Threads);)+
        }
        mod goroutines {
            $($crate::over_threads_and_goroutines!(@ $check $crate::kinds::Goroutines);)+
        }
    };
    (@ $check:ident $Kind:ty) => {
        #[test]
        fn $check() {
            let _watchdog = $crate::Watchdog::new();
            <$Kind as $crate::kinds::Kind>::run(super::$check::<$Kind>);
        }
    };
}
