//! Go's `WaitGroup`: one word, a place for one waiter, and a semaphore for the others.
//!
//! ```text
//!   63                              32   31    30                      0
//!  ┌──────────────────────────────────┬───────┬─────────────────────────┐
//!  │ counter (signed): tasks to do    │ FIRST │ waiters in the line     │
//!  └──────────────────────────────────┴───────┴─────────────────────────┘
//! ```
//!
//! | step | actor | what |
//! |---|---|---|
//! | `counter += delta` | `add` | without waiters, or with tasks left, that is all |
//! | the word becomes 0; if `FIRST` was set: `first` becomes null, and the waiter that it named is readied; then a permit for each other waiter, past newcomers | the `add` that has made the counter 0, with waiters | all of them go |
//! | `first` is null and now names the waiter's G; then `FIRST` | a `wait` without limit that finds tasks | sleeps |
//! | `waiters += 1`, then takes a permit | a `wait` that finds tasks and `first` taken, or has a limit, or is a task's | |
//! | `waiters -= 1`; or takes its permit, if the word is 0 | a `wait` that is out of time or cancelled, or a future that is dropped | |
//!
//! Most groups have one waiter, without a deadline. It needs no line: `first` saves it the semaphore's table.
//!
//! * Only the waiter that `first` names sets `FIRST`, after it has taken the place; only the `add` that reads `FIRST` as
//!   it makes the word 0 empties the place. So an `add` that has read `FIRST` finds the G.
//! * The G stays for as long as `first` names it: its waiter has no limit, and leaves only when the `add` has readied it.
//!
//! While the counter is 0 and waiters are left, only the `add` that has brought that about may change the word: any
//! other change is a misuse of the group, which the next step detects.
//!
//! The group may be freed as soon as all waiters have seen that it is over. So an `add` to 0 without waiters does not
//! touch it again; nor does one with waiters once it has given the last of them its permit.
//!
//! Orderings: an `add` is a Release, and all changes of the word are RMWs. So a thread that reads the word at counter 0
//! with Acquire, a waiter or the `add` that wakes the waiters, comes after all that was done before the `add`s. The
//! semaphore passes that on to the waiters, as does `ready` to the first. `FIRST` is set with Release and read with
//! Acquire: the `add` reads what `first` names. `first` becomes null with Release, and is taken with Acquire: a new
//! waiter's store comes after.
//!
//! Source: Go's `sync/waitgroup.go`, in the development tree of 1.28.

mod future;

use std::fmt;
use std::ptr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use sudog_runtime::const_unless_model;
use sudog_runtime::sema::{Order, WaitError, WaitLimit, semacquire, semacquire_limited, semgrant_many};
use sudog_runtime::shim::AtomicPtr;
use sudog_runtime::{AtomicU32, AtomicU64, G, Instant, ParkResult, fatal};

pub use future::WaitFuture;

/// Waits for a number of tasks to end.
///
/// [`add`](WaitGroup::add) counts tasks that begin, [`done`](WaitGroup::done) one that ends, and
/// [`wait`](WaitGroup::wait) blocks the thread or goroutine until there is none.
///
/// What a task did before its `done` happens before what follows the `wait`.
///
/// # Misuse
///
/// As in Go, it panics where it notices: when the counter becomes negative, when an `add` from 0 meets a `wait`, and
/// when tasks are added for a new round before all waits of the old one have returned. Tasks must be added before the
/// `wait` that shall wait for them.
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
    state: AtomicU64,
    permits: AtomicU32,
    first: AtomicPtr<G>,
}

/// In the word: `first` names a waiter, which is to be readied.
const FIRST: u32 = 1 << 31;

const NEGATIVE: &str = "sync: negative WaitGroup counter";
const ADD_MEETS_WAIT: &str = "sync: WaitGroup misuse: Add called concurrently with Wait";
const REUSED: &str = "sync: WaitGroup is reused before previous Wait has returned";

fn counter(state: u64) -> i32 {
    (state >> 32) as i32
}

/// The lower half: 0 if there is no waiter.
fn waiters(state: u64) -> u32 {
    state as u32
}

impl WaitGroup {
    const_unless_model! {
        /// A group without tasks.
        #[must_use]
        pub const fn new() -> Self {
            Self { state: AtomicU64::new(0), permits: AtomicU32::new(0), first: AtomicPtr::new(ptr::null_mut()) }
        }
    }

    /// So many tasks more, or less. If none is left, all waits return.
    ///
    /// # Panics
    ///
    /// With Go's words, when it notices [misuse](WaitGroup#misuse).
    #[inline]
    #[track_caller]
    pub fn add(&self, delta: i32) {
        let change = u64::from(delta as u32) << 32;
        let state = self.state.fetch_add(change, Release).wrapping_add(change);
        if waiters(state) != 0 || counter(state) < 0 {
            self.add_slow(state, delta);
        }
    }

