//! Calls that block a thread, made elsewhere while the goroutine waits.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::AtomicU32;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::goroutine::native::fibre::current;
use crate::goroutine::native::sched::scheduler::Sched;
use crate::panics::drop_payload;
use crate::sema::{self, Wake};

/// How many threads there are at most. More calls wait for one.
const MAX_THREADS: usize = 512;
/// For how long an idle thread stays.
const KEEP: Duration = Duration::from_secs(10);

/// A call that its goroutine waits for, on that goroutine's stack.
struct Call {
    /// A `Frame<F, T>`.
    frame: *mut (),
    run: unsafe fn(*mut ()),
    done: *const AtomicU32,
    sched: &'static Sched,
}

// SAFETY: the frame holds an `F: Send` and is to hold a `T: Send`; its goroutine does not touch it until `done`.
unsafe impl Send for Call {}

struct Frame<F, T> {
    f: Option<F>,
    result: Option<thread::Result<T>>,
}

/// A panic that no caller will see, as the goroutine is given up: its payload's destructor must not panic meanwhile.
impl<F, T> Drop for Frame<F, T> {
    fn drop(&mut self) {
        if let Some(Err(payload)) = self.result.take_if(|result| result.is_err()) {
            drop_payload(payload);
        }
    }
}

#[derive(Default)]
struct Pool {
    calls: VecDeque<Call>,
    threads: usize,
    idle: usize,
}

static POOL: Mutex<Pool> = Mutex::new(Pool { calls: VecDeque::new(), threads: 0, idle: 0 });
static CALLED: Condvar = Condvar::new();

fn lock() -> MutexGuard<'static, Pool> {
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `f` on another thread, and lets other goroutines run here until it returns.
///
/// For what blocks its thread: file and network I/O, foreign functions, `std`'s locks, long computations. `f` may
/// borrow from the caller, whose stack stays. A caller that is no goroutine, or may not switch, runs `f` itself.
///
/// `f` is not on a goroutine: what it starts by `go` runs in the background, and does not end with this
/// [`run`](fn@crate::goroutine::run). At most 512 calls run at a time, more wait. The process ends if no thread can be
/// had at all. A goroutine that is given up in here ends when `f` has.
///
/// # Panics
///
/// As `f` does.
///
/// # Examples
///
/// ```
/// use sudog_runtime::goroutine::{blocking, run};
///
/// run(|| {
///     let mut lines = Vec::new();
///     blocking(|| lines.push("read from a file"));
///     assert_eq!(lines.len(), 1);
/// });
/// ```
pub fn blocking<T: Send>(f: impl FnOnce() -> T + Send) -> T {
    match current::current() {
        Some(_) => elsewhere(f),
        None => f(),
    }
}

fn elsewhere<F: FnOnce() -> T + Send, T: Send>(f: F) -> T {
    /// Waits for the call, whatever happens: it uses our frame.
    struct Wait<'a>(&'a AtomicU32, bool);
    impl Drop for Wait<'_> {
        fn drop(&mut self) {
            if !self.1 {
                sema::semacquire(self.0); // our goroutine is given up, but the call goes on
            }
        }
    }

    let done = AtomicU32::new(0);
    let mut frame = Frame { f: Some(f), result: None };
    let sched = Sched::here();
    sched.idle.external_begins();
    let mut wait = Wait(&done, false);
    submit(Call { frame: (&raw mut frame).cast(), run: run::<F, T>, done: &raw const done, sched });
    current::note_wait("blocking call", std::ptr::null());
    sema::semacquire(&done);
    wait.1 = true;
    drop(wait);
    match frame.result.take().expect("the call is done") {
        Ok(result) => result,
        Err(payload) => resume_unwind(payload),
    }
}

/// # Safety
///
/// `frame` points to a live `Frame<F, T>`, and no other thread uses it meanwhile.
unsafe fn run<F: FnOnce() -> T, T>(frame: *mut ()) {
    // SAFETY: by the contract.
    let frame = unsafe { &mut *frame.cast::<Frame<F, T>>() };
    let f = frame.f.take().expect("run once");
    frame.result = Some(catch_unwind(AssertUnwindSafe(f)));
}

fn submit(call: Call) {
    let mut pool = lock();
    pool.calls.push_back(call);
    if pool.idle >= pool.calls.len() || pool.threads == MAX_THREADS {
        CALLED.notify_one();
        return;
    }
    pool.threads += 1;
    drop(pool);
    if let Err(error) = thread::Builder::new().name("sudog-blocking".into()).spawn(serve) {
        let mut pool = lock();
        pool.threads -= 1;
        if pool.threads == 0 {
            crate::fatal(&format!("sudog: no thread for a blocking call: {error}"));
        }
    }
}

fn serve() {
    let mut pool = lock();
    loop {
        if let Some(call) = pool.calls.pop_front() {
            drop(pool);
            // SAFETY: its goroutine keeps the frame, and its hands off, until `done`.
            unsafe { (call.run)(call.frame) };
            // SAFETY: alive until the permit is there; the release then uses it as an address only.
            sema::semrelease(unsafe { &*call.done }, Wake::Normal);
            call.sched.external_ends();
            pool = lock();
            continue;
        }
        pool.idle += 1;
        let (back, timeout) = CALLED.wait_timeout(pool, KEEP).unwrap_or_else(PoisonError::into_inner);
        pool = back;
        pool.idle -= 1;
        if timeout.timed_out() && pool.calls.is_empty() {
            pool.threads -= 1;
            return;
        }
    }
}

/// How many threads there are.
pub(crate) fn threads() -> usize {
    lock().threads
}
