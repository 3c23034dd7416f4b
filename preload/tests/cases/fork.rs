//! A child of `fork`: locks that were held are held, by the forking thread or for ever.

use std::ffi::{c_int, c_void};
use std::ptr;
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

/// The lock of [`a_fork_beside_a_lock_of_another_handler`], which the handlers below hold during a fork.
static KEPT: Mutex = Mutex::of(libc::PTHREAD_MUTEX_INITIALIZER);
/// 0: the handlers do nothing. Otherwise the step of the case.
static STEP: AtomicU32 = AtomicU32::new(0);

/// Sets handlers of `fork` earlier than the library does, as constructors of other libraries may: before a fork the
/// handlers run after the library's, and in the child before the library's.
extern "C" fn set_handlers() {
    // SAFETY: the handlers are functions of this program.
    unsafe { libc::pthread_atfork(Some(lock_kept), Some(unlock_kept), Some(unlock_kept_in_child)) };
}

#[used]
#[unsafe(link_section = ".preinit_array")]
static SET_HANDLERS: extern "C" fn() = set_handlers;

extern "C" fn lock_kept() {
    if STEP.load(Relaxed) != 0 {
        STEP.store(2, Relaxed);
        assert_eq!(KEPT.lock(), OK);
    }
}

extern "C" fn unlock_kept() {
    if STEP.load(Relaxed) != 0 {
        assert_eq!(KEPT.unlock(), OK);
    }
}

extern "C" fn unlock_kept_in_child() {
    if STEP.load(Relaxed) != 0 {
        let fresh = Mutex::normal();
        assert_eq!((KEPT.unlock(), fresh.lock(), fresh.unlock()), (OK, OK, OK));
    }
}

/// The owner of the lock for which the handler waits uses a mutex for the first time.
pub fn a_fork_beside_a_lock_of_another_handler() {
    STEP.store(1, Relaxed);
    let locked = AtomicU32::new(0);
    thread::scope(|s| {
        s.spawn(|| {
            assert_eq!(KEPT.lock(), OK);
            locked.store(1, Relaxed);
            until(|| STEP.load(Relaxed) == 2);
            let fresh = Mutex::normal();
            assert_eq!((fresh.lock(), fresh.unlock(), KEPT.unlock()), (OK, OK, OK));
        });
        until(|| locked.load(Relaxed) == 1);
        let status = in_child(|| {
            assert_eq!((KEPT.lock(), KEPT.unlock()), (OK, OK));
            contend(&KEPT);
        });
        assert_eq!(status, 0);
    });
    STEP.store(0, Relaxed);
}

/// A thread with thread-locals of the library forks. The child's thread ends, and gives memory of the parent back.
pub fn a_child_whose_thread_ends() {
    extern "C" fn forks(status: *mut c_void) -> *mut c_void {
        let mutexes = [(); 30].map(|()| Mutex::normal());
        for mutex in &mutexes {
            assert_eq!((mutex.lock(), mutex.unlock()), (OK, OK));
        }
        contend(&mutexes[0]);
        // SAFETY: the child calls functions of POSIX, which the tests are about. Its only thread ends, and so the child.
        // The case passes the status, and waits for this thread.
        unsafe {
            let pid = libc::fork();
            if pid == 0 {
                libc::alarm(super::PATIENCE);
                mutexes.iter().for_each(contend);
            } else {
                assert_eq!(libc::waitpid(pid, status.cast(), 0), pid);
            }
        }
        ptr::null_mut()
    }
    let (mut thread, mut status) = (0, -1);
    // SAFETY: `thread` and `status` may be written to, and outlive the thread, which is joined.
    unsafe {
        assert_eq!(libc::pthread_create(&raw mut thread, ptr::null(), forks, (&raw mut status).cast()), OK);
        assert_eq!(libc::pthread_join(thread, ptr::null_mut()), OK);
    }
    assert_eq!(status, 0);
}

/// A child that shares the parent's memory, as a child of `vfork` does, leaves the parent's objects as they are.
pub fn a_child_in_the_same_memory() {
    extern "C" fn child(fresh: *mut c_void) -> c_int {
        // SAFETY: the case passes a mutex, and waits for this function.
        let fresh = unsafe { &*fresh.cast::<Mutex>() };
        (fresh.lock() | fresh.try_lock() ^ EBUSY) | fresh.unlock()
    }
    let (mutex, cond, fresh) = (Mutex::normal(), Cond::new(), Mutex::normal());
    let waits = AtomicU32::new(0);
    thread::scope(|s| {
        s.spawn(|| {
            assert_eq!(mutex.lock(), OK);
            waits.store(1, Relaxed);
            while waits.load(Relaxed) != 2 {
                assert_eq!(cond.wait(&mutex), OK);
            }
            assert_eq!(mutex.unlock(), OK);
        });
        until(|| waits.load(Relaxed) == 1);
        assert_eq!(mutex.lock(), OK); // so the other thread is in the queue of the condition
        let mut stack = vec![0_u128; 1 << 14];
        let mut status = -1;
        // SAFETY: the child has a stack of its own; its parent is stopped until the child has ended, and then waits for it.
        unsafe {
            let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
            let pid = libc::clone(child, stack.as_mut_ptr_range().end.cast(), flags, fresh.get().cast());
            assert!(pid > 0);
            assert_eq!(libc::waitpid(pid, &raw mut status, 0), pid);
        }
        assert_eq!(status, 0);
        assert_eq!((elsewhere(|| mutex.try_lock()), fresh.lock(), fresh.unlock()), (EBUSY, OK, OK));
        waits.store(2, Relaxed);
        assert_eq!((cond.signal(), mutex.unlock()), (OK, OK));
    });
}
