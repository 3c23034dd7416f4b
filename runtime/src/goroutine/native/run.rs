//! Making the calling thread a worker: [`run`], and schedulers of one's own, [`run_local`] and [`Scheduler`].

use crate::shim::system::thread;
use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::goroutine::Goexit;
use crate::goroutine::native::fibre::{current, job};
use crate::goroutine::native::locals;
use crate::goroutine::native::sched::bubble::{self, Bubble};
use crate::goroutine::native::sched::scheduler::Sched;
use crate::goroutine::native::sched::worker::Worker;
use crate::goroutine::native::sched::{report, scheduler};
use crate::goroutine::native::stack::overflow;

/// Runs `main` as a goroutine, with the calling thread as a worker, and returns its result.
///
/// The main goroutine runs on the calling thread from beginning to end, so `main` need not be `Send`, and may borrow;
/// on a stack of 8 MiB. Other workers are started when there is work for them, as many as
/// [`max_procs`](crate::goroutine::max_procs) says, this one included. What the goroutines of this `run` start belongs
/// to it.
///
/// When `main` returns, so does this; it does not wait for the other goroutines, and ends them. Goroutines that have
/// not begun are dropped. Those that have are unwound as by [`goexit`](crate::goroutine::goexit), so that their
/// destructors run: those of the calling thread before this returns, those on other workers at their next wait or
/// yield, which may be after it has returned, or never if the process ends first. A stackless one that waits is dropped
/// when its waker is next used, so perhaps never. A caller that needs destructors to run waits for the goroutines (by a
/// wait group, or `join`), or uses [`run_local`]. In Go, too, the program ends with `main`. Where panics abort, nothing
/// is unwound.
///
/// A goroutine that waits where a panic would end the process, in an `extern "C"` function for instance, is not unwound
/// there. This waits for it for a second after the last other goroutine has ended, and then leaves its stack as it is,
/// with all that it holds.
///
/// If `main` ends by [`goexit`](crate::goroutine::goexit) the others go on, as in Go; when none is left, the process
/// ends.
///
/// Several threads may call `run` at a time. Goroutines started by a thread that is no worker belong to none, and run
/// in the background as long as the process.
///
/// Called from a goroutine it just calls `main`: what that starts belongs to the `run` around it, and does not end with
/// this call.
///
/// If nothing can ever wake the main goroutine, the process ends with `fatal error: all goroutines are asleep -
/// deadlock!`, status 2, and a list of them. That can be proven only on Linux, and only if every thread of the process
/// is one of this runtime's.
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
pub fn run<T>(main: impl FnOnce() -> T) -> T {
    run_with(main, Box::default())
}

pub(crate) fn run_with<T>(main: impl FnOnce() -> T, details: Box<job::Details>) -> T {
    if current::worker().is_some() {
        return main();
    }
    let sched = Sched::for_run();
    let worker = sched.enter();
    let result = on_worker(worker, main, as_main(details), || sched.idle.shut_down(), || ());
    match result {
        Ok(result) => result,
        Err(payload) => resume_unwind(payload),
    }
}

/// Goroutines of their own, run by one or more threads, until nothing is left to do.
///
/// Each thread that calls [`Scheduler::run`] is a worker of this scheduler. Goroutines that its goroutines start belong
/// to it, and any of its workers may start them; once started they stay there. (In Skaller's *Communicating Sequential
/// Processes in C++*, 6.1, this is an active set, which several schedulers share.)
///
/// The scheduler is *at rest* when nothing in it can run: no goroutine is ready, no timer set, no blocking call under
/// way, and no [`KeepAlive`] handle alive. Then all its workers return, and the goroutines that still wait, for what
/// can no longer come, are unwound: their destructors run.
///
/// # Examples
///
/// Two threads run the goroutines of one scheduler.
///
/// ```
/// use std::sync::atomic::{AtomicU32, Ordering};
/// use sudog::{Scheduler, go};
///
/// static RUNS: AtomicU32 = AtomicU32::new(0);
///
/// let sched = Scheduler::new();
/// std::thread::scope(|s| {
///     for _ in 0..2 {
///         s.spawn(|| sched.run(|| (0..10).for_each(|_| go(|| _ = RUNS.fetch_add(1, Ordering::Relaxed)))));
///     }
/// });
/// assert_eq!(RUNS.load(Ordering::Relaxed), 20);
/// ```
pub struct Scheduler {
    sched: &'static Sched,
}

/// Says that a foreign thread may still wake a goroutine of a [`Scheduler`]: while it lives, the
/// scheduler is not at rest.
///
/// Without one, a foreign thread may wake goroutines all the same, but the scheduler may be over by then; the wake-up
/// then has no effect.
#[must_use = "the scheduler does not wait for a handle that has been dropped"]
pub struct KeepAlive<'a> {
    sched: &'static Sched,
    _sched: std::marker::PhantomData<&'a Scheduler>,
}

/// Runs `main` and all goroutines that come of it on the calling thread, until nothing is left to do; then unwinds
/// those that wait for what can no longer come. [`Scheduler::run`] on a scheduler of its own.
///
/// # Panics
///
/// As [`Scheduler::run`].
///
/// # Examples
///
/// ```
/// use sudog::{go, run_local};
///
/// let (sender, receiver) = std::sync::mpsc::channel();
/// run_local(move || {
///     for i in 0..3 {
///         let sender = sender.clone();
///         go(move || sender.send(i).unwrap());
///     }
/// });
/// assert_eq!(receiver.into_iter().sum::<i32>(), 3); // run_local has waited for all three
/// ```
pub fn run_local<T>(main: impl FnOnce() -> T) -> T {
    Scheduler::new().run(main)
}

