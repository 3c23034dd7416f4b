//! Go's `WaitGroup`: a state word, the field `first` for the first waiter, and a semaphore for the other waiters.
//! `wait_group/state.rs` has the protocol.
//!
//! Source: Go's `sync/waitgroup.go`, in the development tree of 1.28.

mod future;
mod state;

use std::fmt;
use std::ptr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use sudog_runtime::const_unless_model;
use sudog_runtime::sema::{IntoLimit, Order, WaitError, WaitLimit, semacquire, semacquire_limited, semgrant_many};
use sudog_runtime::shim::AtomicPtr;
use sudog_runtime::{AtomicU32, G, ParkResult, fatal};

pub use future::WaitFuture;
use state::{AtomicState, State};

/// Waits for a number of tasks to end.
///
/// [`add`](WaitGroup::add) counts tasks that begin, [`done`](WaitGroup::done) notes that a task has ended, and
/// [`wait`](WaitGroup::wait) blocks the thread or goroutine until no task is left.
///
/// Everything that a task does before its `done` happens before everything that follows the `wait`.
///
/// # Misuse
///
/// As in Go, the group panics where it notices misuse: when the counter becomes negative, when an `add` that raises the
/// counter from 0 runs at the same time as a `wait`, and when tasks are added for a new round before all waits of the
/// old round have returned. Tasks must be added before the `wait` that shall wait for them.
///
/// # Examples
///
/// ```
/// use sudog::sync::WaitGroup;
///
/// let group = WaitGroup::new();
/// std::thread::scope(|s| {
///     for _ in 0..3 {
///         group.add(1);
///         s.spawn(|| group.done());
///     }
///     group.wait();
/// });
/// ```
pub struct WaitGroup {
    state: AtomicState,
    permits: AtomicU32,
    first: AtomicPtr<G>,
}

const NEGATIVE: &str = "sync: negative WaitGroup counter";
const ADD_MEETS_WAIT: &str = "sync: WaitGroup misuse: Add called concurrently with Wait";
const REUSED: &str = "sync: WaitGroup is reused before previous Wait has returned";

impl WaitGroup {
    const_unless_model! {
        /// Returns a group without tasks.
        #[must_use]
        pub const fn new() -> Self {
            Self { state: AtomicState::new(), permits: AtomicU32::new(0), first: AtomicPtr::new(ptr::null_mut()) }
        }
    }

    /// Adds `delta`, which may be negative, to the number of tasks. If no task is left, all waits return.
    ///
    /// # Panics
    ///
    /// Panics with Go's message when the group notices [misuse](WaitGroup#misuse).
    #[inline]
    #[track_caller]
    pub fn add(&self, delta: i32) {
        let state = self.state.add(delta, Release);
        if state.has_waiters() || state.counter() < 0 {
            self.add_slow(state, delta);
        }
    }

    /// Notes that a task has ended: the same as `add(-1)`.
    ///
    /// The `done` of the last task wakes the waiters, and there a goroutine may give way to others. Any other `done` or
    /// `add` is a single atomic operation, and never switches to another goroutine. So a goroutine that does nothing
    /// else in a loop should call [`gosched`](sudog_runtime::goroutine) now and then.
    ///
    /// # Panics
    ///
    /// Panics in the same cases as [`WaitGroup::add`].
    #[inline]
    #[track_caller]
    pub fn done(&self) {
        self.add(-1);
    }

    /// Waits until no task is left.
    ///
    /// # Panics
    ///
    /// Panics with Go's message when the group notices [misuse](WaitGroup#misuse).
    #[inline]
    #[track_caller]
    pub fn wait(&self) {
        let state = self.state.load(Acquire);
        if state.has_tasks() {
            self.wait_first(state);
        }
    }

    /// Waits as [`WaitGroup::wait`] does, until `limit` ends the wait: see [`IntoLimit`]. If the group has no tasks,
    /// returns `Ok`, whatever the limit.
    ///
    /// # Errors
    ///
    /// The error says which limit came first.
    ///
    /// # Panics
    ///
    /// Panics in the same cases as [`WaitGroup::wait`].
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use sudog::WaitError;
    ///
    /// let group = sudog::sync::WaitGroup::new();
    /// group.add(1);
    /// assert_eq!(group.wait_limited(Duration::from_millis(1)), Err(WaitError::TimedOut));
    /// group.done();
    /// assert_eq!(group.wait_limited(Duration::ZERO), Ok(()));
    /// ```
    #[inline]
    #[track_caller]
    pub fn wait_limited<L: IntoLimit>(&self, limit: L) -> Result<(), L::Error> {
        let state = self.state.load(Acquire);
        // Check outside of the closure, where the place of a panic is the caller's.
        if state.has_tasks() && limit.limited(|limit| self.sleep(state, limit))? {
            self.assert_over();
        }
        Ok(())
    }

