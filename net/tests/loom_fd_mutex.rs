//! Models of `FdMutex`: every interleaving, on loom's memory model, up to a bound of preemptions.
//!
//! `RUSTFLAGS="--cfg sudog_loom" cargo test --profile loom -p sudog-net --test loom_fd_mutex`
//!
//! A lost wake-up, and a waiter that is not told of the close, show as a deadlock; two owners of a side, and a use
//! beside or after the drop, as a data race in loom's cell; a value that is dropped twice, or never, in the count at
//! the end; left-over permits, in the next round's wait.
#![cfg(sudog_loom)]

use std::sync::atomic::Ordering::Relaxed;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::AtomicU32;
use sudog_net::Side;
use sudog_net::low_level::{FdMutex, LockError};
use sudog_runtime::Instant;
use sudog_runtime::model::thread::{self, JoinHandle};
use sudog_runtime::reached::{SLEEPS, TIME_IS_UP, TOO_LATE_AND_WOKEN, TWO_SLEEP, mark, must_reach, waiting};
use sudog_runtime::sema::WaitLimit;

const LOCKED: &str = "a side is locked";
const CLOSED: &str = "a lock finds it closed";
const CLOSED_ASLEEP: &str = "a waiter is told of the close";
const GAVE_UP: &str = "a waiter gives up";
const LAST_IS_CLOSER: &str = "the closer is the last";
const LAST_IS_USER: &str = "a user is the last";
const REFUSED: &str = "a use is refused";

/// The guarded value. The thread that drops the value sees all uses of the value.
struct Socket {
    read: UnsafeCell<u32>,
    write: UnsafeCell<u32>,
    dropped: Arc<AtomicU32>,
}

impl Socket {
    fn new(dropped: &Arc<AtomicU32>) -> FdMutex<Self> {
        FdMutex::new(Self { read: UnsafeCell::new(0), write: UnsafeCell::new(0), dropped: dropped.clone() })
    }

    fn side(&self, side: Side) -> &UnsafeCell<u32> {
        match side {
            Side::Read => &self.read,
            Side::Write => &self.write,
        }
    }

    /// Uses a side. Called by the owner of the side.
    fn use_side(&self, side: Side) {
        // SAFETY: loom's cell checks that accesses do not overlap; the model tests this.
        self.side(side).with_mut(|count| unsafe { *count += 1 });
    }
}

// SAFETY: loom's cells check that accesses do not overlap; the model tests this.
unsafe impl Send for Socket {}
// SAFETY: loom's cells check that accesses do not overlap; the model tests this.
unsafe impl Sync for Socket {}

impl Drop for Socket {
    fn drop(&mut self) {
        self.use_side(Side::Read);
        self.use_side(Side::Write);
        self.dropped.fetch_add(1, Relaxed);
    }
}

