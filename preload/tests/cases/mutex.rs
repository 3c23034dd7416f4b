//! Mutexes.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};
use std::thread;

use libc::{EBUSY, EDEADLK, EINVAL, EPERM, ETIMEDOUT};

use super::is_replaced;
use super::posix::{INVALID, Mutex, OK, RwLock, after, elsewhere, in_child, takes, until};

/// Data under a mutex.
struct Counter(UnsafeCell<u64>);
// SAFETY: the mutex that is tested guards the data.
unsafe impl Sync for Counter {}

pub fn owners_exclude_each_other() {
    for mutex in [
        Mutex::normal(),
        Mutex::of(libc::PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP),
        Mutex::of_type(libc::PTHREAD_MUTEX_NORMAL),
    ] {
        let counter = Counter(UnsafeCell::new(0));
        thread::scope(|s| {
            for n in 0..3 {
                let (mutex, counter) = (&mutex, &counter);
                s.spawn(move || {
                    for k in 0..40 {
                        // Several ways to lock.
                        match (n + k) % 3 {
                            0 => until(|| mutex.try_lock() == OK),
                            1 => assert_eq!(mutex.timed_lock(after(libc::CLOCK_REALTIME, 50_000)), OK),
                            _ => assert_eq!(mutex.lock(), OK),
                        }
                        // SAFETY: under the mutex.
                        unsafe { *counter.0.get() += 1 };
                        assert_eq!(mutex.unlock(), OK);
                    }
                });
            }
        });
        // SAFETY: the other threads have ended.
        assert_eq!(unsafe { *counter.0.get() }, 120);
        assert_eq!(mutex.destroy(), OK);
    }
}

pub fn an_owner_that_locks_again() {
    for mutex in
        [Mutex::of(libc::PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP), Mutex::of_type(libc::PTHREAD_MUTEX_ERRORCHECK)]
    {
        assert_eq!(mutex.unlock(), EPERM);
        assert_eq!(mutex.lock(), OK);
        assert_eq!(mutex.lock(), EDEADLK);
        assert_eq!(mutex.try_lock(), EBUSY);
        assert_eq!(mutex.timed_lock(after(libc::CLOCK_REALTIME, 50_000)), EDEADLK);
        assert_eq!(mutex.unlock(), OK);
        assert_eq!(mutex.unlock(), EPERM);
    }
    // A default mutex waits for itself.
    let mutex = Mutex::normal();
    assert_eq!(mutex.lock(), OK);
    assert_eq!(mutex.try_lock(), EBUSY);
    assert_eq!(takes(10, || mutex.timed_lock(after(libc::CLOCK_REALTIME, 10))), ETIMEDOUT);
    assert_eq!(mutex.unlock(), OK);
}

pub fn a_recursive_mutex_counts() {
    for mutex in
        [Mutex::of(libc::PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP), Mutex::of_type(libc::PTHREAD_MUTEX_RECURSIVE)]
    {
        assert_eq!((mutex.lock(), mutex.try_lock(), mutex.timed_lock(INVALID)), (OK, OK, OK));
        for _ in 0..3 {
            assert_eq!(elsewhere(|| (mutex.try_lock(), mutex.unlock())), (EBUSY, EPERM));
            assert_eq!(mutex.unlock(), OK);
        }
        assert_eq!(mutex.unlock(), EPERM);
        assert_eq!(elsewhere(|| (mutex.lock(), mutex.unlock())), (OK, OK));
    }
}

pub fn unlocks_by_others() {
    let mutex = Mutex::of_type(libc::PTHREAD_MUTEX_ERRORCHECK);
    assert_eq!(mutex.lock(), OK);
    assert_eq!(elsewhere(|| mutex.unlock()), EPERM);
    assert_eq!(elsewhere(|| mutex.try_lock()), EBUSY);
    assert_eq!(mutex.unlock(), OK);
    // Undefined in POSIX; glibc unlocks.
    if is_replaced() {
        let mutex = Mutex::normal();
        assert_eq!(mutex.unlock(), EPERM);
        assert_eq!(mutex.lock(), OK);
        assert_eq!(elsewhere(|| mutex.unlock()), EPERM);
        assert_eq!(mutex.unlock(), OK);
    }
}

