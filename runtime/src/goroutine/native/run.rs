//! `run`: a thread that starts the main goroutine and waits for its result.
//!
//! | step | by | |
//! |---|---|---|
//! | 1 | caller | submits the main goroutine, whose closure refers to a [`Frame`] on the caller's stack, and sleeps on `done` |
//! | 2 | main goroutine | counts itself in [`MAINS`], runs `main`, writes the result into the frame |
//! | 3 | main's fibre | once the goroutine has been counted off everywhere: releases a permit of `done` |
//! | 4 | caller | takes the result |
//!
//! A main goroutine that calls [`goexit`](crate::goroutine::goexit) has no step 3: the caller waits for ever.

use crate::shim::system::atomic::{AtomicU32, AtomicUsize, Ordering};
use crate::shim::system::thread;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::NonNull;

use crate::box_if_large;
use crate::goroutine::Goexit;
use crate::goroutine::native::fibre::{current, job};
use crate::goroutine::native::sched::scheduler::Sched;
use crate::sema::{self, Wake};

/// Runs `main` as a goroutine, and returns its result.
///
/// The calling thread waits. `main` runs on a worker, on a stack of 8 MiB, and may borrow from the caller. Workers are
/// threads of the process, started when there is work for them, as many as
/// [`max_procs`](crate::goroutine::max_procs) says.
///
/// When `main` returns, so does this function. Other goroutines go on, as threads of `std` do; those that wait stay as
/// they are, and the process ends with its own `main`, whatever goroutines and [`blocking`](crate::goroutine::blocking)
/// calls there are. In Go, too, the program ends with `main`. A caller that needs goroutines to end waits for them: by
/// [`scope`](fn@crate::goroutine::scope), a wait group, [`join`](crate::goroutine::JoinHandle::join), or a context.
///
/// If `main` ends by [`goexit`](crate::goroutine::goexit), this call does not return, and the other goroutines go on, as
/// in Go; when none is left, the process ends with a fatal error.
///
/// Several threads may call `run` at a time. Called from a goroutine, it just calls `main`.
///
/// A process that [forks](crate::goroutine#what-a-forked-child-may-do) has no workers in the child: the child must exec, or
/// exit.
///
/// If nothing can ever wake the main goroutine, the process ends with `fatal error: all goroutines are asleep -
/// deadlock!`, status 2, and a list of them. That can be proven only on Linux, and only if every thread of the process
/// is one of this runtime's, or waits in this function.
///
/// # Panics
///
/// As `main` does.
///
/// # Examples
///
/// ```
/// use std::sync::atomic::AtomicU32;
/// use sudog::{go, run};
/// use sudog::runtime::sema::{Wake, semacquire, semrelease};
///
/// static DONE: AtomicU32 = AtomicU32::new(0);
///
/// let answer = run(|| {
///     go(|| semrelease(&DONE, Wake::Normal));
///     semacquire(&DONE);
///     42
/// });
/// assert_eq!(answer, 42);
/// ```
pub fn run<T: Send>(main: impl FnOnce() -> T + Send) -> T {
    run_with(main, Box::default())
}

/// The stack size that the main thread of a process has as a rule: programs were written for that size.
const MAIN_STACK: usize = 8 << 20;

/// Numbers of main goroutines: the deadlock report's.
pub(crate) struct Mains {
    /// Main goroutines that have begun and not ended. The callers of `run` wait for them.
    running: AtomicUsize,
    /// Main goroutines that have called `goexit`. The callers of `run` wait for ever.
    exited: AtomicUsize,
}

pub(crate) static MAINS: Mains = Mains { running: AtomicUsize::new(0), exited: AtomicUsize::new(0) };

impl Mains {
    /// Number of threads that wait in [`run`] for a main goroutine that has begun. A thread that is on its way into the
    /// wait or out of it is not counted, as it may do something else.
    pub(crate) fn callers(&self) -> usize {
        self.running() + self.exited()
    }

