//! Go's `WaitGroup`: one word, and a semaphore to wait on.
//!
//! ```text
//!   63                              32 31                              0
//!  ┌──────────────────────────────────┬─────────────────────────────────┐
//!  │ counter (signed): tasks to do    │ waiters                         │
//!  └──────────────────────────────────┴─────────────────────────────────┘
//! ```
//!
//! | step | actor | what |
//! |---|---|---|
//! | `counter += delta` | `add` | without waiters, or with tasks left, that is all |
//! | the word becomes 0, then a permit for each waiter, past newcomers | the `add` that has made the counter 0, with waiters | all of them go |
//! | `waiters += 1`, then takes a permit | `wait` that finds tasks | |
//! | `waiters -= 1`; or takes its permit, if the word is 0 | a `wait` that is unwound, or out of time | |
//!
//! While the counter is 0 and waiters are left, only the `add` that has brought that about may change the word: any
//! other change is a misuse of the group, which the next step detects.
//!
//! The group may be freed as soon as all waiters have seen that it is over. So an `add` to 0 without waiters does not
//! touch it again; nor does one with waiters once it has given the last of them its permit.
//!
//! Orderings: an `add` is a Release, and all changes of the word are RMWs. So a thread that reads the word at counter 0
//! with Acquire, a waiter or the `add` that wakes the waiters, comes after all that was done before the `add`s. The
//! semaphore passes that on to the waiters.
//!
//! Source: Go's `sync/waitgroup.go`, in the development tree of 1.28.

mod future;

use std::fmt;
use std::ptr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use sudog_runtime::const_unless_model;
use sudog_runtime::sema::{Order, WaitError, WaitLimit, semacquire, semacquire_limited, semgrant_many};
use sudog_runtime::{AtomicU32, AtomicU64, G, Instant};

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
/// use sudog_sync::WaitGroup;
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
}

const NEGATIVE: &str = "sync: negative WaitGroup counter";
const ADD_MEETS_WAIT: &str = "sync: WaitGroup misuse: Add called concurrently with Wait";
const REUSED: &str = "sync: WaitGroup is reused before previous Wait has returned";

fn counter(state: u64) -> i32 {
    (state >> 32) as i32
}

fn waiters(state: u64) -> u32 {
    state as u32
}

impl WaitGroup {
    const_unless_model! {
        /// A group without tasks.
        #[must_use]
        pub const fn new() -> Self {
            Self { state: AtomicU64::new(0), permits: AtomicU32::new(0) }
        }
    }

    /// So many tasks more, or less. If none is left, all waits return.
    ///
    /// # Panics
    ///
    /// With Go's words, when it notices [misuse](WaitGroup#misuse).
    #[inline]
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
    pub fn done(&self) {
        self.add(-1);
    }

    /// Waits until there is no task.
    ///
    /// # Panics
    ///
    /// With Go's words, when it notices [misuse](WaitGroup#misuse).
    #[inline]
    pub fn wait(&self) {
        let state = self.state.load(Acquire);
        if counter(state) != 0 {
            let over = self.wait_slow(state, &WaitLimit::default());
            debug_assert_eq!(over, Ok(()));
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
    /// let group = sudog_sync::WaitGroup::new();
    /// group.add(1);
    /// assert!(!group.wait_until(Instant::now() + Duration::from_millis(1)));
    /// group.done();
    /// assert!(group.wait_until(Instant::now()));
    /// ```
    #[inline]
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
    /// use sudog_sync::{WaitGroup, context};
    ///
    /// let (ctx, cancel) = context::with_cancel(&context::background());
    /// let group = WaitGroup::new();
    /// group.add(1);
    /// cancel.cancel();
    /// assert_eq!(group.wait_ctx(&ctx), Err(context::Error::Canceled));
    /// ```
    #[cfg(all(unix, not(sudog_loom)))]
    pub fn wait_ctx(&self, ctx: &crate::context::Context) -> Result<(), crate::context::Error> {
        if counter(self.state.load(Acquire)) == 0 {
            return Ok(());
        }
        ctx.limited(|limit| self.wait_limited(limit))
    }

    #[cold]
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
        semgrant_many(&self.permits, waiters);
    }

    #[cold]
    fn wait_slow(&self, state: u64, limit: &WaitLimit<'_>) -> Result<(), WaitError> {
        if !self.count_waiter(state) {
            return Ok(());
        }
        let unwound = LeaveOnUnwind(self);
        // SAFETY: null.
        unsafe { sudog_runtime::note_wait("sync.WaitGroup.Wait", ptr::null()) };
        let over = semacquire_limited(&self.permits, Order::Fifo, limit);
        let left = over.is_err() && self.leave();
        std::mem::forget(unwound);
        if left {
            return over;
        }
        // Relaxed: the word became 0 before our permit was released.
        assert!(self.state.load(Relaxed) == 0, "{REUSED}");
        Ok(())
    }

    /// Counts one waiter more, unless no task is left. The caller has read `state`, which has tasks.
    fn count_waiter(&self, mut state: u64) -> bool {
        loop {
            // Relaxed: an RMW, so what later reads the word reads on from the `add`s before it.
            match self.state.compare_exchange_weak(state, state + 1, Relaxed, Acquire) {
                Ok(_) => return true,
                Err(now) if counter(now) == 0 => return false,
                Err(now) => state = now,
            }
        }
    }

    /// A waiter that is no longer in the semaphore's line takes itself off the count. False if it has been taken off: it
    /// takes its permit.
    ///
    /// Should this be unwound, it is to be called again.
    #[cold]
    fn leave(&self) -> bool {
        let mut state = self.state.load(Relaxed);
        loop {
            if waiters(state) == 0 {
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

/// A goroutine that is unwound leaves its sleep by a panic.
struct LeaveOnUnwind<'a>(&'a WaitGroup);

impl Drop for LeaveOnUnwind<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

#[cfg(all(unix, not(sudog_loom)))]
mod go {
    use std::ops::Deref;
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
    use std::sync::Arc;

    use sudog_runtime::goroutine::{Builder, Goexit};

    use super::WaitGroup;

    impl WaitGroup {
        /// Runs `f` as a goroutine, and as a task of this group: `add` before, `done` after.
        ///
        /// As in Go, a panic in `f` ends the process, and no `wait` returns before it has. A goroutine that ends by
        /// [`goexit`](sudog_runtime::goroutine::goexit), or is given up with its scheduler, has ended.
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
        /// use sudog_sync::WaitGroup;
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
        /// use sudog_runtime::goroutine::Builder;
        /// use sudog_sync::WaitGroup;
        ///
        /// let group = Arc::new(WaitGroup::new());
        /// group.go_with(Builder::new().name("worker"), || ());
        /// group.wait();
        /// ```
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
        /// use sudog_sync::WaitGroup;
        ///
        /// static TASKS: WaitGroup = WaitGroup::new();
        ///
        /// TASKS.go_static(|| ());
        /// TASKS.wait();
        /// ```
        pub fn go_static<F: FnOnce() + Send + 'static>(&'static self, f: F) {
            start(self, Builder::new(), f);
        }
    }

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
        group.add(1);
        let task = Task(group);
        builder.go(move || {
            let task = task;
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
        f.debug_struct("WaitGroup").field("counter", &counter(state)).field("waiters", &waiters(state)).finish()
    }
}

#[cfg(test)]
#[path = "wait_group_tests.rs"]
mod tests;
