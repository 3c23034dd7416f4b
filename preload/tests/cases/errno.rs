//! `errno`, which no function of mutexes, conditions and readers-writer locks changes.

use std::sync::atomic::AtomicI32;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;

use libc::{CLOCK_REALTIME, ETIMEDOUT, c_int};

use super::posix::{Cond, Mutex, OK, RwLock, after, elsewhere, is_asleep, until};

/// Asserts that `call` returns `result`, and leaves `errno` as it is.
#[track_caller]
fn keeps(result: c_int, call: impl FnOnce() -> c_int) {
    // SAFETY: no precondition. The pointer is to the calling thread's `errno`.
    let errno = unsafe {
        *libc::__errno_location() = libc::ENOENT;
        let returned = call();
        let errno = *libc::__errno_location();
        assert_eq!(returned, result);
        errno
    };
    assert_eq!(errno, libc::ENOENT);
}

pub fn waits_that_time_out() {
    let (mutex, mine, cond, read, written) =
        (Mutex::normal(), Mutex::normal(), Cond::new(), RwLock::new(), RwLock::new());
    assert_eq!((mutex.lock(), read.read(), written.write()), (OK, OK, OK));
    elsewhere(|| {
        let soon = || after(CLOCK_REALTIME, 2);
        keeps(ETIMEDOUT, || mutex.timed_lock(soon()));
        keeps(ETIMEDOUT, || mutex.clock_lock(CLOCK_REALTIME, soon()));
        keeps(ETIMEDOUT, || written.timed_read(soon()));
        keeps(ETIMEDOUT, || written.timed_write(soon()));
        keeps(ETIMEDOUT, || read.timed_write(soon()));
        assert_eq!(mine.lock(), OK);
        keeps(ETIMEDOUT, || cond.timed_wait(&mine, soon()));
        keeps(OK, || mine.unlock());
    });
}

/// A signal interrupts the sleep of a wait, which goes on.
pub fn a_wait_that_a_signal_interrupts() {
    static HANDLED: AtomicI32 = AtomicI32::new(0);
    extern "C" fn note(_: c_int) {
        HANDLED.store(1, Relaxed);
    }
    // SAFETY: all bits zero is a valid `sigaction`, with no flags: system calls are not restarted. The handler uses an
    // atomic only.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = note as *const () as usize;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()), 0);
    }
    let (mutex, cond, waiter, go) = (Mutex::normal(), Cond::new(), AtomicI32::new(0), AtomicI32::new(0));
    thread::scope(|s| {
        s.spawn(|| {
            assert_eq!(mutex.lock(), OK);
            // SAFETY: no precondition.
            waiter.store(unsafe { libc::gettid() }, Relaxed);
            while go.load(Relaxed) == 0 {
                keeps(OK, || cond.wait(&mutex));
            }
            assert_eq!(mutex.unlock(), OK);
        });
        until(|| waiter.load(Relaxed) != 0);
        assert_eq!((mutex.lock(), mutex.unlock()), (OK, OK)); // so the waiter is in the condition
        let waiter = waiter.load(Relaxed);
        until(|| is_asleep(waiter));
        // SAFETY: the thread lives until the end of the scope.
        assert_eq!(unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), waiter, libc::SIGUSR1) }, 0);
        until(|| HANDLED.load(Relaxed) == 1);
        assert_eq!(mutex.lock(), OK);
        go.store(1, Relaxed);
        assert_eq!((cond.signal(), mutex.unlock()), (OK, OK));
    });
}
