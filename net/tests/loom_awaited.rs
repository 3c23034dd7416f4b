//! Models of `Awaited`: a task that awaits a direction, and events, a close and a drop, in every interleaving, on loom's
//! memory model, up to a bound of preemptions.
//!
//! `RUSTFLAGS="--cfg sudog_loom" cargo test --profile loom -p sudog-net --test loom_awaited`
//!
//! A lost event shows as a task that waits for ever: a deadlock.
#![cfg(sudog_loom)]

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::task::{Context, Poll, Waker};

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU32};
use sudog_net::{Awaited, Wait};
use sudog_runtime::model::thread::{self, Thread};
use sudog_runtime::reached::{mark, must_reach};

const AT_ONCE: &str = "the first try succeeds";
const WAITED: &str = "a task is woken";
const NOT_QUEUED: &str = "an event comes between the try and the queue";
const WAKES: &str = "an event finds a task";
const ALONE: &str = "an event finds no task";
const CLOSED: &str = "a task is told of the close";
const READ: &str = "a task reads beside a close";
const DROPPED: &str = "a future is dropped while it waits";

/// A waker that unparks the thread that made the waker.
struct Unpark {
    woken: AtomicBool,
    thread: Thread,
}

impl Unpark {
    fn new() -> std::sync::Arc<Self> {
        std::sync::Arc::new(Self { woken: AtomicBool::new(false), thread: thread::current() })
    }

    fn wait(&self) {
        while !self.woken.load(Acquire) {
            thread::park();
        }
        self.woken.store(false, Relaxed);
    }
}

impl std::task::Wake for Unpark {
    fn wake(self: std::sync::Arc<Self>) {
        self.woken.store(true, Release);
        self.thread.unpark();
    }
}

/// A direction: data, as the system holds them, and a close.
struct Direction {
    awaited: Awaited,
    data: AtomicU32,
    closed: AtomicU32,
}

impl Direction {
    fn new() -> Arc<Self> {
        Arc::new(Self { awaited: Awaited::new(), data: AtomicU32::new(0), closed: AtomicU32::new(0) })
    }

    /// Does what the poller does after an event, and what a close does.
    fn nudge(&self) {
        let wakes = self.awaited.event();
        mark(if wakes { WAKES } else { ALONE });
        if wakes {
            self.awaited.wake();
        }
    }

    fn arrive(&self) {
        self.data.store(1, Relaxed);
        self.nudge();
    }

    fn close(&self) {
        self.closed.store(1, Relaxed);
        self.nudge();
    }

    /// Reads the data; None: the task was told of the close.
    fn attempt(&self, tries: &mut u32) -> Poll<Option<u32>> {
        *tries += 1;
        if self.data.load(Relaxed) == 1 {
            return Poll::Ready(Some(*tries));
        }
        if self.closed.load(Relaxed) == 1 { Poll::Ready(None) } else { Poll::Pending }
    }

    /// Awaits the data, on a thread of its own.
    fn read(&self) -> Option<u32> {
        let (mut wait, mut tries, mut polls) = (Wait::new(&self.awaited), 0, 0);
        let unpark = Unpark::new();
        let waker = Waker::from(unpark.clone());
        let read = loop {
            polls += 1;
            match wait.poll_try(&mut Context::from_waker(&waker), || self.attempt(&mut tries)) {
                Poll::Ready(read) => break read,
                Poll::Pending => unpark.wait(),
            }
        };
        mark(match (polls, tries) {
            (1, 1) => AT_ONCE,
            (1, _) => NOT_QUEUED,
            _ => WAITED,
        });
        read
    }
}

fn explore(states: &[&'static str], model: impl Fn() + Sync + Send + 'static) {
    must_reach(states, || {
        sudog_runtime::model::explore(3, model);
    });
}

/// Lets a task await data, and the data arrive: the task reads them.
#[test]
fn no_event_is_lost() {
    explore(&[AT_ONCE, WAITED, NOT_QUEUED, WAKES, ALONE], || {
        let direction = Direction::new();
        let reader = thread::spawn({
            let direction = direction.clone();
            move || assert!(direction.read().is_some())
        });
        direction.arrive();
        reader.join().unwrap();
        assert_eq!(direction.awaited.waiters(), 0);
    });
}

/// Lets a task await data, data arrive, and another thread close: the task reads or is told of the close.
#[test]
fn a_close() {
    explore(&[CLOSED, READ, WAITED], || {
        let direction = Direction::new();
        let reader = thread::spawn({
            let direction = direction.clone();
            move || mark(if direction.read().is_some() { READ } else { CLOSED })
        });
        let closer = thread::spawn({
            let direction = direction.clone();
            move || direction.close()
        });
        direction.arrive();
        reader.join().unwrap();
        closer.join().unwrap();
    });
}

/// Lets a future that waits be dropped while data arrive: another task reads them, and the queue is empty afterwards.
#[test]
fn a_future_is_dropped() {
    explore(&[DROPPED, WAITED, WAKES, ALONE], || {
        let direction = Direction::new();
        let reader = thread::spawn({
            let direction = direction.clone();
            move || {
                let mut wait = Wait::new(&direction.awaited);
                let mut tries = 0;
                let mut cx = Context::from_waker(Waker::noop());
                let polled = wait.poll_try(&mut cx, || direction.attempt(&mut tries));
                if polled.is_pending() {
                    drop(wait);
                    mark(DROPPED);
                    assert!(direction.read().is_some());
                }
            }
        });
        direction.arrive();
        reader.join().unwrap();
        assert_eq!(direction.awaited.waiters(), 0);
        assert!(!direction.awaited.event(), "no task is counted");
    });
}