    #[cold]
    #[track_caller]
    fn add_slow(&self, state: State, delta: i32) {
        let left = state.counter();
        assert!(left >= 0, "{NEGATIVE}");
        assert!(!state.has_waiters() || delta <= 0 || left != delta, "{ADD_MEETS_WAIT}");
        if left > 0 {
            return;
        }
        // Acquire, so that this call comes after the tasks whose `done` came before this `add`.
        let over = self.state.compare_exchange(state, State::OVER, Acquire, Relaxed);
        assert!(over.is_ok(), "{ADD_MEETS_WAIT}");
        if state.has_first() {
            // Relaxed: the exchange above has acquired the waiter's store to `first`.
            let first = self.first.load(Relaxed);
            self.first.store(ptr::null_mut(), Release);
            // Ready the first waiter before the others get their permits: the release of a permit may call the waker of
            // a task, which is user code.
            // SAFETY:
            // - `first` points to the live G of a waiter, as FIRST was set: the waiter stays until this call readies
            //   it.
            // - No other call readies that G: only this `add` has read FIRST as it made the word 0, and the place is
            //   empty now.
            // - Since the waiter set `first`, it waits for nothing but this call: it parks, or is about to.
            // - `first` is not used after the call.
            unsafe { G::ready(first) };
        }
        match state.in_line() {
            0 => sudog_runtime::safepoint(),
            others => semgrant_many(&self.permits, others), // contains a safepoint
        }
    }

    /// Waits without limit: as the first waiter if `first` is null, else in the semaphore's queue.
    #[cold]
    #[track_caller]
    fn wait_first(&self, state: State) {
        let g = G::current();
        let place = ptr::from_ref(&g).cast_mut();
        if self.first.compare_exchange(ptr::null_mut(), place, Acquire, Relaxed).is_err() {
            let over = self.wait_slow(state, &WaitLimit::default());
            debug_assert_eq!(over, Ok(()));
            return;
        }
        if !self.count_waiter(state, State::add_first) {
            self.first.store(ptr::null_mut(), Release);
            return;
        }
        sudog_runtime::note_wait_at("sync.WaitGroup.Wait", self);
        let woken = g.park(None, || ());
        debug_assert_eq!(woken, ParkResult::Unparked);
        self.assert_over();
    }

    /// Waits in the semaphore's queue.
    #[cold]
    #[track_caller]
    fn wait_slow(&self, state: State, limit: &WaitLimit<'_>) -> Result<(), WaitError> {
        if self.sleep(state, limit)? {
            self.assert_over();
        }
        Ok(())
    }

    /// Sleeps in the semaphore's queue until the counter is 0, and returns true. Returns false if no task is left
    /// before the caller sleeps. `state` is the state that the caller has read; its counter is not 0.
    #[cold]
    fn sleep(&self, state: State, limit: &WaitLimit<'_>) -> Result<bool, WaitError> {
        if !self.count_waiter(state, State::add_waiter) {
            return Ok(false);
        }
        sudog_runtime::note_wait_at("sync.WaitGroup.Wait", self);
        let over = semacquire_limited(&self.permits, Order::Fifo, limit);
        if over.is_err() && self.leave() { over.map(|()| true) } else { Ok(true) }
    }

    /// Asserts that no new round has begun before a woken waiter returns.
    #[track_caller]
    fn assert_over(&self) {
        // Relaxed: the word became 0 before the waiter was readied, or before the waiter's permit was released.
        assert!(self.state.load(Relaxed) == State::OVER, "{REUSED}");
    }

    /// Applies `transition`, [`State::add_first`] or [`State::add_waiter`], to the state, and returns true. Returns false
    /// if no task is left. `state` is the state that the caller has read; its counter is not 0.
    #[inline]
    fn count_waiter(&self, mut state: State, transition: impl Fn(State) -> State) -> bool {
        loop {
            if state.is_full() {
                fatal("sync: more than 2147483647 waiters of a WaitGroup"); // futures that were forgotten, not dropped
            }
            // Release, for the G that `first` names. Acquire is not needed: the step is an RMW, so a thread that reads
            // the word later still synchronizes with the `add`s before.
            match self.state.compare_exchange_weak(state, transition(state), Release, Acquire) {
                Ok(_) => return true,
                Err(now) if !now.has_tasks() => return false,
                Err(now) => state = now,
            }
        }
    }