    pub(crate) fn running(&self) -> usize {
        self.running.load(Ordering::Relaxed)
    }

    pub(crate) fn exited(&self) -> usize {
        self.exited.load(Ordering::Relaxed)
    }
}

/// The state that the caller of `run` shares with the main goroutine.
struct Frame<F, T> {
    main: Option<F>,
    result: Option<thread::Result<T>>,
    /// A permit once the main goroutine has ended.
    done: AtomicU32,
}

pub(crate) fn run_with<T: Send, F: FnOnce() -> T + Send>(main: F, details: Box<job::Details>) -> T {
    box_if_large!(main: F as dyn FnOnce() -> T + Send + '_ => run_with(main, details));
    if current::fibre().is_some() {
        return main();
    }
    let mut frame = Frame { main: Some(main), result: None, done: AtomicU32::new(0) };
    let place = &raw mut frame;
    let shared = Shared(place);
    let body = move || {
        let shared = shared;
        // SAFETY: `frame` stands until `done` has a permit, which comes after this closure; and the caller touches
        // nothing of it before.
        unsafe { main_goroutine(shared.0) };
    };
    let sched = Sched::process();
    sched.count_made();
    // SAFETY: the closure and what it refers to are `Send`; `frame` outlives the goroutine, as this function returns only
    // when the goroutine has released the permit.
    sched.submit(unsafe { job::pack_unchecked(body, Some(as_main(details)), None) });
    // SAFETY: the semaphore is shared by design; `frame` is a local of this function.
    sema::semacquire(unsafe { &(*place).done });
    // SAFETY: the main goroutine has ended, so this thread alone uses the frame.
    match unsafe { (*place).result.take() }.expect("the main goroutine has ended") {
        Ok(result) => result,
        Err(payload) => resume_unwind(payload),
    }
}

/// Adds the name and the stack size of a main goroutine to what its starter asks for.
pub(crate) fn as_main(mut details: Box<job::Details>) -> Box<job::Details> {
    details.name.get_or_insert_with(|| "main".into());
    details.stack_size.get_or_insert(MAIN_STACK);
    details
}

/// A pointer to the caller's frame, on its way to the main goroutine.
struct Shared<F, T>(*mut Frame<F, T>);

// SAFETY: the frame holds an `F` and a `T`, which are `Send`, and its caller touches neither until the goroutine has ended.
unsafe impl<F: Send, T: Send> Send for Shared<F, T> {}

/// Steps 2 and 3, on the main goroutine.
///
/// # Safety
///
/// `frame` stands until `done` has a permit, and no other thread touches `main` and `result`.
unsafe fn main_goroutine<F: FnOnce() -> T, T>(frame: *mut Frame<F, T>) {
    MAINS.running.fetch_add(1, Ordering::Relaxed);
    // SAFETY: alive, and this goroutine's alone, by the contract.
    let main = unsafe { (*frame).main.take() }.expect("run once");
    let outcome = catch_unwind(AssertUnwindSafe(main));
    if matches!(&outcome, Err(payload) if payload.is::<Goexit>()) {
        MAINS.exited.fetch_add(1, Ordering::Relaxed);
        MAINS.running.fetch_sub(1, Ordering::Relaxed);
        return;
    }
    // SAFETY: as for `main`.
    unsafe { (*frame).result = Some(outcome) };
    let fibre = current::fibre().expect("the main goroutine runs on a fibre");
    // SAFETY: the address of a field.
    fibre.caller.set(NonNull::new(unsafe { &raw mut (*frame).done }));
}

/// Step 3, by the fibre of a main goroutine, which has been counted off: the caller may go on.
pub(crate) fn release_caller(done: NonNull<AtomicU32>) {
    // Before the release: from then on the caller's thread does not wait any more.
    MAINS.running.fetch_sub(1, Ordering::Relaxed);
    // SAFETY: alive until the permit is there; the release then uses `done` as an address only.
    current::without_switching(|| sema::semrelease(unsafe { done.as_ref() }, Wake::Normal));
}
