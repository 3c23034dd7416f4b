//! The checks of locks and readers-writer locks, over a semaphore behind a capacitor. The semaphore inside is the most
//! unfair: last come, first served.

use sudog::locks::capacitor::Bounded;
use sudog::study::stages::{V1, V2, V3, V4, V5, V6, V7, V8};
use sudog::sync::{GoMutex, GoRwMutex};
use sudog_lab_core::conformance::{Check, locks, rw_locks};
use sudog_lab_core::semaphores::RuntimeLifo;

type Sema = Bounded<RuntimeLifo>;

fn run(suite: &[Check]) {
    for (_, check) in suite {
        let _watchdog = support::Watchdog::new();
        check(support::pat);
    }
}

macro_rules! suites {
    ($($name:ident: $checks:ident of $Lock:ty;)+) => {
        $(#[test] fn $name() { run(&$checks::checks::<$Lock>()); })+
    };
}

suites! {
    v1: locks of V1<Sema>;
    v2: locks of V2<Sema>;
    v3: locks of V3<Sema>;
    v4: locks of V4<Sema>;
    v5: locks of V5<Sema>;
    v6: locks of V6<Sema>;
    v7: locks of V7<Sema>;
    v8: locks of V8<Sema>;
    go: locks of GoMutex<Sema>;
    rw: rw_locks of GoRwMutex<GoMutex<Sema>, Sema>;
}
