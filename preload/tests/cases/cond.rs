//! Conditions.

use std::cell::Cell;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicI32, AtomicU32};
use std::thread;

use libc::{EBUSY, EINVAL, EPERM, ETIMEDOUT};

use super::is_replaced;
use super::posix::{Cond, INVALID, Mutex, OK, after, is_asleep, takes, until};

/// Runs `f` under the mutex.
fn under<T>(mutex: &Mutex, f: impl FnOnce() -> T) -> T {
    assert_eq!(mutex.lock(), OK);
    let result = f();
    assert_eq!(mutex.unlock(), OK);
    result
}

pub fn a_signal_wakes_a_waiter() {
    let (mutex, cond, turn) = (Mutex::normal(), Cond::new(), AtomicU32::new(0));
    assert_eq!((cond.signal(), cond.broadcast()), (OK, OK)); // no thread waits
    let play = |me: u32| {
        for _ in 0..20 {
            under(&mutex, || {
                while turn.load(Relaxed) % 2 != me {
                    assert_eq!(cond.wait(&mutex), OK);
                }
                turn.fetch_add(1, Relaxed);
                assert_eq!(cond.signal(), OK);
            });
        }
    };
    thread::scope(|s| {
        s.spawn(|| play(0));
        s.spawn(|| play(1));
    });
    assert_eq!(turn.load(Relaxed), 40);
    assert_eq!(cond.destroy(), OK);
}

/// No signal is lost, and none wakes two.
pub fn as_many_signals_as_waiters() {
    let (mutex, cond) = (Mutex::normal(), Cond::new());
    let (waiting, woken) = (AtomicU32::new(0), AtomicU32::new(0));
    thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                under(&mutex, || {
                    waiting.fetch_add(1, Relaxed);
                    assert_eq!(cond.wait(&mutex), OK);
                    woken.fetch_add(1, Relaxed);
                });
            });
        }
        until(|| under(&mutex, || waiting.load(Relaxed) == 4));
        for n in 1..=4 {
            // With the mutex, and without.
            if n % 2 == 0 {
                under(&mutex, || assert_eq!(cond.signal(), OK));
            } else {
                assert_eq!(cond.signal(), OK);
            }
            until(|| woken.load(Relaxed) == n);
        }
    });
}

pub fn a_broadcast_wakes_all() {
    let (mutex, cond, round) = (Mutex::normal(), Cond::new(), AtomicU32::new(0));
    let (arrived, begun) = (AtomicU32::new(0), AtomicU32::new(0));
    thread::scope(|s| {
        for _ in 0..3 {
            s.spawn(|| {
                begun.fetch_add(1, Relaxed);
                for _ in 0..10 {
                    under(&mutex, || {
                        let now = round.load(Relaxed);
                        if arrived.fetch_add(1, Relaxed) == 2 {
                            arrived.store(0, Relaxed);
                            round.fetch_add(1, Relaxed);
                            assert_eq!(cond.broadcast(), OK);
                        }
                        while round.load(Relaxed) == now {
                            assert_eq!(cond.wait(&mutex), OK);
                        }
                    });
                }
            });
        }
    });
    assert_eq!(round.load(Relaxed), 10);
}

pub fn timed_waits() {
    let (wall, monotonic) = (libc::CLOCK_REALTIME, libc::CLOCK_MONOTONIC);
    let mutex = Mutex::normal();
    let other = Cond::with(|attr| {
        // SAFETY: the attributes are initialised.
        unsafe { libc::pthread_condattr_setclock(attr, libc::CLOCK_MONOTONIC) }
    });
    let cond = Cond::new();
    under(&mutex, || {
        assert_eq!(cond.timed_wait(&mutex, INVALID), EINVAL);
        assert_eq!(cond.timed_wait(&mutex, after(wall, -1000)), ETIMEDOUT);
        assert_eq!(takes(20, || cond.timed_wait(&mutex, after(wall, 20))), ETIMEDOUT);
        assert_eq!(takes(20, || other.timed_wait(&mutex, after(monotonic, 20))), ETIMEDOUT);
        assert_eq!(takes(20, || cond.clock_wait(&mutex, monotonic, after(monotonic, 20))), ETIMEDOUT);
        assert_eq!(takes(20, || other.clock_wait(&mutex, wall, after(wall, 20))), ETIMEDOUT);
        assert_eq!(cond.clock_wait(&mutex, libc::CLOCK_PROCESS_CPUTIME_ID, after(wall, 20)), EINVAL);
        assert_eq!(super::posix::elsewhere(|| mutex.try_lock()), EBUSY, "locked after each wait");
    });
}

