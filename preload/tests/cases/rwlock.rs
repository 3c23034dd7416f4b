//! Readers-writer locks.

use std::cell::Cell;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use libc::{EBUSY, EDEADLK, EINVAL, EPERM, ETIMEDOUT};

use super::is_replaced;
use super::posix::{INVALID, OK, RwLock, after, elsewhere, takes, until};

/// glibc's kind of a lock that lets no reader in while a writer waits.
const PREFER_WRITER_NONRECURSIVE: i32 = 2;

pub fn readers_and_writers() {
    const ROUNDS: u32 = 40;
    struct Data(Cell<[u32; 2]>);
    // SAFETY: used under the lock only.
    unsafe impl Sync for Data {}
    for lock in [RwLock::new(), RwLock::of_kind(PREFER_WRITER_NONRECURSIVE)] {
        let data = Data(Cell::new([0; 2]));
        thread::scope(|s| {
            for n in 0..4 {
                let (lock, data) = (&lock, &data);
                s.spawn(move || {
                    for k in 0..ROUNDS {
                        if n < 2 {
                            assert_eq!(lock.read(), OK);
                            let [one, other] = data.0.get();
                            assert_eq!(one, other);
                        } else {
                            match k % 3 {
                                0 => until(|| lock.try_write() == OK),
                                1 => assert_eq!(lock.timed_write(after(libc::CLOCK_REALTIME, 80_000)), OK),
                                _ => assert_eq!(lock.write(), OK),
                            }
                            let [one, other] = data.0.get();
                            data.0.set([one + 1, other]);
                            if k % 10 == 0 {
                                thread::yield_now();
                            }
                            data.0.set([one + 1, other + 1]);
                        }
                        assert_eq!(lock.unlock(), OK);
                    }
                });
            }
        });
        assert_eq!(data.0.get(), [2 * ROUNDS; 2]);
        assert_eq!(lock.destroy(), OK);
    }
    // Readers are inside together.
    let lock = RwLock::new();
    assert_eq!(lock.read(), OK);
    assert_eq!(elsewhere(|| (lock.read(), lock.try_read(), lock.unlock(), lock.unlock())), (OK, OK, OK, OK));
    assert_eq!(elsewhere(|| lock.try_write()), EBUSY);
    assert_eq!(lock.unlock(), OK);
    assert_eq!(lock.write(), OK);
    assert_eq!(elsewhere(|| (lock.try_read(), lock.try_write())), (EBUSY, EBUSY));
    assert_eq!(lock.unlock(), OK);
    assert_eq!(elsewhere(|| (lock.write(), lock.unlock())), (OK, OK));
}

pub fn misuse() {
    let lock = RwLock::new();
    assert_eq!(lock.write(), OK);
    assert_eq!((lock.write(), lock.read(), lock.try_write(), lock.try_read()), (EDEADLK, EDEADLK, EBUSY, EBUSY));
    let later = after(libc::CLOCK_REALTIME, 80_000);
    assert_eq!((lock.timed_write(later), lock.timed_read(later)), (EDEADLK, EDEADLK));
    if is_replaced() {
        assert_eq!(lock.destroy(), EBUSY); // undefined in POSIX
    }
    assert_eq!(lock.unlock(), OK);
    if is_replaced() {
        assert_eq!(lock.unlock(), EPERM); // undefined in POSIX
    }
    assert_eq!(lock.destroy(), OK);
}

