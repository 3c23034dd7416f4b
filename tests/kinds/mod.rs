//! A check over threads, and over goroutines.
#![allow(dead_code)] // compiled into each suite, and none needs all of it

use std::sync::Mutex;
use std::thread;

use sudog_runtime::goroutine;

use crate::common::eventually;

/// What Go's `go` statement and its neighbours are in a check.
pub trait Kind: 'static {
    /// How many are many.
    const MANY: usize;

    /// Runs the check.
    fn run(check: impl FnOnce());
    fn go(f: impl FnOnce() + Send + 'static);
    fn gosched();

    /// Waits for a state; the watchdog barks if it never comes.
    fn until(state: impl Fn() -> bool);
}

pub enum Threads {}

impl Kind for Threads {
    const MANY: usize = 64;

    fn run(check: impl FnOnce()) {
        check();
    }

    fn go(f: impl FnOnce() + Send + 'static) {
        thread::spawn(f);
    }

    fn gosched() {
        thread::yield_now();
    }

    fn until(state: impl Fn() -> bool) {
        eventually(state);
    }
}

pub enum Goroutines {}

impl Kind for Goroutines {
    const MANY: usize = 200;

    fn run(check: impl FnOnce()) {
        run(check);
    }

    fn go(f: impl FnOnce() + Send + 'static) {
        goroutine::go(f);
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

/// [`goroutine::run`], one at a time in a suite: when it ends, it ends what its worker has, whoever started that.
pub fn run<T>(main: impl FnOnce() -> T) -> T {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = crate::common::turn(&TURN);
    goroutine::run(main)
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
            let _watchdog = $crate::common::Watchdog::new();
            <$Kind as $crate::kinds::Kind>::run(super::$check::<$Kind>);
        }
    };
}