/// A wait that ends by its deadline takes no signal, or returns that it has been signalled.
pub fn signals_and_deadlines() {
    let (mutex, cond) = (Mutex::normal(), Cond::new());
    let (tokens, taken) = (Cell::new(0_u32), AtomicU32::new(0));
    struct Tokens<'a>(&'a Cell<u32>);
    // SAFETY: used under the mutex only.
    unsafe impl Sync for Tokens<'_> {}
    let tokens = Tokens(&tokens);
    const TOKENS: u32 = 60;
    thread::scope(|s| {
        for impatient in [true, true, false] {
            let (tokens, mutex, cond, taken) = (&tokens, &mutex, &cond, &taken);
            s.spawn(move || {
                let tokens = tokens.0;
                under(mutex, || {
                    while taken.load(Relaxed) < TOKENS {
                        if tokens.get() > 0 {
                            tokens.set(tokens.get() - 1);
                            if taken.fetch_add(1, Relaxed) + 1 == TOKENS {
                                assert_eq!(cond.broadcast(), OK);
                            }
                        } else if impatient {
                            let result = cond.timed_wait(mutex, after(libc::CLOCK_REALTIME, 1));
                            assert!(result == OK || result == ETIMEDOUT);
                        } else {
                            assert_eq!(cond.wait(mutex), OK);
                        }
                    }
                });
            });
        }
        s.spawn(|| {
            let tokens = &tokens;
            for _ in 0..TOKENS {
                under(&mutex, || {
                    tokens.0.set(tokens.0.get() + 1);
                    assert_eq!(cond.signal(), OK);
                });
                thread::sleep(std::time::Duration::from_micros(900));
            }
        });
    });
    assert_eq!(taken.load(Relaxed), TOKENS);
}

pub fn a_wait_without_the_mutex() {
    let (mutex, cond) = (Mutex::of_type(libc::PTHREAD_MUTEX_ERRORCHECK), Cond::new());
    assert_eq!(cond.wait(&mutex), EPERM);
    assert_eq!(cond.timed_wait(&mutex, after(libc::CLOCK_REALTIME, 20)), EPERM);
    if is_replaced() {
        assert_eq!(cond.wait(&Mutex::normal()), EPERM);
    }
}

/// POSIX lets a condition be destroyed, and freed, as soon as all its waiters have been woken.
pub fn the_end_of_a_condition() {
    for _ in 0..20 {
        let (mutex, cond) = (Mutex::normal(), Box::new(Cond::new()));
        let (waiting, go) = (AtomicU32::new(0), AtomicU32::new(0));
        let at = cond.get().expose_provenance();
        thread::scope(|s| {
            for n in 0..3 {
                let (mutex, waiting, go) = (&mutex, &waiting, &go);
                s.spawn(move || {
                    // SAFETY: the condition is freed only after all waiters have been woken.
                    let cond = unsafe { &*std::ptr::with_exposed_provenance::<Cond>(at) };
                    under(mutex, || {
                        waiting.fetch_add(1, Relaxed);
                        while go.load(Relaxed) == 0 {
                            let result = match n {
                                0 => cond.timed_wait(mutex, after(libc::CLOCK_REALTIME, 2)),
                                _ => cond.wait(mutex),
                            };
                            assert!(result == OK || result == ETIMEDOUT);
                        }
                    });
                });
            }
            until(|| under(&mutex, || waiting.load(Relaxed) == 3));
            if is_replaced() {
                assert_eq!(cond.destroy(), EBUSY); // undefined in POSIX; glibc waits
            }
            under(&mutex, || {
                go.store(1, Relaxed);
                assert_eq!(cond.broadcast(), OK);
            });
            assert_eq!(cond.destroy(), OK);
            // SAFETY: no thread uses the condition any more.
            unsafe { cond.get().write_bytes(0xff, 1) };
            drop(cond);
        });
    }
}

/// A thread that has been woken has not left the condition yet, because a signal handler keeps the thread. The destroy
/// gives its processor up meanwhile: that thread may have a lower priority.
pub fn a_destroy_sleeps_until_the_woken_have_left() {
    static STEP: AtomicU32 = AtomicU32::new(0);
    extern "C" fn keep(_: libc::c_int) {
        STEP.store(1, Relaxed);
        until(|| STEP.load(Relaxed) == 2);
    }
    let (mutex, cond) = (Mutex::normal(), Cond::new());
    let (waiter, destroyer) = (AtomicI32::new(0), AtomicI32::new(0));
    // SAFETY: the handler uses an atomic and `nanosleep` only, which signal handlers may call.
    assert_ne!(unsafe { libc::signal(libc::SIGUSR1, keep as *const () as usize) }, libc::SIG_ERR);
    thread::scope(|s| {
        s.spawn(|| {
            assert_eq!(mutex.lock(), OK);
            // SAFETY: no precondition.
            waiter.store(unsafe { libc::gettid() }, Relaxed);
            assert_eq!((cond.wait(&mutex), mutex.unlock()), (OK, OK));
        });
        until(|| waiter.load(Relaxed) != 0);
        assert_eq!(mutex.lock(), OK);
        let waiter = waiter.load(Relaxed);
        until(|| is_asleep(waiter));
        // SAFETY: the thread lives until the end of the scope.
        assert_eq!(unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), waiter, libc::SIGUSR1) }, 0);
        until(|| STEP.load(Relaxed) == 1);
        assert_eq!((cond.signal(), mutex.unlock()), (OK, OK));
        s.spawn(|| {
            // SAFETY: no precondition.
            destroyer.store(unsafe { libc::gettid() }, Relaxed);
            assert_eq!(cond.destroy(), OK);
        });
        until(|| destroyer.load(Relaxed) != 0);
        let destroyer = destroyer.load(Relaxed);
        until(|| is_asleep(destroyer));
        STEP.store(2, Relaxed);
    });
}