    /// Subtracts a waiter that has left the semaphore's queue from the count of waiters. If an `add` has done so
    /// already, takes the permit of that waiter instead, and returns false.
    #[cold]
    fn leave(&self) -> bool {
        let mut state = self.state.load(Relaxed);
        loop {
            if state.in_line() == 0 {
                semacquire(&self.permits); // the permit is in the semaphore, or about to be
                return false;
            }
            if !state.has_tasks() {
                G::yield_now(); // an `add` is about to take this waiter off
                state = self.state.load(Relaxed);
                continue;
            }
            match self.state.compare_exchange_weak(state, state.remove_waiter(), Relaxed, Relaxed) {
                Ok(_) => return true,
                Err(now) => state = now,
            }
        }
    }
}

#[cfg(all(unix, not(sudog_loom)))]
mod go {
    use std::ops::Deref;
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
    use std::sync::Arc;

    use sudog_runtime::box_if_large;
    use sudog_runtime::goroutine::{Builder, Goexit};

    use super::WaitGroup;

    impl WaitGroup {
        /// Runs `f` on a new goroutine, as a task of this group: calls `add(1)` before, and `done` when `f` has ended.
        ///
        /// As in Go, a panic in `f` ends the process, and no `wait` returns before the process has ended. A goroutine
        /// that ends by [`goexit`](sudog_runtime::goroutine::goexit) counts as an ended task.
        ///
        /// # Panics
        ///
        /// Panics in the same cases as [`WaitGroup::add`].
        ///
        /// # Examples
        ///
        /// ```
        /// use std::sync::Arc;
        /// use std::sync::atomic::{AtomicU32, Ordering};
        /// use sudog::sync::WaitGroup;
        ///
        /// static SUM: AtomicU32 = AtomicU32::new(0);
        ///
        /// let group = Arc::new(WaitGroup::new());
        /// for n in 1..=4 {
        ///     group.go(move || _ = SUM.fetch_add(n, Ordering::Relaxed));
        /// }
        /// group.wait();
        /// assert_eq!(SUM.load(Ordering::Relaxed), 10);
        /// ```
        #[track_caller]
        pub fn go<F: FnOnce() + Send + 'static>(self: &Arc<Self>, f: F) {
            self.go_with(Builder::new(), f);
        }

        /// Runs `f` as [`WaitGroup::go`] does, on a goroutine with the name, the stack size and the placement that the
        /// [`Builder`] sets.
        ///
        /// # Panics
        ///
        /// Panics in the same cases as [`WaitGroup::go`] and [`Builder::go`].
        ///
        /// # Examples
        ///
        /// ```
        /// use std::sync::Arc;
        /// use sudog::Builder;
        /// use sudog::sync::WaitGroup;
        ///
        /// let group = Arc::new(WaitGroup::new());
        /// group.go_with(Builder::new().name("worker"), || ());
        /// group.wait();
        /// ```
        #[track_caller]
        pub fn go_with<F: FnOnce() + Send + 'static>(self: &Arc<Self>, builder: Builder, f: F) {
            start(self.clone(), builder, f);
        }

        /// Runs `f` as [`WaitGroup::go`] does, as a task of a group in a `static`.
        ///
        /// # Panics
        ///
        /// Panics in the same cases as [`WaitGroup::go`].
        ///
        /// # Examples
        ///
        /// ```
        /// use sudog::sync::WaitGroup;
        ///
        /// static TASKS: WaitGroup = WaitGroup::new();
        ///
        /// TASKS.go_static(|| ());
        /// TASKS.wait();
        /// ```
        #[track_caller]
        pub fn go_static<F: FnOnce() + Send + 'static>(&'static self, f: F) {
            start(self, Builder::new(), f);
        }
    }

    #[track_caller]
    fn start<G, F>(group: G, builder: Builder, f: F)
    where
        G: Deref<Target = WaitGroup> + Send + 'static,
        F: FnOnce() + Send + 'static,
    {
        /// Calls `done` when it is dropped, even if the goroutine never starts.
        struct Task<G: Deref<Target = WaitGroup>>(G);
        impl<G: Deref<Target = WaitGroup>> Drop for Task<G> {
            fn drop(&mut self) {
                self.0.done();
            }
        }
        box_if_large!(f: F as dyn FnOnce() + Send => start(group, builder, f));
        group.add(1);
        let task = Task(group);
        builder.go(move || {
            // Capture `f` before `task`, so that `f` is dropped before `task` calls `done`, even if no goroutine can be
            // made.
            let (f, task) = (f, task);
            if let Err(payload) = catch_unwind(AssertUnwindSafe(f)) {
                if !payload.is::<Goexit>() {
                    std::mem::forget(task); // else a `wait` could end the program before the panic does
                }
                resume_unwind(payload);
            }
        });
    }
}

impl Default for WaitGroup {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for WaitGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.load(Relaxed);
        let waiting = state.in_line() + u32::from(state.has_first());
        f.debug_struct("WaitGroup").field("counter", &state.counter()).field("waiters", &waiting).finish()
    }
}

#[cfg(test)]
#[path = "wait_group_tests.rs"]
mod tests;