/// A thread exits as the owner, and its `pthread_self` is given to a later thread, which is not the owner.
pub fn a_thread_in_the_place_of_an_owner() {
    // SAFETY: no precondition.
    let this = || unsafe { libc::pthread_self() };
    let recursive = Mutex::of_type(libc::PTHREAD_MUTEX_RECURSIVE);
    let checked = Mutex::of_type(libc::PTHREAD_MUTEX_ERRORCHECK);
    let (normal, written) = (Mutex::normal(), RwLock::new());
    let owner = elsewhere(|| {
        assert_eq!((recursive.lock(), checked.lock(), normal.lock(), written.write()), (OK, OK, OK, OK));
        this()
    });
    let past = after(libc::CLOCK_REALTIME, -1000);
    until(|| {
        elsewhere(|| {
            assert_eq!((recursive.try_lock(), recursive.unlock()), (EBUSY, EPERM));
            assert_eq!((checked.timed_lock(past), checked.unlock()), (ETIMEDOUT, EPERM));
            assert_eq!((written.timed_read(past), written.timed_write(past)), (ETIMEDOUT, ETIMEDOUT));
            if is_replaced() {
                assert_eq!((normal.unlock(), written.unlock()), (EPERM, EPERM));
            }
            this() == owner
        })
    });
}

pub fn the_end_of_a_mutex() {
    let mutex = Mutex::of_type(libc::PTHREAD_MUTEX_NORMAL);
    assert_eq!(mutex.lock(), OK);
    assert_eq!(mutex.destroy(), EBUSY);
    assert_eq!(elsewhere(|| mutex.destroy()), EBUSY);
    assert_eq!(elsewhere(|| mutex.try_lock()), EBUSY);
    assert_eq!(mutex.unlock(), OK);
    assert_eq!(mutex.destroy(), OK);
    assert_eq!(mutex.lock(), EINVAL);
}

/// The owner that counts down to zero frees the mutex, perhaps while the unlock before has not returned.
pub fn a_mutex_is_freed_after_its_last_unlock() {
    struct Shared {
        mutex: Mutex,
        left: AtomicU32,
    }
    for _ in 0..50 {
        let shared =
            Box::into_raw(Box::new(Shared { mutex: Mutex::normal(), left: AtomicU32::new(3) })).expose_provenance();
        thread::scope(|s| {
            for _ in 0..3 {
                s.spawn(move || {
                    let shared = std::ptr::with_exposed_provenance_mut::<Shared>(shared);
                    // SAFETY: the last of the threads frees the memory, and no other thread uses it then.
                    unsafe {
                        assert_eq!((*shared).mutex.lock(), OK);
                        let left = (*shared).left.load(Relaxed) - 1;
                        (*shared).left.store(left, Relaxed);
                        assert_eq!((*shared).mutex.unlock(), OK);
                        if left == 0 {
                            assert_eq!((*shared).mutex.destroy(), OK);
                            shared.cast::<u8>().write_bytes(0xff, size_of::<Shared>());
                            drop(Box::from_raw(shared));
                        }
                    }
                });
            }
        });
    }
}

/// Uses the memory of a mutex for another mutex without a `pthread_mutex_destroy`, which C++'s `std::mutex` never calls.
pub fn memory_of_mutexes_is_used_again() {
    let before = resident();
    let cell = Mutex::normal();
    for n in 0..300_000 {
        // SAFETY: no thread uses the mutex that was here.
        unsafe { cell.get().write(libc::PTHREAD_MUTEX_INITIALIZER) };
        assert_eq!((cell.lock(), cell.unlock()), (OK, OK));
        if n % 2 == 0 {
            assert_eq!(cell.destroy(), OK);
        }
    }
    let after = resident();
    assert!(after < before + (4 << 20), "{before} bytes before, {after} after");
}