pub fn timed() {
    let (wall, monotonic) = (libc::CLOCK_REALTIME, libc::CLOCK_MONOTONIC);
    for lock in [RwLock::new(), RwLock::of_kind(PREFER_WRITER_NONRECURSIVE)] {
        let refuses = || {
            for clock in [libc::CLOCK_PROCESS_CPUTIME_ID, libc::CLOCK_BOOTTIME, -1] {
                let later = after(wall, 80_000);
                assert_eq!((lock.clock_read(clock, later), lock.clock_write(clock, later)), (EINVAL, EINVAL));
            }
            assert_eq!((lock.timed_read(INVALID), lock.timed_write(INVALID)), (EINVAL, EINVAL));
            assert_eq!((lock.clock_read(wall, INVALID), lock.clock_write(monotonic, INVALID)), (EINVAL, EINVAL));
        };
        refuses();
        assert_eq!(lock.write(), OK);
        refuses();
        assert_eq!((lock.unlock(), lock.read()), (OK, OK));
        refuses();
        elsewhere(|| {
            assert_eq!(lock.timed_write(INVALID), EINVAL);
            assert_eq!(takes(20, || lock.timed_write(after(wall, 20))), ETIMEDOUT);
            assert_eq!(takes(20, || lock.clock_write(monotonic, after(monotonic, 20))), ETIMEDOUT);
            assert_eq!((lock.timed_read(after(wall, 20)), lock.unlock()), (OK, OK), "the writer has given up");
        });
        assert_eq!((lock.unlock(), lock.write()), (OK, OK));
        elsewhere(|| {
            assert_eq!(lock.timed_read(INVALID), EINVAL);
            assert_eq!(lock.timed_read(after(wall, -1000)), ETIMEDOUT);
            assert_eq!(takes(20, || lock.timed_read(after(wall, 20))), ETIMEDOUT);
            assert_eq!(takes(20, || lock.clock_read(monotonic, after(monotonic, 20))), ETIMEDOUT);
            assert_eq!(takes(20, || lock.timed_write(after(wall, 20))), ETIMEDOUT);
        });
        assert_eq!(lock.unlock(), OK);
    }
}

/// Starts a writer that waits for the reader that calls this, runs `f`, and lets the writer in.
fn beside_a_writer_that_waits(lock: &RwLock, waits: impl Fn() -> bool, f: impl FnOnce()) {
    assert_eq!(lock.read(), OK);
    let begun = AtomicU32::new(0);
    thread::scope(|s| {
        s.spawn(|| {
            begun.store(1, Relaxed);
            assert_eq!((lock.write(), lock.unlock()), (OK, OK));
        });
        until(|| begun.load(Relaxed) == 1);
        until(waits);
        f();
        assert_eq!(lock.unlock(), OK);
    });
}

pub fn a_thread_reads_again() {
    let lock = RwLock::new();
    let waited = Cell::new(0);
    // Whether the writer waits cannot be seen from outside: let it have 20 ms.
    let waits = || {
        thread::sleep(Duration::from_millis(10));
        waited.set(waited.get() + 1);
        waited.get() == 2
    };
    beside_a_writer_that_waits(&lock, waits, || {
        assert_eq!((lock.read(), lock.unlock()), (OK, OK));
        assert_eq!(elsewhere(|| (lock.read(), lock.unlock())), (OK, OK));
    });
}

pub fn writers_that_are_preferred() {
    let lock = RwLock::of_kind(PREFER_WRITER_NONRECURSIVE);
    // As long as no writer waits, readers enter.
    let waits = || elsewhere(|| lock.try_read() == EBUSY || lock.unlock() != OK);
    beside_a_writer_that_waits(&lock, waits, || {
        assert_eq!(elsewhere(|| takes(20, || lock.timed_read(after(libc::CLOCK_REALTIME, 20)))), ETIMEDOUT);
    });
    assert_eq!((lock.read(), lock.unlock()), (OK, OK));
    // A writer that gives up lets the readers in that have waited behind it.
    assert_eq!(lock.read(), OK);
    thread::scope(|s| {
        s.spawn(|| assert_eq!(lock.timed_write(after(libc::CLOCK_REALTIME, 50)), ETIMEDOUT));
        let reader = s.spawn(|| {
            until(|| lock.try_read() == EBUSY || lock.unlock() != OK);
            (lock.read(), lock.unlock())
        });
        // Write again, because the reader would look for ever if the first writer gave up unseen.
        s.spawn(|| {
            thread::sleep(Duration::from_millis(100));
            while !reader_is_done(&reader) {
                assert_eq!(lock.timed_write(after(libc::CLOCK_REALTIME, 20)), ETIMEDOUT);
            }
            reader.join().map(|result| assert_eq!(result, (OK, OK))).unwrap();
        });
    });
    assert_eq!(lock.unlock(), OK);
}

fn reader_is_done<T>(reader: &thread::ScopedJoinHandle<'_, T>) -> bool {
    reader.is_finished()
}