fn explore(preemptions: usize, states: &[&'static str], model: impl Fn() + Sync + Send + 'static) {
    must_reach(states, || {
        sudog_runtime::model::explore(preemptions, model);
    });
}

/// Locks a side and uses it, or finds the side closed. Returns whether the side was locked.
fn lock_once(mutex: &FdMutex<Socket>, side: Side) -> bool {
    let (locked, slept) = waiting(|| mutex.lock(side));
    match locked {
        Ok(guard) => {
            mark(LOCKED);
            guard.use_side(side);
            true
        }
        Err(LockError::Closed) => {
            mark(if slept { CLOSED_ASLEEP } else { CLOSED });
            false
        }
        Err(error) => panic!("{error:?}"),
    }
}

fn in_thread(mutex: &Arc<FdMutex<Socket>>, f: impl FnOnce(&FdMutex<Socket>) + Send + 'static) -> JoinHandle<()> {
    let mutex = mutex.clone();
    thread::spawn(move || f(&mutex))
}

/// Lets two users of a side, and a close, race: each user gets the side or is told of the close, and the value is
/// dropped once, when both users and the closer have gone, and not with the mutex.
#[test]
fn users_and_a_close() {
    explore(3, &[LOCKED, CLOSED, CLOSED_ASLEEP, LAST_IS_CLOSER, LAST_IS_USER], || {
        let dropped = Arc::new(AtomicU32::new(0));
        let mutex = Arc::new(Socket::new(&dropped));
        let user = in_thread(&mutex, |mutex| _ = lock_once(mutex, Side::Read));
        let closer = in_thread(&mutex, |mutex| {
            assert!(mutex.close());
            assert!(!mutex.close());
        });
        lock_once(&mutex, Side::Read);
        closer.join().unwrap();
        mark(if dropped.load(Relaxed) == 1 { LAST_IS_CLOSER } else { LAST_IS_USER });
        user.join().unwrap();
        assert_eq!(dropped.load(Relaxed), 1);
        drop(mutex);
        assert_eq!(dropped.load(Relaxed), 1);
    });
}

/// Lets three threads take turns at a side: there is one owner at a time, and each waiter has its turn.
#[test]
fn one_owner_of_a_side() {
    explore(3, &[LOCKED, SLEEPS, TWO_SLEEP], || {
        let dropped = Arc::new(AtomicU32::new(0));
        let mutex = Arc::new(Socket::new(&dropped));
        let users = [(); 2].map(|()| in_thread(&mutex, |mutex| assert!(lock_once(mutex, Side::Write))));
        assert!(lock_once(&mutex, Side::Write));
        users.into_iter().for_each(|user| user.join().unwrap());
        assert_eq!(dropped.load(Relaxed), 0, "it is open");
        drop(mutex);
        assert_eq!(dropped.load(Relaxed), 1);
    });
}

/// Lets a waiter give up while an unlock wakes it: no permit is left over, and none is missing for the next waiter.
#[test]
fn a_waiter_gives_up() {
    explore(3, &[LOCKED, GAVE_UP, TIME_IS_UP, TOO_LATE_AND_WOKEN], || {
        let dropped = Arc::new(AtomicU32::new(0));
        let mutex = Arc::new(Socket::new(&dropped));
        let owner = in_thread(&mutex, |mutex| assert!(lock_once(mutex, Side::Read)));
        let limit = WaitLimit { deadline: Some(Instant::now()), cancel: None };
        let other = in_thread(&mutex, |mutex| assert!(lock_once(mutex, Side::Read)));
        match waiting(|| mutex.lock_limited(Side::Read, &limit)).0 {
            Ok(guard) => guard.use_side(Side::Read),
            Err(LockError::GaveUp(_)) => mark(GAVE_UP),
            Err(error) => panic!("{error:?}"),
        }
        owner.join().unwrap();
        other.join().unwrap();
        assert_eq!(mutex.waiters(Side::Read), 0);
        assert!(format!("{mutex:?}").contains("permits: [0, 0]"), "{mutex:?}");
        assert!(lock_once(&mutex, Side::Read));
    });
}

/// Lets a waiter give up while a close counts it off.
#[test]
fn a_waiter_gives_up_at_the_close() {
    explore(3, &[GAVE_UP, CLOSED, CLOSED_ASLEEP], || {
        let dropped = Arc::new(AtomicU32::new(0));
        let mutex = Arc::new(Socket::new(&dropped));
        let guard = mutex.lock(Side::Write).unwrap();
        let closer = in_thread(&mutex, |mutex| assert!(mutex.close()));
        let waiter = in_thread(&mutex, |mutex| {
            let limit = WaitLimit { deadline: Some(Instant::now()), cancel: None };
            let (locked, slept) = waiting(|| mutex.lock_limited(Side::Write, &limit));
            mark(match locked.map(drop) {
                Err(LockError::Closed) if slept => CLOSED_ASLEEP,
                Err(LockError::Closed) => CLOSED,
                Err(LockError::GaveUp(_)) => GAVE_UP,
                other => panic!("{other:?}"),
            });
        });
        waiter.join().unwrap();
        closer.join().unwrap();
        guard.use_side(Side::Write);
        assert_eq!(dropped.load(Relaxed), 0);
        drop(guard);
        assert_eq!(dropped.load(Relaxed), 1);
    });
}

/// Lets a user that refers to neither side, and a close, race.
#[test]
fn references_and_a_close() {
    explore(4, &[REFUSED, LAST_IS_CLOSER, LAST_IS_USER], || {
        let dropped = Arc::new(AtomicU32::new(0));
        let mutex = Arc::new(Socket::new(&dropped));
        let closer = in_thread(&mutex, |mutex| assert!(mutex.close()));
        let count = dropped.clone();
        let user = in_thread(&mutex, move |mutex| match mutex.refer() {
            Some(socket) => {
                assert_eq!(count.load(Relaxed), 0);
                drop(socket);
                mark(if count.load(Relaxed) == 1 { LAST_IS_USER } else { LAST_IS_CLOSER });
            }
            None => mark(REFUSED),
        });
        closer.join().unwrap();
        user.join().unwrap();
        assert_eq!(dropped.load(Relaxed), 1);
    });
}
