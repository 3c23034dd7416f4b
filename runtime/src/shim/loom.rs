//! The modelled machine: loom explores every interleaving of the operations in this file.

use super::reached::{self, TIME_IS_UP, WOKEN_BEFORE, YIELDS, mark};
pub use loom::cell::Cell;
pub use loom::sync::MutexGuard;

pub use super::sc::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

/// Loom's mutex, without poisoning.
pub struct Mutex<T>(loom::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub fn new(value: T) -> Self {
        Self(loom::sync::Mutex::new(value))
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap()
    }

    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock().ok()
    }
}

#[track_caller]
pub fn full_fence() {
    fence(Ordering::SeqCst);
}

/// Pauses a spin loop. While the modelled clock advances, a spin ends by itself, and the states that the spin sees are
/// explored like any other step. While the clock stands still only another thread can end a spin, so this function
/// yields: loom then runs all other threads first.
pub fn pause() {
    if !model::time_passes() {
        mark(YIELDS);
        loom::thread::yield_now();
    }
}

pub fn yield_now() {
    mark(YIELDS);
    loom::thread::yield_now();
}

pub fn num_cpus() -> u32 {
    2
}

/// A point of the modelled time, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Instant(u64);

impl Instant {
    /// Returns the current time. The clock advances only when it is read, by the step that the model has set.
    pub fn now() -> Self {
        Self(model::tick())
    }

    /// The counterpart of `std`'s `checked_add`. Never returns None, as a model's clock does not end.
    #[allow(clippy::unnecessary_wraps)]
    pub fn checked_add(self, later: std::time::Duration) -> Option<Self> {
        Some(self + later)
    }

    /// The counterpart of `std`'s `saturating_duration_since`.
    pub fn saturating_duration_since(self, earlier: Self) -> std::time::Duration {
        std::time::Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl std::ops::Add<std::time::Duration> for Instant {
    type Output = Self;

    fn add(self, later: std::time::Duration) -> Self {
        Self(self.0 + later.as_nanos() as u64)
    }
}

/// Returns the current time, as [`Instant::now`] does.
pub fn now() -> Instant {
    Instant::now()
}

/// The modelled clock, and the other settings of a model.
pub mod model {
    use std::cell::Cell;

    pub use crate::shim::sc::{Sc, each_site, set_sc, under_both};

    /// Runs `model` in every interleaving with at most `preemptions` preemptions.
    pub fn explore(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
        explore_boxed(Some(preemptions), Box::new(model));
    }

    /// Runs `model` in every interleaving.
    pub fn explore_all(model: impl Fn() + Sync + Send + 'static) {
        explore_boxed(None, Box::new(model));
    }

    /// Loom's explorer is compiled once, and not for each model.
    fn explore_boxed(preemptions: Option<usize>, model: Box<dyn Fn() + Sync + Send>) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = preemptions;
        builder.max_branches = 20_000;
        builder.check(model);
    }

    /// The threads of a model.
    pub mod thread {
        pub use loom::thread::{JoinHandle, Thread, ThreadId, current, park, yield_now};

        /// Starts a thread. What loom does for a thread is compiled once for each type of results, and not for each
        /// closure.
        #[track_caller]
        pub fn spawn<T: 'static>(f: impl FnOnce() -> T + 'static) -> JoinHandle<T> {
            loom::thread::spawn(Box::new(f) as Box<dyn FnOnce() -> T>)
        }
    }

    // Loom runs all threads of a model on one thread of the machine, the test's thread. So each test has its own clock.
    thread_local! {
        static NOW: Cell<u64> = const { Cell::new(0) };
        static STEP: Cell<u64> = const { Cell::new(0) };
    }

    /// Resets the clock to 0. The clock advances by `step` nanoseconds each time it is read. Call this function at the
    /// beginning of a model, so that all executions start alike.
    pub fn set_clock(step: u64) {
        NOW.set(0);
        STEP.set(step);
    }

    loom::thread_local! {
        static GOROUTINE: Cell<bool> = Cell::new(false);
        static ACTIVE_SET: Cell<*const ()> = Cell::new(std::ptr::null());
    }

    pub(crate) fn active_set() -> *const () {
        ACTIVE_SET.with(Cell::get)
    }

