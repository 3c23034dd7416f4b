//! The lock of the library's own data, as a module of this test.
#![cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64", not(sudog_loom), not(sudog_sim)))]

#[path = "../src/errno.rs"]
mod errno;
#[path = "../src/futex.rs"]
mod futex;
#[path = "../src/futex_lock.rs"]
mod futex_lock;

use std::sync::atomic::AtomicI32;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use futex_lock::FutexLock;

/// A waiter gives its processor up, so that an owner of lower priority can run. A waiter that yields would run for ever.
#[test]
fn a_waiter_sleeps_and_keeps_errno() {
    static LOCK: FutexLock = FutexLock::new();
    static WAITER: AtomicI32 = AtomicI32::new(0);
    LOCK.lock();
    let waiter = thread::spawn(|| {
        // SAFETY: the calls have no precondition, and the pointer is to this thread's `errno`.
        unsafe {
            *libc::__errno_location() = libc::ENOENT;
            WAITER.store(libc::gettid(), Relaxed);
            LOCK.lock();
            LOCK.unlock();
            *libc::__errno_location()
        }
    });
    let deadline = Instant::now() + Duration::from_secs(60);
    while WAITER.load(Relaxed) == 0 || state_of(WAITER.load(Relaxed)) != 'S' {
        assert!(Instant::now() < deadline, "the waiter does not sleep");
        thread::sleep(Duration::from_millis(1));
    }
    LOCK.unlock();
    assert_eq!(waiter.join().unwrap(), libc::ENOENT);
}

/// Returns the state of a thread of this process, which waits for nothing but the lock.
fn state_of(thread: i32) -> char {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap();
    stat.rsplit_once(") ").unwrap().1.chars().next().unwrap()
}