    /// One task less: `add(-1)`.
    ///
    /// The last one wakes the waiters, and a goroutine may give way there. Any other `done` or `add` is one atomic
    /// operation and never switches: a goroutine that does nothing else in a loop calls
    /// [`gosched`](sudog_runtime::goroutine) at times.
    ///
    /// # Panics
    ///
    /// As [`WaitGroup::add`].
    #[inline]
    #[track_caller]
    pub fn done(&self) {
        self.add(-1);
    }

    /// Waits until there is no task.
    ///
    /// # Panics
    ///
    /// With Go's words, when it notices [misuse](WaitGroup#misuse).
    #[inline]
    #[track_caller]
    pub fn wait(&self) {
        let state = self.state.load(Acquire);
        if counter(state) != 0 {
            self.wait_first(state);
        }
    }

    /// [`WaitGroup::wait`] until a deadline at most: says whether there was a moment without tasks. A deadline in the
    /// past makes it one look.
    ///
    /// # Panics
    ///
    /// As [`WaitGroup::wait`].
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    ///
    /// let group = sudog::sync::WaitGroup::new();
    /// group.add(1);
    /// assert!(!group.wait_until(Instant::now() + Duration::from_millis(1)));
    /// group.done();
    /// assert!(group.wait_until(Instant::now()));
    /// ```
    #[inline]
    #[must_use = "false: tasks are left"]
    #[track_caller]
    pub fn wait_until(&self, deadline: Instant) -> bool {
        self.wait_limited(&WaitLimit::until(deadline)).is_ok()
    }

    /// [`WaitGroup::wait`] until a [`WaitLimit`] at most.
    ///
    /// # Errors
    ///
    /// Which limit came first.
    ///
    /// # Panics
    ///
    /// As [`WaitGroup::wait`].
    #[inline]
    #[track_caller]
    pub fn wait_limited(&self, limit: &WaitLimit<'_>) -> Result<(), WaitError> {
        let state = self.state.load(Acquire);
        if counter(state) == 0 { Ok(()) } else { self.wait_slow(state, limit) }
    }

    /// [`WaitGroup::wait`] for as long as `ctx` is not done. A group without tasks needs no wait, whatever the context.
    ///
    /// # Errors
    ///
    /// The context's.
    ///
    /// # Panics
    ///
    /// As [`WaitGroup::wait`].
    ///
    /// # Examples
    ///
    /// ```
    /// use sudog::context;
    /// use sudog::sync::WaitGroup;
    ///
    /// let (ctx, cancel) = context::with_cancel(&context::background());
    /// let group = WaitGroup::new();
    /// group.add(1);
    /// cancel.cancel();
    /// assert_eq!(group.wait_ctx(&ctx), Err(context::Error::Canceled));
    /// ```
    #[cfg(all(unix, not(sudog_loom)))]
    #[track_caller]
    pub fn wait_ctx(&self, ctx: &crate::context::Context) -> Result<(), crate::context::Error> {
        let state = self.state.load(Acquire);
        if counter(state) != 0 && ctx.limited(|limit| self.sleep(state, limit))? {
            self.assert_over();
        }
        Ok(())
    }

    #[cold]
    #[track_caller]
    fn add_slow(&self, state: u64, delta: i32) {
        let (left, waiters) = (counter(state), waiters(state));
        assert!(left >= 0, "{NEGATIVE}");
        assert!(waiters == 0 || delta <= 0 || left != delta, "{ADD_MEETS_WAIT}");
        if left > 0 {
            return;
        }
        // Acquire: the tasks whose `add` came before ours.
        let over = self.state.compare_exchange(state, 0, Acquire, Relaxed);
        assert!(over.is_ok(), "{ADD_MEETS_WAIT}");
        if waiters & FIRST != 0 {
            // Relaxed: the exchange above has acquired it.
            let first = self.first.load(Relaxed);
            self.first.store(ptr::null_mut(), Release);
            // Before the others' permits: to give them may be to call a task's waker, which is user code.
            // SAFETY: `first` named a waiter, as FIRST was set; that parks, or is about to, and stays until this call;
            // and the place is empty, so no other call readies it.
            unsafe { G::ready(first) };
        }
        match waiters & !FIRST {
            0 => sudog_runtime::safepoint(),
            others => semgrant_many(&self.permits, others), // a safepoint too
        }
    }

