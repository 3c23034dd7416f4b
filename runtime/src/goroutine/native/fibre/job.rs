//! A goroutine that has not started: a closure, in 64 bytes that any worker may take.
//!
//! ```text
//!  ┌──────┬────────┬─────────┬───────────────────────────────┐
//!  │ link │ vtable │ details │ closure, or a box that has it │
//!  └──────┴────────┴─────────┴───────────────────────────────┘
//! ```
//!
//! A [`Work`] is a pointer. If bit 0 is clear, the pointer is to a job; if bit 0 is set, to an async task that is to be
//! polled. Jobs and tasks are `Send`, so they may move from worker to worker. Work gets a stack when a worker runs the
//! work.

use std::any::Any;
use std::fmt::Write as _;
use std::mem::MaybeUninit;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use async_task::Runnable;

use crate::fatal::say;
use crate::goroutine::native::exit::{Goexit, OnPanic};
use crate::goroutine::native::fibre::{Fibre, current};
use crate::goroutine::native::sched::stall;
use crate::goroutine::native::sched::worker::Worker;
use crate::goroutine::native::switch_hooks;
use crate::goroutine::native::trace;
use crate::goroutine::protocol::inbox::Link;
use crate::goroutine::protocol::runq::Work;
use crate::panics::drop_payload;

/// The size, in words, of the largest closure that a job holds without a box.
const WORDS: usize = 5;

/// A goroutine that has not started: see the top of this file.
#[repr(C)]
pub(crate) struct Job {
    /// The link in an inbox. The first field, so that a pointer to the link is a pointer to the job. Also the link in
    /// the list of spare jobs.
    pub(crate) link: Link,
    vtable: &'static Vtable,
    details: Option<Box<Details>>,
    closure: [MaybeUninit<usize>; WORDS],
}

/// The part of a job that depends on the type of the closure.
pub(crate) struct Vtable {
    /// Takes the closure out of the job, frees the job, and runs the closure. Never unwinds.
    run: unsafe fn(NonNull<Job>, &'static Worker),
    /// The name of the type, which has the path of the function that started the goroutine.
    origin: fn() -> &'static str,
}

impl Vtable {
    /// The vtable of a task, which is no job.
    pub(crate) const TASK: &Self = {
        static TASK: Vtable = Vtable { run: |_, _| unreachable!("a task is no job"), origin: || "a task" };
        &TASK
    };

    const fn of<F: FnOnce()>() -> &'static Self {
        const { &Self { run: run::<F>, origin: std::any::type_name::<F> } }
    }

    /// Returns the type name of the user's closure that the goroutine runs, without this project's closures around that
    /// closure.
    pub(crate) fn origin(&self) -> &'static str {
        closure_of_the_user((self.origin)())
    }
}

