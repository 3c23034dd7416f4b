//! The allocations of contexts: a wait makes none, and the creation of a context makes no more than in Go.
#![cfg(all(unix, not(sudog_loom)))]

use std::sync::atomic::AtomicU32;
use std::thread;
use std::time::{Duration, Instant};

use sudog::context::{Context, Error, Key, background, with_cancel, with_timeout, with_value};
use sudog::low_level::sema::{Order, semacquire_limited, waiters};
use support::counting::{allocations, without_allocating};
use support::{Watchdog, eventually};

/// Go: `TestAllocs`, with its limits. The last column has the limits of this project, where they are lower.
#[test]
fn allocs() {
    static KEY: Key<u64> = Key::new("k");
    #[track_caller]
    fn check(go: u64, ours: u64, f: impl Fn()) {
        f(); // the first call starts the watcher, and makes a few things
        for _ in 0..10 {
            let (made, ()) = allocations(&f);
            assert!(made <= ours && ours <= go, "{made} allocations");
        }
    }
    check(0, 0, || drop(background()));
    check(3, 2, || assert!(with_value(&background(), &KEY, 7).value(&KEY).is_some()));
    check(12, 4, || {
        let (ctx, _cancel) = with_timeout(&background(), Duration::from_nanos(1));
        ctx.wait();
    });
    check(5, 2, || {
        let (ctx, cancel) = with_cancel(&background());
        cancel.cancel();
        ctx.wait();
    });
    check(8, 4, || {
        let (ctx, cancel) = with_timeout(&background(), Duration::from_millis(5));
        cancel.cancel();
        ctx.wait();
    });
}

#[test]
fn a_wait_allocates_nothing() {
    let _watchdog = Watchdog::new();
    let soon = || Instant::now() + Duration::from_millis(1);
    let (ctx, cancel) = with_cancel(&background());
    let (timed, _cancel) = with_timeout(&ctx, Duration::from_millis(5));
    without_allocating(|| {
        assert!(!ctx.wait_until(soon()));
        assert!(!background().wait_until(soon()));
        assert_eq!(ctx.sleep(Duration::from_millis(1)), Ok(()));
        assert_eq!(timed.wait(), Error::DeadlineExceeded);
        assert_eq!((timed.err(), ctx.err()), (Some(Error::DeadlineExceeded), None));
    });
    let permits = AtomicU32::new(0);
    let acquire = |ctx: &Context| ctx.limited(|limit| semacquire_limited(&permits, Order::Fifo, limit));
    thread::scope(|s| {
        for _ in 0..3 {
            s.spawn(|| without_allocating(|| assert_eq!(acquire(&ctx.clone()), Err(Error::Canceled))));
        }
        eventually(|| waiters(&permits) == 3);
        without_allocating(|| cancel.cancel());
    });
}
