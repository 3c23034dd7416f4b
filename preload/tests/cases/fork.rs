//! A child of `fork`: locks that were held are held, by the forking thread or for ever.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use libc::{EBUSY, ETIMEDOUT};

use super::posix::{Cond, Mutex, OK, RwLock, after, elsewhere, in_child, until};

/// Locks and unlocks, by three threads at once.
fn contend(mutex: &Mutex) {
    thread::scope(|s| {
        for _ in 0..3 {
            s.spawn(|| {
                for _ in 0..20 {
                    assert_eq!((mutex.lock(), mutex.unlock()), (OK, OK));
                }
            });
        }
    });
}

pub fn a_child() {
    let [mine, theirs, free] = [Mutex::normal(), Mutex::normal(), Mutex::normal()];
    let counted = Mutex::of_type(libc::PTHREAD_MUTEX_RECURSIVE);
    let [read, written, other, unused] = [RwLock::new(), RwLock::new(), RwLock::new(), RwLock::new()];
    assert_eq!((free.lock(), free.unlock(), unused.read(), unused.unlock()), (OK, OK, OK, OK));
    assert_eq!((mine.lock(), counted.lock(), counted.lock(), read.read(), written.write()), (OK, OK, OK, OK, OK));
    let state = AtomicU32::new(0);
    thread::scope(|s| {
        s.spawn(|| {
            assert_eq!((theirs.lock(), other.write()), (OK, OK));
            state.store(1, Relaxed);
            until(|| state.load(Relaxed) == 2);
            assert_eq!((theirs.unlock(), other.unlock()), (OK, OK));
        });
        until(|| state.load(Relaxed) == 1);
        let status = in_child(|| {
            assert_eq!((mine.try_lock(), mine.unlock()), (EBUSY, OK));
            contend(&mine);
            assert_eq!((free.lock(), free.unlock()), (OK, OK));
            assert_eq!(theirs.try_lock(), EBUSY);
            assert_eq!(theirs.timed_lock(after(libc::CLOCK_REALTIME, 20)), ETIMEDOUT);
            if super::is_replaced() {
                // In glibc the owner is a number that has changed.
                assert_eq!(elsewhere(|| counted.try_lock()), EBUSY);
                assert_eq!((counted.unlock(), counted.unlock()), (OK, OK));
                contend(&counted);
                assert_eq!((written.try_read(), written.unlock(), written.try_read()), (EBUSY, OK, OK));
            }
            assert_eq!((read.try_write(), read.unlock(), read.write(), read.unlock()), (EBUSY, OK, OK, OK));
            assert_eq!((other.try_read(), other.try_write()), (EBUSY, EBUSY));
            assert_eq!((unused.write(), unused.unlock()), (OK, OK));
            let fresh = Mutex::normal();
            contend(&fresh);
            // A child of the child.
            assert_eq!(in_child(|| assert_eq!((fresh.lock(), fresh.unlock()), (OK, OK))), 0);
        });
        assert_eq!(status, 0);
        state.store(2, Relaxed);
    });
    assert_eq!(
        (mine.unlock(), counted.unlock(), counted.unlock(), read.unlock(), written.unlock()),
        (OK, OK, OK, OK, OK)
    );
    [mine, theirs, free, counted].iter().for_each(contend);
}

/// Threads of the parent wait for the mutex, and for the condition.
pub fn a_child_of_waiters() {
    let (mutex, gate, cond) = (Mutex::normal(), Mutex::normal(), Cond::new());
    let (waiting, go) = (AtomicU32::new(0), AtomicU32::new(0));
    assert_eq!(mutex.lock(), OK);
    thread::scope(|s| {
        for _ in 0..2 {
            s.spawn(|| {
                waiting.fetch_add(1, Relaxed);
                assert_eq!((mutex.lock(), mutex.unlock()), (OK, OK));
            });
            s.spawn(|| {
                assert_eq!(gate.lock(), OK);
                waiting.fetch_add(1, Relaxed);
                while go.load(Relaxed) == 0 {
                    assert_eq!(cond.wait(&gate), OK);
                }
                assert_eq!(gate.unlock(), OK);
            });
        }
        until(|| waiting.load(Relaxed) == 4 && gate.lock() == OK && gate.unlock() == OK);
        thread::sleep(Duration::from_millis(5)); // so that the first two sleep, perhaps
        let status = in_child(|| {
            assert_eq!(mutex.unlock(), OK);
            assert_eq!((mutex.lock(), mutex.unlock()), (OK, OK));
            if super::is_replaced() {
                contend(&mutex);
                assert_eq!((cond.signal(), cond.broadcast()), (OK, OK));
                assert_eq!(gate.lock(), OK);
                assert_eq!(cond.timed_wait(&gate, after(libc::CLOCK_REALTIME, 5)), ETIMEDOUT);
                assert_eq!((gate.unlock(), cond.destroy()), (OK, OK));
            }
        });
        assert_eq!(status, 0);
        assert_eq!(mutex.unlock(), OK);
        assert_eq!(gate.lock(), OK);
        go.store(1, Relaxed);
        assert_eq!((cond.broadcast(), gate.unlock()), (OK, OK));
    });
}
