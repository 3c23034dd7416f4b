//! The library in destructors of thread-locals, which run last on a thread: for instance a handle that removes itself
//! from a list, or a client that sends a last message. The library's own thread-locals may have been destroyed by then.
#![cfg(all(unix, not(sudog_loom)))]

use std::cell::Cell;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use sudog::chan::{Chan, Select};
use sudog::context;
use sudog::sync::atomic::Value;
use sudog::sync::{Map, Mutex, Once, Pool, RwMutex, WaitGroup};
use sudog::time::{sleep, sleep_async};
use sudog::{block_on, blocking, go, run, scope, spawn};
use support::Watchdog;

/// Runs a closure when its thread ends.
struct AtEnd(Cell<Option<Box<dyn FnOnce()>>>);

impl Drop for AtEnd {
    fn drop(&mut self) {
        if let Some(f) = self.0.take() {
            f();
        }
    }
}

thread_local! {
    static FIRST: AtEnd = const { AtEnd(Cell::new(None)) };
    static LAST: AtEnd = const { AtEnd(Cell::new(None)) };
}

/// Runs `f` when threads end: on a thread that has never used the library, and on threads that have, before or after
/// all thread-locals of the library are destroyed.
fn at_the_end_of_threads(f: impl Fn() + Send + Sync + 'static) {
    let _watchdog = Watchdog::new();
    let f = Arc::new(f);
    for (first, uses, last) in [(true, false, false), (true, true, false), (false, true, true), (true, true, true)] {
        let f = f.clone();
        let (ran, runs) = mpsc::channel();
        let at_end = move |f: Arc<dyn Fn()>, ran: mpsc::Sender<()>| -> Box<dyn FnOnce()> {
            Box::new(move || {
                f();
                ran.send(()).unwrap();
            })
        };
        let thread = thread::spawn(move || {
            if first {
                FIRST.with(|end| end.0.set(Some(at_end(f.clone(), ran.clone()))));
            }
            if uses {
                f();
            }
            if last {
                LAST.with(|end| end.0.set(Some(at_end(f.clone(), ran.clone()))));
            }
        });
        thread.join().unwrap();
        assert_eq!(runs.iter().count(), usize::from(first) + usize::from(last));
    }
}

#[test]
fn a_map() {
    let map = Map::new();
    let there = Arc::new(());
    let counted = there.clone();
    at_the_end_of_threads(move || {
        map.store(1, there.clone());
        assert!(map.load(&1).is_some());
        assert!(map.load_with(&1, |_| ()).is_some());
        assert!(map.load_or_store(1, there.clone()).1);
        assert!(map.compare_and_swap(1, &there, there.clone()));
        let mut visited = 0;
        map.range(|_, _| {
            visited += 1;
            true
        });
        assert_eq!(visited, 1);
        assert!(map.swap(1, there.clone()).is_some());
        assert!(map.compare_and_delete(&1, &there));
        assert!(map.load_and_delete(&1).is_none());
        map.store(2, there.clone());
        map.clear();
    });
    assert_eq!(Arc::strong_count(&counted), 1, "the map is freed, and what it had");
}

/// Lets the thread's first call find an empty map, so that the call needs no guard. A thread-local that is used before
/// the first guard is destroyed after the thread's hazard pointers.
#[test]
fn a_map_that_was_empty_at_first() {
    let _watchdog = Watchdog::new();
    let map = Arc::new(Map::new());
    let theirs = map.clone();
    let thread = thread::spawn(move || {
        assert_eq!(theirs.load(&1), None);
        let at_end = theirs.clone();
        FIRST.with(|end| end.0.set(Some(Box::new(move || at_end.store(2, 2)))));
        theirs.store(1, 1);
    });
    thread.join().unwrap();
    assert_eq!((map.load(&1), map.load(&2)), (Some(1), Some(2)));
}

#[test]
fn locks() {
    let (mutex, rw) = (Arc::new(Mutex::new(0_u64)), Arc::new(RwMutex::new(0_u64)));
    at_the_end_of_threads(move || {
        // Wait for locks that another thread holds.
        let (locked, is_locked) = mpsc::channel();
        let (other_mutex, other_rw) = (mutex.clone(), rw.clone());
        let other = thread::spawn(move || {
            let (mut value, mut written) = (other_mutex.lock(), other_rw.write());
            locked.send(()).unwrap();
            thread::sleep(Duration::from_millis(1));
            *value = 1;
            *written = 1;
        });
        is_locked.recv().unwrap();
        assert_eq!((*mutex.lock(), *rw.read()), (1, 1));
        *rw.write() += 1;
        other.join().unwrap();
        *mutex.lock() = 0;
        *rw.write() = 0;
    });
}

#[test]
fn once_pool_value_and_group() {
    let (once, pool, value, group) = (Once::new(), Pool::new(|| 1_u64), Value::new(), Arc::new(WaitGroup::new()));
    at_the_end_of_threads(move || {
        once.do_(|| ());
        pool.put(2);
        assert!(pool.get() > 0);
        value.store(1_u64);
        assert_eq!(value.load(), Some(1));
        group.go(|| ());
        group.wait();
    });
}

#[test]
fn channels_and_contexts() {
    at_the_end_of_threads(|| {
        let (there, back) = (Chan::new(0), Chan::new(0));
        let (other_there, other_back) = (there.clone(), back.clone());
        go(move || other_back.send(other_there.recv().unwrap() + 1));
        there.send(1);
        let mut select = Select::new();
        select.recv(&back, |value| value.unwrap());
        assert_eq!(select.wait(), 2);
        let (ctx, cancel) = context::with_cancel(&context::background());
        let (called, calls) = mpsc::channel();
        let _stop = context::after_func(&ctx, move || called.send(()).unwrap());
        cancel.cancel();
        calls.recv().unwrap();
        assert!(ctx.err().is_some());
    });
}

#[test]
fn goroutines() {
    at_the_end_of_threads(|| {
        assert_eq!(spawn(|| 1).join().unwrap(), 1);
        assert_eq!(blocking(|| 2), 2);
        assert_eq!(run(|| spawn(|| blocking(|| 3)).join().unwrap()), 3);
        let mut n = 0;
        scope(|s| s.go(|| n = 4));
        assert_eq!(n, 4);
        sleep(Duration::from_micros(1));
        block_on(sleep_async(Duration::from_micros(1)));
    });
}
