//! Models of acquiring as a future: async tasks in one queue with threads.
//!
//! `RUSTFLAGS="--cfg sudog_loom" cargo test --profile loom -p sudog-runtime --test loom_acquire`
//!
//! A lost wake-up shows as a deadlock, which loom reports; a lost or doubled permit as a failed count.
#![cfg(sudog_loom)]

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::task::{Context, Poll, Waker};

use loom::sync::Arc;
use loom::sync::atomic::AtomicBool;
use sudog_runtime::AtomicU32;
use sudog_runtime::model::thread::{self, Thread};
use sudog_runtime::reached::{AT_ONCE, SLEEPS, WOKEN_BEFORE, mark, must_reach, waiting};
use sudog_runtime::sema::{self, Order, SemTable, Wake};

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

// What a model can reach, in addition to the states of a thread's call.
const READY_AT_ONCE: &str = "a task does not wait";
const WOKEN: &str = "a task waits, and is woken";
const BEATEN: &str = "a task is beaten to its permit, and waits again";
const LEAVES: &str = "a waiter that is dropped leaves the queue";
const HANDS_ON: &str = "a waiter that is dropped hands on a permit";
const PASSES_ON: &str = "a waiter that is dropped passes on a wake-up";

fn finish(mut future: Pin<&mut impl Future<Output = ()>>) {
    let unpark = Unpark::new();
    let waker = Waker::from(unpark.clone());
    let mut waits = 0;
    while future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
        unpark.wait();
        waits += 1;
    }
    mark(match waits {
        0 => READY_AT_ONCE,
        1 => WOKEN,
        _ => BEATEN,
    });
}

struct World {
    table: SemTable<1>,
    permits: AtomicU32,
}

