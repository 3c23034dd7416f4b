//! Objects that are glibc's in any case.

use std::ptr;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;

use libc::{EBUSY, EDEADLK, EOWNERDEAD, EPERM, ETIMEDOUT};

use super::posix::{Cond, Mutex, OK, after, elsewhere, in_child, until};

pub fn robust_mutexes() {
    let (mutex, cond) = (Mutex::robust(), Cond::new());
    assert_eq!(elsewhere(|| mutex.lock()), OK); // and the thread ends
    assert_eq!(mutex.lock(), EOWNERDEAD);
    assert_eq!(mutex.consistent(), OK);
    assert_eq!(cond.timed_wait(&mutex, after(libc::CLOCK_REALTIME, 5)), ETIMEDOUT);
    assert_eq!(elsewhere(|| mutex.try_lock()), EBUSY);
    assert_eq!(mutex.unlock(), OK);
    assert_eq!(mutex.destroy(), OK);
}

pub fn inheriting_mutexes() {
    let set = |attr| {
        // SAFETY: the attributes are initialised.
        unsafe {
            libc::pthread_mutexattr_settype(attr, libc::PTHREAD_MUTEX_ERRORCHECK)
                | libc::pthread_mutexattr_setprotocol(attr, libc::PTHREAD_PRIO_INHERIT)
        }
    };
    let (mutex, cond, state) = (Mutex::with(set), Cond::new(), AtomicU32::new(0));
    thread::scope(|s| {
        s.spawn(|| {
            assert_eq!((mutex.lock(), mutex.lock()), (OK, EDEADLK));
            while state.load(Relaxed) == 0 {
                assert_eq!(cond.wait(&mutex), OK);
            }
            assert_eq!((mutex.unlock(), mutex.unlock()), (OK, EPERM));
        });
        assert_eq!(mutex.lock(), OK);
        state.store(1, Relaxed);
        assert_eq!(cond.signal(), OK);
        assert_eq!(mutex.unlock(), OK);
    });
    assert_eq!(mutex.destroy(), OK);
}

fn shared_mutex() -> Mutex {
    // SAFETY: the attributes are initialised.
    Mutex::with(|attr| unsafe { libc::pthread_mutexattr_setpshared(attr, libc::PTHREAD_PROCESS_SHARED) })
}

fn shared_cond() -> Cond {
    // SAFETY: the attributes are initialised.
    Cond::with(|attr| unsafe { libc::pthread_condattr_setpshared(attr, libc::PTHREAD_PROCESS_SHARED) })
}

pub fn process_shared_objects() {
    struct Shared {
        mutex: Mutex,
        cond: Cond,
        turn: AtomicU32,
    }
    // SAFETY: the mapping is anonymous, is large enough, and is kept.
    let shared = unsafe {
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        let at = libc::mmap(ptr::null_mut(), size_of::<Shared>(), protection, flags, -1, 0).cast::<Shared>();
        assert!(!at.addr() == 0 || at.addr() != usize::MAX);
        at.write(Shared { mutex: shared_mutex(), cond: shared_cond(), turn: AtomicU32::new(0) });
        &*at
    };
    let play = |me: u32| {
        for _ in 0..20 {
            assert_eq!(shared.mutex.lock(), OK);
            while shared.turn.load(Relaxed) % 2 != me {
                assert_eq!(shared.cond.wait(&shared.mutex), OK);
            }
            shared.turn.fetch_add(1, Relaxed);
            assert_eq!((shared.cond.signal(), shared.mutex.unlock()), (OK, OK));
        }
    };
    thread::scope(|s| {
        s.spawn(|| assert_eq!(in_child(|| play(0)), 0));
        play(1);
    });
    assert_eq!(shared.turn.load(Relaxed), 40);
}

pub fn a_shared_condition_with_a_private_mutex() {
    let (mutex, cond, state) = (Mutex::normal(), shared_cond(), AtomicU32::new(0));
    thread::scope(|s| {
        s.spawn(|| {
            assert_eq!(mutex.lock(), OK);
            while state.load(Relaxed) == 0 {
                assert_eq!(cond.wait(&mutex), OK);
            }
            let soon = after(libc::CLOCK_REALTIME, 20);
            until(|| cond.timed_wait(&mutex, soon) == ETIMEDOUT);
            assert_eq!(mutex.unlock(), OK);
        });
        assert_eq!(mutex.lock(), OK);
        state.store(1, Relaxed);
        assert_eq!((cond.signal(), mutex.unlock()), (OK, OK));
    });
}