/// Returns the resident memory of the process, in bytes.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

pub fn timed_locks() {
    let mutex = Mutex::normal();
    let [recursive, checked] = [libc::PTHREAD_MUTEX_RECURSIVE, libc::PTHREAD_MUTEX_ERRORCHECK].map(Mutex::of_type);
    assert_eq!((recursive.lock(), checked.lock()), (OK, OK));
    for mutex in [&mutex, &recursive, &checked] {
        for clock in [libc::CLOCK_PROCESS_CPUTIME_ID, libc::CLOCK_BOOTTIME, -1] {
            assert_eq!(mutex.clock_lock(clock, INVALID), EINVAL, "the clock matters, even if the mutex is free");
        }
    }
    assert_eq!((recursive.unlock(), checked.unlock()), (OK, OK));
    assert_eq!(mutex.timed_lock(INVALID), OK, "the time does not matter if the mutex is free");
    let (wall, monotonic) = (libc::CLOCK_REALTIME, libc::CLOCK_MONOTONIC);
    elsewhere(|| {
        assert_eq!(mutex.timed_lock(INVALID), EINVAL);
        assert_eq!(mutex.timed_lock(after(wall, -1000)), ETIMEDOUT);
        assert_eq!(takes(20, || mutex.timed_lock(after(wall, 20))), ETIMEDOUT);
        assert_eq!(takes(20, || mutex.clock_lock(monotonic, after(monotonic, 20))), ETIMEDOUT);
        assert_eq!(takes(20, || mutex.clock_lock(wall, after(wall, 20))), ETIMEDOUT);
        assert_eq!(mutex.clock_lock(libc::CLOCK_PROCESS_CPUTIME_ID, after(wall, 20)), EINVAL);
    });
    let waits = AtomicU32::new(0);
    thread::scope(|s| {
        let waiter = s.spawn(|| {
            waits.store(1, Relaxed);
            let got = mutex.timed_lock(after(wall, 80_000));
            (got, mutex.unlock())
        });
        until(|| waits.load(Relaxed) == 1);
        thread::sleep(std::time::Duration::from_millis(5));
        assert_eq!(mutex.unlock(), OK);
        assert_eq!(waiter.join().unwrap(), (OK, OK));
    });
}

/// Such destructors run after those of Rust's thread-locals, also of those in the library.
pub fn destructors_of_thread_specific_data_lock() {
    static MUTEX: Mutex = Mutex::of(libc::PTHREAD_MUTEX_INITIALIZER);
    static COUNT: AtomicU32 = AtomicU32::new(0);
    const ROUNDS: u32 = 8;

    extern "C" fn at_the_end(_: *mut c_void) {
        for _ in 0..ROUNDS {
            assert_eq!(MUTEX.lock(), OK);
            thread::yield_now();
            COUNT.fetch_add(1, AcqRel);
            assert_eq!(MUTEX.unlock(), OK);
        }
        assert_eq!(MUTEX.timed_lock(after(libc::CLOCK_REALTIME, 50_000)), OK);
        assert_eq!(MUTEX.unlock(), OK);
    }
    let mut key = 0;
    // SAFETY: `key` may be written to, and the destructor is a function of this program.
    assert_eq!(unsafe { libc::pthread_key_create(&raw mut key, Some(at_the_end)) }, OK);
    let threads: Vec<_> = (0..3)
        .map(|_| {
            thread::spawn(move || {
                // SAFETY: the key was made above; the value is not used.
                assert_eq!(unsafe { libc::pthread_setspecific(key, std::ptr::dangling()) }, OK);
                assert_eq!((MUTEX.lock(), MUTEX.unlock()), (OK, OK));
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(COUNT.load(Relaxed), 3 * ROUNDS);
    // In a process that forks, the lock goes on.
    assert_eq!(in_child(|| assert_eq!((MUTEX.lock(), MUTEX.unlock()), (OK, OK))), 0);
}