impl World {
    fn acquire_async(&self) -> sema::Acquire<'_> {
        self.table.acquire_async(&self.permits, Order::Fifo)
    }

    fn acquire_as_task(&self) {
        finish(pin!(self.acquire_async()));
    }

    fn acquire(&self) {
        waiting(|| self.table.acquire(&self.permits, Order::Fifo));
    }

    /// Polls an acquire once. Returns true if the task has a permit, false if the task has been queued and has left the
    /// queue.
    fn poll_and_drop(&self) -> bool {
        pin!(self.acquire_async()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    fn release(&self, wake: Wake) {
        self.table.release(&self.permits, wake);
    }

    fn left(&self) -> u32 {
        self.permits.load(Relaxed)
    }
}

const WAKES: [Wake; 2] = [Wake::Normal, Wake::Handoff];

/// Runs `model` in every interleaving with at most `preemptions` preemptions. Some interleavings must reach `states`.
fn explore(preemptions: usize, states: &[&'static str], model: impl Fn(Arc<World>) + Sync + Send + 'static) {
    let run = move || {
        sudog_runtime::model::set_clock(0);
        model(Arc::new(World { table: SemTable::new(), permits: AtomicU32::new(0) }));
    };
    must_reach(states, || sudog_runtime::model::explore(preemptions, run));
}

fn spawn<T: 'static>(world: &Arc<World>, f: impl FnOnce(&World) -> T + 'static) -> thread::JoinHandle<T> {
    let world = world.clone();
    thread::spawn(move || f(&world))
}

#[test]
fn a_release_wakes_the_task() {
    for wake in WAKES {
        explore(4, &[READY_AT_ONCE, WOKEN], move |w| {
            let task = spawn(&w, World::acquire_as_task);
            w.release(wake);
            task.join().unwrap();
            assert_eq!(w.left() as usize + w.table.waiters(&w.permits), 0);
        });
    }
}

#[test]
fn a_task_and_a_thread_stand_in_one_line() {
    for wake in WAKES {
        explore(3, &[READY_AT_ONCE, WOKEN, AT_ONCE, SLEEPS, WOKEN_BEFORE], move |w| {
            let waiters = [spawn(&w, World::acquire_as_task), spawn(&w, World::acquire)];
            w.release(wake);
            w.release(Wake::Normal);
            for t in waiters {
                t.join().unwrap();
            }
            assert_eq!(w.left(), 0);
        });
    }
}

#[test]
fn one_release_of_two_wakes_a_task_and_a_thread() {
    explore(3, &[READY_AT_ONCE, WOKEN, AT_ONCE, SLEEPS, WOKEN_BEFORE], |w| {
        let waiters = [spawn(&w, World::acquire_as_task), spawn(&w, World::acquire)];
        w.table.release_many(&w.permits, 2);
        for t in waiters {
            t.join().unwrap();
        }
        assert_eq!(w.left(), 0);
    });
}

/// The task joins the queue again, at the front.
#[test]
fn a_task_that_is_beaten_to_its_permit_waits_for_the_next() {
    explore(3, &[READY_AT_ONCE, WOKEN, BEATEN, LEAVES], |w| {
        let task = spawn(&w, World::acquire_as_task);
        let thief = spawn(&w, |w| {
            if w.poll_and_drop() {
                w.release(Wake::Normal);
            }
        });
        w.release(Wake::Normal);
        task.join().unwrap();
        thief.join().unwrap();
        assert_eq!(w.left(), 0);
    });
}

#[test]
fn a_drop_neither_loses_nor_doubles_a_permit() {
    for (wake, given) in [(Wake::Normal, PASSES_ON), (Wake::Handoff, HANDS_ON)] {
        explore(4, &[LEAVES, given], move |w| {
            let task = spawn(&w, World::poll_and_drop);
            w.release(wake);
            let got = u32::from(task.join().unwrap());
            assert_eq!(got + w.left(), 1);
            assert_eq!(w.table.waiters(&w.permits), 0);
        });
    }
}

#[test]
fn a_drop_passes_on_what_it_was_given() {
    for (wake, given) in [(Wake::Normal, PASSES_ON), (Wake::Handoff, HANDS_ON)] {
        explore(3, &[LEAVES, given, AT_ONCE, SLEEPS, WOKEN_BEFORE], move |w| {
            let patient = spawn(&w, World::acquire);
            let hasty = spawn(&w, |w| {
                if w.poll_and_drop() {
                    w.release(Wake::Normal);
                }
            });
            w.release(wake);
            patient.join().unwrap();
            hasty.join().unwrap();
            assert_eq!(w.left(), 0);
        });
    }
}

/// A release may come between any two polls; the release wakes the waker of the last poll.
#[test]
fn the_last_waker_is_woken() {
    const FIRST_WAKER: &str = "the task waits with its first waker";
    explore(4, &[FIRST_WAKER, READY_AT_ONCE, WOKEN], |w| {
        let task = spawn(&w, |w| {
            let mut acquire = pin!(w.acquire_async());
            if acquire.as_mut().poll(&mut Context::from_waker(Waker::noop())) == Poll::Pending {
                mark(FIRST_WAKER);
                finish(acquire);
            }
        });
        w.release(Wake::Normal);
        task.join().unwrap();
        assert_eq!(w.left(), 0);
    });
}

/// The future begins on one thread and ends on another; loom's cells check that the two threads and the releaser do not
/// conflict.
#[test]
fn a_future_may_be_sent() {
    const SENT: &str = "a future is sent while it waits";
    for wake in WAKES {
        explore(3, &[SENT, READY_AT_ONCE, WOKEN], move |w| {
            let world: *const World = &*w;
            let releaser = spawn(&w, move |w| w.release(wake));
            // SAFETY: `world` points to `w`, and the future that borrows it is dropped on `other`, which is joined
            // before `w` is dropped.
            let mut acquire = Box::pin(unsafe { &*world }.acquire_async());
            let ready = acquire.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready();
            let other = thread::spawn(move || {
                if !ready {
                    mark(SENT);
                    finish(acquire.as_mut());
                }
            });
            other.join().unwrap();
            releaser.join().unwrap();
            assert_eq!(w.left(), 0);
        });
    }
}
