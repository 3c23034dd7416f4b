//! Calls that block a thread, or compute for long, and are made on another thread while the goroutine waits.
//!
//! | | [`blocking`] | [`compute`] |
//! |---|---|---|
//! | for | calls that wait: files, sockets, foreign locks | computations of more than 5 ms |
//! | largest number of threads | 512, or as [`set_max_blocking`] says | as [`max_procs`](crate::goroutine::max_procs) says |
//! | further calls | wait for a thread, in the order in which they came | the same |
//!
//! The closure may borrow: its goroutine waits, so the frames of that goroutine stay until the closure has returned.

use crate::shim::system::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use crate::shim::system::thread;
use crate::shim::system::{Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;
use std::sync::PoisonError;
use std::time::Duration;

use crate::box_if_large;
use crate::goroutine::native::fibre::current;
use crate::goroutine::native::fork;
use crate::goroutine::native::sched::scheduler::Sched;
use crate::goroutine::native::sched::stall;
use crate::sema::{self, Wake};

/// The time after which an idle thread ends.
const KEEP: Duration = Duration::from_secs(10);

/// A call for which a goroutine waits.
struct Call {
    /// A pointer to a `Frame<F, T>` on the waiting goroutine's stack.
    frame: *mut (),
    run: unsafe fn(*mut ()),
    /// The semaphore at which the goroutine waits, on the goroutine's stack.
    done: *const AtomicU32,
    sched: &'static Sched,
}

// SAFETY: the frame holds an `F: Send` and is to hold a `T: Send`; the waiting goroutine does not touch the frame until
// `done` has a permit.
unsafe impl Send for Call {}

struct Frame<F, T> {
    f: Option<F>,
    result: Option<thread::Result<T>>,
}

/// The threads for one kind of calls: for [`blocking`], or for [`compute`].
struct Pool {
    state: Mutex<State>,
    called: Condvar,
    /// The name that each of the threads gets.
    name: &'static str,
    /// The name of a goroutine's wait for such a call, for the deadlock report.
    what: &'static str,
    /// Returns the largest number of threads. Further calls wait for a thread.
    limit: fn() -> usize,
    /// True once a call has had to wait for a thread, until the limit is set anew.
    full: AtomicBool,
}

struct State {
    calls: VecDeque<Call>,
    threads: usize,
    /// The number of those threads whose start has not returned yet.
    starting: usize,
    idle: usize,
}

static BLOCKING: Pool = Pool::new("sudog-blocking", "blocking call", || MAX_BLOCKING.load(Ordering::Relaxed));
static MAX_BLOCKING: AtomicUsize = AtomicUsize::new(512);
static COMPUTE: Pool = Pool::new("sudog-compute", "computation", || Sched::process().procs());

/// Runs `f` on another thread, and lets other goroutines of the caller's worker run until `f` returns.
///
/// For calls that block their thread: file and network I/O, foreign functions, `std`'s locks, long computations. `f`
/// may borrow from the caller, whose stack stays. A caller that is no goroutine, or may not switch, runs `f` on its own
/// stack.
///
/// `f` does not run on a goroutine. At most 512 calls run at a time, or as many as [`set_max_blocking`] says; further
/// calls wait. The process ends if the system gives no thread at all.
///
/// A call that never returns, such as a read from an idle connection, keeps its thread and its goroutine, but does not
/// keep the process from ending: the process ends with `main`, as in Go.
///
/// # Panics
///
/// If `f` panics.
///
/// # Examples
///
/// ```
/// use sudog::{blocking, run};
///
/// run(|| {
///     let mut lines = Vec::new();
///     blocking(|| lines.push("read from a file"));
///     assert_eq!(lines.len(), 1);
/// });
/// ```
pub fn blocking<T: Send>(f: impl FnOnce() -> T + Send) -> T {
    BLOCKING.call(f)
}

/// Sets the largest number of calls of [`blocking`] that run at a time, each on a thread, and returns the former
/// number, 512 at first. Go's `debug.SetMaxThreads`, but further calls wait, where Go ends the process.
///
/// If all threads are taken and a call has to wait, a line on standard error says so, once for each limit: in builds
/// with debug assertions, or if `SUDOG_STALLS` is set and not `0`.
///
/// # Panics
///
/// If `n` is 0.
///
/// # Examples
///
/// ```
/// use sudog::runtime::set_max_blocking;
///
/// let before = set_max_blocking(10_000);
/// assert_eq!(set_max_blocking(before), 10_000);
/// ```
#[track_caller]
pub fn set_max_blocking(n: usize) -> usize {
    assert!(n > 0, "the number of threads for blocking calls must not be 0");
    let before = MAX_BLOCKING.swap(n, Ordering::Relaxed);
    BLOCKING.full.store(false, Ordering::Relaxed);
    BLOCKING.serve_waiting();
    before
}

/// Runs `f`, which computes for long, on another thread. Other goroutines of the caller's worker run until `f` returns.
///
/// A goroutine keeps its worker for as long as it makes no call into the runtime. Meanwhile all goroutines that have
/// started on that worker wait, however many processors are idle. Use this function for computations that take longer
/// than the other goroutines should wait: as a rule more than 5 ms. A loop may call
/// [`gosched`](crate::goroutine::gosched) now and then instead. (If one handler in twenty computes for 10 ms, a tenth
/// of the others take more than 9 ms, and a hundredth more than 17 ms. With `compute` these are 1 and 4 ms:
/// `cargo lab-peers tail`.)
///
/// There are as many threads for these calls as [`max_procs`](crate::goroutine::max_procs) says, so that computations
/// do not take the processors from each other; further calls wait for a thread. `f` must not wait for another
/// computation, which might wait for the thread of `f`. For calls that wait use [`blocking`], which has more threads.
///
/// The rest is as with [`blocking`]: `f` may borrow from the caller, whose stack stays; `f` is not on a goroutine; a
/// caller that is no goroutine, or may not switch, runs `f` on its own stack (so `f` runs at once inside `blocking` or
/// another `compute`).
///
/// Go interrupts a goroutine that computes, and needs no such function.
///
/// # Panics
///
/// If `f` panics.
///
/// # Examples
///
/// ```
/// use sudog::{compute, run};
///
/// run(|| {
///     let numbers = [3_u64, 5, 7];
///     let sum = compute(|| numbers.iter().map(|n| n.pow(10)).sum::<u64>());
///     assert_eq!(sum, 59_049 + 9_765_625 + 282_475_249);
/// });
/// ```
pub fn compute<T: Send>(f: impl FnOnce() -> T + Send) -> T {
    Sched::on_new_procs(|| COMPUTE.serve_waiting());
    COMPUTE.call(f)
}

fn elsewhere<F: FnOnce() -> T + Send, T: Send>(pool: &'static Pool, f: F) -> T {
    box_if_large!(f: F as dyn FnOnce() -> T + Send + '_ => elsewhere(pool, f));
    // Check before any lock: another thread of the parent may have held that lock at the fork.
    fork::forbid_in_child();
    let done = AtomicU32::new(0);
    let mut frame = Frame { f: Some(f), result: None };
    let sched = Sched::here();
    sched.idle.external_begins();
    pool.submit(Call { frame: (&raw mut frame).cast(), run: run::<F, T>, done: &raw const done, sched });
    current::note_wait(pool.what);
    sema::semacquire(&done); // until then the call uses this frame
    match frame.result.take().expect("the call is done") {
        Ok(result) => result,
        Err(payload) => resume_unwind(payload),
    }
}

/// Runs the call of a frame, and stores the result, or the panic, in the frame.
///
/// # Safety
///
/// `frame` points to a live `Frame<F, T>`, and no other thread uses it meanwhile.
unsafe fn run<F: FnOnce() -> T, T>(frame: *mut ()) {
    // SAFETY: by the contract of `run`, `frame` points to a live `Frame<F, T>` that no other thread uses meanwhile.
    let frame = unsafe { &mut *frame.cast::<Frame<F, T>>() };
    let f = frame.f.take().expect("run once");
    frame.result = Some(catch_unwind(AssertUnwindSafe(f)));
}

impl Pool {
    const fn new(name: &'static str, what: &'static str, limit: fn() -> usize) -> Self {
        let state = Mutex::new(State { calls: VecDeque::new(), threads: 0, starting: 0, idle: 0 });
        Self { state, called: Condvar::new(), name, what, limit, full: AtomicBool::new(false) }
    }

    fn call<T: Send>(&'static self, f: impl FnOnce() -> T + Send) -> T {
        if current::current().is_some() { elsewhere(self, f) } else { f() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn submit(&'static self, call: Call) {
        let mut state = self.lock();
        state.calls.push_back(call);
        self.start_if_needed(state);
    }

    /// Starts threads for the calls that wait, after the limit has been raised.
    fn serve_waiting(&'static self) {
        // Start a thread for each waiting call. The number of waiting calls does not fall meanwhile by the calls for
        // which threads were just started: such a thread takes a call off the queue only when the thread runs.
        let waiting = self.lock().calls.len();
        for _ in 0..waiting {
            if !self.start_if_needed(self.lock()) {
                return;
            }
        }
    }

    /// Ensures that a thread will take the last call in the queue. Returns whether a thread was started.
    fn start_if_needed(&'static self, mut state: MutexGuard<'_, State>) -> bool {
        if state.idle >= state.calls.len() {
            self.called.notify_one();
            return false;
        }
        let limit = (self.limit)();
        if state.threads >= limit {
            drop(state);
            if ptr::eq(self, &BLOCKING) && !self.full.swap(true, Ordering::Relaxed) {
                stall::all_threads_are_taken(limit);
            }
            return false;
        }
        state.threads += 1;
        state.starting += 1;
        drop(state);
        let started = thread::Builder::new().name(self.name.into()).spawn(|| self.serve());
        let mut state = self.lock();
        state.starting -= 1;
        if let Err(error) = started {
            state.threads -= 1;
            if state.threads == 0 {
                crate::fatal(&format!("sudog: no thread for a {}: {error}", self.what));
            }
            return false;
        }
        true
    }

    fn serve(&self) {
        let mut state = self.lock();
        loop {
            // If the limit has been lowered, end this thread: another thread takes the call, or the call waits.
            if state.threads > (self.limit)() {
                state.threads -= 1;
                self.called.notify_one();
                return;
            }
            if let Some(call) = state.calls.pop_front() {
                drop(state);
                // SAFETY: the frame is alive, and this thread's alone: the waiting goroutine keeps the frame, and does
                // not touch the frame until `done` has a permit.
                unsafe { (call.run)(call.frame) };
                // SAFETY: `done` is alive until the permit is there; from then on the release uses `done` as an address
                // only.
                sema::semrelease(unsafe { &*call.done }, Wake::Normal);
                call.sched.idle.external_ends();
                state = self.lock();
                continue;
            }
            state.idle += 1;
            let (back, timeout) = self.called.wait_timeout(state, KEEP).unwrap_or_else(PoisonError::into_inner);
            state = back;
            state.idle -= 1;
            if timeout.timed_out() && state.calls.is_empty() {
                state.threads -= 1;
                return;
            }
        }
    }
}

/// Returns the number of calls of [`blocking`] and [`compute`] that run on a thread.
#[cfg(feature = "metrics")]
pub(crate) fn calls_that_run() -> usize {
    [&BLOCKING, &COMPUTE].map(|pool| pool.lock()).iter().map(|state| state.threads - state.idle).sum()
}

/// Returns the number of threads that exist for the calls of [`blocking`] and [`compute`], idle threads included; for the
/// deadlock report. A thread that is being started may not be counted: it may not exist yet.
pub(crate) fn threads() -> usize {
    let count = |state: MutexGuard<'_, State>| state.threads.saturating_sub(state.starting);
    count(BLOCKING.lock()) + count(COMPUTE.lock())
}
