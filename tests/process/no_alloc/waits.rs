//! Waiting for a signal, for a permit, for a group, or as a task allocates nothing; nor does the end of such a wait.
#![cfg(all(feature = "locks", not(sudog_loom)))]

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};
use std::thread;
use std::time::{Duration, Instant};

use sudog::locks::waiting_array::{Benaphore, Doorway, TicketSema, TicketWait, Twa, TwaChannel};
use sudog::low_level::{ApiRwLock, ConstRawRwLock, RuntimeSema};
use sudog::sync::{
    Cond, GoRwMutex, LockAsync, Mutex, PhaseFairRwMutex, RwMutexWith, ShardedRwMutex, WaitGroup, lock_api,
};
use support::counting::without_allocating;
use support::{Watchdog, eventually};

#[test]
fn a_condition_variable() {
    let _watchdog = Watchdog::new();
    let (mutex, cond) = (Mutex::new(()), Cond::new());
    thread::scope(|s| {
        let mut guard = mutex.lock();
        without_allocating(|| {
            assert!(cond.wait_limited(&mut guard, Instant::now() + Duration::from_millis(1)).is_err())
        });
        drop(guard);
        for _ in 0..3 {
            s.spawn(|| without_allocating(|| cond.wait(&mut mutex.lock())));
        }
        eventually(|| cond.waiters() == 3);
        without_allocating(|| {
            cond.signal();
            cond.broadcast();
        });
    });
}

#[test]
fn a_waiting_array() {
    let _watchdog = Watchdog::new();
    fn wait_and_post<W: TicketWait, D: Doorway>(sema: &TicketSema<W, D>) {
        thread::scope(|s| {
            for _ in 0..3 {
                s.spawn(|| without_allocating(|| sema.acquire_many(2).unwrap()));
            }
            eventually(|| sema.wanted() == 6);
            without_allocating(|| {
                sema.post(1);
                sema.post(5);
            });
        });
    }
    wait_and_post(&Benaphore::new(0));
    wait_and_post(&Twa::new(0));
    wait_and_post(&TwaChannel::new(0));
}

#[test]
fn a_group() {
    let _watchdog = Watchdog::new();
    let group = WaitGroup::new();
    without_allocating(|| group.add(2));
    thread::scope(|s| {
        for _ in 0..3 {
            s.spawn(|| without_allocating(|| group.wait()));
        }
        eventually(|| format!("{group:?}") == "WaitGroup { counter: 2, waiters: 3 }");
        without_allocating(|| (0..2).for_each(|_| group.done()));
    });
}

#[test]
fn a_rw_mutex() {
    let _watchdog = Watchdog::new();
    fn both_sides<L: ConstRawRwLock>(lock: L) {
        const SOON: Duration = Duration::from_millis(1);
        let rw: RwMutexWith<L, i32> = lock_api::RwLock::from_raw(ApiRwLock::new(lock), 0);
        thread::scope(|s| {
            let reader = without_allocating(|| rw.read());
            s.spawn(|| without_allocating(|| assert!(rw.try_write_for(SOON).is_none()))).join().unwrap();
            s.spawn(|| without_allocating(|| *rw.write() += 1));
            eventually(|| rw.try_read().is_none());
            // The waiting writer keeps this reader out.
            s.spawn(|| without_allocating(|| assert!(rw.try_read_for(SOON).is_none()))).join().unwrap();
            s.spawn(|| without_allocating(|| assert_eq!(*rw.read(), 1)));
            without_allocating(|| drop(reader));
        });
    }
    both_sides(GoRwMutex::new());
    both_sides(PhaseFairRwMutex::<RuntimeSema>::const_new());
    both_sides(<ShardedRwMutex>::INIT);
}

#[test]
fn a_lock_as_a_task() {
    let mutex = Mutex::new(());
    let mut cx = Context::from_waker(Waker::noop());
    without_allocating(|| {
        let guard = mutex.lock();
        let mut waits = pin!(mutex.lock_async());
        assert!(waits.as_mut().poll(&mut cx).is_pending());
        let mut gives_up = pin!(mutex.lock_async());
        assert!(gives_up.as_mut().poll(&mut cx).is_pending());
        gives_up.set(mutex.lock_async());
        drop(guard);
        assert!(waits.as_mut().poll(&mut cx).is_ready());
    });
}
