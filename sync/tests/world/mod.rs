//! The world that the models of the mutex share.
#![allow(dead_code)] // compiled into each suite, and none needs all of it

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::Ordering::{Acquire as Acq, Relaxed, Release};
use std::task::{Context, Waker};
use std::time::Duration;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::AtomicBool;
use sudog_runtime::Instant;
use sudog_runtime::model::set_clock;
use sudog_runtime::model::thread::{self, Thread};
use sudog_runtime::reached::{is_asked_for, mark, must_reach, waiting};
use sudog_runtime::sema::{Acquire, Cancel, WaitError, WaitLimit};
use sudog_sync::mutex::policy::Policy;
use sudog_sync::semaphore::RuntimeSema;
use sudog_sync::{AsyncSemaphore, GoMutex, Order, RawLock, Semaphore, Wake};

/// The runtime's semaphore. Its drop asserts that no permit is left.
///
/// Without `RICH`, it has neither handoff nor LIFO, as a poorer backend.
pub struct Checked<const RICH: bool>(RuntimeSema);

// SAFETY: every call is passed on to `RuntimeSema`, which keeps the contract of `Semaphore`.
unsafe impl<const RICH: bool> Semaphore for Checked<RICH> {
    const LIFO: bool = RICH;
    const FIFO: bool = true;
    const HANDOFF: bool = RICH;
    const DEADLINES: bool = true;

    fn new(permits: u32) -> Self {
        Self(RuntimeSema::new(permits))
    }
    fn acquire(&self, order: Order) {
        self.0.acquire(if RICH { order } else { Order::Fifo });
    }
    fn try_acquire(&self) -> bool {
        self.0.try_acquire()
    }
    fn acquire_until(&self, order: Order, deadline: Instant) -> bool {
        self.0.acquire_until(if RICH { order } else { Order::Fifo }, deadline)
    }
    fn acquire_limited(&self, order: Order, limit: &WaitLimit<'_>) -> Result<(), WaitError> {
        self.0.acquire_limited(if RICH { order } else { Order::Fifo }, limit)
    }
    fn release(&self, wake: Wake) {
        self.0.release(if RICH { wake } else { Wake::Normal });
    }
    fn grant_many(&self, n: u32) {
        if RICH { self.0.grant_many(n) } else { self.0.release_many(n) }
    }
}

// SAFETY: every call is passed on to `RuntimeSema`, which keeps the contract of `AsyncSemaphore`.
unsafe impl<const RICH: bool> AsyncSemaphore for Checked<RICH> {
    type Acquire<'a> = Acquire<'a>;

    fn acquire_async(&self, order: Order) -> Acquire<'_> {
        self.0.acquire_async(if RICH { order } else { Order::Fifo })
    }
}

impl<const RICH: bool> Drop for Checked<RICH> {
    fn drop(&mut self) {
        assert!(thread_panicking() || !self.0.try_acquire(), "a permit was left behind");
    }
}

fn thread_panicking() -> bool {
    std::thread::panicking()
}

/// The states that a model of the mutex can reach. The mutex itself marks some of them.
pub mod states {
    pub const COMES_OFF: &str = "a turn that may be given up comes off";
    pub const GIVES_UP: &str = "a turn is given up at its deadline";
    pub const IS_CANCELLED: &str = "a turn is cancelled";
    pub const DROPPED: &str = "a turn is dropped";
    pub const READY_AT_ONCE: &str = "a task does not wait";
    pub const WOKEN: &str = "a task waits, and is woken";
    pub const WAITS_AGAIN: &str = "a task waits again";

    pub const BARGE: &str = "barge";
    pub const SPIN_WIN: &str = "spin-win";
    pub const STARVES: &str = "starving-enter";
    pub const STARVES_NO_MORE: &str = "starving-exit";
    pub const HANDED_OVER: &str = "the mutex is handed over";
    pub const WOKEN_BY_UNLOCK: &str = "an unlock wakes a waiter";
    pub const CLAIM_SUCCEEDS: &str = "a successor locks the mutex that it has claimed";
    pub const STOPS_WATCHING: &str = "a successor stops watching";
    pub const UNREGISTERS: &str = "a waiter that gives up unregisters";
    pub const MUST_TAKE_PERMIT: &str = "a waiter that gives up must take a permit";
    pub const CANCELLED_AWAKE: &str = "a cancelled contender is awake";
    pub const CANCELLED_OWNER: &str = "a cancelled contender has the mutex";
}
use states::*;

pub struct World<P, const RICH: bool = true> {
    pub mutex: GoMutex<Checked<RICH>, P>,
    data: UnsafeCell<u32>,
}

impl<P: Policy, const RICH: bool> World<P, RICH> {
    pub fn touch(&self) {
        // SAFETY: loom's cell checks that accesses do not overlap; that is the test.
        self.data.with_mut(|data| unsafe { *data += 1 });
    }

