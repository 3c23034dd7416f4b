//! The modelled machine: loom explores every interleaving of what goes through here.

pub use loom::cell::Cell;
pub use loom::sync::MutexGuard;
pub use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Loom's mutex, without poisoning.
pub struct Mutex<T>(loom::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub fn new(value: T) -> Self {
        Self(loom::sync::Mutex::new(value))
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap()
    }
}

/// Loom treats sequentially consistent accesses as acquire-release ones but knows fences: see `docs/orderings.md`.
pub fn dekker_fence() {
    loom::sync::atomic::fence(Ordering::SeqCst);
}

/// A spinning thread can only be freed by another one, so spinning yields.
pub fn pause() {
    loom::thread::yield_now();
}

pub fn yield_now() {
    loom::thread::yield_now();
}

pub fn num_cpus() -> u32 {
    2
}

/// A point of the modelled time, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Instant(u64);

impl Instant {
    /// Time passes only as the clock is read, by the step that the model has set.
    pub fn now() -> Self {
        Self(model::tick())
    }

    pub fn saturating_duration_since(self, earlier: Self) -> std::time::Duration {
        std::time::Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// The modelled clock.
pub mod model {
    use std::sync::atomic::{AtomicU64, Ordering};

    // `std`'s atomics: loom need not explore them, because the executions of one model never overlap.
    static NOW: AtomicU64 = AtomicU64::new(0);
    static STEP: AtomicU64 = AtomicU64::new(0);

    /// Starts the clock anew at 0, to advance by `step` nanoseconds each time that somebody reads it.
    /// To be called at the beginning of a model, so that its executions are alike.
    pub fn set_clock(step: u64) {
        NOW.store(0, Ordering::Relaxed);
        STEP.store(step, Ordering::Relaxed);
    }

    pub(super) fn tick() -> u64 {
        NOW.fetch_add(STEP.load(Ordering::Relaxed), Ordering::Relaxed)
    }
}

/// Blocks one thread until one `unpark`.
pub struct Parker {
    ready: AtomicBool,
    thread: loom::thread::Thread,
}

impl Parker {
    pub fn new() -> Self {
        Self { ready: AtomicBool::new(false), thread: loom::thread::current() }
    }

    /// A deadline has always passed already. That is the hardest case and contains the others: the threads that race
    /// with it may run at any point between the unlocking of the queue and the waiter's return to it.
    pub fn park(&self, deadline: Option<Instant>) -> bool {
        while !self.ready.load(Ordering::Acquire) {
            if deadline.is_some() {
                return false;
            }
            loom::thread::park();
        }
        self.ready.store(false, Ordering::Relaxed);
        true
    }

    /// # Safety
    /// `this` is alive, and no `unpark` has been called on it that its `park` has not yet answered.
    pub unsafe fn unpark(this: *const Self) {
        // SAFETY: alive by the contract, until the store below.
        let thread = unsafe { (*this).thread.clone() };
        // SAFETY: as above; this is the last access to the memory.
        unsafe { (*this).ready.store(true, Ordering::Release) };
        thread.unpark();
    }
}
