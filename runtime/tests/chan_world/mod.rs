//! The world that the models of channels and of select share.
#![allow(dead_code)] // compiled into each suite, and none needs all of it

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::task::{Context, Poll, Waker};

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU32};
use sudog_runtime::model::thread::{self, Thread};
use sudog_runtime::reached::{mark, must_reach};

/// A value that is watched: loom's cell checks that its sender writes the number before its receiver reads the number,
/// and the world counts the drops.
pub struct Value {
    number: UnsafeCell<u32>,
    world: World,
}

/// The counters of the values of an execution.
#[derive(Clone)]
pub struct World {
    made: Arc<AtomicU32>,
    dropped: Arc<AtomicU32>,
    /// The sum of the numbers that were read.
    pub read: Arc<AtomicU32>,
}

impl World {
    pub fn value(&self, number: u32) -> Value {
        self.made.fetch_add(1, Relaxed);
        let value = Value { number: UnsafeCell::new(0), world: self.clone() };
        // SAFETY: loom's cell checks that accesses do not overlap; that is the test.
        value.number.with_mut(|at| unsafe { *at = number });
        value
    }
}

impl Value {
    /// Reads the number, as a receiver does.
    pub fn read(self) -> u32 {
        // SAFETY: loom's cell checks that accesses do not overlap; that is the test.
        let number = self.number.with(|at| unsafe { *at });
        self.world.read.fetch_add(number, Relaxed);
        number
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        self.world.dropped.fetch_add(1, Relaxed);
    }
}

/// Runs `model` in every interleaving with at most `preemptions` preemptions. Some interleavings must reach `states`.
///
/// At the end of each interleaving every value has been dropped once.
pub fn explore(preemptions: usize, states: &[&'static str], model: impl Fn(World) + Sync + Send + 'static) {
    let run = move || {
        sudog_runtime::model::set_clock(0);
        let count = || Arc::new(AtomicU32::new(0));
        let world = World { made: count(), dropped: count(), read: count() };
        model(world.clone());
        assert_eq!(world.made.load(Relaxed), world.dropped.load(Relaxed), "each value is dropped once");
    };
    must_reach(states, || sudog_runtime::model::explore(preemptions, run));
}

/// A waker that unparks the thread that made the waker.
struct Unpark {
    woken: AtomicBool,
    thread: Thread,
    /// True if `thread` has parked since the last unpark. No step of the model. Loom's unpark also wakes a thread that
    /// is blocked by a mutex, and that thread then panics.
    parked: std::sync::atomic::AtomicBool,
}

impl Unpark {
    fn new() -> std::sync::Arc<Self> {
        std::sync::Arc::new(Self { woken: AtomicBool::new(false), thread: thread::current(), parked: false.into() })
    }

    fn wait(&self) {
        // Use a read-modify-write: a load could miss a store whose unpark has already happened.
        while !self.woken.swap(false, Acquire) {
            self.parked.store(true, Relaxed);
            thread::park();
        }
    }
}

impl std::task::Wake for Unpark {
    fn wake(self: std::sync::Arc<Self>) {
        self.woken.swap(true, Release);
        if self.parked.swap(false, Relaxed) {
            self.thread.unpark();
        }
    }
}

pub const READY_AT_ONCE: &str = "a task does not wait";
pub const WOKEN: &str = "a task waits, and is woken";

/// Runs a future to its end, as a task whose executor is this thread.
pub fn finish<F: Future>(mut future: Pin<&mut F>) -> F::Output {
    let unpark = Unpark::new();
    let waker = Waker::from(unpark.clone());
    let mut waits = 0;
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            mark(if waits == 0 { READY_AT_ONCE } else { WOKEN });
            return output;
        }
        unpark.wait();
        waits += 1;
    }
}

/// Polls once, then drops the future. Returns the output if the future was ready; otherwise, the drop gives the wait
/// up.
pub fn poll_and_drop<F: Future>(future: Pin<&mut F>) -> Option<F::Output> {
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}