    pub fn turn(&self) {
        waiting(|| self.mutex.lock());
        self.touch();
        self.mutex.unlock();
    }

    /// A turn of an async task.
    pub fn async_turn(&self) {
        finish(pin!(self.mutex.lock_async()));
        self.touch();
        self.mutex.unlock();
    }

    /// A turn of an async task that gives up after `polls` polls. Returns the number of turns taken, 0 or 1.
    pub fn dropped_turn(&self, polls: usize) -> u32 {
        let mut lock = pin!(self.mutex.lock_async());
        let mut got = false;
        for _ in 0..polls {
            got = got || lock.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready();
        }
        mark(if got { COMES_OFF } else { DROPPED });
        if got {
            self.touch();
            self.mutex.unlock();
        }
        u32::from(got)
    }

    /// A turn with a deadline. Returns the number of turns taken, 0 or 1.
    ///
    /// The deadline is far by the clock, so that the contender does not give up before it sleeps; but a sleep with a
    /// deadline always ends at once in a model.
    pub fn hasty_turn(&self) -> u32 {
        self.turn_until(Instant::now() + Duration::from_secs(1))
    }

    /// A turn whose deadline has passed by the time that the contender must wait.
    pub fn late_turn(&self) -> u32 {
        self.turn_until(Instant::now())
    }

    pub fn turn_until(&self, deadline: Instant) -> u32 {
        let (got, _) = waiting(|| self.mutex.try_lock_until(deadline));
        mark(if got { COMES_OFF } else { GIVES_UP });
        if got {
            self.touch();
            self.mutex.unlock();
        }
        u32::from(got)
    }

    /// A turn that `stop` may cancel. Returns the number of turns taken, 0 or 1.
    pub fn turn_unless(&self, stop: &Cancel) -> u32 {
        let limit = WaitLimit { cancel: Some(stop), ..WaitLimit::default() };
        let (got, _) = waiting(|| self.mutex.lock_limited(&limit).is_ok());
        mark(if got { COMES_OFF } else { IS_CANCELLED });
        if got {
            self.touch();
            self.mutex.unlock();
        }
        u32::from(got)
    }

    pub fn finish(&self, turns: u32) {
        const AT_REST: &str = "GoMutex { locked: false, woken: false, starving: false, waiters: 0, .. }";
        assert_eq!(format!("{:?}", self.mutex), AT_REST);
        self.mutex.lock();
        // SAFETY: loom's cell checks that accesses do not overlap; that is the test.
        assert_eq!(self.data.with(|data| unsafe { *data }), turns);
        self.mutex.unlock();
        assert_eq!(format!("{:?}", self.mutex), AT_REST);
    }
}

/// Explores a model with each step of the clock. Each of `states` must be reached by some execution of some model.
pub fn each<const N: usize>(steps: [u64; N], states: &[&'static str], explore: impl Fn(u64)) {
    must_reach(states, || steps.into_iter().for_each(explore));
}

/// Explores a model. Must be called inside of a [`must_reach`].
pub fn explore<P: Policy, const RICH: bool>(
    preemptions: usize,
    step_us: u64,
    model: impl Fn(Arc<World<P, RICH>>) + Sync + Send + 'static,
) {
    assert!(is_asked_for(), "by `must_reach`: which states?");
    sudog_runtime::model::explore(preemptions, move || {
        set_clock(step_us * 1000);
        model(Arc::new(World { mutex: RawLock::new(), data: UnsafeCell::new(0) }));
    });
}

pub fn spawn<P: Policy, const RICH: bool, T: 'static>(
    world: &Arc<World<P, RICH>>,
    f: impl FnOnce(&World<P, RICH>) -> T + 'static,
) -> thread::JoinHandle<T> {
    let world = world.clone();
    thread::spawn(move || f(&world))
}

/// A waker that unparks the thread that made the waker.
struct Unpark {
    woken: AtomicBool,
    thread: Thread,
}

impl std::task::Wake for Unpark {
    fn wake(self: std::sync::Arc<Self>) {
        self.woken.store(true, Release);
        self.thread.unpark();
    }
}

/// Runs a future to its end.
pub fn finish(mut future: Pin<&mut impl Future<Output = ()>>) {
    let unpark = std::sync::Arc::new(Unpark { woken: AtomicBool::new(false), thread: thread::current() });
    let waker = Waker::from(unpark.clone());
    let mut waits = 0;
    while future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
        waits += 1;
        while !unpark.woken.load(Acq) {
            thread::park();
        }
        unpark.woken.store(false, Relaxed);
    }
    mark(match waits {
        0 => READY_AT_ONCE,
        1 => WOKEN,
        _ => WAITS_AGAIN,
    });
}