impl Scheduler {
    /// A scheduler without goroutines.
    #[must_use]
    pub fn new() -> Self {
        Self { sched: Sched::local() }
    }

    /// Makes the calling thread a worker: runs `main`, and goroutines of this scheduler, until it is at rest.
    ///
    /// # Panics
    ///
    /// When all is done: as `main` does, or because `main` waited for what could no longer come. At once, if the caller
    /// is a goroutine: its worker has other things to do.
    pub fn run<T>(&self, main: impl FnOnce() -> T) -> T {
        assert!(current::worker().is_none(), "run_local was called from a goroutine");
        let worker = self.sched.enter();
        match on_worker(worker, main, as_main(Box::default()), || (), || ()) {
            Ok(result) => result,
            Err(payload) if payload.is::<Goexit>() => {
                panic!("the main goroutine of run_local waited for what could no longer come, or called goexit")
            }
            Err(payload) => resume_unwind(payload),
        }
    }

    /// A handle for a foreign thread that will wake goroutines of this scheduler.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::atomic::AtomicU32;
    /// use sudog::Scheduler;
    /// use sudog::runtime::sema::{Wake, semacquire, semrelease};
    ///
    /// static EVENT: AtomicU32 = AtomicU32::new(0);
    ///
    /// let sched = Scheduler::new();
    /// let outside = sched.keep_alive(); // without it the scheduler might be over before the event
    /// std::thread::scope(|s| {
    ///     s.spawn(move || {
    ///         semrelease(&EVENT, Wake::Normal);
    ///         drop(outside);
    ///     });
    ///     sched.run(|| semacquire(&EVENT));
    /// });
    /// ```
    pub fn keep_alive(&self) -> KeepAlive<'_> {
        self.sched.idle.external_begins();
        KeepAlive { sched: self.sched, _sched: std::marker::PhantomData }
    }

    /// How many goroutines of this scheduler have not ended.
    #[must_use]
    pub fn num_goroutine(&self) -> usize {
        self.sched.live()
    }
}

impl Default for Scheduler {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scheduler").field("num_goroutine", &self.num_goroutine()).finish()
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        self.sched.retire();
    }
}

impl Drop for KeepAlive<'_> {
    fn drop(&mut self) {
        self.sched.external_ends();
    }
}

impl std::fmt::Debug for KeepAlive<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad("KeepAlive")
    }
}

/// Runs `main` in the bubble of this thread: its result; and the goroutines and tasks that are left, which will be
/// unwound, a line for each.
pub(crate) fn run_in_bubble<T>(
    scheduler: &Scheduler,
    bubble: &Bubble,
    main: impl FnOnce() -> T,
) -> (thread::Result<T>, String) {
    let sched = scheduler.sched;
    let worker = sched.enter();
    let mut left = String::new();
    let list = || {
        left = report::goroutines(sched);
        let tasks = sched.live().saturating_sub(left.lines().count());
        if tasks > 0 {
            left += &format!("{tasks} async task(s)\n");
        }
        bubble.ends();
    };
    let result = on_worker(worker, main, as_main(Box::default()), bubble::main_has_ended, list);
    (result, left)
}

/// Runs `main` as a goroutine of this worker, and the worker until it stops or its scheduler is over; then reclaims it.
/// Calls `ended` when `main` has ended, and `over` before goroutines that are left are unwound.
fn on_worker<T>(
    worker: &'static Worker,
    main: impl FnOnce() -> T,
    details: Box<job::Details>,
    ended: impl FnOnce(),
    over: impl FnOnce(),
) -> thread::Result<T> {
    let _stack = overflow::prepare_thread();
    let sched = worker.sched();
    let result = UnsafeCell::new(None);
    let place = result.get();
    let body = move || {
        let outcome = catch_unwind(AssertUnwindSafe(main));
        let exited = matches!(&outcome, Err(payload) if payload.is::<Goexit>());
        // SAFETY: `result` outlives this goroutine, which runs on this thread and is over before `reclaim` returns.
        unsafe { *place = Some(outcome) };
        if let Some(fibre) = current::fibre() {
            // Before the scheduler is over, and this goroutine would be given up while its locals' destructors wait.
            fibre.is_through();
            locals::clear(fibre);
        }
        if exited && !sched.ends_at_rest() && !worker.is_over() {
            sched.set_main(scheduler::main::EXITED); // and the others go on
        } else {
            ended();
        }
    };
    sched.count_made();
    // SAFETY: the closure stays on this thread, and all that it borrows outlives this call, which does not return
    // before the closure has been run or dropped.
    let work = unsafe { job::pack_unchecked(body, Some(details), Some(worker)) };
    worker.start_on(work);
    worker.run();
    over();
    let clean = worker.reclaim();
    sched.leave(worker, clean);
    if !clean && !ended_normally(&result) {
        // Panics abort, so the main goroutine cannot be unwound; and it may have lent out what it borrows from our
        // caller.
        crate::fatal("all goroutines are asleep - deadlock!");
    }
    result.into_inner().unwrap_or_else(|| Err(Box::new(Goexit)))
}

fn ended_normally<T>(result: &UnsafeCell<Option<T>>) -> bool {
    // SAFETY: the main goroutine, which writes it, does not run any more.
    unsafe { (*result.get()).is_some() }
}

/// What the main thread of a process has as a rule: programs were written for it.
const MAIN_STACK: usize = 8 << 20;

fn as_main(mut details: Box<job::Details>) -> Box<job::Details> {
    details.name.get_or_insert_with(|| "main".into());
    details.stack_size.get_or_insert(MAIN_STACK);
    details
}