    pub(crate) fn set_active_set(set: *const ()) {
        ACTIVE_SET.with(|place| place.set(set));
    }

    /// Makes this thread behave like a goroutine, from now on, where threads and goroutines behave differently; the
    /// thread still parks as a thread.
    pub fn be_goroutine() {
        GOROUTINE.with(|is| is.set(true));
    }

    pub(crate) fn is_goroutine() -> bool {
        GOROUTINE.with(Cell::get)
    }

    pub(super) fn time_passes() -> bool {
        STEP.get() > 0
    }

    pub(super) fn tick() -> u64 {
        NOW.set(NOW.get() + STEP.get());
        NOW.get()
    }
}

/// Linux's futex, as far as the models need it: all words share one condition variable, and a thread that is woken by
/// the wake of another word checks its own word again.
pub mod futex {
    use super::{AtomicU32, Instant, Ordering};
    use crate::shim::reached;
    use loom::sync::{Condvar, Mutex};

    loom::lazy_static! {
        static ref SLEEPERS: (Mutex<()>, Condvar) = (Mutex::new(()), Condvar::new());
    }

    pub fn wait(word: &AtomicU32, expected: u32, deadline: Option<Instant>) -> bool {
        assert!(deadline.is_none(), "not modelled");
        let asleep = SLEEPERS.0.lock().unwrap();
        if word.load(Ordering::Relaxed) == expected {
            drop(reached::sleep(|| SLEEPERS.1.wait(asleep).unwrap()));
        }
        true
    }

    pub fn wake(_word: *const AtomicU32, n: u32) {
        let _asleep = SLEEPERS.0.lock().unwrap();
        if n == u32::MAX {
            return SLEEPERS.1.notify_all();
        }
        for _ in 0..n {
            SLEEPERS.1.notify_one();
        }
    }
}

/// A parker: blocks one thread until one `unpark`.
pub struct Parker {
    ready: AtomicBool,
    thread: loom::thread::Thread,
    /// True while the thread is parked. This flag is not a step of the model. Loom's unpark also wakes a thread that is
    /// blocked by a mutex, which then panics because it expects to own the mutex. So only a thread that is truly parked
    /// is unparked. No thread runs between the test of `ready` and the parking, as loom switches before its operations
    /// only.
    parked: std::sync::atomic::AtomicBool,
}

impl Parker {
    pub fn new() -> Self {
        let parked = std::sync::atomic::AtomicBool::new(false);
        Self { ready: AtomicBool::new(false), thread: loom::thread::current(), parked }
    }

    pub fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed)
    }

    /// Blocks until `unpark`, and returns true. If there is a deadline, returns false instead of blocking, as if the
    /// deadline had passed already. This is the hardest case and contains all other cases: the threads that race with
    /// the deadline may run at any point between the unlocking of the queue and the waiter's return to it.
    pub fn park(&self, deadline: Option<Instant>) -> bool {
        // Use RMWs for both accesses, which loom orders: a load could miss a store whose unpark has already happened.
        let mut slept = false;
        while !self.ready.swap(false, Ordering::Acquire) {
            if deadline.is_some() {
                mark(TIME_IS_UP);
                return false;
            }
            slept = true;
            self.parked.store(true, Ordering::Relaxed);
            reached::sleep(loom::thread::park);
        }
        if !slept {
            mark(WOKEN_BEFORE);
        }
        true
    }

    /// Wakes the thread that parks here, or lets its next `park` return at once.
    ///
    /// # Safety
    /// `this` is alive, and a `park` has consumed each earlier `unpark` of `this`.
    pub unsafe fn unpark(this: *const Self) {
        // SAFETY: `this` is alive by the contract of this function, until the store to `ready` below.
        let thread = unsafe { (*this).thread.clone() };
        // SAFETY: `this` is alive until the store to `ready`. That store is the last step of the model that uses the
        // memory, and no thread runs between the store and the swap of `parked`.
        let was_parked = unsafe {
            (*this).ready.swap(true, Ordering::Release);
            (*this).parked.swap(false, Ordering::Relaxed)
        };
        if was_parked {
            thread.unpark();
        }
    }
}
