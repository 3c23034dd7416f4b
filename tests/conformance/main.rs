//! The contracts that every lock, readers-writer lock and semaphore must keep: the laboratory's suite for each trait,
//! on real threads, compiled for every backend in its registries, both the project's and others'.
#![cfg(all(feature = "locks", not(sudog_loom)))]

mod bounded;
mod locks;
mod rw_locks;
mod semaphores;

use std::sync::{Mutex, PoisonError};

use sudog_lab_core::conformance::Check;
use sudog_lab_core::conformance::semaphores::waiters_spin;

/// The check that a test runs.
struct Named {
    check: &'static str,
    /// The number of checks that have a test.
    of: usize,
}

impl Named {
    /// Runs the check of this name from the suite of the backend `B`.
    ///
    /// Checks whose waiters spin run after each other: two of them have more spinning threads than two processors run, so each
    /// would wait for time slices of the other.
    fn check<B>(&self, suite: &[Check]) {
        static SPINS: Mutex<()> = Mutex::new(());
        let _turn = waiters_spin::<B>().then(|| SPINS.lock().unwrap_or_else(PoisonError::into_inner));
        assert_eq!(suite.len(), self.of, "each check of the suite has a test");
        let _watchdog = support::Watchdog::new();
        let (_, check) = suite.iter().find(|(name, _)| *name == self.check).expect("a check of the suite");
        check(support::pat);
    }
}

/// Makes a module for each backend of a registry, and in that module a `#[test]` for each check: a failure names both.
/// A backend that is missing here is a compile error.
///
/// A registry calls one job for each of its backends, so the tests share a job, [`Named`]: a separate job for each test
/// would be compiled for each backend.
macro_rules! over_every_backend {
    (
        $with:ident of $Name:ident;
        backends { $($(#[$cfg:meta])* $module:ident = $Variant:ident;)+ }
        checks $checks:tt
    ) => {
        $($(#[$cfg])* mod $module {
            crate::over_every_backend!(@checks $with, $Name::$Variant, $checks);
        })+

        const _: fn($Name) = |name| match name { $($(#[$cfg])* $Name::$Variant => (),)+ };
    };
    (@checks $with:ident, $name:expr, { $($check:ident)+ }) => {
        use super::*;
        const OF: usize = [$(stringify!($check)),+].len();
        $(#[test] fn $check() {
            $with($name, crate::Named { check: stringify!($check), of: OF });
        })+
    };
}
use over_every_backend;
