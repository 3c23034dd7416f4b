//! Tests of code that waits for the clock, without waiting: Go's package `testing/synctest`.
//!
//! [`test`](fn@test) runs a function in a *bubble*: on a worker and with a clock of the bubble's own. The clock stands
//! still while a goroutine of the bubble can run. When all goroutines of the bubble wait, the clock jumps to the next
//! time for which a goroutine waits. So a day of sleeps takes no time, and each duration is exact.
//!
//! | in a bubble | is |
//! |---|---|
//! | [`now`](crate::goroutine::now) | the bubble's time. `Instant::now()` of `std` is not: a deadline made from `Instant::now()` is wrong |
//! | sleeps, timers, tickers, deadlines, contexts | by the bubble's clock |
//! | waits for channels, locks, wait groups, semaphores, conditions | *durable*: while all goroutines are in such a wait, the clock may jump. (In Go a wait for a mutex is not durable) |
//! | [`blocking`](fn@crate::goroutine::blocking) calls | not durable: the clock stands still until the calls return |
//! | calls of sockets | not durable either: so a deadline by the bubble's clock does not end such a call. (In Go a context's deadline does not end the call either; a socket's own deadline does, by the system's clock) |
//!
//! The clock does not wait for a thread outside of the bubble that would wake a goroutine: let the test be
//! self-contained, as in Go. Locks and semaphores over the waiting arrays of the feature `locks` are not
//! self-contained: the process shares their buckets, so a release by another thread may have taken a waiter of the
//! bubble out of a bucket, and the clock may jump before that thread readies the waiter.
//!
//! When the function given to `test` has ended, time stops, and `test` waits for the other goroutines. Goroutines that
//! can never run again are leaks: `test` panics, and names these goroutines and their waits.
//!
//! Source: Go's `testing/synctest` and `runtime/synctest.go` (1.27).
//!
//! # Examples
//!
//! ```
//! use std::time::Duration;
//! use sudog::{go, synctest};
//! use sudog::time::{now, sleep};
//!
//! const HOUR: Duration = Duration::from_secs(3600);
//!
//! synctest::test(|| {
//!     let begun = now();
//!     go(move || {
//!         sleep(HOUR);
//!         assert_eq!(now() - begun, HOUR);
//!     });
//!     sleep(24 * HOUR);
//!     assert_eq!(now() - begun, 24 * HOUR);
//! });
//! ```

use std::panic::resume_unwind;
use std::time::Duration;

use crate::goroutine::Goexit;
use crate::goroutine::native::fibre::current;
use crate::goroutine::native::sched::bubble::{self, AtRest};
use crate::goroutine::native::time;

/// Runs `f` in a new bubble, and returns its result when all goroutines of the bubble have ended. The calling thread waits.
///
/// `f` must be `'static`: if `f` waits for ever, this function panics, and leaves `f` in that wait.
///
/// # Panics
///
/// If `f` panics. Also
///
/// * `deadlock: all goroutines in bubble are blocked`, if `f` waits for an event that can no longer come;
/// * `deadlock: main bubble goroutine has exited but blocked goroutines remain`, with a list of them, if `f` leaves
///   goroutines behind that wait for an event that can no longer come, or for a time after the end of `f`;
/// * if the caller is a goroutine, even in another bubble; or if `f` calls `goexit`.
///
/// Goroutines that are left behind stay in their waits, and the thread of the bubble's worker stays, too.
///
/// # Examples
///
/// Durations are exact.
///
/// ```
/// use std::time::Duration;
/// use sudog::synctest;
/// use sudog::time::{after, now};
///
/// synctest::test(|| {
///     let timer = after(Duration::from_secs(5));
///     let begun = now();
///     timer.recv();
///     assert_eq!(now() - begun, Duration::from_secs(5));
/// });
/// ```
///
/// A goroutine that is left behind is named.
///
/// ```should_panic
/// use sudog::{Builder, synctest};
/// use sudog::low_level::sema::semacquire;
/// use std::sync::atomic::AtomicU32;
///
/// static NEVER: AtomicU32 = AtomicU32::new(0);
///
/// synctest::test(|| Builder::new().name("forgotten").go(|| semacquire(&NEVER)));
/// ```
#[track_caller]
pub fn test<T, F>(f: F) -> T
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    assert!(current::fibre().is_none(), "synctest: test was called from a goroutine");
    let AtRest { result, left } = bubble::run(f);
    match result {
        Some(Ok(result)) if left.is_empty() => result,
        Some(Ok(result)) => {
            drop(result);
            panic!("deadlock: main bubble goroutine has exited but blocked goroutines remain\n\n{left}")
        }
        Some(Err(payload)) if !payload.is::<Goexit>() => resume_unwind(payload),
        Some(Err(_)) if left.is_empty() => panic!("synctest: the main goroutine of the bubble called goexit"),
        Some(Err(_)) | None => panic!("deadlock: all goroutines in bubble are blocked\n\n{left}"),
    }
}

/// Waits until every other goroutine of the bubble waits, and none of them can run before the clock jumps.
///
/// # Panics
///
/// If the caller is in no bubble (`goroutine is not in a bubble`), or another goroutine of the bubble is in this call
/// (`wait already in progress`).
///
/// # Examples
///
/// ```
/// use std::sync::atomic::{AtomicBool, Ordering};
/// use sudog::{go, synctest};
///
/// static DONE: AtomicBool = AtomicBool::new(false);
///
/// synctest::test(|| {
///     go(|| DONE.store(true, Ordering::Relaxed));
///     synctest::wait(); // the goroutine has ended
///     assert!(DONE.load(Ordering::Relaxed));
/// });
/// ```
#[track_caller]
pub fn wait() {
    bubble::wait();
}

/// Sleeps, then waits for the other goroutines: [`sleep`](crate::goroutine::sleep) and [`wait`]. For a test that sleeps
/// until the same instant as the code under test, and must go on after that code.
///
/// # Panics
///
/// If [`wait`] panics.
#[track_caller]
pub fn sleep(d: Duration) {
    time::sleep(d);
    wait();
}