/// Strips from a type name the functions that this project and the standard library have put around the user's closure:
/// the name `sudog_runtime::..::spawn<T, app::serve::{{closure}}>::{{closure}}` becomes `app::serve::{{closure}}`.
fn closure_of_the_user(name: &'static str) -> &'static str {
    const OURS: [&str; 7] =
        ["sudog_runtime::", "sudog_sync::", "sudog_csp::", "sudog_net::", "core::", "alloc::", "std::"];
    let is_ours = |name: &str| OURS.iter().any(|prefix| name.starts_with(prefix));
    let mut rest = name;
    while is_ours(rest) {
        // In all names of our functions the closure is the last generic argument of the last function.
        match last_argument(rest) {
            Some(argument) if !argument.starts_with("dyn ") => rest = argument,
            _ => return name,
        }
    }
    rest
}

/// Returns the last argument in the last list of generic arguments of a path.
fn last_argument(path: &str) -> Option<&str> {
    let is_arrow = |at: usize| path[..at].ends_with('-');
    let end = path.char_indices().rev().find(|&(at, char)| char == '>' && !is_arrow(at))?.0;
    let mut depth = 0;
    let mut last = None;
    for (at, char) in path[..end].char_indices().rev() {
        match char {
            '>' if is_arrow(at) => {}
            '>' | ')' | ']' => depth += 1,
            '<' if depth == 0 => return Some(path[last.unwrap_or(at + 1)..end].trim()),
            '<' | '(' | '[' => depth -= 1,
            ',' if depth == 0 => _ = last.get_or_insert(at + 1),
            _ => {}
        }
    }
    None
}

/// The settings that a [`Builder`](crate::goroutine::Builder) adds to a goroutine. Most goroutines have no settings.
#[derive(Default)]
pub(crate) struct Details {
    pub(crate) name: Option<Arc<str>>,
    pub(crate) stack_size: Option<usize>,
    pub(crate) on_panic: OnPanic,
    /// The call that started the goroutine, if switches are observed.
    pub(crate) created_at: Option<&'static Location<'static>>,
}

/// The stack size that the main thread of a process has as a rule: programs were written for that size.
const MAIN_STACK: usize = 8 << 20;

impl Details {
    /// Adds the name and the stack size of a main goroutine, where the starter has set none.
    pub(crate) fn as_main(mut self: Box<Self>) -> Box<Self> {
        self.name.get_or_insert_with(|| "main".into());
        self.stack_size.get_or_insert(MAIN_STACK);
        self
    }
}

/// An unpacked piece of work: a job to run, or a task to poll.
pub(crate) enum Unpacked {
    Job(NonNull<Job>),
    Task(Runnable),
}

const _: () = assert!(size_of::<Job>() == 64 || size_of::<usize>() != 8);

/// Returns whether a closure fits into a job.
const fn is_inline<F>() -> bool {
    size_of::<F>() <= WORDS * size_of::<usize>() && align_of::<F>() <= align_of::<usize>()
}

/// Returns whether a closure or future is too large to be moved on a goroutine's stack: see
/// [`box_if_large!`](crate::box_if_large).
#[must_use]
pub const fn is_large<F>() -> bool {
    size_of::<F>() > 1024
}

/// Boxes a closure that is too large to be moved on a goroutine's stack, and returns the result of a call with that box.
///
/// On the way to its call, a closure is moved a few times: into other closures, into a job, and out of that job.
/// Without optimisation each move is a copy on the stack. So a function that starts a goroutine, or calls a closure on
/// another thread, begins with this macro: `box_if_large!(f: F as dyn FnOnce() + Send => start(f))`.
#[doc(hidden)]
#[macro_export]
macro_rules! box_if_large {
    ($f:ident: $F:ty as $Dyn:ty => $call:expr) => {
        if const { $crate::goroutine::is_large::<$F>() } {
            let $f: ::std::boxed::Box<$Dyn> = ::std::boxed::Box::new($f);
            return $call;
        }
    };
}

/// Packs the closure of a new goroutine into a job.
#[inline]
pub(crate) fn pack<F>(f: F, details: Option<Box<Details>>, worker: Option<&'static Worker>) -> Work
where
    F: FnOnce() + Send + 'static,
{
    switch_hooks::forbid_start_in_hook();
    // SAFETY: `F` is `Send` and `'static`, so `f` may run on any thread, at any time.
    unsafe { pack_unchecked(f, details, worker) }
}

/// Packs any closure, as [`pack`] does.
///
/// # Safety
///
/// The closure may be moved to the thread that runs it, and the values that the closure borrows live until the run has
/// ended.
#[inline]
pub(crate) unsafe fn pack_unchecked<F>(f: F, details: Option<Box<Details>>, worker: Option<&'static Worker>) -> Work
where
    F: FnOnce(),
{
    let job = worker.and_then(Worker::spare_job).unwrap_or_else(new_job);
    let closure = [MaybeUninit::uninit(); WORDS];
    // SAFETY: `job` is unused memory of the right layout, and has no other owner.
    unsafe { job.write(Job { link: Link::new(), vtable: Vtable::of::<F>(), details, closure }) };
    // SAFETY: `closure` is in bounds of the job made above; no reference to `closure` is made.
    let place = unsafe { &raw mut (*job.as_ptr()).closure };
    if is_inline::<F>() {
        // SAFETY: `f` fits into `place`, and the alignment of `F` is no greater than that of a word.
        unsafe { place.cast::<F>().write(f) };
    } else {
        // SAFETY: a `Box<F>` is a thin pointer, and fits into a word of `place`.
        unsafe { place.cast::<Box<F>>().write(Box::new(f)) };
    }
    Work(job.addr_and_expose())
}

#[cold]
fn new_job() -> NonNull<Job> {
    NonNull::from(Box::leak(Box::<MaybeUninit<Job>>::new_uninit())).cast()
}

trait Expose {
    fn addr_and_expose(self) -> NonZeroUsize;
}

impl<T> Expose for NonNull<T> {
    fn addr_and_expose(self) -> NonZeroUsize {
        // Never 0, as the pointer is not null.
        NonZeroUsize::new(self.as_ptr().expose_provenance()).expect("a pointer that is not null")
    }
}

/// Packs an async task that is to be polled.
pub(crate) fn pack_task(task: Runnable) -> Work {
    let raw = task.into_raw().addr_and_expose();
    debug_assert_eq!(raw.get() & 1, 0);
    Work(raw | 1)
}

/// Unpacks a piece of work.
///
/// # Safety
///
/// The work came from [`pack`] or [`pack_task`], and no copy of that work is used again.
pub(crate) unsafe fn unpack(work: Work) -> Unpacked {
    let raw = work.0.get();
    if raw & 1 == 0 {
        Unpacked::Job(NonNull::new(ptr::with_exposed_provenance_mut(raw)).expect("packed from a NonNull"))
    } else {
        let task = NonNull::new(ptr::with_exposed_provenance_mut(raw & !1)).expect("packed from a NonNull");
        // SAFETY: `task` came from `Runnable::into_raw` in `pack_task`, and is used once, by the contract of `unpack`.
        Unpacked::Task(unsafe { Runnable::from_raw(task) })
    }
}

/// Returns the stack size that the builder of a goroutine has set. None: the default size.
#[inline]
pub(crate) fn stack_size(work: Work) -> Option<usize> {
    if work.0.get() & 1 != 0 {
        return None;
    }
    let job: *const Job = ptr::with_exposed_provenance(work.0.get());
    // SAFETY: `job` is a packed job: the caller has taken `work` from a queue and has not unpacked `work` yet.
    unsafe { (*job).details.as_ref() }.and_then(|details| details.stack_size)
}

/// Returns the vtable of a piece of work.
pub(crate) fn vtable(work: Work) -> &'static Vtable {
    if work.0.get() & 1 != 0 {
        return Vtable::TASK;
    }
    let job: *const Job = ptr::with_exposed_provenance(work.0.get());
    // SAFETY: `job` is a packed job: the caller has taken `work` from a queue and has not unpacked `work` yet.
    unsafe { (*job).vtable }
}

/// Writes `next` into an unused job, as the link of a list of spare jobs.
#[inline]
pub(crate) fn link_spare(job: NonNull<Job>, next: Option<NonNull<Job>>) {
    // SAFETY: `job` is memory for an unused job, whose first word has no other user.
    unsafe { job.cast::<Option<NonNull<Job>>>().write(next) };
}

/// Returns the job that `link_spare` wrote into this job.
#[inline]
pub(crate) fn next_spare(job: NonNull<Job>) -> Option<NonNull<Job>> {
    // SAFETY: `link_spare` has initialised the first word of `job`.
    unsafe { job.cast::<Option<NonNull<Job>>>().read() }
}

impl Job {
    /// Runs the job on the stack of the caller, which is a goroutine's stack.
    ///
    /// # Safety
    ///
    /// `this` was packed, and has no other owner.
    #[inline]
    pub(crate) unsafe fn run(this: NonNull<Self>, fibre: &Fibre) {
        // SAFETY: `this` is a packed job, which nothing else uses, by the contract of `run`.
        let vtable = unsafe { this.as_ref().vtable };
        fibre.vtable.set(vtable);
        // SAFETY: `vtable.run` is the function for the closure in `this`; `this` was packed and has no other owner, by
        // the contract of this function.
        unsafe { (vtable.run)(this, fibre.worker) };
    }
}

/// Takes the closure and the details out of a job, and frees that job.
///
/// # Safety
///
/// `job` was packed from an `F`, and has no other owner.
#[inline]
unsafe fn open<F>(job: NonNull<Job>, worker: &'static Worker) -> (F, Option<Box<Details>>) {
    // SAFETY: `job` has no other owner, by the contract of `open`. Each field is read once, and the memory is not used
    // as a job again.
    let details = unsafe { ptr::read(&raw const (*job.as_ptr()).details) };
    // SAFETY: `closure` is in bounds of `job`, which has no other owner, by the contract of `open`.
    let place = unsafe { &raw const (*job.as_ptr()).closure };
    let f = if is_inline::<F>() {
        // SAFETY: `pack_unchecked` wrote an `F` there, as an `F` fits. The closure is read once.
        unsafe { place.cast::<F>().read() }
    } else {
        // SAFETY: `pack_unchecked` wrote a `Box<F>` there, as an `F` does not fit. The box is read once.
        *unsafe { place.cast::<Box<F>>().read() }
    };
    worker.keep_job(job);
    (f, details)
}

unsafe fn run<F: FnOnce()>(job: NonNull<Job>, worker: &'static Worker) {
    // SAFETY: `job` was packed from an `F` and has no other owner: the only caller is `Job::run`, through the vtable of
    // `F`.
    let (f, details) = unsafe { open::<F>(job, worker) };
    let on_panic = match details {
        None => OnPanic::default(),
        Some(details) => {
            current::set_name(details.name);
            if details.created_at.is_some() {
                current::set_created_at(details.created_at);
            }
            details.on_panic
        }
    };
    if switch_hooks::observes_names() {
        is_running();
    }
    if let Err(payload) = catch_unwind(AssertUnwindSafe(f)) {
        ended_by_panic(payload, on_panic);
    }
}

/// Tells the stall report and a trace which goroutine runs.
#[cold]
fn is_running() {
    if let Some(fibre) = current::fibre() {
        if switch_hooks::observes_stalls() {
            stall::runs(fibre);
        }
        if switch_hooks::is_traced() {
            trace::is_named(fibre);
        }
    }
}

#[cold]
fn ended_by_panic(payload: Box<dyn Any + Send>, on_panic: OnPanic) {
    if !payload.is::<Goexit>() && on_panic == OnPanic::Abort {
        die_of_panic(&*payload, current::describe().as_deref());
    }
    drop_payload(payload);
}

/// Prints Go's report of a panic, which names the goroutine, and ends the process with Go's status, 2. Called when a
/// goroutine without a handle has panicked.
#[cold]
pub(crate) fn die_of_panic(payload: &(dyn Any + Send), goroutine: Option<&str>) -> ! {
    let what = match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (_, Some(text)) => text.as_str(),
        _ => "(a value that is no text)",
    };
    let mut text = format!("panic: {what}\n\n");
    if let Some(goroutine) = goroutine {
        _ = writeln!(text, "goroutine {goroutine} [running]");
    }
    say(&text);
    std::process::exit(2)
}

/// Gives a job's memory back to the allocator.
///
/// # Safety
///
/// The memory came from [`pack`], and is not in use.
pub(crate) unsafe fn free(job: NonNull<Job>) {
    // SAFETY: `new_job` allocated `job` as a box of this layout, and the memory is not in use, by the contract of
    // `free`.
    drop(unsafe { Box::from_raw(job.cast::<MaybeUninit<Job>>().as_ptr()) });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_that_started_a_goroutine() {
        for (name, origin) in [
            ("app::main::{{closure}}", "app::main::{{closure}}"),
            ("sudog_runtime::a::Builder::spawn<(), app::main::{{closure}}>::{{closure}}", "app::main::{{closure}}"),
            (
                "sudog_sync::wait_group::WaitGroup::go<sudog_runtime::a::f<u8, app::serve<(u8, T<V>)>::{{closure}}>::{{closure}}>::{{closure}}",
                "app::serve<(u8, T<V>)>::{{closure}}",
            ),
            ("sudog_runtime::run_with<(), app::main>::{{closure}}", "app::main"),
            (
                "sudog_runtime::Scope<'_, '_>::start<sudog_runtime::<impl sudog_runtime::Builder>::go_scoped<'_, app::main>::{{closure}}>::{{closure}}",
                "app::main",
            ),
            (
                "alloc::boxed::Box<dyn core::ops::function::FnOnce() + core::marker::Send>",
                "alloc::boxed::Box<dyn core::ops::function::FnOnce() + core::marker::Send>",
            ),
            ("sudog_runtime::f::{{closure}}", "sudog_runtime::f::{{closure}}"),
            (
                "sudog_runtime::spawn<i32, app::serve<fn(u8) -> u8>::{{closure}}>::{{closure}}",
                "app::serve<fn(u8) -> u8>::{{closure}}",
            ),
            ("sudog_demo::serve<app::Job>::{{closure}}", "sudog_demo::serve<app::Job>::{{closure}}"),
        ] {
            assert_eq!(closure_of_the_user(name), origin);
        }
        assert!(Vtable::of_value(&|| ()).origin().ends_with("the_code_that_started_a_goroutine::{{closure}}"));
    }

    impl Vtable {
        fn of_value<F: FnOnce()>(_: &F) -> &'static Self {
            Self::of::<F>()
        }
    }
}
