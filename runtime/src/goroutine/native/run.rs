//! `run`: a thread that starts the main goroutine and waits for its result.
//!
//! | step | by | |
//! |---|---|---|
//! | 1 | caller | submits the main goroutine, whose closure refers to a [`Frame`] on the caller's stack, and sleeps on `done` |
//! | 2 | main goroutine | counts itself in [`MAINS`], and runs `main`; the result goes to the caller's stack |
//! | 3 | main's fibre | once no count includes the main goroutine any more: releases a permit of `done` |
//! | 4 | caller | returns the result |
//!
//! A main goroutine that calls [`goexit`](crate::goroutine::goexit) has no step 3: the caller waits for ever.

use crate::shim::system::atomic::{AtomicU32, Ordering};
use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::NonNull;

use crate::box_if_large;
use crate::goroutine::Goexit;
use crate::goroutine::native::fibre::job::{VtableOf, Work};
use crate::goroutine::native::fibre::{current, job};
use crate::goroutine::native::mains::MAINS;
use crate::goroutine::native::placement::{Place, Placement, start_at};
use crate::goroutine::native::sched::deadlock;
use crate::goroutine::native::sched::sysmon;
use crate::sema;

/// Runs `main` as a goroutine, and returns its result.
///
/// The calling thread waits. `main` runs on a worker, on a stack of 8 MiB, and may borrow from the caller. Workers are
/// threads of the process, started when there is work for them, as many as [`max_procs`](crate::goroutine::max_procs)
/// says.
///
/// When `main` returns, this function returns. Other goroutines go on, as threads of `std` do; goroutines that wait
/// stay as they are, and the process ends with its own `main`, whatever goroutines and
/// [`blocking`](crate::goroutine::blocking) calls there are. In Go, too, the program ends with `main`. A caller that
/// needs goroutines to end waits for them: by [`scope`](fn@crate::goroutine::scope), a wait group,
/// [`join`](crate::goroutine::JoinHandle::join), or a context.
///
/// If `main` ends by [`goexit`](crate::goroutine::goexit), this call does not return, and the other goroutines go on,
/// as in Go; when no goroutine is left, the process ends with a fatal error.
///
/// Several threads may call `run` at a time. If the caller is a goroutine, `run` only calls `main`.
///
/// A process that [forks](crate::goroutine#what-a-forked-child-may-do) has no workers in the child: the child must
/// exec, or exit.
///
/// If nothing can ever wake the main goroutine, the process ends with
/// `fatal error: all goroutines are asleep - deadlock!`, status 2, and a list of the goroutines. The runtime can prove
/// such a deadlock only on Linux, and only if every thread of the process belongs to this runtime, or waits in this
/// function.
///
/// # Panics
///
/// If `main` panics.
///
/// # Examples
///
/// ```
/// use std::sync::atomic::AtomicU32;
/// use sudog::{go, run};
/// use sudog::low_level::sema::{Wake, semacquire, semrelease};
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
    run_with(main, Box::default(), Placement::Any)
}

#[track_caller]
pub(super) fn run_with<T: Send, F: FnOnce() -> T + Send>(
    main: F,
    details: Box<job::Details>,
    placement: Placement,
) -> T {
    box_if_large!(main: F as dyn FnOnce() -> T + Send + '_ => run_with(main, details, placement));
    if current::fibre().is_some() {
        return main();
    }
    let (mut main, mut result) = (Some(main), None);
    let mut call = || result = main.take().map(|main| main());
    run_to_end(&mut call, VtableOf::from::<F>(), details, placement);
    result.expect("the main goroutine has ended")
}

/// The closure of a main goroutine.
type MainBody<'a> = Box<dyn FnOnce() + Send + 'a>;

/// The state that the caller of `run` shares with the main goroutine.
struct Frame<'a> {
    /// Calls `main`, and keeps the result. Used, as is `panic`, by the main goroutine only until `done` has a permit, and
    /// then by the caller only.
    main: Cell<Option<&'a mut (dyn FnMut() + Send)>>,
    /// The payload of the panic of `main`.
    panic: Cell<Option<Box<dyn Any + Send>>>,
    /// A semaphore, which gets a permit when the main goroutine has ended.
    done: AtomicU32,
}

// SAFETY: all parts are `Send`, and one thread at a time uses `main` and `panic`: the permit of `done` orders the main
// goroutine's use before the caller's. A semaphore is made for many threads.
unsafe impl Sync for Frame<'_> {}

/// Does the steps of the table at the top of this file that the caller does. All of this does not depend on the type of
/// `main`, and is compiled once.
///
/// # Panics
///
/// If `main` panics, or is placed on a worker that does not exist.
#[track_caller]
fn run_to_end(
    main: &mut (dyn FnMut() + Send),
    vtable: VtableOf<MainBody<'_>>,
    details: Box<job::Details>,
    placement: Placement,
) {
    let place = Place::of(placement);
    let frame = Frame { main: Cell::new(Some(main)), panic: Cell::new(None), done: AtomicU32::new(0) };
    let shared = &frame;
    // SAFETY: the closure refers to `frame`, which may be shared with another thread. `frame` outlives the closure: this
    // function returns only when `done` has a permit, which the fibre releases after the end of the closure.
    let body = unsafe { job::Body::<MainBody>::borrowing(Box::new(move || main_goroutine(shared))) };
    let work = job::pack_with(vtable, body, Some(details.as_main()), None);
    start_and_wait(work, place, &frame.done);
    if let Some(payload) = frame.panic.take() {
        resume_unwind(payload);
    }
}

/// Starts the main goroutine, and waits for the permit that says that the goroutine has ended.
fn start_and_wait(main: Work, place: Place, done: &AtomicU32) {
    sysmon::look_at_rest(deadlock::look);
    start_at(main, place);
    current::note_wait("run");
    sema::semacquire(done);
}

/// Does step 2 of the table at the top of this file, and has the fibre do step 3. Runs on the main goroutine.
fn main_goroutine(frame: &Frame) {
    MAINS.running.fetch_add(1, Ordering::Relaxed);
    let main = frame.main.take().expect("run once");
    if let Err(payload) = catch_unwind(AssertUnwindSafe(main)) {
        if exits(&*payload) {
            return;
        }
        frame.panic.set(Some(payload));
    }
    has_result(&frame.done);
}

/// Returns whether the main goroutine has called `goexit`. If so, counts that.
#[cold]
fn exits(payload: &(dyn Any + Send)) -> bool {
    let exits = payload.is::<Goexit>();
    if exits {
        MAINS.exited.fetch_add(1, Ordering::Relaxed);
        MAINS.running.fetch_sub(1, Ordering::Relaxed);
    }
    exits
}

/// Makes the fibre of the main goroutine release a permit of `done` once the goroutine has ended. The main goroutine
/// calls this function.
fn has_result(done: &AtomicU32) {
    let fibre = current::fibre().expect("the main goroutine runs on a fibre");
    fibre.caller.set(Some(NonNull::from(done)));
}