    /// A wait without limit: in the place of the first waiter if that is free.
    #[cold]
    #[track_caller]
    fn wait_first(&self, state: u64) {
        let g = G::current();
        let place = ptr::from_ref(&g).cast_mut();
        if self.first.compare_exchange(ptr::null_mut(), place, Acquire, Relaxed).is_err() {
            let over = self.wait_slow(state, &WaitLimit::default());
            debug_assert_eq!(over, Ok(()));
            return;
        }
        if !self.count_waiter(state, FIRST) {
            self.first.store(ptr::null_mut(), Release);
            return;
        }
        // SAFETY: the pointer is null.
        unsafe { sudog_runtime::note_wait("sync.WaitGroup.Wait", ptr::null()) };
        let woken = g.park(None, || ());
        debug_assert_eq!(woken, ParkResult::Unparked);
        self.assert_over();
    }

    /// A wait that stands in the line.
    #[cold]
    #[track_caller]
    fn wait_slow(&self, state: u64, limit: &WaitLimit<'_>) -> Result<(), WaitError> {
        if self.sleep(state, limit)? {
            self.assert_over();
        }
        Ok(())
    }

    /// Sleeps in the line until the counter is 0: true. False if no task is left before the caller sleeps. The caller has
    /// read `state`, which has tasks.
    #[cold]
    fn sleep(&self, state: u64, limit: &WaitLimit<'_>) -> Result<bool, WaitError> {
        if !self.count_waiter(state, 1) {
            return Ok(false);
        }
        // SAFETY: the pointer is null.
        unsafe { sudog_runtime::note_wait("sync.WaitGroup.Wait", ptr::null()) };
        let over = semacquire_limited(&self.permits, Order::Fifo, limit);
        if over.is_err() && self.leave() { over.map(|()| true) } else { Ok(true) }
    }

    /// Asserts that no new round has begun before a woken waiter returns.
    #[track_caller]
    fn assert_over(&self) {
        // Relaxed: the word became 0 before the waiter's `ready`, or before its permit was released.
        assert!(self.state.load(Relaxed) == 0, "{REUSED}");
    }

    /// Counts one waiter more, or sets `FIRST`, unless no task is left. The caller has read `state`, which has tasks.
    #[inline]
    fn count_waiter(&self, mut state: u64, one: u32) -> bool {
        loop {
            if waiters(state) & !FIRST == FIRST - 1 {
                fatal("sync: more than 2147483647 waiters of a WaitGroup"); // they have been forgotten, not dropped
            }
            // Release: what `first` names. Not Acquire: an RMW, so what later reads the word reads on from the `add`s
            // before it.
            match self.state.compare_exchange_weak(state, state + u64::from(one), Release, Acquire) {
                Ok(_) => return true,
                Err(now) if counter(now) == 0 => return false,
                Err(now) => state = now,
            }
        }
    }

    /// A waiter that is no longer in the semaphore's line takes itself off the count. False if it has been taken off: it
    /// takes its permit.
    #[cold]
    fn leave(&self) -> bool {
        let mut state = self.state.load(Relaxed);
        loop {
            if waiters(state) & !FIRST == 0 {
                semacquire(&self.permits); // there, or on its way
                return false;
            }
            if counter(state) == 0 {
                G::yield_now(); // an `add` is about to take us off
                state = self.state.load(Relaxed);
                continue;
            }
            match self.state.compare_exchange_weak(state, state - 1, Relaxed, Relaxed) {
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
        /// Runs `f` as a goroutine, and as a task of this group: `add` before, `done` after.
        ///
        /// As in Go, a panic in `f` ends the process, and no `wait` returns before it has. A goroutine that ends by
        /// [`goexit`](sudog_runtime::goroutine::goexit) has ended.
        ///
        /// # Panics
        ///
        /// As [`WaitGroup::add`].
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

        /// [`WaitGroup::go`] with a name, a stack size or a place of a [`Builder`].
        ///
        /// # Panics
        ///
        /// As [`WaitGroup::go`] and [`Builder::go`].
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

        /// [`WaitGroup::go`] for a group in a `static`.
        ///
        /// # Panics
        ///
        /// As [`WaitGroup::go`].
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
        /// Done, even if the goroutine never starts.
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
            // In this order: `f` is dropped before the group knows, also if no goroutine can be made.
            let (f, task) = (f, task);
            if let Err(payload) = catch_unwind(AssertUnwindSafe(f)) {
                if !payload.is::<Goexit>() {
                    std::mem::forget(task); // a `wait` could end the program before the panic does
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
        let waiting = (waiters(state) & !FIRST) + waiters(state) / FIRST;
        f.debug_struct("WaitGroup").field("counter", &counter(state)).field("waiters", &waiting).finish()
    }
}

#[cfg(test)]
#[path = "wait_group_tests.rs"]
mod tests;
