//! Runs a check over threads, and over goroutines.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;

use sudog_runtime::goroutine;

use crate::eventually;

/// The counterparts of Go's `go` statement and its neighbours in a check. Closures are boxed, so that the start of a
/// thread or goroutine is not compiled anew for each closure.
pub trait Kind: 'static {
    /// A number of threads or goroutines that counts as many.
    const MANY: usize;

    /// Runs the check.
    fn run(check: impl FnOnce() + Send);
    /// Starts another thread or goroutine.
    fn go(f: impl FnOnce() + Send + 'static);

    /// Yields to other threads or goroutines.
    fn gosched();

    /// Waits for a state. If the state never comes, the watchdog ends the process.
    fn until(state: impl Fn() -> bool);
}

/// The kind that runs checks over threads.
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

/// The kind that runs checks over goroutines.
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
        crate::goroutine::until(state);
    }
}

/// Runs `f` in `n` threads or goroutines, each with its number, and waits for all of them.
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

/// Makes a `#[test]` for each check over each kind.
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
